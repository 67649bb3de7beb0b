"""Digests and previews of a step's input: they exist for every value, and a preview hides secrets."""

from __future__ import annotations

import asyncio
import contextvars
import json
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import pytest

from holdfast.core.redaction import keep_secret
from holdfast.engine.journal.codec import MAX_PREVIEW_CHARS, input_digest, preview_of
from tests.engine.journal.codec_samples import (
    Model,
    Plain,
    Point,
    PointSource,
    Words,
    cyclic,
    nested,
    refused_values,
    shown,
)

KEY = b"0123456789abcdef"


def digest(*args: Any, **kwargs: Any) -> bytes:
    return input_digest(KEY, args, kwargs)[0]


# --- digests


class Durable(list[Any]):
    """A list that knows its own and must not be walked."""

    def __init__(self, digest: bytes | str, items: Iterable[Any] = ()) -> None:
        super().__init__(items)
        self.digest = digest

    def __holdfast_digest__(self) -> bytes | str:
        return self.digest


class Broken(list[Any]):
    def __holdfast_digest__(self) -> str:
        raise RuntimeError("no digest today")


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
        (Plain(), PointSource()),
        (len, print),
        (Plain, PointSource),
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

    named = '"<tests.engine.journal.test_codec_digests.Durable>"'
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


def test_the_module_of_a_stand_in_is_its_name() -> None:
    assert digest(ModuleType("a")) != digest(ModuleType("b"))


# --- secrets in previews


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
