"""Reads and writes of mail: messages to tasks, in order, once per key."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from holdfast.core.clock import to_micros
from holdfast.core.errors import NotFound
from holdfast.core.ids import TaskId
from holdfast.core.program_records import Mail
from holdfast.store.rows.journal import mail_from_row, row_from_mail

if TYPE_CHECKING:
    from holdfast.store.transaction import Tx


class MailTable:
    def __init__(self, tx: Tx) -> None:
        self._sql = tx.statements
        self._sealing = tx.sealing

    def send(self, task_id: str, *, topic: str, body: bytes, sender: str, key: str, now: datetime) -> bool:
        """False when mail with that key was sent to that task before: then nothing changes.

        The task is locked until the transaction ends, so that mail has one order. Raises NotFound if there is
        no such task.
        """
        if self._sql.one("hold_task", {"id": task_id}) is None:
            raise NotFound("task", task_id)
        place = self._sql.one("next_mail_seq", {"task_id": task_id})
        assert place is not None
        mail = Mail(
            task_id=TaskId(task_id),
            seq=int(place[0]),
            topic=topic,
            body=body,
            sender=sender,
            key=key,
            sent_at=now,
        )
        return self._sql.one("insert_mail", row_from_mail(mail, self._sealing)) is not None

    def next_of(self, task_id: str, topic: str) -> Mail | None:
        """The oldest mail on that topic that was not taken."""
        row = self._sql.one("next_mail", {"task_id": task_id, "topic": topic})
        return None if row is None else mail_from_row(row, self._sealing)

    def of_task(self, task_id: str) -> list[Mail]:
        """All mail that was ever sent to the task, in order, taken or not."""
        return [
            mail_from_row(row, self._sealing) for row in self._sql.all("mail_of_task", {"task_id": task_id})
        ]

    def take(self, task_id: str, seq: int, now: datetime) -> bool:
        """Mark it as taken; False if it was taken before."""
        params = {"task_id": task_id, "seq": seq, "now": to_micros(now)}
        return self._sql.one("take_mail", params) is not None
