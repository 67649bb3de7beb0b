"""Encodes results for the ledger and decodes them: typed by annotation, the same on every replay."""

from __future__ import annotations

import builtins
import functools
import hashlib
import inspect
import math
import sys
import types
import typing
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from pathlib import PurePath
from typing import Any

import msgspec

from holdfast.core.errors import BadInput, Drift, PayloadTooLarge, StepFailed
from holdfast.core.payload import MAX_NAME_CHARS, check_tree, clean_text, encode_payload, field_names
from holdfast.core.redaction import holds_secret, known_secrets, redact, redact_json, redact_text
from holdfast.core.secret import Secret
from holdfast.core.step_declarations import Stepped
from holdfast.core.task import Failure
from holdfast.engine.journal.traces import traceback_of

MAX_MESSAGE_CHARS = 2_000
MAX_PREVIEW_CHARS = 500
# Of the arguments of each step, which are stored.
MAX_SHOWN_CHARS = 120
_SHOWN_BYTES = 4 * MAX_SHOWN_CHARS
# Redacting longer arguments takes too long on an event loop.
_MAX_REDACTED_BYTES = 4096
_MAX_FACT_CHARS = 500
_MAX_FACTS = 20

_REMEDY = "return plain JSON values, a dataclass or a msgspec.Struct, and annotate the return type with it"
# An argument of these types needs no conversion: it is neither a Secret nor a durable list.
SCALARS = frozenset({str, int, float, bool, type(None)})
_SIMPLE = SCALARS | {list, tuple, dict}
_NUMBERS = frozenset({int})
# The beginning of the JSON that replaces a durable list or value.
_DIGEST = b'{"digest":"'
# The JSON of a secret that is only named.
_NAMED_SECRET = b'{"$secret":"'
_MISSING = object()
_ARGS: Any = BaseException.args


# --- results


class Codec:
    """Stores and reads the results of one function. The caller always gets decode(encode(x))."""

    __slots__ = ("_decode", "_doubt", "_fits", "_is_any", "_text", "annotation", "name")

    def __init__(self, name: str, annotation: Any) -> None:
        self.name = name
        self.annotation = annotation
        self._is_any = annotation is Any or annotation is object
        self._text: str | None = "" if self._is_any else None
        # A value of exactly this type can be read back; it is not checked.
        self._fits = _self_evident(annotation)
        # Why results are decoded as plain JSON, if the annotation cannot be used.
        self._decode, self._doubt = _decoder_of(annotation)

    def shown(self) -> str:
        """The declared type, for people; empty if any type is allowed."""
        if self._text is None:
            self._text = _shown(self.annotation).replace("NoneType", "None")
        return self._text

    def encode(self, step: str, value: object) -> bytes:
        """JSON that this codec can decode. Raises BadInput, which names the step and the remedy."""
        try:
            payload = encode_payload(step, value, encoder=_encoder)
        except BadInput:
            return self.encode_as("result of step " + step, value)
        if self._is_any or type(value) is self._fits:
            return payload
        return self._proven("result of step " + step, value, payload, self._doubt)

    def encode_as(self, field: str, value: object) -> bytes:
        try:
            payload = encode_payload(field, value, encoder=_encoder)
        except BadInput as refusal:
            return self._encode_odd(field, value, refusal)
        if self._is_any or type(value) is self._fits:
            return payload
        return self._proven(field, value, payload, self._doubt)

    def decode(self, payload: bytes, *, step: str = "") -> Any:
        """The result, typed by the annotation. Raises Drift when it does not fit."""
        try:
            return self._decode(payload)
        except Exception as error:  # the constructors and validators of the user's own types
            raise Drift(
                f"step {step}" if step else self.name,
                f"its saved result is no {_shown(self.annotation)} any more: {_said(error)}",
            ) from error

    def _encode_odd(self, field: str, value: object, refusal: BadInput) -> bytes:
        """Encode a value that plain JSON cannot express, if the annotation can."""
        if isinstance(refusal, PayloadTooLarge):
            raise refusal
        try:
            payload = encode_payload(field, value, encoder=_encoder, is_typed=True)
        except PayloadTooLarge:
            raise
        except BadInput as again:
            raise BadInput(field, f"{again.problem}; {_REMEDY}") from again
        return self._proven(field, value, payload, self._doubt or refusal.problem)

    def _proven(self, field: str, value: object, payload: bytes, doubt: str | None) -> bytes:
        """Decode the payload now: a result that cannot be decoded must fail here, not after a restart."""
        try:
            decoded = self._decode(payload)
        except Exception as error:  # the constructor of the user's class may raise anything
            why = f"{type(value).__name__} does not fit {_shown(self.annotation)}: {_said(error)}"
            raise BadInput(field, f"{why}; correct the annotation or what is returned") from error
        if doubt is not None and not _comes_back(value, decoded, is_plain=self._doubt is not None):
            raise BadInput(field, f"does not come back as {_shown(self.annotation)}: {doubt}; {_REMEDY}")
        return payload


