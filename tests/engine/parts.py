"""The engine's parts wired together over one store, as one life of one process has them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from holdfast.core.checkpoint import DEFAULT_MAX_IDLE_ATTEMPTS
from holdfast.core.claim import DEFAULT_LEASE
from holdfast.core.clock import Clock
from holdfast.core.task import Task
from holdfast.engine.claims.boots import Life
from holdfast.engine.claims.claims import ClaimedRun, Claims
from holdfast.engine.journal.artifacts import ArtifactRecorder
from holdfast.engine.ledger.ledger import Ledger, NewTask
from holdfast.engine.recovery.checkpoints import Checkpoints
from holdfast.engine.recovery.rescue import Rescuer
from holdfast.engine.recovery.resume import Resumed, Resumer
from holdfast.store import Store
from tests.engine.journal_writer import JournalWriter


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """One life: everything it does goes through the same store and carries the same boot's id."""

    store: Store
    clock: Clock
    life: Life
    ledger: Ledger
    claims: Claims
    journal: JournalWriter
    artifacts: ArtifactRecorder
    checkpoints: Checkpoints
    rescuer: Rescuer
    resumer: Resumer

    @classmethod
    async def begin(
        cls,
        store: Store,
        clock: Clock,
        *,
        locks: Path | None = None,
        lease: timedelta = DEFAULT_LEASE,
        max_idle_attempts: int = DEFAULT_MAX_IDLE_ATTEMPTS,
    ) -> Parts:
        life = await Life.begin(store, clock, locks=locks)
        return cls(
            store=store,
            clock=clock,
            life=life,
            ledger=Ledger(store, clock),
            claims=Claims(store, clock, life.id, lease=lease),
            journal=JournalWriter(store, clock),
            artifacts=ArtifactRecorder(store, clock),
            checkpoints=Checkpoints(store, clock),
            rescuer=Rescuer(store, clock, life),
            resumer=Resumer(store, clock, life.id, lease=lease, max_idle_attempts=max_idle_attempts),
        )

    async def create(self, **changes: Any) -> Task:
        """A task; what is not said is sensible."""
        return await self.ledger.create(a_new_task(**changes))

    async def carry(self, **changes: Any) -> ClaimedRun:
        """A new task of ours, taken at once; nothing else may be ready."""
        task = await self.create(**changes)
        (claimed,) = await self.claims.take()
        assert claimed.task.id == task.id
        return claimed

    async def recover(self) -> Resumed:
        """What every process does first: rescue what no worker carries, and resume it."""
        await self.rescuer.rescue()
        return await self.resumer.resume_all()


def a_new_task(**changes: Any) -> NewTask:
    return NewTask(**{"name": "research", "goal": "find out how tides work", "owner": "ada"} | changes)
