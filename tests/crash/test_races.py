"""Eight processes that start together share a thousand pieces of work: each is taken exactly once."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from holdfast.core.checkpoint import ResumeReason
from holdfast.core.clock import SystemClock
from holdfast.core.events import EventKind
from holdfast.core.transitions import CheckpointStatus, RunStatus
from holdfast.engine.claims.claims import ClaimedRun
from holdfast.store import Tx
from tests.crash.invariants import assert_ledger_is_whole
from tests.crash.ledger_address import LedgerAddress
from tests.crash.processes import Barrier, assert_ended_well, fork
from tests.engine.parts import Parts, a_new_task
from tests.servers import PostgresServer

pytestmark = pytest.mark.slow

PROCESSES = 8
WORK = 1_000
BATCH = 1000
TAKEN_AT_ONCE = 30

Take = Callable[[Parts], Awaitable[list[str]]]


async def queue_work(place: LedgerAddress) -> None:
    store = place.open()
    parts = await Parts.begin(store, SystemClock(), locks=place.locks)
    for _ in range(WORK // BATCH):
        await parts.ledger.create_many([a_new_task() for _ in range(BATCH)])
    await parts.life.end()
    store.close()


async def pause_work(place: LedgerAddress) -> None:
    store = place.open()
    parts = await Parts.begin(store, SystemClock(), locks=place.locks)
    while claimed := await parts.claims.take(BATCH):
        await parts.checkpoints.pause([one.claim for one in claimed], ResumeReason.SIGNAL)
    await parts.life.end()
    store.close()


async def claim_runs(parts: Parts) -> list[str]:
    return [one.run.id for one in await parts.claims.take(TAKEN_AT_ONCE)]


async def resume_checkpoints(parts: Parts) -> list[str]:
    resumed = await parts.resumer.settle(await parts.resumer.claim(TAKEN_AT_ONCE))
    assert resumed.failed == {}
    return list(resumed.followed_up)


async def take_part(place: LedgerAddress, barriers: list[Barrier], take: Take, number: int) -> None:
    """One of the processes: ready first, then all at once. SQLite does not care whose turn it is, so none
    takes a second time before all have taken once."""
    store = place.open()
    parts = await Parts.begin(store, SystemClock(), locks=place.locks)
    taken: list[str] = []
    for barrier in barriers:
        barrier.arrive()
        taken += await take(parts)
    while more := await take(parts):
        taken += more
    (place.home / f"taken-{number}").write_text("\n".join(taken))
    store.close()


def taken_together(place: LedgerAddress, take: Take) -> list[Counter[str]]:
    """What each of the processes took, when all began at the same moment."""
    barriers = [Barrier(), Barrier()]
    children = [
        fork(lambda number=number: asyncio.run(take_part(place, barriers, take, number)))  # type: ignore[misc]
        for number in range(PROCESSES)
    ]
    for barrier in barriers:
        barrier.open(PROCESSES)
    for child in children:
        assert_ended_well(child)
    texts = [(place.home / f"taken-{number}").read_text() for number in range(PROCESSES)]
    return [Counter(text.split()) for text in texts]


def assert_each_was_taken_once(taken: list[Counter[str]]) -> None:
    every = sum(taken, Counter[str]())
    assert len(every) == WORK
    assert set(every.values()) == {1}
    assert all(taken), "one process took nothing: that was no race"


def run(coroutine: Callable[[LedgerAddress], Awaitable[None]], place: LedgerAddress) -> None:
    """In a process of its own: this one must have no store when it forks."""

    async def whole() -> None:
        await coroutine(place)

    assert_ended_well(fork(lambda: asyncio.run(whole())))


def test_eight_processes_claim_a_thousand_runs_once_each(place: LedgerAddress) -> None:
    run(queue_work, place)

    taken = taken_together(place, claim_runs)

    assert_each_was_taken_once(taken)
    assert_ended_well(fork(partial(assert_all_are_running, place)))


def assert_all_are_running(place: LedgerAddress) -> None:
    store = place.open()
    contents = assert_ledger_is_whole(store)
    assert Counter(run.status for run in contents.runs.values()) == {RunStatus.RUNNING: WORK}
    assert {run.fence for run in contents.runs.values()} == {1}
    store.close()


def test_eight_processes_resume_a_thousand_checkpoints_once_each(place: LedgerAddress) -> None:
    run(queue_work, place)
    run(pause_work, place)

    taken = taken_together(place, resume_checkpoints)

    assert_each_was_taken_once(taken)
    assert_ended_well(fork(partial(assert_all_were_followed_up_once, place)))


def assert_all_were_followed_up_once(place: LedgerAddress) -> None:
    store = place.open()
    contents = assert_ledger_is_whole(store)
    statuses = Counter(one.status for one in contents.checkpoints.values())
    assert statuses == {CheckpointStatus.RESUMED: WORK}
    assert Counter(run.status for run in contents.runs.values()) == {
        RunStatus.RESUMED: WORK,
        RunStatus.QUEUED: WORK,
    }
    store.close()


async def test_a_task_is_told_in_the_order_in_which_it_happened_whichever_process_began_first(
    postgres_server: PostgresServer, quick_path: Path
) -> None:
    """A claim whose transaction began before the task was created takes it all the same, and comes second."""
    place = LedgerAddress(url=postgres_server.create_database(), home=quick_path)
    store = place.open()
    parts = await Parts.begin(store, SystemClock(), locks=place.locks)
    has_begun, is_created = threading.Event(), threading.Event()
    take = parts.claims._taking(1, token="token_one")

    def take_late(tx: Tx) -> list[ClaimedRun]:
        tx.boots.set_fact("begun", "yes")
        has_begun.set()
        assert is_created.wait(10)
        return take(tx)

    async with asyncio.TaskGroup() as group:
        taking = group.create_task(asyncio.to_thread(store.write_now, take_late))
        assert await asyncio.to_thread(has_begun.wait, 10)
        task = await parts.create()
        is_created.set()
    (claimed,) = taking.result()

    events = store.read_now(lambda tx: tx.events.of_task(task.id))
    assert claimed.task.id == task.id
    assert [event.kind for event in events] == [EventKind.TASK_CREATED, EventKind.RUN_CLAIMED]
    store.close()
    postgres_server.drop_database(place.url)
