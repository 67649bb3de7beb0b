"""A worker claims, carries, drains and cancels; nothing that one run does harms another."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import pytest

import holdfast as hf
from holdfast.core.run import Queue
from holdfast.core.transitions import RunStatus, TaskStatus
from holdfast.engine.claims.claims import SUSPECT_PATIENCE, SUSPECT_ROOM, Family
from holdfast.engine.claims.heartbeat import Heartbeat
from holdfast.engine.recovery.attempts import recorded_attempts
from holdfast.engine.recovery.rescue import Reaper
from holdfast.engine.worker import taking
from holdfast.engine.worker.execution import Execution
from holdfast.engine.worker.worker import GRACE
from holdfast.store import Store
from holdfast.testing import FakeClock
from tests.builders import stored_run
from tests.conftest import Ledger
from tests.engine.parts import Parts
from tests.engine.recovery.test_damage import flip
from tests.engine.workers import (
    GateAndNotes,
    WatchedStore,
    carrying,
    note_step,
    runs_of,
    soon,
    until,
    until_run,
    waiting_task,
)

T = TypeVar("T")


# --- taking


async def test_a_ready_run_is_carried_to_its_end(store: Store, clock: FakeClock) -> None:
    @hf.task
    async def greet(run: hf.Run, name: str) -> str:
        return f"hello {name}"

    async with carrying(store, clock, greet) as process:
        handle = await process.holdfast.start(greet("ada"))

        assert await soon(handle.result()) == "hello ada"


async def test_an_idle_process_only_looks(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taking, "ASK_EVERY_S", 0.01)
    watched = WatchedStore(store)

    @hf.task
    async def greet(run: hf.Run) -> None: ...

    async with carrying(watched, clock, greet) as process:
        # Something that is due later must not make it write, either.
        await process.holdfast.start(greet(), due_at=clock.now() + GRACE)
        # Hints of what was written before may come late: once from this process, once from the server.
        for _ in range(3):
            before, looked = len(watched.writes), watched.reads
            await until(lambda: watched.reads > looked + 20)  # noqa: B023 - it is waited for at once
            asked = [name for name in watched.writes[before:] if "take" in name or "ready" in name]
            if not asked:
                break

        assert asked == []


async def test_a_hint_that_comes_between_looking_and_waiting_is_not_lost(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker does not ask again for an hour, so only the hint can tell."""
    monkeypatch.setattr(taking, "ASK_EVERY_S", 3600.0)
    watched = WatchedStore(store)

    @hf.task
    async def greet(run: hf.Run) -> str:
        return "hello"

    async with carrying(watched, clock, greet) as process:
        started: list[hf.Handle[str]] = []

        async def start_one(name: str) -> None:
            if name.endswith("take") and not started:
                started.append(await process.holdfast.start(greet()))

        watched.after_write = start_one
        await process.holdfast.start(greet())
        await until(lambda: bool(started))

        assert await soon(started[0].result()) == "hello"


async def test_a_wait_ends_soon_after_its_time_has_come(store: Store, clock: FakeClock) -> None:
    @hf.task
    async def nap(run: hf.Run) -> str:
        await run.sleep("1h")
        return "rested"

    async with carrying(store, clock, nap) as process:
        handle = await process.holdfast.start(nap())
        await until_run(store, handle.id, RunStatus.WAITING)
        clock.advance(hours=1)

        assert await soon(handle.result()) == "rested"


async def test_a_task_that_was_asked_for_later_begins_when_its_time_has_come(
    store: Store, clock: FakeClock
) -> None:
    @hf.task
    async def greet(run: hf.Run) -> str:
        return "hello"

    async with carrying(store, clock, greet) as process:
        handle = await process.holdfast.start(greet(), due_at=clock.now() + GRACE)
        clock.advance(minutes=1)

        assert await soon(handle.result()) == "hello"


async def test_no_more_runs_are_carried_at_once_than_there_is_room_for(
    store: Store, clock: FakeClock, gate: GateAndNotes
) -> None:
    inside: list[int] = [0]
    most: list[int] = [0]

    @hf.task
    async def crowd(run: hf.Run) -> None:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        await run.step(note_step(gate), "in")
        await asyncio.sleep(0)
        inside[0] -= 1

    async with carrying(store, clock, crowd, capacity=2) as process:
        handles = await process.holdfast.start_many([crowd() for _ in range(9)])
        for handle in handles:
            await soon(handle.result())

    assert most[0] == 2


