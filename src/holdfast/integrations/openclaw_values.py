"""Reads single values of OpenClaw's rows; one that does not fit is changed, kept beside, and remarked on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, TypeVar

import msgspec

from holdfast.core.clock import EPOCH
from holdfast.core.errors import BadInput
from holdfast.core.imported import SourceIdentity
from holdfast.core.payload import MAX_NAME_CHARS, check_tree, clean_text
from holdfast.store.foreign_file import Value

Row = Mapping[str, Value]
S = TypeVar("S", bound=StrEnum)

# A clock may be wrong by this much.
_MAX_AHEAD: Final = timedelta(days=1)
_MAX_NUMBER: Final = 2**53
# The name in whose object a task keeps these values: a value may be nested only as deep as is left in there.
_REST: Final = "openclaw"
# As JSON, all values of a row that have no column here; the longest are cut. A flow keeps at most 256 KiB.
_MAX_REST_BYTES: Final = 250_000


def read_moment(row: Row, column: str, *, now: datetime) -> datetime | None:
    """Raises BadInput for a value that is no time, or one before 1970 or in the future."""
    value = row.get(column)
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int):
        raise BadInput(column, f"{shown(value)} is not a time in milliseconds")
    if value < 0:
        raise BadInput(column, f"{value} is a time before 1970")
    if value > (now + _MAX_AHEAD - EPOCH) // timedelta(milliseconds=1):
        raise BadInput(column, f"{value} is a time in the future")
    return EPOCH + timedelta(milliseconds=value)


class RowReader:
    """The base of what reads one row."""

    def __init__(self, row: Row, now: datetime) -> None:
        self._row = row
        self._now = now
        self.remarks: list[str] = []
        # Values that were changed, as they are in the row.
        self._rest: dict[str, object] = {}

    def _id(self, column: str) -> str:
        value = self._row.get(column)
        if not isinstance(value, str) or not value.strip():
            raise BadInput(column, f"{shown(value)} is not an id")
        if len(value) > MAX_NAME_CHARS or not value.isprintable():
            raise BadInput(column, f"an id has at most {MAX_NAME_CHARS} printable characters")
        return value

    def _name(self, column: str) -> str | None:
        value = self._row.get(column)
        if value is None or (isinstance(value, str) and not value.strip()):
            return None
        name = cleaned_name(value if isinstance(value, str) else shown(value))
        if name != value:
            self._keep(column, value, "it is not a name of one line; shortened and cleaned")
        return name

    def _text(self, column: str, max_bytes: int) -> str | None:
        value = self._row.get(column)
        if value is None or (isinstance(value, str) and not value.strip()):
            return None
        text = value if isinstance(value, str) else shown(value)
        # A character has at most four bytes, and redaction may add some.
        cleaned = clean_text(text, max_chars=max_bytes // 8) if _needs_cleaning(text, max_bytes) else text
        if cleaned != value:
            self._keep(column, value, "it was too long, or had control characters; shortened and cleaned")
        return cleaned

    def _choice(self, column: str, kind: type[S], default: S | None) -> S | None:
        value = self._row.get(column)
        try:
            return default if value is None else kind(str(value))
        except ValueError:
            self._keep(column, value, f"{shown(value)} is not known; ignored")
            return default

    def _count(self, column: str) -> int:
        value = self._row.get(column)
        if isinstance(value, int) and 0 <= value <= _MAX_NUMBER:
            return value
        if value is not None:
            self._keep(column, value, f"{shown(value)} is not a number; ignored")
        return 0

    def _moment(self, column: str) -> datetime | None:
        try:
            return read_moment(self._row, column, now=self._now)
        except BadInput as error:
            self._keep(column, self._row.get(column), f"{error.problem}; ignored")
            return None

    # --- what has no place of its own

    def _keep(self, column: str, value: object, remark: str) -> None:
        """Keep the value as it is beside the task, and say so."""
        if column not in self._rest:
            self._rest[column] = value
            self.remarks.append(f"{column}: {remark}")

    def _kept(self, found: Mapping[str, object]) -> dict[str, object]:
        """These values as JSON can hold them, without the missing ones."""
        kept = {column: _as_json(column, value) for column, value in found.items() if value is not None}
        sizes = {column: _json_bytes(value) for column, value in kept.items()}
        # The shortest first, so that a long value is cut only after all others have their room.
        room, left = _MAX_REST_BYTES, len(kept)
        for column in sorted(sizes, key=lambda name: (sizes[name], name)):
            if sizes[column] > room // left:
                kept[column] = _cut(kept[column], room // left)
                self.remarks.append(f"{column}: only its beginning is kept, because the row is too long")
            room -= min(sizes[column], room // left)
            left -= 1
        return kept

    def _link(self, column: str, known: Mapping[str, datetime]) -> SourceIdentity | None:
        source_id = self._name(column)
        if source_id is None:
            return None
        if source_id not in known:
            why = f"{source_id} is not in the database, or was left out or skipped"
            self._keep(column, source_id, f"{why}; the link is kept as text only")
            return None
        return SourceIdentity(source_id=source_id, created_at=known[source_id])


def _needs_cleaning(text: str, max_bytes: int) -> bool:
    if len(text) > max_bytes // 8:
        return True
    return not (text.isprintable() or clean_text(text, max_chars=max_bytes) == text)


def cleaned_name(text: str) -> str:
    line = " ".join(text.split()) if not text.isprintable() else text.strip()
    if len(line) <= MAX_NAME_CHARS and line.isprintable():
        return line
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in line)[
        :MAX_NAME_CHARS
    ]


def _as_json(column: str, value: object) -> object:
    """A value that JSON can hold: bytes as hexadecimal text, other numbers as text, JSON decoded."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and not -(2**53) <= value <= 2**53:
        return str(value)
    if isinstance(value, str) and column.endswith("_json"):
        try:
            decoded: object = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return value
        return decoded if _is_flat_enough(column, decoded) else value
    if isinstance(value, (dict, list)) and not _is_flat_enough(column, value):
        return msgspec.json.encode(value).decode()
    return value


def _is_flat_enough(column: str, value: object) -> bool:
    try:
        check_tree(column, {_REST: {column: value}})
    except BadInput:
        return False
    return True


def _json_bytes(value: object) -> int:
    return len(msgspec.json.encode(value))


def _cut(value: object, max_bytes: int) -> str:
    """The beginning of a value, whose JSON is longer than this."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    while text and (size := _json_bytes(text)) > max_bytes:
        text = text[: len(text) * max_bytes // size]
    return text


def shown(value: object) -> str:
    """A value for a message, short and on one line."""
    text = value if isinstance(value, str) else repr(value)
    return clean_text(" ".join(text.split()), max_chars=60) or "(empty)"
