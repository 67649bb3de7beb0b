"""Lives that end without a word, told inside one process."""

from __future__ import annotations

import os

from holdfast.engine.claims.boots import Life
from holdfast.store import Store
from tests.engine.parts import Parts
from tests.engine.tables import execute


def die(parts: Parts) -> None:
    free_lock(parts.life)


def free_lock(life: Life) -> None:
    """What the kernel does for a process that is gone: its lock is free, its file stays."""
    lock = life._lock
    if lock is not None and lock._descriptor is not None:
        os.close(lock._descriptor)
        lock._descriptor = None


def spend_attempts(store: Store) -> None:
    """Whatever is carried now, and saves nothing more, is not resumed again: its attempts are spent."""
    execute(store, "UPDATE runs SET idle_attempts = 99 WHERE status = 'running'")
