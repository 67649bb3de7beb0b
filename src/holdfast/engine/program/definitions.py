"""A task as its author declares it, and a call of it: the name, the arguments, and how to read them back."""

from __future__ import annotations

import copy
import functools
import inspect
import typing
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NoReturn, ParamSpec, TypeVar, overload

import msgspec

from holdfast.core.durations import Duration, parse_duration, parse_span
from holdfast.core.errors import BadInput, Drift, NotInRun
from holdfast.core.ladder import Budget, Rung, check_budget, check_ladder
from holdfast.core.payload import check_code_name, check_number, decode_payload
from holdfast.core.smart_wake import SmartWake, check_smart_wake
from holdfast.engine.journal.codec import Codec, codec_of, encode_value

if TYPE_CHECKING:
    from holdfast.core.done_checks import DoneCheck
    from holdfast.engine.program.author_api import Run

P = ParamSpec("P")
T = TypeVar("T")

# For tasks that name none.
DEFAULT_ATTEMPTS = 5
MAX_ATTEMPTS = 1_000_000

Migrate = Callable[[dict[str, Any], int], Mapping[str, Any]]
# Beside the arguments, when a task has been given a version: a name that no parameter can have.
_VERSION = "$version"


class Call(Generic[T]):
    """A task with its arguments, not begun: for `start`, `spawn`, schedules and campaigns."""

    __slots__ = ("arguments", "definition")

    def __init__(self, definition: TaskDefinition[..., T], arguments: dict[str, object]) -> None:
        self.definition = definition
        self.arguments = arguments

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def goal(self) -> str:
        """What it is about, if the caller gives no goal."""
        shown = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items() if name != _VERSION)
        return f"{self.name}({shown})"[:500]

    if not TYPE_CHECKING:  # type checkers must see that it cannot be awaited

        def __await__(self) -> NoReturn:
            where = "with `await holdfast.start(…)`, or with `await run.spawn(…)` inside a task"
            raise NotInRun(self.goal, where)

    def __repr__(self) -> str:
        return f"<call of {self.goal}>"


def _checked(done: Sequence[DoneCheck | Callable[..., Any]]) -> tuple[DoneCheck, ...]:
    if isinstance(done, (tuple, list)) and not done:
        return ()
    from holdfast.core.done_checks import check_done  # few tasks declare any

    return check_done(done)


