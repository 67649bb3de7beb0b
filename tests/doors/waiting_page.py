"""The table of "It does not go on: what now?", and what a test does with one of its rows."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import pytest

from tests.architecture.source import DOCS
from tests.doors.calls import Call, Run

PAGE = DOCS / "guides" / "operate.md"
TITLE = "## It does not go on: what now?"
# A row that is written otherwise is one that no scenario is found for.
ROW = re.compile(r"^\| (.+?) \| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)
HEAD = 2
CODE = re.compile(r"`([^`]+)`")
Scenario = TypeVar("Scenario", bound=Callable[..., object])


class Row(msgspec.Struct, frozen=True):
    """One row of the page."""

    shows: str
    field: str
    waits_for: str
    helps: str

    @property
    def pattern(self) -> re.Pattern[str]:
        """As a beginning of the line; the line of waits may name others first."""
        words = re.escape(self.shows).replace("…", ".*").replace("AGENT", r"\S+")
        return re.compile("^" + words.replace(r"waiting\ 1", r"waiting (?:.*, )?1"))

    def is_in(self, status: Call) -> bool:
        return any(self.pattern.match(" ".join(line.split())) for line in status.out.splitlines())

    def value(self, status: Call) -> Any:
        """What the field holds; None for one that is not there."""
        found = status.json
        for name in self.field.split("."):
            found = None if found is None else found.get(name)
        return found

    def command(self, start: str, **places: str) -> list[str]:
        """The command of the page that begins so, with its places filled in."""
        (command,) = [one for one in CODE.findall(self.helps) if one.startswith(f"holdfast {start}")]
        for name, value in places.items():
            assert name in command
            command = command.replace(name, value)
        return shlex.split(command)[1:]


def rows() -> dict[str, Row]:
    page = PAGE.read_text(encoding="utf-8").split(TITLE)[1].split("\n## ")[0]
    found = ROW.findall(page)[HEAD:]
    return {shows.strip("`"): Row(shows.strip("`"), field.strip("`"), *more) for shows, field, *more in found}


def produces(shows: str) -> Callable[[Scenario], Scenario]:
    """Says which row of the page a test brings about."""

    def mark(scenario: Scenario) -> Scenario:
        scenario.produces = shows  # type: ignore[attr-defined]
        return scenario

    return mark


def row_of(request: pytest.FixtureRequest) -> Row:
    """The row that a test brings about."""
    found = rows()
    shows: str = request.function.produces
    assert shows in found, f"the page has no row for {shows!r}"
    return found[shows]


def assert_shown(run: Run, row: Row) -> None:
    """In the text as the page has it, and in the document under the field that it names."""
    shown = run("status")
    assert row.is_in(shown), f"{row.shows!r} is not in:\n{shown.out}"
    assert row.value(run("status", "--json")), row.field


def assert_gone(run: Run, row: Row) -> None:
    shown = run("status")
    assert not row.is_in(shown), f"{row.shows!r} is still in:\n{shown.out}"
    assert not row.value(run("status", "--json")), row.field
