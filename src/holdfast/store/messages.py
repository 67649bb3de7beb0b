"""Reads and writes of messages: the transcripts of sessions, and the messages that wait for an answer."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from holdfast.core.clock import to_micros
from holdfast.core.message import Message
from holdfast.store.contract import Row
from holdfast.store.records import Prunable, PrunePage, PrunePosition
from holdfast.store.rows.conversation import message_from_row, row_from_message

LAST_POSITION = 2**62


class MessageTable(Prunable[Message]):
    noun = "message"
    nouns = "messages"
    has_key = True

    def _read(self, row: Row) -> Message:
        return message_from_row(row, self._sealing)

    def _row_of(self, record: Message) -> dict[str, Any]:
        return row_from_message(record, self._sealing)

    def find(self, message: Message) -> Message | None:
        """The stored message with the same id, or the same id in its channel."""
        params = {
            "id": message.id,
            "channel": message.channel,
            "account_id": message.account_id,
            "channel_message_id": message.channel_message_id,
        }
        row = self._sql.one("find_message", params)
        return None if row is None else message_from_row(row, self._sealing)

    def sent_as(self, channel: str, channel_message_id: str) -> Message | None:
        """The message with this id in a channel without accounts."""
        params = {"id": "", "channel": channel, "account_id": "", "channel_message_id": channel_message_id}
        row = self._sql.one("find_message", params)
        return None if row is None else message_from_row(row, self._sealing)

    def take(self, message_id: str, task_id: str, *, now: datetime) -> Message | None:
        """Assign it to a task that answers it; None when it is no longer queued."""
        params = {"id": message_id, "task_id": task_id, "now": to_micros(now)}
        row = self._sql.one("take_message", params)
        return None if row is None else message_from_row(row, self._sealing)

    def next_of(self, session_key: str) -> Message | None:
        """The first queued message."""
        row = self._sql.one("next_message", {"session_key": session_key})
        return None if row is None else message_from_row(row, self._sealing)

    def taken_by(self, task_id: str) -> Message | None:
        """The message that the task must answer and has not answered yet."""
        row = self._sql.one("message_of_task", {"task_id": task_id})
        return None if row is None else message_from_row(row, self._sealing)

    def after(self, session_key: str, position: int = 0, *, limit: int) -> list[Message]:
        """The transcript after a position, oldest first."""
        params = {"session_key": session_key, "after": position, "limit": limit}
        return [message_from_row(row, self._sealing) for row in self._sql.all("messages_after", params)]

    def before(self, session_key: str, position: int = LAST_POSITION, *, limit: int) -> list[Message]:
        """The last messages of the transcript before a position, oldest first."""
        params = {"session_key": session_key, "before": position, "limit": limit}
        found = self._sql.all("messages_before", params)
        return [message_from_row(row, self._sealing) for row in reversed(found)]

    def heard(self, session_key: str, *, until: int, limit: int) -> list[Message]:
        """The same up to a position, without queued messages."""
        params = {"session_key": session_key, "until": until, "limit": limit}
        found = self._sql.all("messages_heard", params)
        return [message_from_row(row, self._sealing) for row in reversed(found)]

    def old(self, *, older_than: datetime, kept: int, after: PrunePosition, limit: int) -> PrunePage:
        """Messages that are no longer needed. The last `kept` messages of an active session stay."""
        return self._walk(older_than=older_than, after=after, limit=limit, kept=kept)
