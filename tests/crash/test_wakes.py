"""Processes that carry long tasks are killed at random between save, wake and resume.

HOLDFAST_KILLS=300 kills so many in all, over more tasks at a time; HOLDFAST_SEED=… has the same moments again
(as far as two processes meet at the same moments).
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.core.checkpoint import CheckpointKind
from holdfast.core.transitions import TaskStatus, WakeStatus
from tests.crash.invariants import assert_ledger_is_whole
from tests.crash.ledger_address import LedgerAddress
from tests.crash.processes import assert_ended_well, fork, kill

pytestmark = pytest.mark.slow

# In all, on both databases.
KILLS = int(os.environ.get("HOLDFAST_KILLS") or 20)
TASKS = 3 if KILLS <= 20 else 10
STEPS = 24
STEP_S = 0.1


def work(number: int, log: str) -> int:
    time.sleep(STEP_S)  # the work itself
    with Path(log).open("a") as file:
        file.write(f"{number}\n")
    return number


@hf.task(run_timeout="600ms", smart_wake="always", wake_after="150ms", attempts=1000)
async def long(run: hf.Run, log: str) -> int:
    async for turn in run.turns(max=STEPS):
        await turn.step(work, turn.number, log)
    return STEPS


def live(place: LedgerAddress, *, until_done: bool) -> None:
    async def carry() -> None:
        async with hf.open(place.url, tasks=[long], home=place.home) as holdfast:
            handles = [
                await holdfast.start(long(str(log_of(place, number))), key=f"smartwake_repo_{number}")
                for number in range(TASKS)
            ]
            if until_done:
                for handle in handles:
                    assert await handle.result() == STEPS
            await asyncio.Event().wait() if not until_done else None

    asyncio.run(carry())


def log_of(place: LedgerAddress, number: int) -> Path:
    return place.home / f"{number}.log"


def test_no_wake_is_lost_doubled_or_left_when_processes_are_killed_at_random(
    place: LedgerAddress, seed: int
) -> None:
    chance = random.Random(seed)
    for _ in range(KILLS // 2):
        pid = fork(lambda: live(place, until_done=False))
        time.sleep(chance.uniform(0.2, 1.3))  # the moment of the kill
        kill(pid)
    store = place.open()
    assert_ledger_is_whole(store)
    store.close()
    assert_ended_well(fork(lambda: live(place, until_done=True)))

    store = place.open()
    assert_ledger_is_whole(store, is_at_rest=True)
    tasks = store.read_now(lambda tx: tx.tasks.page(limit=100))
    assert [task.status for task in tasks] == [TaskStatus.SUCCEEDED] * TASKS
    wakes = store.read_now(lambda tx: tx.wakes.page(limit=1000))
    checkpoints = store.read_now(lambda tx: tx.checkpoints.page(limit=1000))
    saved = [one for one in checkpoints if one.kind is CheckpointKind.TIMEOUT]
    assert {wake.status for wake in wakes} == {WakeStatus.FIRED}
    assert sorted(str(wake.checkpoint_id) for wake in wakes) == sorted(one.id for one in saved)
    assert all(one.resumed_run_id is not None for one in saved)
    store.close()
    for number in range(TASKS):
        done = Counter(log_of(place, number).read_text().split())
        assert sorted(map(int, done)) == list(range(1, STEPS + 1))
        # A step is done again only if its process died inside it.
        assert sum(done.values()) - STEPS <= KILLS // 2
