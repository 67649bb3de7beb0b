"""Keeps everything but SQLite from opening the ledger file in this process.

SQLite uses POSIX locks, which belong to the process: when any code in it opens and closes a file, the process
loses all its locks on that file, and SQLite does not notice. Another process then assumes that it is the last
one, copies the -wal into the database and deletes it; what we commit after that goes into a deleted file and
is lost.

Two guards prevent that, and a third detects it:

- An audit hook refuses opens of the database, its -wal and its -shm by Python code in this process.
- A lock of our own covers the bytes that a SQLite connection locks while it is open. It belongs to the open
  file description, not to the process, so closing another descriptor does not drop it. It also protects
  against C code, which the hook does not see.
- `FileGuard.check` detects that one of the files was deleted or replaced, by whatever means: it checks the
  directory, and in processes that commit often it uses inotify instead (see file_watch.py).

A side effect of our own lock: no connection of this process can become exclusive. So SQLite keeps the -wal
when the last connection closes (run `wal_checkpoint` before, if it should be small), and the database cannot
leave WAL mode.

Not covered: C code that opens a file during a commit, or opens the -shm while another process starts;
`ATTACH` by another copy of SQLite; `os.open` with `dir_fd`, whose audit event does not name the directory;
and `os.close` of SQLite's own descriptors.

After a fork the child shares the open file description and so the lock, which lasts until its last copy is
closed; an exec closes the copy. A child that keeps running only delays when others may delete the -wal. A
child that used the ledger, which SQLite forbids, would also consume its parent's inotify events.
"""
# The hook runs at every open and `check` at every commit; os costs half as much as pathlib and takes bytes.
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
_NO_DIR_FD: Final = -1  # in an audit event: relative to the working directory

# The bytes on which a SQLite connection keeps a read lock while it uses a database in WAL mode.
_PENDING_BYTE: Final = 0x40000000
_SHARED_FIRST: Final = _PENDING_BYTE + 2
_SHARED_SIZE: Final = 510

