"""What may be stored: text without traps, JSON without surprises, sizes within the cap."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from typing import Any

import msgspec

from holdfast.core.errors import BadInput, PayloadTooLarge
from holdfast.core.patterns import compiled_late
from holdfast.core.redaction import redact_code_name, redact_name, redact_text

MAX_PAYLOAD_BYTES = 16 * 1024 * 1024
MAX_DEPTH = 100
MAX_GOAL_BYTES = 256 * 1024
MAX_NAME_CHARS = 200
MAX_TEXT_BYTES = 64 * 1024

# C0 controls but tab, newline and return; DEL; C1; line and paragraph separators; bidirectional overrides.
# A goal that holds them could forge lines of a log or hide text on the operator's screen.
_FORBIDDEN = compiled_late("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
# Terminal control sequences, such as colours and cursor moves (ECMA-48).
_COLOUR = compiled_late(r"(?:\x1b\[|\x9b)[0-?]*+[ -/]*+[@-~]")
_SURROGATE = compiled_late("[\ud800-\udfff]")
_PLAIN_NAME = compiled_late(rf"[!-~][ -~]{{0,{MAX_NAME_CHARS - 1}}}")
_PLAIN = frozenset({str, int, bool, type(None)})
_TEXT = frozenset({str})
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()
_pack = msgspec.msgpack.Encoder().encode


def check_text(
    field: str, value: object, *, max_bytes: int = MAX_TEXT_BYTES, may_be_empty: bool = False
) -> str:
    """Prose that people will read: up to the cap, redacted, without control characters."""
    return redact_text(check_words(field, value, max_bytes=max_bytes, may_be_empty=may_be_empty))


def check_words(
    field: str, value: object, *, max_bytes: int = MAX_TEXT_BYTES, may_be_empty: bool = False
) -> str:
    """A program's text, which must come back unchanged: the same rules, but nothing is redacted."""
    if not isinstance(value, str):
        raise BadInput(field, f"text is needed, not {type(value).__name__}")
    _refuse_surrogates(field, value)
    if found := _FORBIDDEN().search(value):
        raise BadInput(field, f"control character U+{ord(found.group()):04X} at {found.start()}; remove it")
    if not may_be_empty and not value.strip():
        raise BadInput(field, "is empty")
    size = len(value.encode())
    if size > max_bytes:
        raise PayloadTooLarge(field, size, max_bytes)
    return value


def check_name(field: str, value: object) -> str:
    """A short name on one line, as it is stored (owners, keys, channels); a secret in it is hidden."""
    return redact_name(check_line(field, value))


def check_code_name(field: str, value: object) -> str:
    """The same for names from code: of tasks and of steps."""
    return redact_code_name(check_line(field, value))


def check_line(field: str, value: object) -> str:
    """The same rules, but nothing is redacted: for names that are stored in another form."""
    # A fast path, because every step has a name: a plain one needs no further checks.
    if isinstance(value, str) and _PLAIN_NAME().fullmatch(value):
        return value
    text = check_words(field, value, max_bytes=MAX_NAME_CHARS * 4)
    if len(text) > MAX_NAME_CHARS or "\n" in text or "\r" in text or "\t" in text:
        raise BadInput(field, f"a name is one line of at most {MAX_NAME_CHARS} characters")
    return text


def clean_text(text: str, *, max_chars: int) -> str:
    """Text from outside, such as an error's message, cleaned for storing; never refused.

    It is cut before the search for secrets, so that long text is not searched whole, and again after it. The
    search comes after the removal of terminal colours: one may be in the middle of a secret.
    """
    text = text[: max_chars * 32].encode("utf-8", "replace").decode()
    text = redact_text(_FORBIDDEN().sub("\N{REPLACEMENT CHARACTER}", _COLOUR().sub("", text)))
    return text if len(text) <= max_chars else f"{text[: max_chars - 1]}…"


