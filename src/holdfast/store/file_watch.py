"""Notices that files were deleted, replaced or moved, for the price of a glance: inotify, where there is one.

To look at a directory costs several times as much, because Python makes an object of every field that a stat
has; and who commits looks every time. Python knows no inotify, so this is the one place with ctypes: whoever
commits often enough has the two milliseconds that it takes to import.

Only where every change goes through this kernel: on a disk that is shared with another one (the binds of a
virtual machine, a network) it would hear of nothing that the other does.
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

_IN_ATTRIB: Final = 0x004  # also: one name less
_IN_MOVE_SELF: Final = 0x800
_MOST_BYTES: Final = 65_536
_OF_ONE_KERNEL: Final = frozenset(
    {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"}
)


class FileWatch:
    """From the moment it is made until it is closed."""

    def __init__(self, files: Sequence[str]) -> None:
        """Raises OSError where that is not to be had: no inotify, no more of it to give, a shared disk."""
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
            # Of the folders only whether they go themselves: in them much happens that is no news.
            for path in _folders_around(files):
                done(libc.inotify_add_watch(self._descriptor, os.fsencode(path), _IN_MOVE_SELF))
        except OSError:
            self.close()
            raise
        # Empty when there is no news; raises once it is closed. Without a function of ours around it: every
        # commit asks. And not by an ioctl, which would be an event to the guard's own audit hook.
        self.ask = partial(self._epoll.poll, 0, 1)

    def take(self) -> None:
        """What comes from now on is new."""
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
    """By the kind of the file system that it lies in; one that is not found is none that we know."""
    device = os.stat(path).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    # Each line: id, parent, device, root, mount point, options, more of them, "-", kind, source, options.
    for line in Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape").splitlines():
        mount, _, kind = line.partition(" - ")
        if mount.split(" ")[2] == number:
            return kind.split(" ")[0] in _OF_ONE_KERNEL
    return False
