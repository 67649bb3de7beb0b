"""Programs that are to stop: told at their next call, never able to escape, given time to clean up."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.transitions import EffectStatus, TaskStatus
from tests.engine.stage import Stage


class Gate:
    """A step that has begun and waits until it is let through."""

    def __init__(self) -> None:
        self.has_begun = asyncio.Event()
        self.may_end = asyncio.Event()
        self.seen: list[Any] = []

    async def pass_through(self) -> str:
        self.has_begun.set()
        await self.may_end.wait()
        self.seen.append("passed")
        return "passed"

    async def note(self, what: str) -> str:
        self.seen.append(what)
        return what

    def task(self, fn: Any) -> Any:
        return hf.task(attempts=1)(fn)


async def cancelled(stage: Stage, gate: Gate, task: Any) -> Any:
    """Started, cancelled while it is in the middle of a step, and let go on."""
    await stage.open(task)
    async with stage.carrying(task()) as handle:
        async with asyncio.timeout(10):
            await gate.has_begun.wait()
        await handle.cancel("enough")
        await stage.tell_cancelled()
        gate.may_end.set()
    return handle


# --- told


async def test_a_task_that_waits_is_cancelled_at_once(stage: Stage) -> None:
    @hf.task
    async def sleeps(run: hf.Run) -> None:
        await run.sleep("1h")

    await stage.open(sleeps)
    handle = await stage.start(sleeps())
    await stage.settle()
    await handle.cancel("enough")

    assert await handle.status() is TaskStatus.CANCELLED


async def test_a_program_stops_at_its_next_call(stage: Stage) -> None:
    gate = Gate()

    @gate.task
    async def works(run: hf.Run) -> None:
        await run.step(gate.pass_through)
        gate.seen.append("between")
        try:
            await run.step(gate.note, "never")
        except hf.Stopping as stop:
            gate.seen.append(str(stop))
            raise

    handle = await cancelled(stage, gate, works)

    task = await handle.task()
    assert task.status is TaskStatus.CANCELLED
    assert task.failure is not None
    assert task.failure.message == "enough"
    assert gate.seen == ["passed", "between", "the run stops here: cancelled; let this pass"]


async def test_a_task_that_was_cancelled_before_it_began_is_not_begun(stage: Stage) -> None:
    gate = Gate()

    @gate.task
    async def works(run: hf.Run) -> None:
        gate.seen.append("begun")

    await stage.open(works)
    handle = await stage.start(works())
    (claimed,) = await stage._claims.take(1)
    await handle.cancel("enough")
    await stage._claims.release(claimed.claim)
    await stage.settle()

    assert await handle.status() is TaskStatus.CANCELLED
    assert gate.seen == []


@pytest.mark.parametrize("how", ["returns", "raises", "goes on"])
async def test_a_program_that_swallows_the_stop_does_not_escape_it(stage: Stage, how: str) -> None:
    gate = Gate()

    @gate.task
    async def stubborn(run: hf.Run) -> str:
        await run.step(gate.pass_through)
        for number in range(5):
            try:
                await run.step(gate.note, f"never {number}")
            except asyncio.CancelledError:
                gate.seen.append("swallowed")
                if how == "raises":
                    raise ValueError("something else") from None
                if how == "returns":
                    break
        return "escaped"

    handle = await cancelled(stage, gate, stubborn)

    assert await handle.status() is TaskStatus.CANCELLED
    assert "never 0" not in gate.seen


async def test_a_program_that_swallows_without_end_lets_others_go_on(quick: Stage) -> None:
    gate, rounds = Gate(), [0]

    @gate.task
    async def stubborn(run: hf.Run) -> None:
        await run.step(gate.pass_through)
        while rounds[0] < 1000:
            try:
                await run.step(gate.note, "never")
            except BaseException:  # noqa: BLE001 - what this test is about
                rounds[0] += 1

    beats: list[int] = []

    async def beat() -> None:
        while rounds[0] < 1000:
            beats.append(rounds[0])
            await asyncio.sleep(0)

    beating = asyncio.ensure_future(beat())
    handle = await cancelled(quick, gate, stubborn)
    await beating

    assert await handle.status() is TaskStatus.CANCELLED
    assert len(set(beats)) > 100


async def test_a_group_of_steps_stops_as_a_whole(stage: Stage) -> None:
    gate = Gate()

    @gate.task
    async def together(run: hf.Run) -> None:
        async def line(name: str) -> None:
            for number in range(3):
                await run.step(hf.step(gate.note, id=f"{name}{number}"), f"{name}{number}")
                await run.step(hf.step(gate.pass_through, id=f"gate {name}{number}"))

        async with asyncio.TaskGroup() as group:
            group.create_task(line("a"))
            await run.step(gate.pass_through)
            await run.step(gate.note, "never")

    handle = await cancelled(stage, gate, together)

    assert await handle.status() is TaskStatus.CANCELLED
    assert "never" not in gate.seen
    assert "a1" not in gate.seen


async def test_a_function_in_a_thread_is_told_and_awaited(stage: Stage) -> None:
    gate, loop = Gate(), asyncio.get_running_loop()
    may_look = threading.Event()

    def work(run: hf.Run) -> str:
        loop.call_soon_threadsafe(gate.has_begun.set)
        assert may_look.wait(10)
        gate.seen.append(f"told: {run.is_stopping}")
        return "stopped early"

    @gate.task
    async def works(run: hf.Run) -> None:
        await run.step(work, run)

    await stage.open(works)
    async with stage.carrying(works()) as handle:
        await gate.has_begun.wait()
        await handle.cancel("enough")
        await stage.tell_cancelled()
        (child,) = [one for one in asyncio.all_tasks() if "Execution.carry" in repr(one)]
        child.cancel()  # forced: but a thread cannot be interrupted, so it is waited for
        await asyncio.sleep(0)
        is_waited_for = not child.done()
        may_look.set()

    assert is_waited_for
    assert gate.seen == ["told: True"]
    assert await handle.status() is TaskStatus.CANCELLED


# --- effects


async def test_an_effect_in_flight_is_finished_before_its_task_is_cancelled(stage: Stage) -> None:
    gate = Gate()

    @gate.task
    async def sends(run: hf.Run) -> None:
        await run.step(hf.opaque(gate.pass_through))

    await stage.open(sends)
    async with stage.carrying(sends()) as handle:
        await gate.has_begun.wait()
        await handle.cancel("enough")
        await stage.tell_cancelled()
        (child,) = [one for one in asyncio.all_tasks() if "Execution.carry" in repr(one)]
        child.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        gate.may_end.set()

    assert await handle.status() is TaskStatus.CANCELLED
    (effect,) = await stage.store.read(lambda tx: tx.effects.of_task(handle.id))
    assert effect.status is EffectStatus.DONE
    assert gate.seen == ["passed"]


async def test_who_cancels_twice_interrupts_an_effect_and_it_is_in_review(stage: Stage) -> None:
    gate = Gate()

    @gate.task
    async def sends(run: hf.Run) -> None:
        await run.step(hf.opaque(gate.pass_through))

    await stage.open(sends)
    async with stage.carrying(sends()) as handle:
        await gate.has_begun.wait()
        await handle.cancel("enough")
        await stage.tell_cancelled()
        (child,) = [one for one in asyncio.all_tasks() if "Execution.carry" in repr(one)]
        for _ in range(2):
            child.cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    assert await handle.status() is TaskStatus.CANCELLED
    assert (await stage.review()).status is EffectStatus.UNKNOWN
    assert gate.seen == []


# --- cleaning up


def cleaning(gate: Gate) -> Any:
    @gate.task
    async def opens(run: hf.Run) -> str:
        await run.step(gate.note, "opened")
        try:
            await run.step(gate.pass_through)
            return await run.step(gate.note, "worked")
        finally:
            try:
                await run.step(gate.note, "closed outside")
            except asyncio.CancelledError:
                gate.seen.append("not outside")
            async with run.cleanup():
                await run.step(gate.note, "closed")

    return opens


async def test_a_program_may_clean_up_when_it_is_cancelled(stage: Stage) -> None:
    gate = Gate()

    handle = await cancelled(stage, gate, cleaning(gate))

    assert await handle.status() is TaskStatus.CANCELLED
    assert gate.seen == ["opened", "passed", "not outside", "closed"]
    assert stage.rows("effects") == []


async def test_what_was_cleaned_up_for_a_restart_is_cleaned_up_again_at_the_end(stage: Stage) -> None:
    gate = Gate()
    opens = cleaning(gate)
    await stage.open(opens)
    async with stage.carrying(opens()) as handle:
        await gate.has_begun.wait()
        stage.tell_to_drain()
        gate.may_end.set()
    await stage.pause()
    before = list(gate.seen)
    await stage.open(opens)
    await stage.settle()

    assert before == ["opened", "passed", "not outside", "closed"]
    assert gate.seen == [*before, "worked", "closed outside", "closed"]
    assert await stage.result(handle) == "worked"


async def test_a_program_that_waits_cannot_clean_up_any_more(stage: Stage) -> None:
    gate = Gate()

    @gate.task
    async def sleeps(run: hf.Run) -> None:
        try:
            await run.sleep("1h")
        finally:
            async with run.cleanup():
                await run.step(gate.note, "closed")

    await stage.open(sleeps)
    handle = await stage.start(sleeps())
    await stage.settle()  # its claim is given up: whatever it does writes nothing
    before = list(gate.seen)
    await stage.pass_time()
    await stage.settle()

    assert before == []
    assert gate.seen == ["closed"]
    assert await handle.status() is TaskStatus.SUCCEEDED


# --- children


async def test_children_are_cancelled_with_their_parent_through_the_whole_tree(stage: Stage) -> None:
    gate = Gate()

    @hf.task
    async def leaf(run: hf.Run) -> None:
        await run.sleep("1h")

    @hf.task
    async def branch(run: hf.Run) -> None:
        await run.spawn(leaf())
        await run.ask("Go on?")

    @gate.task
    async def root(run: hf.Run) -> None:
        await run.spawn(branch())
        await run.spawn(leaf())
        await run.step(gate.pass_through)
        await run.step(gate.note, "never")

    await stage.open(root, branch, leaf)
    async with stage.carrying(root()) as handle:
        await gate.has_begun.wait()
        await stage.until(lambda: sum(one.live.is_over for one in stage.executions) == 3)  # all but the root
        await handle.cancel("enough")
        await stage.tell_cancelled()
        gate.may_end.set()

    tasks = await stage.store.read(lambda tx: tx.tasks.page())
    assert {(task.name, task.status) for task in tasks} == {
        (name, TaskStatus.CANCELLED) for name in ("root", "branch", "leaf")
    }


async def test_a_child_that_is_cancelled_is_a_failure_of_its_own_kind_to_its_parent(stage: Stage) -> None:
    @hf.task
    async def leaf(run: hf.Run) -> None:
        await run.sleep("1h")

    @hf.task(attempts=1)
    async def root(run: hf.Run) -> str:
        child = await run.spawn(leaf())
        try:
            await child
        except hf.StepFailed as error:
            return f"{error.kind}: {error.message}"
        return "went well"

    await stage.open(root, leaf)
    handle = await stage.start(root())
    await stage.settle()
    (child,) = [one.claimed.task.id for one in stage.executions if one.claimed.task.name == "leaf"]
    await stage.holdfast.cancel(child, reason="not needed")
    await stage.settle()

    assert await stage.result(handle) == "cancelled: not needed"