class TaskDefinition(Generic[P, T]):
    """A durable function. Calling it gives a call; only a worker runs it."""

    def __init__(
        self,
        fn: Callable[Concatenate[Run, P], Awaitable[T]],
        *,
        name: str | None,
        timeout: Duration | None,
        attempts: int | None,
        backoff: Duration,
        ladder: Sequence[Rung],
        budget: Budget | None,
        version: int,
        migrate: Migrate | None,
        default_attempts: int = DEFAULT_ATTEMPTS,
        run_timeout: Duration | None = None,
        smart_wake: SmartWake | str | None = None,
        wake_after: Duration | None = None,
        done: Sequence[DoneCheck | Callable[..., Any]] = (),
    ) -> None:
        if not inspect.iscoroutinefunction(fn):
            raise BadInput("task", f"{fn!r} is no coroutine function; write `async def`")
        self.fn = fn
        self.name = check_code_name("task name", fn.__name__ if name is None else name)
        self.timeout = None if timeout is None else parse_duration("timeout", timeout)
        # The limit of one run; None: as the settings say.
        self.run_timeout = _check_run_timeout(run_timeout, self.timeout)
        self.smart_wake = None if smart_wake is None else check_smart_wake(smart_wake)
        # How long after it was saved a run is woken; None: by load.
        self.wake_after = None if wake_after is None else parse_duration("wake_after", wake_after)
        # What must hold when the program comes to its end.
        self.done = _checked(done)
        # None if its author named none: then the settings limit the deaths without progress.
        self.named_attempts = None if attempts is None else _check_attempts(attempts)
        self.attempts = _check_attempts(default_attempts) if attempts is None else attempts
        self.backoff = parse_duration("backoff", backoff)
        self.ladder = check_ladder(ladder)
        self.budget = None if budget is None else check_budget(budget)
        self.version = check_number("version", version, low=1, high=1_000_000)
        self.migrate = migrate
        self._parameters = _parameters_of(fn)
        self._arguments = _struct_of(self.name, fn, self._parameters)
        self.__wrapped__ = fn
        self.__doc__ = fn.__doc__

    def with_default_attempts(self, attempts: int) -> TaskDefinition[P, T]:
        """The same task, tried this often unless its author said how often."""
        if self.named_attempts is not None:
            return self
        other = copy.copy(self)
        other.attempts = _check_attempts(attempts)
        return other

    @property
    def codec(self) -> Codec:
        return codec_of(self.fn)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Call[T]:
        signature = inspect.Signature(self._parameters)
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise BadInput(f"call of {self.name}", f"{error}; its parameters are {signature}") from error
        try:
            arguments: dict[str, object] = {
                # Read them back now, so that a mistake shows here and not in another process.
                name: decode_payload(encode_value(f"argument {name} of {self.name}", value))
                for name, value in bound.arguments.items()
            }
        except BadInput:
            from holdfast.core.flow_definition import holds_result  # few tasks are nodes of flows

            if not holds_result(dict(bound.arguments)):
                raise
            # A node of a flow: results of other nodes are filled in when the task is created.
            arguments = {
                name: value
                if holds_result(value)
                else decode_payload(encode_value(f"argument {name} of {self.name}", value))
                for name, value in bound.arguments.items()
            }
        else:
            self._read(arguments)
        if self.version > 1:
            arguments[_VERSION] = self.version
        return Call(self, arguments)

    def check_takes(self, parameter: str) -> None:
        """Raises BadInput unless the task has this parameter, and no other one without a default."""
        names = {one.name: one.default is inspect.Parameter.empty for one in self._parameters}
        needed = [name for name, is_needed in names.items() if is_needed and name != parameter]
        if parameter not in names or needed:
            raise BadInput(
                f"task {self.name}",
                f"it must take `{parameter}` and nothing else without a default: "
                f"async def {self.name}(run: hf.Run, {parameter}: hf.Item)",
            )

    def check_arguments(self, arguments: Mapping[str, object]) -> None:
        """Raises BadInput for arguments that the task does not take. Those of another version go unchecked,
        because `migrate` changes them first."""
        given = dict(arguments)
        if given.pop(_VERSION, self.version) != self.version:
            return
        signature = inspect.Signature(self._parameters)
        try:
            signature.bind(**given)
        except TypeError as error:
            raise BadInput(f"arguments of {self.name}", f"{error}; its parameters are {signature}") from error
        self._read(given)

    def arguments_of(self, payload: bytes) -> tuple[dict[str, Any], int | None]:
        """What to call the function with, and the version it was migrated from, if it was."""
        stored = decode_payload(payload)
        if not isinstance(stored, dict):
            raise Drift(self.name, "its stored arguments are no object")
        version = stored.pop(_VERSION, 1)
        if version == self.version or self.migrate is None:
            return self._read(stored), None
        return self._read(dict(self.migrate(stored, version))), version

    def _read(self, arguments: Mapping[str, object]) -> dict[str, Any]:
        try:
            read = msgspec.convert(dict(arguments), self._arguments, strict=False)
        except (msgspec.ValidationError, TypeError, ValueError) as error:
            raise BadInput(f"arguments of {self.name}", str(error)) from error
        return {name: getattr(read, name) for name in read.__struct_fields__}

    def __repr__(self) -> str:
        return f"<task {self.name}>"


def _check_run_timeout(run_timeout: Duration | None, timeout: timedelta | None) -> timedelta | None:
    if run_timeout is None:
        return None
    limit = parse_span("run_timeout", run_timeout)
    if timeout is not None and limit > timeout:
        raise BadInput(
            "run_timeout",
            f"one run may take {limit}, and the whole task only {timeout} (timeout): set a shorter one, "
            'such as @hf.task(timeout="6h", run_timeout="10m")',
        )
    return limit


def _check_attempts(attempts: int) -> int:
    return check_number("attempts", attempts, low=1, high=MAX_ATTEMPTS)


def _parameters_of(fn: Callable[..., Any]) -> list[inspect.Parameter]:
    parameters = list(inspect.signature(fn).parameters.values())
    if not parameters or parameters[0].kind not in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    ):
        raise BadInput("task", f"{fn.__name__} takes no run; its first parameter is the run: `run: hf.Run`")
    for parameter in parameters[1:]:
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            raise BadInput(
                "task", f"{fn.__name__} takes *{parameter.name}; a task's arguments are stored by name"
            )
    return parameters[1:]


