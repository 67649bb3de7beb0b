"""A mark beside the database that shows when an older one was put in its place.

The ledger counts upwards in a number of its own, the mark. Now and then it is written into a small file
beside the database. A database that has counted less than its file says was restored from a copy, or has lost
part of its -wal: what it calls unfinished may have been done since, so nothing is resumed without a person's
word.

The file may lag behind the database, and then shows less. It must never run ahead of it: write only a mark
that is committed. The one exception is a database of which commits are known to be lost (see wal.py).
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
    """How far which ledger had counted, and when that was written down (microseconds)."""

    ledger_id: str
    mark: int
    written_at: int


class Unreadable(msgspec.Struct, frozen=True, kw_only=True):
    """There is a mark, and it cannot be believed. It must neither stop a start nor pass in silence."""

    reason: str


class Verdict(StrEnum):
    """What the mark says about the database that was found."""

    FRESH = "fresh"  # no mark was ever written
    CURRENT = "current"  # the database has counted at least as far as its mark
    OLDER = "older"  # an older database, or a cut -wal
    FOREIGN = "foreign"  # the mark of another ledger
    UNREADABLE = "unreadable"


def mark_path(database: Path) -> Path:
    """Where the mark of a database lies: `ledger.db-mark` beside `ledger.db`."""
    return database.with_name(f"{database.name}-mark")


def write(path: Path, watermark: Watermark) -> None:
    """Replace the mark, durably and whole: after a crash the file holds the old mark or the new one.

    So too when it raises StoreUnavailable.
    """
    try:
        _replace(path, _encode(watermark))
    except OSError as error:
        raise StoreUnavailable(f"cannot write the mark {path}: {error.strerror}") from error


def read(path: Path) -> Watermark | Unreadable | None:
    """The mark that was written last; None when there never was one."""
    try:
        with path.open("rb") as file:
            return _decode(file.read(_MAX_BYTES))
    except FileNotFoundError:
        return None
    except OSError as error:
        return Unreadable(reason=f"{path}: {error.strerror}")
    except (ValueError, msgspec.MsgspecError) as error:
        return Unreadable(reason=f"{path}: {error}")


def compare(file: Watermark | Unreadable | None, *, ledger_id: str, mark: int) -> Verdict:
    """Judge a database, by its ledger id and its own mark, against the file beside it."""
    match file:
        case None:
            return Verdict.FRESH
        case Unreadable():
            return Verdict.UNREADABLE
        case Watermark():
            if file.ledger_id != ledger_id:
                return Verdict.FOREIGN
            return Verdict.OLDER if mark < file.mark else Verdict.CURRENT
        case _:
            assert_never(file)


def _encode(watermark: Watermark) -> bytes:
    """One line of JSON and one with its digest: a flipped bit in a number is still a number."""
    line = msgspec.json.encode(watermark)
    return b"%s\n%s\n" % (line, _digest(line))


def _decode(content: bytes) -> Watermark:
    line, _, rest = content.partition(b"\n")
    if rest != _digest(line) + b"\n":
        raise ValueError("it is damaged or cut short: its digest does not match")
    return msgspec.json.decode(line, type=Watermark)


def _digest(line: bytes) -> bytes:
    return hashlib.sha256(line).hexdigest().encode()


def _replace(path: Path, content: bytes) -> None:
    unfinished = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    # Readable by us alone.
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
