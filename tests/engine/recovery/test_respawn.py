"""A parent that is tried again goes on with its children from their own journals: nothing is done twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.events import EventKind
from holdfast.core.task import Failure, Task
from holdfast.core.transitions import RunStatus, TaskStatus
from holdfast.engine.recovery.reopen import FAILED_STEPS, MOST_STEPS, go_on, may_go_on, naming_steps
from holdfast.engine.recovery.resume import retrying
from holdfast.testing import Crashed, crash_everywhere
from tests.builders import a_task
from tests.engine.stage import Stage

pytestmark = pytest.mark.slow


class FlakyService:
    """What was done outside, how often, and what fails there."""

    def __init__(self, fails: int = 0) -> None:
        self.done: Counter[str] = Counter()
        self.tried: Counter[str] = Counter()
        self.fails = fails

    def flaky(self, what: str = "read") -> str:
        self.tried[what] += 1
        if self.tried[what] <= self.fails:
            raise hf.NotDone(f"{what} is away")
        return f"{what} {self.tried[what]}"


def a_child(service: FlakyService, **options: Any) -> Any:
    """It pays, and then does something that may fail."""

    @hf.opaque
    async def pay(to: str) -> str:
        service.done[to] += 1
        return f"paid {to}"

    async def read() -> str:
        return service.flaky()

    @hf.task(name="child", **options)
    async def child(run: hf.Run) -> str:
        paid = await run.step(pay, "ann")
        return f"{paid}, {await run.step(read)}"

    return child


def a_parent(child: Any, **options: Any) -> Any:
    @hf.task(name="parent", **{"backoff": "1s"} | options)
    async def parent(run: hf.Run) -> str:
        return f"{await (await run.spawn(child()))}!"

    return parent


def tasks_named(stage: Stage, name: str) -> list[Task]:
    return [one for one in stage.store.read_now(lambda tx: tx.tasks.page(limit=100)) if one.name == name]


async def runs_of(stage: Stage, task: Task) -> list[RunStatus]:
    return [run.status for run in await stage.store.read(lambda tx: tx.runs.of_task(task.id))]


async def test_what_a_failed_child_has_done_is_not_done_again(stage: Stage) -> None:
    service = FlakyService(fails=2)
    child = a_child(service, attempts=1)
    await stage.open(parent := a_parent(child, attempts=3), child)
    handle = await stage.start(parent())

    assert await stage.to_the_end(handle) is TaskStatus.SUCCEEDED
    assert await stage.result(handle) == "paid ann, read 3!"
    assert service.done["ann"] == 1
    (only,) = tasks_named(stage, "child")
    assert await runs_of(stage, only) == [RunStatus.FAILED, RunStatus.FAILED, RunStatus.SUCCEEDED]


async def test_the_failures_of_a_child_are_counted_through_all_attempts_of_its_parent(stage: Stage) -> None:
    service = FlakyService(fails=100)
    child = a_child(service, attempts=2, backoff="1s")
    await stage.open(parent := a_parent(child, attempts=3), child)
    handle = await stage.start(parent())

    assert await stage.to_the_end(handle) is TaskStatus.FAILED
    assert service.done["ann"] == 1
    assert service.tried["read"] == 2 + 1 + 1


async def test_a_child_that_timed_out_goes_on_with_its_time_counted_anew(stage: Stage) -> None:
    service, slow = FlakyService(), [True]

    @hf.opaque
    async def pay(to: str) -> str:
        service.done[to] += 1
        return f"paid {to}"

    @hf.task(timeout="1h", attempts=1)
    async def child(run: hf.Run) -> str:
        await run.step(pay, "ann")
        if slow.pop() if slow else False:
            await run.sleep("2h")
        await run.sleep("50m")
        return "in time"

    await stage.open(parent := a_parent(child, attempts=2), child)
    handle = await stage.start(parent())

    assert await stage.to_the_end(handle) is TaskStatus.SUCCEEDED
    assert service.done["ann"] == 1


async def test_a_child_that_a_person_cancelled_is_not_started_again_and_its_parent_fails(
    stage: Stage,
) -> None:
    @hf.task
    async def child(run: hf.Run) -> None:
        await run.sleep("1h")

    await stage.open(parent := a_parent(child, attempts=5), child)
    handle = await stage.start(parent())
    await stage.settle()
    (only,) = tasks_named(stage, "child")
    await stage.holdfast.cancel(only.id, reason="not needed")

    assert await stage.to_the_end(handle) is TaskStatus.FAILED
    assert len(await stage.runs(handle)) == 1
    assert await runs_of(stage, only) == [RunStatus.CANCELLED]


async def test_a_child_that_kills_its_process_is_given_up_once_and_for_all(stage: Stage) -> None:
    deaths = Counter[str]()

    async def kill() -> None:
        deaths["all"] += 1
        raise Crashed

    @hf.task(name="child")
    async def child(run: hf.Run) -> None:
        await run.step(kill)

    alone = await how_many_deaths(stage, child, child)
    deaths.clear()

    assert await how_many_deaths(stage, a_parent(child, attempts=3), child) == alone


async def how_many_deaths(stage: Stage, task: Any, *others: Any) -> int:
    """How many processes die before the task is given up."""
    await stage.open(task, *others)
    handle = await stage.start(task())
    for deaths in range(40):
        if await stage.to_the_end(handle) is TaskStatus.FAILED:
            return deaths
        await stage.open(task, *others)
    raise AssertionError("it goes on for ever")


async def test_children_that_were_cancelled_with_a_failed_child_go_on_with_it(stage: Stage) -> None:
    service = FlakyService(fails=1)

    @hf.opaque
    async def pay(to: str) -> str:
        service.done[to] += 1
        return f"paid {to}"

    @hf.task
    async def slow(run: hf.Run) -> str:
        await run.step(pay, "bob")
        await run.sleep("1h")
        return await run.step(pay, "cid")

    async def read() -> str:
        return service.flaky()

    @hf.task(name="child", attempts=1)
    async def child(run: hf.Run) -> str:
        beside = await run.spawn(slow())
        await run.sleep("40s")
        return f"{await run.step(read)}, {await beside}"

    await stage.open(parent := a_parent(child, attempts=2), child, slow)
    handle = await stage.start(parent())

    assert await stage.to_the_end(handle) is TaskStatus.SUCCEEDED
    assert service.done == {"bob": 1, "cid": 1}
    (grandchild,) = tasks_named(stage, "slow")
    assert await runs_of(stage, grandchild) == [RunStatus.CANCELLED, RunStatus.SUCCEEDED]
    assert (grandchild.cancel_reason, grandchild.cancel_requested_at) == (None, None)


async def test_a_checkpoint_that_is_retried_takes_its_cancelled_children_along(stage: Stage) -> None:
    @hf.task
    async def slow(run: hf.Run) -> str:
        await run.sleep("1h")
        return "slept"

    dies = [True]

    @hf.task
    async def parent(run: hf.Run) -> str:
        beside = await run.spawn(slow())
        if dies:
            raise Crashed
        return await beside

    await stage.open(parent, slow)
    handle = await stage.start(parent())
    for _ in range(20):
        if await stage.to_the_end(handle) is TaskStatus.FAILED:
            break
        await stage.open(parent, slow)
    dies.clear()
    failure = (await handle.task()).failure
    assert failure is not None
    checkpoint_id = str(failure.facts["checkpoint_id"])
    await stage.store.write(retrying(checkpoint_id, now=stage.clock.now()))
    await stage.open(parent, slow)

    assert await stage.to_the_end(handle) is TaskStatus.SUCCEEDED
    assert await stage.result(handle) == "slept"


async def test_the_feed_says_that_a_child_goes_on(stage: Stage) -> None:
    child = a_child(FlakyService(fails=1), attempts=1)
    await stage.open(parent := a_parent(child, attempts=2), child)
    handle = await stage.start(parent())
    await stage.to_the_end(handle)

    (only,) = tasks_named(stage, "child")
    told = stage.store.read_now(lambda tx: tx.events.newest(limit=100))
    assert [one.subject_id for one in told if one.kind is EventKind.TASK_REOPENED] == [only.id]


@pytest.mark.slow
async def test_killed_anywhere_a_parent_that_is_tried_again_repeats_nothing() -> None:
    @hf.opaque
    async def pay(to: str) -> str:
        return f"paid {to}"

    @hf.task(name="child", attempts=1)
    async def child(run: hf.Run) -> str:
        paid = await run.step(pay, "ann")
        if run.number == 1:
            raise ValueError("the first time it fails")
        return paid

    report = await crash_everywhere(a_parent(child, attempts=2), tasks=[child], twice=True)

    assert report.result == "paid ann!"


async def test_of_many_that_go_on_with_a_child_at_once_one_does(stage: Stage) -> None:
    child = a_child(FlakyService(fails=9), attempts=1)
    await stage.open(parent := a_parent(child, attempts=1), child)
    handle = await stage.start(parent())
    await stage.to_the_end(handle)
    (failed,) = tasks_named(stage, "child")

    now = stage.clock.now()
    writes = [stage.store.write(lambda tx: go_on(tx, tx.tasks.lock(failed.id), now=now)) for _ in range(8)]
    await asyncio.gather(*writes)

    assert await runs_of(stage, failed) == [RunStatus.FAILED, RunStatus.QUEUED]


def test_a_failure_names_its_steps_and_not_more_than_it_can_hold() -> None:
    keys = [("", "read", str(number)) for number in range(500)]
    named = naming_steps(Failure(kind="x", message="y"), [*keys, *keys])

    assert named.facts[FAILED_STEPS] == [list(key) for key in keys[:MOST_STEPS]]
    assert naming_steps(Failure(kind="x", message="y"), []).facts == {}


async def test_a_cancel_that_a_child_did_not_live_to_see_still_holds(stage: Stage) -> None:
    service = FlakyService(fails=9)
    ids: list[str] = []

    @hf.task(name="child", attempts=1)
    async def child(run: hf.Run) -> None:
        ids.append(run.task_id)
        await stage.holdfast.cancel(run.task_id, reason="not needed")
        raise ValueError("it fails before it hears of that")

    await stage.open(parent := a_parent(child, attempts=3), child)
    handle = await stage.start(parent())

    assert await stage.to_the_end(handle) is TaskStatus.FAILED
    assert len(ids) == 1
    assert service.done == {}


def test_a_child_whose_journal_is_gone_does_not_go_on() -> None:
    pruned = Failure(kind="pruned", message="its retention is over")

    assert may_go_on(a_task(status=TaskStatus.FAILED))
    assert not may_go_on(a_task(status=TaskStatus.FAILED, failure=pruned))
