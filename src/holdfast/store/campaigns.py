"""Reads and writes of campaigns, of their items, of items in phases, and of slots."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from holdfast.core.campaign import Campaign, ItemPhase, ItemProgress, ItemRecord
from holdfast.core.clock import to_micros
from holdfast.core.errors import NotFound, RowDamaged
from holdfast.core.ids import CampaignId
from holdfast.core.transitions import CampaignStatus, ItemStatus
from holdfast.store.records import Records
from holdfast.store.rows.campaigns import (
    ITEM_PHASE_COLUMNS,
    campaign_from_row,
    item_from_row,
    item_phase_from_row,
    row_from_campaign,
    row_from_item,
    row_from_item_phase,
    row_from_item_progress,
    row_from_phase,
)
from holdfast.store.rows.reading import encode, micros_of
from holdfast.store.tasks import LAST, resolve

if TYPE_CHECKING:
    from holdfast.store.transaction import Tx

_ALL = 1_000_000


class CampaignTable(Records[Campaign]):
    noun = "campaign"
    has_key = True
    from_row = staticmethod(campaign_from_row)
    to_row = staticmethod(row_from_campaign)

    def find(self, name: str) -> Campaign | None:
        row = self._sql.one("find_campaign", {"name": name})
        return None if row is None else campaign_from_row(row)

    def lock(self, campaign_id: str) -> Campaign:
        """The campaign, locked until this transaction ends: nothing of it is started meanwhile."""
        return self._held("lock_campaign", campaign_id)

    def share(self, campaign_id: str) -> Campaign:
        """The campaign, which cannot be paused or ended until this transaction ends."""
        return self._held("share_campaign", campaign_id)

    def _held(self, query: str, campaign_id: str) -> Campaign:
        row = self._sql.one(query, {"id": campaign_id})
        if row is None:
            raise NotFound("campaign", campaign_id)
        return campaign_from_row(row)

    def resolve(self, name: str) -> CampaignId:
        """The id of the campaign with this name, or with this id or prefix of it."""
        found = self.find(name)
        if found is not None:
            return found.id
        return CampaignId(resolve(self._tx, "campaign", "find_campaigns", name))

    def page(self, *, before: str = LAST, limit: int = 50) -> list[Campaign]:
        """Newest first, without damaged ones; the last id of a page is the page token of the next."""
        return self._sound("page_of_campaigns", {}, "before", before, limit)

    def in_status(self, status: CampaignStatus, *, after: str = "", limit: int = 100) -> list[Campaign]:
        """Oldest first, without damaged ones: the services go on with the others. `store verify` and
        `campaign list` name the damaged ones."""
        return self._sound("campaigns_in_status", {"status": status.value}, "after", after, limit)

    def _sound(
        self, query: str, params: dict[str, object], side: str, place: str, limit: int
    ) -> list[Campaign]:
        found: list[Campaign] = []
        while len(found) < limit:
            rows = self._sql.all(query, params | {side: place, "limit": limit - len(found)})
            for row in rows:
                with contextlib.suppress(RowDamaged):
                    found.append(campaign_from_row(row))
            if not rows:
                break
            place = rows[-1][0]
        return found

    def move(self, record_id: str, to: StrEnum, *, now: datetime, **guards: object) -> Campaign:
        """As for every record; a `reason` is kept with it."""
        return super().move(record_id, to, now=now, **{"reason": None} | guards)

    def grow(self, campaign: Campaign, *, now: datetime) -> None:
        """Save how many items and batches it has; the caller holds it."""
        params = {
            "id": campaign.id,
            "items": campaign.items,
            "batches": campaign.batches,
            "open_batches": encode(campaign.open_batches),
            "now": to_micros(now),
        }
        self._sql.run("grow_campaign", params)

    def create_phases(self, campaign: Campaign) -> None:
        """Its phases as rows, for views."""
        rows = [row_from_phase(campaign.id, number, one) for number, one in enumerate(campaign.spec.phases)]
        self._sql.many("insert_campaign_phase", rows)

    def counts_under(self, prefix: str, *, after: str = "", limit: int = _ALL) -> dict[str, dict[str, int]]:
        """The counts whose names begin with a prefix, by the rest of the name."""
        # Names of counts are ASCII up to the part that the caller chose, so "~" does not end the range early.
        params = {"low": prefix + after, "high": prefix + "\U0010ffff", "limit": limit}
        found: dict[str, dict[str, int]] = {}
        for noun, status, amount in self._sql.all("counts_between", params):
            found.setdefault(str(noun).removeprefix(prefix), {})[str(status)] = int(amount)
        return found


class ItemTable:
    def __init__(self, tx: Tx) -> None:
        self._sql = tx.statements
        self._sealing = tx.sealing

    def create_many(self, items: Sequence[ItemRecord]) -> None:
        self._sql.many("insert_campaign_item", [row_from_item(one, self._sealing) for one in items])

    def by_ids(self, campaign_id: str, item_ids: Sequence[str]) -> dict[str, ItemRecord]:
        params = {"campaign_id": campaign_id, "ids": self._sql.pack(item_ids)}
        return {row[2]: item_from_row(row, self._sealing) for row in self._sql.all("items_by_ids", params)}

    def at(self, campaign_id: str, place: int) -> ItemRecord:
        row = self._sql.one("get_campaign_item", {"campaign_id": campaign_id, "place": place})
        if row is None:
            raise NotFound("item", f"{place} of {campaign_id}")
        return item_from_row(row, self._sealing)

    def page(
        self, campaign_id: str, *, batch: int | None = None, after: int = -1, limit: int = 100
    ) -> list[ItemRecord]:
        """In their order; the place of the last one is the page token of the next page."""
        params: dict[str, object] = {"campaign_id": campaign_id, "after": after, "limit": limit}
        if batch is None:
            rows = self._sql.all("page_of_campaign_items", params)
        else:
            rows = self._sql.all("items_of_batch", params | {"batch": batch})
        return [item_from_row(row, self._sealing) for row in rows]


class ItemPhaseTable:
    """Items in phases. Their counts are kept by the engine, which knows what each change means."""

    def __init__(self, tx: Tx) -> None:
        self._sql = tx.statements
        self._sealing = tx.sealing

    def create_many(self, rows: Sequence[ItemPhase]) -> None:
        self._sql.many("insert_item_phase", [row_from_item_phase(one) for one in rows])

    def startable(
        self, campaign_id: str, phase: int, *, limit: int
    ) -> list[tuple[ItemPhase, ItemRecord | None]]:
        """The next ones to start with their items, held by this transaction; those that another one holds
        are left out. An item is None if its row is gone."""
        params = {"campaign_id": campaign_id, "phase": phase, "limit": limit}
        return [
            (
                item_phase_from_row(row[:ITEM_PHASE_COLUMNS]),
                None
                if row[ITEM_PHASE_COLUMNS] is None
                else item_from_row(row[ITEM_PHASE_COLUMNS:], self._sealing),
            )
            for row in self._sql.all("startable_item_phases", params)
        ]

    def upcoming(self, campaign_id: str, phase: int, *, limit: int) -> list[ItemPhase]:
        """The same, only to look at them."""
        params = {"campaign_id": campaign_id, "phase": phase, "limit": limit}
        return [item_phase_from_row(row) for row in self._sql.all("next_item_phases", params)]

    def has(self, campaign_id: str, phase: int, status: ItemStatus) -> bool:
        params = {"campaign_id": campaign_id, "phase": phase, "status": status.value}
        return self._sql.one("is_in_phase", params) is not None

    def start(self, started: Sequence[ItemPhase], *, now: datetime) -> None:
        """They run from now on, each with its task, attempt and note; this transaction holds them."""
        self._sql.many(
            "start_item_phase",
            [
                _key(one)
                | {"task_id": one.task_id, "attempt": one.attempt, "note": one.note, "stage": one.stage}
                | {"now": to_micros(now)}
                for one in started
            ],
        )

    def of_tasks(self, task_ids: Sequence[str]) -> list[ItemPhase]:
        """Held until this transaction ends."""
        found = self._sql.all("item_phases_of_tasks", {"ids": self._sql.pack(task_ids)})
        return [item_phase_from_row(row) for row in found]

    def look_of_tasks(self, task_ids: Sequence[str]) -> list[ItemPhase]:
        found = self._sql.all("look_at_item_phases_of_tasks", {"ids": self._sql.pack(task_ids)})
        return [item_phase_from_row(row) for row in found]

    def end(self, ended: Sequence[ItemPhase], *, now: datetime) -> None:
        """They have ended, each with its status, summary, error and last action, and are held here."""
        self._sql.many(
            "end_item_phase",
            [
                _key(one)
                | {
                    "to": one.status.value,
                    "summary": one.summary,
                    "error": one.error,
                    "last_action": one.last_action,
                    "last_action_at": micros_of(one.last_action_at),
                    "now": to_micros(now),
                }
                for one in ended
            ],
        )

    def note(self, news: Mapping[str, ItemProgress], *, now: datetime) -> None:
        """How far the tasks of items are, by task id; those that have ended stay as they are."""
        at = to_micros(now)
        self._sql.many(
            "note_item_phase",
            [row_from_item_progress(task_id, one) | {"now": at} for task_id, one in sorted(news.items())],
        )

    def tell_steps(self, steps: Mapping[str, tuple[str, datetime]], *, now: datetime) -> None:
        """The step that each of these tasks saved last, and when, by task id.

        The caller need not hold the runs: a newer step stays, and so do items that have ended.
        """
        at = to_micros(now)
        self._sql.many(
            "tell_step_of_item",
            [
                {"task_id": task_id, "name": name, "saved_at": to_micros(saved_at), "now": at}
                for task_id, (name, saved_at) in sorted(steps.items())
            ],
        )

    def reopen(self, one: ItemPhase, *, now: datetime) -> None:
        self._sql.run("reopen_item_phase", _key(one) | {"now": to_micros(now)})

    def meet_needs(self, campaign_id: str, phase: int, places: Sequence[int], *, now: datetime) -> None:
        """A phase that these item-phases need is done for each of these items."""
        at = to_micros(now)
        self._sql.many(
            "meet_phase_need",
            [{"campaign_id": campaign_id, "phase": phase, "place": place, "now": at} for place in places],
        )

    def lock_of_items(self, campaign_id: str, phase: int, item_ids: Sequence[str]) -> list[ItemPhase]:
        params = {"campaign_id": campaign_id, "phase": phase, "ids": self._sql.pack(item_ids)}
        return [item_phase_from_row(row) for row in self._sql.all("lock_item_phases", params)]

    def look_of_items(self, campaign_id: str, phase: int, item_ids: Sequence[str]) -> list[ItemPhase]:
        """The same without locking them."""
        params = {"campaign_id": campaign_id, "phase": phase, "ids": self._sql.pack(item_ids)}
        return [item_phase_from_row(row) for row in self._sql.all("look_at_item_phases", params)]

    def lock_in_status(
        self, campaign_id: str, phase: int, status: ItemStatus, *, after: int = -1, limit: int
    ) -> list[ItemPhase]:
        params = {
            "campaign_id": campaign_id,
            "phase": phase,
            "status": status.value,
            "after": after,
            "limit": limit,
        }
        return [item_phase_from_row(row) for row in self._sql.all("lock_item_phases_in_status", params)]

    def pause(self, rows: Sequence[ItemPhase], *, note: str, goes_on: bool, now: datetime) -> None:
        """They start no more; with `goes_on`, until their campaign goes on. This transaction holds them."""
        facts = {"note": note, "goes_on": int(goes_on), "now": to_micros(now)}
        self._sql.many("pause_item_phase", [_key(one) | facts for one in rows])

    def go_on(self, rows: Sequence[ItemPhase], *, now: datetime) -> None:
        """Paused ones are to be started again; this transaction holds them."""
        self._sql.many("go_on_item_phase", [_key(one) | {"now": to_micros(now)} for one in rows])

    def lock_going_on(self, campaign_id: str, *, limit: int) -> list[ItemPhase]:
        """Those that were paused with their campaign, held until this transaction ends."""
        params = {"campaign_id": campaign_id, "limit": limit}
        return [item_phase_from_row(row) for row in self._sql.all("item_phases_going_on", params)]

    def retry(self, rows: Sequence[ItemPhase], *, now: datetime) -> None:
        """Failed ones are to be started again; this transaction holds them."""
        self._sql.many("retry_item_phase", [_key(one) | {"now": to_micros(now)} for one in rows])

    def page(
        self,
        campaign_id: str,
        phase: int,
        *,
        status: ItemStatus | None = None,
        after: int = -1,
        limit: int = 100,
    ) -> list[ItemPhase]:
        """In the order of items; the place of the last one is the page token of the next page."""
        params: dict[str, object] = {
            "campaign_id": campaign_id,
            "phase": phase,
            "after": after,
            "limit": limit,
        }
        if status is None:
            rows = self._sql.all("page_of_item_phases", params)
        else:
            rows = self._sql.all("page_of_item_phases_in_status", params | {"status": status.value})
        return [item_phase_from_row(row) for row in rows]

    def of_item(self, campaign_id: str, place: int) -> list[ItemPhase]:
        """All phases of one item, in order."""
        found = self._sql.all("item_phases_at", {"campaign_id": campaign_id, "place": place})
        return [item_phase_from_row(row) for row in found]

    def between(self, campaign_id: str, phase: int, low: int, high: int) -> list[ItemPhase]:
        params = {"campaign_id": campaign_id, "phase": phase, "low": low, "high": high}
        return [item_phase_from_row(row) for row in self._sql.all("item_phases_between", params)]


class SlotTable:
    """Limits as rows: an item-phase runs while its task holds a slot of each scope."""

    def __init__(self, tx: Tx) -> None:
        self._sql = tx.statements

    def create(self, campaign_id: str, scope: str, count: int) -> None:
        self._sql.many(
            "insert_slot",
            [
                {"campaign_id": campaign_id, "scope": scope, "number": number}
                for number in range(1, count + 1)
            ],
        )

    def free(self, campaign_id: str, scope: str, *, limit: int) -> list[int]:
        """Free slots, held by this transaction until it ends."""
        params = {"campaign_id": campaign_id, "scope": scope, "limit": limit}
        return [int(row[0]) for row in self._sql.all("free_slots", params)]

    def take(self, campaign_id: str, scope: str, taken: Sequence[tuple[int, str]]) -> None:
        """Give each slot, which this transaction holds, to its task."""
        self._sql.many(
            "take_slot",
            [
                {"campaign_id": campaign_id, "scope": scope, "number": number, "task_id": task_id}
                for number, task_id in taken
            ],
        )

    def has(self, campaign_id: str, scope: str) -> bool:
        return self._sql.one("has_slots", {"campaign_id": campaign_id, "scope": scope}) is not None

    def of_tasks(self, task_ids: Sequence[str]) -> list[tuple[str, str, int, str]]:
        """The slots that these tasks hold: campaign, scope, number and task."""
        found = self._sql.all("slots_of_tasks", {"ids": self._sql.pack(task_ids)})
        return [(row[0], row[1], int(row[2]), row[3]) for row in found]

    def leave(self, slots: Sequence[tuple[str, str, int, str]]) -> None:
        """Tasks leave these slots, and keep their others."""
        names = ("campaign_id", "scope", "number", "task_id")
        self._sql.many("release_slot", [dict(zip(names, slot, strict=True)) for slot in slots])

    def release(self, task_ids: Sequence[str]) -> None:
        self._sql.run("release_slots", {"ids": self._sql.pack(task_ids)})

    def holders(self, campaign_id: str, *, limit: int = _ALL) -> list[tuple[str, str]]:
        """The scope and the task of each slot that is taken."""
        rows = self._sql.all("slot_holders", {"campaign_id": campaign_id, "limit": limit})
        return [(row[0], row[1]) for row in rows]

    def taken(self, campaign_id: str, scope: str) -> int:
        row = self._sql.one("taken_slots", {"campaign_id": campaign_id, "scope": scope})
        return 0 if row is None else int(row[0])


def _key(one: ItemPhase) -> dict[str, object]:
    return {"campaign_id": one.campaign_id, "phase": one.phase, "place": one.place}
