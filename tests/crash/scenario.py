"""A short life that pauses, claims, resumes and finishes, and the life after it that brings all to its end.

Both are plain sequences: run over the same ledger they make the same calls with the same statements, so that
a process can be made to die at every one of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from holdfast.core.checkpoint import ResumeReason
from holdfast.core.clock import Clock
from holdfast.core.task import Failure, Task
from holdfast.engine.claims.claims import ClaimedRun
from holdfast.engine.ledger.ledger import Finished
from holdfast.engine.recovery.resume import Resumed
from holdfast.store import Store
from tests.builders import plan_of
from tests.engine.parts import Parts, a_new_task

Note = Callable[..., object]

NAMES = ("paused", "resumed", "finished", "failed", "waits")
LARGE = "y" * 20_000
# More than any life needs: what is left after so many rounds is stuck, and the checks will say so.
MANY_ROUNDS = 10
LIVE = frozenset({"queued", "running", "waiting", "needs_review", "paused"})


class Scenario:
    """The two lives over one ledger. `round_name` keeps the keys of several rounds apart."""

    def __init__(
        self, clock: Clock, locks: Path, note: Note, *, round_name: str = "", wait_s: int = 1
    ) -> None:
        self._clock = clock
        self._locks = locks
        self._note = note
        self._round_name = round_name
        self._wait = timedelta(seconds=wait_s)
        self._begun: list[Parts] = []

    async def first_life(self, store: Store) -> None:
        """Create, claim, save, pause, finish, fail, wait, resume, claim, finish."""
        parts = await self._begin(store)
        await self._create(parts)
        paused, resumed, finished, failed, waits = await self._take(parts, 5)
        await self._step(parts, paused, "read", LARGE)
        await self._step(parts, resumed, "read", "small")
        await self._pause(parts, [paused, resumed])
        await self._finish(parts, finished, LARGE)
        await parts.ledger.fail(failed.claim, Failure(kind="storm", message="rough sea"))
        self._note("failed", task=failed.task.id)
        await parts.claims.wait(waits.claim, waits_on="the tide", due_at=self._clock.now() + self._wait)
        self._note("waited", run=waits.run.id, value=waits.claim.fence)
        await self._resume(parts)
        (again,) = await self._take(parts, 1)
        await self._step(parts, again, "write", "more")

    async def next_life(self, store: Store) -> None:
        """Create again what may never have been acknowledged, recover, and work until nothing is left."""
        parts = await self._begin(store)
        await self._create(parts)
        await parts.rescuer.rescue()
        await self._resume(parts)
        for _ in range(MANY_ROUNDS):
            if not await self._is_anything_left(parts):
                break
            await parts.rescuer.rescue()
            await self._resume(parts)
            for one in await self._take(parts, 5):
                await self._step(parts, one, "read", "late")
                await self._finish(parts, one, "done")
        await parts.life.end()

    def die(self) -> None:
        """What the kernel does for a process that is gone: its locks are free, its files stay."""
        for parts in self._begun:
            lock = parts.life._lock
            if lock is not None and lock._descriptor is not None:
                os.close(lock._descriptor)
                lock._descriptor = None
        self._begun.clear()

    async def _begin(self, store: Store) -> Parts:
        parts = await Parts.begin(store, self._clock, locks=self._locks, max_idle_attempts=100)
        self._begun.append(parts)
        return parts

    async def _create(self, parts: Parts) -> list[Task]:
        wanted = [
            a_new_task(name=name, key=f"{self._round_name}{name}", priority=priority)
            for priority, name in enumerate(NAMES)
        ]
        created = await parts.ledger.create_many(wanted)
        for task in created:
            self._note("created", task=task.id, name=task.dedup_key)
        return created

    async def _take(self, parts: Parts, limit: int) -> list[ClaimedRun]:
        claimed = await parts.claims.take(limit)
        for one in claimed:
            self._note("claimed", run=one.run.id, value=one.claim.fence)
        return claimed

    async def _step(self, parts: Parts, one: ClaimedRun, name: str, value: Any) -> None:
        plan = plan_of("read", "write").complete(name)
        if await parts.journal.save_step(one.claim, name, value, plan=plan):
            self._note("step", task=one.task.id, name=name, value=value)

    async def _pause(self, parts: Parts, carried: Sequence[ClaimedRun]) -> None:
        claims = [one.claim for one in carried]
        paused = await parts.checkpoints.pause(claims, ResumeReason.EXPLICIT_RESTART)
        assert paused.lost == ()
        for checkpoint in paused.checkpoints:
            self._note("paused", checkpoint=checkpoint.id, run=checkpoint.run_id)

    async def _resume(self, parts: Parts) -> None:
        # One lane, so that the same life makes the same calls in the same order.
        resumed: Resumed = await parts.resumer.resume_all(concurrency=1)
        for checkpoint, run in resumed.followed_up.items():
            self._note("resumed", checkpoint=checkpoint, run=run)

    async def _finish(self, parts: Parts, one: ClaimedRun, value: Any) -> None:
        outcome = await parts.ledger.finish(one.claim, value)
        assert isinstance(outcome, Finished)
        self._note("finished", task=one.task.id, run=one.run.id, value=value)

    async def _is_anything_left(self, parts: Parts) -> bool:
        counts = await parts.store.read(lambda tx: tx.events.counts("task"))
        return any(counts.get(status) for status in LIVE)
