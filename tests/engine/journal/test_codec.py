"""A result's way into the ledger and back, and an error's: the same on the first run and on every replay."""

from __future__ import annotations

import asyncio
import builtins
import contextvars
import dataclasses
import enum
import functools
import gc
import json
import sys
import traceback
import typing
import uuid
import weakref
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, NoReturn, TypedDict, TypeVar, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.effect_class import step
from holdfast.core.errors import BadInput, Drift, PayloadTooLarge, StepFailed
from holdfast.core.payload import MAX_PAYLOAD_BYTES, encode_payload
from holdfast.core.redaction import keep_secret
from holdfast.core.task import Failure
from holdfast.engine.journal.codec import (
    MAX_MESSAGE_CHARS,
    MAX_PREVIEW_CHARS,
    Codec,
    codec_for,
    codec_of,
    encode_value,
    failure_of,
    input_digest,
    preview_of,
    revive,
)
from holdfast.engine.ledger.ledger import checked_failure
from holdfast.engine.program.stopping import Stopping

if TYPE_CHECKING:
    from collections.abc import Hashable as OnlyForTypeCheckers

KEY = b"0123456789abcdef"


def shown(value: object) -> str:
    """The name of a case: the same in every process, so without addresses and without the orders of sets."""
    if isinstance(value, (str, int, float, bytes, type)) or typing.get_origin(value) is not None:
        return f"{value!r:.40}"
    return type(value).__name__


SECRET = "AKIAABCDEFGHIJKLMNOP"
T = TypeVar("T")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.5


@dataclasses.dataclass
class Shape:
    name: str
    points: list[Point]
    colour: Colour = Colour.RED
    tags: tuple[str, ...] = ()


class Cat(msgspec.Struct, tag=True):
    lives: int


class Dog(msgspec.Struct, tag=True):
    name: str


class Photo(msgspec.Struct):
    pixels: bytes
    tags: set[str]
    extra: Any = None


class Grumpy(msgspec.Struct):
    mood: str

    def __post_init__(self) -> None:
        raise KeyError("no mood is good enough")


class Place(TypedDict):
    city: str
    at: datetime


class Pair(NamedTuple):
    left: int
    right: str


@dataclasses.dataclass(eq=False)
class Odd:
    raw: bytes


class Plain:
    """A class that nobody knows how to store."""


