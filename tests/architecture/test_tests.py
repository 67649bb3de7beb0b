"""The shape of the tests themselves: how long a file may be, and that a name means one thing."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from tests.architecture.source import ROOT

TESTS = ROOT / "tests"
MAX_LINES = 800


def test_no_file_of_the_tests_has_more_than_800_lines() -> None:
    lengths = {_name(path): len(path.read_text().splitlines()) for path in TESTS.rglob("*.py")}

    assert {path: length for path, length in lengths.items() if length > MAX_LINES} == {}


def test_a_class_that_tests_share_has_a_name_of_its_own() -> None:
    """What a module without tests defines is imported elsewhere: there its name must say which one it is."""
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(TESTS.rglob("*.py")):
        for name in _public_classes(path):
            homes[name].append(_name(path))
    shared = {name: found for name, found in homes.items() if not all(map(_has_tests, found))}

    assert {name: found for name, found in shared.items() if len(found) > 1} == {}


def _public_classes(path: Path) -> list[str]:
    return re.findall(r"^class ([A-Za-z]\w*)", path.read_text(), re.MULTILINE)


def _has_tests(path: str) -> bool:
    return path.rpartition("/")[2].startswith("test_")


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
