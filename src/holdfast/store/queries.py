"""Loads named queries: common ones first, then the dialect's own."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from pathlib import Path

SQL_FILES = Path(__file__).parent / "sql"
DIALECTS = ("sqlite", "postgres")

_NAME = "\n-- name: "
_LIST = re.compile(r"\bIN :(\w+)\[\]")
_PARAMETER = re.compile(r"(?<![:\w]):(\w+)")
_COMMENT = re.compile(r"--[^\n]*\n")

# A list parameter is written `IN :ids[]`; it is passed as one value, which each database unpacks in its way.
_UNPACK = {
    "sqlite": r"IN (SELECT value FROM json_each(:\1))",
    "postgres": r"= ANY (CAST(:\1 AS text[]))",
}


@functools.cache
def load_queries(dialect: str) -> dict[str, str]:
    """Every query by name, in the dialect of one database; parameters are still written `:name`. Cached."""
    texts = read_files("common") | read_files(dialect)
    return {name: in_dialect(text, dialect) for name, text in texts.items()}


def read_files(folder: str) -> dict[str, str]:
    """Name and text of each query in a folder, as written."""
    found: dict[str, str] = {}
    for path in sorted((SQL_FILES / folder).glob("*.sql")):
        for part in f"\n{path.read_text(encoding='utf-8')}".split(_NAME)[1:]:
            name, _, text = part.partition("\n")
            if name in found:
                raise ValueError(f"query {name} is defined twice in sql/{folder}")
            found[name] = text
    return found


def in_dialect(text: str, dialect: str) -> str:
    """The text without comments, with its lists unpacked."""
    text = _COMMENT.sub("", text + "\n").strip().rstrip(";")
    return _LIST.sub(_UNPACK[dialect], text) if "[]" in text else text


def numbered(sql: str, order: Iterable[str] = ()) -> tuple[str, tuple[str, ...]]:
    """The text with `$1` for its first parameter and so on, and the names of the parameters in that order:
    the given order, or the order of appearance."""
    places = {name: place for place, name in enumerate(order, 1)}
    text = _PARAMETER.sub(lambda found: f"${places.setdefault(found[1], len(places) + 1)}", sql)
    return text, tuple(places)
