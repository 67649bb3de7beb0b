"""Reads and writes of restores of campaigns, and of the items that they make pending again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from holdfast.core.campaign import ItemPhase
from holdfast.core.campaign_checkpoint import CampaignRestore
from holdfast.core.clock import to_micros
from holdfast.core.errors import NotFound
from holdfast.core.transitions import ItemStatus
from holdfast.store.rows.campaign_checkpoints import campaign_restore_from_row, row_from_campaign_restore
from holdfast.store.rows.campaigns import item_phase_from_row

if TYPE_CHECKING:
    from holdfast.store.transaction import Tx


class CampaignRestoreTable:
    def __init__(self, tx: Tx) -> None:
        self._sql = tx.statements

    def open_of(self, campaign_id: str) -> CampaignRestore | None:
        """The restore of a campaign that has not ended."""
        row = self._sql.one("open_campaign_restore", {"campaign_id": campaign_id})
        return None if row is None else campaign_restore_from_row(row)

    def lock_open(self, campaign_id: str) -> CampaignRestore | None:
        """The same, locked until this transaction ends."""
        row = self._sql.one("lock_campaign_restore", {"campaign_id": campaign_id})
        return None if row is None else campaign_restore_from_row(row)

    def get(self, campaign_id: str, number: int) -> CampaignRestore:
        row = self._sql.one("get_campaign_restore", {"campaign_id": campaign_id, "number": number})
        if row is None:
            raise NotFound("restore", f"{number} of {campaign_id}")
        return campaign_restore_from_row(row)

    def last_number(self, campaign_id: str) -> int:
        row = self._sql.one("last_campaign_restore", {"campaign_id": campaign_id})
        return 0 if row is None else int(row[0])

    def create(self, restore: CampaignRestore) -> None:
        """This transaction holds the campaign, which has no other restore that is open."""
        self._sql.run("insert_campaign_restore", row_from_campaign_restore(restore))

    def set(self, restore: CampaignRestore) -> None:
        self._sql.run("set_campaign_restore", row_from_campaign_restore(restore))

    # --- items

    def touched(
        self, campaign_id: str, phase: int, *, after: int = -1, limit: int = 1000
    ) -> Iterator[tuple[int, ItemStatus, str | None]]:
        """Place, status and task of the items of a phase that have, or had, a task, in order, in bounded
        memory."""
        while True:
            params = {"campaign_id": campaign_id, "phase": phase, "after": after, "limit": limit}
            found = self._sql.all("touched_item_phases", params)
            for place, status, task_id in found:
                yield int(place), ItemStatus(status), task_id
            if len(found) < limit:
                return
            after = int(found[-1][0])

    def that_may_run(
        self, campaign_id: str, phase: int, *, after: int = -1, limit: int
    ) -> list[tuple[int, str]]:
        """Place and task of the items of a phase whose task may not have ended, in order."""
        params = {"campaign_id": campaign_id, "phase": phase, "after": after, "limit": limit}
        return [(int(row[0]), str(row[1])) for row in self._sql.all("item_phases_that_may_run", params)]

    def lock_at(self, campaign_id: str, phase: int, places: Sequence[int]) -> list[ItemPhase]:
        """These items of one phase, locked until this transaction ends."""
        params = {
            "campaign_id": campaign_id,
            "phase": phase,
            "low": min(places),
            "high": max(places),
            "places": self._sql.pack([str(place) for place in places]),
        }
        return [item_phase_from_row(row) for row in self._sql.all("lock_item_phases_at", params)]

    def undo(self, one: ItemPhase, *, note: str, now: datetime) -> None:
        """It starts again as a new task; this transaction holds it. Its earlier task stays in the ledger. An
        item that an operator paused stays paused."""
        has_ended = one.status in (ItemStatus.DONE, ItemStatus.FAILED)
        query = "undo_item_phase" if has_ended else "forget_task_of_item_phase"
        self._sql.run(query, _key(one) | {"note": note, "now": to_micros(now)})

    def add_need(self, one: ItemPhase, phase: int, *, now: datetime) -> None:
        """A phase that this other phase of the same item needs is no longer done."""
        self._sql.run("add_phase_need", _key(one) | {"phase": phase, "now": to_micros(now)})

    # --- effects that are kept

    def keep_effects(self, one: ItemPhase, task_id: str) -> None:
        """The next task of this item finds the effects of this one as done."""
        self._sql.run("keep_effects_of_task", _key(one) | {"task_id": task_id})

    def kept_effects(self, one: ItemPhase) -> str | None:
        """The task whose effects the next task of this item finds as done."""
        row = self._sql.one("kept_effects_at", _key(one))
        return None if row is None else str(row[0])

    def forget_effects(self, one: ItemPhase) -> None:
        self._sql.run("forget_kept_effects", _key(one))


def _key(one: ItemPhase) -> dict[str, object]:
    return {"campaign_id": one.campaign_id, "phase": one.phase, "place": one.place}
