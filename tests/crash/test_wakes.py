"""Processes that carry long tasks are killed between save, wake and resume, at moments drawn at random.

A task works for four seconds, and a run of it may take one and a half. HOLDFAST_KILLS=300 kills so often
in all, over more tasks at a time, which are longer; HOLDFAST_SEED=… draws the same moments again (as far as
two processes meet at the same moments).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import msgspec
import pytest

import holdfast as hf
from holdfast.core.checkpoint import CheckpointKind
from holdfast.core.events import EventKind
from holdfast.core.transitions import TaskStatus, WakeStatus
from holdfast.store import Store
from tests.crash.invariants import assert_ledger_is_whole, contents_of
from tests.crash.ledger_address import LedgerAddress
from tests.crash.processes import assert_ended_well, assert_was_killed, fork

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

# In all, on both databases.
KILLS = int(os.environ.get("HOLDFAST_KILLS") or 20)
# At a time. When one has ended, the next one begins, so that each kill hits work.
TASKS = 3 if KILLS <= 20 else 10
STEPS, STEP_S = 24 if KILLS <= 20 else 100, 0.15
RUN_S = 1.5
WAKE_AFTER_S = 0.4
# A process that comes no further than this saves no run any more.
PATIENCE_S = 60.0
SAVED, WOKEN, ANY = "saved", "woken", "any"


def work(number: int, log: str) -> int:
    time.sleep(STEP_S)  # the work itself
    with Path(log).open("a") as file:
        file.write(f"{number}\n")
    return number


@hf.task(run_timeout=RUN_S, smart_wake="always", wake_after=WAKE_AFTER_S, attempts=1000)
async def long(run: hf.Run, log: str) -> int:
    async for turn in run.turns(max=STEPS):
        await turn.step(work, turn.number, log)
    return STEPS


def log_of(place: LedgerAddress, key: str) -> Path:
    return place.home / f"{key}.log"


async def carry(place: LedgerAddress, keys: list[str]) -> None:
    async with hf.open(place.url, tasks=[long], home=place.home) as holdfast:
        for key in keys:
            handle = await holdfast.start(long(str(log_of(place, key))), key=key)
            assert await handle.result() == STEPS


def live(place: LedgerAddress) -> None:
    """Carry so many tasks at a time, and a new one for each that has ended, until it is killed."""

    async def lane(holdfast: hf.Holdfast, number: int) -> None:
        for count in itertools.count():
            key = f"smartwake_repo_{number}_{count}"
            handle = await holdfast.start(long(str(log_of(place, key))), key=key)
            assert await handle.result() == STEPS

    async def carry_all() -> None:
        async with (
            hf.open(place.url, tasks=[long], home=place.home) as holdfast,
            asyncio.TaskGroup() as group,
        ):
            for number in range(TASKS):
                group.create_task(lane(holdfast, number))

    asyncio.run(carry_all())


class Strike(msgspec.Struct, frozen=True, kw_only=True):
    """When a process is killed: so long after a run was saved, after a wake has fired, or after its start."""

    after: str
    delay_s: float

    @classmethod
    def drawn(cls, after: str, chance: random.Random) -> Strike:
        # The save and the resume take some milliseconds, and the wait for the wake most of half a second.
        longest = {SAVED: chance.choice((0.02, WAKE_AFTER_S)), WOKEN: 0.05, ANY: RUN_S}[after]
        return cls(after=after, delay_s=chance.uniform(0.0, longest))


def strike(place: LedgerAddress, victim: int, how: Strike) -> None:
    """Kill it at that moment, and note what the ledger says then."""
    with contextlib.closing(place.open()) as store:
        before, give_up_at = wakes_of(store), time.monotonic() + PATIENCE_S
        while how.after != ANY and not (wakes_of(store)[how.after] - before[how.after]):
            assert time.monotonic() < give_up_at, f"no run was {how.after} in {PATIENCE_S:g} s"
            time.sleep(0.002)
        time.sleep(how.delay_s)
        os.kill(victim, signal.SIGKILL)
        tasks = store.read_now(lambda tx: tx.tasks.page(limit=2 * TASKS))
    with (place.home / "hits").open("a") as file:
        file.write(",".join(task.status.value for task in tasks if not task.has_ended) + "\n")


def wakes_of(store: Store) -> dict[str, set[str]]:
    """The newest wakes: those that are scheduled, and those that have fired."""
    newest = store.read_now(lambda tx: tx.wakes.page(limit=4 * TASKS))
    return {
        SAVED: {wake.id for wake in newest},
        WOKEN: {wake.id for wake in newest if wake.status is WakeStatus.FIRED},
    }


def test_no_wake_is_lost_doubled_or_left_when_processes_are_killed_at_random(
    place: LedgerAddress, seed: int
) -> None:
    chance = random.Random(seed)
    for after in itertools.islice(itertools.cycle((SAVED, WOKEN, ANY)), KILLS // 2):
        how = Strike.drawn(after, chance)
        victim = fork(lambda: live(place))
        killer = fork(lambda: strike(place, victim, how))  # noqa: B023 - they run at once
        assert_ended_well(killer)
        assert_was_killed(victim)
    store = place.open()
    assert_ledger_is_whole(store)
    keys = sorted(str(task.dedup_key) for task in contents_of(store).tasks.values())
    store.close()
    assert_ended_well(fork(lambda: asyncio.run(carry(place, keys))))

    store = place.open()
    assert_ledger_is_whole(store, is_at_rest=True)
    found = contents_of(store)
    store.close()
    assert {task.status for task in found.tasks.values()} == {TaskStatus.SUCCEEDED}
    saved = [one for one in found.checkpoints.values() if one.kind is CheckpointKind.TIMEOUT]
    assert {wake.status for wake in found.wakes.values()} == {WakeStatus.FIRED}
    fired = Counter(event.subject_id for event in found.events if event.kind is EventKind.WAKE_FIRED)
    assert fired == dict.fromkeys(found.wakes, 1)
    assert sorted(str(wake.checkpoint_id) for wake in found.wakes.values()) == sorted(one.id for one in saved)
    assert all(one.resumed_run_id is not None for one in saved)
    hits = (place.home / "hits").read_text().splitlines()
    # No kill came when all work was done.
    assert len(hits) == KILLS // 2
    assert all(hits)
    for key in keys:
        done = Counter(log_of(place, key).read_text().split())
        assert sorted(map(int, done)) == list(range(1, STEPS + 1))
        # A step is done again only if its process died inside it.
        assert sum(done.values()) - STEPS <= KILLS // 2
