"""Reads and writes of loops and their finished turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.core.errors import Conflict, RowDamaged
from holdfast.core.program_records import FinishedTurn, KeptSteps, LoopPosition
from holdfast.store.contract import Params, Row
from holdfast.store.rows.journal import loop_from_row, row_from_loop, row_from_turn, turn_from_row

if TYPE_CHECKING:
    from holdfast.store.transaction import Tx

# Scopes inside a scope begin with its name and "/", so they sort before its name and "0", the next character.
_INSIDE, _AFTER = "/", "0"


class TurnTable:
    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._sql = tx.statements
        self._sealing = tx.sealing

    def loops(self, task_ids: Sequence[str]) -> dict[str, dict[str, LoopPosition]]:
        """The position of each loop of each task; tasks without loops are left out."""
        found: dict[str, dict[str, LoopPosition]] = {}
        for row in self._sql.all("loops_of_tasks", {"ids": self._sql.pack(task_ids)}):
            loop = loop_from_row(row)
            found.setdefault(row[0], {})[loop.loop] = loop
        return found

    def commit(
        self,
        turn: FinishedTurn,
        scope: str,
        *,
        is_over: bool,
        has_loops: bool = True,
        kept: KeptSteps | None = None,
    ) -> None:
        """Store the turn, advance its loop, and delete what only an open turn needs: all in its scope.

        What it keeps of its steps for people is stored with it. Pass `has_loops=False` if it has no loops
        inside, which saves looking for them. It is idempotent. Raises Conflict when another turn has its
        number. The caller holds the run.
        """
        inside = {"task_id": turn.task_id, "low": scope + _INSIDE, "high": scope + _AFTER}
        row = row_from_turn(turn, self._sealing)
        if self._sql.one("insert_turn", row) is None:
            found = self._sql.one("get_turn", row)
            if found is None or turn_from_row(found, self._sealing) != turn:
                raise Conflict(
                    f"turn {turn.seq} of loop {turn.loop!r} of {turn.task_id} was committed before, with "
                    "other contents"
                )
            return
        if kept is not None:
            self._tx.kept_steps.put(turn, kept)
        loop = LoopPosition(loop=turn.loop, turns_done=turn.seq, is_over=is_over)
        self._sql.run("save_loop", row_from_loop(turn.task_id, loop, turn.ended_at))
        self._forget(inside, scope, has_loops)

    def finished(
        self, task_id: str, loop: str | None = None, after: int = 0, limit: int = 1000
    ) -> list[FinishedTurn]:
        """The finished turns with a number above `after`: of one loop, or of all loops, one after another."""
        params = {"task_id": task_id, "loop": loop, "after": after, "limit": limit}
        found = self._sql.all("turns_of_task" if loop is None else "turns_of_loop", params)
        return [turn_from_row(row, self._sealing) for row in found]

    def page(
        self, task_id: str, *, scope: str | None = None, after: tuple[str, int] = ("", 0), limit: int
    ) -> list[tuple[str, int, FinishedTurn | RowDamaged]]:
        """The finished turns after this loop and number, for display; one loop after another. With a scope,
        only the turn of that scope and those inside it. A damaged one is in its place, with its error."""
        params = {"task_id": task_id, "loop": after[0], "after": after[1], "limit": limit}
        if scope is None:
            found = self._sql.all("page_of_turns", params)
        else:
            found = self._sql.all("turns_below", {**params, "low": scope + _INSIDE, "high": scope + _AFTER})
            if after == ("", 0):
                found = [*self._of_scope(task_id, scope), *found][:limit]
        return [(row[1], row[2], self._shown(row)) for row in found]

    def _of_scope(self, task_id: str, scope: str) -> list[Row]:
        """The turn with this scope; none if it is not finished."""
        loop, _, turn = scope.rpartition(":")
        is_number = turn.isascii() and turn.isdigit() and len(turn) < 19
        params = {"task_id": task_id, "loop": loop, "seq": int(turn) if is_number else -1}
        row = self._sql.one("get_turn", params)
        if row is None or row[3] != turn:
            row = self._sql.one("find_turn", {"task_id": task_id, "loop": loop, "turn": turn})
        return [] if row is None else [row]

    def _shown(self, row: Row) -> FinishedTurn | RowDamaged:
        try:
            return turn_from_row(row, self._sealing)
        except RowDamaged as error:
            return error

    def _forget(self, inside: Params, scope: str, has_loops: bool) -> None:
        for what in ("delete_steps", "delete_scope_ops", "close_effects"):
            self._sql.run(f"{what}_of_scope", {**inside, "scope": scope})
        if has_loops:
            self._sql.run("delete_loops_below", inside)