def codec_of(fn: Callable[..., Any]) -> Codec:
    """The codec for the result of a function, awaited or not; plain JSON without a usable annotation."""
    inner = fn if type(fn) is types.FunctionType else _innermost(fn)
    with suppress(KeyError, TypeError):
        return _codecs[inner]
    name = getattr(inner, "__qualname__", type(inner).__qualname__)
    codec = Codec(f"step {name}", _annotation_of(inner))
    with suppress(TypeError):  # some callables cannot be referenced weakly
        _codecs[inner] = codec
    return codec


def codec_for(name: str, annotation: Any) -> Codec:
    """The codec for values of a type: items of a list, values, arguments. Its Drift names them by `name`."""
    return Codec(name, annotation)


def encode_value(field: str, value: object) -> bytes:
    """JSON of a value that is decoded without a type. Raises BadInput, with the remedy."""
    return _anything.encode_as(field, value)


def _innermost(fn: Any) -> Any:
    """The function with the annotations: inside methods, partials and callable objects."""
    while True:
        if isinstance(fn, functools.partial):
            fn = fn.func
        elif isinstance(fn, Stepped):
            fn = fn.__wrapped__
        elif isinstance(fn, types.MethodType):
            fn = fn.__func__
        else:
            break
    if isinstance(fn, (type, types.FunctionType, types.BuiltinFunctionType)) or hasattr(fn, "__wrapped__"):
        return fn
    return getattr(type(fn), "__call__", fn)  # noqa: B004 - its annotations


def _annotation_of(fn: Any) -> Any:
    if isinstance(fn, type):
        return fn
    given = getattr(fn, "__annotations__", {}).get("return", Any)
    if given is Any:
        return Any
    bearer = types.SimpleNamespace(__annotations__={"return": given})
    try:
        innermost = inspect.unwrap(fn)
        # Evaluate only the return type: annotations of parameters may not be importable here.
        hint = typing.get_type_hints(
            bearer, getattr(innermost, "__globals__", {}), _enclosed(innermost), include_extras=True
        )["return"]
    except Exception:  # noqa: BLE001 - an annotation is evaluated: anything may happen
        return Any
    if typing.get_origin(hint) in (Coroutine, Awaitable):
        return typing.get_args(hint)[-1]
    return hint


def _enclosed(fn: Any) -> dict[str, object]:
    """The closure variables of a function, in which local classes are found."""
    names: dict[str, object] = {}
    if isinstance(fn, types.FunctionType):
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=False):
            with suppress(ValueError):  # not assigned yet
                names[name] = cell.cell_contents
    return names


def _self_evident(annotation: Any) -> type | None:
    if annotation in (str, int, float, bool, dict, list, type(None)):
        return typing.cast(type, annotation)
    if annotation in (dict[str, Any], dict[str, object]):
        return dict
    return list if annotation in (list[Any], list[object]) else None


