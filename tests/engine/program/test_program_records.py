"""What a program tells about its work: progress, events, decisions, artifacts and references, each once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.events import EventKind
from holdfast.testing import Crashed, crash_everywhere
from tests.engine.program.sample_program import add
from tests.engine.stage import Stage

pytestmark = pytest.mark.slow


async def test_progress_events_decisions_and_artifacts_are_told_once(stage: Stage, tmp_path: Path) -> None:
    report = tmp_path / "report.txt"
    deaths = 1

    async def write() -> str:
        report.write_text("calm")
        return "written"

    async def die_once() -> None:
        nonlocal deaths
        deaths -= 1
        if deaths >= 0:
            raise Crashed

    @hf.task
    async def tells(run: hf.Run) -> list[Any]:
        await run.progress(done=1, total=3)
        await run.emit("began", why="test")
        await run.decide("use the tables")
        await run.step(write)
        artifact = await run.artifact(report)
        output = await run.output("summary", "all is calm")
        await run.checkpoint("half-way")
        async for turn in run.turns(max=1):
            await run.progress(done=2, total=3, subtask="turn")
            await turn.step(die_once)
        return [artifact.sha256[:6], output.content, run.number]

    await stage.open(tells)
    handle = await stage.start(tells())
    await stage.settle()
    between = (await handle.task()).progress
    await stage.open(tells)
    await stage.settle()

    assert await stage.result(handle) == ["2b4b2e", "all is calm", 2]
    assert between is not None
    assert (between.done, between.subtask) == (1, None)
    task = await handle.task()
    assert task.progress is not None
    assert (task.progress.done, task.progress.subtask) == (2, "turn")
    told = await stage.events(handle, EventKind.PROGRAM_TOLD, EventKind.CHECKPOINT_SAVED)
    assert [event.facts.get("name") for event in told] == ["began", None]
    notes = stage.store.read_now(lambda tx: tx.journal.notes([handle.id]))
    assert [note.text for note in notes[handle.id]] == ["use the tables"]
    resumed = stage.executions[-1].run.resumed
    assert resumed is not None
    assert resumed.reason == "crash"
    assert [decision.text for decision in resumed.decisions] == ["use the tables"]
    assert {one.name: one.state.value for one in resumed.artifacts} == {
        "report.txt": "same",
        "summary": "same",
    }


async def test_what_a_tool_keeps_is_named_once_in_every_later_checkpoint(stage: Stage) -> None:
    @hf.task
    async def browses(run: hf.Run) -> list[str]:
        await run.refer("browser", "profile 7, tab 3")
        async for turn in run.turns(max=2):
            await run.refer("git", f"branch fix-{turn.number}")
            await turn.step(add, turn.number)
            if turn.number == 2:
                await run.requires_restart("a new driver was installed")
        assert run.resumed is not None
        return [note.text for note in run.resumed.tool_context]

    await stage.open(browses)
    handle = await stage.start(browses())
    await stage.settle()
    (checkpoint,) = stage.store.read_now(lambda tx: tx.checkpoints.page())
    await stage.open(browses)
    await stage.settle()

    told = ["browser: profile 7, tab 3", "git: branch fix-1", "git: branch fix-2"]
    assert await stage.result(handle) == told
    notes = stage.store.read_now(lambda tx: tx.journal.notes([handle.id])[handle.id])
    assert [note.text for note in notes] == told
    assert [note.text for note in checkpoint.read_document().tool_context] == told


async def test_a_reference_that_is_none_is_refused_and_a_secret_in_one_is_hidden(stage: Stage) -> None:
    @hf.task
    async def browses(run: hf.Run) -> str:
        for tool, ref, field in [("", "x", "tool"), ("a\nb", "x", "tool"), ("a", " ", "reference")]:
            with pytest.raises(hf.BadInput, match=field):
                await run.refer(tool, ref)
        with pytest.raises(hf.BadInput, match="reference"):
            await run.refer("browser", 7)  # type: ignore[arg-type]
        await run.refer("db", "https://ada:hunter2@host/")
        return "done"

    await stage.open(browses)
    handle = await stage.start(browses())
    await stage.settle()

    assert await stage.result(handle) == "done"
    (note,) = stage.store.read_now(lambda tx: tx.journal.notes([handle.id])[handle.id])
    assert note.text.startswith("db: https://")
    assert "hunter2" not in note.text


async def test_a_task_that_names_what_its_tools_keep_survives_every_crash() -> None:
    @hf.task
    async def browses(run: hf.Run) -> list[int]:
        seen = run.list("seen", of=int)
        async for turn in run.turns(max=2):
            await run.refer("browser", f"tab {turn.number}")
            seen.append(await turn.step(add, turn.number))
        return list(seen)

    await crash_everywhere(browses)
    await crash_everywhere(browses, twice=True)
