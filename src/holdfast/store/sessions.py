"""Reads and writes of sessions."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from datetime import datetime

import msgspec

from holdfast.core.clock import from_micros, to_micros
from holdfast.core.errors import BadInput, NotFound, RowDamaged
from holdfast.core.session import Session
from holdfast.core.task import Origin
from holdfast.store.contract import Row
from holdfast.store.records import Prunable, PrunePage, PrunePosition
from holdfast.store.rows.conversation import row_from_session, session_from_row

_LAST_MICROS = 2**62
_encode = msgspec.json.Encoder().encode


class SessionTable(Prunable[Session]):
    noun = "session"
    nouns = "sessions"
    has_key = True
    from_row = staticmethod(session_from_row)
    to_row = staticmethod(row_from_session)

    def find(self, key: str) -> Session | None:
        row = self._sql.one("session_of_key", {"key": key})
        return None if row is None else session_from_row(row)

    def of_key(self, key: str) -> Session:
        """Raises NotFound."""
        session = self.find(key)
        if session is None:
            raise NotFound("session", key)
        return session

    def hold(self, key: str) -> Session | None:
        """The session of a key, locked until the transaction ends."""
        row = self._sql.one("hold_session", {"key": key})
        return None if row is None else session_from_row(row)

    def append(self, key: str, *, is_queued: bool, origin: Origin | None, now: datetime) -> Session:
        """Reserve the next position in its transcript: `last_position` of the returned session."""
        params = {
            "key": key,
            "queued": int(is_queued),
            "origin": None if origin is None else _encode(origin),
            "now": to_micros(now),
        }
        row = self._sql.one("append_to_session", params)
        if row is None:
            raise NotFound("session", key)
        return session_from_row(row)

    def take(self, session_id: str, task_id: str, *, now: datetime) -> Session | None:
        """Assign the session to a task that answers its first message; None when another task has it, or no
        message is queued."""
        params = {"id": session_id, "task_id": task_id, "now": to_micros(now)}
        row = self._sql.one("take_session", params)
        return None if row is None else session_from_row(row)

    def free(self, session_id: str, task_id: str, *, now: datetime) -> Session | None:
        """Release the session from this task; None when the task does not have it."""
        params = {"id": session_id, "task_id": task_id, "now": to_micros(now)}
        row = self._sql.one("free_session", params)
        return None if row is None else session_from_row(row)

    def drop_queued(self, key: str, *, now: datetime) -> Session | None:
        """Count one queued message less; None when none is queued."""
        row = self._sql.one("drop_queued", {"key": key, "now": to_micros(now)})
        return None if row is None else session_from_row(row)

    def ready(self, agents: Collection[str], *, limit: int) -> list[Session]:
        """Sessions with a message that one of these agents can answer now, longest waiting first."""
        params = {"agents": self._sql.pack(sorted(agents)), "limit": limit}
        return _readable(self._sql.all("ready_sessions", params))

    def waiting_agents(self, *, limit: int) -> list[str]:
        """The agents of the first sessions that wait."""
        return sorted({str(row[0]) for row in self._sql.all("agents_of_ready_sessions", {"limit": limit})})

    def busy(self, *, limit: int, after: str = "") -> list[Session]:
        """Sessions that a task is answering; the last task id is the page token of the next page."""
        return _readable(self._sql.all("busy_sessions", {"after": after, "limit": limit}))

    def ended(self, *, limit: int) -> list[Session]:
        """Sessions whose task has ended and that have not been released yet."""
        return _readable(self._sql.all("ended_sessions", {"limit": limit}))

    def page(
        self,
        *,
        agent: str | None = None,
        active_since: datetime | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> list[Session]:
        """Most recently active first; `page_token` of the last one gives the next page."""
        before_at, before_id = _position_of(before)
        params = {
            "before_at": before_at,
            "before_id": before_id,
            "since": 0 if active_since is None else to_micros(active_since),
            "limit": limit,
        }
        if agent is None:
            found = self._sql.all("page_of_sessions", params)
        else:
            found = self._sql.all("page_of_sessions_of_agent", params | {"agent": agent})
        return _readable(found)

    def old(self, *, older_than: datetime, after: PrunePosition, limit: int) -> PrunePage:
        """Idle sessions without a message since then and with an empty transcript."""
        return self._walk(older_than=older_than, after=after, limit=limit)


def _readable(found: Sequence[Row]) -> list[Session]:
    """The readable sessions: a damaged one must not block the others, and `store verify` names it."""
    sessions = []
    for row in found:
        with contextlib.suppress(RowDamaged):
            sessions.append(session_from_row(row))
    return sessions


def page_token(session: Session) -> str:
    return f"{to_micros(session.updated_at)}.{session.id}"


def _position_of(token: str | None) -> tuple[int, str]:
    if token is None:
        return _LAST_MICROS, ""
    micros, _, session_id = token.partition(".")
    try:
        from_micros(int(micros))
    except (ValueError, OverflowError) as error:
        raise BadInput(
            "before", "this is not a page token; take it from the last page, or leave it out"
        ) from error
    return int(micros), session_id
