"""A mark beside the database that detects that the database was replaced by an older copy.

The mark is a number in the ledger that only increases. From time to time it is written to a small file beside
the database. If the database's mark is lower than the file's, the database was restored from a copy or lost
part of its -wal. Work that it shows as unfinished may have been done since, so nothing is resumed until an
operator accepts it.

The file may lag behind the database, and then detects less. It must never be ahead: write only a committed
mark. The one exception is a database that is known to have lost commits (see wal.py).
"""

from __future__ import annotations

import hashlib
import os
import secrets
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Final, assert_never

import msgspec

from holdfast.core.errors import StoreUnavailable

_MAX_BYTES: Final = 4096


class Watermark(msgspec.Struct, frozen=True, kw_only=True):
    """The mark of a ledger, and when it was written (microseconds)."""

    ledger_id: str
    mark: int
    written_at: int


class Unreadable(msgspec.Struct, frozen=True, kw_only=True):
    """There is a mark file, but it is damaged. That must neither prevent a start nor go unnoticed."""

    reason: str


class MarkCheck(StrEnum):
    """The result of comparing a database with the mark file beside it."""

    FRESH = "fresh"  # no mark was ever written
    CURRENT = "current"  # the database's mark is at least that of the file
    OLDER = "older"  # an older database, or a truncated -wal
    FOREIGN = "foreign"  # the mark of another ledger
    UNREADABLE = "unreadable"


def mark_path(database: Path) -> Path:
    """The path of a database's mark: `ledger.db-mark` beside `ledger.db`."""
    return database.with_name(f"{database.name}-mark")


def write(path: Path, watermark: Watermark) -> None:
    """Replace the mark durably and atomically: after a crash, and when this raises StoreUnavailable, the file
    holds the old mark or the new one."""
    try:
        _replace(path, _encode(watermark))
    except OSError as error:
        raise StoreUnavailable(f"cannot write the mark {path}: {error.strerror}") from error


def read(path: Path) -> Watermark | Unreadable | None:
    """The last mark that was written; None when there never was one."""
    try:
        with path.open("rb") as file:
            return _decode(file.read(_MAX_BYTES))
    except FileNotFoundError:
        return None
    except OSError as error:
        return Unreadable(reason=f"{path}: {error.strerror}")
    except (ValueError, msgspec.MsgspecError) as error:
        return Unreadable(reason=f"{path}: {error}")


def compare(file: Watermark | Unreadable | None, *, ledger_id: str, mark: int) -> MarkCheck:
    """Compare a database, by its ledger id and its own mark, with the file beside it."""
    match file:
        case None:
            return MarkCheck.FRESH
        case Unreadable():
            return MarkCheck.UNREADABLE
        case Watermark():
            if file.ledger_id != ledger_id:
                return MarkCheck.FOREIGN
            return MarkCheck.OLDER if mark < file.mark else MarkCheck.CURRENT
        case _:
            assert_never(file)


def _encode(watermark: Watermark) -> bytes:
    """A line of JSON and a line with its digest, which detects a flipped bit in a number."""
    line = msgspec.json.encode(watermark)
    return b"%s\n%s\n" % (line, _digest(line))


def _decode(content: bytes) -> Watermark:
    line, _, rest = content.partition(b"\n")
    if rest != _digest(line) + b"\n":
        raise ValueError("it is damaged or truncated: its digest does not match")
    return msgspec.json.decode(line, type=Watermark)


def _digest(line: bytes) -> bytes:
    return hashlib.sha256(line).hexdigest().encode()


def _replace(path: Path, content: bytes) -> None:
    unfinished = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    # Readable only by this user.
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink()
        raise
    _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    """Make the rename itself durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
