"""A result's way into the ledger and back: the same on the first run and on every replay."""

from __future__ import annotations

import enum
import json
import uuid
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NoReturn, TypedDict, TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import BadInput, Drift, PayloadTooLarge
from holdfast.core.payload import MAX_PAYLOAD_BYTES, encode_payload
from holdfast.engine.journal.codec import codec_for, encode_value
from tests.engine.journal.codec_samples import (
    SECRET,
    Cat,
    Colour,
    Model,
    Photo,
    Plain,
    Point,
    Shape,
    Words,
    refused_values,
    round_trip,
    shown,
)

T = TypeVar("T")


class Level(enum.IntEnum):
    LOW = 1


class Dog(msgspec.Struct, tag=True):
    name: str


class Grumpy(msgspec.Struct):
    mood: str

    def __post_init__(self) -> None:
        raise KeyError("no mood is good enough")


class Town(TypedDict):
    city: str
    at: datetime


class Pair(NamedTuple):
    left: int
    right: str


class JsonModel(Model):
    @classmethod
    def model_validate_json(cls, text: bytes) -> Model:
        return cls.model_validate(json.loads(text))


def crowd_of_one(doublings: int, seed: object = 1) -> object:
    value = seed
    for _ in range(doublings):
        value = [value, value]
    return value


# --- there and back


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (str, "größer 目標"),
        (int, 2**200),
        (float, 1e300),
        (bool, True),
        (type(None), None),
        (None, None),
        (dict, {"a": [1, None]}),
        (list, [1, "a"]),
        (dict[str, Any], {"a": {"b": 1}}),
        (tuple[int, str], (1, "a")),
        (tuple[int, ...], (1, 2, 3)),
        (list[tuple[int, int]], [(1, 2), (3, 4)]),
        (dict[int, str], {1: "a", -2: "b"}),
        (dict[str, dict[int, list[int]]], {"x": {1: [2]}}),
        (dict[float, int], {1.5: 1}),
        (dict[uuid.UUID, int], {uuid.UUID(int=5): 1}),
        (dict[date, int], {date(2031, 1, 2): 1}),
        (dict[Colour, int], {Colour.BLUE: 1}),
        (Point, Point(1)),
        (Shape, Shape("hat", [Point(1), Point(2, 3.5)], Colour.BLUE, ("a", "b"))),
        (list[Shape], [Shape("hat", [])]),
        (Cat | Dog, Dog("Rex")),
        (list[Cat | Dog], [Cat(9), Dog("Rex")]),
        (Cat | None, None),
        (int | str | None, "a"),
        (Literal["yes", "no"], "no"),
        (Colour, Colour.BLUE),
        (Level, Level.LOW),
        (Decimal, Decimal("1.10")),
        (datetime, datetime(2031, 1, 2, 3, 4, 5, 6, tzinfo=UTC)),
        (datetime, datetime(2031, 1, 2)),  # noqa: DTZ001 - people return these, too
        (date, date(2031, 1, 2)),
        (timedelta, timedelta(hours=1, microseconds=1)),
        (uuid.UUID, uuid.UUID(int=7)),
        (Town, {"city": "Kiel", "at": datetime(2031, 1, 2, tzinfo=UTC)}),
        (Pair, Pair(1, "a")),
        (bytes, b"\x00\xff"),
        (bytearray, bytearray(b"x")),
        (set[int], {1, 2}),
        (frozenset[str], frozenset({"a"})),
        (set[tuple[int, int]], {(1, 2)}),
        (list[set[int]], [{1}, set()]),
        (Photo, Photo(b"\x00", {"a", "b"})),
        (dict[str, bytes], {"a": b"x"}),
        (Path, Path("a/b")),
        (list[Path], [Path("a")]),
        (Sequence[int], [1, 2]),
        (Iterable[int], [1, 2]),
        (Annotated[int, msgspec.Meta(gt=1)], 2),
        (Annotated[int, {"not": "hashable"}], 2),
        (Model, Model(id=1)),
        (JsonModel, JsonModel(id=1)),
        (list[Model], [Model(id=1), Model(id=2)]),
        (dict[str, Model | None], {"a": Model(id=1), "b": None}),
        (T, {"a": 1}),
        (object, {"a": 1}),
    ],
    ids=shown,
)
def test_a_result_comes_back_as_its_annotation_says(annotation: Any, value: object) -> None:
    codec = codec_for("step tested", annotation)
    payload = codec.encode("tested", value)
    decoded = codec.decode(payload)

    assert decoded == value
    assert type(decoded) is type(value)
    assert codec.decode(codec.encode("tested", decoded)) == value


