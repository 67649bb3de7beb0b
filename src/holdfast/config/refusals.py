"""Messages for an invalid setting: its key, its source, its value and the fix."""

from __future__ import annotations

import re
from enum import Enum
from typing import Any, Literal, get_args, get_origin

import msgspec

from holdfast.config.keys import fit_to_show, key_of
from holdfast.core.errors import SettingsError

_MAX_SHOWN_CHARS = 100
_PLACE = re.compile(r"^(?P<why>.*?)(?: - at `\$(?P<place>.*)`)?$", re.DOTALL)
_FIELD = re.compile(r"Object (contains )?(?P<kind>unknown|missing required) field `(?P<name>[^`]*)`")
_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a string in quotes",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "null": "nothing",
}


def refusal(key: str, value: object, fix: str, where: str) -> SettingsError:
    """`gateway.port in /srv/holdfast.toml is 'x': a whole number is needed`, without any secret."""
    try:
        shown = "not set" if value is None else _clip(repr(fit_to_show(key, value)))
    except RecursionError:
        shown = "nested too deeply"
    return SettingsError(f"{_clip(key)} in {where} is {shown}: {fix}")


def unknown(key: str, where: str, known: list[str]) -> SettingsError:
    """An unknown key, with the closest known one."""
    import difflib

    key = _clip(key)
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
    fix = f"did you mean {near[0]}?" if near else f"the keys there are {', '.join(known)}"
    return SettingsError(f"{key} in {where} is not a setting: {fix}")


def meaning(key: str) -> str:
    """The meaning of a key from the table, as part of a sentence."""
    found = key_of(key)
    return "it must be set" if found is None else found.meaning[0].lower() + found.meaning[1:]


def expected(key: str, message: str, value: object, kind: Any = Any) -> str:
    """What msgspec expected instead of the value, in words; `kind` is the type of the setting."""
    found = _PLACE.match(message)
    assert found is not None
    inside = _inside(key, value, kind, found["place"] or "")
    if message.startswith("Invalid enum value") or (found["place"] and _choices(kind)):
        return _one_of(key, value, kind, inside)
    field = _FIELD.match(message)
    if field is not None:
        # A table inside this setting.
        if field["kind"] == "missing required":
            return f"{field['name']} must be set{f' in {inside}' if inside else ''}"
        keys = _keys_in(kind)
        there = f"; the keys there are {', '.join(keys)}" if keys else ""
        return f"it has no key {field['name']}: remove that key, or correct its name{there}"
    why = found["why"].partition(", got ")[0].removeprefix("Expected ")
    words = re.sub(r"`([^`]*)`", lambda kinds: _words(kinds[1]), why)
    words = words.replace("<=", "of at most").replace(">=", "of at least").replace(">", "above")
    place = f" at {inside}" if inside else ""
    example = ", in seconds, such as 600" if key.endswith("_s") and not key.endswith("_per_s") else ""
    if words == "a list" and not place:
        example = _as_list(key, value)
    return f"{words[0].lower()}{words[1:]}{place} is needed{example}"


def _one_of(key: str, value: object, kind: Any, inside: str) -> str:
    """The values that a setting, or each entry of it, may have."""
    allowed, words = _choices(kind), meaning(key)
    if not allowed or (not inside and all(f"`{one}`" in words for one in allowed)):
        return f"write {words}"
    listed = ", ".join(allowed)
    if not inside:
        return f"write one of {listed}"
    return f"each must be one of {listed}" if isinstance(value, list) else f"{inside} must be one of {listed}"


def _inside(key: str, value: object, kind: Any, place: str) -> str:
    """Where in the value it is wrong. msgspec writes `[...]` for an entry of a table, whatever its name."""
    if not place.startswith("[...]") or not isinstance(value, dict):
        return place
    wrong = next((name for name, one in value.items() if not _fits(one, get_args(kind)[-1])), None)
    shown = fit_to_show(key, value)
    if not isinstance(wrong, str) or not isinstance(shown, dict) or wrong not in shown:
        return place
    return f"{wrong}{place.removeprefix('[...]')}"


def _fits(value: object, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def _choices(kind: Any) -> list[str]:
    """The values of the first enumeration in a type."""
    if get_origin(kind) is Literal:
        return [str(one) for one in get_args(kind)]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [str(one.value) for one in kind]
    return next((found for one in get_args(kind) if (found := _choices(one))), [])


def _keys_in(kind: Any) -> list[str]:
    """The keys of the first table in a type."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return [field.encode_name for field in msgspec.structs.fields(kind)]
    return next((found for one in get_args(kind) if (found := _keys_in(one))), [])


def _as_list(key: str, value: object) -> str:
    """How to write a text as a list; nothing if it holds a secret."""
    if not isinstance(value, str) or fit_to_show(key, value) != value:
        return ""
    import json
    import shlex

    try:
        words = shlex.split(value)
    except ValueError:
        words = [value]
    return f": write {json.dumps(words, ensure_ascii=False)}"


def _words(kinds: str) -> str:
    return " or ".join(_KINDS.get(kind.strip(), kind.strip()) for kind in kinds.split("|"))


def _clip(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN_CHARS else f"{text[:_MAX_SHOWN_CHARS]}…"
