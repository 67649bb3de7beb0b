"""Reads and writes of checkpoints of campaigns, and of what they have covered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.campaign import ItemPhase
from holdfast.core.campaign_checkpoint import (
    CampaignCheckpoint,
    CampaignCheckpointKind,
    CampaignMarks,
    CampaignSave,
    Places,
    checkpoint_id,
    tail_of,
)
from holdfast.core.clock import from_micros, to_micros
from holdfast.core.errors import Conflict, NotFound
from holdfast.core.ids import CampaignId
from holdfast.core.payload import digest_of
from holdfast.store.rows.campaign_checkpoints import (
    campaign_checkpoint_from_row,
    campaign_save_from_row,
    places_from_row,
    row_from_campaign_checkpoint,
    row_from_campaign_save,
)
from holdfast.store.rows.campaigns import ITEM_PHASE_COLUMNS, item_phase_from_row
from holdfast.store.rows.reading import encode
from holdfast.store.tasks import LAST, resolve

if TYPE_CHECKING:
    from holdfast.store.transaction import Tx

_PLACES_PAGE = 50_000
_SHOWN_BY = "checkpoints list --campaigns"
# A page that begins with the newest one.
FIRST_PAGE = 2**62


class CampaignCheckpointTable:
    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._sql = tx.statements

    def create(self, checkpoint: CampaignCheckpoint, places: Sequence[bytes] = ()) -> CampaignCheckpoint:
        """Store it with the record of what was done in each phase, under an id that is free; the one that it
        was given is only its beginning. Raises Conflict if another process saved the one with this number."""
        usual = checkpoint_id(checkpoint.kind, checkpoint.name, checkpoint.created_at)
        other = checkpoint_id(
            checkpoint.kind,
            checkpoint.name,
            checkpoint.created_at,
            tail=tail_of(checkpoint.campaign_id, checkpoint.number),
        )
        for one in (usual, other):
            stored = msgspec.structs.replace(checkpoint, id=one)
            if self._sql.one("insert_campaign_checkpoint", row_from_campaign_checkpoint(stored)) is not None:
                break
        else:
            raise Conflict(
                f"another process saved checkpoint {checkpoint.number} of {checkpoint.campaign_id} first"
            )
        for phase, packed in enumerate(places):
            digest = digest_of(stored.id, phase, packed)
            self._sql.run(
                "insert_campaign_checkpoint_places",
                {"checkpoint_id": stored.id, "phase": phase, "places": packed, "digest": digest},
            )
        return stored

    def get(self, checkpoint_id: str) -> CampaignCheckpoint:
        row = self._sql.one("get_campaign_checkpoint", {"id": checkpoint_id})
        if row is None:
            raise NotFound("checkpoint", checkpoint_id, shown_by=_SHOWN_BY)
        return campaign_checkpoint_from_row(row)

    def resolve(self, prefix: str) -> str:
        """The one id with this prefix. Raises NotFound, AmbiguousId."""
        query = "find_campaign_checkpoints"
        return resolve(self._tx, "checkpoint", query, prefix, shown_by=_SHOWN_BY)

    def latest(self, campaign_id: str) -> CampaignCheckpoint | None:
        """The last checkpoint of a campaign; what it costs does not grow with their number."""
        row = self._sql.one("latest_campaign_checkpoint", {"campaign_id": campaign_id})
        return None if row is None else campaign_checkpoint_from_row(row)

    def page(
        self,
        campaign_id: str,
        *,
        kind: CampaignCheckpointKind | None = None,
        before: int = FIRST_PAGE,
        limit: int = 50,
    ) -> list[CampaignCheckpoint]:
        """Newest first; the number of the last one is the page token of the next page."""
        params: dict[str, object] = {"campaign_id": campaign_id, "before": before, "limit": limit}
        if kind is None:
            rows = self._sql.all("page_of_campaign_checkpoints", params)
        else:
            rows = self._sql.all("page_of_campaign_checkpoints_of_kind", params | {"kind": kind.value})
        return [campaign_checkpoint_from_row(row) for row in rows]

    def page_of_all(
        self, *, before: CampaignCheckpoint | None = None, limit: int = 50
    ) -> list[CampaignCheckpoint]:
        """Those of all campaigns, newest first; the next page begins after the last one."""
        params = {
            "before_at": 2**62 if before is None else to_micros(before.created_at),
            "before_id": LAST if before is None else before.id,
            "limit": limit,
        }
        found = self._sql.all("page_of_all_campaign_checkpoints", params)
        return [campaign_checkpoint_from_row(row) for row in found]

    def places(self, checkpoint_id: str, phase: int) -> Places | None:
        """Where items were done in one phase; None if there is no such record. Raises RowDamaged."""
        params = {"checkpoint_id": checkpoint_id, "phase": phase}
        row = self._sql.one("places_of_campaign_checkpoint", params)
        return None if row is None else places_from_row(row)

    def done_places(self, campaign_id: str, phase: int) -> Iterator[int]:
        """Where items are done in one phase now, in order, in bounded memory."""
        after = -1
        while True:
            params = {"campaign_id": campaign_id, "phase": phase, "after": after, "limit": _PLACES_PAGE}
            found = self._sql.all("done_places", params)
            for row in found:
                yield row[0]
            if len(found) < _PLACES_PAGE:
                return
            after = found[-1][0]

    def batches_done_since(
        self, campaign_id: str, since: datetime, *, limit: int
    ) -> list[tuple[int, int, datetime]]:
        """Phase and batch of the items that were done lately, and when; the last one first."""
        params = {"campaign_id": campaign_id, "since": to_micros(since), "limit": limit}
        found = self._sql.all("batches_done_since", params)
        return [(int(row[0]), int(row[1]), from_micros(row[2])) for row in found]

    def last_actions(self, campaign_id: str, *, limit: int) -> list[tuple[str, ItemPhase]]:
        """The items that changed last, with the step that each has saved last; each with its id."""
        params = {"campaign_id": campaign_id, "limit": limit}
        found = self._sql.all("last_actions_of_items", params)
        return [(row[-1], item_phase_from_row(row[:ITEM_PHASE_COLUMNS])) for row in found]

    def prune_surplus(self, campaign_id: str, kind: CampaignCheckpointKind, *, kept: int) -> None:
        """Delete the oldest ones of an automatic kind, so that only so many are kept."""
        params: dict[str, object] = {"campaign_id": campaign_id, "kind": kind.value}
        row = self._sql.one("kept_campaign_checkpoint", params | {"kept": kept})
        if row is not None:
            self._sql.all("delete_surplus_campaign_checkpoints", params | {"number": row[0]})

    def to_prune(
        self,
        campaign_id: str,
        *,
        older_than: datetime,
        kind: CampaignCheckpointKind | None = None,
        limit: int,
    ) -> list[str]:
        """Ids of older ones, oldest first; never the last one, nor one that a restore goes back to."""
        params: dict[str, object] = {
            "campaign_id": campaign_id,
            "older_than": to_micros(older_than),
            "limit": limit,
        }
        if kind is None:
            rows = self._sql.all("campaign_checkpoints_to_prune", params)
        else:
            rows = self._sql.all("campaign_checkpoints_of_kind_to_prune", params | {"kind": kind.value})
        return [str(row[0]) for row in rows]

    def delete(self, ids: Sequence[str]) -> None:
        packed = {"ids": self._sql.pack(ids)}
        self._sql.run("delete_campaign_checkpoints", packed)
        self._sql.run("delete_campaign_checkpoint_places", packed)


class CampaignSaveTable:
    """What the checkpoints of each campaign have covered, and which campaigns need another one."""

    def __init__(self, tx: Tx) -> None:
        self._sql = tx.statements

    def lock(self, campaign_id: str, *, now: datetime) -> CampaignSave:
        """Locked until this transaction ends: no other process saves a checkpoint of this campaign."""
        found = self._sql.one("lock_campaign_save", {"campaign_id": campaign_id})
        if found is None:
            first = CampaignSave(campaign_id=CampaignId(campaign_id), updated_at=now)
            self._sql.run("insert_campaign_save", row_from_campaign_save(first))
            found = self._sql.one("lock_campaign_save", {"campaign_id": campaign_id})
        assert found is not None
        return campaign_save_from_row(found)

    def get(self, campaign_id: str) -> CampaignSave | None:
        row = self._sql.one("get_campaign_save", {"campaign_id": campaign_id})
        return None if row is None else campaign_save_from_row(row)

    def set(self, save: CampaignSave) -> None:
        """A checkpoint was saved; this transaction holds the row."""
        self._sql.run("set_campaign_save", row_from_campaign_save(save))

    def want(self, campaign_id: str, why: str, *, now: datetime) -> None:
        """Ask the service that saves campaigns for another checkpoint."""
        params = {
            "campaign_id": campaign_id,
            "marks": encode(CampaignMarks()),
            "wanted": why,
            "now": to_micros(now),
        }
        self._sql.run("want_campaign_save", params)

    def wanting(self, *, after: str = "", limit: int = 100) -> list[str]:
        found = self._sql.all("campaigns_wanting_saves", {"after": after, "limit": limit})
        return [str(row[0]) for row in found]
