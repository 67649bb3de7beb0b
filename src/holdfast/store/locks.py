"""File locks that prove that a process is alive: one per boot, one per home.

They are flock locks, which belong to the open file description: no other open or close in the process drops
them, and the kernel drops them when the last copy of the descriptor is gone, however the process ended.

An exec closes our copy, but a forked child keeps one. So a boot is dead, and a home free, only when every
child that was forked without an exec is gone, too. That errs on the safe side: such a child may be working.

The only proof of death is a lock that can be taken, on the very file that the boot has locked:

- A missing file proves nothing. A boot records its end in the ledger before it removes its file. If there is
  neither record nor file, the file may have been removed while its process is alive; then only the lease
  tells.
- A copy of the file proves nothing: a restored backup can be locked while the boot is alive. So each file
  contains its own inode number. No copy can have the same one while the boot keeps the file open.
- A copy of a whole file system (a cloned virtual machine, a restored snapshot) has the same inodes. No file
  can tell these apart; `engine/claims/boots.py` compares the kernels of machines with one ledger.

The locks prove something only on one machine and on a local file system.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from holdfast import trust
from holdfast.core.errors import HomeInUse, StoreUnavailable
from holdfast.core.ids import check_id

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class BootLock:
    """Held by one boot while it is alive."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor: int | None = descriptor
        self._pid = os.getpid()

    @classmethod
    def take(cls, directory: Path, boot_id: str) -> BootLock:
        """Register a new boot; from now on `is_held` returns True for it.

        Raises StoreUnavailable when locks do not work here.
        """
        path = _boot_path(directory, boot_id)
        with _or_unavailable(f"cannot take the boot lock {path}"):
            trust.make_private_directory(directory)
            problem = trust.why_not(directory, directory.lstat())
            if problem is not None:
                raise StoreUnavailable(f"file locks do not work in {directory}: {problem}")
            return cls(path, _create_locked(path))

    def release(self, *, keeps_file: bool = False) -> None:
        """Release it after the ledger has recorded the end of the boot; a second call does nothing.

        A file that is kept proves from now on that the boot is dead. A forked child only gives up its own
        copy, because the boot is its parent.
        """
        if self._descriptor is None:
            return
        if os.getpid() == self._pid and not keeps_file:
            with suppress(OSError):  # a file that stays is not locked, which proves the death as well
                self._path.unlink()
        os.close(self._descriptor)
        self._descriptor = None