def _decoder_of(annotation: Any) -> tuple[Callable[[bytes], Any], str | None]:
    """The decoder; and, if it decodes plain JSON instead of the annotation, why."""
    try:
        return (_typed_decoder if _is_hashable(annotation) else _typed_decoder.__wrapped__)(annotation), None
    except Exception as error:  # noqa: BLE001 - the annotations of the user's own types are evaluated
        return _decode_plain, _said(error)


def _is_hashable(annotation: Any) -> bool:
    try:
        hash(annotation)
    except TypeError:
        return False
    return True


@functools.lru_cache(maxsize=1024)
def _typed_decoder(annotation: Any) -> Callable[[bytes], Any]:
    try:
        return msgspec.json.Decoder(_any_for_object(annotation), dec_hook=_from_json).decode
    except TypeError:
        # Such as a union of models. If there is a model, pydantic is imported, and can decode it.
        adapter = getattr(sys.modules.get("pydantic"), "TypeAdapter", None)
        if adapter is None or not _mentions_model(annotation):
            raise
        return typing.cast("Callable[[bytes], Any]", adapter(annotation).validate_json)


def _any_for_object(annotation: Any) -> Any:
    """`Any` for `object`: to msgspec `object` is an unknown type, for which it would call our hook."""
    if annotation is object:
        return Any
    if annotation == dict[str, object]:
        return dict[str, Any]
    if annotation == list[object]:
        return list[Any]
    return annotation


def _mentions_model(annotation: Any) -> bool:
    return hasattr(annotation, "model_validate") or any(map(_mentions_model, typing.get_args(annotation)))


def _from_json(kind: Any, value: Any) -> Any:
    """Decode a type that msgspec does not know; msgspec checks the type of the answer."""
    if hasattr(kind, "model_validate_json"):
        return kind.model_validate_json(msgspec.json.encode(value))
    if hasattr(kind, "model_validate"):
        return kind.model_validate(value)
    if isinstance(kind, type) and issubclass(kind, PurePath) and isinstance(value, str):
        return kind(value)
    return value


def _to_json(value: Any) -> Any:
    """Encode a value that msgspec does not know: models, paths, and subclasses of str, int and float."""
    dump = getattr(type(value), "model_dump", None)
    if dump is not None:
        dumped = dump(value, mode="json", by_alias=True)
        try:
            # A model may hold what JSON cannot express, and msgspec would write null for it.
            check_tree("model", dumped)
        except BadInput as refusal:
            raise ValueError(refusal.problem) from refusal
        return dumped
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    raise TypeError(f"{_kind_of(type(value))} has no JSON form")


def _comes_back(value: Any, decoded: Any, is_plain: bool) -> bool:
    """Whether no set, no bytes and no key changed its type; with `is_plain`, whether nothing did.

    A tuple may become a list, and an integer key its text.
    """
    if type(value) in SCALARS:
        return decoded is not _MISSING
    if isinstance(value, dict):
        return isinstance(decoded, dict) and all(
            _comes_back(inner, decoded.get(key, decoded.get(_key_text(key), _MISSING)), is_plain)
            for key, inner in value.items()
        )
    if isinstance(value, (list, tuple)):
        return isinstance(decoded, (list, tuple)) and all(
            _comes_back(inner, found, is_plain) for inner, found in zip(value, decoded, strict=False)
        )
    if not is_plain and (names := field_names(value)):
        found = (
            decoded if isinstance(decoded, dict) else {name: getattr(decoded, name, None) for name in names}
        )
        return all(_comes_back(getattr(value, name), found.get(name, _MISSING), is_plain) for name in names)
    if is_plain or isinstance(value, (bytes, bytearray, memoryview, set, frozenset)):
        return bool(decoded == value)
    return True


def _key_text(key: object) -> object:
    return str(key) if type(key) is int else key


# --- inputs