class Model:
    """Looks like a pydantic model to those who only look at its attributes."""

    def __init__(self, **named: Any) -> None:
        self.named = named

    def model_dump(self, *, mode: str, by_alias: bool) -> dict[str, Any]:
        assert (mode, by_alias) == ("json", True)
        return self.named

    @classmethod
    def model_validate(cls, value: Any) -> Model:
        if not isinstance(value, dict) or "id" not in value:
            raise ValueError("an id is needed")
        return cls(**value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and self.named == other.named

    __hash__ = None  # type: ignore[assignment]


class JsonModel(Model):
    @classmethod
    def model_validate_json(cls, text: bytes) -> Model:
        return cls.model_validate(json.loads(text))


class Words(str):
    __slots__ = ()


def round_trip(annotation: Any, value: object) -> Any:
    codec = codec_for("step tested", annotation)
    return codec.decode(codec.encode("tested", value))


def nested(depth: int) -> object:
    value: object = None
    for _ in range(depth):
        value = [value]
    return value


def cyclic() -> list[object]:
    value: list[object] = []
    value.append(value)
    return value


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
        (Place, {"city": "Kiel", "at": datetime(2031, 1, 2, tzinfo=UTC)}),
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


def refused_values() -> Iterable[object]:
    yield from (
        float("nan"),
        float("inf"),
        [-float("inf")],
        Point(1, float("nan")),
        {"a": Model(f=float("nan"))},
    )
    yield from (b"x", bytearray(b"x"), {1, 2}, frozenset(), [{1}], {"a": b"x"}, Photo(b"x", set()), Odd(b"x"))
    yield from ({True: 1}, {None: 1}, {(1, 2): 1}, {1.5: 1}, {b"k": 1}, {uuid.UUID(int=1): 1})
    yield from ({1: "a", "1": "b"}, [{"x": {1: "a", "1": "b"}}])
    yield from ("\ud800", {"\udfff": 1}, Words("\ud800"), Path("a\udcff"))
    yield from (10**5000, [10**5000], {10**5000: 1})
    yield from (cyclic(), nested(101), nested(100_000), {1: nested(101)})
    yield from (
        object(),
        Plain(),
        Plain,
        print,
        (n for n in range(3)),
        range(3),
        1j,
        ValueError("x"),
        asyncio,
    )
    yield from ([Plain()], Model(inner=Plain()), Model(inner=b"x"), Model(inner={1: 1}), iter([1]))


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


# --- the annotation of a function


async def shapes(_missing: OnlyForTypeCheckers | None = None) -> list[Shape]:
    return []


def promised() -> Awaitable[Point]:
    raise NotImplementedError


def unresolvable() -> list[OnlyForTypeCheckers]:
    return []


def unannotated():  # type: ignore[no-untyped-def]
    return None


def nothing() -> None: ...


class Client:
    count: int = 0

    def point(self) -> Point:
        return Point(1)

    def __call__(self) -> Cat:
        return Cat(1)


def wrapper_of(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return wrapper


@pytest.mark.parametrize(
    ("fn", "annotation"),
    [
        (shapes, list[Shape]),
        (promised, Point),
        (nothing, type(None)),
        (unannotated, Any),
        (unresolvable, Any),
        (len, Any),
        ("x".upper, Any),
        (str.upper, Any),
        (Client().point, Point),
        (Client(), Cat),
        (Client, Client),
        (functools.partial(shapes), list[Shape]),
        (functools.partial(Client().point), Point),
        (functools.lru_cache(promised), Point),
        (wrapper_of(shapes), list[Shape]),
        (step(shapes, id="a"), list[Shape]),
        (step(Client().point, id="a"), Point),
        (lambda: 1, Any),
    ],
    ids=shown,
)
def test_the_type_of_a_result_is_the_one_that_the_function_promises(fn: Any, annotation: Any) -> None:
    assert codec_of(fn).annotation == annotation
    assert isinstance(codec_of(fn), Codec)


def test_a_class_of_the_enclosing_function_is_found_when_the_function_uses_it() -> None:
    class Local(msgspec.Struct):
        a: int

    def use() -> Local:
        return Local(1)

    assert codec_of(use).annotation is Local


def test_a_function_has_one_codec_and_takes_it_with_it() -> None:
    def short_lived() -> int:
        return 1

    codec = codec_of(short_lived)
    assert codec_of(short_lived) is codec
    assert codec_of(step(short_lived, id="a")) is not None

    gone = weakref.ref(short_lived)
    del short_lived
    gc.collect()

    assert gone() is None


def test_a_drift_names_the_function_when_nobody_names_the_step() -> None:
    with pytest.raises(Drift, match="step shapes: "):
        codec_of(shapes).decode(b"3")


def test_a_union_of_models_is_left_to_those_who_made_them(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(Model):
        pass

    class TypeAdapter:
        def __init__(self, annotation: Any) -> None:
            self.annotation = annotation

        def validate_json(self, text: bytes) -> object:
            return Other(**json.loads(text))

    monkeypatch.setitem(sys.modules, "pydantic", SimpleNamespace(TypeAdapter=TypeAdapter))

    assert type(round_trip(Model | Other, Other(id=1))) is Other


# --- digests of inputs


class Durable(list[Any]):
    """A list that knows its own digest, and must not be walked."""

    def __init__(self, digest: bytes | str, items: Iterable[Any] = ()) -> None:
        super().__init__(items)
        self.digest = digest

    def __holdfast_digest__(self) -> bytes | str:
        return self.digest


class Broken(list[Any]):
    def __holdfast_digest__(self) -> str:
        raise RuntimeError("no digest today")


def digest(*args: Any, **kwargs: Any) -> bytes:
    return input_digest(KEY, args, kwargs)[0]


def test_a_digest_has_eight_bytes_and_depends_on_the_key() -> None:
    assert len(digest("x")) == 8
    assert input_digest(b"other", ("x",), {})[0] != digest("x")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": [2, 3]}, {"b": [2, 3], "a": 1}),
        ({3, 1, 2}, {2, 3, 1}),
        ((1, 2), [1, 2]),
        (Point(1), Point(1)),
        (Plain(), Plain()),
        ([Plain()], [Plain()]),
        ({"client": Plain()}, {"client": Plain()}),
        (Model(id=1), Model(id=1)),
        (Durable("m:3", [1]), Durable("m:3", [2, 3])),
        ([Durable("m:3", [1])], [Durable("m:3", [9])]),
        ({"messages": Durable(b"\x00", [1])}, {"messages": Durable(b"\x00", [9])}),
        (len, len),
        (asyncio, asyncio),
        (Plain, Plain),
        ({1: "a", "b": 2}, {"b": 2, 1: "a"}),
        (lambda: 1, lambda: 2),
    ],
    ids=shown,
)
def test_the_same_input_has_the_same_digest(one: object, other: object) -> None:
    assert digest(one) == digest(other)
    assert digest(x=one, y=1) == digest(y=1, x=other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 2),
        (1, "1"),
        ("a", "b"),
        (None, False),
        ([1, 2], [2, 1]),
        ({"a": 1}, {"a": 2}),
        ({1: "a"}, {1: "b"}),
        (Point(1), Point(2)),
        (Model(id=1), Model(id=2)),
        (Path("a"), Path("b")),
        (Plain(), Client()),
        (len, print),
        (Plain, Client),
        (asyncio, json),
        (Durable("m:3"), Durable("m:4")),
        (Durable("m:3"), "m:3"),
        ({"messages": Durable("m:3")}, {"messages": Durable("m:4")}),
        ((Durable("m:3"),), (Durable("m:4"),)),
        (b"a", b"b"),
        (Words("a"), Words("b")),
    ],
    ids=shown,
)
def test_another_input_has_another_digest(one: object, other: object) -> None:
    assert digest(one) != digest(other)
    assert digest(x=one) != digest(x=other)