# struct flock of 64-bit Linux: type, whence, start, length, pid (which must be 0 here).
_SHARED_READ_LOCK: Final = struct.pack("hhqqi0q", fcntl.F_RDLCK, os.SEEK_SET, _SHARED_FIRST, _SHARED_SIZE, 0)
_COARSEST_TIMESTAMP_NS: Final = 100_000_000
# Setting up inotify takes two milliseconds; each check without it costs a few microseconds more.
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
        # How many directory checks remain until inotify is worth setting up.
        self._looks_left = _LOOKS
        self._notices: FileWatch | None = None
        # The same; but None while a thread checks the files, and once a problem was found.
        self._told: FileWatch | None = None
        self._looking = threading.Lock()

    @classmethod
    def watch(cls, path: Path) -> FileGuard:
        """Guard the database at `path`, which SQLite has open in WAL mode.

        Raises StoreUnavailable when there is no such file or another process has locked it exclusively.
        """
        try:
            files = _Files(os.path.realpath(path, strict=True))
        except OSError as error:
            raise StoreUnavailable(f"cannot guard the ledger {path}: {error.strerror}") from error
        _SENTRY.add(files)
        return cls(files)

    @property
    def is_told(self) -> bool:
        """Whether `check` uses inotify instead of checking the directory."""
        return self._told is not None

    def check(self) -> None:
        """Raise LedgerReplaced when a file was deleted or replaced since it was first seen.

        Call it before a commit is acknowledged. Once it has failed it always fails: putting the file back
        does not restore what was written in between.
        """
        told = self._told
        try:
            # Compared again after `ask`: another thread may have taken the event and still be checking it.
            if told is not None and not told.ask() and self._told is told:
                return
        except (OSError, ValueError):
            pass  # it was closed meanwhile
        self.look()

    def look(self) -> None:
        """Like `check`, but without inotify, which does not report a file system mounted over ours."""
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
        # Deleting or replacing a file changes its directory. Checking that alone is cheaper, and a stat of
        # the -wal would make its next write and fsync slower on kernels with fine timestamps.
        try:
            found = os.stat(self._directory)
            directory = (found.st_dev, found.st_ino, found.st_mtime_ns)
        except OSError:
            directory = (0, 0, 0)  # perhaps it is gone; then the files are checked one by one
        if directory == self._quiet:
            self._ask_to_be_told()
            return
        self._check_each()
        # A directory that changed a moment ago may change again without a newer timestamp.
        is_settled = time.clock_gettime_ns(time.CLOCK_REALTIME) - directory[2] > _COARSEST_TIMESTAMP_NS
        self._quiet = directory if is_settled and None not in self._files.inodes else None

    def _ask_to_be_told(self) -> None:
        """Set up inotify, which is cheaper per check; that pays off only after a number of checks."""
        self._looks_left -= 1
        if self._looks_left or self._is_released:
            return
        # If it is not available here, or not with this Python, keep checking the directory.
        with suppress(OSError, ImportError, MemoryError):
            from holdfast.store.file_watch import FileWatch  # few processes commit that often

            self._notices = FileWatch(self._files.paths)
            # It does not report what happened before it existed.
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
                f"{path} was {what} while the ledger was open; stop this process and find out why before "
                "you start it again"
            )
            raise LedgerReplaced(self._broken)

    def release(self) -> None:
        """Stop guarding. Call it after this guard's connections were closed; a second call does nothing."""
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
    """The audit hook, and the files that it refuses to open.

    There is one per process, at module level as an exception: an audit hook belongs to the process and can
    never be removed, and the POSIX locks that it protects belong to the process, too.
    """

    # The default, set explicitly: the interpreter reads it at every event, and a failed lookup is slow.
    __cantrace__ = False

    def __init__(self) -> None:
        self._watched_events = _WATCHED_EVENTS
        self._lock = threading.Lock()  # never taken by the hook: a thread that holds it may open files
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

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        """The hook itself. It runs at every audit event of the process, so it returns early."""
        if event not in self._watched_events or not self._guarded:
            return
        if os is None:  # the interpreter is shutting down and has cleared this module already
            return
        if event == "open":
            # Opening a descriptor opens no file; the code that has one has passed this hook before.
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
            return  # not a path; the call itself will raise
        if ours is not None and self._opening_thread != threading.get_ident():
            raise LedgerFileOpened(
                f"{event} of {target!r} refused: the ledger uses {ours}, and opening it without SQLite loses "
                "commits; to copy the ledger, use `holdfast store backup`"
            )

    def _find(self, target: Any, dir_fd: int, *, follow: bool) -> str | None:
        """The guarded file that the target is, if any: by inode, through links of any kind, else by path."""
        try:
            if dir_fd == _NO_DIR_FD:
                found = os.stat(target, follow_symlinks=follow)
            else:
                found = os.stat(target, follow_symlinks=follow, dir_fd=dir_fd)
        except OSError:
            pass  # it does not exist; perhaps it is about to be created
        else:
            ours = self._by_inode.get((found.st_dev, found.st_ino))
            # Resolving a path costs many system calls, so first compare the file's name.
            if ours is not None or isinstance(target, int) or not os.fsdecode(target).endswith(self._names):
                return ours
        if dir_fd != _NO_DIR_FD:
            return None
        path = os.fsdecode(target)
        folder, name = os.path.split(path)
        resolved = os.path.realpath(path) if follow else os.path.join(os.path.realpath(folder), name)
        return resolved if resolved in self._paths else None

    def _index(self) -> None:
        """Build what the hook reads: always new objects, because it reads from any thread without a lock."""
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
            # Kept open even if we fail, because closing it would drop SQLite's locks.
            self._descriptors[files.database_inode] = descriptor
        try:
            fcntl.fcntl(descriptor, set_lock, _SHARED_READ_LOCK)
        except OSError as error:
            if error.errno == errno.EINVAL:
                return  # the kernel has no such locks; the hook and `check` remain
            raise StoreUnavailable(f"cannot lock the ledger {files.paths[0]}: {error.strerror}") from error
        self._locked.add(files.database_inode)

    def _open(self, files: _Files) -> int:
        # Otherwise our own hook would refuse if an older guard still watches the file at this path.
        self._opening_thread = threading.get_ident()
        try:
            descriptor = os.open(files.paths[0], os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise StoreUnavailable(f"cannot open the ledger {files.paths[0]}: {error.strerror}") from error
        finally:
            self._opening_thread = None
        if _inode_of(os.fstat(descriptor)) != files.database_inode:
            # Not closed either, because SQLite may have locks on this file.
            raise LedgerReplaced(f"{files.paths[0]} was replaced while it was being opened; start again")
        return descriptor

    def _drop_shared_lock(self, inode: _Inode) -> None:
        descriptor = self._descriptors.get(inode)
        # If a connection is still open, our close would drop its locks. Then the descriptor stays open, with
        # its lock, for the next guard of this file.
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
    """What sqlite3.connect may open: the name as a path and as a URI; the event does not say which."""
    with suppress(TypeError, ValueError):
        name = os.fsdecode(database)
        yield name
        if name.startswith("file:"):
            yield unquote(urlsplit(name).path)


def _is_open_elsewhere(inode: _Inode, ours: int) -> bool:
    try:
        numbers = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        return False  # without /proc, trust the caller that its connections are closed
    for number in numbers:
        with suppress(OSError):  # the descriptor of the listing itself is closed by now
            if number != ours and _inode_of(os.fstat(number)) == inode:
                return True
    return False


_SENTRY: Final = _Sentry()