def input_digest(
    key: bytes, args: tuple[Any, ...], kwargs: dict[str, Any], *, is_plain: bool = False
) -> tuple[bytes, bool, bytes]:
    """A keyed digest of a step's arguments, whether they may hold a secret, and the JSON of which it is the
    digest; empty if they are no JSON. Never raises.

    A durable list is replaced by its own digest. A value that cannot be encoded is replaced by the name of
    its type: a client is the same client after a restart, though not the same object.
    """
    given, is_json = (args, kwargs), True
    if not is_plain:
        args = tuple(map(_with_digests, args))
        kwargs = {name: _with_digests(value) for name, value in kwargs.items()}
    try:
        text = _canonical((args, kwargs))
    except Exception:  # noqa: BLE001 - surrogates, cycles, a property that raises: whatever values do
        named = [part for name in sorted(kwargs) for part in (name, kwargs[name])]
        text, is_json = b"\n".join(map(_tolerant, (*args, len(args), *named))), False
    has_secret = holds_secret(text) or (_DIGEST in text and _keeps_secret(given))
    return hashlib.blake2b(text, digest_size=8, key=key).digest(), has_secret, text if is_json else b""


def shown_input(
    text: bytes, args: tuple[Any, ...], kwargs: dict[str, Any], *, names: tuple[str, ...], has_secret: bool
) -> str:
    """How a step's arguments begin, for people: redacted. `text` is their JSON, as `input_digest` returns it.

    The usual arguments hold no secret and are not redacted: their JSON is cut. Never raises.
    """
    if has_secret and len(text) > _MAX_REDACTED_BYTES:
        # Redaction needs the whole structure, which a cut would destroy.
        return f"[redacted: {len(text):,} bytes]"
    if has_secret or kwargs or not text or _DIGEST in text or _NAMED_SECRET in text:
        return preview_of(args, kwargs, names=names, max_chars=MAX_SHOWN_CHARS)
    return shown_scalars(text)


def shown_scalars(text: bytes) -> str:
    """The same for arguments without a secret that are all positional: of the JSON `[[…],{}]`, how it begins.
    Every step calls it."""
    size = len(text) - 5
    # A character has at most four bytes.
    shown = text[2 : min(_SHOWN_BYTES, size)].decode("utf-8", "ignore")
    if not (shown.isascii() and shown.isprintable()):
        return clean_text(shown, max_chars=MAX_SHOWN_CHARS)
    return shown if len(shown) <= MAX_SHOWN_CHARS else f"{shown[: MAX_SHOWN_CHARS - 1]}…"


def preview_of(
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    names: tuple[str, ...] = (),
    max_chars: int = MAX_PREVIEW_CHARS,
) -> str:
    """The arguments of a step, for people: redacted, shortened, with their names. Never raises."""
    if names:
        args, kwargs = args[len(names) :], {**dict(zip(names, args, strict=False)), **kwargs}
    if not kwargs and _NUMBERS.issuperset(map(type, args)) and not known_secrets():
        try:
            text = ", ".join(map(str, args))
        except ValueError:  # an integer with too many digits
            text = ""
        if text and len(text) <= max_chars:
            return text
    shown = [_shown_value("", value) for value in args]
    shown += [f"{name}={_shown_value(name, value)}" for name, value in kwargs.items()]
    return clean_text(", ".join(shown), max_chars=max_chars)


def _shown_value(name: str, value: object) -> str:
    try:
        if type(value) is int:  # a number is never redacted, whatever its name
            return str(value)
        if isinstance(value, Secret):
            return repr(value)  # only its name
        if not name and type(value) in SCALARS:
            # Redact before the text is encoded: escapes in the JSON could hide a secret.
            return _canonical(redact_text(value) if isinstance(value, str) else value).decode()
        # With its name, because the name may tell that the value is a secret.
        entry = redact_json(
            b"{%b:%b}" % (_canonical(name), _tolerant(_with_names(value), _shown_as, _name_for))
        )
        return msgspec.json.encode(*msgspec.json.decode(entry).values()).decode()
    except Exception:  # noqa: BLE001 - a preview must not make a step fail
        return f"<{_kind_of(type(value))}>"


