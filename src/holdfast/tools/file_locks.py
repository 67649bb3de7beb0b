"""Locks on files that only one of several processes may change at a time."""

from __future__ import annotations

import fcntl


def try_lock(descriptor: int) -> bool:
    """Whether the file is locked for this descriptor now; it does not wait for another process."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
