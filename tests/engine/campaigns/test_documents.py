"""The seed's two documents: its example field for field, and a size that does not grow."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import msgspec
import pytest

from holdfast.core.campaign import Campaign, Item, Phase
from holdfast.core.progress import ItemCounts, Rate
from holdfast.engine.campaigns.documents import (
    MAX_CONTEXT_BYTES,
    ContextDocument,
    PhaseDocument,
    context_of,
    in_words,
    read_context,
    read_phase_document,
)
from holdfast.engine.campaigns.report import BatchProgress, PhaseProgress, progress_of
from holdfast.engine.campaigns.saving import prepared_milestone, saving
from holdfast.engine.claims.boots import Life
from holdfast.engine.client.campaigns import Campaigns
from holdfast.store import Store, Tx
from holdfast.testing import FakeClock
from tests.engine.campaigns.campaign_world import CampaignWorker, a_spec, begun, campaign_of, items
from tests.engine.parts import Parts
from tests.engine.priority_campaign import DONE, PHASE, TOTALS, seed_campaign


async def test_the_seeds_context_document_is_reproduced_field_for_field(
    store: Store, clock: FakeClock
) -> None:
    campaign = await seed_campaign(store, clock)

    found = await store.read(lambda tx: read_context(tx, campaign, now=clock.now()))

    document = msgspec.to_builtins(found)
    # 150 in half an hour, and 250 are left, in progress or pending.
    eta = clock.now() + timedelta(minutes=50)
    assert document == {
        "phase": PHASE,
        "overall": {
            "total": 400,
            "done": 150,
            "in_progress": 50,
            "pending": 200,
            "failed": 0,
            "percent": 37.5,
        },
        "by_priority": {
            "P0": "100% done ✅",
            "P1": "80% done 🏃",
            "P2": "13% done 🏃",
            "P3": "0% done ⏳",
        },
        "current_focus": "P1 batch-009 (8/10 done)",
        "next_up": "P2 batch-021 (10 items)",
        "eta": f"{eta:%Y-%m-%dT%H:%M:%S}Z",
        "issues": [],
        "last_checkpoint": None,
    }


async def test_the_seeds_progress_document_is_reproduced_field_for_field(
    store: Store, clock: FakeClock
) -> None:
    campaign = await seed_campaign(store, clock)

    found = await store.read(lambda tx: read_phase_document(tx, campaign, now=clock.now()))

    document = msgspec.to_builtins(found)
    assert list(document) == [
        "phase",
        "started_at",
        "updated_at",
        "summary",
        "by_priority",
        "current_batch",
        "rate",
    ]
    assert document["phase"] == PHASE
    assert document["summary"] == {
        "total_repos": 400,
        "analyzed": 150,
        "in_progress": 50,
        "pending": 200,
        "failed": 0,
        "progress_percent": 37.5,
    }
    assert document["by_priority"] == {
        name: {"total": TOTALS[name], "analyzed": DONE[name], "pending": TOTALS[name] - DONE[name]}
        for name in TOTALS
    }
    started = clock.now() - timedelta(minutes=25)
    assert document["started_at"] == f"{started:%Y-%m-%dT%H:%M:%S}Z"
    assert document["updated_at"] == f"{clock.now():%Y-%m-%dT%H:%M:%S}Z"
    batch = document["current_batch"]
    assert batch["batch_id"] == "batch-009"
    assert batch["repos"] == [f"repo-{number:03d}" for number in range(81, 91)]
    assert batch["started_at"] == document["started_at"]
    # Two items are left of it, at five a minute.
    complete = clock.now() + timedelta(seconds=24)
    assert batch["estimated_complete"] == f"{complete:%Y-%m-%dT%H:%M:%S}Z"
    eta = clock.now() + timedelta(minutes=50)
    assert document["rate"] == {
        "repos_per_hour": 300.0,
        "estimated_completion": f"{eta:%Y-%m-%dT%H:%M:%S}Z",
    }


# --- the size of the context document


async def big_campaign(store: Store, clock: FakeClock, items: int, *, name: str = "big") -> Campaign:
    """Ten priorities, and the longest names that are allowed, of signs that take four bytes each."""
    spec = a_spec(Phase(name="a" * 50, task="t" * 100), batch_size=3, goal="🦉" * 1000)
    campaigns = Campaigns(store, clock)
    await campaigns.create(name, spec, [])
    for first in range(0, items, 1000):
        chunk = [
            Item(
                id=f"{number:07d}".ljust(100, "x"),
                name="🦉" * 100,
                priority=f"P{number % 10}",
                category=f"{number}".ljust(100, "🦊"),
            )
            for number in range(first, min(items, first + 1000))
        ]
        await campaigns.add(name, chunk)
    await campaigns.start(name)
    return await campaigns.pause(name, reason="🦉" * 4000)


async def reads_of(
    store: Store, campaign: Campaign, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> tuple[ContextDocument, int]:
    """The document, and how many statements its read took."""
    statements = 0

    def look(tx: Tx) -> ContextDocument:
        nonlocal statements
        kind = type(tx.statements)
        for method in ("all", "one"):
            plain = getattr(kind, method)

            def counted(self: object, *given: object, plain: Any = plain) -> object:
                nonlocal statements
                statements += 1
                return plain(self, *given)

            monkeypatch.setattr(kind, method, counted)
        return read_context(tx, campaign, now=clock.now(), issues=['"\\' * 500, *["🦉 owl " * 100] * 50])

    try:
        return await store.read(look), statements
    finally:
        monkeypatch.undo()


async def test_the_context_document_stays_small_and_its_reads_do_not_grow(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    little = await big_campaign(store, clock, 10, name="little")
    large = await big_campaign(store, clock, 3000, name="x" * 100)

    small, few = await reads_of(store, little, clock, monkeypatch)
    document, many = await reads_of(store, large, clock, monkeypatch)

    encoded = msgspec.json.encode(document)
    assert many == few
    assert len(document.by_priority) == 10
    assert document.overall.total == 3000
    assert len(encoded) <= MAX_CONTEXT_BYTES
    assert len(msgspec.json.format(encoded, indent=2)) <= MAX_CONTEXT_BYTES
    assert document.issues[0].startswith("paused (🦉")
    assert document.issues[-1].startswith("and ")
    assert len(msgspec.json.encode(small)) <= MAX_CONTEXT_BYTES


async def test_the_context_document_of_counts_in_the_millions_stays_small() -> None:
    counts = ItemCounts(
        total=10_000_000, running=1_234_567, paused=1_234_567, done=3_333_333, failed=1_111_111
    )
    batch = BatchProgress(number=10_000_000, counts=counts, priority="P9")
    at = datetime(2026, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    phase = PhaseProgress(
        number=19,
        name="z" * 50,
        counts=counts,
        by_priority={f"P{number}": counts for number in range(10)},
        by_category={},
        rate=Rate(per_hour=123_456.78, left=5_000_000, eta=at, eta_low=at, eta_high=at),
        current=batch,
        following=batch,
    )

    document = context_of(phase, issues=['\u0001é"\\' * 1000] * 100, last_checkpoint="c" * 1000)

    assert len(msgspec.json.format(msgspec.json.encode(document), indent=2)) <= MAX_CONTEXT_BYTES


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        (ItemCounts(total=3, done=3), "100% done ✅"),
        (ItemCounts(total=1000, done=999, running=1), "99% done 🏃"),
        (ItemCounts(total=10), "0% done ⏳"),
        (ItemCounts(total=10, running=1), "0% done 🏃"),
        (ItemCounts(total=10, paused=1), "0% done 🏃"),
        (ItemCounts(total=50, done=48, failed=2), "96% done, 2 failed ❌"),
        (ItemCounts(total=50, done=40, failed=2), "80% done 🏃"),
        (ItemCounts(), "0% done ⏳"),
    ],
)
def test_a_priority_in_words(counts: ItemCounts, words: str) -> None:
    assert in_words(counts) == words


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        (ItemCounts(total=3, done=3), "100% done ✅"),
        (ItemCounts(total=50, done=48, failed=2), "96% done, 2 failed ❌"),
        (ItemCounts(total=50, done=49), "98% done, 1 not done ❌"),
        (ItemCounts(total=10), "0% done, 10 not done ❌"),
    ],
)
def test_a_priority_of_a_campaign_that_has_ended(counts: ItemCounts, words: str) -> None:
    assert in_words(counts, has_ended=True) == words


async def test_the_context_names_what_needs_attention_and_the_last_checkpoint(parts: Parts) -> None:
    campaign = await begun(parts.store, parts.clock, a_spec(Phase(name="analysis", task="analyse")), items(2))
    worker = CampaignWorker(parts, campaign)
    await worker.take()
    await worker.fail("repo-001/analysis")
    await Campaigns(parts.store, parts.clock).pause("rd-os", reason="the API is down")
    now = parts.clock.now()
    prepared = await parts.store.read(lambda tx: prepared_milestone(tx, campaign, "half-way", now=now))
    (saved,) = await parts.store.write(saving(prepared)) or []
    campaign = await campaign_of(parts.store, campaign.id)

    found = await parts.store.read(lambda tx: read_context(tx, campaign, now=parts.clock.now()))

    assert found.issues == [
        "paused (the API is down): holdfast campaign resume rd-os",
        "1 item failed: holdfast campaign retry rd-os",
    ]
    assert found.last_checkpoint == saved.id
    assert found.current_focus == "P2 batch-001 (0/2 done)"
    assert found.next_up is None
    assert found.eta is None


THREE = tuple(Phase(name=name, task=name) for name in ("analysis", "migration", "validation"))


async def context(parts: Parts, campaign: Campaign) -> ContextDocument:
    now = await campaign_of(parts.store, campaign.id)
    return await parts.store.read(lambda tx: read_context(tx, now, now=parts.clock.now()))


async def failed_campaign(parts: Parts) -> Campaign:
    """One of 20 items failed in the first of three phases; the others are done in all of them."""
    worker = CampaignWorker(parts, await begun(parts.store, parts.clock, a_spec(*THREE), items(20)))
    await worker.take()
    await worker.fail("repo-007/analysis")
    await worker.finish_all()
    return await campaign_of(parts.store, worker.campaign.id)


async def test_the_context_of_a_campaign_that_failed_says_so(parts: Parts, clock: FakeClock) -> None:
    campaign = await failed_campaign(parts)
    clock.advance(minutes=22)

    found = await context(parts, campaign)

    assert found.phase == "analysis"
    assert (found.overall.done, found.overall.failed, found.overall.pending) == (19, 1, 0)
    assert found.by_priority == {"P2": "95% done, 1 failed ❌"}
    assert found.eta is None
    assert found.issues == [
        "ended as failed, 1 item failed: holdfast campaign retry rd-os",
        "1 item cannot start in migration: a phase before it failed",
        "1 item cannot start in validation: a phase before it failed",
    ]


async def test_no_document_of_an_ended_campaign_has_an_estimate(parts: Parts) -> None:
    campaign = await failed_campaign(parts)
    now = parts.clock.now()

    for phase in ("analysis", "migration", "validation"):
        document, file_document = await parts.store.read(
            partial(_both_documents, campaign=campaign, now=now, phase=phase)
        )

        assert document.eta is None
        assert "🏃" not in document.by_priority["P2"]
        assert file_document.rate.estimated_completion is None
    progress = await parts.store.read(lambda tx: progress_of(tx, campaign, now=now))
    assert [(one.rate.left, one.rate.eta) for one in progress.phases] == [(0, None)] * 3


def _both_documents(
    tx: Tx, campaign: Campaign, now: datetime, phase: str
) -> tuple[ContextDocument, PhaseDocument]:
    return (
        read_context(tx, campaign, now=now, phase=phase),
        read_phase_document(tx, campaign, now=now, phase=phase),
    )


async def test_a_paused_campaign_has_no_estimate_until_it_goes_on(parts: Parts, clock: FakeClock) -> None:
    campaigns = Campaigns(parts.store, clock)
    worker = CampaignWorker(
        parts, await begun(parts.store, clock, a_spec(Phase(name="analysis", task="analyse")), items(20))
    )
    await worker.take()
    clock.advance(minutes=1)
    for number in range(1, 11):
        await worker.finish(f"repo-{number:03d}/analysis")
    running = await context(parts, worker.campaign)
    await campaigns.pause("rd-os", reason="the night")
    paused = await context(parts, worker.campaign)
    clock.advance(hours=10)
    await campaigns.start("rd-os")
    clock.advance(minutes=1)
    for number in range(11, 16):
        await worker.finish(f"repo-{number:03d}/analysis")

    resumed = await context(parts, worker.campaign)

    assert running.eta is not None
    assert paused.eta is None
    # Five in the minute since it went on, and five are left.
    assert resumed.eta == (clock.now() + timedelta(minutes=1)).replace(microsecond=0)
    assert (await campaign_of(parts.store, worker.campaign.id)).ran_since == clock.now() - timedelta(
        minutes=1
    )


async def test_the_time_in_which_no_process_lived_does_not_count(parts: Parts, clock: FakeClock) -> None:
    worker = CampaignWorker(
        parts, await begun(parts.store, clock, a_spec(Phase(name="analysis", task="analyse")), items(20))
    )
    await worker.take()
    clock.advance(minutes=40)
    await parts.store.write(lambda tx: tx.boots.end(parts.life.id, now=clock.now()))
    await worker.finish("repo-011/analysis")
    dead = await context(parts, worker.campaign)
    await Life.begin(parts.store, clock, locks=None)
    clock.advance(minutes=2)
    for number in range(1, 11):
        await worker.finish(f"repo-{number:03d}/analysis")

    found = await context(parts, worker.campaign)

    assert dead.eta is None
    # Eleven in the two minutes since a process lives again, and nine are left.
    assert found.eta == (clock.now() + 9 / 11 * timedelta(minutes=2)).replace(microsecond=0)


async def test_items_that_wait_for_a_failed_phase_are_not_left_to_do(parts: Parts) -> None:
    campaign = await begun(parts.store, parts.clock, a_spec(*THREE, concurrency=20), items(20))
    worker = CampaignWorker(parts, campaign)
    await worker.take()
    for number in range(1, 20):
        await worker.fail(f"repo-{number:03d}/analysis")
    await worker.finish("repo-020/analysis")
    await worker.take()

    found = await context(parts, campaign)
    progress = await parts.store.read(lambda tx: progress_of(tx, campaign, now=parts.clock.now()))

    assert found.phase == "migration"
    assert [one.rate.left for one in progress.phases] == [0, 1, 1]
    assert found.issues[0] == "19 items failed: holdfast campaign retry rd-os"