def _with_digests(value: Any) -> Any:
    """The value with durable lists replaced by their digests, itself or one level inside."""
    kind = type(value)
    if kind in SCALARS:
        return value
    if hasattr(kind, "__holdfast_digest__"):
        return _own_digest(value)
    if kind is dict and not _SIMPLE.issuperset(map(type, value.values())):
        return {name: _own_digest(inner) for name, inner in value.items()}
    if kind in (list, tuple) and not _SIMPLE.issuperset(map(type, value)):
        return [_own_digest(inner) for inner in value]
    return value


def _own_digest(value: Any) -> Any:
    if not hasattr(type(value), "__holdfast_digest__"):
        return value
    try:
        digest = value.__holdfast_digest__()
        return {"digest": digest.hex() if isinstance(digest, bytes) else str(digest)}
    except Exception:  # noqa: BLE001 - a digest must not make a step fail
        return {"digest": _kind_of(type(value))}


def _with_names(value: Any) -> Any:
    """The same with names, for people: a digest tells them nothing, and a short secret could be guessed."""
    if hasattr(type(value), "__holdfast_digest__"):
        return _own_name(value)
    if type(value) is dict:
        return {name: _own_name(inner) for name, inner in value.items()}
    return [_own_name(inner) for inner in value] if type(value) in (list, tuple) else value


def _own_name(value: Any) -> Any:
    if not hasattr(type(value), "__holdfast_digest__"):
        return value
    named = getattr(value, "__holdfast_name__", None)
    return f"<{_kind_of(type(value)) if named is None else named()}>"


def _keeps_secret(value: Any) -> bool:
    """Whether a value that is replaced by its digest holds a secret."""
    if hasattr(type(value), "__holdfast_digest__"):
        keeps = getattr(value, "__holdfast_secret__", None)
        return keeps is None or bool(keeps())
    if isinstance(value, dict):
        return any(map(_keeps_secret, value.values()))
    return isinstance(value, (list, tuple)) and any(map(_keeps_secret, value))


def _tolerant(
    value: object,
    encode: Callable[[object], bytes] | None = None,
    stand_in: Callable[[Any], Any] | None = None,
) -> bytes:
    """Canonical JSON of a value; or of its plain form, if keys are numbers; or of its type's name."""
    encode = encode or _canonical
    with suppress(Exception):
        return encode(value)
    with suppress(Exception):
        return encode(msgspec.to_builtins(value, str_keys=True, enc_hook=stand_in or _stand_in))
    return encode(_kind_of(type(value)))


def _stand_in(value: Any) -> Any:
    """For a value without a JSON form: its own digest, its plain form, or a name that is stable across
    restarts."""
    if hasattr(type(value), "__holdfast_digest__"):
        return _own_digest(value)
    with suppress(Exception):
        return _to_json(value)
    if isinstance(value, types.ModuleType):
        return f"<module {value.__name__}>"
    if isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType)):
        return f"<{value.__module__}.{value.__qualname__}>"
    return f"<{_kind_of(type(value))}>"


def _name_for(value: Any) -> Any:
    """The same for people."""
    return _own_name(value) if hasattr(type(value), "__holdfast_digest__") else _stand_in(value)


# --- errors


class Exited(Exception):
    """The user's code raised SystemExit or KeyboardInterrupt: the step fails, and the process goes on."""

    def __init__(self, by: BaseException) -> None:
        super().__init__(by)
        self.by = by


