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
from holdfast.store.records import Place, Prunable, Walked
from holdfast.store.rows.conversation import row_from_session, session_from_row

_LAST_MICROS = 2**62
_encode = msgspec.json.Encoder().encode


class Sessions(Prunable[Session]):
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
        """The session of a key; nobody else adds to it, takes it or frees it until the transaction ends."""
        row = self._sql.one("hold_session", {"key": key})
        return None if row is None else session_from_row(row)

    def append(self, key: str, *, is_queued: bool, origin: Origin | None, now: datetime) -> Session:
        """The next place in its transcript is given away: `last_position` of what is returned."""
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
        """A task answers its first message; None when another does, or when nothing waits."""
        params = {"id": session_id, "task_id": task_id, "now": to_micros(now)}
        row = self._sql.one("take_session", params)
        return None if row is None else session_from_row(row)

    def free(self, session_id: str, task_id: str, *, now: datetime) -> Session | None:
        """That task answers no longer; None when it did not before."""
        params = {"id": session_id, "task_id": task_id, "now": to_micros(now)}
        row = self._sql.one("free_session", params)
        return None if row is None else session_from_row(row)

    def drop_queued(self, key: str, *, now: datetime) -> Session | None:
        """One message fewer waits for its turn; None when none did."""
        row = self._sql.one("drop_queued", {"key": key, "now": to_micros(now)})
        return None if row is None else session_from_row(row)

    def ready(self, agents: Collection[str], *, limit: int) -> list[Session]:
        """In which a message can be answered now by one of these agents, longest waiting first."""
        params = {"agents": self._sql.pack(sorted(agents)), "limit": limit}
        return _readable(self._sql.all("ready_sessions", params))

    def waiting_agents(self, *, limit: int) -> list[str]:
        """Whose sessions wait, among the first that do."""
        return sorted({str(row[0]) for row in self._sql.all("agents_of_ready_sessions", {"limit": limit})})

    def busy(self, *, limit: int, after: str = "") -> list[Session]:
        """In which something is being answered; the last task id is the page token of the next page."""
        return _readable(self._sql.all("busy_sessions", {"after": after, "limit": limit}))

    def ended(self, *, limit: int) -> list[Session]:
        """Whose task has ended, and which nobody has freed yet."""
        return _readable(self._sql.all("ended_sessions", {"limit": limit}))

    def page(
        self,
        *,
        agent: str | None = None,
        active_since: datetime | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> list[Session]:
        """Last spoken in first; `page_token` of the last one leads to the next page."""
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

    def old(self, *, older_than: datetime, after: Place, limit: int) -> Walked:
        """Idle ones in which nobody has spoken since, and of whose transcript nothing is left."""
        return self._walk(older_than=older_than, after=after, limit=limit)


def _readable(found: Sequence[Row]) -> list[Session]:
    """Without those that are damaged, which `store verify` names: one must not keep the others waiting."""
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
            "before", "it is no page token; take it from the last page, or leave it out"
        ) from error
    return int(micros), session_id
