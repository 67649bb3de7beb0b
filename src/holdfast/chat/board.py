"""Reads the tasks of a session for its board."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.core.session import Session, agent_of
from holdfast.core.task import Task
from holdfast.core.transitions import TaskStatus, is_terminal
from holdfast.store import Tx
from holdfast.views.board import BoardView, visible

# How many active tasks, and how many ended ones, of a session are counted at most.
MOST_COUNTED = 100
# How many of the agent's sessions are counted when the asking one has no tasks; the last used first.
MOST_SESSIONS = 20

_ACTIVE = tuple(status for status in TaskStatus if not is_terminal(status))
_ENDED = tuple(status for status in TaskStatus if is_terminal(status))


def read_board(tx: Tx, session_key: str, now: datetime) -> BoardView:
    """The board of a session. If it has no tasks, with counts of all sessions of its agent."""
    board = BoardView.of(session_key, recent_tasks(tx, session_key), now)
    if board.total:
        return board
    others: list[Session] = tx.sessions.page(agent=agent_of(session_key), limit=MOST_SESSIONS)
    shown = [task for one in others for task in visible(recent_tasks(tx, one.key), now)]
    return msgspec.structs.replace(
        board, agent_active=sum(not task.has_ended for task in shown), agent_total=len(shown)
    )


def active_tasks(tx: Tx, session_key: str) -> list[Task]:
    """The session's tasks that have not ended, newest first. Only the session owns them."""
    return tx.tasks.page(owner=session_key, statuses=_ACTIVE, limit=MOST_COUNTED)


def recent_tasks(tx: Tx, session_key: str) -> list[Task]:
    """The same with the newest ones that have ended."""
    ended = tx.tasks.page(owner=session_key, statuses=_ENDED, limit=MOST_COUNTED)
    return active_tasks(tx, session_key) + ended