def failure_of(error: BaseException) -> Failure:
    """An exception as a Failure to store: kind, message and facts, redacted and bounded. Never raises."""
    if isinstance(error, Exited):
        error = error.by
    if isinstance(error, StepFailed):
        # Store what the innermost step raised, however many steps it passed.
        with suppress(Exception):
            facts: dict[str, object] = {"step": error.step, **error.facts, **_traceback_of(error)}
            failure = Failure(kind=error.kind, message=error.message, facts=facts)
            return msgspec.json.decode(msgspec.json.encode(failure), type=Failure)
    facts = {}
    # Each on its own: if one cannot be read, the others still can.
    for find in _FINDERS:
        with suppress(BaseException):
            facts |= find(error)
    return Failure(kind=_kind_of(type(error)), message=_message_of(error), facts=facts)


def revive(step: str, failure: Failure, raises: tuple[type[BaseException], ...] = ()) -> StepFailed:
    """The error to raise for a stored failure: the same on the first run and on every replay.

    It is a StepFailed, and an instance of what the step raised, or of its nearest base, if that is builtin
    or among `raises`. The original's constructor is not called.
    """
    original: Any = _original_of(failure, raises)
    error: StepFailed = _bare(StepFailed if original is None else _revived_class(original))
    attributes = failure.facts.get("attributes")
    if isinstance(attributes, dict):
        vars(error).update(attributes)
        vars(error).pop("code", None)  # programs may match the code of StepFailed
    vars(error).update(step=step, kind=failure.kind, message=failure.message, facts=failure.facts)
    args = failure.facts.get("args")
    error.args = tuple(args) if isinstance(args, list) else (failure.message,)
    if isinstance(error, OSError):
        for name in ("errno", "strerror", "filename"):
            setattr(error, name, failure.facts.get(name))
    notes = failure.facts.get("notes")
    if isinstance(notes, list):
        vars(error)["__notes__"] = list(notes)
    return error


def _kind_of(kind: type) -> str:
    """The qualified name; for builtins, without the module."""
    module, name = getattr(kind, "__module__", ""), kind.__qualname__
    full = name if module == "builtins" or not isinstance(module, str) else f"{module}.{name}"
    return clean_text(full, max_chars=MAX_NAME_CHARS).replace("\n", " ")


def _message_of(error: BaseException) -> str:
    try:
        return clean_text(str(error), max_chars=MAX_MESSAGE_CHARS)
    except BaseException as problem:  # noqa: BLE001 - its __str__ may do anything
        return f"(its message could not be read: {type(problem).__name__})"


