"""A tool that writes a file whole or not at all, and never over what somebody else wrote."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import re
import secrets
import stat
from pathlib import Path

import msgspec

from holdfast.core.effect_class import DidNotHappen, Happened, Unknown, Verdict, tool, verifiable
from holdfast.core.errors import BadInput, PayloadTooLarge
from holdfast.core.payload import MAX_PAYLOAD_BYTES
from holdfast.tools.errors import FileChanged, FileNotWritten
from holdfast.tools.inputs import check_path
from holdfast.tools.witness import sync_directory

_CHUNK = 1024 * 1024
_SHA256 = re.compile(r"[0-9a-f]{64}")


class FileResult(msgspec.Struct, frozen=True, kw_only=True):
    """The file as it was written."""

    path: str
    sha256: str
    size_bytes: int


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A file as it is now."""

    sha256: str
    status: os.stat_result


async def _verify_write_file(path: str, content: str, *, expected_sha256: str | None = None) -> Verdict:
    return await asyncio.to_thread(verify_file, path, content, expected_sha256=expected_sha256)


@tool(
    effect=verifiable(_verify_write_file, local=True, did_not_happen=(FileChanged, BadInput)),
    name="write_file",
    raises=(FileChanged, FileNotWritten, BadInput),
)
def write_file(path: str, content: str, *, expected_sha256: str | None = None) -> FileResult:
    """Write a text file, durably, so that readers see the old content or the new and nothing between.

    A file that holds something else is replaced only if its checksum is `expected_sha256`, the one that the
    caller recorded when it last read or wrote it; otherwise FileChanged is raised and the file stays. A file
    that holds the content already is left alone. Links, directories and devices are refused, and so is a
    path whose directory does not exist. A file that is replaced keeps its mode, and its owner where possible.

    After a crash the file itself tells whether it was written. Somebody who writes it in the same instant,
    between our last look and the exchange, is not noticed.
    """
    target, encoded = _checked_path(path), _checked_content(content)
    wanted = hashlib.sha256(encoded).hexdigest()
    expected = None if expected_sha256 is None else _checked_sha256(expected_sha256)
    try:
        found = _look(target)
        if found is None:
            _create(target, encoded)
        elif found.sha256 != wanted:
            if found.sha256 != expected:
                raise FileChanged(str(target), found.sha256, expected)
            _replace(target, encoded, found)
    except OSError as error:
        raise FileNotWritten(str(target), _problem(error)) from error
    if found is None or found.sha256 != wanted:
        # If this fails the file is there, and only `verify` can tell whether it stays.
        sync_directory(target.parent)
    return FileResult(path=str(target), sha256=wanted, size_bytes=len(encoded))


def verify_file(path: str, content: str, *, expected_sha256: str | None = None) -> Verdict:
    """Whether the content is in the file; durably so, when it is."""
    target, encoded = _checked_path(path), _checked_content(content)
    wanted = hashlib.sha256(encoded).hexdigest()
    try:
        found = _look(target)
        if found is None or found.sha256 == expected_sha256 != wanted:
            return DidNotHappen()
        if found.sha256 != wanted:
            return Unknown(
                f"{target} has the checksum {found.sha256}: neither that of the new content ({wanted}) "
                f"nor that of the old ({expected_sha256 or 'none'})"
            )
        # The writer may have died before it had made sure of this.
        _sync(target)
    except (OSError, FileNotWritten) as error:
        return Unknown(f"{target} cannot be looked at: {error}")
    return Happened(FileResult(path=str(target), sha256=wanted, size_bytes=len(encoded)))


# --- looking


