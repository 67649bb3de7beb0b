"""Files that are written under a random name and get their own name only when they are complete.

Other users may be able to write in the directory, as in /tmp. So the file is created exclusively, never
through a link, and before it is renamed it is compared with the file that its name leads to.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

from holdfast import trust
from holdfast.core.errors import StoreUnavailable

_ENDING = ".unfinished"


@contextlib.contextmanager
def made_whole(target: Path) -> Iterator[Path]:
    """The path of an empty file for its owner alone; after the body it is `target`, and durable.

    If the body raises, or this process dies, there is no target. The next process that makes the same target
    removes what a dead one left behind. Raises StoreUnavailable if the target exists, OSError if it cannot be
    created.
    """
    if os.path.lexists(target):
        raise _exists(target)
    # The caller may use links in the directory's path; resolve them once, so that no other link is followed.
    directory = target.parent.resolve(strict=True)
    begin = f".{target.name[:100]}."
    _remove_left_over(directory, begin)
    path = directory / f"{begin}{secrets.token_hex(8)}{_ENDING}"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(path, flags, 0o600)
    try:
        _try_lock(file)  # shows other processes that this one is alive
        os.fchmod(file, 0o600)
        yield path
        os.fsync(file)
        _check_same(file, path)
        _give_name(path, directory / target.name)
        _check_same(file, directory / target.name)
        with contextlib.suppress(OSError):  # not every file system supports it
            trust.sync_directory(directory)
    finally:
        with contextlib.suppress(OSError):
            if _is_same(file, path):
                path.unlink()
        os.close(file)


def _give_name(path: Path, target: Path) -> None:
    """Make a hard link: unlike a rename, it fails if the target has been created meanwhile."""
    try:
        os.link(path, target, follow_symlinks=False)
    except FileExistsError:
        raise _exists(target) from None
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS):
            raise
        if os.path.lexists(target):
            raise _exists(target) from None
        path.rename(target)  # a file system without hard links


def _exists(target: Path) -> StoreUnavailable:
    return StoreUnavailable(f"{target} exists; a backup never overwrites a file, choose another name")


def _check_same(file: int, path: Path) -> None:
    if not _is_same(file, path):
        raise StoreUnavailable(
            f"another program replaced {path} while it was written; choose a directory that only you can "
            "write to"
        )


def _is_same(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.lstat())
    except FileNotFoundError:
        return False


def _remove_left_over(directory: Path, begin: str) -> None:
    """Remove files of processes that died while they made this target: they hold the ledger's contents."""
    name = re.compile(rf"{re.escape(begin)}[0-9a-f]{{16}}{re.escape(_ENDING)}")
    with contextlib.suppress(OSError):
        for path in list(directory.iterdir()):
            if name.fullmatch(path.name):
                _remove_if_dead(path)


def _remove_if_dead(path: Path) -> None:
    with contextlib.suppress(OSError):
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if os.fstat(file).st_uid == os.geteuid() and _try_lock(file):
                # First SQLite's journal beside it: once the file itself is gone, it would not be found.
                path.with_name(f"{path.name}-journal").unlink(missing_ok=True)
                path.unlink()
        finally:
            os.close(file)


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # another process holds it, or the file system has no such locks
        return False
    return True
