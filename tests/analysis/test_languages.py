"""Lines of real files: code, comment and blank, by the rules of each language."""

from __future__ import annotations

import pytest

from holdfast.analysis.languages import count_lines, is_binary, is_code, language_of


def counted(name: str, text: str) -> tuple[int, int, int]:
    language = language_of(name.encode())
    assert language is not None
    counts = count_lines(text.encode(), language)
    return counts.code, counts.comment, counts.blank


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.py", "# one\nx = 1  # two\n\n", (1, 1, 1)),
        ("a.py", '"""Doc.\n\nMore.\n"""\nx = 1\n', (1, 3, 1)),
        ("a.py", '"""One line."""\nx = 1\n', (1, 1, 0)),
        ("a.py", 'x = """\n# no comment\n"""\n# comment\n', (3, 1, 0)),
        ("a.py", "def f():\n    r'''Doc.\n    '''\n    return '\"\"\"'\n", (2, 2, 0)),
        ("a.c", "/* one\n * two\n */\nint x; /* three */\n// four\n", (1, 4, 0)),
        ("a.c", "/* one */ int x;\nint y;\n", (1, 1, 0)),
        ("a.js", "const glob = 'src/*';\nlet x = 1;\n", (2, 0, 0)),
        ("a.html", "<!-- one\ntwo -->\n<p>\n", (1, 2, 0)),
        ("a.rb", "=begin\none\n=end\nx = 1 # two\n", (1, 3, 0)),
        ("a.sql", "-- one\nSELECT 1;\n", (1, 1, 0)),
        ("a.json", '{\n\n"#": 1}\n', (2, 0, 1)),
        ("Makefile", "# one\nall:\n", (1, 1, 0)),
        ("Dockerfile", "FROM x\r\n# one\r\n\r\n", (1, 1, 1)),
        ("a.go", "", (0, 0, 0)),
        ("a.go", "x := 1", (1, 0, 0)),
    ],
)
def test_lines_are_counted_by_the_rules_of_the_language(
    name: str, text: str, expected: tuple[int, int, int]
) -> None:
    assert counted(name, text) == expected


def test_every_line_is_counted_once() -> None:
    text = '"""' * 7 + "\n'''\n# x\n\n" * 50
    for name in ("a.py", "a.c", "a.lua", "a.hs", "a.html"):
        assert sum(counted(name, text)) == len(text.splitlines())


def test_bytes_that_are_no_utf_8_are_counted() -> None:
    language = language_of(b"a.py")
    assert language is not None

    assert count_lines(b"x = '\xff\xfe'\n# \xe9\n", language).code == 1


@pytest.mark.parametrize(
    ("name", "language"),
    [
        (b"A.PY", "Python"),
        (b"a.tar.gz", None),
        (b"README", None),
        (b".py", "Python"),
        (b"py", None),
        (b"a.TSX", "TypeScript"),
        (b"\xff\n\x1b[31m.rs", "Rust"),
    ],
)
def test_a_language_is_known_by_the_name_of_the_file(name: bytes, language: str | None) -> None:
    found = language_of(name)

    assert (None if found is None else found.name) == language


def test_a_file_with_a_zero_byte_is_no_text() -> None:
    assert is_binary(b"MZ\x00")
    assert not is_binary(b"text")


def test_text_and_data_are_no_code() -> None:
    assert [name for name in ("Python", "Markdown", "JSON", "Go") if is_code(name)] == ["Python", "Go"]