def test_where_an_argument_stands_counts() -> None:
    digests = [digest("a", "b"), digest("b", "a"), digest("a", x="b"), digest("a", y="b"), digest(["a", "b"])]
    # With something in it that has no JSON form at all, too.
    digests += [
        digest("\ud800", "b"),
        digest("\ud800", x="b"),
        digest("\ud800", y="b"),
        digest("b", "\ud800"),
    ]

    assert len(set(digests)) == len(digests)


def test_a_durable_list_is_never_walked() -> None:
    class Mine(Durable):
        def __iter__(self) -> NoReturn:
            raise AssertionError("walked")

    mine = Mine("m:1", [cyclic()])
    plain = Durable("m:1")

    assert digest(mine, {"a": mine}, [mine], b=mine) == digest(plain, {"a": plain}, [plain], b=plain)


def hostile_inputs() -> Iterable[object]:
    class Liar:
        @property
        def model_dump(self) -> NoReturn:
            raise RuntimeError("no")

    class Slippery:
        def __getattr__(self, name: str) -> NoReturn:
            raise RuntimeError(name)

        def __eq__(self, other: object) -> NoReturn:
            raise RuntimeError

        __hash__ = None  # type: ignore[assignment]

    yield from refused_values()
    yield from (
        Broken(),
        [Broken()],
        Liar(),
        Slippery(),
        {"a": Slippery()},
        Model,
        {(1, 2): 3},
        {1, "a", None},
    )


