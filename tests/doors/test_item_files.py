"""Files of items: both formats, and every mistake named with its file, its line and the fix."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.cli.item_files import MAX_LINE_BYTES, STDIN, ItemColumns, ItemFile
from holdfast.core.errors import BadInput

GOOD = b'{"id": "a", "name": "Alpha", "priority": "P0", "category": "tool", "url": "x", "deep": {"n": 1}}\n'


def read(path: Path, contents: bytes, **more: Any) -> list[Any]:
    path.write_bytes(contents)
    return [(one.line, one.item) for one in ItemFile(str(path), **more).read()]


def test_json_lines_keep_what_else_the_line_has(tmp_path: Path) -> None:
    found = read(tmp_path / "x.jsonl", GOOD + b"\n" + b'{"id": 7}\n')

    (line, item), (last, plain) = found
    assert (line, item.id, item.name, item.priority, item.category) == (1, "a", "Alpha", "P0", "tool")
    assert item.fields == {"url": "x", "deep": {"n": 1}}
    # A number is an id, too; the name is the id, and the priority is the usual one.
    assert (last, plain.id, plain.name, plain.priority, plain.category, plain.fields) == (
        3,
        "7",
        "7",
        "P2",
        None,
        None,
    )


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_csv_has_a_header_and_may_have_cells_of_several_lines(tmp_path: Path, delimiter: str) -> None:
    rows: tuple[list[str], ...] = (
        ["id", "note", "priority", "name"],
        ["a", '"two\nlines, here"', "P1", "A"],
        [],
        ["b", "", "", ""],
    )
    text = "".join(delimiter.join(cells) + "\n" for cells in rows)

    found = read(tmp_path / "x.csv", text.encode())

    # The line is the one on which an item ends.
    assert [(line, item.id, item.name, item.priority) for line, item in found] == [
        (3, "a", "A", "P1"),
        (5, "b", "b", "P2"),
    ]
    assert found[0][1].fields == {"note": "two\nlines, here"}


def test_columns_may_have_other_names(tmp_path: Path) -> None:
    columns = ItemColumns(id="repo", name="title", priority="prio", category="kind")

    found = read(tmp_path / "x.csv", b"repo,title,prio,kind,id\na,A,P3,tool,9\n", columns=columns)

    item = found[0][1]
    assert (item.id, item.name, item.priority, item.category) == ("a", "A", "P3", "tool")
    assert item.fields == {"id": "9"}


@pytest.mark.parametrize("name", ["x.csv", "x.jsonl", "x.txt"])
def test_a_byte_order_mark_is_no_part_of_the_file(tmp_path: Path, name: str) -> None:
    contents = GOOD if name.endswith("jsonl") else b"id,name\na,b\n"

    assert read(tmp_path / name, b"\xef\xbb\xbf" + contents)[0][1].id == "a"


def test_windows_ends_of_lines_are_read(tmp_path: Path) -> None:
    assert [one.id for _, one in read(tmp_path / "x.csv", b"id,name\r\na,b\r\nc,d\r\n")] == ["a", "c"]


def test_the_format_of_stdin_is_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    for contents in (GOOD, b"id\na\n", b"\n\n  " + GOOD):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(contents)))

        assert [one.item.id for one in ItemFile(STDIN).read()] == ["a"]


MISTAKES = {
    "empty": ("x.jsonl", b"", "", "it is empty; write one item per line"),
    "blank": ("x.jsonl", b"\n \n", "", "it is empty"),
    "only a header": ("x.csv", b"id,name\n", "", "it has a header and no items"),
    "bad json": ("x.jsonl", GOOD + b"{'id': 1}\n", ":2", "invalid JSON"),
    "cut off": ("x.jsonl", GOOD + b'{"id": "b"', ":2", "invalid JSON"),
    "no object": ("x.jsonl", b"7\n", ":1", "an object is needed"),
    "a list": ("x.json", b'[{"id": "a"}]', ":1", "jq -c '.[]'"),
    "deep": ("x.jsonl", b'{"id": "a", "x": ' + b"[" * 3000 + b"]" * 3000 + b"}\n", ":1", ""),
    "no id": ("x.jsonl", GOOD + b'{"name": "b"}\n', ":2", "it has no 'id'; give each item an id of its own"),
    "null id": ("x.jsonl", b'{"id": null}\n', ":1", "it has no 'id'"),
    "id is true": ("x.jsonl", b'{"id": true}\n', ":1", "'id' is true; write it as a text"),
    "id with a slash": ("x.jsonl", b'{"id": "a/b"}\n', ":1", "an id has 1 to 100 letters"),
    "name is a list": ("x.jsonl", b'{"id": "a", "name": []}\n', ":1", "'name' is []; write it as a text"),
    "name with an escape": ("x.jsonl", b'{"id": "a", "name": "\\u001b[2J"}\n', ":1", "name of item a"),
    "priority": ("x.jsonl", b'{"id": "a", "priority": "high"}\n', ":1", "use P0 (first) to P9 (last)"),
    "priority 10": ("x.csv", b"id,priority\na,P10\n", ":2", "use P0 (first) to P9 (last)"),
    "a secret": ("x.jsonl", b'{"id": "ghp_' + b"C4n4ry" * 6 + b'"}\n', ":1", "looks like a secret"),
    "a reference": ("x.jsonl", b'{"id": "a", "key": {"$secret": "A"}}\n', ":1", "$secret"),
    "twice": ("x.jsonl", GOOD + GOOD, ":2", "the id 'a' stands in an earlier line, too"),
    "twice in csv": ("x.csv", b"id\na\nb\na\n", ":4", "the id 'a' stands in an earlier line, too"),
    "no id column": ("x.csv", b"repo,name\na,b\n", ":1", "the header has no column 'id' (repo,name)"),
    "no header": ("x.csv", b"repo-1,first\nrepo-2,second\n", ":1", "write id,name,priority,category"),
    "two columns": ("x.csv", b"id,name,name\na,b,c\n", ":1", "two columns have the name 'name'"),
    "nameless column": ("x.csv", b"id,,name\na,b,c\n", ":1", "column 2 has no name"),
    "too many cells": ("x.csv", b"id,name\na,b\nc,d,e\n", ":3", "it has 3 cells, and the header has 2"),
    "too few cells": ("x.csv", b"id,name\na\n", ":2", "it has 1 cells, and the header has 2"),
    "open quote": ("x.csv", b'id,name\na,"b\nc\n', ":3", "unexpected end of data"),
    "stray quote": ("x.csv", b'id,name\na,"b"c\n', ":2", "put a cell with quotes or commas into quotes"),
    "latin-1": ("x.csv", b"id,name\na,caf\xe9\n", ":2", "byte 6 of the line is not UTF-8; convert"),
    "utf-16": ("x.csv", "id,name\na,b\n".encode("utf-16"), ":1", "the file is UTF-16; convert it: iconv"),
    "long line": ("x.jsonl", b'{"id": "' + b"a" * MAX_LINE_BYTES, ":1", "the line is longer than 1024 KiB"),
    "large fields": ("x.jsonl", b'{"id": "a", "x": "' + b"y" * 70_000 + b'"}\n', ":1", "65,536 are allowed"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_with_its_file_its_line_and_the_fix(tmp_path: Path, mistake: str) -> None:
    name, contents, line, words = MISTAKES[mistake]
    path = tmp_path / name

    with pytest.raises(BadInput) as caught:
        read(path, contents)

    assert caught.value.field == f"{path}{line}"
    assert words in caught.value.problem
    assert len(str(caught.value)) < 700


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none.jsonl", tmp_path):
        with pytest.raises(BadInput, match="name a file that you may read"):
            list(ItemFile(str(path)).read())
