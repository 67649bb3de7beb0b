"""Reads the tasks of a session for its board."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.core.session import Session, agent_of
from holdfast.engine.ledger.recent import recent_tasks
from holdfast.store import Tx
from holdfast.views.board import BoardView, visible

# How many of the agent's sessions are counted when the asking one has no tasks; the last used first.
MOST_SESSIONS = 20


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