@pytest.mark.parametrize("value", list(hostile_inputs()), ids=lambda value: type(value).__name__)
def test_whatever_is_given_has_a_digest_and_a_preview(value: object) -> None:
    assert len(digest(value, 1, x=[value])) == 8
    assert digest(value) == digest(value)
    assert digest(value, 1) != digest(value, 2)
    assert preview_of((value,), {"x": value}).encode()


def test_a_preview_is_for_people() -> None:
    shown = preview_of(("ann", {"n": 1}, Durable("messages:3")), {"amount": 5, "password": "hunter2!"})

    named = '"<tests.engine.journal.test_codec.Durable>"'
    assert shown == f'"ann", {{"n":1}}, {named}, amount=5, password="[redacted:assignment]"'


def test_a_preview_never_fails() -> None:
    for depth in range(300, 1200, 100):
        assert preview_of(({"password": nested(depth)},), {"\ud800": 1}).encode()


def test_a_preview_of_numbers_is_short_and_never_fails() -> None:
    assert preview_of((1, 22, 333), {}) == "1, 22, 333"
    assert preview_of((10**5000,), {}) == "<int>"
    assert preview_of((10**600,), {}) == f"1{'0' * 498}…"


def test_a_preview_is_short() -> None:
    assert len(preview_of(("x" * 10_000, "y" * 10_000), {})) == MAX_PREVIEW_CHARS


# --- errors


class Needy(Exception):
    def __init__(self, code: int, *, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.status = code
        self.reason = reason


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("I say nothing")


class Quitter(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class Wordless(Exception):
    def __str__(self) -> str:
        return 5  # type: ignore[return-value]


class Slotted(Exception):
    __slots__ = ("where",)

    def __init__(self, where: str) -> None:
        self.where = where


class Propertied(Exception):
    @property
    def message(self) -> NoReturn:
        raise RuntimeError("not for you")

    @property
    def step(self) -> NoReturn:
        raise RuntimeError("not for you")

    @property
    def args(self) -> NoReturn:  # type: ignore[override]
        raise RuntimeError("not for you")


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    where: str


class Picky(Exception):
    def __new__(cls, one: str, two: str) -> Picky:
        return super().__new__(cls, one, two)


class Registered(Exception):
    def __init_subclass__(cls, *, name: str) -> None:
        raise AssertionError("subclasses have names")


class Meta(type):
    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any], **_: Any) -> Any:
        return super().__new__(cls, name, bases, body)


class Metaclassed(Exception, metaclass=Meta):
    pass


class ApiError(ValueError):
    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


class TooMany(ApiError):
    pass


class Both(KeyError, OSError):
    pass


def raise_it(error: BaseException) -> NoReturn:
    raise error


def caught(error: BaseException) -> BaseException:
    """With a traceback, as errors come."""
    with pytest.raises(BaseException) as raised:  # noqa: PT011 - whatever it is
        raise_it(error)
    return raised.value


def recursive_cause() -> Exception:
    one, two = ValueError("one"), KeyError("two")
    one.__cause__, two.__cause__ = two, one
    one.__context__, two.__context__ = two, one
    return one


def noted() -> Exception:
    error = ValueError("with notes")
    error.add_note("first")
    error.add_note(f"key {SECRET}")
    return error


def with_odd_notes() -> Exception:
    error = ValueError("odd notes")
    error.__notes__ = 5  # type: ignore[assignment]
    return error


def with_odd_attributes() -> Exception:
    error = ValueError("x")
    vars(error).update(ok=1, me=error, nan=float("nan"), huge=2**100, _hidden=1, token=f"x{SECRET}", code=404)
    vars(error)["step"] = "mine"
    return error


