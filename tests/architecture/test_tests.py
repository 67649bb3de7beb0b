"""The shape of the tests themselves: how long a file may be."""

from __future__ import annotations

from pathlib import Path

from tests.architecture.source import ROOT

TESTS = ROOT / "tests"
MAX_LINES = 800


def test_no_file_of_the_tests_has_more_than_800_lines() -> None:
    lengths = {path.relative_to(ROOT).as_posix(): len(_lines(path)) for path in TESTS.rglob("*.py")}

    assert {path: length for path, length in lengths.items() if length > MAX_LINES} == {}


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()
