"""A tool that writes a file atomically, and never overwrites what another program wrote."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from holdfast.config import default_home
from holdfast.core.errors import BadInput, NotInRun, PayloadTooLarge, SettingsError
from holdfast.core.payload import MAX_PAYLOAD_BYTES
from holdfast.core.step_declarations import DidNotHappen, Happened, Unknown, Verdict, tool, verifiable
from holdfast.tools.errors import FileChanged, FileNotWritten
from holdfast.tools.inputs import check_directory, check_path, check_word, current_key

_CHUNK = 1024 * 1024
_ENDING = ".holdfast"
# Opens a directory without permission to read it.
_ONLY_A_PLACE = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
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


class FileLocation(NamedTuple):
    """A file name in an open directory, so that nothing can redirect the path later."""

    directory: int
    name: str
    path: Path


async def _verify_write_file(
    path: str, content: str, *, expected_sha256: str | None = None, root: str | None = None
) -> Verdict:
    return await asyncio.to_thread(verify_file, path, content, expected_sha256=expected_sha256, root=root)


@tool(
    effect=verifiable(_verify_write_file, local=True, did_not_happen=(FileChanged, BadInput)),
    name="write_file",
    raises=(FileChanged, FileNotWritten, BadInput),
)
def write_file(
    path: str, content: str, *, expected_sha256: str | None = None, root: str | None = None
) -> FileResult:
    """Write a text file durably and atomically: readers see the old content or the new, nothing between.

    A file with other content is replaced only if its checksum is `expected_sha256`, which the caller recorded
    when it last read or wrote the file; otherwise FileChanged is raised and the file stays. A file that has
    the content already is left alone. Links, directories and devices are refused, and so is a path whose
    directory does not exist. A replaced file keeps its mode, and its owner where possible.

    With `root` the file must be below that directory: a relative path begins there, and no link below it is
    followed. Holdfast's home is never written to, whatever path or link leads there.

    After a crash the file itself shows whether it was written. A write by another program in the same
    instant, between the last check and the rename, is not noticed.
    """
    target, encoded = _checked_path(path, root), _checked_content(content)
    wanted = hashlib.sha256(encoded).hexdigest()
    expected = None if expected_sha256 is None else _checked_sha256(expected_sha256)
    with _held(target, root) as spot:
        try:
            found = _look(spot)
            if found is None:
                _create(spot, encoded)
            elif found.sha256 != wanted:
                if found.sha256 != expected:
                    raise FileChanged(str(target), expected)
                _replace(spot, encoded, found)
        except OSError as error:
            raise FileNotWritten(str(target), _problem(error)) from error
        if found is None or found.sha256 != wanted:
            # If this fails, the file is there but may not be durable; `verify` settles that.
            _sync_directory(spot)
    return FileResult(path=str(target), sha256=wanted, size_bytes=len(encoded))


def verify_file(
    path: str, content: str, *, expected_sha256: str | None = None, root: str | None = None
) -> Verdict:
    """Whether the content is in the file; if so, make it durable."""
    target, encoded = _checked_path(path, root), _checked_content(content)
    wanted = hashlib.sha256(encoded).hexdigest()
    try:
        with _held(target, root) as spot:
            _remove_left_over(spot)
            found = _look(spot)
            if found is None or found.sha256 == expected_sha256 != wanted:
                return DidNotHappen()
            if found.sha256 != wanted:
                # Do not name the present checksum: the next call could use it to replace the file unread.
                return Unknown(
                    f"the checksum of {target} is neither that of the new content ({wanted}) "
                    f"nor that of the old ({expected_sha256 or 'none'})"
                )
            # The writer may have died before its fsync.
            _sync(spot)
    except (OSError, FileNotWritten) as error:
        return Unknown(f"{target} cannot be read: {error}")
    return Happened(FileResult(path=str(target), sha256=wanted, size_bytes=len(encoded)))


# --- the way there


@contextlib.contextmanager
def _held(target: Path, root: str | None) -> Iterator[FileLocation]:
    """Open the directory of the file; it must be outside of the home. Raises FileNotWritten."""
    with contextlib.ExitStack() as opened:
        try:
            if root is None:
                directory = _open_directory(target.parent)
                opened.callback(os.close, directory)
            else:
                directory = _below(target, Path(root).absolute(), opened)
            _check_outside_home(directory, target, opened)
        except FileNotFoundError as error:
            raise FileNotWritten(
                str(target), f"the directory {target.parent} does not exist; make it first"
            ) from error
        except OSError as error:
            raise FileNotWritten(str(target), _problem(error)) from error
        yield FileLocation(directory, target.name, target)


def _below(target: Path, root: Path, opened: contextlib.ExitStack) -> int:
    """Open one directory after the other from the root, none of them through a link."""
    directory = _open_directory(root)
    opened.callback(os.close, directory)
    at = root
    for part in target.parent.relative_to(root).parts:
        at = at / part
        try:
            directory = _open_directory(part, os.O_NOFOLLOW, below=directory)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise FileNotWritten(
                    str(target), f"{at} is a link or no directory; below root no link is followed"
                ) from error
            raise
        opened.callback(os.close, directory)
    return directory


def _open_directory(path: Path | str, flags: int = 0, *, below: int | None = None) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | flags, dir_fd=below)


def _check_outside_home(directory: int, target: Path, opened: contextlib.ExitStack) -> None:
    """Refuse the home: no tool may write the ledger, the token, the key or the settings."""
    try:
        home = default_home(os.environ)
        found = home.stat()
    except SettingsError as error:
        raise FileNotWritten(str(target), str(error)) from error
    except OSError:  # the home does not exist yet; a file must not take its place
        resolved = target.parent.resolve() / target.name
        if resolved == home or resolved in home.parents:
            raise FileNotWritten(str(target), "it is where the home of Holdfast will be") from None
        return
    # Compare inodes, not names: links and mounts give a directory other names.
    at = directory
    while True:
        this = os.fstat(at)
        if os.path.samestat(this, found):
            raise FileNotWritten(str(target), f"it is in the home of Holdfast, {home}; name another place")
        at = os.open("..", _ONLY_A_PLACE, dir_fd=at)
        opened.callback(os.close, at)
        if os.path.samestat(os.fstat(at), this):  # the root of the file system
            return


# --- looking


def _look(spot: FileLocation) -> Found | None:
    """The file at this spot; None when there is nothing. Raises FileNotWritten if it is not a plain file."""
    path = str(spot.path)
    try:
        # O_NONBLOCK: to open a FIFO would block until a program writes into it.
        descriptor = os.open(
            spot.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=spot.directory
        )
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise FileNotWritten(path, "it is a link; name the file it points to") from error
        if error.errno == errno.ENXIO:
            raise FileNotWritten(path, "it is a socket, not a file; name a file") from error
        raise
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise FileNotWritten(path, f"it is a {_kind(status.st_mode)}, not a file; name a file")
        digest = hashlib.sha256()
        while chunk := os.read(descriptor, _CHUNK):
            digest.update(chunk)
        return Found(sha256=digest.hexdigest(), status=status)
    finally:
        os.close(descriptor)


def _kind(mode: int) -> str:
    kinds = [(stat.S_ISDIR, "directory"), (stat.S_ISFIFO, "FIFO"), (stat.S_ISSOCK, "socket")]
    return next((name for is_kind, name in kinds if is_kind(mode)), "device")


def _problem(error: OSError) -> str:
    return error.strerror or str(error)


# --- writing


def _create(spot: FileLocation, content: bytes) -> None:
    """Create the file, unless another program creates one meanwhile."""
    at = spot.directory
    unfinished = _write_beside(spot, content, mode=0o666)
    try:
        try:
            os.link(unfinished, spot.name, src_dir_fd=at, dst_dir_fd=at, follow_symlinks=False)
        except FileExistsError:
            found = _look(spot)
            if found is None:
                raise FileNotWritten(
                    str(spot.path), "another program keeps removing and creating it; try again"
                ) from None
            if found.sha256 != hashlib.sha256(content).hexdigest():
                raise FileChanged(str(spot.path), None) from None
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS):
                raise
            os.rename(unfinished, spot.name, src_dir_fd=at, dst_dir_fd=at)  # no hard links on this disk
    finally:
        _remove(spot, unfinished)


def _replace(spot: FileLocation, content: bytes, before: Found) -> None:
    """Replace the old content, if the file has not changed since it was read."""
    at = spot.directory
    unfinished = _write_beside(spot, content, mode=0o600, like=before.status)
    try:
        now = os.stat(spot.name, dir_fd=at, follow_symlinks=False)
        if _identity(now) != _identity(before.status):
            raise FileChanged(str(spot.path), before.sha256)
        os.replace(unfinished, spot.name, src_dir_fd=at, dst_dir_fd=at)
    finally:
        _remove(spot, unfinished)


def _remove(spot: FileLocation, unfinished: str) -> None:
    """Remove the temporary file. If that fails, ignore it: the error would look as if nothing was written."""
    with contextlib.suppress(OSError):
        os.unlink(unfinished, dir_fd=spot.directory)


def _remove_left_over(spot: FileLocation) -> None:
    """Remove the temporary file of an earlier process of this effect: it holds the content, perhaps with a
    password, where the user does not look for it."""
    begin = _beside(spot)
    if begin is not None:
        with contextlib.suppress(OSError):
            for name in os.listdir(spot.directory):  # noqa: PTH208 - by its descriptor
                if name.startswith(begin) and name.endswith(_ENDING):
                    _remove(spot, name)


def _beside(spot: FileLocation) -> str | None:
    """The prefix of this effect's temporary files beside the file; None outside of an effect."""
    try:
        key = current_key()
    except NotInRun:
        return None
    return f".{spot.name[:100]}.{hashlib.blake2b(key.encode(), digest_size=8).hexdigest()}."


