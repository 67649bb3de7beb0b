"""What an effect declares about itself, the verdicts of verification, and the options of a step."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from datetime import timedelta
from types import FunctionType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast, overload

import msgspec

from holdfast.core.durations import Duration, parse_span
from holdfast.core.effect import EffectClass
from holdfast.core.errors import BadInput, NotDone
from holdfast.core.ladder import Retry
from holdfast.core.payload import check_line

P = ParamSpec("P")
T = TypeVar("T")

Raises = type[BaseException] | Iterable[type[BaseException]]
_OPTIONS = "__holdfast_step__"


class Happened(msgspec.Struct, frozen=True):
    """The effect took place; this is what it returned."""

    result: object = None


class DidNotHappen(msgspec.Struct, frozen=True):
    """The effect did not take place and no longer will: it may be retried."""


class Unknown(msgspec.Struct, frozen=True):
    """Verification cannot tell. Holdfast asks a person."""

    why: str


class Stopped(Unknown, frozen=True):
    """Holdfast itself stopped the effect midway. If its task was cancelled, that is fine; otherwise Holdfast
    asks a person."""


Verdict = Happened | DidNotHappen | Unknown


class EffectSpec(msgspec.Struct, frozen=True):
    """What Holdfast may do about an interrupted effect; as a decorator, it declares this for a function."""

    effect_class: EffectClass
    window: timedelta | None = None
    verify: Callable[..., object] | None = None
    # Its `verify` checks this machine only, so it cannot tell about an effect of another machine.
    is_local: bool = False
    # Exceptions after which the effect certainly did not happen.
    did_not_happen: tuple[type[BaseException], ...] = ()

    def __call__(self, fn: Callable[P, T]) -> Callable[P, T]:
        return _declare("effect", fn, StepOptions(effect=self))

    def is_certain(self, error: BaseException) -> bool:
        """Whether this exception means that the effect did not happen."""
        return isinstance(error, (NotDone, *self.did_not_happen))


class Opaque(EffectSpec, frozen=True):
    """`opaque`, or with the exceptions after which nothing has happened: `opaque(did_not_happen=…)`."""

    @overload
    def __call__(self, fn: Callable[P, T]) -> Callable[P, T]: ...

    @overload
    def __call__(self, fn: None = None, *, did_not_happen: Raises) -> EffectSpec: ...

    def __call__(self, fn: Callable[P, T] | None = None, *, did_not_happen: Raises = ()) -> Any:
        if fn is not None and did_not_happen != ():
            raise BadInput("did_not_happen", "write @hf.opaque(did_not_happen=…) above the function")
        if isinstance(fn, type) and issubclass(fn, BaseException):
            raise BadInput(
                "effect", f"{fn.__name__} is an exception: hf.opaque(did_not_happen={fn.__name__})"
            )
        if fn is not None:
            return EffectSpec.__call__(self, fn)
        kinds = _checked_kinds("did_not_happen", did_not_happen)
        if not kinds:
            raise BadInput("did_not_happen", "name the exceptions after which nothing has happened")
        return msgspec.structs.replace(self, did_not_happen=kinds)


class Transactional(EffectSpec, frozen=True):
    """The first argument of its function is a transaction from Holdfast: `def charge(tx, order): …`."""

    def __call__(self, fn: Callable[Concatenate[Any, P], T]) -> Callable[P, T]:
        return cast("Callable[P, T]", _declare("effect", fn, StepOptions(effect=self)))


class StepOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is declared about a step; None means the default."""

    name: str | None = None
    id: str | None = None
    timeout: timedelta | None = None
    retry: Retry | None = None
    raises: tuple[type[BaseException], ...] = ()
    effect: EffectSpec | None = None
    compensate: Callable[..., Any] | None = None
    is_pure: bool = False

    def over(self, below: StepOptions) -> StepOptions:
        """These options; where one is not set, the one of `below`."""
        return StepOptions(
            **{
                name: getattr(below if getattr(self, name) is usual else self, name)
                for name, usual in zip(self.__struct_fields__, self.__struct_defaults__, strict=True)
            }
        )


_NOTHING = StepOptions()

read = EffectSpec(EffectClass.READ)
idempotent = EffectSpec(EffectClass.IDEMPOTENT)
transactional = Transactional(EffectClass.TRANSACTIONAL)
opaque = Opaque(EffectClass.OPAQUE)


def keyed(window: Duration, *, did_not_happen: Raises = ()) -> EffectSpec:
    """The provider accepts idempotency keys and remembers them for this long.

    After an exception Holdfast retries with the same key; after one of `did_not_happen`, with a new one.
    """
    return EffectSpec(
        EffectClass.KEYED,
        window=parse_span("window", window),
        did_not_happen=_checked_kinds("did_not_happen", did_not_happen),
    )


