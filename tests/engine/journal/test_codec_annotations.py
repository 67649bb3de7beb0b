"""The type that a function promises for its result, and the codec that a function has."""

from __future__ import annotations

import functools
import gc
import json
import sys
import weakref
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from holdfast.core.errors import Drift
from holdfast.core.step_declarations import step
from holdfast.engine.journal.codec import Codec, codec_of

if TYPE_CHECKING:
    from collections.abc import Hashable as OnlyForTypeCheckers
from tests.engine.journal.codec_samples import Cat, Model, Point, PointSource, Shape, round_trip, shown


async def shapes(_missing: OnlyForTypeCheckers | None = None) -> list[Shape]:
    return []


def promised() -> Awaitable[Point]:
    raise NotImplementedError


def unresolvable() -> list[OnlyForTypeCheckers]:
    return []


def unannotated():  # type: ignore[no-untyped-def]
    return None


def nothing() -> None: ...


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
        (PointSource().point, Point),
        (PointSource(), Cat),
        (PointSource, PointSource),
        (functools.partial(shapes), list[Shape]),
        (functools.partial(PointSource().point), Point),
        (functools.lru_cache(promised), Point),
        (wrapper_of(shapes), list[Shape]),
        (step(shapes, id="a"), list[Shape]),
        (step(PointSource().point, id="a"), Point),
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


def test_a_drift_names_the_function_when_the_program_does_not_name_the_step() -> None:
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
