"""An error's way into the ledger and back: the same on the first run and on every replay."""

from __future__ import annotations

import asyncio
import builtins
import dataclasses
import json
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, cast

import msgspec
import pytest

from holdfast.core.errors import BadInput, PayloadTooLarge, StepFailed
from holdfast.core.task import Failure
from holdfast.engine.journal.codec import MAX_MESSAGE_CHARS, failure_of, revive
from holdfast.engine.ledger.ledger import checked_failure
from holdfast.engine.program.stopping import Stopping
from tests.engine.journal.codec_samples import SECRET, Words


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

    assert first.startswith("tests/engine/journal/test_codec_errors.py:")
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
