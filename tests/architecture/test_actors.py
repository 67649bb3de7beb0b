"""What the code and the guides say names the actor: the worker, the caller, the operator, you."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.source import DOCS, PACKAGE, ROOT

NO_ACTOR = re.compile(
    r"(?<![a-z])(whoever|somebody|someone|nobody|no one|anybody|anyone|everybody|everyone|whom)(?![a-z])",
    re.IGNORECASE,
)
# "Who sends it asks first": a clause that begins with its actor, and does not name it. A question may begin
# like that, and so may a part of a sentence: "the person who asked", "who did what".
CLAUSE = re.compile(r"(?<![\w.])Who (?=[a-z])[^.?!:]*[.!:]|[:;] who (?=[a-z])")
# The titles of decisions are history.
DECISION = re.compile(r"adr/[\w-]+\.md")
# Migrations that ledgers were made with are never changed, not even in a comment.
FROZEN = ("0001_", "0002_")


def texts() -> Iterator[Path]:
    yield from PACKAGE.rglob("*.py")
    yield from (path for path in PACKAGE.rglob("*.sql") if not path.name.startswith(FROZEN))
    yield from PACKAGE.rglob("*.html")
    yield from (path for path in PACKAGE.rglob("*.js") if not path.name.endswith(".min.js"))
    yield from (DOCS / "guides").glob("*.md")
    # What a release said stays as it was said.
    yield from (path for path in ROOT.glob("*.md") if path.name != "CHANGELOG.md")


def actors_in(text: str) -> list[str]:
    text = DECISION.sub("", text)
    return [found[0] for pattern in (NO_ACTOR, CLAUSE) for found in pattern.finditer(text)]


def test_no_text_leaves_out_who_acts() -> None:
    found = {
        path.relative_to(ROOT).as_posix(): actors_in(path.read_text(encoding="utf-8")) for path in texts()
    }

    assert {path: actors for path, actors in found.items() if actors} == {}, "name the actor"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# Whoever asks is told.", True),
        ("def tell_nobody(): ...", True),
        ("# Anyone may call it, and no one waits.", True),
        ("-- Who keeps receipts asks\n-- by the key.", True),
        ("-- By channel: who sends does not look.", True),
        ("Who may use it? You may.", False),
        ("It is sent to the person who asked.", False),
        ("| `audit log` | who did what, through which door |", False),
        ("([why](../adr/0012-whoever-takes-over-tells.md))", False),
        ("WHO = Origin(who=caller.who)", False),
    ],
)
def test_the_search_finds_actors_and_not_relative_clauses(text: str, *, expected: bool) -> None:
    assert bool(actors_in(text)) is expected
