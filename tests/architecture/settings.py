"""The table of every setting, made from the structs of the settings and from the table of keys."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import inspect

from holdfast.config.keys import ENTRIES, KEYS, Key, defaults
from holdfast.config.sections import Config


def settings_table() -> str:
    """One row for each key: what it holds, what it is without a word, what a change needs, what it means."""
    rows = [
        f"| `{key.name}` | {_holds(_type_of(key))} | {_default(key)} | {key.applies.value} | {key.meaning} |"
        for key in KEYS
    ]
    return "\n".join(["| key | holds | default | change | means |", "| --- | --- | --- | --- | --- |", *rows])


def _type_of(key: Key) -> inspect.Type:
    section, _, rest = key.name.partition(".*.")
    found = inspect.type_info(ENTRIES[section] if rest else Config)
    for part in (rest or section).split("."):
        assert isinstance(found, inspect.StructType)
        found = next(field.type for field in found.fields if field.name == part)
    return found


def _holds(kind: inspect.Type) -> str:
    match kind:
        case inspect.BoolType():
            return "true or false"
        case inspect.StrType():
            return "text"
        case inspect.AnyType():
            return "any value"
        case inspect.DateTimeType():
            return "a moment"
        case inspect.IntType():
            return f"a whole number{_limits(kind)}"
        case inspect.FloatType():
            return f"a number{_limits(kind)}"
        case inspect.ListType():
            return f"a list of {_holds(kind.item_type)}"
        case inspect.DictType():
            return f"names, each with {_holds(kind.value_type)}"
        case inspect.StructType():
            return " and ".join(f"`{field.name}`" for field in kind.fields)
        case inspect.LiteralType():
            return " or ".join(f"`{value}`" for value in kind.values)
        case inspect.UnionType():
            return " or ".join(_holds(one) for one in kind.types if not isinstance(one, inspect.NoneType))
        case _:
            raise AssertionError(kind)


def _limits(kind: inspect.IntType | inspect.FloatType) -> str:
    low = "" if kind.ge is None else f" from {kind.ge:.0f}"
    low = low if kind.gt is None else f" above {kind.gt:.0f}"
    # A limit that is only there against slips of the pen needs no place.
    high = "" if kind.le is None or kind.le >= 10**8 else f" to {kind.le:.0f}"
    return low + high


def _default(key: Key) -> str:
    found: Any = defaults().get(key.name, msgspec.UNSET)
    if found is msgspec.UNSET:
        return "must be set"
    return "none" if found is None else f"`{msgspec.json.encode(found).decode()}`"
