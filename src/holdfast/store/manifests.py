"""Reads and writes of restarts with their manifests."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import datetime

import msgspec

from holdfast.core.clock import to_micros
from holdfast.core.errors import IllegalMove, RowDamaged
from holdfast.core.manifest import Manifest, Restart, RestartOutcome, Trigger
from holdfast.core.transitions import RestartStatus
from holdfast.store.records import Prunable
from holdfast.store.rows.gateway import restart_from_row, row_from_restart


class RestartTable(Prunable[Restart]):
    noun = "restart"
    nouns = "restarts"
    from_row = staticmethod(restart_from_row)
    to_row = staticmethod(row_from_restart)

    def settle(
        self,
        restart_id: str,
        to: RestartStatus,
        *,
        now: datetime,
        outcome: RestartOutcome,
        recovered_by: str | None = None,
    ) -> Restart:
        """Move it to a status, with its outcome; once it has that status, nothing changes any more."""
        found = self.get(restart_id)
        if found.status is to:
            return found
        try:
            self.move(restart_id, to, now=now)
        except IllegalMove:
            # Two gateways may recover from the same restart, and the other was faster.
            found = self.get(restart_id)
            if found.status is not to:
                raise
            return found
        params = {
            "id": restart_id,
            "outcome": msgspec.json.encode(outcome),
            "recovered_by": recovered_by,
            "now": to_micros(now),
        }
        row = self._sql.one("save_outcome", params)
        assert row is not None
        return restart_from_row(row)

    def add_triggers(self, restart_id: str, triggers: Sequence[Trigger], *, now: datetime) -> Restart:
        """Add reasons to a restart; it is idempotent. Raises IllegalMove if the drain is over."""
        found = self.get(restart_id)
        new = [one for one in triggers if one not in found.triggers]
        if not new:
            return found
        params = {
            "id": restart_id,
            "triggers": msgspec.json.encode((*found.triggers, *new)),
            "now": to_micros(now),
        }
        row = self._sql.one("save_triggers", params)
        if row is None:
            raise IllegalMove("restart", restart_id, found.status.value, RestartStatus.DRAINING.value)
        return restart_from_row(row)

    def extend(self, before: Restart, manifest: Manifest, *, now: datetime) -> Restart | None:
        """Store a manifest with more interruptions. None when the restart has changed since it was read."""
        digest = row_from_restart(before)["digest"]
        extended = msgspec.structs.replace(before, manifest=manifest, updated_at=now)
        params = row_from_restart(extended) | {"digest_before": digest}
        row = self._sql.one("save_manifest", params)
        return None if row is None else restart_from_row(row)

    def open(self, *, limit: int = 100) -> list[Restart]:
        """Restarts from which some gateway, not always this one, must still recover; oldest first. Damaged
        ones are left out: `store verify` names them, and their runs are resumed all the same."""
        found = []
        for row in self._sql.all("open_restarts", {"limit": limit}):
            with contextlib.suppress(RowDamaged):
                found.append(restart_from_row(row))
        return found

    def page(self, limit: int = 20, before: str = "~") -> list[Restart]:
        """Newest first; the last id of a page is the page token of the next."""
        found = self._sql.all("restarts_page", {"before": before, "limit": limit})
        return [restart_from_row(row) for row in found]
