"""This process's life: registered in the ledger, proved by a lock, told apart from every other life."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Callable
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
from holdfast.store.locks import BootLock, bury, is_held

# A boot of this place that carries nothing and of which nothing is proved is forgotten after that time.
FORGET_AFTER = timedelta(days=1)
# Different after every start of a kernel, and in every virtual machine; the same in all containers of one.
_KERNEL = Path("/proc/sys/kernel/random/boot_id")


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
        # Whether a thread of this process does an effect: nobody can interrupt it.
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
    ) -> Life:
        """Take the lock first, register second: what a boot carries is never without a lock.

        `is_shared` says that other machines may use the ledger, which is so unless it is a file.
        """
        now = clock.now()
        if is_shared and kernel() is None:
            locks = None  # no lock proves anything there: a clone of this machine would look like this one
        if locks is not None:
            trust.make_private_directory(locks)
        host = place_of(locks, is_shared=is_shared)
        boot = Boot(id=new_boot_id(now), host=host, pid=os.getpid(), role=role, started_at=now)
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
                # If it may have been registered after all, its file stays and proves that it is dead.
                lock.release(keeps_file=is_registered is None)
        return cls(store, clock, boot, locks, lock)

    @property
    def id(self) -> BootId:
        return self.boot.id

    def has_died(self, boot: Boot | None) -> bool:
        """Whether its death is proved: it ended, or its lock can be taken. A lapsed lease is no proof, nor
        is a lock file that is missing."""
        if boot is None or boot.id == self.boot.id:
            return False
        if boot.ended_at is not None:
            return True
        if self._locks is None or boot.host != self.boot.host:
            return False
        return self._is_held(boot) is False

    def _is_held(self, boot: Boot) -> bool | None:
        assert self._locks is not None
        try:
            return is_held(self._locks, boot.id)
        except StoreUnavailable:
            return None

    @property
    def directory(self) -> str:
        """How the hosts begin of all boots whose locks lie, or once lay, where this one's does."""
        return _directory_of(self.boot.host)

    def is_lost(self, boot: Boot) -> bool:
        """Whether nothing will ever be proved of it: its lock file is missing, or was left by another run of
        the kernel; and it began long ago."""
        if self._locks is None or boot.id == self.boot.id or boot.ended_at is not None:
            return False
        is_old = self._clock.now() - boot.started_at >= FORGET_AFTER
        return is_old and _directory_of(boot.host) == self.directory and not self._is_held(boot)

    def is_alive(self, boot: Boot | None) -> bool:
        """Whether its life is proved: it is another than this one, and holds its lock."""
        if boot is None or boot.id == self.boot.id or boot.ended_at is not None:
            return False
        return self._locks is not None and boot.host == self.boot.host and self._is_held(boot) is True

    def is_here(self, boot: Boot) -> bool:
        """Whether it lives, or lived, on this machine: only then can what it did be seen from here."""
        return boot.node == self.boot.node

    async def bury(self, boot: Boot) -> None:
        """Note the end of a dead boot that carries nothing any more. Raises StoreUnavailable if it lives."""
        # Another process may have buried it since it was read: then its file is gone, and its end is noted.
        if not self.has_died(boot) and not self.has_died(
            await self._store.read(lambda tx: tx.boots.get(boot.id))
        ):
            raise StoreUnavailable(f"{boot.id} is not known to be dead, so its end is not noted")
        # First the end, then the file: a file that stays harms nobody, one that is missing proves nothing.
        await self._store.write(_noting_end(boot, "died", self._clock.now()))
        self._remove_lock_of(boot)

    async def forget(self, boot: Boot) -> None:
        """Remove a lost boot that carries nothing. That proves nothing: if it lives, its leases count on."""
        now = self._clock.now()

        def forget(tx: Tx) -> None:
            if tx.boots.forget(boot.id):
                tx.emit(EventKind.BOOT_ENDED, boot.id, at=now, how="lost", pid=boot.pid)

        await self._store.write(forget)
        self._remove_lock_of(boot)

    def _remove_lock_of(self, boot: Boot) -> None:
        if self._locks is not None and _directory_of(boot.host) == self.directory:
            with suppress(StoreUnavailable):  # it may be about to remove the file itself
                bury(self._locks, boot.id)

    async def end(self) -> None:
        """A clean end. What this boot still carries can be rescued from now on. Safe twice.

        Nothing is noted while a thread of this process does an effect: only the end of the process, which the
        lock proves, ends that.
        """
        if self.is_at_work():
            return
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


def place_of(locks: Path | None, *, is_shared: bool) -> str:
    """Where a boot's lock can be tested: only who has the same place can prove a death by it.

    Cloned machines may have equal names and equal inodes. Where machines share a ledger, the place names the
    running kernel, too: on one kernel, a lock that can be taken is held by nobody. What ran before a reboot
    is then as unknown as what runs on a clone, and waits for its lease. A ledger that is a file has its locks
    beside it: whoever finds that file is on the machine that has both, so there a reboot proves the death.
    """
    if locks is None or not locks.is_dir():
        return f"{platform.node()}/-"
    where = locks.stat()
    digest = hashlib.blake2b(f"{where.st_dev}:{where.st_ino}".encode(), digest_size=8).hexdigest()
    return f"{platform.node()}/{digest}" + (f".{kernel()}" if is_shared else "")


def _directory_of(host: str) -> str:
    node, slash, where = host.rpartition("/")
    return node + slash + where.partition(".")[0]


def kernel() -> str | None:
    """Which run of which kernel this is; None where the system does not tell."""
    try:
        return _KERNEL.read_text().strip() or None
    except OSError:
        return None