def errors() -> list[BaseException]:
    return [
        ValueError(),
        ValueError("bad"),
        ValueError("two", "args"),
        ValueError(5),
        ValueError(None),
        ValueError("\ud800 half"),
        ValueError("\x00\x1b[2J\u202e"),
        ValueError("x" * 1_000_000),
        ValueError(float("nan")),
        ValueError(object()),
        ValueError({"a": 1}),
        ValueError(10**5000),
        ValueError(*range(50)),
        ValueError(Words("w")),
        KeyError("missing"),
        OSError(2, "No such file", "/tmp/x"),
        OSError("only text"),
        FileNotFoundError(2, "No such file", b"/tmp/x"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad byte"),
        SyntaxError("bad", ("file", 1, 2, "text")),
        ImportError("no", name="x"),
        AttributeError("no", name="x", obj=object()),
        NameError("no", name="x"),
        TimeoutError("late"),
        MemoryError(),
        RecursionError("deep"),
        StopIteration(3),
        StopAsyncIteration(),
        ExceptionGroup("many", [ValueError("a"), ExceptionGroup("inner", [Mute()])]),
        BaseExceptionGroup("many", [KeyboardInterrupt()]),
        KeyboardInterrupt(),
        SystemExit(3),
        GeneratorExit(),
        asyncio.CancelledError("stop"),
        Stopping("drain"),
        Needy(404, reason="gone"),
        Mute("x"),
        Quitter(),
        Wordless(),
        Slotted("here"),
        Propertied("x"),
        Frozen("here"),
        Picky("a", "b"),
        Registered("x"),
        Metaclassed("x"),
        ApiError(500),
        TooMany(429),
        Both("x"),
        BadInput("field", "problem"),
        PayloadTooLarge("field", 5, 4),
        StepFailed("fetch", "ValueError", "bad"),
        StepFailed("fetch", "ValueError", "bad", {"odd": object()}),
        StepFailed(5, None, object()),  # type: ignore[arg-type]
        UserWarning("careful"),
        recursive_cause(),
        noted(),
        with_odd_notes(),
        with_odd_attributes(),
        type("Line\nBreak", (Exception,), {})("x"),
        type("X" * 1000, (Exception,), {"__module__": 5})("x"),
    ]


@pytest.mark.parametrize("error", errors(), ids=lambda error: type(error).__name__[:20])
def test_every_error_can_be_stored_and_is_raised_the_same_each_time(error: BaseException) -> None:
    failure = failure_of(caught(error))
    stored = msgspec.json.decode(msgspec.json.encode(failure), type=Failure)
    raises = (type(error),)
    first, replayed = revive("fetch", failure, raises), revive("fetch", stored, raises)

    assert stored == failure
    assert checked_failure(failure).kind == failure.kind
    assert len(failure.message) <= MAX_MESSAGE_CHARS
    assert SECRET.encode() not in msgspec.json.encode(failure)
    assert type(first) is type(replayed)
    assert (str(first), first.args, first.code) == (str(replayed), replayed.args, "step_failed")
    assert (first.step, first.kind, first.message) == ("fetch", failure.kind, failure.message)
    assert isinstance(caught(first), StepFailed)
    assert not isinstance(first, (KeyboardInterrupt, SystemExit, BaseExceptionGroup, StopIteration))
    assert "StepFailed" in "".join(traceback.format_exception(first))
    assert repr(first)


BUILTIN_ERRORS = [
    kind
    for kind in vars(builtins).values()
    if isinstance(kind, type)
    and issubclass(kind, Exception)
    and kind is not Exception
    and not issubclass(kind, (BaseExceptionGroup, StopIteration, StopAsyncIteration))
]


@pytest.mark.parametrize("kind", BUILTIN_ERRORS, ids=lambda kind: kind.__name__)
def test_a_builtin_error_is_caught_as_what_it_was(kind: type[Exception]) -> None:
    revived = revive("fetch", Failure(kind=kind.__name__, message="it broke"))

    assert isinstance(revived, kind)
    assert isinstance(revived, StepFailed)
    assert str(revived) == f"step fetch failed: {kind.__name__}: it broke"
    assert revived.args == ("it broke",)


@pytest.mark.parametrize(
    "kind",
    [
        *("Exception", "BaseException", "KeyboardInterrupt", "SystemExit", "GeneratorExit"),
        *("ExceptionGroup", "BaseExceptionGroup", "StopIteration", "StopAsyncIteration"),
        *("print", "int", "__import__", "no.Such"),
    ],
)
def test_what_must_not_be_revived_as_itself_is_only_a_failed_step(kind: str) -> None:
    revived = revive(
        "fetch", Failure(kind=kind, message="x"), (StopIteration, ExceptionGroup, KeyboardInterrupt)
    )

    assert type(revived) is StepFailed


@pytest.mark.parametrize(
    "error",
    [Needy(404, reason="gone"), Slotted("here"), Propertied("x"), Frozen("x"), Picky("a", "b"), Mute()],
)
def test_a_declared_error_is_revived_whatever_its_constructor_wants(error: Exception) -> None:
    failure = failure_of(error)

    assert isinstance(revive("fetch", failure, (type(error),)), type(error))
    assert not isinstance(revive("fetch", failure, ()), type(error))
    assert not isinstance(revive("fetch", failure, (KeyError,)), type(error))


@pytest.mark.parametrize("error", [Registered("x"), Metaclassed("x")])
def test_a_class_that_refuses_children_costs_no_more_than_itself(error: Exception) -> None:
    assert isinstance(revive("fetch", failure_of(error), (type(error),)), StepFailed)


def test_a_base_that_is_declared_or_builtin_still_catches() -> None:
    failure = failure_of(TooMany(429))

    assert isinstance(revive("fetch", failure, (ApiError,)), ApiError)
    assert isinstance(revive("fetch", failure, (TooMany, ApiError)), TooMany)
    assert isinstance(revive("fetch", failure), ValueError)
    assert revive("fetch", failure).kind == f"{__name__}.TooMany"


def test_what_a_program_may_look_at_is_still_there() -> None:
    revived: Any = revive("fetch", failure_of(Needy(404, reason="gone")), (Needy,))

    assert (revived.status, revived.reason) == (404, "gone")


def test_an_error_of_the_system_keeps_its_number_and_its_words() -> None:
    revived = revive("fetch", failure_of(FileNotFoundError(2, "No such file", "/tmp/x")))

    assert isinstance(revived, FileNotFoundError)
    assert (revived.errno, revived.strerror, revived.filename) == (2, "No such file", "/tmp/x")
    assert revived.args == (2, "No such file")


def test_a_key_error_keeps_its_key() -> None:
    revived = revive("fetch", failure_of(KeyError("missing")))

    assert (revived.args, revived.message) == (("missing",), "'missing'")


def test_attributes_of_an_error_never_hide_those_of_the_failed_step() -> None:
    revived: Any = revive("fetch", failure_of(with_odd_attributes()))

    assert (revived.step, revived.code, revived.ok) == ("fetch", "step_failed", 1)
    assert not hasattr(revived, "huge")


def test_notes_and_the_kind_of_the_cause_are_facts() -> None:
    failure = failure_of(noted())
    chained = failure_of(recursive_cause())

    assert failure.facts["notes"] == ["first", "key [redacted:aws]"]
    assert revive("fetch", failure).__notes__ == failure.facts["notes"]
    assert chained.facts["cause"] == "KeyError"


def raised_here(depth: int = 0) -> None:
    if depth:
        raised_here(depth - 1)
    json.loads("{")


def traceback_of(act: Callable[[], object]) -> list[str]:
    try:
        act()
    except Exception as error:  # noqa: BLE001 - whatever it is
        return cast("list[str]", failure_of(error).facts.get("traceback", []))
    raise AssertionError("it raised nothing")


def test_an_error_tells_the_places_of_the_users_own_code_and_what_raised_it() -> None:
    first, second, last = traceback_of(raised_here)

    assert first.startswith("tests/engine/journal/test_codec.py:")
    assert [place.rpartition(" in ")[2] for place in (first, second)] == ["traceback_of", "raised_here"]
    assert last.startswith("json/decoder.py:")


def test_only_the_last_places_are_kept() -> None:
    found = traceback_of(lambda: raised_here(50))

    assert len(found) == 8
    assert [place.rpartition(" in ")[2] for place in found[:-1]] == ["raised_here"] * 7


def test_a_place_holds_no_secret_and_no_path_of_a_home(tmp_path: Path) -> None:
    odd = tmp_path / "deep" / f"{SECRET}.py"
    namespace: dict[str, Any] = {}
    exec(compile("def bad():\n    raise ValueError(1)", str(odd), "exec"), namespace)

    found = traceback_of(namespace["bad"])[-1]

    assert SECRET not in found
    assert str(tmp_path) not in found
    assert found.endswith(":2 in bad")


def test_a_failed_step_keeps_its_places_after_those_of_who_called_it() -> None:
    inner = revive("fetch", failure_of(caught(ValueError("bad"))))

    def program() -> None:
        raise inner

    found = traceback_of(program)

    assert [place.rpartition(" in ")[2].rpartition(".")[2] for place in found[-3:]] == [
        *("program", "caught", "raise_it")
    ]


def test_a_group_tells_the_places_of_its_first_member() -> None:
    def group() -> None:
        raise BaseExceptionGroup("many", [caught(ValueError("a"))])

    assert traceback_of(group)[-1].endswith("in raise_it")


def test_an_error_that_was_never_raised_has_no_places() -> None:
    assert "traceback" not in failure_of(ValueError("x")).facts


def test_a_group_of_errors_names_its_members() -> None:
    failure = failure_of(ExceptionGroup("many", [ValueError("a"), Mute()]))

    assert failure.kind == "ExceptionGroup"
    assert failure.facts["errors"] == [
        "ValueError: a",
        f"{__name__}.Mute: (its message could not be read: RuntimeError)",
    ]


def test_a_failed_step_that_passes_through_another_is_still_what_it_was() -> None:
    inner = revive("charge", failure_of(TooMany(429)), (TooMany,))
    outer = revive("order", failure_of(inner), (TooMany,))

    assert isinstance(outer, TooMany)
    assert (outer.step, outer.kind, outer.facts["step"]) == ("order", inner.kind, "charge")


def test_what_leaves_a_coroutine_is_what_was_raised() -> None:
    async def work() -> None:
        raise revive("fetch", failure_of(StopIteration(3)))

    with pytest.raises(StepFailed):
        asyncio.run(work())


def test_stopping_is_a_cancellation_with_a_reason() -> None:
    stopping = Stopping("drain")

    assert isinstance(stopping, asyncio.CancelledError)
    assert not isinstance(stopping, Exception)
    assert (stopping.reason, "drain" in str(stopping)) == ("drain", True)


def test_the_module_of_a_stand_in_is_its_name() -> None:
    assert digest(ModuleType("a")) != digest(ModuleType("b"))


@pytest.mark.parametrize(
    "text",
    [
        "db_password\t=\thunter2Xy9Zq7",
        "--password\thunter2Xy9Zq7",
        "password:\thunter2Xy9Zq7",
        'api_key="ab`hunter2Xy9Zq7"',
        '{"password": "Xy9\\"hunter2Xy9Zq7"}',
    ],
)
def test_what_json_would_escape_hides_no_secret_in_a_preview(text: str) -> None:
    assert "hunter2Xy9Zq7" not in preview_of((text,), {})
    assert "hunter2Xy9Zq7" not in preview_of((), {"text": text})


def test_a_known_secret_is_found_in_a_preview_whatever_it_is_made_of() -> None:
    def shown() -> str:
        keep_secret('pa"ss\\word\n1')
        return preview_of(('use pa"ss\\word\n1 now',), {})

    assert contextvars.copy_context().run(shown) == '"use [redacted:secret] now"'
