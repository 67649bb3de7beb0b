"""Keeps every hand but SQLite's off the ledger file.

SQLite's locks are POSIX locks, and those belong to the process: when anything in it opens and closes a file,
all locks the process had on that file are gone, and SQLite is not told. Another process then takes itself for
the last one, folds the -wal into the database and deletes it; what we commit after that goes into a deleted
file and is lost.

Two guards stand against it, and a third notices:

- An audit hook refuses opens of the database, its -wal and its -shm by Python code in this process.
- A lock of our own lies on the bytes that SQLite locks to say "I am here". It belongs to the open file
  description, not to the process, so no close of another descriptor drops it: it also holds against C code,
  which no hook sees.
- `FileGuard.check` sees that one of the files was deleted or replaced, however that came about: it looks at
  the directory, and once that was done often it is told instead (see notices.py).

What our own lock changes: no connection of this process can become exclusive. So SQLite leaves the -wal in
place when the last one closes (run `wal_checkpoint` before, if it should be small), and the way out of WAL
mode is barred.

What stays open: C code that opens a file in the midst of a commit, or opens the -shm while another process
starts; `ATTACH` by another copy of SQLite; `os.open` with `dir_fd`, whose audit event does not name the
directory; and `os.close` of SQLite's own descriptors.

After a fork the child shares the open file description and so the lock, which lasts until its last copy is
closed; an exec closes the copy. A child that lives on delays only the moment when others may delete the -wal.
One that went on to use the ledger, which SQLite forbids, would also take the notices from its parent.
"""
# The hook sees every open and `check` every commit; os costs half of what pathlib does, and takes bytes.
# ruff: noqa: PTH116, PTH118, PTH119, PTH120, PTH208

from __future__ import annotations

import errno
import fcntl
import os
import struct
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from holdfast.core.errors import LedgerFileOpened, LedgerReplaced, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.store.file_watch import FileWatch

_Inode = tuple[int, int]

_WATCHED_EVENTS: Final = frozenset({"open", "sqlite3.connect", "os.truncate", "os.remove", "os.rename"})
_NO_DIR_FD: Final = -1  # how an audit event says "relative to the working directory"

# The bytes on which a SQLite connection keeps a read lock for as long as it uses a database in WAL mode.
_PENDING_BYTE: Final = 0x40000000
_SHARED_FIRST: Final = _PENDING_BYTE + 2
_SHARED_SIZE: Final = 510

# struct flock of 64-bit Linux: type, whence, start, length, pid (which must be 0 here).
_SHARED_READ_LOCK: Final = struct.pack("hhqqi0q", fcntl.F_RDLCK, os.SEEK_SET, _SHARED_FIRST, _SHARED_SIZE, 0)
_COARSEST_TIMESTAMP_NS: Final = 100_000_000
# Two milliseconds of preparation, and each look costs some microseconds more than to be told.
_LOOKS: Final = 200

_F_OFD_SETLK: Final[int | None] = getattr(fcntl, "F_OFD_SETLK", None)  # macOS has none