def _scalar(value: object) -> object:
    """A JSON scalar that is safe to store, or _MISSING."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return clean_text(value, max_chars=_MAX_FACT_CHARS)
    if isinstance(value, int) and value.bit_length() <= 63:
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    return _MISSING


def _args_of(error: BaseException) -> dict[str, object]:
    """The arguments, if all of them can be stored and they are more than the message."""
    given = _ARGS.__get__(error)
    args = [_scalar(value) for value in given[:_MAX_FACTS]]
    if len(given) > _MAX_FACTS or _MISSING in args or args == [_message_of(error)]:
        return {}
    return {"args": args}


def _os_facts_of(error: BaseException) -> dict[str, object]:
    if not isinstance(error, OSError):
        return {}
    named = {name: _scalar(getattr(error, name, None)) for name in ("errno", "strerror", "filename")}
    return {name: value for name, value in named.items() if value is not None and value is not _MISSING}


def _attributes_of(error: BaseException) -> dict[str, object]:
    """Attributes that a program may read: `error.status_code`, `error.retry_after`."""
    found = {
        name: value
        for name, given in list(vars(error).items())[:_MAX_FACTS]
        if isinstance(name, str) and not name.startswith("_") and (value := _scalar(given)) is not _MISSING
    }
    return {"attributes": redact(found)} if found else {}


def _notes_of(error: BaseException) -> dict[str, object]:
    notes = getattr(error, "__notes__", None)
    if not isinstance(notes, list):
        return {}
    kept = [
        clean_text(note, max_chars=_MAX_FACT_CHARS) for note in notes[:_MAX_FACTS] if isinstance(note, str)
    ]
    return {"notes": kept} if kept else {}


def _cause_of(error: BaseException) -> dict[str, object]:
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return {} if cause is None else {"cause": _kind_of(type(cause))}


def _members_of(error: BaseException) -> dict[str, object]:
    if not isinstance(error, BaseExceptionGroup):
        return {}
    members = error.exceptions[:_MAX_FACTS]
    return {"errors": [f"{_kind_of(type(one))}: {_message_of(one)[:_MAX_FACT_CHARS]}" for one in members]}


def _bases_of(error: BaseException) -> dict[str, object]:
    """The base classes, so that in a replay an `except` for a base catches the same error."""
    if type(error).__module__ == "builtins":
        return {}
    bases = [
        base for base in type(error).__mro__[1:] if issubclass(base, Exception) and base is not Exception
    ]
    return {"bases": [_kind_of(base) for base in bases[:_MAX_FACTS]]} if bases else {}


def _traceback_of(error: BaseException) -> dict[str, object]:
    places = traceback_of(error)
    return {"traceback": places} if places else {}


# Each finds one or a few facts about an error.
_FINDERS = (
    *(_args_of, _os_facts_of, _attributes_of, _notes_of),
    *(_cause_of, _members_of, _bases_of, _traceback_of),
)


def _original_of(failure: Failure, raises: tuple[type[BaseException], ...]) -> type[Exception] | None:
    declared = {_kind_of(kind): kind for kind in raises}
    bases = failure.facts.get("bases")
    for name in (failure.kind, *(bases if isinstance(bases, list) else ())):
        found = declared.get(name) or getattr(builtins, str(name), None)
        if isinstance(found, type) and issubclass(found, Exception) and found is not Exception:
            return found
    return None


# An exception group needs its members, and Python turns a StopIteration that leaves a coroutine into a
# RuntimeError.
_NEVER_REVIVED = (BaseExceptionGroup, StopIteration, StopAsyncIteration, StepFailed)


@functools.lru_cache(maxsize=512)
def _revived_class(original: Any) -> type[StepFailed]:
    if issubclass(original, _NEVER_REVIVED):
        return StepFailed
    # The original class may be frozen, or have properties instead of attributes.
    body = {
        "__module__": "holdfast",
        "__init__": Exception.__init__,
        "__setattr__": Exception.__setattr__,
        "args": _ARGS,
    }
    name = f"StepFailed[{original.__name__}]"
    try:
        kind = types.new_class(name, (StepFailed, original), {}, lambda own: own.update(body))
        _bare(kind)
    except Exception:  # noqa: BLE001 - a class may refuse to be a base: __init_subclass__, a metaclass, slots
        return StepFailed
    return typing.cast("type[StepFailed]", kind)


def _bare(kind: Any) -> Any:
    """An instance that was made by a builtin constructor: that of the original may need arguments."""
    for base in kind.__mro__:
        if base.__module__ == "builtins":
            with suppress(TypeError):  # not every builtin class can create every subclass
                return base.__new__(kind)
    raise TypeError(f"{kind.__name__} cannot be made")


def _shown(annotation: Any) -> str:
    shown = annotation.__qualname__ if isinstance(annotation, type) else str(annotation)
    return clean_text(shown, max_chars=MAX_NAME_CHARS)


def _said(error: BaseException) -> str:
    return _message_of(error)[:_MAX_FACT_CHARS]


_encoder = msgspec.json.Encoder(enc_hook=_to_json)
_decode_plain = msgspec.json.Decoder().decode
_canonical = msgspec.json.Encoder(order="deterministic", enc_hook=_stand_in).encode
_shown_as = msgspec.json.Encoder(order="deterministic", enc_hook=_name_for).encode
_codecs: weakref.WeakKeyDictionary[Any, Codec] = weakref.WeakKeyDictionary()
_anything = Codec("value", Any)
