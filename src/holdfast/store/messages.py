"""Reads and writes of messages: the transcripts of sessions, and what waits in them for its turn."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from holdfast.core.clock import to_micros
from holdfast.core.message import Message
from holdfast.store.contract import Row
from holdfast.store.records import Place, Prunable, Walked
from holdfast.store.rows.conversation import message_from_row, row_from_message

LAST_POSITION = 2**62


class Messages(Prunable[Message]):
    noun = "message"
    nouns = "messages"
    has_key = True

    def _read(self, row: Row) -> Message:
        return message_from_row(row, self._sealing)

    def _row_of(self, record: Message) -> dict[str, Any]:
        return row_from_message(record, self._sealing)

    def find(self, message: Message) -> Message | None:
        """The message that has its id, or its name in its channel."""
        params = {
            "id": message.id,
            "channel": message.channel,
            "account_id": message.account_id,
            "channel_message_id": message.channel_message_id,
        }
        row = self._sql.one("find_message", params)
        return None if row is None else message_from_row(row, self._sealing)

    def take(self, message_id: str, task_id: str, *, now: datetime) -> Message | None:
        """A task answers it from now on; None when it does not wait any more."""
        params = {"id": message_id, "task_id": task_id, "now": to_micros(now)}
        row = self._sql.one("take_message", params)
        return None if row is None else message_from_row(row, self._sealing)

    def next_of(self, session_key: str) -> Message | None:
        """The first that waits for its turn."""
        row = self._sql.one("next_message", {"session_key": session_key})
        return None if row is None else message_from_row(row, self._sealing)

    def taken_by(self, task_id: str) -> Message | None:
        """What the task was to answer, and has not answered yet."""
        row = self._sql.one("message_of_task", {"task_id": task_id})
        return None if row is None else message_from_row(row, self._sealing)

    def after(self, session_key: str, position: int = 0, *, limit: int) -> list[Message]:
        """The transcript from a place on, oldest first."""
        params = {"session_key": session_key, "after": position, "limit": limit}
        return [message_from_row(row, self._sealing) for row in self._sql.all("messages_after", params)]

    def before(self, session_key: str, position: int = LAST_POSITION, *, limit: int) -> list[Message]:
        """The transcript that ends before a place; its last messages, oldest first."""
        params = {"session_key": session_key, "before": position, "limit": limit}
        found = self._sql.all("messages_before", params)
        return [message_from_row(row, self._sealing) for row in reversed(found)]

    def heard(self, session_key: str, *, until: int, limit: int) -> list[Message]:
        """The same up to a place, without what still waits for its turn."""
        params = {"session_key": session_key, "until": until, "limit": limit}
        found = self._sql.all("messages_heard", params)
        return [message_from_row(row, self._sealing) for row in reversed(found)]

    def old(self, *, older_than: datetime, kept: int, after: Place, limit: int) -> Walked:
        """Messages that nobody needs any more. The last `kept` of a session stay while it is spoken in."""
        return self._walk(older_than=older_than, after=after, limit=limit, kept=kept)
