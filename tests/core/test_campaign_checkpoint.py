"""Ids of checkpoints of campaigns, names of milestones, and the record of what was done."""

from __future__ import annotations

import os
import random
import zlib
from datetime import UTC, datetime, timedelta, timezone

import pytest

from holdfast.core.campaign_checkpoint import (
    CampaignCheckpointKind,
    Places,
    check_milestone_name,
    checkpoint_id,
    pack_places,
    tail_of,
)
from holdfast.core.errors import BadInput
from holdfast.core.ids import check_id

AT = datetime(2026, 2, 28, 14, 0, tzinfo=UTC)
BATCH, MILESTONE, PERIODIC = CampaignCheckpointKind


def test_the_ids_are_those_of_the_seed_word_for_word() -> None:
    evening = AT.replace(hour=16)

    assert checkpoint_id(BATCH, "batch-008", AT) == "checkpoint-batch-008-20260228-1400"
    assert checkpoint_id(MILESTONE, "analysis-complete", evening) == (
        "checkpoint-analysis-complete-20260228-160000"
    )


def test_an_id_is_in_utc_whatever_the_zone_of_the_moment() -> None:
    there = AT.astimezone(timezone(timedelta(hours=9)))

    assert checkpoint_id(BATCH, "batch-008", there) == checkpoint_id(BATCH, "batch-008", AT)


@pytest.mark.parametrize("name", ["../etc", "alert-\x1b[31m", "ä" * 40, "", "-", "A B", "\u202e", "a/../b"])
def test_whatever_its_name_an_id_is_the_name_of_a_folder(name: str) -> None:
    found = checkpoint_id(PERIODIC, name, AT, tail=tail_of("camp_1", 3))

    assert check_id("checkpoint", found) == found
    assert found.startswith("checkpoint-")
    assert not found.startswith("checkpoint--")


def test_the_longest_id_is_still_an_id() -> None:
    longest = checkpoint_id(MILESTONE, "x" * 60, AT, tail=tail_of("camp_1", 3))

    assert check_id("checkpoint", longest) == longest
    assert len(longest) == 64


@pytest.mark.parametrize(
    "name", ["", "..", "../up", "a/b", "A", "a b", "-a", "a" * 27, "a\n", "ä", None, 7, "a\x00b", "*"]
)
def test_a_hostile_name_of_a_milestone_is_refused(name: object) -> None:
    with pytest.raises(BadInput, match="small letters"):
        check_milestone_name(name)


@pytest.mark.parametrize("name", ["p0-migrated", "analysis-complete", "7", "a" * 26])
def test_a_name_of_a_milestone_is_kept(name: str) -> None:
    assert check_milestone_name(name) == name


# --- places


def test_places_come_back_as_they_were() -> None:
    seed = int(os.environ.get("HOLDFAST_SEED") or random.randrange(10**6))
    print(f"HOLDFAST_SEED={seed}")
    chance = random.Random(seed)
    items = chance.randrange(1, 5_000)
    done = {place for place in range(items) if chance.random() < chance.random()}

    places = Places(pack_places(sorted(done), items))

    assert list(places) == sorted(done)
    assert len(places) == len(done)
    assert {place for place in range(items + 50) if place in places} == done


def test_a_million_places_take_at_most_as_many_bits() -> None:
    half = pack_places((place for place in range(1_000_000) if hash((place, 7)) % 2), 1_000_000)
    first = pack_places(range(500_000), 1_000_000)

    assert len(half) < 130_000
    assert len(first) < 1_000


@pytest.mark.parametrize(
    "stored", [b"", b"no zlib", zlib.compress(b"\xff" * 100)[:-5], zlib.compress(bytes(3 * 1024 * 1024))]
)
def test_a_damaged_record_of_places_is_told(stored: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        Places(stored)