def _struct_of(name: str, fn: Callable[..., Any], parameters: list[inspect.Parameter]) -> type[Any]:
    """A type that reads stored arguments back, each by its annotation."""
    try:
        hints = typing.get_type_hints(fn)
    except (NameError, TypeError):
        hints = {}
    fields: list[Any] = []
    for parameter in parameters:
        hint = hints.get(parameter.name, Any)
        if parameter.default is inspect.Parameter.empty:
            fields.append((parameter.name, hint))
        else:
            default = parameter.default
            field = msgspec.field(default_factory=functools.partial(_given, default))
            fields.append((parameter.name, hint, field))
    try:
        struct = msgspec.defstruct(f"Arguments of {name}", fields, kw_only=True)
        msgspec.json.Decoder(struct)
    except (TypeError, ValueError):
        # An annotation that msgspec cannot read: the values stay as JSON gives them.
        struct = msgspec.defstruct(
            f"Arguments of {name}", [(one[0], Any, *one[2:]) for one in fields], kw_only=True
        )
    return struct


def _given(default: object) -> object:
    return default


@overload
def task(fn: Callable[Concatenate[Run, P], Awaitable[T]], /) -> TaskDefinition[P, T]: ...


@overload
def task(
    *,
    name: str | None = None,
    timeout: Duration | None = None,
    attempts: int | None = None,
    backoff: Duration = "1s",
    ladder: Sequence[Rung] = (),
    budget: Budget | None = None,
    version: int = 1,
    migrate: Migrate | None = None,
    run_timeout: Duration | None = None,
    smart_wake: SmartWake | str | None = None,
    wake_after: Duration | None = None,
    done: Sequence[DoneCheck | Callable[..., Any]] = (),
) -> Callable[[Callable[Concatenate[Run, P], Awaitable[T]]], TaskDefinition[P, T]]: ...


def task(
    fn: Callable[Concatenate[Run, P], Awaitable[T]] | None = None,
    /,
    *,
    name: str | None = None,
    timeout: Duration | None = None,
    attempts: int | None = None,
    backoff: Duration = "1s",
    ladder: Sequence[Rung] = (),
    budget: Budget | None = None,
    version: int = 1,
    migrate: Migrate | None = None,
    run_timeout: Duration | None = None,
    smart_wake: SmartWake | str | None = None,
    wake_after: Duration | None = None,
    done: Sequence[DoneCheck | Callable[..., Any]] = (),
) -> Any:
    """Make a coroutine function durable. It is called with a run first, then with its own arguments.

    `attempts` (5, if you name none) bounds two counts, each for itself: exceptions that leave the task, and
    deaths of its process one after another without progress. A planned restart counts as neither.

    `timeout` limits the whole task, `run_timeout` each run: the time for which a worker executes it without a
    break. What happens then says `smart_wake` (auto, always, never): the run is saved, a wake is scheduled,
    and a follow-up run goes on; or the task times out. `wake_after` sets how long after the save it is woken.
    `done` lists checks that must hold before the task has succeeded.
    """

    def define(fn: Callable[Concatenate[Run, P], Awaitable[T]]) -> TaskDefinition[P, T]:
        return TaskDefinition(
            fn,
            name=name,
            timeout=timeout,
            attempts=attempts,
            backoff=backoff,
            ladder=ladder,
            budget=budget,
            version=version,
            migrate=migrate,
            run_timeout=run_timeout,
            smart_wake=smart_wake,
            wake_after=wake_after,
            done=done,
        )

    return define if fn is None else define(fn)


def by_name(tasks: Sequence[TaskDefinition[..., Any]]) -> dict[str, TaskDefinition[..., Any]]:
    """The tasks that a process can execute, by name. Refuses two tasks of one name."""
    known: dict[str, TaskDefinition[..., Any]] = {}
    for one in tasks:
        if not isinstance(one, TaskDefinition):
            raise BadInput("tasks", f"{one!r} is no task; put @hf.task on it")
        if known.setdefault(one.name, one) is not one:
            raise BadInput("tasks", f"two tasks are called {one.name!r}; give one of them another name=")
    return known


def checked_call(call: object) -> Call[Any]:
    if isinstance(call, TaskDefinition):
        raise BadInput("call", f"call the task with its arguments: {call.name}(…)")
    if not isinstance(call, Call):
        raise BadInput("call", f"a call of a task is needed, not {type(call).__name__}")
    return call
