"""Reads and writes of deliveries."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

import msgspec

from holdfast.core.clock import to_micros
from holdfast.core.delivery import Delivery
from holdfast.core.errors import RowDamaged
from holdfast.core.ids import DeliveryId
from holdfast.core.task import Failure
from holdfast.core.transitions import DeliveryStatus
from holdfast.store.contract import Row
from holdfast.store.records import Prunable
from holdfast.store.rows.conversation import delivery_from_row, row_from_delivery
from holdfast.store.tasks import resolve

_encode = msgspec.json.Encoder().encode

# How many rows are read to find deliveries that may be sent; more than an outbox sends at once.
PAGE = 200
_TARGET = 4


class Due(msgspec.Struct, frozen=True, kw_only=True):
    """Deliveries to send or to settle, the ids of unreadable ones, and where the next page begins."""

    deliveries: list[Delivery]
    damaged: frozenset[str] = frozenset()
    after: str = ""


class DeliveryTable(Prunable[Delivery]):
    noun = "delivery"
    nouns = "deliveries"
    has_key = True

    def _read(self, row: Row) -> Delivery:
        return delivery_from_row(row, self._sealing)

    def _row_of(self, record: Delivery) -> dict[str, Any]:
        return row_from_delivery(record, self._sealing)

    def create_many(self, deliveries: Sequence[Delivery]) -> None:
        """Store new deliveries; one whose id or key exists changes nothing."""
        self._sql.many("insert_delivery", [self._row_of(one) for one in deliveries])

    def due(self, channel: str, *, now: datetime, limit: int, after: str = "") -> Due:
        """What may be sent now through a channel: for each target, its oldest delivery.

        Deliveries that are due first come first. If a page of them has too few targets, because some targets
        have many deliveries, a page of the targets after `after` is read as well; the next call continues
        after it.
        """
        params = {"channel": channel, "now": to_micros(now), "page": PAGE}
        found, damaged = self._readable(self._sql.all("due_deliveries", params))
        if len(found) < limit:
            rest = self._sql.all("oldest_owed", {"channel": channel, "after": after, "page": PAGE})
            after = max(str(row[_TARGET]) for row in rest) if len(rest) == PAGE else ""
            read, also_damaged = self._readable(rest)
            known = {one.id for one in found}
            found += [one for one in read if _is_due(one, now) and one.id not in known]
            damaged |= also_damaged
        return Due(deliveries=found[:limit], damaged=damaged, after=after)

    def waiting_channels(self, *, limit: int = PAGE) -> list[str]:
        """The channels with deliveries to send, now or later."""
        return [str(row[0]) for row in self._sql.all("waiting_channels", {"limit": limit})]

    def attempt(
        self, delivery_id: str, *, boot_id: str, lease_until: datetime, now: datetime
    ) -> Delivery | None:
        """Claim it for sending; None when another boot has it. Its `attempts` are the fence of `settle`."""
        params = {
            "id": delivery_id,
            "boot_id": boot_id,
            "lease_until": to_micros(lease_until),
            "now": to_micros(now),
        }
        row = self._sql.one("attempt_delivery", params)
        return None if row is None else delivery_from_row(row, self._sealing)

    def lapsed(self, channels: Collection[str], *, now: datetime) -> Due:
        """A page of attempts through these channels whose sender died without recording the outcome."""
        params = {"channels": self._sql.pack(sorted(channels)), "now": to_micros(now), "limit": PAGE}
        read, damaged = self._readable(self._sql.all("lapsed_deliveries", params))
        return Due(deliveries=read, damaged=damaged)

    def reclaim(
        self, delivery: Delivery, *, boot_id: str, lease_until: datetime, now: datetime
    ) -> Delivery | None:
        """Claim a lapsed attempt to find out how it ended; None when another boot has it."""
        params = {
            "id": delivery.id,
            "attempts": delivery.attempts,
            "boot_id": boot_id,
            "lease_until": to_micros(lease_until),
            "now": to_micros(now),
        }
        row = self._sql.one("reclaim_delivery", params)
        return None if row is None else delivery_from_row(row, self._sealing)

    def settle(
        self,
        delivery: Delivery,
        to: DeliveryStatus,
        *,
        now: datetime,
        due_at: datetime | None = None,
        failure: Failure | None = None,
    ) -> Delivery | None:
        """Record how this attempt ended; None when a newer attempt has begun, or it was settled before."""
        params = {
            "id": delivery.id,
            "attempts": delivery.attempts,
            "to": to.value,
            "failure": None if failure is None else _encode(failure),
            "due_at": to_micros(now if due_at is None else due_at),
            "now": to_micros(now),
        }
        row = self._sql.one("settle_delivery", params)
        return None if row is None else delivery_from_row(row, self._sealing)

    def settle_queued(
        self, delivery_id: str, to: DeliveryStatus, *, now: datetime, failure: Failure | None = None
    ) -> Delivery | None:
        """Record what became of an update in the queue of its session; None if it does not wait there."""
        params = {
            "id": delivery_id,
            "to": to.value,
            "failure": None if failure is None else _encode(failure),
            "now": to_micros(now),
        }
        row = self._sql.one("settle_queued_delivery", params)
        return None if row is None else delivery_from_row(row, self._sealing)

    def failed(self, limit: int = 50, after: str = "") -> list[Delivery]:
        """Failed deliveries, oldest first; the last id of a page is the page token of the next."""
        found = self._sql.all("failed_deliveries", {"after": after, "limit": limit})
        return [delivery_from_row(row, self._sealing) for row in found]

    def owed(self, limit: int = 50, after: str = "") -> list[Delivery]:
        """Deliveries still to be sent, in the same way."""
        found = self._sql.all("owed_deliveries", {"after": after, "limit": limit})
        return [delivery_from_row(row, self._sealing) for row in found]

    def retry(self, delivery_id: str, *, now: datetime) -> Delivery | None:
        """Make a failed delivery pending again, due at once; None when it has not failed."""
        row = self._sql.one("retry_delivery", {"id": delivery_id, "now": to_micros(now)})
        return None if row is None else delivery_from_row(row, self._sealing)

    def confirm(self, delivery_id: str, *, now: datetime) -> Delivery | None:
        """Mark a failed delivery as delivered; None when it has not failed."""
        row = self._sql.one("confirm_delivery", {"id": delivery_id, "now": to_micros(now)})
        return None if row is None else delivery_from_row(row, self._sealing)

    def resolve(self, prefix: str) -> DeliveryId:
        """The one id with this prefix."""
        return DeliveryId(resolve(self._tx, "delivery", "find_deliveries", prefix))

    def of_task(self, task_id: str) -> list[Delivery]:
        found = self._sql.all("deliveries_of_task", {"task_id": task_id})
        return [delivery_from_row(row, self._sealing) for row in found]

    def last_statuses_of_tasks(self, task_ids: Sequence[str]) -> dict[str, str]:
        """The status of the newest delivery of each task that has one."""
        found = self._sql.all("last_deliveries_of_tasks", {"ids": self._sql.pack(task_ids)})
        return {row[0]: row[1] for row in found}

    def _readable(self, found: Sequence[Row]) -> tuple[list[Delivery], frozenset[str]]:
        """The readable ones, and the ids of damaged ones: a damaged one must not block the others."""
        read, damaged = [], set()
        for row in found:
            try:
                read.append(delivery_from_row(row, self._sealing))
            except RowDamaged:
                damaged.add(str(row[0]))
        return read, frozenset(damaged)


def _is_due(delivery: Delivery, now: datetime) -> bool:
    return delivery.status is DeliveryStatus.PENDING and delivery.due_at <= now
