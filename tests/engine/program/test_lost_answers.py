"""Every write of the engine run again after its own commit: the same answer, and nothing has changed.

So a commit whose answer was lost is settled by running the write once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest

from holdfast.core.checkpoint import CheckpointKind, ResumeReason
from holdfast.core.task import Failure, Progress
from holdfast.core.transitions import TaskStatus
from holdfast.engine.ledger.retention import Pruner
from holdfast.engine.recovery.resume import retrying
from holdfast.store import Store, Tx, Write
from holdfast.testing import FakeClock, name_of
from tests.builders import plan_of
from tests.crash.invariants import assert_ledger_is_whole
from tests.engine.dead_processes import die, spend_attempts
from tests.engine.parts import Parts, a_new_task
from tests.engine.tables import dump

T = TypeVar("T")

# What these answer is only a report of how much there was to do; the second time, nothing was.
REPORTS = {
    "Rescuer._rescuing.<locals>.rescue",
    "Rescuer._returning.<locals>.give_back",
    "Rescuer._ready_some.<locals>.ready",
    "pruning.<locals>.prune",
}


class Forgetful:
    """A store that loses the answer to every commit, and asks again."""

    def __init__(self, inner: Store) -> None:
        self.names: set[str] = set()
        self.problems: list[str] = []
        self._inner = inner

    async def write(self, write: Write[T]) -> T:
        first = await self._inner.write(write)
        before = dump(self._inner)
        again = await self._inner.write(write)
        name = name_of(write)
        self.names.add(name)
        if dump(self._inner) != before:
            self.problems.append(f"{name} changed something when it was run again")
        if again != first and name not in REPORTS:
            self.problems.append(f"{name} answered {first}, and then {again}")
        return first

    async def read(self, read: Callable[[Tx], T]) -> T:
        return await self._inner.read(read)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.fixture
def forgetful(store: Store) -> Iterator[Forgetful]:
    """Looks back at the end of the test: what was told inside a write, a careful caller would swallow."""
    forgetful = Forgetful(store)
    yield forgetful
    assert forgetful.problems == []


async def test_a_whole_life_may_lose_every_answer(
    forgetful: Forgetful, store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    parts = await Parts.begin(forgetful, clock, locks=tmp_path)
    await parts.ledger.create_many([a_new_task(key="one"), a_new_task(), a_new_task(arguments="x" * 20_000)])
    one, two, three = await parts.claims.take(3)
    await parts.claims.renew([one.claim, two.claim])
    await parts.journal.save_step(one.claim, "read", "calm", plan=plan_of("read", "write").complete("read"))
    await parts.journal.save_step(one.claim, "large", "x" * 20_000)
    await parts.journal.save_plan(one.claim, plan_of("read", "write"))
    await parts.artifacts.record_output(one.claim, "report", "calm")
    await parts.journal.decide(one.claim, "use the tables")
    await parts.ledger.progress(one.claim, Progress(done=1))
    await parts.checkpoints.record(one.claim, CheckpointKind.MILESTONE, "half-way")
    await parts.checkpoints.pause([one.claim, two.claim], ResumeReason.SIGNAL)
    await parts.resumer.resume_all(concurrency=1)
    await parts.claims.wait(three.claim, waits_on="the tide", due_at=clock.now() + timedelta(seconds=1))
    clock.advance(seconds=1)
    await parts.rescuer.ready_due()
    again = await parts.claims.take(3)
    await parts.claims.release(again[0].claim)
    await parts.ledger.finish(again[1].claim, "x" * 20_000)
    await parts.ledger.fail(again[2].claim, Failure(kind="storm", message="rough"))
    await parts.ledger.cancel(again[0].task.id, reason="enough")
    await parts.life.end()

    assert_ledger_is_whole(store, is_at_rest=True)
    assert len(forgetful.names) >= 18


async def test_a_recovery_may_lose_every_answer(
    forgetful: Forgetful, store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    dead = await Parts.begin(store, clock, locks=tmp_path)
    carried, resuming, recorded = await dead.carry(), await dead.carry(), await dead.create(runtime="media")
    (run,) = await dead.ledger.runs(recorded.id)
    await dead.claims.start(run.id)
    await dead.checkpoints.pause([resuming.claim], ResumeReason.SIGNAL)
    await dead.resumer.claim()
    await dead.ledger.cancel(carried.task.id, reason="enough")
    die(dead)

    parts = await Parts.begin(forgetful, clock, locks=tmp_path)
    rescued = await parts.rescuer.rescue()
    resumed = await parts.resumer.resume_all(concurrency=1)
    (again,) = await parts.claims.take(3)
    await parts.ledger.cancel(again.task.id, reason="enough")
    await parts.claims.wait(again.claim, waits_on="the tide")
    await parts.life.end()

    assert (rescued.checkpointed, rescued.returned, rescued.lost) == (1, 1, 1)
    assert (len(resumed.followed_up), len(resumed.cancelled)) == (1, 1)
    assert_ledger_is_whole(store, is_at_rest=True)


async def test_a_failed_resume_and_its_retry_may_lose_every_answer(
    forgetful: Forgetful, store: Store, clock: FakeClock
) -> None:
    parts = await Parts.begin(forgetful, clock)
    claimed = await parts.carry()
    spend_attempts(store)
    await parts.checkpoints.pause([claimed.claim], ResumeReason.TIMEOUT, kind=CheckpointKind.TIMEOUT)
    ((failed, _),) = (await parts.resumer.resume_all(concurrency=1)).failed.items()

    await forgetful.write(retrying(failed, now=clock.now()))
    resumed = await parts.resumer.resume_all(concurrency=1)

    assert len(resumed.followed_up) == 1
    assert_ledger_is_whole(store)


async def test_a_pruner_may_lose_every_answer(forgetful: Forgetful, store: Store, clock: FakeClock) -> None:
    parts = await Parts.begin(forgetful, clock)
    claimed = await parts.carry(key="tides")
    await parts.ledger.finish(claimed.claim, "x" * 20_000)
    clock.advance(days=31)

    await Pruner(forgetful, clock).run_once()

    assert (await parts.create(key="tides")).status is TaskStatus.SUCCEEDED
    assert store.verify() == []