def _look(path: Path) -> Found | None:
    """The file at this path; None when there is nothing. Raises FileNotWritten for what is no plain file."""
    try:
        # Not blocking: a FIFO would keep us until somebody writes into it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise FileNotWritten(
                str(path), f"the directory {path.parent} does not exist; make it first"
            ) from None
        return None
    except OSError as error:
        if error.errno == errno.ELOOP and path.is_symlink():
            raise FileNotWritten(str(path), "it is a link; name the file it points to") from error
        if error.errno == errno.ENXIO:
            raise FileNotWritten(str(path), "it is a socket, not a file; name a file") from error
        raise
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise FileNotWritten(str(path), f"it is a {_kind(status.st_mode)}, not a file; name a file")
        digest = hashlib.sha256()
        while chunk := os.read(descriptor, _CHUNK):
            digest.update(chunk)
        return Found(sha256=digest.hexdigest(), status=status)
    finally:
        os.close(descriptor)


def _found_again(path: Path) -> Found:
    found = _look(path)
    if found is None:
        raise FileNotWritten(str(path), "somebody removes and makes it again at the same time; try again")
    return found


def _kind(mode: int) -> str:
    kinds = [(stat.S_ISDIR, "directory"), (stat.S_ISFIFO, "FIFO"), (stat.S_ISSOCK, "socket")]
    return next((name for is_kind, name in kinds if is_kind(mode)), "device")


def _problem(error: OSError) -> str:
    return error.strerror or str(error)


# --- writing


def _create(path: Path, content: bytes) -> None:
    """A new file, unless somebody else makes one meanwhile."""
    unfinished = _write_beside(path, content, mode=0o666)
    try:
        try:
            path.hardlink_to(unfinished)
        except FileExistsError:
            found = _found_again(path)
            if found.sha256 != hashlib.sha256(content).hexdigest():
                raise FileChanged(str(path), found.sha256, None) from None
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS):
                raise
            unfinished.rename(path)  # a file system without hard links
    finally:
        _remove(unfinished)


def _replace(path: Path, content: bytes, before: Found) -> None:
    """The new content in place of the old, which has to be what it was when we looked."""
    unfinished = _write_beside(path, content, mode=0o600, like=before.status)
    try:
        if _identity(path.lstat()) != _identity(before.status):
            raise FileChanged(str(path), _found_again(path).sha256, before.sha256)
        unfinished.replace(path)
    finally:
        _remove(unfinished)


def _remove(unfinished: Path) -> None:
    """What stays is hidden and harms nobody; that it stays must not look as if nothing had been written."""
    with contextlib.suppress(OSError):
        unfinished.unlink(missing_ok=True)


def _write_beside(path: Path, content: bytes, *, mode: int, like: os.stat_result | None = None) -> Path:
    """The content in a hidden file in the same directory, durable; who dies now leaves that file behind."""
    unfinished = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}.holdfast")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if like is not None:
                with contextlib.suppress(PermissionError):  # only root may give files away
                    os.fchown(descriptor, like.st_uid, like.st_gid)
                os.fchmod(descriptor, stat.S_IMODE(like.st_mode))
            file.write(content)
            file.flush()
            os.fsync(descriptor)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    return unfinished


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    sync_directory(path.parent)


# --- what callers hand in


def _checked_path(path: object) -> Path:
    checked = check_path("path", path)
    if str(path).endswith(("/", "/.")) or checked.name in ("", ".."):
        raise BadInput("path", f"{path!r} names a directory; name a file in it")
    return checked


def _checked_content(content: object) -> bytes:
    if not isinstance(content, str):
        raise BadInput("content", f"text is needed, not {type(content).__name__}")
    try:
        encoded = content.encode()
    except UnicodeEncodeError as error:
        raise BadInput(
            "content", f"half of a surrogate pair at {error.start}; it is not valid text"
        ) from error
    if len(encoded) > MAX_PAYLOAD_BYTES:
        raise PayloadTooLarge("content", len(encoded), MAX_PAYLOAD_BYTES)
    return encoded


def _checked_sha256(value: object) -> str:
    if not isinstance(value, str) or not _SHA256.fullmatch(value):
        raise BadInput("expected_sha256", "64 digits of hexadecimal are needed, in small letters")
    return value
