"""The runs of a program: one at a time, restarts that it asks for, and arguments of an older version."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast as hf
from holdfast.core.events import EventKind
from holdfast.core.run import Queue, RunRecord
from holdfast.core.step import Step
from holdfast.core.transitions import RunStatus, TaskStatus
from tests.engine.program.sample_program import Kept, add, failure_of
from tests.engine.stage import Stage

# --- one run at a time, where its task is known


async def test_a_task_cannot_have_two_live_runs(stage: Stage, refusal: type[Exception]) -> None:
    @hf.task
    async def short(run: hf.Run) -> None: ...

    await stage.open(short)
    handle = await stage.start(short())
    now = stage.clock.now()
    second = RunRecord(
        id="run_second",  # type: ignore[arg-type]
        task_id=handle.id,  # type: ignore[arg-type]
        task_name="short",
        number=2,
        priority=100,
        created_at=now,
        due_at=now,
        queue=Queue.READY,
        updated_at=now,
    )

    with pytest.raises(refusal):
        await stage.store.write(lambda tx: tx.runs.create(second))

    runs = await stage.store.read(lambda tx: tx.runs.of_task(handle.id))
    assert [run.status for run in runs] == [RunStatus.QUEUED]


async def test_a_task_that_is_unknown_here_waits_for_a_worker_that_knows_it(stage: Stage) -> None:
    @hf.task
    async def known(run: hf.Run) -> str:
        return "carried"

    @hf.task
    async def other(run: hf.Run) -> str:
        return "other"

    await stage.open(other)
    handle = await stage.start(known())
    await stage.settle()
    before = await handle.status()
    await stage.open(known)
    await stage.settle()

    assert before is TaskStatus.QUEUED
    assert await stage.result(handle) == "carried"


# --- restarts


async def test_a_program_that_wants_a_restart_goes_on_after_it_once(stage: Stage, kept: Kept) -> None:
    @hf.task
    async def upgrades(run: hf.Run) -> int:
        kept(await run.step(add, 1))
        await run.requires_restart("a new driver was installed")
        kept(await run.step(add, 2))
        return run.number

    await stage.open(upgrades)
    handle = await stage.start(upgrades())
    await stage.settle()
    paused = await handle.status()
    await stage.open(upgrades)
    await stage.settle()

    assert (paused, stage.restarts) == (TaskStatus.PAUSED, ["a new driver was installed"])
    assert await stage.result(handle) == 2
    assert kept.seen == [1, 1, 2]
    resumed = stage.executions[-1].run.resumed
    assert resumed is not None
    assert resumed.reason == "requires_restart"


async def test_a_refused_restart_is_the_same_refusal_in_every_later_life(stage: Stage, kept: Kept) -> None:
    @hf.task
    async def upgrades(run: hf.Run) -> str:
        async for turn in run.turns(max=2):
            try:
                await run.requires_restart(f"driver {turn.number}")
            except hf.RestartRefused as refused:
                kept((refused.why, str(refused), refused.code))
            await run.sleep("1h")
        return "went on"

    stage.refusal = "not before noon"
    await stage.open(upgrades)
    handle = await stage.start(upgrades())
    await stage.settle()
    # What another life would say does not count any more.
    stage.refusal = None
    await stage.open(upgrades)
    await stage.settle()
    assert stage.restarts == ["driver 1"]
    await stage.pass_time()
    await stage.settle()
    await stage.open(upgrades)
    await stage.settle()
    await stage.pass_time()
    await stage.settle()

    assert await stage.result(handle) == "went on"
    assert stage.restarts == ["driver 1", "driver 2"]
    refusal = ("not before noon", "the restart was refused: not before noon", "restart_refused")
    assert set(kept.seen) == {refusal}


async def test_a_journal_from_before_there_were_refusals_says_that_the_restart_was_done(stage: Stage) -> None:
    @hf.task
    async def upgrades(run: hf.Run) -> str:
        await run.sleep("1h")
        await run.requires_restart("a new driver")
        return "upgraded"

    await stage.open(upgrades)
    handle = await stage.start(upgrades())
    await stage.settle()
    (run,) = await stage.runs(handle)
    # The reason stood under the key of the call, and nothing beside it.
    old = Step(
        task_id=run.task_id,
        name="requires restart",
        occurrence="1",
        run_id=run.id,
        seq=1,
        result=b'"a new driver"',
        started_us=1,
        ended_us=1,
    )
    await stage.store.write(lambda tx: tx.journal.put_step(old))
    await stage.pass_time()
    await stage.settle()

    assert await stage.result(handle) == "upgraded"
    assert stage.restarts == []


async def test_a_restart_needs_a_reason(quick: Stage) -> None:
    @hf.task
    async def upgrades(run: hf.Run, why: Any) -> None:
        await run.requires_restart(why)

    await quick.open(upgrades)
    for why in ("", 7):
        with pytest.raises(hf.TaskFailed, match="why: "):
            await quick.run(upgrades(why))
    assert quick.restarts == []


# --- versions


async def test_arguments_of_an_older_version_are_migrated_and_told_once(stage: Stage) -> None:
    @hf.task(name="survey")
    async def old(run: hf.Run, city: str) -> str:
        await run.sleep("1h")
        return city

    def migrate(arguments: dict[str, Any], version: int) -> dict[str, Any]:
        return {"cities": [arguments["city"]], "from_version": version}

    @hf.task(name="survey", version=2, migrate=migrate)
    async def new(run: hf.Run, cities: list[str], from_version: int) -> str:
        await run.sleep("1h")
        await run.sleep("1h")
        return f"{cities} from {from_version}"

    await stage.open(old)
    handle = await stage.start(old("Brest"))
    await stage.settle()
    await stage.open(new)
    for _ in range(3):
        await stage.pass_time()
        await stage.settle()

    assert await stage.result(handle) == "['Brest'] from 1"
    (told,) = await stage.events(handle, EventKind.TASK_MIGRATED)
    assert told.facts == {"version": 2, "migrated": 1}


async def test_arguments_that_no_longer_fit_fail_the_task_and_say_why(quick: Stage) -> None:
    @hf.task(name="survey")
    async def old(run: hf.Run, city: str) -> str:
        return city

    @hf.task(name="survey")
    async def new(run: hf.Run, number: int) -> int:
        return number

    await quick.open(new)
    handle = await quick.start(old("Brest"))
    await quick.settle()

    assert await failure_of(handle) == "arguments of survey: Object missing required field `number`"
