"""Stopping in good order: a drain pauses what is in flight, and says what it waits for."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

import pytest

import holdfast as hf
from holdfast.core.clock import SystemClock
from holdfast.core.transitions import RunStatus
from holdfast.engine.claims.boots import Life
from holdfast.engine.program.definitions import TaskDefinition, by_name
from holdfast.engine.program.restart_requests import CANNOT_RESTART, WantedRestart, calling
from holdfast.engine.worker.drain import Drain
from holdfast.engine.worker.worker import Worker
from holdfast.store import Store, Write
from holdfast.store.journal import SaveStep
from holdfast.testing import FakeClock, WrappingStore
from tests.conftest import Ledger
from tests.engine.workers import (
    GateAndNotes,
    WatchedStore,
    carrying,
    note_step,
    runs_of,
    soon,
    until,
    waiting_task,
)

T = TypeVar("T")


async def drain(store: Store, clock: FakeClock, gate: GateAndNotes, task: TaskDefinition[[], Any]) -> str:
    """The id of a task whose process was told to stop in its midst, and let it come to its next call."""
    async with carrying(store, clock, task, step_patience=10.0) as process:
        handle = await process.holdfast.start(task())
        await soon(gate.entered.wait())
        process.worker.stop()
        gate.open.set()
    return handle.id


async def test_a_drain_pauses_at_the_next_call_and_the_next_process_goes_on(
    store: Store, clock: FakeClock, gate: GateAndNotes
) -> None:
    waiting = waiting_task(gate)
    drained = await drain(store, clock, gate, waiting)
    paused = await runs_of(store, drained)
    async with carrying(store, clock, waiting) as process:
        result = await soon(process.holdfast.handle(drained).result())

    assert (paused, result) == ([RunStatus.PAUSED_FOR_RESTART], "after")
    assert Counter(gate.notes) == {"before": 1, "after": 1}


async def test_a_drain_that_cannot_save_is_taken_back_and_the_work_goes_on(
    store: Store, clock: FakeClock, gate: GateAndNotes
) -> None:
    watched = WatchedStore(store)
    waiting = waiting_task(gate)
    async with carrying(watched, clock, waiting, step_patience=10.0) as process:
        handle = await process.holdfast.start(waiting())
        await soon(gate.entered.wait())
        watched.is_away = True
        process.worker.stop(may_go_on=True)
        gate.open.set()

        problem = await soon(process.worker.until_decided())

        assert problem is not None
        assert "it is away, says the test" in str(problem)
        watched.is_away = False
        assert await soon(handle.result()) == "after"
        (run,) = await process.runs(handle.id)
        assert (run.idle_attempts, gate.count("before")) == (0, 1)
        # What was in the way is gone, and so is the refusal.
        process.worker.stop(may_go_on=True)
        assert await soon(process.worker.until_decided()) is None


@pytest.mark.slow
async def test_what_was_paused_before_a_drain_was_taken_back_is_resumed_here(
    store: Store, clock: FakeClock, gate: GateAndNotes
) -> None:
    quick, slow = asyncio.Event(), asyncio.Event()

    async def wait(name: str) -> str:
        gate.notes.append(name)
        await (quick if name == "quick" else slow).wait()
        return name

    @hf.task(name="one")
    async def one(run: hf.Run, name: str) -> str:
        await run.step(wait, name)
        return await run.step(note_step(gate), f"{name} ended")

    watched = WatchedStore(store)
    async with carrying(watched, clock, one, step_patience=10.0) as process:
        first, other = [await process.holdfast.start(one(name)) for name in ("quick", "slow")]
        await until(lambda: len(gate.notes) == 2)
        process.worker.stop(may_go_on=True)
        quick.set()
        await until(lambda: not process.worker._in_flight.left_over and len(process.worker._in_flight) == 1)
        watched.is_away = True
        slow.set()
        assert await soon(process.worker.until_decided()) is not None
        watched.is_away = False

        assert [await soon(one.result()) for one in (first, other)] == ["quick ended", "slow ended"]
    # The result of the slow step could not be saved, so it was done again.
    assert Counter(gate.notes) == {"quick": 1, "slow": 2, "quick ended": 1, "slow ended": 1}


def upgrading(gate: GateAndNotes) -> hf.TaskDefinition[[], str]:
    """Asks for a restart, and says which answer it got."""
    note = note_step(gate)

    @hf.task(name="upgrade")
    async def upgrade(run: hf.Run) -> str:
        try:
            await run.requires_restart("a new driver")
        except hf.RestartRefused as refused:
            return await run.step(note, refused.why)
        return await run.step(note, "upgraded")

    return upgrade


async def test_a_run_that_asked_for_a_restart_is_paused_by_the_drain_and_goes_on_in_the_next_process(
    store: Store, clock: FakeClock, gate: GateAndNotes
) -> None:
    upgrade, waiting = upgrading(gate), waiting_task(gate)
    asked: list[str] = []

    # It waits no longer for the run that asks than for one that has stopped.
    options = {"on_restart": calling(asked.append), "step_patience": 1000.0, "drain_timeout": 1000.0}
    async with carrying(store, clock, upgrade, waiting, **options) as process:
        handle = await process.holdfast.start(upgrade())
        await until(lambda: asked == ["a new driver"])
        other = await process.holdfast.start(waiting())
        await soon(gate.entered.wait())
        process.worker.stop()
        gate.open.set()
        await soon(process.worker.has_ended.wait())
    checkpoints = await store.read(lambda tx: tx.checkpoints.page())
    saved = {one.task_id: one.reason for one in checkpoints}
    # What one run asks for is not the other one's doing.
    assert saved == {handle.id: "requires_restart", other.id: "explicit_restart"}
    (document,) = [one.read_document() for one in checkpoints if one.task_id == handle.id]
    assert document.note == "a new driver"

    async with carrying(store, clock, upgrade, waiting) as process:
        assert await soon(process.holdfast.handle(handle.id).result()) == "upgraded"
        assert await soon(process.holdfast.handle(other.id).result()) == "after"
    assert asked == ["a new driver"]


async def test_a_run_in_a_process_that_cannot_restart_is_refused_at_once(
    store: Store, clock: FakeClock, gate: GateAndNotes
) -> None:
    upgrade = upgrading(gate)
    async with carrying(store, clock, upgrade) as process:
        handle = await process.holdfast.start(upgrade())

        assert await soon(handle.result()) == CANNOT_RESTART


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("error", "why"),
    [
        (hf.RestartRefused("not before noon"), "not before noon"),
        (KeyError("lost"), "on_restart raised KeyError: 'lost'"),
    ],
)
async def test_a_function_that_restarts_may_refuse(
    store: Store, clock: FakeClock, gate: GateAndNotes, error: Exception, why: str, is_async: bool
) -> None:
    upgrade = upgrading(gate)

    def refuse(_why: str) -> None:
        raise error

    async def refuse_later(_why: str) -> None:
        raise error

    on_restart = calling(refuse_later if is_async else refuse)
    async with carrying(store, clock, upgrade, on_restart=on_restart) as process:
        handle = await process.holdfast.start(upgrade())

        assert await soon(handle.result()) == why


async def test_a_drain_that_could_not_save_a_run_refuses_the_restart_to_the_run_that_asked_for_it(
    store: Store, clock: FakeClock, gate: GateAndNotes
) -> None:
    upgrade = upgrading(gate)
    decided: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    asked: list[str] = []

    async def decide(one: WantedRestart) -> str:
        asked.append(one.key)
        return await asyncio.shield(decided)

    watched = WatchedStore(store)
    async with carrying(watched, clock, upgrade, on_restart=decide) as process:
        handle = await process.holdfast.start(upgrade())
        await until(lambda: len(asked) == 1)
        watched.is_away = True
        process.worker.stop(may_go_on=True)
        problem = await soon(process.worker.until_decided())
        assert problem is not None
        (run,) = store.read_now(lambda tx: tx.runs.of_task(handle.id))
        assert problem.run_id == run.id
        watched.is_away = False
        decided.set_result(str(problem))

        assert await soon(handle.result()) == str(problem)
    assert gate.notes == [str(problem)]


@pytest.mark.parametrize("has_stopped", [True, False], ids=["stopped before the drain", "at the deadline"])
async def test_the_run_that_asked_is_paused_last_so_the_refusal_names_only_the_run_that_could_not_be_paused(
    store: Store, clock: FakeClock, gate: GateAndNotes, monkeypatch: pytest.MonkeyPatch, has_stopped: bool
) -> None:
    upgrade, waiting = upgrading(gate), waiting_task(gate)
    asked: list[str] = []
    decided: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def decide(one: WantedRestart) -> str:
        asked.append(one.key)
        return await asyncio.shield(decided)

    watched = WatchedStore(store)
    async with carrying(watched, clock, upgrade, waiting, on_restart=decide, step_patience=0.05) as process:
        asker = await process.holdfast.start(upgrade())
        await until(lambda: len(asked) == 1)
        other = await process.holdfast.start(waiting())
        await soon(gate.entered.wait())
        hands, drains = process.worker._in_flight, process.worker._drain.run

        async def drain_later(*, may_go_on: bool = False) -> None:
            monkeypatch.undo()
            if has_stopped:
                gate.open.set()
                await until(lambda: bool(hands.left_over))
            watched.is_away = True
            await drains(may_go_on=may_go_on)

        monkeypatch.setattr(process.worker._drain, "run", drain_later)
        process.worker.stop(may_go_on=True)
        problem = await soon(process.worker.until_decided())
        watched.is_away = False

        (run,) = store.read_now(lambda tx: tx.runs.of_task(other.id))
        assert problem is not None
        assert problem.run_id == run.id
        decided.set_result(str(problem))
        gate.open.set()
        assert await soon(asker.result()) == str(problem)
        assert await soon(other.result()) == "after"
        assert len(await process.runs(asker.id)) == 1


async def test_if_only_the_run_that_asked_cannot_be_paused_the_others_are_resumed_after_they_have_stopped(
    store: Store, clock: FakeClock, gate: GateAndNotes
) -> None:
    upgrade, asked, inside, most = upgrading(gate), list[str](), 0, 0
    decided: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def decide(one: WantedRestart) -> str:
        asked.append(one.key)
        return await asyncio.shield(decided)

    async def wait() -> None:
        nonlocal inside, most
        inside, most = inside + 1, max(most, inside + 1)
        gate.entered.set()
        try:
            await gate.open.wait()
        finally:
            inside -= 1

    @hf.task(name="waits")
    async def waits(run: hf.Run) -> str:
        await run.step(wait)
        return "waited"

    watched = WatchedStore(store)

    async def go_away(name: str) -> None:
        watched.is_away = "pausing" in name

    async with carrying(watched, clock, upgrade, waits, on_restart=decide, step_patience=0.05) as process:
        asker = await process.holdfast.start(upgrade())
        await until(lambda: len(asked) == 1)
        other = await process.holdfast.start(waits())
        await soon(gate.entered.wait())
        gate.entered.clear()
        watched.after_write = go_away
        process.worker.stop(may_go_on=True)
        problem = await soon(process.worker.until_decided())
        watched.after_write, watched.is_away = None, False

        (run,) = store.read_now(lambda tx: tx.runs.of_task(asker.id))
        assert problem is not None
        assert problem.run_id == run.id
        decided.set_result(str(problem))
        await process.worker.take_over()  # as the reaper does, some seconds later
        await soon(gate.entered.wait())
        gate.open.set()
        assert await soon(other.result()) == "waited"
        assert await soon(asker.result()) == str(problem)
        assert (len(await process.runs(other.id)), len(await process.runs(asker.id))) == (2, 1)
    assert most == 1


async def test_a_run_that_waits_for_its_restart_can_be_cancelled(
    store: Store, clock: FakeClock, gate: GateAndNotes
) -> None:
    upgrade, asked = upgrading(gate), list[str]()
    async with carrying(store, clock, upgrade, on_restart=calling(asked.append), grace=1000.0) as process:
        handle = await process.holdfast.start(upgrade())
        await until(lambda: len(asked) == 1)

        await handle.cancel("not today")

        with pytest.raises(hf.TaskFailed, match="not today"):
            await soon(handle.result())


async def test_resumes_that_are_held_back_wait_until_an_operator_lets_them_go_on(
    store: Store, clock: FakeClock, gate: GateAndNotes
) -> None:
    waiting = waiting_task(gate)
    drained = await drain(store, clock, gate, waiting)
    life = await Life.begin(store, clock, locks=None)
    other = Worker(store, clock, life, by_name([waiting]))
    other.hold_resumes("it crashed five times")

    assert (await other.take_over()).followed_up == {}
    assert await runs_of(store, drained) == [RunStatus.PAUSED_FOR_RESTART]
    other.hold_resumes(None)
    assert len((await other.take_over()).followed_up) == 1
    await life.end()


async def test_a_drain_waits_for_an_effect_in_flight_so_no_person_is_asked_about_it(
    store: Store, clock: FakeClock, gate: GateAndNotes
) -> None:
    @hf.opaque
    async def pay() -> str:
        gate.notes.append("pay")
        gate.entered.set()
        await gate.open.wait()
        return "paid"

    @hf.task
    async def shop(run: hf.Run) -> str:
        return await run.step(pay)

    async with carrying(store, clock, shop, step_patience=0.0) as process:
        handle = await process.holdfast.start(shop())
        await soon(gate.entered.wait())
        process.worker.stop()
        asyncio.get_running_loop().call_later(0.2, gate.open.set)
    async with carrying(store, clock, shop) as process:
        result = await soon(process.holdfast.handle(handle.id).result())
        reviews = await process.holdfast.reviews()

    assert (result, reviews) == ("paid", [])
    assert gate.count("pay") == 1


class Listening(logging.Handler):
    """Hears what a drain says, and lets the first who hears it act."""

    def __init__(self, act: Callable[[], None]) -> None:
        super().__init__()
        self.heard: list[str] = []
        self._act = act

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith("still draining"):
            self.heard.append(record.getMessage())
            self._act()


async def test_a_long_drain_says_what_it_waits_for(
    store: Store, clock: FakeClock, gate: GateAndNotes, monkeypatch: pytest.MonkeyPatch
) -> None:
    whats = ("think", "grind", "pay", "think")
    thinking: list[object] = []
    loop, in_step, is_open = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    @hf.opaque
    async def pay() -> None:
        gate.entered.set()
        await gate.open.wait()

    async def think() -> None:
        thinking.append(asyncio.current_task())
        if len(thinking) == whats.count("think"):
            in_step.set()
        await gate.open.wait()

    def grind() -> None:
        loop.call_soon_threadsafe(in_thread.set)
        is_open.wait()

    in_thread = asyncio.Event()

    @hf.task
    async def does(run: hf.Run, what: str) -> None:
        await run.step({"pay": pay, "think": think, "grind": grind}[what])

    def open_all() -> None:
        gate.open.set()
        is_open.set()

    monkeypatch.setattr("holdfast.engine.worker.drain._SAY_EVERY_S", 0.0)
    listening = Listening(open_all)
    logging.getLogger("holdfast").addHandler(listening)
    try:
        async with carrying(store, clock, does) as process:
            handles = [await process.holdfast.start(does(what)) for what in whats]
            for begun in (gate.entered, in_step, in_thread):
                await soon(begun.wait())
            process.worker.stop()
    finally:
        logging.getLogger("holdfast").removeHandler(listening)

    first = listening.heard[0]
    _, grinds, pays, _ = handles
    assert f"does ({pays.id}) has an effect in flight" in first
    assert f"does ({grinds.id}) has a function in a thread" in first
    assert "is in a step" in first
    assert first.endswith(", and 1 more")


def grinding_task(gate: GateAndNotes) -> hf.TaskDefinition[[], str]:
    """Does one step, in a thread, which waits for its door."""
    loop = asyncio.get_running_loop()

    def grind() -> str:
        loop.call_soon_threadsafe(gate.entered.set)
        gate.thread_open.wait()
        gate.notes.append("ground")
        return "flour"

    @hf.task
    async def mill(run: hf.Run) -> str:
        return await run.step(grind)

    return mill


async def test_a_drain_waits_for_a_function_in_a_thread(
    store: Store, clock: FakeClock, gate: GateAndNotes
) -> None:
    mill = grinding_task(gate)
    async with carrying(store, clock, mill, step_patience=0.0) as process:
        handle = await process.holdfast.start(mill())
        await soon(gate.entered.wait())
        process.worker.stop()
        asyncio.get_running_loop().call_later(0.2, gate.thread_open.set)
    async with carrying(store, clock, mill) as process:
        assert await soon(process.holdfast.handle(handle.id).result()) == "flour"

    assert gate.count("ground") == 1


async def test_a_drain_waits_until_what_a_thread_gave_is_saved(
    store: Store, clock: FakeClock, gate: GateAndNotes, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_looked = asyncio.Event()
    looks = 0
    time_left = Drain._time_left

    def look(drain: Drain, began_at: float) -> float:
        nonlocal looks
        # Only what it sees once the thread has nothing more to do.
        looks += not drain._threads.busy
        if looks == 3:
            has_looked.set()
        return time_left(drain, began_at)

    class Slow(WrappingStore):
        async def write(self, write: Write[T]) -> T:
            if isinstance(write, SaveStep):
                await has_looked.wait()
            return await self.inner.write(write)

    monkeypatch.setattr(Drain, "_time_left", look)
    mill = grinding_task(gate)
    async with carrying(Slow(store), clock, mill, step_patience=0.0) as process:
        handle = await process.holdfast.start(mill())
        await soon(gate.entered.wait())
        process.worker.stop()
        gate.thread_open.set()
    async with carrying(store, clock, mill) as process:
        assert await soon(process.holdfast.handle(handle.id).result()) == "flour"

    assert (has_looked.is_set(), gate.count("ground")) == (True, 1)


async def test_at_the_deadline_the_checkpoint_is_saved_before_the_program_is_interrupted(
    store: Store, clock: FakeClock, gate: GateAndNotes
) -> None:
    seen: list[tuple[list[RunStatus], str]] = []

    @hf.task
    async def careful(run: hf.Run) -> None:
        await run.step(note_step(gate), "before")
        try:
            gate.entered.set()
            await asyncio.sleep(3600)
        finally:
            statuses = [one.status for one in store.read_now(lambda tx: tx.runs.of_task(run.task_id))]
            try:
                await run.step(note_step(gate), "late")
            except hf.Stopping as stopping:
                seen.append((statuses, stopping.reason))

    async with carrying(store, clock, careful, step_patience=0.0) as process:
        await process.holdfast.start(careful())
        await soon(gate.entered.wait())

    assert seen == [([RunStatus.PAUSED_FOR_RESTART], "draining")]
    assert gate.notes == ["before"]


async def test_a_program_that_swallows_every_interrupt_cannot_write_any_more(
    store: Store, clock: FakeClock, gate: GateAndNotes, quick_force: None
) -> None:
    late: list[type[BaseException]] = []

    @hf.task
    async def stubborn(run: hf.Run) -> str:
        await run.step(note_step(gate), "before")
        while not gate.open.is_set():
            gate.entered.set()
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                try:
                    await run.step(hf.step(note_step(gate), id="late"), "late")
                except BaseException as error:  # noqa: BLE001
                    late.append(type(error))
        return "escaped"

    async with carrying(store, clock, stubborn, step_patience=0.0, grace=0.1) as process:
        handle = await process.holdfast.start(stubborn())
        await soon(gate.entered.wait())
    statuses = await runs_of(store, handle.id)

    assert statuses == [RunStatus.PAUSED_FOR_RESTART]
    assert set(late) == {hf.Stopping}
    assert gate.notes == ["before"]


async def test_a_short_sleep_does_not_hold_up_a_drain(
    ledger: Ledger, store: Store, gate: GateAndNotes
) -> None:
    @hf.task
    async def nap(run: hf.Run) -> None:
        gate.entered.set()
        await run.sleep("29s")

    # A real clock: one that stands still has no time to pass.
    async with carrying(store, SystemClock(), nap, step_patience=3600.0, drain_timeout=3600.0) as process:
        handle = await process.holdfast.start(nap())
        await soon(gate.entered.wait())
        process.worker.stop()
        await soon(process.worker.has_ended.wait())

    assert await runs_of(store, handle.id) == [RunStatus.PAUSED_FOR_RESTART]


def tidying_task(
    gate: GateAndNotes, clean: Callable[[hf.Run], Awaitable[object]]
) -> hf.TaskDefinition[[], None]:
    """Waits for the door, and cleans up when it may not go on."""

    @hf.task(name="tidying")
    async def tidying(run: hf.Run) -> None:
        try:
            gate.entered.set()
            await gate.open.wait()
            await run.step(note_step(gate), "work")
        finally:
            async with run.cleanup():
                await clean(run)
                gate.notes.append("clean")

    return tidying


async def test_cleanup_is_allowed_while_a_run_is_stopping(
    store: Store, clock: FakeClock, gate: GateAndNotes
) -> None:
    task = tidying_task(gate, lambda run: run.step(hf.step(note_step(gate), id="tidy"), "tidied"))
    async with carrying(store, clock, task, step_patience=10.0) as process:
        await process.holdfast.start(task())
        await soon(gate.entered.wait())
        process.worker.stop()
        gate.open.set()

    assert gate.notes == ["tidied", "clean"]


async def test_a_sleep_while_cleaning_up_lasts_and_keeps_no_other(
    store: Store, clock: FakeClock, gate: GateAndNotes
) -> None:
    task = tidying_task(gate, lambda run: run.sleep("3s"))
    async with carrying(store, clock, task, step_patience=10.0) as process:
        await process.holdfast.start(task())
        await soon(gate.entered.wait())
        began_at = clock.now()
        process.worker.stop()
        gate.open.set()
        await until(lambda: gate.notes == ["clean"])

    assert clock.now() - began_at >= timedelta(seconds=3)


async def test_a_stop_in_a_hurry_waits_for_nothing(
    store: Store, clock: FakeClock, gate: GateAndNotes
) -> None:
    waiting = waiting_task(gate)
    async with carrying(store, clock, waiting, step_patience=3600.0, drain_timeout=3600.0) as process:
        handle = await process.holdfast.start(waiting())
        await soon(gate.entered.wait())
        process.worker.stop()
        process.worker.hurry()
        await soon(process.worker.has_ended.wait())

    assert await runs_of(store, handle.id) == [RunStatus.PAUSED_FOR_RESTART]
