"""Reads and writes of what finished turns keep of their steps, for people. No replay reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.errors import RowDamaged
from holdfast.core.program_records import FinishedTurn, KeptStep, KeptSteps
from holdfast.store.rows.kept_steps import kept_from_row, pack_kept, row_from_kept

if TYPE_CHECKING:
    from holdfast.store.transaction import Tx


class KeptStepTable:
    def __init__(self, tx: Tx) -> None:
        self._sql = tx.statements
        self._sealing = tx.sealing

    def put(self, turn: FinishedTurn, kept: KeptSteps) -> None:
        """Part of the write that commits its turn."""
        row = row_from_kept(turn.task_id, turn.loop, turn.seq, kept, self._sealing)
        self._sql.run("insert_kept_steps", row)

    def of_turn(self, turn: FinishedTurn) -> list[KeptStep] | None:
        """In the order of the turn's steps; empty if it kept nothing, None for a reader without the key.

        Raises RowDamaged.
        """
        key = {"task_id": turn.task_id, "loop": turn.loop, "seq": turn.seq}
        row = self._sql.one("get_kept_steps", key)
        kept = [] if row is None else kept_from_row(row, self._sealing)
        if kept and len(kept) != len(turn.steps):
            raise RowDamaged("kept step", f"{turn.task_id}/{turn.loop}/{turn.seq}", "its steps are others")
        return kept


__all__ = ["KeptStepTable", "pack_kept"]