def _write_beside(
    spot: FileLocation, content: bytes, *, mode: int, like: os.stat_result | None = None
) -> str:
    """Write the content durably to a hidden file in the same directory; a crash leaves that file behind."""
    begin = _beside(spot) or f".{spot.name[:100]}."
    unfinished = f"{begin}{secrets.token_hex(8)}{_ENDING}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(unfinished, flags, mode, dir_fd=spot.directory)
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
        _remove(spot, unfinished)
        raise
    return unfinished


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _sync(spot: FileLocation) -> None:
    descriptor = os.open(spot.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=spot.directory)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    _sync_directory(spot)


def _sync_directory(spot: FileLocation) -> None:
    """Make the new name itself durable."""
    os.fsync(spot.directory)


# --- checks of arguments


def _checked_path(path: object, root: object) -> Path:
    if root is not None:
        checked = _checked_below(path, check_directory("root", root))
    else:
        checked = check_path("path", path)
    if str(path).endswith(("/", "/.")) or checked.name in ("", ".."):
        raise BadInput("path", f"{path!r} names a directory; name a file in it")
    return checked


def _checked_below(path: object, root: Path) -> Path:
    """Check the path as text; links are checked when the directories are opened."""
    given = Path(check_word("path", os.fspath(path) if isinstance(path, os.PathLike) else path))
    checked = root / given
    if ".." in given.parts or not checked.is_relative_to(root) or checked == root:
        raise BadInput("path", f"{str(given)!r} is not below {root}; name a file there")
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
        raise BadInput("expected_sha256", "64 lowercase hexadecimal digits are needed")
    return value
