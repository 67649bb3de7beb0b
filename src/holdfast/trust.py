"""Whether a file may be trusted: its owner, its mode, the links that lead to it, the directories above it.

A user who can write or replace a file controls its contents. So the owner of every file, link and directory
on the path must be root or the user of this process, and no other user may write there.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

# Linux follows as many.
_MAX_LINKS = 40


class PathEntry(NamedTuple):
    """One file, link or directory on a path."""

    path: Path
    found: os.stat_result


def why_not_trusted(
    path: Path, *, opened: os.stat_result | None = None, is_private: bool = False, is_parent: bool = False
) -> str | None:
    """Why this file or directory must not be trusted, with the command that fixes it; None if it may be.

    `opened` is the file that the caller has open under this path; if all directories above are ours, no other
    user can have replaced it. A private file must not be readable by others, either. With `is_parent` the
    question is about a file to be created in this directory, which may then be sticky, as /tmp is. Raises
    OSError if the path cannot be read, FileNotFoundError included.
    """
    *above, last = way_to(path)
    for place in above:
        problem = _why_foreign(place) or _why_writable(place, may_be_sticky=True)
        if problem is not None:
            return f"{problem}; {last.path} is below it" if place.path in last.path.parents else problem
    if opened is not None and not os.path.samestat(opened, last.found):
        return f"{path} was replaced while it was read: try again"
    if is_parent:
        return _why_foreign(last) or _why_writable(last, may_be_sticky=True)
    return why_not(last.path, last.found, is_private=is_private)


def why_not(path: Path, found: os.stat_result, *, is_private: bool = False) -> str | None:
    """The same for what was found under this path, without checking the directories above it."""
    place = PathEntry(path, found)
    problem = _why_foreign(place) or _why_writable(place)
    mode = stat.S_IMODE(found.st_mode)
    if problem is None and is_private and mode & 0o077:
        return (
            f"{path} is open to others (mode {mode:04o}), so they may have read it: "
            f"replace the secret in it, then {_command('chmod 600', path)}"
        )
    return problem


def why_foreign_link(path: Path) -> str | None:
    """Why the links in this path must not be followed: another user made one. None if they may be."""
    try:
        for place in way_to(path):
            if stat.S_ISLNK(place.found.st_mode) and (problem := _why_foreign(place)) is not None:
                return problem
    except OSError:  # a path that does not exist has nothing to follow
        return None
    return None


def make_private_directory(path: Path) -> None:
    """Make a directory and its missing parents, for their owner alone, and sync their names to disk.

    A directory that exists stays as it is. Raises OSError.
    """
    if not path.is_dir():
        if path.parent != path:
            make_private_directory(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)
        try:
            sync_directory(path.parent)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EACCES):
                raise
            # The file system cannot sync directories, or this process may not read the parent.


def create_private_file(path: Path, content: bytes) -> bool:
    """Write the file atomically and durably, never over another file: False if there is one."""
    made = path.with_name(f".{path.name.lstrip('.')}.{secrets.token_hex(8)}")
    file = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(file, 0o600)
        os.write(file, content)
        os.fsync(file)
    finally:
        os.close(file)
    try:
        os.link(made, path)
        is_ours = True
    except FileExistsError:
        is_ours = False
    finally:
        made.unlink()
    sync_directory(path.parent)
    return is_ours


def version_of(path: Path, *, follow_links: bool = True) -> tuple[int, ...] | None:
    """What tells one version of a file from another; None if it is not there."""
    try:
        found = path.stat(follow_symlinks=follow_links)
    except OSError:
        return None
    return (
        found.st_mtime_ns,
        found.st_ctime_ns,
        found.st_size,
        found.st_dev,
        found.st_ino,
        found.st_mode,
        found.st_uid,
    )


def sync_directory(path: Path) -> None:
    """Make the directory's entries durable."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def way_to(path: Path) -> Iterator[PathEntry]:
    """Every directory and link on the path, from the root on, and finally the file itself."""
    # In reverse, so that the next part is at the end.
    waiting = [*reversed(path.absolute().parts[1:])]
    at, links = Path(path.absolute().anchor), 0
    yield PathEntry(at, at.lstat())
    while waiting:
        name = waiting.pop()
        if name == "..":
            at = at.parent
            continue
        found = (at / name).lstat()
        yield PathEntry(at / name, found)
        if not stat.S_ISLNK(found.st_mode):
            at = at / name
            continue
        links += 1
        if links > _MAX_LINKS:
            raise OSError(errno.ELOOP, "too many links")
        target = (at / name).readlink()
        if target.is_absolute():
            at = Path(target.anchor)
        waiting.extend(reversed([part for part in target.parts if part != target.anchor]))


def _why_foreign(place: PathEntry) -> str | None:
    owner = place.found.st_uid
    if owner in (os.geteuid(), 0):
        return None
    ours = _name(os.geteuid())
    own = "chown -h" if stat.S_ISLNK(place.found.st_mode) else "chown"
    wanted = "root" if os.geteuid() == 0 else f"{ours} or root"
    return (
        f"{place.path} belongs to another user ({_shown(owner)}), not to {wanted}: "
        f"{_command(f'{own} {ours}', place.path)} if you trust it, or run this as {_name(owner)}"
    )


def _why_writable(place: PathEntry, *, may_be_sticky: bool = False) -> str | None:
    if stat.S_ISLNK(place.found.st_mode):  # the mode of a link has no meaning
        return None
    mode = stat.S_IMODE(place.found.st_mode)
    # As in /tmp: only the owner of a file may move it away, and every owner on the path is checked.
    if may_be_sticky and mode & stat.S_ISVTX:
        return None
    others = None
    if mode & stat.S_IWOTH:
        others = "any user"
    elif mode & stat.S_IWGRP and not _is_own_group(place.found):
        others = "its group"
    if others is None:
        return None
    return f"{place.path} can be written by {others} (mode {mode:04o}): {_command('chmod go-w', place.path)}"


def _is_own_group(found: os.stat_result) -> bool:
    """Many systems give each user a group of the same name, and let it write by default."""
    import grp
    import pwd

    try:
        owner, group = pwd.getpwuid(found.st_uid).pw_name, grp.getgrgid(found.st_gid)
    except KeyError:  # this machine does not know the user or the group
        return False
    return group.gr_name == owner and set(group.gr_mem) <= {owner}


def _command(command: str, path: Path) -> str:
    import shlex

    return f"{command} {shlex.quote(str(path))}"


def _shown(uid: int) -> str:
    name = _name(uid)
    return name if name == str(uid) else f"{name}, {uid}"


def _name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
