"""Records that are created, read and moved by the table of their noun, and need nothing else yet."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from holdfast.core.clock import to_micros
from holdfast.core.errors import IllegalMove, NotFound
from holdfast.core.transitions import sources_of
from holdfast.store.contract import Row

if TYPE_CHECKING:
    from holdfast.store.transaction import Tx

R = TypeVar("R")


class Records(Generic[R]):
    """One noun. Its queries are `insert_`, `get_` and `move_<noun>`, and `find_<noun>` where it has a key."""

    noun: ClassVar[str]
    # Whether something beside the id is unique; `find_<noun>` then knows both.
    has_key: ClassVar[bool] = False
    from_row: Callable[[Row], R]
    to_row: Callable[[R], dict[str, Any]]

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._sql = tx.statements

    def create(self, record: R) -> R:
        """Store it; the record that already has its id or its unique key is returned instead."""
        row = type(self).to_row(record)
        if self._sql.one(f"insert_{self.noun}", row) is not None:
            return record
        found = self._sql.one(f"find_{self.noun}", row) if self.has_key else None
        return self.get(row["id"]) if found is None else type(self).from_row(found)

    def get(self, record_id: str) -> R:
        row = self._sql.one(f"get_{self.noun}", {"id": record_id})
        if row is None:
            raise NotFound(self.noun, record_id)
        return type(self).from_row(row)

    def move(self, record_id: str, to: StrEnum, *, now: datetime, **guards: object) -> R:
        """Raises IllegalMove unless the table allows it; the UPDATE itself carries the guard."""
        params = {
            "id": record_id,
            "to": to.value,
            "sources": self._sql.pack(sources_of(to)),
            "now": to_micros(now),
        }
        row = self._sql.one(f"move_{self.noun}", params | guards)
        if row is None:
            raise IllegalMove(
                self.noun, record_id, str(getattr(self.get(record_id), "status", "?")), to.value
            )
        return type(self).from_row(row)
