"""Reads and writes of boots (the lifetimes of processes that hold claims) and of the ledger's own facts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from holdfast.core.claim import Boot, Carried
from holdfast.core.clock import to_micros
from holdfast.store.rows.work import boot_from_row, carried_from_row, row_from_boot

if TYPE_CHECKING:
    from holdfast.store.transaction import Tx


class BootTable:
    def __init__(self, tx: Tx) -> None:
        self._sql = tx.statements

    def begin(self, boot: Boot) -> bool:
        """Record its start; False if that was recorded before."""
        return self._sql.one("insert_boot", row_from_boot(boot)) is not None

    def end(self, boot_id: str, *, now: datetime) -> bool:
        """Record its end; False if that was recorded before."""
        return self._sql.one("end_boot", {"id": boot_id, "now": to_micros(now)}) is not None

    def get(self, boot_id: str) -> Boot | None:
        row = self._sql.one("get_boot", {"id": boot_id})
        return None if row is None else boot_from_row(row)

    def lock(self, boot_id: str) -> Boot | None:
        """The boot, locked: no other transaction can record its end before this one ends."""
        row = self._sql.one("lock_boot", {"id": boot_id})
        return None if row is None else boot_from_row(row)

    def alive(self, *, limit: int = 1000) -> list[Boot]:
        return [boot_from_row(row) for row in self._sql.all("boots_alive", {"limit": limit})]

    def alive_at(self, beginning: str, *, limit: int = 1000) -> list[Boot]:
        """Those of them whose host begins with this text."""
        params = {"beginning": beginning, "limit": limit}
        return [boot_from_row(row) for row in self._sql.all("boots_alive_at", params)]

    def page_alive(self, *, after: str = "", limit: int) -> list[Boot]:
        """Those that have not ended, oldest first; `after` is the last id of the page before."""
        found = self._sql.all("page_of_boots_alive", {"after": after, "limit": limit})
        return [boot_from_row(row) for row in found]

    def page_ended(self, *, before: str, limit: int) -> list[Boot]:
        """Those that have ended, the latest start first."""
        found = self._sql.all("page_of_boots_ended", {"before": before, "limit": limit})
        return [boot_from_row(row) for row in found]

    def carried(self, boot_ids: Sequence[str]) -> dict[str, Carried]:
        """What each of these boots carries; without those that carry nothing."""
        found = self._sql.all("carried_by_boots", {"ids": self._sql.pack(boot_ids)})
        return {row[0]: carried_from_row(row) for row in found}

    def forget(self, boot_id: str) -> bool:
        """Delete it if it has not ended and no claim names it; True if it was deleted."""
        return self._sql.one("forget_boot", {"id": boot_id}) is not None

    def in_flight(self) -> list[str]:
        """Ids of the boots that some claim names."""
        return sorted(row[0] for row in self._sql.all("boots_in_flight", {}) if row[0] is not None)

    def forget_ended(self, *, older_than: datetime) -> None:
        self._sql.run("delete_ended_boots", {"older_than": to_micros(older_than)})

    def fact(self, name: str) -> str | None:
        row = self._sql.one("get_fact", {"name": name})
        return None if row is None else row[0]

    def facts(self, names: Sequence[str]) -> dict[str, str]:
        """Those of these facts that the ledger has."""
        return {row[0]: row[1] for row in self._sql.all("get_facts", {"names": self._sql.pack(names)})}

    def set_fact(self, name: str, value: str) -> None:
        self._sql.run("set_fact", {"name": name, "value": value})

    def add_fact(self, name: str, value: str) -> None:
        """Set the fact unless it is set already: the first writer wins."""
        self._sql.run("add_fact", {"name": name, "value": value})

    def replace_fact(self, name: str, old: str, new: str) -> bool:
        """Compare and set: True if the fact had the old value."""
        return self._sql.one("replace_fact", {"name": name, "old": old, "value": new}) is not None