@pytest.mark.parametrize(
    ("value", "comes_back_as"),
    [
        ((1, (2,)), [1, [2]]),
        ({1: "a", "b": {2: "c"}}, {"1": "a", "b": {"2": "c"}}),
        (Point(1), {"x": 1, "y": 0.5}),
        (Cat(9), {"type": "Cat", "lives": 9}),
        (Pair(1, "a"), [1, "a"]),
        (Colour.RED, "red"),
        (Decimal("1.10"), "1.10"),
        (datetime(2031, 1, 2, tzinfo=UTC), "2031-01-02T00:00:00Z"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Path("a/b"), "a/b"),
        (Model(id=1), {"id": 1}),
        (Words("a"), "a"),
        ([Words("a")], ["a"]),
    ],
    ids=shown,
)
def test_without_an_annotation_a_result_comes_back_as_plain_json(
    value: object, comes_back_as: object
) -> None:
    assert round_trip(Any, value) == comes_back_as


def test_a_list_under_an_annotation_of_a_tuple_becomes_one_at_once() -> None:
    assert round_trip(tuple[int, ...], [1, 2]) == (1, 2)
    assert round_trip(float, 1) == 1.0


def test_a_secret_comes_back_as_it_was() -> None:
    class Grant(msgspec.Struct):
        password: Literal["correct horse battery staple 9"]

    assert round_trip(str, f"use {SECRET} now") == f"use {SECRET} now"
    assert round_trip(Grant, Grant("correct horse battery staple 9")).password.endswith("staple 9")


JSON_LIKE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=10)
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.datetimes()
    | st.uuids()
    | st.sampled_from(Colour)
    | st.builds(Point, x=st.integers(), y=st.floats(allow_nan=False, allow_infinity=False))
    | st.builds(Cat, lives=st.integers()),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=5), inner, max_size=4)
        | st.dictionaries(st.integers(), inner, max_size=4)
    ),
    max_leaves=15,
)


@given(JSON_LIKE)
def test_what_has_been_stored_once_is_stable(value: object) -> None:
    codec = codec_for("step tested", Any)
    payload = codec.encode("tested", value)

    assert codec.encode("tested", codec.decode(payload)) == payload


@given(
    st.builds(
        Shape,
        name=st.text(),
        points=st.lists(
            st.builds(Point, x=st.integers(), y=st.floats(allow_nan=False, allow_infinity=False)), max_size=3
        ),
        colour=st.sampled_from(Colour),
        tags=st.lists(st.text(max_size=5), max_size=3).map(tuple),
    )
)
def test_what_has_been_read_by_its_type_is_stable(shape: Shape) -> None:
    codec = codec_for("step tested", Shape)
    payload = codec.encode("tested", shape)
    decoded = codec.decode(payload)

    assert codec.encode("tested", decoded) == payload
    assert codec.decode(codec.encode("tested", decoded)) == decoded


# --- what is refused


