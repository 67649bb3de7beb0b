"""Reads and writes of the audit log: entries are added, listed and pruned, and never changed."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

from holdfast.core.audit import AuditEntry
from holdfast.core.ids import audit_id_prefix
from holdfast.store.rows.gateway import audit_entry_from_row, row_from_audit_entry
from holdfast.store.tasks import LAST

if TYPE_CHECKING:
    from holdfast.store.transaction import Tx

# The columns by which a page can be filtered, one at a time, because each has its own index.
FILTERS: Final = ("who", "action", "subject")


class AuditTable:
    def __init__(self, tx: Tx) -> None:
        self._sql = tx.statements

    def add(self, entry: AuditEntry) -> None:
        """Call it in the write that performs the action, so that both are committed or neither is."""
        self._sql.one("insert_audit_entry", row_from_audit_entry(entry))

    def page(
        self, limit: int = 50, before: str = LAST, *, column: str | None = None, value: str = ""
    ) -> list[AuditEntry]:
        """Entries before an id, newest first; `column` filters by one actor, action or subject."""
        params: dict[str, object] = {"before": before, "limit": limit}
        if column is None:
            rows = self._sql.all("audit_page", params)
        else:
            assert column in FILTERS
            rows = self._sql.all(f"audit_page_of_{column}", params | {"value": value})
        return [audit_entry_from_row(row) for row in rows]

    def prune(self, *, older_than: datetime, limit: int) -> int:
        """Delete old entries; returns how many."""
        before = audit_id_prefix(older_than)
        ids = [row[0] for row in self._sql.all("audit_to_prune", {"before": before, "limit": limit})]
        return len(self._sql.all("delete_audit_entries", {"ids": self._sql.pack(ids)})) if ids else 0
