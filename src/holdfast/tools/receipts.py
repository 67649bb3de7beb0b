"""What a receipt tells about a command: whether it began, how it ended, whether anyone is still at it.

Two files under the effect's key tell it. `<key>.started` is locked by whoever is at the command, and holds
something from the moment before the command begins. `<key>.done` says how it ended.

The lock is a flock: the kernel drops it when the last holder is gone, however that happened. The number of a
process could belong to another one by now; a lock cannot. It proves something on one machine and on a local
file system only.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from holdfast import trust
from holdfast.core.errors import BadInput
from holdfast.tools.witness import Done, read_done

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,199}")
_VOID = b"void"
_STARTED = ".started"


class NotBegun(msgspec.Struct, frozen=True):
    """The command did not begin under this key, and will not."""

    why: str = "nothing was begun"


class CutShort(msgspec.Struct, frozen=True):
    """The command began, nobody is at it any more, and how it ended was not written down."""

    why: str


Outcome = Done | NotBegun | CutShort


class Receipt:
    """The receipt of the command that was, is or will be run under one key."""

    def __init__(self, directory: Path, key: str, seal_key: bytes | None = None) -> None:
        if not _KEY.fullmatch(key):
            raise BadInput("key", f"{key!r} cannot name a receipt; letters, digits, - and _ can")
        self.started = directory / f"{key}{_STARTED}"
        self.done = directory / f"{key}.done"
        self._seal_key = seal_key

    @contextlib.contextmanager
    def held(self) -> Iterator[int | None]:
        """The descriptor of the locked receipt, made if need be; None while somebody else holds it."""
        descriptor = self._open()
        try:
            while _try_lock(descriptor):
                if _is_file_at(self.started, descriptor):
                    yield descriptor
                    return
                # It was pruned between our open and our lock: what we hold is nobody's receipt any more.
                os.close(descriptor)
                descriptor = self._open()
            yield None
        finally:
            os.close(descriptor)

    def _open(self) -> int:
        return os.open(self.started, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def is_blank(self, descriptor: int) -> bool:
        """Whether nobody has begun, or forbidden to begin, under this key."""
        return os.fstat(descriptor).st_size == 0

    def read(self, descriptor: int) -> Outcome:
        """What became of it, for whoever holds it. From now on nobody begins what was not begun."""
        found = os.pread(descriptor, 100, 0)
        if found in (b"", _VOID):
            # Its starter may only be frozen; when it wakes up, it finds this and does not begin.
            os.pwrite(descriptor, _VOID, 0)
            return NotBegun()
        try:
            done = read_done(self.done.read_bytes(), self._seal_key)
        except FileNotFoundError:
            return CutShort(
                f"the command was killed midway: it began at {self._began_at(descriptor)}, and how it ended "
                f"was not written beside {self.started}"
            )
        except (msgspec.DecodeError, ValueError, OSError) as error:
            return CutShort(f"the receipt {self.done} cannot be read: {error}")
        return done if done.problem is None else NotBegun(done.problem)

    def _began_at(self, descriptor: int) -> str:
        began_at = datetime.fromtimestamp(os.fstat(descriptor).st_mtime, UTC)
        return began_at.isoformat(timespec="seconds")


def make_directory(directory: Path) -> Path:
    """The directory for receipts, for its owner alone, durable by name. One that exists stays as it is."""
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
    """The keys of receipts that say that a command began, and not how it ended."""
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
    """The keys of the receipts that began before a moment."""
    limit = before.timestamp()
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(directory) as found:
        return sorted(
            one.name.removesuffix(_STARTED)
            for one in found
            if one.name.endswith(_STARTED) and one.stat(follow_symlinks=False).st_mtime < limit
        )
    return []


def prune_receipts(directory: Path, keys: Iterable[str]) -> int:
    """Remove the receipts of these keys, but those that somebody is at; how many they were.

    Whether such a command was begun can then no longer be told: their effects must be settled.
    """
    pruned = 0
    for key in keys:
        receipt = Receipt(directory, key)
        with receipt.held() as descriptor:
            if descriptor is None:
                continue
            for path in (receipt.done, receipt.done.with_suffix(".new"), receipt.started):
                path.unlink(missing_ok=True)
            pruned += 1
    return pruned


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_file_at(path: Path, descriptor: int) -> bool:
    ours = os.fstat(descriptor)
    try:
        theirs = path.lstat()
    except FileNotFoundError:
        return False
    return (ours.st_dev, ours.st_ino) == (theirs.st_dev, theirs.st_ino)
