"""Reads and writes of deliveries."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.core.clock import from_micros, to_micros
from holdfast.core.delivery import Delivery
from holdfast.core.task import Failure
from holdfast.core.transitions import DeliveryStatus
from holdfast.store import rows
from holdfast.store.records import Records

_encode = msgspec.json.Encoder().encode


class Deliveries(Records[Delivery]):
    noun = "delivery"
    has_key = True
    from_row = staticmethod(rows.delivery_from_row)
    to_row = staticmethod(rows.row_from_delivery)

    def due(self, *, now: datetime, limit: int) -> list[Delivery]:
        """What may be sent now: the oldest that is owed to its target."""
        found = self._sql.all("due_deliveries", {"now": to_micros(now), "limit": limit})
        return [rows.delivery_from_row(row) for row in found]

    def next_due_at(self) -> datetime | None:
        row = self._sql.one("next_delivery_at", {})
        return None if row is None else from_micros(row[0])

    def attempt(
        self, delivery_id: str, *, boot_id: str, lease_until: datetime, now: datetime
    ) -> Delivery | None:
        """This boot sends it; None when somebody else does. Its attempts are the fence of `settle`."""
        params = {
            "id": delivery_id,
            "boot_id": boot_id,
            "lease_until": to_micros(lease_until),
            "now": to_micros(now),
        }
        row = self._sql.one("attempt_delivery", params)
        return None if row is None else rows.delivery_from_row(row)

    def lapsed(self, *, now: datetime, limit: int) -> list[Delivery]:
        """Attempts of which nobody will tell how they ended."""
        found = self._sql.all("lapsed_deliveries", {"now": to_micros(now), "limit": limit})
        return [rows.delivery_from_row(row) for row in found]

    def reclaim(
        self, delivery: Delivery, *, boot_id: str, lease_until: datetime, now: datetime
    ) -> Delivery | None:
        """This boot finds out how the attempt ended; None when somebody else does."""
        params = {
            "id": delivery.id,
            "attempts": delivery.attempts,
            "boot_id": boot_id,
            "lease_until": to_micros(lease_until),
            "now": to_micros(now),
        }
        row = self._sql.one("reclaim_delivery", params)
        return None if row is None else rows.delivery_from_row(row)

    def settle(
        self,
        delivery: Delivery,
        to: DeliveryStatus,
        *,
        now: datetime,
        due_at: datetime | None = None,
        failure: Failure | None = None,
    ) -> Delivery | None:
        """How this attempt ended; None when another one has begun since, or when it was settled before."""
        params = {
            "id": delivery.id,
            "attempts": delivery.attempts,
            "to": to.value,
            "failure": None if failure is None else _encode(failure),
            "due_at": to_micros(now if due_at is None else due_at),
            "now": to_micros(now),
        }
        row = self._sql.one("settle_delivery", params)
        return None if row is None else rows.delivery_from_row(row)

    def of_task(self, task_id: str) -> list[Delivery]:
        found = self._sql.all("deliveries_of_task", {"task_id": task_id})
        return [rows.delivery_from_row(row) for row in found]
