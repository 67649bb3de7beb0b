"""Languages by file name, and the code, comment and blank lines of one file; pure."""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

# A zero byte in the first part of a file means that it is no text.
_HEAD = 8192
_DOCSTRING = re.compile(rb"[bBrRuU]{0,2}(\"\"\"|''')")


class Language(NamedTuple):
    """A language, and how its comments begin and end."""

    name: str
    line: tuple[bytes, ...] = ()
    blocks: tuple[tuple[bytes, bytes], ...] = ()


class LineCounts(msgspec.Struct, kw_only=True):
    """How many files and lines, of one language or of several."""

    files: int = 0
    code: int = 0
    comment: int = 0
    blank: int = 0

    @property
    def lines(self) -> int:
        return self.code + self.comment + self.blank

    def add(self, other: LineCounts) -> None:
        self.files += other.files
        self.code += other.code
        self.comment += other.comment
        self.blank += other.blank


_SLASHES = ((b"//",), ((b"/*", b"*/"),))
_HASH: tuple[tuple[bytes, ...], tuple[tuple[bytes, bytes], ...]] = ((b"#",), ())
_MARKUP: tuple[tuple[bytes, ...], tuple[tuple[bytes, bytes], ...]] = ((), ((b"<!--", b"-->"),))
PYTHON = Language("Python", *_HASH)
_LANGUAGES = {
    PYTHON: "py pyi pyw",
    Language("C", *_SLASHES): "c h",
    Language("C++", *_SLASHES): "cc cpp cxx hh hpp hxx",
    Language("C#", *_SLASHES): "cs",
    Language("CSS", (), ((b"/*", b"*/"),)): "css",
    Language("Cython", *_HASH): "pyx pxd pxi",
    Language("Dart", *_SLASHES): "dart",
    Language("Elixir", *_HASH): "ex exs",
    Language("Erlang", (b"%",)): "erl hrl",
    Language("Go", *_SLASHES): "go",
    Language("Groovy", *_SLASHES): "groovy gradle",
    Language("HTML", *_MARKUP): "html htm",
    Language("Haskell", (b"--",), ((b"{-", b"-}"),)): "hs",
    Language("JSON"): "json",
    Language("Java", *_SLASHES): "java",
    Language("JavaScript", *_SLASHES): "js jsx mjs cjs",
    Language("Julia", (b"#",), ((b"#=", b"=#"),)): "jl",
    Language("Kotlin", *_SLASHES): "kt kts",
    Language("Less", *_SLASHES): "less",
    Language("Lua", (b"--",), ((b"--[[", b"]]"),)): "lua",
    Language("Markdown"): "md markdown",
    Language("Objective-C", *_SLASHES): "m mm",
    Language("PHP", (b"//", b"#"), ((b"/*", b"*/"),)): "php",
    Language("Perl", *_HASH): "pl pm",
    Language("Protocol Buffers", *_SLASHES): "proto",
    Language("R", *_HASH): "r",
    Language("Ruby", (b"#",), ((b"=begin", b"=end"),)): "rb rake",
    Language("Rust", *_SLASHES): "rs",
    Language("SCSS", *_SLASHES): "scss sass",
    Language("SQL", (b"--",), ((b"/*", b"*/"),)): "sql",
    Language("Scala", *_SLASHES): "scala",
    Language("Shell", *_HASH): "sh bash zsh fish",
    Language("Svelte", *_MARKUP): "svelte",
    Language("Swift", *_SLASHES): "swift",
    Language("TOML", *_HASH): "toml",
    Language("Terraform", (b"#", b"//"), ((b"/*", b"*/"),)): "tf tfvars",
    Language("TypeScript", *_SLASHES): "ts tsx mts cts",
    Language("Vue", *_MARKUP): "vue",
    Language("XML", *_MARKUP): "xml xsd xsl",
    Language("YAML", *_HASH): "yaml yml",
    Language("Zig", (b"//",)): "zig",
    Language("reStructuredText"): "rst",
}
_BY_SUFFIX = {suffix.encode(): language for language, names in _LANGUAGES.items() for suffix in names.split()}
_BY_NAME = {b"dockerfile": Language("Dockerfile", *_HASH), b"makefile": Language("Makefile", *_HASH)}
# Text and data: their lines are listed, and are no lines of code.
_NOT_CODE = frozenset({"HTML", "JSON", "Markdown", "SQL", "TOML", "XML", "YAML", "reStructuredText"})


def is_code(language: str) -> bool:
    """Whether lines of this language count as lines of code of an item."""
    return language not in _NOT_CODE


def language_of(name: bytes) -> Language | None:
    """The language of a file by its name; None if its lines are not counted."""
    name = name.lower()
    _, dot, suffix = name.rpartition(b".")
    return _BY_SUFFIX.get(suffix) if dot else _BY_NAME.get(name)


def is_binary(content: bytes) -> bool:
    return b"\0" in content[:_HEAD]


def count_lines(content: bytes, language: Language) -> LineCounts:
    """The lines of one file, read as bytes, so that any encoding that contains ASCII will do.

    A line counts as comment if a comment begins it, or if it is inside a block comment that began a line. A
    docstring counts as comment, too.
    """
    counts = LineCounts(files=1)
    lines = [line.strip() for line in content.splitlines()]
    counts.blank = lines.count(b"")
    counts.comment = _python_comments(lines) if language is PYTHON else _comments(lines, language)
    counts.code = len(lines) - counts.blank - counts.comment
    return counts


def _comments(lines: list[bytes], language: Language) -> int:
    comments, ending = 0, b""
    begins = language.line
    for line in lines:
        if not line:
            continue
        if ending:
            comments += 1
            if ending in line:
                ending = b""
            continue
        for start, end in language.blocks:
            if line.startswith(start):
                comments += 1
                ending = b"" if end in line[len(start) :] else end
                break
        else:
            comments += line.startswith(begins) if begins else 0
    return comments


def _python_comments(lines: list[bytes]) -> int:
    """Strings in triple quotes are docstrings where they begin a line, and code elsewhere."""
    comments, ending, is_comment = 0, b"", False
    for line in lines:
        if not line:
            continue
        if ending:
            comments += is_comment
            if ending in line:
                ending = b""
        elif line.startswith(b"#"):
            comments += 1
        elif b'"""' in line or b"'''" in line:
            found = _DOCSTRING.match(line)
            is_comment = found is not None
            comments += is_comment
            quote = found[1] if found is not None else b'"""' if b'"""' in line else b"'''"
            if line.count(quote) % 2:
                ending = quote
    return comments