@pytest.mark.parametrize("value", list(refused_values()), ids=lambda value: type(value).__name__)
def test_what_would_not_come_back_is_refused_with_the_step_and_a_remedy(value: object) -> None:
    with pytest.raises(BadInput) as refusal:
        codec_for("x", Any).encode("fetch", value)

    assert refusal.value.field == "result of step fetch"
    assert "annotate the return type" in refusal.value.problem
    assert len(str(refusal.value)) < 700
    assert str(refusal.value).encode()


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (str, 5),
        (str, b"bytes are no text"),
        (int, "5"),
        (int, 1.5),
        (None, "something"),
        (list[int], ["a"]),
        (list[int], {1, 2}),
        (dict[str, int], {1: 1.5}),
        (Point, {"y": 1.0}),
        (Cat | Dog, {"type": "Fish"}),
        (Literal["yes"], "no"),
        (Colour, "green"),
        (Plain, Plain()),
        (Plain, {"a": 1}),
        (Model, Model(no_id=1)),
        (Model, 3),
        (Grumpy, {"mood": "fine"}),
        (Photo, Photo(b"x", set(), extra=b"an Any does not know bytes")),
        (Photo, Photo(b"x", set(), extra={1})),
        (dict[str, Any], {"a": b"x"}),
        (list[bytes | None] | dict[str, Any], {"a": b"x"}),
    ],
    ids=shown,
)
def test_a_result_that_does_not_fit_its_annotation_is_refused_on_the_first_run(
    annotation: Any, value: object
) -> None:
    with pytest.raises(BadInput) as refusal:
        codec_for("x", annotation).encode("fetch", value)

    assert refusal.value.field == "result of step fetch"
    assert "annotat" in refusal.value.problem


@pytest.mark.parametrize(
    "annotation",
    [str | datetime, Point | Shape, Plain | Path, NoReturn, Literal[b"x"]],
    ids=shown,
)
def test_an_annotation_that_cannot_be_read_by_lets_plain_values_pass_and_no_others(annotation: Any) -> None:
    assert round_trip(annotation, {"a": [1, None, "x"]}) == {"a": [1, None, "x"]}
    for value in (
        datetime(2031, 1, 2, tzinfo=UTC),
        Point(1),
        [Path("a")],
        {"a": {Point(1).x: uuid.UUID(int=1)}},
    ):
        with pytest.raises(BadInput, match="does not come back as"):
            round_trip(annotation, value)


def test_too_much_is_refused_with_both_sizes() -> None:
    with pytest.raises(PayloadTooLarge) as refusal:
        codec_for("x", str).encode("fetch", "x" * MAX_PAYLOAD_BYTES)

    assert refusal.value.field == "result of step fetch"
    assert (refusal.value.size_bytes, refusal.value.max_bytes) == (MAX_PAYLOAD_BYTES + 2, MAX_PAYLOAD_BYTES)


@pytest.mark.parametrize("seed", [1, b"x", {1}, {1: 1}], ids=repr)
def test_a_crowd_of_one_value_is_refused_before_it_is_unfolded(seed: object) -> None:
    with pytest.raises(PayloadTooLarge):
        encode_payload("result", [seed, crowd_of_one(60, seed)], max_bytes=1000, is_typed=True)


def test_a_value_without_a_type_is_refused_under_the_field_it_is_given_for() -> None:
    with pytest.raises(BadInput) as refusal:
        encode_value("item 3 of list messages", {"a": b"x"})

    assert refusal.value.field == "item 3 of list messages"
    assert encode_value("item", {1: (2,)}) == b'{"1":[2]}'


# --- drift


@pytest.mark.parametrize(
    ("annotation", "stored"),
    [
        (int, b'"five"'),
        (Point, b'{"z":1}'),
        (Cat, b'{"type":"Dog","lives":1}'),
        (Colour, b'"green"'),
        (Model, b'{"name":"x"}'),
        (Grumpy, b'{"mood":"fine"}'),
        (Plain, b"{}"),
        (Path, b"3"),
        (Any, b"{not json"),
        (str, b""),
        (str, b'"\xff"'),
    ],
    ids=shown,
)
def test_a_remembered_result_that_does_not_fit_any_more_is_drift(annotation: Any, stored: bytes) -> None:
    codec = codec_for("list messages", annotation)

    with pytest.raises(Drift) as drift:
        codec.decode(stored)
    assert drift.value.where == "list messages"

    with pytest.raises(Drift) as drift:
        codec.decode(stored, step="fetch")
    assert drift.value.where == "step fetch"
    assert drift.value.__cause__ is not None
