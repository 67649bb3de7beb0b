"""The SQL views with the names of seed 002: their text in each database, and which of them one lacks."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from holdfast.store.queries import in_dialect

VIEWS_FILE = Path(__file__).parent / "schema" / "views.sql"
# The migration that created the last table or column that they show.
SINCE = 15
# A view whose name is taken gets this one; a view that begins with it is ours, too.
OTHER_PREFIX = "holdfast_"
_MARK = re.compile(r"Holdfast view ([0-9a-f]{16})\b")
_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_HOLE = re.compile(r"\{(\w+)\}")
_WORD = re.compile(r"\b([A-Z]+)\(")

# What the words in the file stand for. Times are text of fixed width, so that they sort.
_SQLITE: dict[str, str] = {
    "ISO": "(strftime('%Y-%m-%dT%H:%M:%S', {0} / 1000000, 'unixepoch') || printf('.%06dZ', {0} % 1000000))",
    "SECOND": "strftime('%Y-%m-%dT%H:%M:%SZ', {0} / 1000000, 'unixepoch')",
    "TEXT": "CAST({0} AS TEXT)",
    "DOC": "json(CAST({0} AS TEXT))",
    "JSON": "json({0})",
    "BOOL": "json(CASE WHEN {0} THEN 'true' ELSE 'false' END)",
    "TRUTH": "{0}",
    "OBJECT": "json_object({0})",
    "OBJECTS": "json_group_object({0})",
    "GATHER": "json_group_array({0})",
    "LIST": "json_array({0})",
    "PAD": "printf('%03d', {0})",
    "WRITTEN": "{0}",
}
_POSTGRES: dict[str, str] = {
    "ISO": "to_char(TIMESTAMP 'epoch' + {0} * INTERVAL '1 microsecond', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')",
    "SECOND": "to_char(TIMESTAMP 'epoch' + {0} * INTERVAL '1 microsecond', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')",
    "TEXT": "convert_from({0}, 'UTF8')",
    "DOC": "CAST(convert_from({0}, 'UTF8') AS json)",
    "JSON": "{0}",
    "BOOL": "({0})",
    "TRUTH": "({0} = 1)",
    "OBJECT": "json_build_object({0})",
    "OBJECTS": "json_object_agg({0})",
    "GATHER": "json_agg({0})",
    "LIST": "json_build_array({0})",
    "PAD": "to_char({0}, 'FM999999000')",
    "WRITTEN": "CAST({0} AS text)",
}
_SPELLED = {"sqlite": _SQLITE, "postgres": _POSTGRES}


class SqlView(msgspec.Struct, frozen=True, kw_only=True):
    """One view under the name that it gets in a database."""

    # Its own name; `name` differs if a table or a view of the user has that one.
    wanted: str
    name: str
    sql: str

    @property
    def mark(self) -> str:
        """Tells this text of the view from others; stored with it."""
        digest = hashlib.sha256(self.sql.encode()).hexdigest()[:16]
        return f"Holdfast view {digest}"


class ViewReport(msgspec.Struct, frozen=True, kw_only=True):
    """The views that a database should have, and how those that it has differ."""

    views: tuple[SqlView, ...]
    # Ours that are absent, or have another text.
    lacking: tuple[SqlView, ...]
    # Every view of ours that is there, also of an older or a newer Holdfast.
    present: tuple[str, ...]
    # Views that cannot be created, as both of their names are taken, or those of a view that they show.
    homeless: tuple[str, ...]

    @property
    def renamed(self) -> tuple[SqlView, ...]:
        return tuple(view for view in self.views if view.name != view.wanted)

    @property
    def is_right(self) -> bool:
        return not self.lacking and {view.name for view in self.views} == set(self.present)


def compare_views(dialect: str, found: Mapping[str, str | None]) -> ViewReport:
    """What to do in a database in which these names are taken. Each comes with the text that holds the mark,
    if it is a view of ours. As in SQLite, names that differ only in the case of letters are the same."""
    marks = {name.lower(): _mark_in(text) for name, text in found.items()}
    chosen: dict[str, str] = {}
    views, homeless = [], []
    for wanted, text in _texts(dialect).items():
        free = [
            name for name in (wanted, OTHER_PREFIX + wanted) if name not in marks or marks[name] is not None
        ]
        shown = _HOLE.findall(text)
        if not free or any(one not in chosen for one in shown):
            homeless.append(wanted)
            continue
        chosen[wanted] = free[0]
        sql = _HOLE.sub(lambda hole: chosen[hole[1]], text)
        views.append(SqlView(wanted=wanted, name=free[0], sql=sql))
    return ViewReport(
        views=tuple(views),
        lacking=tuple(view for view in views if marks.get(view.name) != view.mark),
        present=tuple(sorted(name for name, mark in marks.items() if mark is not None)),
        homeless=tuple(homeless),
    )


def _mark_in(text: str | None) -> str | None:
    found = None if text is None else _MARK.search(text)
    return None if found is None else found[0]


@functools.cache
def _texts(dialect: str) -> dict[str, str]:
    """The text of each view, in the order in which they are created."""
    parts = _NAME.split(VIEWS_FILE.read_text(encoding="utf-8"))
    return {
        name: _spell(in_dialect(text, dialect), _SPELLED[dialect])
        for name, text in zip(parts[1::2], parts[2::2], strict=True)
    }


def _spell(text: str, words: Mapping[str, str]) -> str:
    """The text with each of our words as the database says it, also inside another one."""
    place = 0
    while (found := _WORD.search(text, place)) is not None:
        if found[1] not in words:
            place = found.end()
            continue
        end = _closing(text, found.end())
        spelled = words[found[1]].replace("{0}", text[found.end() : end])
        text = text[: found.start()] + spelled + text[end + 1 :]
        # What stands in the brackets may have such words, too; what was put before it has none.
        place = found.start()
    return text


def _closing(text: str, start: int) -> int:
    depth = 1
    for place in range(start, len(text)):
        depth += (text[place] == "(") - (text[place] == ")")
        if depth == 0:
            return place
    raise ValueError(f"a bracket is not closed in {VIEWS_FILE}")
