"""Tasks that fail: tried again, planned anew, cut smaller, or put before a person; and budgets that pause."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.events import EventKind
from holdfast.core.plan import PlanItem
from holdfast.core.task import Failure
from holdfast.core.transitions import RunStatus, TaskStatus
from holdfast.engine.client.handles import Handle
from tests.engine.stage import Stage


class FailingService:
    """Steps that fail as often as a test says, counted."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()

    async def do(self, what: str) -> str:
        self.done[what] += 1
        if self.failures[what]:
            self.failures[what] -= 1
            raise RuntimeError(f"{what} failed")
        return what


@pytest.fixture
def service() -> FailingService:
    return FailingService()


async def to_the_end(stage: Stage, handle: Handle[Any], tasks: list[Any] | None = None) -> None:
    while not (await handle.task()).has_ended:
        await stage.settle()
        if tasks is not None:
            await stage.open(*tasks)
        if not await stage.pass_time() and not (await handle.task()).has_ended:
            return


async def rungs(stage: Stage, handle: Handle[Any]) -> list[Any]:
    return [event.facts["rung"] for event in await stage.events(handle, EventKind.RUN_RETRIED)]


# --- retry


async def test_a_task_that_fails_is_tried_again_from_where_it_failed(
    stage: Stage, service: FailingService
) -> None:
    @hf.task(attempts=3, backoff="1h")
    async def flaky(run: hf.Run) -> list[str]:
        notes = run.list("notes")
        notes.append(await run.step(service.do, "first"))
        async for turn in run.turns(max=2):
            notes.append(await turn.step(service.do, f"turn {turn.number}"))
            notes.append(await turn.step(service.do, f"end of {turn.number}"))
        return list(notes)

    service.failures = Counter({"end of 2": 2})
    await stage.open(flaky)
    handle = await stage.start(flaky())
    await to_the_end(stage, handle, [flaky])

    assert await stage.result(handle) == ["first", "turn 1", "end of 1", "turn 2", "end of 2"]
    assert service.done == {"first": 1, "turn 1": 1, "end of 1": 1, "turn 2": 1, "end of 2": 3}
    assert await rungs(stage, handle) == ["retry", "retry"]
    runs = await stage.store.read(lambda tx: tx.runs.of_task(handle.id))
    assert [run.status for run in runs] == [RunStatus.FAILED, RunStatus.FAILED, RunStatus.SUCCEEDED]
    assert all(after.created_at - before.created_at <= timedelta(hours=2) for before, after in pairwise(runs))


async def test_a_task_fails_for_good_when_its_attempts_are_used_up(
    stage: Stage, service: FailingService
) -> None:
    @hf.task(attempts=2)
    async def hopeless(run: hf.Run) -> str:
        return await run.step(service.do, "it")

    service.failures = Counter({"it": 9})
    await stage.open(hopeless)
    handle = await stage.start(hopeless())
    await to_the_end(stage, handle)

    assert await handle.status() is TaskStatus.FAILED
    assert service.done["it"] == 2
    with pytest.raises(hf.TaskFailed, match="it failed"):
        await stage.result(handle)


async def test_attempts_of_a_step_begin_anew_with_each_attempt_of_its_task(
    stage: Stage, service: FailingService
) -> None:
    @hf.task(attempts=2)
    async def flaky(run: hf.Run) -> str:
        return await run.step(hf.step(service.do, retry=hf.retry(2, backoff=0)), "it")

    service.failures = Counter({"it": 5})
    await stage.open(flaky)
    handle = await stage.start(flaky())
    await to_the_end(stage, handle)

    assert await stage.result(handle) == "it"
    assert service.done["it"] == 6


async def test_a_failure_in_a_group_of_tasks_is_tried_again(stage: Stage, service: FailingService) -> None:
    @hf.task
    async def grouped(run: hf.Run) -> list[str]:
        async with asyncio.TaskGroup() as group:
            children = [
                group.create_task(run.step(hf.step(service.do, id=what), what)) for what in ("a", "b")
            ]
        return [child.result() for child in children]

    service.failures = Counter({"b": 1})
    await stage.open(grouped)
    handle = await stage.start(grouped())
    await to_the_end(stage, handle)

    assert await stage.result(handle) == ["a", "b"]


