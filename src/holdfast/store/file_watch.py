"""Detects cheaply that files were deleted, replaced or moved: with inotify, where the system has it.

A stat of the directory costs several times as much, because Python makes an object of every field, and every
commit must check. Python has no inotify, so this is the one place that uses ctypes; only processes that
commit often import it, because that takes two milliseconds.

It works only where every change goes through this kernel: inotify does not report what another machine does
on a shared disk (a bind mount of a virtual machine, a network file system).
"""
# ruff: noqa: PTH116, PTH120 - os.path, as in the guard, whose paths these are

from __future__ import annotations

import errno
import os
import select
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

_IN_ATTRIB: Final = 0x004  # also reported when a hard link is removed
_IN_MOVE_SELF: Final = 0x800
_MOST_BYTES: Final = 65_536
_OF_ONE_KERNEL: Final = frozenset(
    {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"}
)


class FileWatch:
    """Watches the files from its creation until it is closed."""

    def __init__(self, files: Sequence[str]) -> None:
        """Raises OSError if the files cannot be watched: no inotify, its limit is reached, a shared disk."""
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        is_here = hasattr(libc, "inotify_init1") and hasattr(select, "epoll")
        if not is_here or not _is_of_one_kernel(files[0]):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

        def done(answer: int) -> int:
            if answer < 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            return answer

        self._descriptor = done(libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
        self._epoll: select.epoll | None = None
        try:
            self._epoll = select.epoll()
            self._epoll.register(self._descriptor, select.EPOLLIN)
            for path in files:
                done(libc.inotify_add_watch(self._descriptor, os.fsencode(path), _IN_ATTRIB | _IN_MOVE_SELF))
            # Watch the folders only for their own removal: changes of other files in them do not matter.
            for path in _folders_around(files):
                done(libc.inotify_add_watch(self._descriptor, os.fsencode(path), _IN_MOVE_SELF))
        except OSError:
            self.close()
            raise
        # Returns nothing when nothing changed; raises once it is closed. A partial instead of a function,
        # because every commit calls it; not an ioctl, because that would trigger the guard's audit hook.
        self.ask = partial(self._epoll.poll, 0, 1)

    def take(self) -> None:
        """Consume the pending events."""
        with suppress(BlockingIOError):
            while os.read(self._descriptor, _MOST_BYTES):
                pass

    def close(self) -> None:
        if self._epoll is not None:
            self._epoll.close()
        os.close(self._descriptor)


def _folders_around(files: Sequence[str]) -> set[str]:
    folders = {os.path.dirname(path) for path in files}
    while (above := {os.path.dirname(path) for path in folders}) - folders:
        folders |= above
    return folders


def _is_of_one_kernel(path: str) -> bool:
    """Whether its file system is local, by type; False for a file system that is not found."""
    device = os.stat(path).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    # Each line: id, parent, device, root, mount point, options, more options, "-", type, source, options.
    for line in Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape").splitlines():
        mount, _, kind = line.partition(" - ")
        if mount.split(" ")[2] == number:
            return kind.split(" ")[0] in _OF_ONE_KERNEL
    return False
