"""Reads and writes of imported records: which record came from which record of another gateway."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from holdfast.core.clock import to_micros
from holdfast.core.imported import ImportedKind, ImportedRecord, ImportSource
from holdfast.store.rows.imports import imported_from_row, row_from_imported

if TYPE_CHECKING:
    from holdfast.store.transaction import Tx


class ImportTable:
    def __init__(self, tx: Tx) -> None:
        self._sql = tx.statements
        self._sealing = tx.sealing

    def get_many(
        self, source: ImportSource, noun: ImportedKind, source_ids: Sequence[str]
    ) -> dict[str, ImportedRecord]:
        """Those that were imported before, by their ids in the other gateway."""
        params = {"source": source.value, "noun": noun.value, "ids": self._sql.pack(source_ids)}
        found = [
            imported_from_row(row, self._sealing) for row in self._sql.all("get_imported_records", params)
        ]
        return {record.source_id: record for record in found}

    def add(self, records: Sequence[ImportedRecord]) -> None:
        """Add records; one that another import has added first stays as it is. `get_many` tells whose it is
        by its batch."""
        # In one order for every process, so that two imports wait for each other instead of deadlocking.
        ordered = sorted(records, key=lambda record: record.source_id)
        self._sql.many(
            "insert_imported_record", [row_from_imported(record, self._sealing) for record in ordered]
        )

    def renew(self, record: ImportedRecord) -> None:
        """The ledger has taken over the newer state that this record names."""
        names = ("source", "noun", "source_id", "row_digest", "batch_id", "rest")
        row = row_from_imported(record, self._sealing)
        self._sql.run("renew_imported_record", {name: row[name] for name in names})

    def find(self, noun: ImportedKind, source_id: str, *, limit: int) -> list[str]:
        """The records that have this id, or this run id, in the gateway they came from."""
        params = {"source_id": source_id, "noun": noun.value, "limit": limit}
        found = self._sql.all("records_with_source_id", params)
        found = found or self._sql.all("records_with_source_run", params)
        return [str(row[0]) for row in found]

    def bury(self, record_ids: Sequence[str], *, expires_at: datetime) -> None:
        """The records are deleted; until then, no import creates them again."""
        params = {"ids": self._sql.pack(record_ids), "expires_at": to_micros(expires_at)}
        self._sql.run("bury_imported_records", params)

    def forget(self, *, now: datetime) -> None:
        self._sql.run("delete_expired_imports", {"now": to_micros(now)})