async def test_a_program_that_cancels_itself_has_failed(quick: Stage) -> None:
    @hf.task(attempts=1)
    async def confused(run: hf.Run) -> None:
        cancelled = asyncio.get_running_loop().create_future()
        cancelled.cancel()
        await cancelled

    await quick.open(confused)
    handle = await quick.start(confused())
    await quick.settle()

    task = await handle.task()
    assert task.failure is not None
    assert task.failure.message == "the program let a CancelledError of its own pass"


# --- replan and decompose


async def test_a_task_may_be_planned_anew_and_then_cut_smaller(stage: Stage, service: FailingService) -> None:
    seen: list[tuple[str | None, str]] = []

    def other_way(item: PlanItem | None, failure: Failure) -> list[str]:
        seen.append((None if item is None else item.id, failure.message))
        return ["ferry", "report"]

    async def smaller(item: PlanItem | None, failure: Failure) -> list[str]:
        seen.append((None if item is None else item.id, failure.message))
        return ["ferry 1", "ferry 2"]

    @hf.task(ladder=[hf.retry(1, backoff="1s"), hf.replan(other_way), hf.decompose(smaller)])
    async def travels(run: hf.Run) -> list[str]:
        done = run.list("done")
        async for item in run.plan(["pack", "bridge", "report"]):
            done.append(await item.step(service.do, item.id))
        return list(done)

    service.failures = Counter({"bridge": 2, "ferry": 1})
    await stage.open(travels)
    handle = await stage.start(travels())
    await to_the_end(stage, handle, [travels])

    assert await stage.result(handle) == ["pack", "ferry 1", "ferry 2", "report"]
    assert await rungs(stage, handle) == ["retry", "replan", "decompose"]
    assert seen == [("bridge", "bridge failed"), ("ferry", "ferry failed")]
    assert service.done["pack"] == 1


async def test_a_rung_whose_function_fails_ends_the_task_with_that(
    quick: Stage, service: FailingService
) -> None:
    def broken(item: PlanItem | None, failure: Failure) -> list[str]:
        raise LookupError("no other way")

    @hf.task(ladder=[hf.replan(broken)])
    async def travels(run: hf.Run) -> None:
        async for item in run.plan(["bridge"]):
            await item.step(service.do, item.id)

    service.failures = Counter({"bridge": 1})
    await quick.open(travels)
    handle = await quick.start(travels())
    await quick.settle()

    task = await handle.task()
    assert task.failure is not None
    assert task.failure.message == "no other way"


# --- ask


def asking(service: FailingService) -> Any:
    @hf.task(ladder=[hf.ask()])
    async def travels(run: hf.Run) -> list[str]:
        done = run.list("done")
        async for item in run.plan(["pack", "bridge", "report"]):
            done.append(await item.step(service.do, item.id))
        return list(done)

    return travels


async def test_a_person_may_say_to_try_it_again_as_often_as_they_like(
    stage: Stage, service: FailingService
) -> None:
    service.failures = Counter({"bridge": 2})
    travels = asking(service)
    await stage.open(travels)
    handle = await stage.start(travels())
    for _ in range(2):
        await stage.settle()
        (question,) = await stage.holdfast.questions()
        assert question.question == "travels failed at bridge: bridge failed. What now?"
        assert question.choices == ("retry", "skip", "fail")
        assert await handle.status() is TaskStatus.WAITING
        await stage.open(travels)
        await stage.holdfast.answer(question.id, "retry", by="ada")
    await stage.settle()

    assert await stage.result(handle) == ["pack", "bridge", "report"]
    assert service.done == {"pack": 1, "bridge": 3, "report": 1}
    assert await rungs(stage, handle) == ["ask", "ask"]


async def test_a_person_may_say_to_leave_an_item_out(stage: Stage, service: FailingService) -> None:
    service.failures = Counter({"bridge": 1})
    travels = asking(service)
    await stage.open(travels)
    handle = await stage.start(travels())
    await stage.settle()
    await stage.holdfast.answer(await stage.question(), "skip", by="ada")
    await stage.open(travels)
    await stage.settle()

    assert await stage.result(handle) == ["pack", "report"]
    plan = stage.store.read_now(lambda tx: tx.journal.plans([handle.id]))[handle.id][1]
    assert all(item.is_done for item in plan.items)


