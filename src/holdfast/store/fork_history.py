"""Copies the history of one task into a new task that no worker has claimed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from holdfast.core.plan import Plan
from holdfast.core.program_records import LoopPosition
from holdfast.core.step import Artifact, Note
from holdfast.store.rows.journal import (
    row_from_artifact,
    row_from_loop,
    row_from_note,
    row_from_plan,
    turn_from_row,
    turn_row_of,
)

if TYPE_CHECKING:
    from holdfast.store.transaction import Tx

_PAGE = 1000


class ForkHistory:
    """Writes without a fence: the caller has just created the task, so no worker can hold it."""

    def __init__(self, tx: Tx) -> None:
        self._sql = tx.statements
        self._sealing = tx.sealing

    def copy_turns(self, source_id: str, task_id: str, loop: str, *, up_to: int) -> None:
        """Copy the finished turns of a loop unchanged. Raises RowDamaged."""
        after = 0
        params = {"task_id": source_id, "loop": loop, "limit": _PAGE}
        while found := self._sql.all("turns_of_loop", params | {"after": after}):
            for row in found:
                turn = turn_from_row(row, self._sealing)
                if turn.seq > up_to:
                    return
                self._sql.run("insert_turn", turn_row_of(row, task_id, self._sealing))
                after = turn.seq

    def put_loop(self, task_id: str, loop: LoopPosition, now: datetime) -> None:
        self._sql.run("save_loop", row_from_loop(task_id, loop, now))

    def put_plan(self, task_id: str, run_id: str, plan: Plan, now: datetime) -> None:
        self._sql.run("save_plan", row_from_plan(task_id, run_id, plan, now, self._sealing))

    def put_artifact(self, task_id: str, run_id: str, artifact: Artifact) -> None:
        self._sql.run("save_artifact", row_from_artifact(task_id, run_id, artifact, artifact.recorded_at))

    def put_notes(self, task_id: str, run_id: str, notes: Sequence[Note]) -> None:
        for seq, note in enumerate(notes, start=1):
            self._sql.run("save_note", row_from_note(task_id, run_id, seq, note))
