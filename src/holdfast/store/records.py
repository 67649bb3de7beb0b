"""The shared base of nouns whose records are created, read and moved by the table of moves."""

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


class PrunePosition(msgspec.Struct, frozen=True):
    """The position of a walk through old records."""

    at: int = 0
    id: str = ""


class PrunePage(msgspec.Struct, frozen=True, kw_only=True):
    """The records of a page that may be deleted, and where the next page begins; after the last page, the
    start."""

    ids: list[str]
    place: PrunePosition


class Records(Generic[R]):
    """One noun. Its queries are `insert_`, `get_` and `move_<noun>`, and `find_<noun>` if it has a key."""

    noun: ClassVar[str]
    # Whether it has another unique key beside the id; `find_<noun>` then looks for both.
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
        """Store it; if a record with its id or its unique key exists, return that one instead."""
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
        """Raises IllegalMove if the table of moves does not allow it; the guard is part of the UPDATE."""
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
    """One noun that retention deletes. Its queries are also `<nouns>_to_prune` and `delete_<nouns>`."""

    nouns: ClassVar[str]

    def to_prune(self, *, older_than: datetime, limit: int) -> list[str]:
        """Ids of records that ended before then and that nothing needs any more, oldest first."""
        params = {"older_than": to_micros(older_than), "limit": limit}
        return [row[0] for row in self._sql.all(f"{self.nouns}_to_prune", params)]

    def delete(self, ids: Sequence[str]) -> int:
        """Delete those that have ended; returns how many."""
        return len(self._sql.all(f"delete_{self.nouns}", {"ids": self._sql.pack(ids)})) if ids else 0

    def _walk(self, *, older_than: datetime, after: PrunePosition, limit: int, **params: object) -> PrunePage:
        """Of `limit` old records, those that may be deleted. Records that must stay are read once per round,
        not every time."""
        params |= {
            "older_than": to_micros(older_than),
            "after_at": after.at,
            "after_id": after.id,
            "limit": limit,
        }
        found = self._sql.all(f"{self.nouns}_to_prune", params)
        place = PrunePosition(int(found[-1][1]), found[-1][0]) if len(found) == limit else PrunePosition()
        return PrunePage(ids=[row[0] for row in found if row[2]], place=place)
