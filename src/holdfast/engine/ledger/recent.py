"""Reads the tasks of one owner that matter now: active ones, and the newest that have ended."""

from __future__ import annotations

from holdfast.core.task import Task
from holdfast.core.transitions import TaskStatus, is_terminal
from holdfast.store import Tx

# How many active tasks, and how many ended ones, are read at most.
MOST_COUNTED = 100

_ACTIVE = tuple(status for status in TaskStatus if not is_terminal(status))
_ENDED = tuple(status for status in TaskStatus if is_terminal(status))


def active_tasks(tx: Tx, owner: str) -> list[Task]:
    """The owner's tasks that have not ended, newest first. A session owns its tasks."""
    return tx.tasks.page(owner=owner, statuses=_ACTIVE, limit=MOST_COUNTED)


def recent_tasks(tx: Tx, owner: str) -> list[Task]:
    """The same with the newest ones that have ended."""
    return active_tasks(tx, owner) + tx.tasks.page(owner=owner, statuses=_ENDED, limit=MOST_COUNTED)
