"""Checkpoints of campaigns: stored once under an id that is free, paged, pruned; damage is found."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from holdfast.core.campaign_checkpoint import (
    CampaignCheckpoint,
    CampaignCheckpointKind,
    CampaignMarks,
    CampaignSave,
    checkpoint_id,
    pack_places,
    tail_of,
)
from holdfast.core.errors import Conflict, NotFound, RowDamaged
from holdfast.core.ids import CampaignId
from holdfast.store import Store
from holdfast.store.verify import verify
from tests.builders import START, later
from tests.engine.tables import execute

BATCH, MILESTONE, PERIODIC = CampaignCheckpointKind
ONE, OTHER = CampaignId("camp_1"), CampaignId("camp_2")


def a_checkpoint(**changes: Any) -> CampaignCheckpoint:
    fields: dict[str, Any] = {
        "id": "",
        "campaign_id": ONE,
        "number": 1,
        "kind": MILESTONE,
        "name": "analysis-complete",
        "phase": 0,
        "items": 20,
        "recoverable": True,
        "summary": b'{"done":3}',
        "created_at": START,
    }
    return CampaignCheckpoint(**fields | changes)


def save(store: Store, checkpoint: CampaignCheckpoint, *places: bytes) -> CampaignCheckpoint:
    return store.write_now(lambda tx: tx.campaign_checkpoints.create(checkpoint, places))


def test_a_checkpoint_comes_back_with_the_places_that_were_done(store: Store) -> None:
    done = [{0, 3, 17}, {3}]

    saved = save(store, a_checkpoint(), *(pack_places(one, 20) for one in done))

    assert saved.id == checkpoint_id(MILESTONE, "analysis-complete", START)
    assert store.read_now(lambda tx: tx.campaign_checkpoints.get(saved.id)) == saved
    for phase in (0, 1):
        found = store.read_now(
            partial(lambda tx, phase: tx.campaign_checkpoints.places(saved.id, phase), phase=phase)
        )
        assert found is not None
        assert set(found) == done[phase]
    assert store.read_now(lambda tx: tx.campaign_checkpoints.places(saved.id, 2)) is None


def test_an_id_that_is_taken_gets_a_tail(store: Store) -> None:
    first = save(store, a_checkpoint())
    same = save(store, a_checkpoint(number=2))
    other = save(store, a_checkpoint(campaign_id=OTHER))

    assert same.id == f"{first.id}-{tail_of(ONE, 2)}"
    assert other.id == f"{first.id}-{tail_of(OTHER, 1)}"


def test_a_number_is_given_once(store: Store) -> None:
    first = save(store, a_checkpoint())

    with pytest.raises(Conflict, match="another process saved checkpoint 1 of camp_1 first"):
        save(store, a_checkpoint(kind=PERIODIC, name="periodic"))
    assert store.read_now(lambda tx: tx.campaign_checkpoints.page(ONE)) == [first]


def test_the_last_one_of_a_campaign_is_found(store: Store) -> None:
    assert store.read_now(lambda tx: tx.campaign_checkpoints.latest(ONE)) is None
    save(store, a_checkpoint())
    # The clock went back meanwhile.
    last = save(store, a_checkpoint(number=2, created_at=later(hours=-3), name="p0-migrated"))
    save(store, a_checkpoint(campaign_id=OTHER, number=9, created_at=later(days=1)))

    assert store.read_now(lambda tx: tx.campaign_checkpoints.latest(ONE)) == last


def test_pages_go_from_the_newest_to_the_oldest(store: Store) -> None:
    mine = [
        save(store, a_checkpoint(number=one, kind=(BATCH, PERIODIC)[one % 2], created_at=later(minutes=one)))
        for one in range(1, 8)
    ]
    theirs = save(store, a_checkpoint(campaign_id=OTHER, created_at=later(minutes=3, seconds=1)))

    def pages(kind: CampaignCheckpointKind | None = None) -> list[CampaignCheckpoint]:
        found: list[CampaignCheckpoint] = []
        while True:
            before = found[-1].number if found else 2**62
            page = store.read_now(
                partial(
                    lambda tx, before: tx.campaign_checkpoints.page(ONE, kind=kind, before=before, limit=2),
                    before=before,
                )
            )
            if not page:
                return found
            found += page

    everything: list[CampaignCheckpoint] = []
    for _ in range(3):
        last = everything[-1] if everything else None
        everything += store.read_now(
            partial(lambda tx, last: tx.campaign_checkpoints.page_of_all(before=last, limit=3), last=last)
        )

    assert pages() == mine[::-1]
    assert pages(kind=BATCH) == [one for one in mine[::-1] if one.kind is BATCH]
    assert everything == sorted([*mine, theirs], key=lambda one: one.created_at, reverse=True)


def test_a_prefix_of_an_id_is_enough(store: Store) -> None:
    saved = save(store, a_checkpoint())

    assert store.read_now(lambda tx: tx.campaign_checkpoints.resolve("checkpoint-analysis")) == saved.id
    with pytest.raises(NotFound):
        store.read_now(lambda tx: tx.campaign_checkpoints.resolve("checkpoint-b"))
    with pytest.raises(NotFound):
        store.read_now(lambda tx: tx.campaign_checkpoints.get("checkpoint-b"))


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE campaign_checkpoints SET items = 21",
        "UPDATE campaign_checkpoints SET kind = 'batch'",
        "UPDATE campaign_checkpoints SET created_at = -1",
    ],
)
def test_a_damaged_checkpoint_is_listed_as_damaged(store: Store, damage: str) -> None:
    save(store, a_checkpoint())

    execute(store, damage)

    assert [one.is_damaged for one in store.read_now(lambda tx: tx.campaign_checkpoints.page(ONE))] == [True]


@pytest.mark.parametrize("change", ["places = CAST('x' AS {blob})", "digest = CAST('x' AS {blob})"])
def test_damaged_places_are_told(store: Store, change: str) -> None:
    saved = save(store, a_checkpoint(), pack_places([1], 20))

    blob = "BYTEA" if "postgres" in type(store).__name__.lower() else "BLOB"
    execute(store, f"UPDATE campaign_checkpoint_places SET {change.format(blob=blob)}")

    with pytest.raises(RowDamaged):
        store.read_now(lambda tx: tx.campaign_checkpoints.places(saved.id, 0))


def test_a_verification_finds_damaged_checkpoints_and_places(store: Store) -> None:
    save(store, a_checkpoint(), pack_places([1], 20))
    assert verify(partial(_read, store), lambda _: iter(())) == []

    execute(store, "UPDATE campaign_checkpoints SET items = 21")
    execute(store, "UPDATE campaign_checkpoint_places SET phase = 3")

    found = verify(partial(_read, store), lambda _: iter(()))
    assert len(found) == 2
    assert all("checkpoint-analysis-complete" in one for one in found)


def _read(store: Store, look: Any) -> None:
    store.read_now(look)


# --- retention


def test_only_so_many_of_a_kind_are_kept_and_milestones_stay(store: Store) -> None:
    for number in range(1, 12):
        save(store, a_checkpoint(number=number, kind=(BATCH, MILESTONE)[number % 2]))

    for kind in CampaignCheckpointKind:
        store.write_now(
            partial(lambda tx, kind: tx.campaign_checkpoints.prune_surplus(ONE, kind, kept=2), kind=kind)
        )

    found = store.read_now(lambda tx: tx.campaign_checkpoints.page(ONE))
    assert [one.number for one in found if one.kind is BATCH] == [10, 8]
    assert [one.number for one in found if one.kind is MILESTONE] == [11, 9, 7, 5, 3, 1]


def test_pruning_leaves_the_last_one_and_deletes_places_too(store: Store) -> None:
    old = [save(store, a_checkpoint(number=one), pack_places([1], 20)) for one in (1, 2)]
    last = save(store, a_checkpoint(number=3), pack_places([1], 20))

    ids = store.read_now(lambda tx: tx.campaign_checkpoints.to_prune(ONE, older_than=later(days=1), limit=10))
    store.write_now(lambda tx: tx.campaign_checkpoints.delete(ids))

    assert ids == [one.id for one in old]
    assert store.read_now(lambda tx: tx.campaign_checkpoints.page(ONE)) == [last]
    assert store.read_now(lambda tx: tx.campaign_checkpoints.places(old[0].id, 0)) is None
    assert store.read_now(lambda tx: tx.campaign_checkpoints.places(last.id, 0)) is not None


# --- what was covered


def test_what_was_covered_is_kept_and_a_wish_for_another_one_too(store: Store) -> None:
    marks = CampaignMarks(
        counts=((3, 0, 0, 2, 1),), done=2, over={0: (3, 1)}, batches=((0, 1, 10),), ended_us=7
    )
    first = store.write_now(lambda tx: tx.campaign_saves.lock(ONE, now=START))
    saved = CampaignSave(
        campaign_id=ONE, number=4, checkpoint_id="checkpoint-x", marks=marks, updated_at=later(minutes=1)
    )
    store.write_now(lambda tx: tx.campaign_saves.set(saved))
    found = store.read_now(lambda tx: tx.campaign_saves.get(ONE))

    store.write_now(lambda tx: tx.campaign_saves.want(ONE, "paused", now=later(minutes=2)))
    store.write_now(lambda tx: tx.campaign_saves.want(ONE, "resumed", now=later(minutes=3)))
    store.write_now(lambda tx: tx.campaign_saves.want(OTHER, "started", now=START))

    assert first == CampaignSave(campaign_id=ONE, updated_at=START)
    assert found == saved
    wanting = store.read_now(lambda tx: tx.campaign_saves.wanting())
    assert wanting == [ONE, OTHER]
    assert store.read_now(lambda tx: tx.campaign_saves.wanting(after=ONE)) == [OTHER]
    again = store.write_now(lambda tx: tx.campaign_saves.lock(ONE, now=later(minutes=4)))
    assert (again.number, again.wanted) == (4, "resumed")
