"""The life of one process (a boot): registered in the ledger, and proved by a lock that it holds."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

from holdfast import trust
from holdfast.core.claim import Boot
from holdfast.core.clock import Clock
from holdfast.core.errors import OutcomeUnknown, StoreUnavailable
from holdfast.core.events import EventKind
from holdfast.core.ids import BootId, new_boot_id
from holdfast.engine.claims.claims import wake_run
from holdfast.store import Store, Tx, Write
from holdfast.store.boot_proofs import BootProofs, directory_of, kernel, place_of
from holdfast.store.locks import BootLock, bury, is_held

# A boot of this place without runs is forgotten after this time, if nothing proves it dead or alive.
FORGET_AFTER = timedelta(days=1)


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
        # What can be proved here about every boot, this one included.
        self.proofs = BootProofs(locks, boot.host)
        # Whether a thread of this process runs an effect. A thread cannot be interrupted.
        self.is_at_work: Callable[[], bool] = lambda: False

    @classmethod
    async def begin(
        cls,
        store: Store,
        clock: Clock,
        *,
        locks: Path | None,
        role: str = "script",
        is_shared: bool = True,
        names: Sequence[str] | None = None,
    ) -> Life:
        """Take the lock first and register second, so that no registered boot is ever without its lock.

        `is_shared` says whether other machines may use the ledger: always, unless it is a file. `names` are
        the tasks that this process can run; None means any.
        """
        now = clock.now()
        if is_shared and kernel() is None:
            locks = None  # a lock proves nothing here: a clone of this machine would look the same
        if locks is not None:
            trust.make_private_directory(locks)
        host = place_of(locks, is_shared=is_shared)
        boot = Boot(
            id=new_boot_id(now),
            host=host,
            pid=os.getpid(),
            role=role,
            started_at=now,
            task_names=None if names is None else tuple(names),
        )
        lock = None if locks is None else BootLock.take(locks, boot.id)

        def register(tx: Tx) -> None:
            if tx.boots.begin(boot):
                tx.emit(EventKind.BOOT_STARTED, boot.id, at=now, role=role, pid=boot.pid)

        is_registered: bool | None = None
        try:
            await store.write(register)
            is_registered = True
        except StoreUnavailable as error:
            is_registered = None if isinstance(error, OutcomeUnknown) else False
            raise
        finally:
            if lock is not None and not is_registered:
                # If the boot may be registered after all, keep its file: it proves that the boot is dead.
                lock.release(keeps_file=is_registered is None)
        return cls(store, clock, boot, locks, lock)

    @property
    def id(self) -> BootId:
        return self.boot.id

    def has_died(self, boot: Boot | None) -> bool:
        """Whether the boot is proved dead: its end is recorded, or its lock can be taken. A lapsed lease or a
        missing lock file proves nothing."""
        return boot is not None and boot.id != self.boot.id and self.proofs.has_died(boot)

    @property
    def directory(self) -> str:
        """The prefix that all boots share in `host` whose locks are, or were, in the same directory."""
        return directory_of(self.boot.host)

    def is_lost(self, boot: Boot) -> bool:
        """Whether nothing can ever prove the boot dead: it began long ago, and its lock file is missing or is
        from before the kernel restarted."""
        if self._locks is None or boot.id == self.boot.id or boot.ended_at is not None:
            return False
        is_old = self._clock.now() - boot.started_at >= FORGET_AFTER
        if not is_old or directory_of(boot.host) != self.directory:
            return False
        try:
            return not is_held(self._locks, boot.id)
        except StoreUnavailable:
            return True

    def is_alive(self, boot: Boot | None) -> bool:
        """Whether the boot is proved alive: it is another process, and holds its lock."""
        return boot is not None and boot.id != self.boot.id and self.proofs.is_alive(boot)

    def is_here(self, boot: Boot) -> bool:
        """Whether the boot runs, or ran, on this machine: only then can its effects be verified here."""
        return boot.node == self.boot.node

    async def bury(self, boot: Boot) -> None:
        """Record the end of a dead boot that has no runs any more. Raises StoreUnavailable if it is alive."""
        # Another process may have recorded the end meanwhile: then the lock file is gone, so read it again.
        if not self.has_died(boot) and not self.has_died(
            await self._store.read(lambda tx: tx.boots.get(boot.id))
        ):
            raise StoreUnavailable(f"{boot.id} is not known to be dead, so its end is not noted")
        # Record the end first, then remove the file: a stray file is harmless, a missing one proves nothing.
        await self._store.write(_noting_end(boot, "died", self._clock.now()))
        self._remove_lock_of(boot)

    async def forget(self, boot: Boot) -> None:
        """Remove a lost boot without runs. If it is alive after all, its leases still count."""
        now = self._clock.now()

        def forget(tx: Tx) -> None:
            if tx.boots.forget(boot.id):
                tx.emit(EventKind.BOOT_ENDED, boot.id, at=now, how="lost", pid=boot.pid)

        await self._store.write(forget)
        self._remove_lock_of(boot)

    def _remove_lock_of(self, boot: Boot) -> None:
        if self._locks is not None and directory_of(boot.host) == self.directory:
            with suppress(StoreUnavailable):  # the boot may be removing the file itself
                bury(self._locks, boot.id)

    async def end(self) -> None:
        """Record a clean end: from now on other processes may rescue what this boot still has. Safe twice.

        While a thread of this process runs an effect, nothing is recorded: the effect ends only with the
        process, and the lock proves that.
        """
        if self.is_at_work():
            return
        await self._store.write(_noting_end(self.boot, "clean", self._clock.now()))
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def waits_for_boot(boot_id: str) -> str:
    """What a run waits on (`waits_on`) until the effects that a boot began can be settled."""
    return f"boot:{boot_id}"


def _noting_end(boot: Boot, how: str, now: datetime) -> Write[None]:
    """The write that records the end of a boot and wakes the runs that wait for it."""

    def note_end(tx: Tx) -> None:
        if not tx.boots.end(boot.id, now=now):
            return
        tx.emit(EventKind.BOOT_ENDED, boot.id, at=now, how=how, pid=boot.pid)
        waiting = tx.runs.waiting_on(waits_for_boot(boot.id))
        # Lock tasks in one order, to avoid a deadlock with another process that does the same.
        for run_id, task_id in sorted(waiting, key=lambda ids: ids[1]):
            tx.tasks.lock(task_id)
            wake_run(tx, run_id, now=now)

    return note_end
