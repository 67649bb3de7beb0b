"""Writes files atomically: a reader sees the old content or the new, after a crash, too."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from holdfast import trust
from holdfast.tools.file_locks import try_lock

# How long to wait for another process that writes the same file.
PATIENCE_S = 60.0
_BETWEEN_LOOKS_S = 0.02


def write_atomically(path: Path, content: bytes, *, modified_ns: int | None = None) -> None:
    """Write the file for its owner alone, durably. What another process writes at the same time is not mixed
    with it. Raises OSError, TimeoutError."""
    with _held(path.with_name(f".{path.name}.tmp")) as (temporary, descriptor):
        os.ftruncate(descriptor, 0)
        written = 0
        while written < len(content):
            written += os.pwrite(descriptor, content[written:], written)
        os.fsync(descriptor)
        if modified_ns is not None:
            os.utime(descriptor, ns=(modified_ns, modified_ns))
        temporary.replace(path)
        trust.sync_directory(path.parent)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[int]:
    """Hold a lock file against other processes and threads; yields its time, as the file system tells time.

    The kernel drops the lock when its holder dies.
    """
    with _held(path) as (_, descriptor):
        os.utime(descriptor)
        yield os.fstat(descriptor).st_mtime_ns


@contextlib.contextmanager
def _held(path: Path) -> Iterator[tuple[Path, int]]:
    give_up_at = time.monotonic() + PATIENCE_S
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            if try_lock(descriptor) and _is_at(path, descriptor):
                yield path, descriptor
                return
        finally:
            os.close(descriptor)
        if time.monotonic() >= give_up_at:
            raise TimeoutError(f"another process has held {path} for {PATIENCE_S:g} s")
        time.sleep(_BETWEEN_LOOKS_S)


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether the path still names this file; the holder before may have renamed it."""
    try:
        return os.path.samestat(path.stat(follow_symlinks=False), os.fstat(descriptor))
    except FileNotFoundError:
        return False