def check_number(field: str, value: object, *, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadInput(field, f"a whole number from {low} to {high} is needed, not {type(value).__name__}")
    if not low <= value <= high:
        # Not shown, because the number may have any length.
        raise BadInput(field, f"a whole number from {low} to {high} is needed; this one is out of range")
    return value


def encode_payload(
    field: str,
    value: object,
    *,
    max_bytes: int = MAX_PAYLOAD_BYTES,
    encoder: msgspec.json.Encoder = _encoder,
    is_typed: bool = False,
) -> bytes:
    """The JSON bytes of a value. Raises BadInput, which names what is wrong with it.

    Sets, bytes and keys that are not text are refused, unless a declared type reads them back.
    """
    try:
        _check_tree(field, value, MAX_DEPTH, max_bytes, is_typed)
        encoded = encoder.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise BadInput(field, f"cannot be stored as JSON: {error}") from error
    if len(encoded) > max_bytes:
        raise PayloadTooLarge(field, len(encoded), max_bytes)
    return encoded


def check_tree(field: str, value: object) -> None:
    """Raises BadInput for values that JSON cannot represent, without encoding them."""
    _check_tree(field, value, MAX_DEPTH, MAX_PAYLOAD_BYTES, False)


def decode_payload(encoded: bytes) -> object:
    """The value of stored JSON bytes."""
    value: object = _decoder.decode(encoded)
    return value


def digest_of(*parts: bytes | str | int | None) -> bytes:
    """A digest that detects corruption of the parts, not tampering.

    MessagePack writes the type and the length before each part, so different parts cannot have equal bytes.
    """
    return hashlib.blake2b(_pack(parts), digest_size=8).digest()


def _check_tree(field: str, value: Any, depth: int, room: int, is_typed: bool) -> int:
    """Refuses values that JSON cannot represent or would change; returns how many values there are.

    A list may hold the same list many times, so the walk stops when the values exceed the cap.
    """
    kind = type(value)
    if kind in _PLAIN:  # the encoder itself reports invalid text
        return 1
    if kind is list:  # a fast path for the two most frequent kinds
        inside: Iterable[object] = value
    elif kind is dict and _TEXT.issuperset(map(type, value)):
        inside = value.values()
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise BadInput(field, f"{value} has no JSON form; use null or a string")
        return 1
    else:
        inside = _inner_values(field, value, is_typed)
    seen = 1
    for inner in inside:
        if depth == 0:
            raise BadInput(field, f"nested deeper than {MAX_DEPTH}; flatten it or save it as an artifact")
        seen += 1 if type(inner) in _PLAIN else _check_tree(field, inner, depth - 1, room, is_typed)
        if seen > room:
            raise PayloadTooLarge(field, seen, room)
    return seen


def _inner_values(field: str, value: object, is_typed: bool) -> Iterable[object]:
    if isinstance(value, dict):
        for key in value:
            if type(key) is not str and not isinstance(key, str):
                _check_keys(field, value, key, is_typed)
                break
        return value.values()
    if isinstance(value, (list, tuple)):
        return value
    if isinstance(value, (bytes, bytearray, memoryview, set, frozenset)):
        if not is_typed:
            raise BadInput(field, f"{type(value).__name__} has no JSON form; use text or a list")
        return value if isinstance(value, (set, frozenset)) else ()
    return [getattr(value, name) for name in field_names(value)]


def field_names(value: Any) -> tuple[str, ...]:
    """The field names of a Struct or a dataclass; empty for anything else."""
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__
    if not hasattr(type(value), "__dataclass_fields__"):
        return ()
    # Imported here: a process that has a dataclass has imported it already.
    from dataclasses import fields

    return tuple(one.name for one in fields(value))


def _check_keys(field: str, value: dict[object, object], key: object, is_typed: bool) -> None:
    """Refuses keys that are equal once they are text."""
    if not is_typed:
        raise BadInput(field, f"a key is {type(key).__name__}; JSON keys must be text")
    if len({_encoder.encode({one: None}) for one in value}) != len(value):
        raise BadInput(field, f"two keys have the same JSON text as {key!r:.40}; rename one")


def _refuse_surrogates(field: str, value: str) -> None:
    if not value.isascii() and (found := _SURROGATE().search(value)):
        raise BadInput(field, f"half of a surrogate pair at {found.start()}; it is not valid Unicode text")