def verifiable(
    verify: Callable[..., object], *, local: bool = False, did_not_happen: Raises = ()
) -> EffectSpec:
    """`verify` gets the effect's own arguments, checks whether the effect happened, and returns a Verdict.

    Set `local` if it checks this machine only: it is not called for an effect of another host. Holdfast calls
    `verify` after an exception of the effect, unless the exception is one of `did_not_happen`.
    """
    return EffectSpec(
        EffectClass.VERIFIABLE,
        verify=_checked_function("verify", verify),
        is_local=bool(local),
        did_not_happen=_checked_kinds("did_not_happen", did_not_happen),
    )


class Stepped(Generic[P, T]):
    """Options around a callable that is not a plain function. It calls the callable that it wraps."""

    def __init__(self, fn: Callable[P, T], options: StepOptions) -> None:
        functools.update_wrapper(self, fn, updated=())
        self.__wrapped__ = fn
        self.__holdfast_step__ = options

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.__wrapped__(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Stepped[..., T]:
        bind = getattr(self.__wrapped__, "__get__", None)
        return self if bind is None else Stepped(bind(instance, owner), self.__holdfast_step__)

    def __repr__(self) -> str:
        return f"<step {self.__wrapped__!r}>"


@overload
def step(
    fn: Callable[P, T],
    /,
    *,
    name: str | None = None,
    id: str | None = None,
    timeout: Duration | None = None,
    retry: Retry | None = None,
    raises: Raises = (),
    pure: bool = False,
) -> Callable[P, T]: ...


@overload
def step(
    *,
    name: str | None = None,
    id: str | None = None,
    timeout: Duration | None = None,
    retry: Retry | None = None,
    raises: Raises = (),
    pure: bool = False,
) -> Callable[[Callable[P, T]], Callable[P, T]]: ...


def step(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    id: str | None = None,  # noqa: A002 - the name that model providers use
    timeout: Duration | None = None,
    retry: Retry | None = None,
    raises: Raises = (),
    pure: bool = False,
) -> Callable[..., Any]:
    """A function with options, as a decorator or for one call: `run.step(hf.step(fetch, id="a"), url)`.

    The given function does not change; these options override those it was declared with.
    Consecutive `pure` steps share a commit: after a crash the last of them may run again.
    """
    options = _checked_options(name=name, timeout=timeout, retry=retry, raises=raises)
    if pure:
        options = msgspec.structs.replace(options, is_pure=True)
    if id is not None:
        # Not redacted here: the run hides an id that looks like a secret when it stores it.
        check_line("id", id)
        options = msgspec.structs.replace(options, id=id)
    return _decorator("step", options) if fn is None else _declare("step", fn, options)


@overload
def tool(
    fn: Callable[P, T],
    /,
    *,
    effect: EffectSpec | None = None,
    name: str | None = None,
    timeout: Duration | None = None,
    retry: Retry | None = None,
    raises: Raises = (),
    compensate: Callable[..., Any] | None = None,
) -> Callable[P, T]: ...


@overload
def tool(
    *,
    effect: EffectSpec | None = None,
    name: str | None = None,
    timeout: Duration | None = None,
    retry: Retry | None = None,
    raises: Raises = (),
    compensate: Callable[..., Any] | None = None,
) -> Callable[[Callable[P, T]], Callable[P, T]]: ...


def tool(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    effect: EffectSpec | None = None,
    name: str | None = None,
    timeout: Duration | None = None,
    retry: Retry | None = None,
    raises: Raises = (),
    compensate: Callable[..., Any] | None = None,
) -> Callable[..., Any]:
    """A function that an agent calls, with its effect class and the function that undoes it."""
    options = msgspec.structs.replace(
        _checked_options(name=name, timeout=timeout, retry=retry, raises=raises),
        effect=None if effect is None else check_effect(effect),
        compensate=None if compensate is None else _checked_function("compensate", compensate),
    )
    return _decorator("tool", options) if fn is None else _declare("tool", fn, options)


def options_of(fn: Callable[..., Any]) -> StepOptions:
    """What was declared about a callable, also through partials, methods and callable objects."""
    found = getattr(fn, _OPTIONS, None)
    if found is None and type(fn) is not FunctionType:
        if isinstance(fn, functools.partial):
            return options_of(fn.func)
        found = getattr(getattr(type(fn), "__call__", None), _OPTIONS, None)  # noqa: B004 - its options
    return found if isinstance(found, StepOptions) else _NOTHING


def unwrapped(fn: Callable[P, T]) -> Callable[P, T]:
    """The function to call: the one that the options were declared for."""
    if isinstance(fn, Stepped):
        return cast("Callable[P, T]", fn.__wrapped__)
    real = getattr(fn, "__wrapped__", None)
    # A decorator of another library sets __wrapped__, too, and must be called; only our twin shares the code.
    if type(fn) is FunctionType and type(real) is FunctionType and _is_twin(fn, real):
        return cast("Callable[P, T]", real)
    return fn


def _is_twin(fn: FunctionType, of: FunctionType) -> bool:
    return fn.__code__ is of.__code__ and fn.__closure__ is of.__closure__


def step_name(fn: Callable[..., Any]) -> str:
    """The name of a step in the journal. Raises BadInput for a callable without a name."""
    given = options_of(fn).name
    if given is not None:
        return given
    while isinstance(fn, functools.partial):
        fn = fn.func
    if not callable(fn):
        raise BadInput("step", f"a function is needed, not {type(fn).__name__}")
    name = getattr(fn, "__qualname__", None) or getattr(fn, "__name__", None) or type(fn).__qualname__
    return _cleaned(name if isinstance(name, str) else type(fn).__qualname__)


def check_effect(value: object) -> EffectSpec:
    if value is keyed or value is verifiable:
        raise BadInput("effect", 'an argument is missing: hf.keyed("24h"), hf.verifiable(verify)')
    if not isinstance(value, EffectSpec):
        raise BadInput(
            "effect",
            f"an effect class is needed, not {type(value).__name__}; one of hf.read, hf.idempotent, "
            'hf.keyed("24h"), hf.verifiable(verify), hf.transactional, hf.opaque',
        )
    return value


def check_retry(field: str, options: StepOptions, effect: EffectSpec) -> None:
    """Raises BadInput for `retry` on an opaque effect without `did_not_happen`: a retry could repeat it."""
    if options.retry is None or effect.effect_class is not EffectClass.OPAQUE or effect.did_not_happen:
        return
    raise BadInput(
        field,
        "an opaque effect that raised may have happened, so retry= could repeat it; name the exceptions "
        "after which nothing has happened: effect=hf.opaque(did_not_happen=(QuotaExceeded,)); or declare "
        "another class: hf.read, hf.idempotent, hf.keyed, hf.verifiable",
    )


@functools.lru_cache(maxsize=4096)
def _cleaned(qualname: str) -> str:
    """The name without the functions around its definition."""
    name = qualname.rpartition("<locals>.")[2]
    if "<lambda>" in name:
        raise BadInput("step", "a lambda has no name for the journal; give it one: hf.step(fn, name=…)")
    return check_line("step", name)


def _decorator(field: str, options: StepOptions) -> Callable[[Callable[P, T]], Callable[P, T]]:
    def declare(fn: Callable[P, T]) -> Callable[P, T]:
        return _declare(field, fn, options)

    return declare


def _declare(field: str, fn: Callable[P, T], options: StepOptions) -> Callable[P, T]:
    """A new callable with the options; the given one may be shared and does not change."""
    if isinstance(fn, classmethod):
        raise BadInput(field, "put this decorator below @classmethod, next to the function")
    real, merged = unwrapped(_checked_function(field, fn)), options.over(options_of(fn))
    if merged.effect is transactional and inspect.iscoroutinefunction(real):
        raise BadInput(field, "a transactional effect runs inside a write and cannot await; write `def`")
    if merged.effect is not None or field == "tool":
        check_retry(field, merged, merged.effect or opaque)
    return _twin(real, merged) if type(real) is FunctionType else Stepped(real, merged)


def _twin(fn: FunctionType, options: StepOptions) -> Any:
    """A second function with the same code: still async, still a method in a class, no slower to call."""
    twin = FunctionType(fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
    twin.__kwdefaults__ = fn.__kwdefaults__
    functools.update_wrapper(twin, fn)
    setattr(twin, _OPTIONS, options)
    return twin


def _checked_options(*, name: object, timeout: object, retry: object, raises: object) -> StepOptions:
    if retry is not None and not isinstance(retry, Retry):
        raise BadInput("retry", f"hf.retry(n) is needed, not {type(retry).__name__}")
    return StepOptions(
        name=None if name is None else check_line("name", name),
        timeout=None if timeout is None else parse_span("timeout", cast(Duration, timeout)),
        retry=retry,
        raises=_checked_kinds("raises", raises),
    )


def _checked_kinds(field: str, value: object) -> tuple[type[BaseException], ...]:
    kinds = (value,) if isinstance(value, type) else value
    if not isinstance(kinds, Iterable) or isinstance(kinds, (str, bytes)):
        raise BadInput(field, f"exception classes are needed, not {type(value).__name__}")
    checked = tuple(kinds)
    for kind in checked:
        if not isinstance(kind, type) or not issubclass(kind, Exception):
            shown = kind.__name__ if isinstance(kind, type) else type(kind).__name__
            raise BadInput(field, f"subclasses of Exception are needed; {shown} is not one")
    return checked


def _checked_function(field: str, fn: Any) -> Any:
    if not callable(fn):
        raise BadInput(field, f"a function is needed, not {type(fn).__name__}")
    return fn
