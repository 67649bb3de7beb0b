"""Walks and reads a tree that is not trusted: never through a link, never without a bound, never blocking."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import msgspec

from holdfast.core.errors import HoldfastError

MAX_ENTRIES = 200_000
MAX_DEPTH = 64
MAX_FILE_BYTES = 2 * 1024 * 1024
# What a repository contains but did not write, and what tools leave in it.
_SKIPPED = """
.bzr .cache .eggs .git .gradle .hg .idea .mypy_cache .nox .pytest_cache .ruff_cache .svn .tox .venv
__pycache__ _vendor bower_components dist-packages node_modules site-packages third_party thirdparty
vendor vendored venv
"""
SKIPPED_FOLDERS = frozenset(_SKIPPED.encode().split())


class TreeFile(NamedTuple):
    """A regular file of a tree. Paths are bytes, as the file system has them."""

    path: bytes
    # Below the root of the tree.
    relative: bytes
    size: int
    modified_s: int

    @property
    def name(self) -> bytes:
        return self.relative.rpartition(b"/")[2]


class SkippedFiles(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What was not looked at, and why."""

    binary: int = 0
    large: int = 0
    links: int = 0
    # Pipes, sockets and devices.
    special: int = 0
    unreadable: int = 0
    vendored_folders: int = 0
    # The tree has more entries, or more levels, than are looked at.
    is_cut: bool = False

    def add(self, other: SkippedFiles) -> None:
        for name in ("binary", "large", "links", "special", "unreadable", "vendored_folders"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.is_cut = self.is_cut or other.is_cut


def walk(root: bytes, skipped: SkippedFiles, *, max_entries: int = MAX_ENTRIES) -> Iterator[TreeFile]:
    """The regular files below a directory, in the order of their names. What is passed over is counted."""
    waiting = [(root, b"", 0)]
    left = max_entries
    while waiting:
        folder, above, depth = waiting.pop()
        try:
            with os.scandir(folder) as found:
                entries = list(islice(found, left + 1))
        except OSError:
            skipped.unreadable += 1
            continue
        if len(entries) > left:
            skipped.is_cut = True
            del entries[left:]
        left -= len(entries)
        folders = []
        for entry in sorted(entries, key=_name_of):
            relative = above + entry.name
            kind = _kind_of(entry, skipped)
            if kind == "file":
                file = _measured(entry, relative, skipped)
                if file is not None:
                    yield file
            elif kind == "folder":
                if depth + 1 >= MAX_DEPTH:
                    skipped.is_cut = True
                else:
                    folders.append((entry.path, relative + b"/", depth + 1))
        waiting += reversed(folders)


def _name_of(entry: os.DirEntry[bytes]) -> bytes:
    return entry.name


def _kind_of(entry: os.DirEntry[bytes], skipped: SkippedFiles) -> str | None:
    try:
        if entry.is_symlink():
            skipped.links += 1
        elif entry.is_dir(follow_symlinks=False):
            if entry.name not in SKIPPED_FOLDERS:
                return "folder"
            skipped.vendored_folders += entry.name != b".git"
        elif entry.is_file(follow_symlinks=False):
            return "file"
        else:
            skipped.special += 1
    except OSError:
        skipped.unreadable += 1
    return None


def _measured(entry: os.DirEntry[bytes], relative: bytes, skipped: SkippedFiles) -> TreeFile | None:
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:
        skipped.unreadable += 1
        return None
    return TreeFile(entry.path, relative, found.st_size, int(found.st_mtime))


def read_file(file: TreeFile, skipped: SkippedFiles, *, max_bytes: int = MAX_FILE_BYTES) -> bytes | None:
    """The content of a regular file; None if it is too large or cannot be read, which is counted."""
    if file.size > max_bytes:
        skipped.large += 1
        return None
    try:
        content = read_regular(file.path, max_bytes)
    except (OSError, HoldfastError):  # HoldfastError: it is the ledger's own file
        skipped.unreadable += 1
        return None
    if content is None:
        skipped.large += 1
    return content


def read_regular(path: bytes, max_bytes: int) -> bytes | None:
    """The content of a file, never of a link, a pipe or a device; None if it is larger than that.

    Raises OSError.
    """
    # A pipe that took the place of the file since then must not block the open.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    with os.fdopen(descriptor, "rb") as opened:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(22, "not a regular file")
        content = opened.read(max_bytes + 1)
    return None if len(content) > max_bytes else content
