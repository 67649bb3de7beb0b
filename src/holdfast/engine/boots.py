"""This process's life: registered in the ledger, proved by a lock, told apart from every other life."""

from __future__ import annotations

import hashlib
import os
import platform
from datetime import datetime
from pathlib import Path

from holdfast.core.claim import Boot
from holdfast.core.clock import Clock
from holdfast.core.errors import StoreUnavailable
from holdfast.core.events import EventKind
from holdfast.core.ids import BootId, new_boot_id
from holdfast.engine.claims import wake_run
from holdfast.store import Store, Tx, Write
from holdfast.store.locks import BootLock, bury, is_dead


class Life:
    """One boot of one process. Its id is never used again, so a new life never inherits an old claim."""

    def __init__(
        self, store: Store, clock: Clock, boot: Boot, locks: Path | None, lock: BootLock | None
    ) -> None:
        self._store = store
        self._clock = clock
        self._locks = locks
        self._lock = lock
        self.boot = boot

    @classmethod
    async def begin(cls, store: Store, clock: Clock, *, locks: Path | None, role: str = "script") -> Life:
        """Take the lock first, register second: a registered boot without a lock would look dead."""
        now = clock.now()
        boot = Boot(id=new_boot_id(now), host=_make_place(locks), pid=os.getpid(), role=role, started_at=now)
        lock = None if locks is None else BootLock.take(locks, boot.id)

        def register(tx: Tx) -> None:
            if tx.boots.begin(boot):
                tx.emit(EventKind.BOOT_STARTED, boot.id, at=now, role=role, pid=boot.pid)

        try:
            await store.write(register)
        except BaseException:
            if lock is not None:
                lock.release()
            raise
        return cls(store, clock, boot, locks, lock)

    @property
    def id(self) -> BootId:
        return self.boot.id

    def has_died(self, boot: Boot | None) -> bool:
        """Whether its death is proved: it ended, or its lock can be taken. A lapsed lease is no proof."""
        if boot is None or boot.id == self.boot.id:
            return False
        if boot.ended_at is not None:
            return True
        if self._locks is None or boot.host != self.boot.host:
            return False
        try:
            return is_dead(self._locks, boot.id)
        except StoreUnavailable:
            return False

    def is_alive(self, boot: Boot | None) -> bool:
        """Whether its life is proved: it is another than this one, and holds its lock."""
        if boot is None or boot.id == self.boot.id or boot.ended_at is not None:
            return False
        return self._locks is not None and boot.host == self.boot.host and not self.has_died(boot)

    def is_here(self, boot: Boot) -> bool:
        """Whether it lives, or lived, on this machine: only then can what it did be seen from here."""
        return boot.node == self.boot.node

    async def bury(self, boot: Boot) -> None:
        """Note the end of a dead boot that carries nothing any more. Raises StoreUnavailable if it lives."""
        if not self.has_died(boot):
            raise StoreUnavailable(f"{boot.id} is not known to be dead, so its end is not noted")
        await self._store.write(_noting_end(boot, "died", self._clock.now()))
        if self._locks is not None and boot.host == self.boot.host:
            bury(self._locks, boot.id)

    async def end(self) -> None:
        """A clean end. What this boot still carries can be rescued from now on. Safe twice."""
        await self._store.write(_noting_end(self.boot, "clean", self._clock.now()))
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def waits_for_boot(boot_id: str) -> str:
    """What a run waits on until the effects that a boot has begun can be settled."""
    return f"boot:{boot_id}"


def _noting_end(boot: Boot, how: str, now: datetime) -> Write[None]:
    """The end of a boot; who waits for it goes on, in the same write."""

    def note_end(tx: Tx) -> None:
        if not tx.boots.end(boot.id, now=now):
            return
        tx.emit(EventKind.BOOT_ENDED, boot.id, at=now, how=how, pid=boot.pid)
        waiting = tx.runs.waiting_on(waits_for_boot(boot.id))
        # In one order, so that two who do the same cannot lock each other out.
        for run_id, task_id in sorted(waiting, key=lambda ids: ids[1]):
            tx.tasks.lock(task_id)
            wake_run(tx, run_id, now=now)

    return note_end


def _make_place(locks: Path | None) -> str:
    if locks is not None:
        locks.mkdir(mode=0o700, parents=True, exist_ok=True)
    return place_of(locks)


def place_of(locks: Path | None) -> str:
    """Where a boot's lock can be tested: only who has the same place can prove a death by it."""
    if locks is None or not locks.is_dir():
        return f"{platform.node()}/-"
    where = locks.stat()
    digest = hashlib.blake2b(f"{where.st_dev}:{where.st_ino}".encode(), digest_size=8).hexdigest()
    return f"{platform.node()}/{digest}"
