"""Reads the items of a campaign from a file or stdin, line by line: JSON lines, or CSV with a header."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from holdfast.api.campaign_changes import NewItemAsked
from holdfast.core.campaign import DEFAULT_ITEM_PRIORITY, MAX_ITEM_BYTES, Item, check_item
from holdfast.core.errors import BadInput
from holdfast.core.secret import refuse_references
from holdfast.views.text import one_line

STDIN = "-"
# A longer line is not read into memory.
MAX_LINE_BYTES = 1024 * 1024
_DELIMITERS = (",", ";", "\t")
_OTHER_BOMS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


class ItemColumns(msgspec.Struct, frozen=True, kw_only=True):
    """Under which names a file has the id, the name, the priority and the category of an item."""

    id: str = "id"
    name: str = "name"
    priority: str = "priority"
    category: str = "category"


class ReadItem(msgspec.Struct, frozen=True, kw_only=True):
    """One item and the line on which it ends."""

    line: int
    item: NewItemAsked


class ItemFile:
    """The items of one file, each read once, so that stdin and files of any size will do.

    Every error is a BadInput that names the file, the line and the fix.
    """

    def __init__(self, path: str, *, kind: str | None = None, columns: ItemColumns | None = None) -> None:
        self.path = path
        self.shown = "stdin" if path == STDIN else path
        self._kind = kind
        self._columns = ItemColumns() if columns is None else columns
        # Of each id that was read; the ids themselves would take several times the memory.
        self._seen: set[int] = set()

    def read(self) -> Iterator[ReadItem]:
        if self.path == STDIN:
            yield from self._read(sys.stdin.buffer)
            return
        try:
            with Path(self.path).open("rb") as stream:
                yield from self._read(stream)
        except OSError as error:
            raise BadInput(self.shown, f"{error.strerror}; name a file that you may read") from error

    def _read(self, stream: BinaryIO) -> Iterator[ReadItem]:
        lines = self._lines(stream)
        first = next(((number, text) for number, text in lines if text.strip()), None)
        if first is None:
            raise BadInput(self.shown, "it is empty; write one item per line, such as " + _EXAMPLE)
        kind = self._kind or self._guess(first[1])
        found = self._json_items(first, lines) if kind == "jsonl" else self._csv_items(first, lines)
        is_empty = True
        for number, values in found:
            is_empty = False
            yield ReadItem(line=number, item=self._item(number, values))
        if is_empty:
            raise BadInput(self.shown, "it has a header and no items; write one item per line")

    def _guess(self, first: str) -> str:
        if self.path.lower().endswith((".csv", ".tsv")):
            return "csv"
        if self.path.lower().endswith((".jsonl", ".ndjson", ".json")):
            return "jsonl"
        return "jsonl" if first.lstrip().startswith(("{", "[")) else "csv"

    def _lines(self, stream: BinaryIO) -> Iterator[tuple[int, str]]:
        number = 0
        while raw := stream.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(raw) > MAX_LINE_BYTES:
                raise self._wrong(
                    number,
                    f"the line is longer than {MAX_LINE_BYTES // 1024} KiB; keep large contents in a file of "
                    "their own, and write its path here",
                )
            if number == 1:
                raw = self._without_bom(raw)
            try:
                text = raw.decode("utf-8")
            except UnicodeDecodeError as error:
                raise self._wrong(
                    number,
                    f"byte {error.start + 1} of the line is not UTF-8; convert the file: "
                    f"iconv -f latin1 -t utf-8 {self._named()} > items-utf8",
                ) from error
            yield number, text

    def _without_bom(self, raw: bytes) -> bytes:
        other = _OTHER_BOMS.get(raw[:2])
        if other is not None:
            raise self._wrong(
                1, f"the file is {other}; convert it: iconv -f utf-16 -t utf-8 {self._named()} > items-utf8"
            )
        return raw.removeprefix(b"\xef\xbb\xbf")

    def _named(self) -> str:
        return "FILE" if self.path == STDIN else self.path

    def _wrong(self, line: int, why: str) -> BadInput:
        return BadInput(f"{self.shown}:{line}", why)

    # --- JSON lines

    def _json_items(
        self, first: tuple[int, str], lines: Iterator[tuple[int, str]]
    ) -> Iterator[tuple[int, dict[str, object]]]:
        if first[1].lstrip().startswith("["):
            raise self._wrong(
                first[0],
                f"one JSON object a line is needed, not a list: jq -c '.[]' {self._named()} > items.jsonl",
            )
        for number, text in _with(first, lines):
            if not text.strip():
                continue
            try:
                values = msgspec.json.decode(text)
            except (msgspec.DecodeError, RecursionError) as error:
                raise self._wrong(
                    number, f"invalid JSON ({error}); write one object a line, such as {_EXAMPLE}"
                ) from error
            if not isinstance(values, dict):
                raise self._wrong(number, f"an object is needed, such as {_EXAMPLE}")
            yield number, values

    # --- CSV

    def _csv_items(
        self, first: tuple[int, str], lines: Iterator[tuple[int, str]]
    ) -> Iterator[tuple[int, dict[str, object]]]:
        at = first[0]
        delimiter, header = self._header(first)

        def told() -> Iterator[str]:
            nonlocal at
            for number, text in lines:
                at = number
                yield text

        rows = csv.reader(told(), delimiter=delimiter, strict=True)
        while True:
            try:
                row = next(rows, None)
            except csv.Error as error:
                raise self._wrong(
                    at, f"{error}; put a cell with quotes or commas into quotes, and double its quotes"
                ) from error
            if row is None:
                return
            if not any(row):
                continue
            if len(row) != len(header):
                raise self._wrong(
                    at,
                    f"it has {len(row)} cells, and the header has {len(header)}; put a cell with a "
                    f"{_name_of(delimiter)} into quotes",
                )
            yield at, {name: cell for name, cell in zip(header, row, strict=True) if cell != ""}

    def _header(self, first: tuple[int, str]) -> tuple[str, list[str]]:
        number, text = first
        wanted = self._columns
        for delimiter in _DELIMITERS:
            (row,) = csv.reader([text], delimiter=delimiter)
            names = [cell.strip() for cell in row]
            if wanted.id in names:
                break
        else:
            shown = one_line(text, 80)
            raise self._wrong(
                number,
                f"the header has no column {wanted.id!r} ({shown}); write id,name,priority,category as its "
                "first line, or name the column: --id-column NAME",
            )
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise self._wrong(number, f"two columns have the name {twice!r}; rename one")
        if "" in names:
            raise self._wrong(number, f"column {names.index('') + 1} has no name; give it one")
        return delimiter, names

    # --- one item

    def _item(self, line: int, values: dict[str, object]) -> NewItemAsked:
        columns = self._columns
        rest = {name: value for name, value in values.items() if name not in msgspec.structs.astuple(columns)}
        item_id = values.get(columns.id)
        if item_id is None or item_id == "":
            raise self._wrong(
                line, f"it has no {columns.id!r}; give each item an id of its own, such as repo-001"
            )
        # Numbers are common as ids.
        item_id = str(item_id) if isinstance(item_id, int) and not isinstance(item_id, bool) else item_id
        texts = {
            column: self._text(line, column, value)
            for column, value in {
                columns.id: item_id,
                columns.name: values.get(columns.name),
                columns.priority: values.get(columns.priority),
                columns.category: values.get(columns.category),
            }.items()
        }
        item = Item(
            id=texts[columns.id],
            name=texts[columns.name],
            priority=texts[columns.priority] or DEFAULT_ITEM_PRIORITY,
            category=texts[columns.category] or None,
            fields=rest,
        )
        try:
            refuse_references("its fields", rest)
            checked = check_item(item, line)
        except BadInput as error:
            where = "" if error.field.startswith("item ") else f"{error.field}: "
            raise self._wrong(line, f"{where}{error.problem}") from error
        size = len(msgspec.json.encode(rest))
        if size > MAX_ITEM_BYTES:
            raise self._wrong(
                line,
                f"its fields take {size:,} bytes, and {MAX_ITEM_BYTES:,} are allowed; keep large contents in "
                "a file of their own, and write its path here",
            )
        mark = hash(checked.id)
        if mark in self._seen:
            raise self._wrong(
                line,
                f"the id {checked.id!r} stands in an earlier line, too; remove one of them, or rename it",
            )
        self._seen.add(mark)
        return NewItemAsked(
            id=checked.id,
            name=checked.name,
            priority=checked.priority,
            category=checked.category,
            fields=rest or None,
        )

    def _text(self, line: int, column: str, value: object) -> str:
        if not (value is None or isinstance(value, str)):
            shown = one_line(msgspec.json.encode(value).decode(), 40)
            raise self._wrong(line, f"{column!r} is {shown}; write it as a text")
        return value or ""


_EXAMPLE = '{"id": "repo-001", "name": "pingcap/tidb", "priority": "P0", "category": "product"}'


def _with(first: tuple[int, str], rest: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    yield first
    yield from rest


def _name_of(delimiter: str) -> str:
    return {",": "comma", ";": "semicolon", "\t": "tab"}[delimiter]
