"""Every example is killed at every point where it persists something, on every backend, and resumed."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from examples import approval, children, migration, poll, research, research_pydantic_ai
from examples.loop import after
from holdfast.store import Store
from holdfast.testing import CrashReport, crash_everywhere
from tests.conftest import Ledger

pytestmark = pytest.mark.slow

on_every_backend = pytest.mark.parametrize(
    "ledger",
    ["sqlite", "postgres"],
    indirect=True,
)


class CrashedExample:
    """A fresh ledger and a fresh world for each play, and what the world held at the end of each."""

    def __init__(self, ledger: Ledger, place: Path) -> None:
        self._ledger = ledger
        self._store = ledger.open()
        self._place = place
        self.worlds: list[dict[str, list[str]]] = []

    def crash(self, call: hf.Call[Any], **options: Any) -> CrashReport:
        return asyncio.run(crash_everywhere(call, store=self._fresh, clock=self._ledger.clock, **options))

    @contextmanager
    def _fresh(self) -> Iterator[Store]:
        yield self._store
        self._ledger.empty(self._store)
        self.worlds.append(
            {
                path.relative_to(self._place).as_posix(): path.read_text().splitlines()
                for path in sorted(self._place.rglob("*.txt"))
            }
        )
        for name in ("new", "published.txt", "released.txt"):
            path = self._place / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


@pytest.fixture
def stage(ledger: Ledger, quick_path: Path, monkeypatch: pytest.MonkeyPatch) -> CrashedExample:
    monkeypatch.chdir(quick_path)
    return CrashedExample(ledger, quick_path)


@pytest.mark.parametrize(
    ("ledger", "task"),
    [
        ("sqlite", research.research),
        ("postgres", research.research),
        ("sqlite", research_pydantic_ai.research),
    ],
    indirect=["ledger"],
    ids=["plain-sqlite", "plain-postgres", "pydantic-ai-sqlite"],
)
def test_the_research_agent_publishes_once_wherever_it_is_killed(
    stage: CrashedExample, task: hf.TaskDefinition[[str], str]
) -> None:
    report = stage.crash(task("tides"))

    assert report.result == "The moon moves the tides."
    # Whether it had published could be found out each time.
    assert report.reviews == 0
    assert {len(world["published.txt"]) for world in stage.worlds} == {1}
    assert len(stage.worlds) == 1 + len(report.points) > 10
    # A crash repeats what it cut short, and no more: one step, or the tools that were called side by side.
    assert max(len(point.repeated) for point in report.points) <= 2
    assert 0 < report.repeated < len(report.points)


@hf.task
async def news(run: hf.Run) -> str:
    """What the research agent does in a turn: think, then publish."""
    texts = run.list("texts", of=str)
    async for turn in run.turns(max=1):
        texts.append(await turn.step(write))
        await turn.tool(research.publish, {"text": texts[-1]}, id="call-1")
    return texts[-1]


async def write() -> str:
    return "What moves the tides"


@pytest.mark.parametrize("ledger", ["memory"], indirect=True)
def test_the_tool_of_the_research_agent_publishes_once_when_its_second_life_is_killed_too(
    stage: CrashedExample,
) -> None:
    report = stage.crash(news(), pairs=True, twice=True)

    assert (report.result, report.reviews) == ("What moves the tides", 0)
    assert {len(world["published.txt"]) for world in stage.worlds} == {1}
    assert any("and its next process" in point.where for point in report.points)


@on_every_backend
def test_the_loop_asks_a_person_whenever_it_is_killed_inside_an_opaque_tool(stage: CrashedExample) -> None:
    report = stage.crash(after.research("tides"))
    in_doubt = [point for point in report.points if point.reviews]

    assert report.result == "Ada was told about the tides."
    # After the intent and before the outcome, of the search and of the mail.
    assert sorted(name for point in in_doubt for name in point.reviews) == [
        "mail",
        "mail",
        "search",
        "search",
    ]


@on_every_backend
def test_the_migration_is_whole_wherever_it_is_killed(stage: CrashedExample, quick_path: Path) -> None:
    source = quick_path / "old"
    source.mkdir()
    for name in ("ada.txt", "grace.txt", "mary.txt"):
        (source / name).write_text(f"{name}\n")
    report = stage.crash(migration.migrate("old", "new"))

    assert report.result == "3 files moved"
    for world in stage.worlds:
        assert world["new/index.txt"] == ["ada.txt", "grace.txt", "mary.txt"]
        assert [world[f"new/{name}"] for name in world["new/index.txt"]] == [
            [name] for name in world["new/index.txt"]
        ]


@on_every_backend
@pytest.mark.parametrize(
    ("answers", "result", "releases"),
    [({"Release 1.2?": "yes"}, "released 1.2", 1), ({}, "1.2 was not released", 0)],
    ids=["yes", "nobody answers"],
)
def test_the_approval_is_asked_once_and_released_at_most_once(
    stage: CrashedExample, answers: dict[str, str], result: str, releases: int
) -> None:
    report = stage.crash(approval.ship("1.2"), answers=answers)

    assert (report.result, report.reviews) == (result, 0)
    assert {len(world.get("released.txt", [])) for world in stage.worlds} == {releases}


@on_every_backend
def test_the_survey_has_the_same_result_wherever_parent_or_child_is_killed(stage: CrashedExample) -> None:
    report = stage.crash(children.survey(["Brest", "Cuxhaven"]), tasks=[children.tide_in])

    assert report.result == "the highest of 2 tides: 6.9 m in Brest"


@on_every_backend
def test_the_poll_counts_every_look_once_wherever_it_is_killed(stage: CrashedExample) -> None:
    report = stage.crash(poll.await_export("the archive"))

    assert report.result == "the archive was ready at look 4"