class FileGuard:
    """Watches over one ledger's files from `watch` until `release`.

    Several guards in one process may watch the same database; they share one lock.
    """

    def __init__(self, files: _Files) -> None:
        self._files = files
        self._broken: str | None = None
        self._is_released = False
        self._directory = os.path.dirname(files.paths[0])
        self._quiet: tuple[int, int, int] | None = None
        # Until it is worth while to be told instead.
        self._looks_left = _LOOKS
        self._notices: FileWatch | None = None
        # The same; but None while somebody looks, and once something was found.
        self._told: FileWatch | None = None
        self._looking = threading.Lock()

    @classmethod
    def watch(cls, path: Path) -> FileGuard:
        """Guard the database at `path`, which SQLite has open in WAL mode.

        Raises StoreUnavailable when there is no such file or another process has it for itself.
        """
        try:
            files = _Files(os.path.realpath(path, strict=True))
        except OSError as error:
            raise StoreUnavailable(f"cannot guard the ledger {path}: {error.strerror}") from error
        _SENTRY.add(files)
        return cls(files)

    @property
    def is_told(self) -> bool:
        """Whether `check` need not look to see that all is quiet."""
        return self._told is not None

    def check(self) -> None:
        """Raise LedgerReplaced when a file was deleted or replaced since it was first seen.

        Call it before a commit is acknowledged. Once it has failed it always fails: to put the file back
        does not bring back what was written in between.
        """
        told = self._told
        try:
            # Looked at twice: what we would hear of, somebody may have taken who is still looking at it.
            if told is not None and not told.ask() and self._told is told:
                return
        except (OSError, ValueError):
            pass  # it was closed meanwhile
        self.look()

    def look(self) -> None:
        """As `check`, also when nothing was told: of a file system that is mounted over ours nobody tells."""
        with self._looking:
            if self._broken is not None:
                raise LedgerReplaced(self._broken)
            if self._notices is None:
                self._look_around()
                return
            self._told = None
            self._notices.take()
            self._check_each()
            self._told = self._notices

    def _look_around(self) -> None:
        # No file is deleted or replaced without a trace on its directory. Looking there alone is cheaper,
        # and a stat of the -wal would make its next write and fsync dearer on kernels with fine timestamps.
        try:
            found = os.stat(self._directory)
            directory = (found.st_dev, found.st_ino, found.st_mtime_ns)
        except OSError:
            directory = (0, 0, 0)  # gone, perhaps: then the files are looked at one by one
        if directory == self._quiet:
            self._ask_to_be_told()
            return
        self._check_each()
        # A directory that changed a moment ago may change again without a newer timestamp.
        is_settled = time.clock_gettime_ns(time.CLOCK_REALTIME) - directory[2] > _COARSEST_TIMESTAMP_NS
        self._quiet = directory if is_settled and None not in self._files.inodes else None

    def _ask_to_be_told(self) -> None:
        """To look costs more than to ask whether there is news; to arrange for that pays after a while."""
        self._looks_left -= 1
        if self._looks_left or self._is_released:
            return
        # Not to be had here, or not with this Python: then we go on looking.
        with suppress(OSError, ImportError, MemoryError):
            from holdfast.store.file_watch import FileWatch  # few processes commit that often

            self._notices = FileWatch(self._files.paths)
            # What happened before it was there is no news to it.
            self._check_each()
            self._told = self._notices

    def _check_each(self) -> None:
        for path, first in zip(self._files.paths, self._files.inodes, strict=True):
            now = _inode_at(path)
            if now == first:
                continue
            if first is None:
                _SENTRY.remember_late_files()
                continue
            what = "deleted" if now is None else "replaced"
            self._broken = (
                f"{path} was {what} while the ledger was open; stop, and look before you start again"
            )
            raise LedgerReplaced(self._broken)

    def release(self) -> None:
        """Let go, after this guard's connections were closed; a second call does nothing."""
        if not self._is_released:
            self._is_released = True
            with self._looking:
                self._told = None
                if self._notices is not None:
                    self._notices.close()
                    self._notices = None
            _SENTRY.remove(self._files)


class _Files:
    """A database, its -wal and its -shm, each with the inode it had when it was first seen."""

    def __init__(self, database: str) -> None:
        self.paths = (database, f"{database}-wal", f"{database}-shm")
        self.database_inode = _inode_of(os.stat(database))
        self.inodes: list[_Inode | None] = [
            self.database_inode,
            _inode_at(self.paths[1]),
            _inode_at(self.paths[2]),
        ]

    def remember_late_ones(self) -> None:
        for place, path in enumerate(self.paths):
            if self.inodes[place] is None:
                self.inodes[place] = _inode_at(path)


