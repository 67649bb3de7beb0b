"""Copies the history of one task into a new task that no worker has claimed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from holdfast.core.plan import Plan
from holdfast.core.program_records import FinishedTurn, LoopPosition
from holdfast.core.step import Artifact, Note
from holdfast.store.contract import Row
from holdfast.store.rows.journal import (
    row_from_artifact,
    row_from_loop,
    row_from_note,
    row_from_plan,
    turn_from_row,
    turn_row_of,
)
from holdfast.store.rows.kept_steps import kept_row_of
from holdfast.store.rows.reading import Params

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
        names: set[str] = set()
        after = 0
        params: Params = {"task_id": source_id, "loop": loop, "limit": _PAGE}
        while after < up_to and (found := self._sql.all("turns_of_loop", params | {"after": after})):
            for row in found:
                turn = turn_from_row(row, self._sealing)
                if turn.seq <= up_to:
                    self._copy(row, turn, task_id)
                    names.add(turn.turn)
                after = turn.seq
        self._copy_inner(params, names, task_id)

    def _copy_inner(self, params: Params, names: set[str], task_id: str) -> None:
        """The turns of loops inside these turns, which only people look at."""
        loop = str(params["loop"])
        place: Params = {"low": f"{loop}:", "high": f"{loop};", "loop": "", "after": 0}
        while found := self._sql.all("turns_below", params | place):
            for row in found:
                turn = turn_from_row(row, self._sealing)
                if turn.loop[len(loop) + 1 :].partition("/")[0] in names:
                    self._copy(row, turn, task_id)
                place |= {"loop": turn.loop, "after": turn.seq}

    def _copy(self, row: Row, turn: FinishedTurn, task_id: str) -> None:
        self._sql.run("insert_turn", turn_row_of(row, task_id, self._sealing))
        key = {"task_id": turn.task_id, "loop": turn.loop, "seq": turn.seq}
        kept = self._sql.one("get_kept_steps", key)
        if kept is not None:
            self._sql.run("insert_kept_steps", kept_row_of(kept, task_id, self._sealing))

    def put_loop(self, task_id: str, loop: LoopPosition, now: datetime) -> None:
        self._sql.run("save_loop", row_from_loop(task_id, loop, now))

    def put_plan(self, task_id: str, run_id: str, plan: Plan, now: datetime) -> None:
        self._sql.run("save_plan", row_from_plan(task_id, run_id, plan, now, self._sealing))

    def put_artifact(self, task_id: str, run_id: str, artifact: Artifact) -> None:
        self._sql.run("save_artifact", row_from_artifact(task_id, run_id, artifact, artifact.recorded_at))

    def put_notes(self, task_id: str, run_id: str, notes: Sequence[Note]) -> None:
        for seq, note in enumerate(notes, start=1):
            self._sql.run("save_note", row_from_note(task_id, run_id, seq, note))
