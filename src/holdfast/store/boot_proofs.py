"""Whether a boot is proved alive or dead: by its recorded end, or by its lock on this machine."""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.core.errors import StoreUnavailable
from holdfast.store.locks import is_held

if TYPE_CHECKING:
    from holdfast.core.claim import Boot

# Unique for each start of a kernel: virtual machines differ in it, containers on one kernel share it.
_KERNEL = Path("/proc/sys/kernel/random/boot_id")


class BootProofs:
    """Tests boots of one place by their locks. A process needs no boot of its own to do so."""

    def __init__(self, locks: Path | None, host: str) -> None:
        """`host` is the place of `locks`, as `place_of` names it: the locks of other places prove nothing."""
        self._locks = locks
        self._host = host

    @classmethod
    def beside(cls, locks: Path | None, *, is_shared: bool) -> BootProofs:
        """The proofs of a process that only looks at the ledger whose locks are there."""
        usable = None if is_shared and kernel() is None else locks
        return cls(usable, place_of(usable, is_shared=is_shared))

    def is_held(self, boot: Boot) -> bool | None:
        """Whether its lock is held; None if there is no proof: another place, no file, or not readable."""
        if self._locks is None or boot.host != self._host:
            return None
        try:
            return is_held(self._locks, boot.id)
        except StoreUnavailable:
            return None

    def has_died(self, boot: Boot) -> bool:
        """Whether it is proved dead: its end is recorded, or its lock can be taken. A lapsed lease or a
        missing lock file proves nothing."""
        return boot.ended_at is not None or self.is_held(boot) is False

    def is_alive(self, boot: Boot) -> bool:
        """Whether it is proved alive: it holds its lock."""
        return boot.ended_at is None and self.is_held(boot) is True


# What can be proved without any lock.
NO_PROOFS = BootProofs(None, "")


def place_of(locks: Path | None, *, is_shared: bool) -> str:
    """Where a boot's lock can be tested: only a process with the same place can prove a death by it.

    Cloned machines may have the same name and the same inodes. If machines share a ledger, the place
    therefore includes the running kernel. After a reboot, the boots from before are as unknown as those of a
    clone, and their leases must lapse. A ledger that is a file has its locks beside it: a process that can
    open the file is on the same machine, so a reboot does prove a death there.
    """
    if locks is None or not locks.is_dir():
        return f"{platform.node()}/-"
    where = locks.stat()
    digest = hashlib.blake2b(f"{where.st_dev}:{where.st_ino}".encode(), digest_size=8).hexdigest()
    return f"{platform.node()}/{digest}" + (f".{kernel()}" if is_shared else "")


def directory_of(host: str) -> str:
    """The beginning of a place that all boots share whose locks are, or were, in the same directory."""
    node, slash, where = host.rpartition("/")
    return node + slash + where.partition(".")[0]


def kernel() -> str | None:
    """The id of this start of the kernel; None if the system has none."""
    try:
        return _KERNEL.read_text().strip() or None
    except OSError:
        return None
