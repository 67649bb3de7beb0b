"""Loads named queries: common ones first, then the dialect's own."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from pathlib import Path

from holdfast.core.patterns import compiled_late

SQL_FILES = Path(__file__).parent / "sql"
DIALECTS = ("sqlite", "postgres")

_NAME = "\n-- name: "
_LIST = compiled_late(r"\bIN :(\w+)\[\]")
_PARAMETER = compiled_late(r"(?<![:\w]):(\w+)")
_COMMENT = compiled_late(r"--[^\n]*\n")

# A list parameter is written `IN :ids[]`; it is passed as one value, which each database unpacks in its way.
_UNPACK = {
    "sqlite": r"IN (SELECT value FROM json_each(:\1))",
    "postgres": r"= ANY (CAST(:\1 AS text[]))",
}


class Queries(dict[str, str]):
    """The queries of one dialect by name; parameters are still written `:name`.

    Each is translated when it is first asked for: a process uses few of the 600, and its first step waits
    until they are there. It is a dictionary, so that a lookup costs no call; `names` has all of them.
    """

    def __init__(self, texts: Mapping[str, str], dialect: str) -> None:
        super().__init__()
        self.names = texts.keys()
        self._texts = texts
        self._dialect = dialect

    def __missing__(self, name: str) -> str:
        query = self[name] = in_dialect(self._texts[name], self._dialect)
        return query


@functools.cache
def load_queries(dialect: str) -> Queries:
    """Every query in the dialect of one database. Cached."""
    return Queries(read_files("common") | read_files(dialect), dialect)


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
    text = _COMMENT().sub("", text + "\n").strip().rstrip(";")
    return _LIST().sub(_UNPACK[dialect], text) if "[]" in text else text


def numbered(sql: str, order: Iterable[str] = ()) -> tuple[str, tuple[str, ...]]:
    """The text with `$1` for its first parameter and so on, and the names of the parameters in that order:
    the given order, or the order of appearance."""
    places = {name: place for place, name in enumerate(order, 1)}
    text = _PARAMETER().sub(lambda found: f"${places.setdefault(found[1], len(places) + 1)}", sql)
    return text, tuple(places)
