"""What is declared about a step travels with the function, and nothing happens to the function itself."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast.core.effect import EffectClass
from holdfast.core.errors import BadInput
from holdfast.core.ladder import retry
from holdfast.core.step_declarations import (
    DidNotHappen,
    EffectSpec,
    Happened,
    StepOptions,
    Unknown,
    Verdict,
    idempotent,
    keyed,
    opaque,
    options_of,
    read,
    step,
    step_name,
    tool,
    transactional,
    unwrapped,
    verifiable,
)


async def fetch(url: str, *, depth: int = 1) -> str:
    return f"{url}@{depth}"


def count(text: str) -> int:
    return len(text)


async def look(_url: str) -> Verdict:
    return Happened("it did")


class Api:
    def __init__(self, host: str) -> None:
        self.host = host

    @keyed("24h")
    async def charge(self, amount: int) -> str:
        return f"{self.host}:{amount}"

    @step(timeout="5s")
    @staticmethod
    def version() -> int:
        return 3

    def plain(self) -> str:
        return self.host


class Caller:
    def __call__(self, text: str) -> str:
        return text


class DeclaredCaller:
    @step(name="declared", timeout="1s")
    def __call__(self, text: str) -> str:
        return text


async def awaited(answer: Any) -> Any:
    return await answer


def finish(coroutine: Any) -> Any:
    """The result of a coroutine that waits for nothing."""
    with pytest.raises(StopIteration) as end:
        coroutine.send(None)
    return end.value.value


# --- effect classes


@pytest.mark.parametrize(
    ("spec", "effect_class"),
    [
        (read, EffectClass.READ),
        (idempotent, EffectClass.IDEMPOTENT),
        (transactional, EffectClass.TRANSACTIONAL),
        (opaque, EffectClass.OPAQUE),
        (keyed("24h"), EffectClass.KEYED),
        (verifiable(look), EffectClass.VERIFIABLE),
    ],
)
def test_an_effect_class_as_a_decorator_is_declared_for_the_function(
    spec: EffectSpec, effect_class: EffectClass
) -> None:
    declared = spec(count)

    assert spec.effect_class is effect_class
    assert options_of(declared) == StepOptions(effect=spec)
    assert declared("abc") == 3


def test_a_key_has_a_window_and_a_verification_has_a_function() -> None:
    assert keyed("24h").window == timedelta(days=1)
    assert verifiable(look).verify is look


@pytest.mark.parametrize("window", ["", "0s", 0, -1, None, count, "a day"])
def test_a_key_without_a_window_is_refused(window: Any) -> None:
    with pytest.raises(BadInput, match="window"):
        keyed(window)


@pytest.mark.parametrize("verify", [None, "look", Happened()])
def test_a_verification_without_a_function_is_refused(verify: Any) -> None:
    with pytest.raises(BadInput, match="verify"):
        verifiable(verify)


def test_a_verdict_is_a_value() -> None:
    assert Happened(3) == Happened(3) != Happened(4)
    assert DidNotHappen() == DidNotHappen()
    assert Unknown("no answer").why == "no answer"


def test_a_transactional_effect_cannot_await() -> None:
    with pytest.raises(BadInput, match="cannot await"):
        transactional(fetch)
    with pytest.raises(BadInput, match="cannot await"):
        tool(fetch, effect=transactional)

    assert options_of(transactional(count)).effect is transactional


# --- the function stays what it is


def test_a_shared_function_is_not_changed_by_options_for_one_use() -> None:
    one, other = step(fetch, id="a"), step(fetch, id="b")
    read(fetch)

    assert (options_of(one).id, options_of(other).id) == ("a", "b")
    assert options_of(fetch) == StepOptions()
    assert unwrapped(one) is unwrapped(other) is fetch
    assert vars(fetch) == {}


def test_a_declared_function_is_still_the_same_kind_of_function() -> None:
    declared = step(timeout="30s")(fetch)

    assert inspect.iscoroutinefunction(declared)
    assert inspect.signature(declared) == inspect.signature(fetch)
    assert (declared.__name__, declared.__doc__, declared.__module__) == ("fetch", None, fetch.__module__)
    assert finish(declared("x", depth=2)) == finish(fetch("x", depth=2)) == "x@2"
    assert finish(declared("x")) == "x@1"


def test_a_function_keeps_what_it_encloses() -> None:
    total = 0

    @step(name="add")
    def add(number: int) -> int:
        nonlocal total
        total += number
        return total

    add(2)

    assert (add(3), total) == (5, 5)


def test_a_method_is_bound_to_its_object() -> None:
    api = Api("kiel")

    assert options_of(api.charge).effect == keyed("24h")
    assert unwrapped(api.charge) == api.charge
    assert finish(unwrapped(api.charge)(5)) == "kiel:5"
    assert inspect.iscoroutinefunction(unwrapped(api.charge))
    assert step_name(api.charge) == "Api.charge"


def test_a_static_method_below_a_decorator_is_called_without_the_object() -> None:
    assert Api.version() == Api("kiel").version() == 3
    assert options_of(Api("kiel").version).timeout == timedelta(seconds=5)


def test_a_bound_method_takes_options_without_changing_its_class() -> None:
    api = Api("kiel")
    named = step(api.plain, name="greet", id="1")

    assert (step_name(named), options_of(named).id) == ("greet", "1")
    assert named() == unwrapped(named)() == "kiel"
    assert options_of(api.plain) == StepOptions()


@pytest.mark.parametrize(
    "fn", [len, functools.partial(count, "abc"), Caller(), functools.lru_cache(count), int]
)
def test_what_is_callable_takes_options(fn: Callable[..., Any]) -> None:
    declared = step(fn, name="n", timeout="1s")

    assert options_of(declared) == StepOptions(name="n", timeout=timedelta(seconds=1))
    assert unwrapped(declared) is fn
    assert options_of(fn) == StepOptions()
    assert "step" in repr(declared)


def test_a_wrapper_around_a_declared_function_is_called_and_inherits_its_options() -> None:
    calls: list[str] = []

    def noisy(fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            calls.append(fn.__name__)
            return fn(*args, **kwargs)

        return wrapper

    wrapped = noisy(noisy(step(timeout="5s")(count)))

    assert unwrapped(wrapped)("ab") == 2
    assert calls == ["count", "count"]
    assert options_of(wrapped).timeout == timedelta(seconds=5)
    assert unwrapped(step(wrapped, id="a")) is wrapped


# --- merging


def test_options_for_one_use_come_before_those_of_the_declaration() -> None:
    @step(timeout="30s", retry=retry(3), raises=KeyError)
    @read
    def find(key: str) -> str:
        return key

    used = step(find, timeout="5s", id="a")

    assert options_of(used) == StepOptions(
        id="a", timeout=timedelta(seconds=5), retry=retry(3), raises=(KeyError,), effect=read
    )
    assert options_of(find).timeout == timedelta(seconds=30)
    assert unwrapped(used)("x") == "x"


def test_a_tool_declares_its_effect_and_how_it_is_undone() -> None:
    declared = tool(fetch, effect=opaque, compensate=count, name="get", raises=[OSError, KeyError])

    assert options_of(declared) == StepOptions(
        name="get", effect=opaque, compensate=count, raises=(OSError, KeyError)
    )


def test_a_bare_decorator_declares_nothing_and_harms_nothing() -> None:
    @step
    def one() -> int:
        return 1

    @tool()
    def two() -> int:
        return 2

    assert (one(), two()) == (1, 2)
    assert options_of(one) == options_of(two) == StepOptions()


def test_options_are_found_through_partials_and_callable_objects() -> None:
    declared = step(timeout="5s", name="tell")(count)

    assert options_of(functools.partial(functools.partial(declared), "abc")).timeout == timedelta(seconds=5)
    assert step_name(functools.partial(declared, "abc")) == "tell"
    assert options_of(DeclaredCaller()).timeout == timedelta(seconds=1)
    assert step_name(DeclaredCaller()) == "declared"
    assert unwrapped(DeclaredCaller())("x") == "x"


# --- names


def test_a_step_is_named_for_its_function() -> None:
    def inner() -> None: ...

    assert step_name(fetch) == "fetch"
    assert step_name(inner) == "inner"
    assert step_name(Api("x").plain) == "Api.plain"
    assert step_name(functools.partial(fetch, "x")) == "fetch"
    assert step_name(Caller()) == "Caller"
    assert step_name(functools.lru_cache(count)) == "count"
    assert step_name(len) == "len"
    assert step_name(int) == "int"
    assert step_name(step(fetch, id="a")) == "fetch"
    assert step_name(step(make_lambda(), name="one")) == "one"


def make_lambda() -> Callable[..., int]:
    return lambda: 1


@pytest.mark.parametrize("fn", [make_lambda(), functools.partial(make_lambda()), step(make_lambda(), id="a")])
def test_a_lambda_needs_a_name(fn: Callable[..., Any]) -> None:
    with pytest.raises(BadInput, match=r"give it one: hf\.step\(fn, name=…\)"):
        step_name(fn)


@pytest.mark.parametrize("value", ["fetch", 3, [fetch]])
def test_what_cannot_be_called_has_no_name_and_no_options(value: Any) -> None:
    with pytest.raises(BadInput, match="a function is needed"):
        step_name(value)
    with pytest.raises(BadInput, match="a function is needed"):
        step(value, id="a")
    assert options_of(value) == StepOptions()


# --- what is refused


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"name": 3}, "name"),
        ({"name": "x" * 500}, "name"),
        ({"timeout": "soon"}, "timeout"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": True}, "timeout"),
        ({"retry": 3}, "retry"),
        ({"retry": retry}, "retry"),
        ({"raises": "ValueError"}, "raises"),
        ({"raises": ValueError("x")}, "raises"),
        ({"raises": [ValueError("x")]}, "raises"),
        ({"raises": KeyboardInterrupt}, "raises"),
        ({"raises": [int]}, "raises"),
        ({"raises": None}, "raises"),
    ],
    ids=lambda value: f"{value!r:.30}",
)
def test_a_wrong_option_is_refused_by_its_name(options: dict[str, Any], field: str) -> None:
    for declare in (step, tool):
        with pytest.raises(BadInput) as refusal:
            declare(fetch, **options)

        assert refusal.value.field == field


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"effect": "opaque"}, "effect"),
        ({"effect": EffectClass.READ}, "effect"),
        ({"effect": keyed}, "effect"),
        ({"effect": verifiable}, "effect"),
        ({"compensate": "undo"}, "compensate"),
    ],
    ids=lambda value: f"{value!r:.30}",
)
def test_a_wrong_option_of_a_tool_is_refused_by_its_name(options: dict[str, Any], field: str) -> None:
    with pytest.raises(BadInput) as refusal:
        tool(fetch, **options)

    assert refusal.value.field == field


@pytest.mark.parametrize("call_id", ["", 3, "a\nb", "x" * 500])
def test_a_wrong_id_is_refused(call_id: Any) -> None:
    with pytest.raises(BadInput, match="id"):
        step(fetch, id=call_id)


def test_a_class_method_is_declared_below_its_decorator() -> None:
    with pytest.raises(BadInput, match="below @classmethod"):
        step(classmethod(lambda _: 1), name="x")  # type: ignore[call-overload]
