"""Receipts of commands: whether a command began, how it ended, and whether it still runs.

A receipt is two files, named by the effect's key. `<key>.started` is locked by the process that runs the
command, and is not empty from just before the command begins. `<key>.done` says how it ended. The checkpoint
that a command agent may leave has a directory of its own beside them: an agent in a sandbox may write there.

The lock is a flock: the kernel drops it when its last holder has ended, for whatever reason. A pid can be
reused; a lock cannot. The lock works only on one machine and on a local file system.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from holdfast import trust
from holdfast.core.errors import BadInput
from holdfast.tools.file_locks import try_lock
from holdfast.tools.witness import Done, read_done

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,199}")
_VOID = b"void"
_STARTED = ".started"


class ReceiptMissing(msgspec.Struct, frozen=True):
    """The command did not begin under this key, and will not."""

    why: str = "nothing was begun"


class CommandInterrupted(msgspec.Struct, frozen=True):
    """The command began, no process runs it any more, and how it ended was not recorded."""

    why: str


Outcome = Done | ReceiptMissing | CommandInterrupted


class Receipt:
    """The receipt of the command of one key."""

    def __init__(self, directory: Path, key: str, seal_key: bytes | None = None) -> None:
        if not _KEY.fullmatch(key):
            raise BadInput("key", f"{key!r} cannot name a receipt; letters, digits, - and _ can")
        self.started = directory / f"{key}{_STARTED}"
        self.done = directory / f"{key}.done"
        self._seal_key = seal_key

    @contextlib.contextmanager
    def held(self) -> Iterator[int | None]:
        """Lock the receipt, and create it if need be; yields its descriptor, or None while another process
        holds the lock."""
        descriptor = self._open()
        try:
            while try_lock(descriptor):
                if _is_file_at(self.started, descriptor):
                    yield descriptor
                    return
                # The file was pruned between the open and the lock: open the new one.
                os.close(descriptor)
                descriptor = self._open()
            yield None
        finally:
            os.close(descriptor)

    def _open(self) -> int:
        return os.open(self.started, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def is_blank(self, descriptor: int) -> bool:
        """Whether no process has begun the command of this key, or voided the receipt."""
        return os.fstat(descriptor).st_size == 0

    def read(self, descriptor: int) -> Outcome:
        """The outcome; call it with the lock held. A command that has not begun can no longer begin."""
        found = os.pread(descriptor, 100, 0)
        if found in (b"", _VOID):
            # The starter may only be frozen; when it wakes, it finds this and does not begin the command.
            os.pwrite(descriptor, _VOID, 0)
            return ReceiptMissing()
        try:
            done = read_done(self.done.read_bytes(), self._seal_key)
        except FileNotFoundError:
            return CommandInterrupted(
                f"the command was killed midway: it began at {self._began_at(descriptor)}, and how it ended "
                f"was not written beside {self.started}"
            )
        except (msgspec.DecodeError, ValueError, OSError) as error:
            return CommandInterrupted(f"the receipt {self.done} cannot be read: {error}")
        return done if done.problem is None else ReceiptMissing(done.problem)

    def _began_at(self, descriptor: int) -> str:
        began_at = datetime.fromtimestamp(os.fstat(descriptor).st_mtime, UTC)
        return began_at.isoformat(timespec="seconds")


def checkpoint_file(directory: Path, key: str) -> Path:
    """The file in which the command of this key may leave a checkpoint."""
    return directory.parent / "agent-checkpoints" / f"{key}.json"


def make_directory(directory: Path) -> Path:
    """Create the directory for receipts durably, with mode 0700. One that exists stays as it is."""
    try:
        trust.make_private_directory(directory)
        if not directory.is_dir():
            raise NotADirectoryError(20, "that is a file; name a directory")
    except OSError as error:
        raise BadInput("receipts", f"{directory}: {error.strerror}") from error
    return directory


def receipts(directory: Path) -> list[str]:
    """The keys of all receipts in a directory."""
    return sorted(name.removesuffix(_STARTED) for name in _names_in(directory) if name.endswith(_STARTED))


def unfinished_receipts(directory: Path) -> list[str]:
    """The keys of receipts of commands that began and have no recorded end."""
    names = _names_in(directory)
    return sorted(
        key
        for name in names
        if name.endswith(_STARTED) and f"{(key := name.removesuffix(_STARTED))}.done" not in names
    )


def _names_in(directory: Path) -> set[str]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(directory) as found:
        return {one.name for one in found}
    return set()


def old_receipts(directory: Path, *, before: datetime) -> list[str]:
    """The keys of the receipts that were started before a moment."""
    limit = before.timestamp()
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(directory) as found:
        return sorted(
            one.name.removesuffix(_STARTED)
            for one in found
            if one.name.endswith(_STARTED) and one.stat(follow_symlinks=False).st_mtime < limit
        )
    return []


def prune_receipts(directory: Path, keys: Iterable[str]) -> int:
    """Remove the receipts of these keys, except those that a process holds; returns how many.

    Only for settled effects: without its receipt, it is not known whether a command began.
    """
    pruned = 0
    for key in keys:
        receipt = Receipt(directory, key)
        with receipt.held() as descriptor:
            if descriptor is None:
                continue
            left = [receipt.done, receipt.done.with_suffix(".new"), checkpoint_file(directory, key)]
            for path in (*left, receipt.started):
                path.unlink(missing_ok=True)
            pruned += 1
    return pruned


def _is_file_at(path: Path, descriptor: int) -> bool:
    ours = os.fstat(descriptor)
    try:
        theirs = path.lstat()
    except FileNotFoundError:
        return False
    return (ours.st_dev, ours.st_ino) == (theirs.st_dev, theirs.st_ino)