def is_held(directory: Path, boot_id: str) -> bool | None:
    """Whether a boot that was registered in this directory is alive; a dead boot never comes back.

    None when there is no proof: there is no file, or it is not the one that the boot has locked.
    Raises StoreUnavailable when the file cannot be opened.
    """
    path = _boot_path(directory, boot_id)
    with _or_unavailable(f"cannot prove that {boot_id} is dead: {path}"):
        try:
            descriptor = _open(path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            # Shared, so that two processes that ask at the same time do not mistake each other for the boot.
            if not _try_lock(descriptor, fcntl.LOCK_SH):
                return True
            return False if os.pread(descriptor, 100, 0) == _own_name(descriptor) else None
        finally:
            os.close(descriptor)


def bury(directory: Path, boot_id: str) -> None:
    """Remove the file of a dead boot, if it is still there.

    Raises StoreUnavailable when the boot is alive.
    """
    if is_held(directory, boot_id):
        raise StoreUnavailable(f"{boot_id} is alive, so its lock file stays; stop it first")
    path = _boot_path(directory, boot_id)
    with _or_unavailable(f"cannot remove the boot lock {path}"):
        path.unlink(missing_ok=True)


class HomeLock:
    """Held by the one gateway, or the one command, that may write in a home."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor
        self._pid = os.getpid()

    @classmethod
    def take(cls, home: Path, *, role: str) -> HomeLock:
        """Take the home. Raises HomeInUse, with the pid of the holder if it is known."""
        path = _home_path(home)
        with _or_unavailable(f"cannot take the home lock {path}"), ExitStack() as undo:
            trust.make_private_directory(home)
            _check_ours(home)
            descriptor = _open(path, os.O_RDWR | os.O_CREAT)
            undo.callback(os.close, descriptor)
            if not _try_lock_despite_askers(descriptor):
                raise HomeInUse(home=str(home), pid=_pid_in(descriptor))
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()} {role}\n".encode(), 0)
            undo.pop_all()
            return cls(descriptor)

    def release(self) -> None:
        """Release the home; a second call does nothing.

        A forked child only gives up its own copy. The file always stays: if it were unlinked, a process that
        had opened it before and a process that created it again could both hold the lock.
        """
        if self._descriptor is None:
            return
        if os.getpid() == self._pid:
            with suppress(OSError):  # its contents count only while it is locked
                os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)
        self._descriptor = None


def holder_of(home: Path) -> int | None:
    """The pid of the process that holds the home; None when there is none, or it has not written its pid."""
    path = _home_path(home)
    with _or_unavailable(f"cannot read the home lock {path}"):
        try:
            descriptor = _open(path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            is_free = _try_lock(descriptor, fcntl.LOCK_SH)
            return None if is_free else _pid_in(descriptor)
        finally:
            os.close(descriptor)


def _boot_path(directory: Path, boot_id: str) -> Path:
    return directory / f"{check_id('boot_id', boot_id)}.lock"


def _home_path(home: Path) -> Path:
    return home / "gateway.lock"


@contextmanager
def _or_unavailable(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = "it is a link; remove it" if error.errno == errno.ELOOP else error.strerror
        raise StoreUnavailable(f"{what}: {why}") from error


def _check_ours(home: Path) -> None:
    """Raises StoreUnavailable if another user can write in the home, and so replace lock and ledger."""
    problem = trust.why_not_trusted(home)
    if problem is not None:
        raise StoreUnavailable(f"the home {home} cannot be trusted: {problem}")


def _open(path: Path, flags: int) -> int:
    # Never through a link: its target would be truncated.
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _own_name(descriptor: int) -> bytes:
    """The identity of this file, unique while a process has it open."""
    return f"inode {os.fstat(descriptor).st_ino}\n".encode()


def _keep(directory: Path) -> None:
    """Make the file durable, so that it proves the death after a power cut; without it, leases must lapse."""
    with suppress(OSError), ExitStack() as undo:  # not every file system supports it
        descriptor = _open(directory, os.O_RDONLY)
        undo.callback(os.close, descriptor)
        os.fsync(descriptor)


def _create_locked(path: Path) -> int:
    """Make a file that is locked from the moment when other processes can find it."""
    unfinished = path.with_suffix(".new")
    with ExitStack() as undo:
        descriptor = _open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        undo.callback(os.close, descriptor)
        undo.callback(unfinished.unlink)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.pwrite(descriptor, _own_name(descriptor), 0)
        os.fsync(descriptor)
        # No other process can make this file between this check and the rename: only we have its temporary.
        if path.exists():
            raise FileExistsError(errno.EEXIST, "this boot is registered already")
        unfinished.rename(path)
        undo.pop_all()
    _keep(path.parent)
    return descriptor


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _try_lock_despite_askers(descriptor: int) -> bool:
    """Lock exclusively; False when another process holds it.

    A process that calls `holder_of` has a shared lock for a moment, and must not be mistaken for a holder.
    """
    while not _try_lock(descriptor, fcntl.LOCK_EX):
        if not _try_lock(descriptor, fcntl.LOCK_SH):
            return False
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    return True


def _pid_in(descriptor: int) -> int | None:
    """The pid in a home lock; None while it is being written, or when it is still that of a dead holder."""
    pid, _, role = os.pread(descriptor, 200, 0).partition(b" ")
    if not pid.isdigit() or not role.endswith(b"\n"):
        return None
    try:
        os.kill(int(pid), 0)
    except PermissionError:
        pass  # the process exists and belongs to another user
    except (ProcessLookupError, OverflowError):
        return None
    return int(pid)
