"""Lives that end without a word, told inside one process."""

from __future__ import annotations

import os

from tests.engine.parts import Parts


def die(parts: Parts) -> None:
    """What the kernel does for a process that is gone: its lock is free, its file stays."""
    lock = parts.life._lock
    if lock is not None and lock._descriptor is not None:
        os.close(lock._descriptor)
        lock._descriptor = None
