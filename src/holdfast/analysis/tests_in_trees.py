"""Tests of an item by the conventions of its languages, its CI, and the coverage that a report states."""

from __future__ import annotations

import re
from typing import Any

import msgspec

_PYTHON = re.compile(rb"^[ \t]*(?:async[ \t]+)?def[ \t]+test", re.MULTILINE)
_SCRIPT = re.compile(rb"^[ \t]*(?:it|test)(?:\.\w+)*[ \t]*\(", re.MULTILINE)
_GO = re.compile(rb"^func[ \t]+(?:Test|Fuzz|Benchmark)\w*\(", re.MULTILINE)
_RUST = re.compile(rb"^[ \t]*#\[(?:\w+::)?test\b", re.MULTILINE)
_ANNOTATED = re.compile(
    rb"^[ \t]*(?:@(?:Parameterized)?Test\b|\[(?:Fact|Theory|Test|TestMethod)\b)", re.MULTILINE
)
_RUBY = re.compile(rb"^[ \t]*(?:it[ \t]+['\"]|def[ \t]+test_|test[ \t]+['\"])", re.MULTILINE)
_PHP = re.compile(rb"function[ \t]+test\w*[ \t]*\(")
# By the end of a file's name: which files may hold tests, and what one test looks like.
_CONVENTIONS: tuple[tuple[tuple[bytes, ...], re.Pattern[bytes], re.Pattern[bytes]], ...] = (
    ((b".py",), re.compile(rb"(^|/)(tests?/.*|test_[^/]*|[^/]*_test)\.py\Z|(^|/)tests?/"), _PYTHON),
    (
        (b".js", b".jsx", b".mjs", b".ts", b".tsx"),
        re.compile(rb"\.(test|spec)\.\w+\Z|(^|/)(__tests__|tests?|spec)/"),
        _SCRIPT,
    ),
    ((b".go",), re.compile(rb"_test\.go\Z"), _GO),
    ((b".rs",), re.compile(rb"\.rs\Z"), _RUST),
    ((b".java", b".kt", b".cs", b".scala"), re.compile(rb"(^|/)[Tt]ests?/|Tests?\.\w+\Z"), _ANNOTATED),
    ((b".rb",), re.compile(rb"(^|/)(spec|test)/|_(spec|test)\.rb\Z"), _RUBY),
    ((b".php",), re.compile(rb"Test\.php\Z"), _PHP),
)
_CI = re.compile(
    rb"\.github/workflows/[^/]+\.ya?ml|\.gitlab-ci\.yml|\.circleci/config\.yml|\.travis\.yml|\.drone\.yml|"
    rb"\.woodpecker\.ya?ml|\.buildkite/.+\.ya?ml|bitbucket-pipelines\.yml|azure-pipelines\.yml|Jenkinsfile|\.ci/.+"
)
_RATE = re.compile(rb"<coverage\b[^<>]*\bline-rate=[\"']([0-9.]{1,20})[\"']")
MAX_COVERAGE_BYTES = 64 * 1024 * 1024
_HEAD = 64 * 1024


def pattern_of_tests(relative: bytes) -> re.Pattern[bytes] | None:
    """How a test looks in this file; None if the file is not where tests are kept."""
    for endings, place, pattern in _CONVENTIONS:
        if relative.endswith(endings):
            return pattern if place.search(relative) else None
    return None


def is_ci(relative: bytes) -> bool:
    return _CI.fullmatch(relative) is not None


def is_coverage_report(relative: bytes) -> bool:
    return relative in (b"coverage.xml", b"coverage.json")


def stated_coverage(relative: bytes, content: bytes) -> float | None:
    """The percentage of covered lines that a report states; None if it states none."""
    if relative.endswith(b".xml"):
        found = _RATE.search(content[:_HEAD])
        return None if found is None else _percentage(found[1], 100)
    try:
        document: Any = msgspec.json.decode(content)
        return _percentage(document["totals"]["percent_covered"], 1)
    except (ValueError, TypeError, LookupError, RecursionError):
        return None


def _percentage(stated: Any, factor: int) -> float | None:
    try:
        percent = round(float(stated) * factor, 1)
    except (ValueError, TypeError, OverflowError):
        return None
    return percent if 0 <= percent <= 100 else None
