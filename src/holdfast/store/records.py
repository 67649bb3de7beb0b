"""Records that are created, read and moved by the table of their noun, and need nothing else yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import msgspec

from holdfast.core.clock import to_micros
from holdfast.core.errors import IllegalMove, NotFound
from holdfast.core.transitions import sources_of
from holdfast.store.contract import Row

if TYPE_CHECKING:
    from holdfast.store.transaction import Tx

R = TypeVar("R")


class Place(msgspec.Struct, frozen=True):
    """How far a walk through what is old has got."""

    at: int = 0
    id: str = ""


class Walked(msgspec.Struct, frozen=True, kw_only=True):
    """What may go of those that were looked at, and where to go on; from the start again after the last."""

    ids: list[str]
    place: Place


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
        self._sealing = tx.sealing

    def _read(self, row: Row) -> R:
        return type(self).from_row(row)

    def _row_of(self, record: R) -> dict[str, Any]:
        return type(self).to_row(record)

    def create(self, record: R) -> R:
        """Store it; the record that already has its id or its unique key is returned instead."""
        row = self._row_of(record)
        if self._sql.one(f"insert_{self.noun}", row) is not None:
            return record
        found = self._sql.one(f"find_{self.noun}", row) if self.has_key else None
        return self.get(row["id"]) if found is None else self._read(found)

    def get(self, record_id: str) -> R:
        row = self._sql.one(f"get_{self.noun}", {"id": record_id})
        if row is None:
            raise NotFound(self.noun, record_id)
        return self._read(row)

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
        return self._read(row)


class Prunable(Records[R]):
    """One noun that retention forgets. Its queries are also `<nouns>_to_prune` and `delete_<nouns>`."""

    nouns: ClassVar[str]

    def to_prune(self, *, older_than: datetime, limit: int) -> list[str]:
        """Ids of what came to its end by then and that nothing needs any more, oldest first."""
        params = {"older_than": to_micros(older_than), "limit": limit}
        return [row[0] for row in self._sql.all(f"{self.nouns}_to_prune", params)]

    def delete(self, ids: Sequence[str]) -> int:
        """How many were removed; what has not come to its end stays."""
        return len(self._sql.all(f"delete_{self.nouns}", {"ids": self._sql.pack(ids)})) if ids else 0

    def _walk(self, *, older_than: datetime, after: Place, limit: int, **params: object) -> Walked:
        """Of `limit` old ones, those that may go: what must stay is looked at once in a round, not always."""
        params |= {
            "older_than": to_micros(older_than),
            "after_at": after.at,
            "after_id": after.id,
            "limit": limit,
        }
        found = self._sql.all(f"{self.nouns}_to_prune", params)
        place = Place(int(found[-1][1]), found[-1][0]) if len(found) == limit else Place()
        return Walked(ids=[row[0] for row in found if row[2]], place=place)
