"""Types and values of many shapes, for the tests of the codec."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import typing
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from holdfast.engine.journal.codec import codec_for


def shown(value: object) -> str:
    """The name of a case: the same in every process, so without addresses and without the orders of sets."""
    if isinstance(value, (str, int, float, bytes, type)) or typing.get_origin(value) is not None:
        return f"{value!r:.40}"
    return type(value).__name__


SECRET = "AKIAABCDEFGHIJKLMNOP"


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


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


class Photo(msgspec.Struct):
    pixels: bytes
    tags: set[str]
    extra: Any = None


@dataclasses.dataclass(eq=False)
class Odd:
    raw: bytes


class Plain:
    """A class that cannot be stored."""


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


class PointSource:
    count: int = 0

    def point(self) -> Point:
        return Point(1)

    def __call__(self) -> Cat:
        return Cat(1)


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
