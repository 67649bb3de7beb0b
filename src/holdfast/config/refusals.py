"""Messages for an invalid setting: its key, its source, its value and the fix."""

from __future__ import annotations

import re

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


def expected(key: str, message: str, value: object) -> str:
    """What msgspec expected instead of the value, in words."""
    if message.startswith("Invalid enum value"):
        return f"write {meaning(key)}"
    field = _FIELD.match(message)
    if field is not None:
        # A table inside this setting.
        if field["kind"] == "missing required":
            return f"{field['name']} must be set"
        return f"it has no key {field['name']}: remove that key, or correct its name"
    found = _PLACE.match(message)
    assert found is not None
    why = found["why"].partition(", got ")[0].removeprefix("Expected ")
    words = re.sub(r"`([^`]*)`", lambda kinds: _words(kinds[1]), why)
    words = words.replace("<=", "of at most").replace(">=", "of at least").replace(">", "above")
    place = f" at {found['place']}" if found["place"] else ""
    example = ", in seconds, such as 600" if key.endswith("_s") and not key.endswith("_per_s") else ""
    if words == "a list" and not place:
        example = _as_list(key, value)
    return f"{words[0].lower()}{words[1:]}{place} is needed{example}"


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
