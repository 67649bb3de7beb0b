"""Notices that files were deleted, replaced or moved, for the price of a poll: inotify, where there is one.

To look at a directory costs three times as much, because Python makes an object of every field that a stat
has; and who commits looks every time. Python knows no inotify, so this is the one place with ctypes: whoever
commits often enough has the two milliseconds that it takes to import.
"""
# ruff: noqa: PTH120 - os.path, as in the guard, whose paths these are

from __future__ import annotations

import errno
import os
import select
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

_IN_ATTRIB: Final = 0x004  # also: one name less
_IN_MOVE_SELF: Final = 0x800
_MOST_BYTES: Final = 65_536


class Notices:
    """From the moment it is made until it is closed."""

    def __init__(self, files: Sequence[str]) -> None:
        """Raises OSError where the system has no inotify, or no more of it to give."""
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(libc, "inotify_init1"):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

        def done(answer: int) -> int:
            if answer < 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            return answer

        self._descriptor = done(libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
        try:
            for path in files:
                done(libc.inotify_add_watch(self._descriptor, os.fsencode(path), _IN_ATTRIB | _IN_MOVE_SELF))
            # Of the folders only whether they go themselves: in them much happens that is no news.
            for path in _folders_around(files):
                done(libc.inotify_add_watch(self._descriptor, os.fsencode(path), _IN_MOVE_SELF))
        except OSError:
            self.close()
            raise
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        # Of milliseconds to wait: something, once any of them was touched since the last `take`.
        self.after = poll.poll

    def take(self) -> None:
        """What comes from now on is new."""
        with suppress(BlockingIOError):
            while os.read(self._descriptor, _MOST_BYTES):
                pass

    def close(self) -> None:
        os.close(self._descriptor)


def _folders_around(files: Sequence[str]) -> set[str]:
    folders = {os.path.dirname(path) for path in files}
    while (above := {os.path.dirname(path) for path in folders}) - folders:
        folders |= above
    return folders