async def test_a_person_may_say_that_it_is_enough(stage: Stage, service: FailingService) -> None:
    service.failures = Counter({"bridge": 1})
    travels = asking(service)
    await stage.open(travels)
    handle = await stage.start(travels())
    await stage.settle()
    await stage.holdfast.answer(await stage.question(), "fail", by="ada")
    await stage.settle()

    task = await handle.task()
    assert task.status is TaskStatus.FAILED
    assert task.failure is not None
    assert task.failure.message == "bridge failed"


async def test_without_a_plan_there_is_nothing_to_leave_out(quick: Stage, service: FailingService) -> None:
    @hf.task(ladder=[hf.ask()])
    async def simple(run: hf.Run) -> str:
        return await run.step(service.do, "it")

    service.failures = Counter({"it": 1})
    await quick.open(simple)
    handle = await quick.start(simple())
    await quick.settle()
    (question,) = await quick.holdfast.questions()
    await quick.holdfast.answer(question.id, "retry", by="ada")
    await quick.settle()

    assert question.choices == ("retry", "fail")
    assert await quick.result(handle) == "it"


# --- budgets


async def test_a_budget_of_steps_pauses_and_asks_and_another_one_is_granted(
    stage: Stage, service: FailingService
) -> None:
    @hf.task(budget=hf.budget(steps=3))
    async def thrifty(run: hf.Run) -> int:
        async for turn in run.turns(max=4):
            await turn.step(service.do, f"{turn.number} a")
            await turn.step(service.do, f"{turn.number} b")
        return len(service.done)

    await stage.open(thrifty)
    handle = await stage.start(thrifty())
    asked = []
    while not (await handle.task()).has_ended:
        await stage.settle()
        for question in await stage.holdfast.questions():
            asked.append((question.question, sum(service.done.values())))
            await stage.open(thrifty)
            await stage.holdfast.answer(question.id, "go on", by="ada")

    assert await stage.result(handle) == 8
    assert asked == [
        ("thrifty has used its budget (3 steps). Go on?", 3),
        ("thrifty has used its budget (6 steps). Go on?", 6),
    ]
    assert set(service.done.values()) == {1}


async def test_a_budget_of_time_is_counted_from_the_first_start(
    stage: Stage, service: FailingService
) -> None:
    @hf.task(budget=hf.budget(time="1h"))
    async def slow(run: hf.Run) -> str:
        await run.sleep("2h")
        return await run.step(service.do, "it")

    await stage.open(slow)
    handle = await stage.start(slow())
    await to_the_end(stage, handle)
    (question,) = await stage.holdfast.questions()
    await stage.holdfast.answer(question.id, "go on", by="ada")
    await to_the_end(stage, handle)

    assert question.question == "slow has used its budget (1:00:00). Go on?"
    assert await stage.result(handle) == "it"


async def test_a_budget_of_cost_that_is_used_up_fails_the_task_when_a_person_says_stop(
    stage: Stage, service: FailingService
) -> None:
    @hf.task(budget=hf.budget(cost=1.0))
    async def costly(run: hf.Run) -> None:
        async for turn in run.turns():
            await turn.step(service.do, f"{turn.number}")
            await run.spend(0.4)

    await stage.open(costly)
    handle = await stage.start(costly())
    await stage.settle()
    spent = sum(service.done.values())
    (question,) = await stage.holdfast.questions()
    await stage.open(costly)
    await stage.holdfast.answer(question.id, "stop", by="ada")
    await stage.settle()

    assert (spent, question.question) == (3, "costly has used its budget (a cost of 1.2). Go on?")
    task = await handle.task()
    assert task.status is TaskStatus.FAILED  # at once: a person has said so
    assert task.failure is not None
    assert task.failure.message == "the budget is used up (a cost of 1.2), and a person said stop"
    assert sum(service.done.values()) == 3


async def test_many_that_reach_the_budget_together_ask_one_question(
    stage: Stage, service: FailingService
) -> None:
    @hf.task(budget=hf.budget(steps=1))
    async def crowd(run: hf.Run) -> list[str]:
        await run.step(service.do, "first")
        return await asyncio.gather(*(run.step(hf.step(service.do, id=f"{n}"), f"{n}") for n in range(3)))

    await stage.open(crowd)
    handle = await stage.start(crowd())
    await stage.settle()
    asked = await stage.holdfast.questions()
    while not (await handle.task()).has_ended:
        await stage.holdfast.answer(await stage.question(), "go on", by="ada")
        await stage.settle()

    assert len(asked) == 1
    assert await stage.result(handle) == ["0", "1", "2"]
