"""The shape of the tests themselves: how long a file may be, and that a name means one thing."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from tests.architecture.source import PACKAGE, ROOT

TESTS = ROOT / "tests"
MAX_LINES = 800
# The rooms of the package whose tests have another folder, and which one.
ELSEWHERE = {
    "cli": "doors",
    "demo": "doors",
    "engine/schedules": "schedule",
    "store/rows": "store",
    "views": "doors",
    "web/pages": "web",
}


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


def test_each_room_of_the_package_has_its_tests_in_a_folder_of_the_same_name() -> None:
    without = {room for room in _rooms() if not any((TESTS / room).rglob("test_*.py"))}

    assert without == set(ELSEWHERE)
    assert {folder for folder in ELSEWHERE.values() if not any((TESTS / folder).glob("test_*.py"))} == set()


def test_each_folder_of_the_tests_of_the_engine_is_one_of_its_rooms() -> None:
    folders = {f"engine/{path.parent.name}" for path in (TESTS / "engine").glob("*/test_*.py")}

    assert folders - _rooms() == set()


def _rooms() -> set[str]:
    """The packages of the package that have modules."""
    found = {path.parent.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")}
    return found - {"."}


def _public_classes(path: Path) -> list[str]:
    return re.findall(r"^class ([A-Za-z]\w*)", path.read_text(), re.MULTILINE)


def _has_tests(path: str) -> bool:
    return path.rpartition("/")[2].startswith("test_")


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