async def test_a_suspect_is_carried_alone_and_then_the_others_go_on(
    store: Store, clock: FakeClock, gate: GateAndNotes
) -> None:
    carrying_now: set[str] = set()
    seen: dict[str, set[str]] = {}

    @hf.task
    async def crowd(run: hf.Run) -> None:
        carrying_now.add(run.task_id)
        await asyncio.sleep(0.02)
        seen[run.task_id] = set(carrying_now)
        carrying_now.discard(run.task_id)

    suspect = stored_run(store, is_alone=True, idle_attempts=2, task={"name": "crowd", "arguments": b"{}"})
    others = [stored_run(store, task={"name": "crowd", "arguments": b"{}"}) for _ in range(3)]
    async with carrying(store, clock, crowd) as process:
        for run in (suspect, *others):
            await soon(process.holdfast.handle(run.task_id).result())

    assert seen[suspect.task_id] == {suspect.task_id}


async def test_a_busy_process_goes_on_with_other_work_and_carries_the_suspect_at_last(
    store: Store, clock: FakeClock, gate: GateAndNotes
) -> None:
    waiting = waiting_task(gate)

    @hf.task
    async def greet(run: hf.Run) -> str:
        return "hello"

    async with carrying(store, clock, waiting, greet) as process:
        await process.holdfast.start(waiting())
        await soon(gate.entered.wait())
        suspect = stored_run(
            store, is_alone=True, due_at=clock.now(), task={"name": "greet", "arguments": b"{}"}
        )

        assert await soon((await process.holdfast.start(greet())).result()) == "hello"
        assert await runs_of(store, suspect.task_id) == [RunStatus.QUEUED]

        clock.advance(seconds=(SUSPECT_PATIENCE + SUSPECT_ROOM).total_seconds())
        assert await soon((await process.holdfast.start(greet())).result()) == "hello"
        assert await soon(process.holdfast.handle(suspect.task_id).result()) == "hello"
        gate.open.set()


async def test_a_process_records_the_attempts_of_its_tasks_for_those_that_do_not_know_them(
    store: Store, clock: FakeClock
) -> None:
    @hf.task(attempts=100)
    async def stubborn(run: hf.Run) -> None: ...

    @hf.task
    async def plain(run: hf.Run) -> None: ...

    async with carrying(store, clock, stubborn, plain):
        found = await store.read(
            lambda tx: [recorded_attempts(tx, name) for name in ("stubborn", "plain", "unheard-of")]
        )

    assert found == [100, None, None]


async def test_an_unknown_name_waits_and_says_so_once(
    store: Store, clock: FakeClock, parts: Parts, caplog: pytest.LogCaptureFixture
) -> None:
    @hf.task
    async def known(run: hf.Run) -> None: ...

    unknown = await parts.create(name="unheard-of", arguments={})
    async with carrying(store, clock, known) as process:
        for _ in range(2):
            await soon((await process.holdfast.start(known())).result())
        await until(lambda: "unheard-of" in caplog.text)

        assert await process.holdfast.unknown_names() == ["unheard-of"]
    assert caplog.text.count("unheard-of") == 1
    assert (await parts.ledger.get(unknown.id)).status is TaskStatus.QUEUED


# --- damage, bugs and a database that is away


async def test_a_damaged_row_fails_its_own_task_and_no_other(
    store: Store, clock: FakeClock, gate: GateAndNotes
) -> None:
    waiting = waiting_task(gate)
    async with carrying(store, clock, waiting, step_patience=0.0) as process:
        damaged, good = await process.holdfast.start_many([waiting(), waiting()])
        both = [damaged.id, good.id]
        await until(lambda: len(store.read_now(lambda tx: tx.journal.steps_of(both))) == 2)
    flip(store, "steps", "result", f"task_id = '{damaged.id}'")

    gate.open.set()
    async with carrying(store, clock, waiting) as process:
        assert await soon(process.holdfast.handle(good.id).result()) == "after"
        with pytest.raises(hf.TaskFailed) as failed:
            await soon(process.holdfast.handle(damaged.id).result())

    assert failed.value.failure is not None
    assert failed.value.failure.kind == "row_damaged"
    assert gate.count("before") == 2