class _Sentry:
    """The audit hook, and the files it lets nobody open.

    There is one per process, at module level against our habit: an audit hook belongs to the process and can
    never be taken out again, and the POSIX locks that it protects belong to the process too.
    """

    # The default, said aloud: the interpreter asks at every event, and not to find the answer is slow.
    __cantrace__ = False

    def __init__(self) -> None:
        self._watched_events = _WATCHED_EVENTS
        self._lock = threading.Lock()  # the hook never takes it: a thread that holds it may open files
        self._is_installed = False
        self._guarded: list[_Files] = []
        self._descriptors: dict[_Inode, int] = {}
        self._locked: set[_Inode] = set()
        self._opening_thread: int | None = None
        self._index()

    def add(self, files: _Files) -> None:
        with self._lock:
            if not self._is_installed:
                sys.addaudithook(self)
                self._is_installed = True
            if _F_OFD_SETLK is not None and files.database_inode not in self._locked:
                self._take_shared_lock(files, _F_OFD_SETLK)
            self._guarded.append(files)
            self._index()

    def remove(self, files: _Files) -> None:
        with self._lock:
            self._guarded.remove(files)
            self._index()
            if all(other.database_inode != files.database_inode for other in self._guarded):
                self._drop_shared_lock(files.database_inode)

    def remember_late_files(self) -> None:
        with self._lock:
            for files in self._guarded:
                files.remember_late_ones()
            self._index()

    def holds_lock(self, files: _Files) -> bool:
        return files.database_inode in self._locked

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        """The hook itself. Every audit event of the process comes by here, so leave early."""
        if event not in self._watched_events or not self._guarded:
            return
        if os is None:  # the interpreter is ending and has emptied this module already
            return
        if event == "open":
            # To open a descriptor opens nothing; whoever has one got it past us already.
            if not isinstance(args[0], int):
                self._refuse_ours(event, args[0])
        elif event == "sqlite3.connect":
            for path in _paths_for_sqlite(args[0]):
                self._refuse_ours(event, path)
        elif event == "os.truncate":
            self._refuse_ours(event, args[0])
        elif event == "os.remove":
            self._refuse_ours(event, args[0], dir_fd=args[1], follow=False)
        else:
            self._refuse_ours(event, args[0], dir_fd=args[2], follow=False)
            self._refuse_ours(event, args[1], dir_fd=args[3], follow=False)

    def _refuse_ours(self, event: str, target: Any, *, dir_fd: int = _NO_DIR_FD, follow: bool = True) -> None:
        try:
            ours = self._find(target, dir_fd, follow=follow)
        except (TypeError, ValueError):
            return  # not a path at all; the call itself will say so
        if ours is not None and self._opening_thread != threading.get_ident():
            raise LedgerFileOpened(
                f"{event} of {target!r} refused: {ours} is in use by the ledger, and to touch it behind "
                "SQLite's back loses commits; to copy the ledger use `holdfast store backup`"
            )

    def _find(self, target: Any, dir_fd: int, *, follow: bool) -> str | None:
        """Which guarded file the target is, if any: by inode, whatever kind of link it is, else by path."""
        try:
            if dir_fd == _NO_DIR_FD:
                found = os.stat(target, follow_symlinks=follow)
            else:
                found = os.stat(target, follow_symlinks=follow, dir_fd=dir_fd)
        except OSError:
            pass  # not there: perhaps about to be created
        else:
            ours = self._by_inode.get((found.st_dev, found.st_ino))
            # To resolve a path costs many system calls, so a file that exists must at least bear our name.
            if ours is not None or isinstance(target, int) or not os.fsdecode(target).endswith(self._names):
                return ours
        if dir_fd != _NO_DIR_FD:
            return None
        path = os.fsdecode(target)
        folder, name = os.path.split(path)
        resolved = os.path.realpath(path) if follow else os.path.join(os.path.realpath(folder), name)
        return resolved if resolved in self._paths else None

    def _index(self) -> None:
        """Make what the hook looks at: always new objects, as it looks from any thread and without a lock."""
        self._by_inode = {
            inode: path
            for files in self._guarded
            for inode, path in zip(files.inodes, files.paths, strict=True)
            if inode is not None
        }
        self._paths = frozenset(path for files in self._guarded for path in files.paths)
        self._names = tuple({os.path.basename(path) for path in self._paths})

    def _take_shared_lock(self, files: _Files, set_lock: int) -> None:
        descriptor = self._descriptors.get(files.database_inode)
        if descriptor is None:
            descriptor = self._open(files)
            # Kept from here on even if we fail, because to close it would drop SQLite's locks.
            self._descriptors[files.database_inode] = descriptor
        try:
            fcntl.fcntl(descriptor, set_lock, _SHARED_READ_LOCK)
        except OSError as error:
            if error.errno == errno.EINVAL:
                return  # a kernel without such locks; the hook and `check` remain
            raise StoreUnavailable(f"cannot lock the ledger {files.paths[0]}: {error.strerror}") from error
        self._locked.add(files.database_inode)

    def _open(self, files: _Files) -> int:
        # Our own hook would refuse, if an older guard still watches the file whose place this one took.
        self._opening_thread = threading.get_ident()
        try:
            descriptor = os.open(files.paths[0], os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise StoreUnavailable(f"cannot open the ledger {files.paths[0]}: {error.strerror}") from error
        finally:
            self._opening_thread = None
        if _inode_of(os.fstat(descriptor)) != files.database_inode:
            # Not closed either, for SQLite may have locks on this one.
            raise LedgerReplaced(f"{files.paths[0]} was replaced while it was being opened; start again")
        return descriptor

    def _drop_shared_lock(self, inode: _Inode) -> None:
        descriptor = self._descriptors.get(inode)
        # A connection that is still open would lose its locks by our close. Then the descriptor stays, and
        # the lock with it, for the next guard of this file.
        if descriptor is None or _is_open_elsewhere(inode, descriptor):
            return
        del self._descriptors[inode]
        self._locked.discard(inode)
        os.close(descriptor)


def _inode_of(found: os.stat_result) -> _Inode:
    return (found.st_dev, found.st_ino)


def _inode_at(path: str) -> _Inode | None:
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreUnavailable(f"cannot see {path}: {error.strerror}") from error
    return (found.st_dev, found.st_ino)


def _paths_for_sqlite(database: Any) -> Iterator[str]:
    """What sqlite3.connect may open: the name as a path and as a URI, for the event does not say which."""
    with suppress(TypeError, ValueError):
        name = os.fsdecode(database)
        yield name
        if name.startswith("file:"):
            yield unquote(urlsplit(name).path)


def _is_open_elsewhere(inode: _Inode, ours: int) -> bool:
    try:
        numbers = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        return False  # no /proc: then we take the caller's word that its connections are closed
    for number in numbers:
        with suppress(OSError):  # the listing's own descriptor is gone by now
            if number != ours and _inode_of(os.fstat(number)) == inode:
                return True
    return False


_SENTRY: Final = _Sentry()
