"""Reads and writes of durable lists and values, and of the operations that a scope applied to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.errors import Conflict
from holdfast.core.program_records import ListDelta, StoredValue
from holdfast.store.blobs import Packed, pack
from holdfast.store.rows.journal import (
    delta_from_row,
    ops_from_row,
    row_from_delta,
    row_from_ops,
    row_from_value,
    value_from_row,
)

if TYPE_CHECKING:
    from holdfast.store.transaction import Tx


class ListTable:
    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._sql = tx.statements
        self._sealing = tx.sealing

    def deltas(self, task_ids: Sequence[str]) -> dict[str, list[ListDelta]]:
        """All items that were appended, by list, in order; large items are read from their blobs."""
        found: dict[str, list[ListDelta]] = {}
        for row in self._sql.all("deltas_of_tasks", {"ids": self._sql.pack(task_ids)}):
            delta = delta_from_row(row, self._sealing)
            opened = msgspec.structs.replace(delta, items=self._tx.blobs.open(delta.items))
            found.setdefault(row[0], []).append(opened)
        return found

    def lengths(self, task_id: str) -> dict[str, int]:
        """The length of each list of a task, without reading items."""
        found = self._sql.all("list_lengths_of_task", {"task_id": task_id})
        return {str(row[0]): int(row[1]) for row in found}

    def append(self, delta: ListDelta, packed: Packed | None = None) -> None:
        """Append a delta; it is idempotent. Raises Conflict when another delta begins at the same position.

        Large items are compressed here unless the caller packed them before the transaction began.
        """
        if packed is None:
            packed = pack(delta.items, self._sealing)
        stored = self._tx.blobs.keep(delta.task_id, packed)
        delta = msgspec.structs.replace(delta, items=stored)
        row = row_from_delta(delta, self._sealing)
        if self._sql.one("insert_delta", row) is not None:
            return
        found = self._sql.one("get_delta", row)
        if found is None or not self._is_same(delta_from_row(found, self._sealing), delta):
            raise Conflict(
                f"list {delta.name!r} of {delta.task_id} has other items from {delta.start} on; "
                "read it again before appending"
            )

    def _is_same(self, found: ListDelta, delta: ListDelta) -> bool:
        """Compares the stored form of the chain, which may be keyed."""
        chained = msgspec.structs.replace(found, chain=delta.chain)
        return chained == delta and self._sealing.is_same(
            found.chain, delta.chain, "list delta", delta.task_id
        )

    def values(self, task_ids: Sequence[str]) -> dict[str, dict[str, StoredValue]]:
        found: dict[str, dict[str, StoredValue]] = {}
        for row in self._sql.all("values_of_tasks", {"ids": self._sql.pack(task_ids)}):
            value = value_from_row(row, self._sealing)
            found.setdefault(row[0], {})[value.name] = value
        return found

    def set_value(self, value: StoredValue) -> None:
        """Replace the value. It stays in its row, however large: blobs of old values would pile up."""
        self._sql.run("save_value", row_from_value(value, self._sealing))

    def ops(self, task_ids: Sequence[str]) -> dict[str, dict[str, bytes]]:
        """The operations on lists and values of each open scope of each task, as the engine encoded them."""
        found: dict[str, dict[str, bytes]] = {}
        for row in self._sql.all("ops_of_tasks", {"ids": self._sql.pack(task_ids)}):
            scope, ops = ops_from_row(row, self._sealing)
            found.setdefault(row[0], {})[scope] = ops
        return found

    def set_ops(self, task_id: str, scope: str, ops: bytes) -> None:
        self._sql.run("save_ops", row_from_ops(task_id, scope, ops, self._sealing))