async def test_what_was_not_foreseen_in_one_run_ends_no_other(
    store: Store, clock: FakeClock, gate: GateAndNotes, monkeypatch: pytest.MonkeyPatch
) -> None:
    carry = Execution.carry

    async def break_some(execution: Execution) -> None:
        if execution.claimed.task.name == "cursed":
            raise RuntimeError("a bug of ours")
        await carry(execution)

    monkeypatch.setattr(Execution, "carry", break_some)

    @hf.task
    async def cursed(run: hf.Run) -> None: ...

    waiting = waiting_task(gate)
    async with carrying(store, clock, waiting, cursed) as process:
        good = await process.holdfast.start(waiting())
        await soon(gate.entered.wait())
        bad = await process.holdfast.start(cursed())
        # It became a crash, which is bounded by attempts; and no other run has noticed.
        await until_run(store, bad.id, RunStatus.PAUSED_FOR_RESTART, RunStatus.RESUMING, RunStatus.RESUMED)
        gate.open.set()

        assert await soon(good.result()) == "after"


async def test_a_program_that_calls_sys_exit_does_not_end_the_process(
    store: Store, clock: FakeClock, gate: GateAndNotes
) -> None:
    @hf.task(attempts=1)
    async def leaver(run: hf.Run) -> None:
        raise SystemExit(3)

    waiting = waiting_task(gate)
    async with carrying(store, clock, waiting, leaver) as process:
        good = await process.holdfast.start(waiting())
        await soon(gate.entered.wait())
        bad = await process.holdfast.start(leaver())
        with pytest.raises(hf.TaskFailed, match="SystemExit: 3"):
            await soon(bad.result())
        gate.open.set()

        assert await soon(good.result()) == "after"


def leave(_run: hf.Run | None = None) -> None:
    sys.exit("bye")


def interrupt(_run: hf.Run | None = None) -> None:
    raise KeyboardInterrupt("bye")


async def leave_later() -> None:
    leave()


def leave_in_transaction(_tx: hf.Transaction) -> None:
    leave()


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        (leave, "SystemExit"),
        (interrupt, "KeyboardInterrupt"),
        (leave_later, "SystemExit"),
        (hf.tool(leave, effect=hf.keyed("1h")), "SystemExit"),
        (hf.tool(leave_later, effect=hf.keyed("1h")), "SystemExit"),
        (hf.tool(leave_in_transaction, effect=hf.transactional), "SystemExit"),
    ],
    ids=["thread", "interrupt", "coroutine", "effect in a thread", "effect", "transaction"],
)
async def test_a_step_that_wants_to_end_the_process_has_failed(
    store: Store, clock: FakeClock, step: Callable[..., Any], kind: str
) -> None:
    caught: list[str] = []

    @hf.task(attempts=1)
    async def leaver(run: hf.Run) -> None:
        try:
            await run.step(step)
        except hf.StepFailed as error:
            caught.append(error.kind)
            raise

    async with carrying(store, clock, leaver) as process:
        handle = await process.holdfast.start(leaver())
        with pytest.raises(hf.TaskFailed, match=f"{kind}: bye"):
            await soon(handle.result())

        assert caught == [kind]
        assert len(await process.runs(handle.id)) == 1


async def test_a_program_that_calls_sys_exit_is_tried_as_often_as_one_that_fails(
    store: Store, clock: FakeClock
) -> None:
    @hf.task(attempts=2, backoff="0s")
    async def leaver(run: hf.Run) -> None:
        leave()

    async with carrying(store, clock, leaver) as process:
        handle = await process.holdfast.start(leaver())
        with pytest.raises(hf.TaskFailed, match="SystemExit: bye"):
            await soon(handle.result())

        assert [run.status for run in await process.runs(handle.id)] == [RunStatus.FAILED] * 2


async def test_a_task_that_fails_for_good_is_one_warning_with_its_id(
    store: Store, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse() -> None:
        raise ValueError("no\nkey")

    @hf.task(attempts=2, backoff="0s")
    async def broken(run: hf.Run) -> None:
        await run.step(refuse)

    async with carrying(store, clock, broken) as process:
        handle = await process.holdfast.start(broken())
        with pytest.raises(hf.TaskFailed):
            await soon(handle.result())

        (told,) = [record for record in caplog.records if handle.id in record.getMessage()]
        assert told.levelname == "WARNING"
        assert told.getMessage().startswith(f"{handle.id} (broken) failed: ValueError: no key at tests/")
        assert told.getMessage().endswith(".refuse")


async def test_a_database_that_is_away_for_a_while_costs_no_attempt(
    store: Store, clock: FakeClock, gate: GateAndNotes
) -> None:
    watched = WatchedStore(store)
    waiting = waiting_task(gate)
    async with carrying(watched, clock, waiting) as process:
        handle = await process.holdfast.start(waiting())
        await soon(gate.entered.wait())
        watched.is_away = True
        gate.open.set()
        # The step cannot be saved, so the program is given up here; the claim is not.
        await until(lambda: not process.worker.claims_in_flight() or not process.worker._in_flight.carried)
        watched.is_away = False

        assert await soon(handle.result()) == "after"
        (run,) = await process.runs(handle.id)
    assert run.idle_attempts == 0
    assert gate.count("before") == 1


# --- cancel


async def test_a_cancel_is_told_at_once_and_not_with_the_next_heartbeat(
    store: Store, clock: FakeClock, gate: GateAndNotes
) -> None:
    @hf.task
    async def loop(run: hf.Run) -> None:
        async for turn in run.turns():
            gate.entered.set()
            await turn.step(asyncio.sleep, 0.001)

    async with carrying(store, clock, loop, lease=3600.0) as process:
        handle = await process.holdfast.start(loop())
        await soon(gate.entered.wait())
        await handle.cancel("enough")
        with pytest.raises(hf.TaskFailed) as failed:
            await soon(handle.result())

    assert failed.value.status == "cancelled"


async def test_a_cancel_from_another_process_is_seen_with_the_next_look(
    ledger: Ledger, store: Store, clock: FakeClock, gate: GateAndNotes
) -> None:
    other = store if isinstance(store, WatchedStore) or getattr(store, "path", "") is None else ledger.open()

    @hf.task
    async def loop(run: hf.Run) -> None:
        async for turn in run.turns():
            gate.entered.set()
            await turn.step(asyncio.sleep, 0.001)

    async with carrying(store, clock, loop, lease=3600.0) as process:
        handle = await process.holdfast.start(loop())
        await soon(gate.entered.wait())
        async with carrying(other, clock) as outsider:
            await outsider.holdfast.cancel(handle.id)
        with pytest.raises(hf.TaskFailed):
            await soon(handle.result())


async def test_a_program_that_waits_for_something_else_is_interrupted_after_the_grace(
    store: Store, clock: FakeClock, gate: GateAndNotes
) -> None:
    @hf.task
    async def deaf(run: hf.Run) -> None:
        gate.entered.set()
        try:
            await asyncio.sleep(3600)
        finally:
            gate.notes.append("unwound")

    async with carrying(store, clock, deaf, grace=0.05) as process:
        handle = await process.holdfast.start(deaf())
        await soon(gate.entered.wait())
        await handle.cancel()
        with pytest.raises(hf.TaskFailed):
            await soon(handle.result())

    assert gate.notes == ["unwound"]


async def test_a_program_that_swallows_its_cancel_does_not_escape_it(
    store: Store, clock: FakeClock, gate: GateAndNotes, quick_force: None
) -> None:
    @hf.task
    async def stubborn(run: hf.Run) -> str:
        while not gate.open.is_set():
            gate.entered.set()
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                gate.notes.append("swallowed")
        return "escaped"

    async with carrying(store, clock, stubborn, grace=0.05) as process:
        handle = await process.holdfast.start(stubborn())
        await soon(gate.entered.wait())
        await handle.cancel("enough")
        with pytest.raises(hf.TaskFailed) as failed:
            await soon(handle.result())

    assert failed.value.status == "cancelled"
    assert gate.notes
    assert await runs_of(store, handle.id) == [RunStatus.CANCELLED]


async def test_a_function_in_a_thread_does_not_keep_its_task_from_being_cancelled(
    store: Store, clock: FakeClock, gate: GateAndNotes, quick_force: None
) -> None:
    loop = asyncio.get_running_loop()

    def grind() -> None:
        loop.call_soon_threadsafe(gate.entered.set)
        gate.thread_open.wait()

    @hf.task
    async def mill(run: hf.Run) -> None:
        await run.step(grind)

    async with carrying(store, clock, mill, grace=0.05) as process:
        handle = await process.holdfast.start(mill())
        await soon(gate.entered.wait())
        await handle.cancel("enough")
        with pytest.raises(hf.TaskFailed):
            await soon(handle.result())
        gate.thread_open.set()

    assert await runs_of(store, handle.id) == [RunStatus.CANCELLED]


async def test_a_cancel_does_not_cut_an_effect_short(
    store: Store, clock: FakeClock, gate: GateAndNotes
) -> None:
    @hf.opaque
    async def pay() -> str:
        gate.entered.set()
        await gate.open.wait()
        gate.notes.append("paid")
        return "paid"

    @hf.task
    async def shop(run: hf.Run) -> str:
        return await run.step(pay)

    async with carrying(store, clock, shop, grace=0.01) as process:
        handle = await process.holdfast.start(shop())
        await soon(gate.entered.wait())
        await handle.cancel()
        asyncio.get_running_loop().call_later(0.2, gate.open.set)
        with pytest.raises(hf.TaskFailed):
            await soon(handle.result())
        reviews = await process.holdfast.reviews()

    assert (gate.notes, reviews) == (["paid"], [])


async def test_an_effect_that_never_ends_is_reviewed_when_its_task_is_cancelled_without_it(
    store: Store, clock: FakeClock, gate: GateAndNotes, quick_force: None
) -> None:
    @hf.opaque
    async def pay() -> None:
        while not gate.open.is_set():
            gate.entered.set()
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                gate.notes.append("swallowed")

    @hf.task
    async def shop(run: hf.Run) -> None:
        await run.step(pay)

    async with carrying(store, clock, shop, grace=0.01, drain_timeout=0.05) as process:
        handle = await process.holdfast.start(shop())
        await soon(gate.entered.wait())
        await handle.cancel()
        with pytest.raises(hf.TaskFailed):
            await soon(handle.result())
        (review,) = await process.holdfast.reviews()
        gate.open.set()  # or the loop of this test would wait for it, too

    assert review.task_id == handle.id


# --- several processes


async def test_two_carriers_on_one_ledger_carry_every_run_once(ledger: Ledger, clock: FakeClock) -> None:
    first = ledger.open()
    second = first if getattr(first, "path", "") is None else ledger.open()
    done: Counter[str] = Counter()
    by: Counter[str] = Counter()

    async def touch(task_id: str) -> None:
        done[task_id] += 1

    def crowd_of(who: str) -> hf.TaskDefinition[[], None]:
        @hf.task(name="crowd")
        async def crowd(run: hf.Run) -> None:
            by[who] += 1
            await run.step(touch, run.task_id)

        return crowd

    ours, theirs = crowd_of("first"), crowd_of("second")
    async with (
        carrying(first, clock, ours, capacity=8) as one,
        carrying(second, clock, theirs, capacity=8) as other,
    ):
        handles = await one.holdfast.start_many([ours() for _ in range(60)])
        handles += await other.holdfast.start_many([theirs() for _ in range(60)])
        for handle in handles:
            await soon(handle.result())

    assert len(done) == 120
    assert set(done.values()) == {1}
    assert sum(by.values()) == 120


async def test_a_program_whose_claim_was_taken_while_it_was_frozen_is_stopped_and_carried_elsewhere(
    store: Store, clock: FakeClock, gate: GateAndNotes, others: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def freeze(_service: object) -> None: ...

    renew = Heartbeat.run_once
    monkeypatch.setattr(Heartbeat, "run_once", freeze)
    monkeypatch.setattr(Reaper, "run_once", freeze)
    waiting = waiting_task(gate)
    async with carrying(store, clock, waiting) as process:
        handle = await process.holdfast.start(waiting())
        await soon(gate.entered.wait())
        clock.advance(minutes=2)
        rescued = await others.rescuer.rescue_lapsed()
        await others.resumer.resume_all()
        await renew(process.worker._heartbeat)
        gate.open.set()

        assert rescued.checkpointed == 1
        assert await soon(handle.result()) == "after"
        assert [run.status for run in await process.runs(handle.id)] == [
            RunStatus.RESUMED,
            RunStatus.SUCCEEDED,
        ]
    assert Counter(gate.notes) == {"before": 1, "after": 1}


async def test_a_process_that_is_there_for_one_task_carries_it_with_its_children_and_nothing_else(
    store: Store, clock: FakeClock, gate: GateAndNotes
) -> None:
    waiting, note = waiting_task(gate), note_step(gate)

    @hf.task
    async def child(run: hf.Run) -> str:
        return await run.step(note, "child")

    @hf.task
    async def parent(run: hf.Run) -> str:
        return await (await run.spawn(child()))

    async with carrying(store, clock, waiting, step_patience=0.0) as process:
        paused = [await process.holdfast.start(waiting()) for _ in range(2)]
        ids = [one.id for one in paused]
        # A step whose function has returned but whose result is not saved yet would run once more.
        await until(lambda: len(store.read_now(lambda tx: tx.journal.steps_of(ids))) == 2)
    gate.open.set()
    family = Family()
    async with carrying(store, clock, waiting, parent, child, family=family) as process:
        other = await process.holdfast.start(parent())
        mine = await process.holdfast.start(parent())
        family.choose(mine.id)
        assert await soon(mine.result()) == "child"
    family = Family()
    async with carrying(store, clock, waiting, parent, child, family=family) as process:
        family.choose(paused[0].id)
        assert await soon(process.holdfast.handle(paused[0].id).result()) == "after"
        left = [await process.holdfast.handle(one.id).status() for one in (other, paused[1])]

    assert left == [TaskStatus.QUEUED, TaskStatus.PAUSED]
    assert Counter(gate.notes) == {"before": 2, "child": 1, "after": 1}


async def test_a_process_that_is_there_for_a_suspect_carries_it_alone(
    store: Store, clock: FakeClock, gate: GateAndNotes
) -> None:
    gate.open.set()
    suspect = stored_run(store, task={"name": "waiting", "arguments": b"{}"}, is_alone=True)
    other = stored_run(store, task={"name": "waiting", "arguments": b"{}"}, is_alone=True, priority=1)
    family = Family()
    async with carrying(store, clock, waiting_task(gate), family=family) as process:
        family.choose(suspect.task_id)

        assert await soon(process.holdfast.handle(suspect.task_id).result()) == "after"
    assert await runs_of(store, other.task_id) == [RunStatus.QUEUED]


# --- leases that lapse


async def test_a_run_whose_lease_lapses_again_and_again_is_told_once_and_tried_less_and_less_often(
    store: Store,
    clock: FakeClock,
    gate: GateAndNotes,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(taking, "ASK_EVERY_S", 0.01)

    @hf.tool(effect=hf.opaque)
    async def send() -> str:
        gate.notes.append("sent")
        return "sent"

    @hf.task(name="late")
    async def late(run: hf.Run) -> str:
        gate.notes.append("begun")
        if gate.count("begun") <= 4:
            clock.advance(seconds=31)  # its lease was not renewed meanwhile
        return await run.step(send)

    def is_put_off(times: int) -> bool:
        (run,) = store.read_now(lambda tx: tx.runs.of_task(handle.id))
        is_later = run.status is RunStatus.QUEUED and run.queue is Queue.LATER
        return is_later and gate.count("begun") == times

    async with carrying(store, clock, late) as process:
        handle = await process.holdfast.start(late())
        for pause_s, begun in ((1, 2), (2, 3), (4, 4)):
            await until(lambda: is_put_off(begun))  # noqa: B023 - asked at once
            (run,) = await process.runs(handle.id)
            assert run.due_at - clock.now() == timedelta(seconds=pause_s)
            clock.set(run.due_at)

        assert await soon(handle.result()) == "sent"

    assert gate.count("sent") == 1
    (told,) = [one.getMessage() for one in caplog.records if "lapsed" in one.getMessage()]
    assert told.startswith(f"{run.id} was released before an effect, because the lease had lapsed")


async def test_many_runs_whose_leases_lapse_together_are_told_in_one_line(
    store: Store, clock: FakeClock, gate: GateAndNotes, caplog: pytest.LogCaptureFixture
) -> None:
    @hf.tool(effect=hf.opaque)
    async def send() -> str:
        return "sent"

    @hf.task(name="late")
    async def late(run: hf.Run) -> str:
        gate.notes.append("begun")
        await gate.open.wait()
        return await run.step(send)

    async with carrying(store, clock, late) as process:
        handles = [await process.holdfast.start(late()) for _ in range(5)]
        await until(lambda: gate.count("begun") == 5)
        clock.advance(seconds=31)
        gate.open.set()

        assert [await soon(one.result()) for one in handles] == ["sent"] * 5

    (told,) = [one.getMessage() for one in caplog.records if "lapsed" in one.getMessage()]
    assert told.startswith("5 runs (run_")
