"""progress.throughput: the kept counts of five minutes, without gaps, on each database."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import pytest

from holdfast.api.throughput_methods import ThroughputAsked, read_throughput
from holdfast.core.campaign import Phase
from holdfast.store import Store
from holdfast.testing import FakeClock
from holdfast.views.throughput import ThroughputView
from tests.api.stand_in import OWNER_TOKEN, ServedDoors
from tests.api.test_campaigns import call, filled
from tests.engine.campaigns.campaign_world import CampaignWorker, a_spec, begun, items
from tests.engine.parts import Parts

ANALYSIS = Phase(name="analysis", task="analyse")


def read(store: Store, clock: FakeClock, hours: int = 6) -> ThroughputView:
    asked = ThroughputAsked(campaign="rd-os", hours=hours)
    return asyncio.run(store.read(lambda tx: read_throughput(tx, asked, now=clock.now())))


@pytest.fixture
def began_at(store: Store, clock: FakeClock) -> datetime:
    """When a campaign began that did two items at once, one 20 minutes and one 100 minutes later."""

    async def work() -> datetime:
        parts = await Parts.begin(store, clock)
        campaign = await begun(store, clock, a_spec(ANALYSIS, concurrency=10), items(5))
        started_at = clock.now()
        worker = CampaignWorker(parts, campaign)
        names = sorted(await worker.take())
        for name in names[:2]:
            await worker.finish(name)
        for name, minutes in zip(names[2:4], (20, 80), strict=True):
            clock.advance(minutes=minutes)
            await worker.finish(name)
        return started_at

    return asyncio.run(work())


def test_each_span_since_the_start_says_how_many_items_were_done(
    store: Store, clock: FakeClock, began_at: datetime
) -> None:
    found = read(store, clock)

    assert [span.done for span in found.spans if span.done] == [2, 1, 1]
    assert (found.done, found.total, found.phase) == (4, 5, "analysis")
    assert {b.began_at - a.began_at for a, b in zip(found.spans, found.spans[1:], strict=False)} == {
        timedelta(seconds=found.span_s)
    }
    assert found.spans[0].began_at <= began_at < found.spans[0].began_at + timedelta(seconds=found.span_s)


def test_spans_before_the_hours_are_left_out(store: Store, clock: FakeClock, began_at: datetime) -> None:
    found = read(store, clock, hours=1)

    assert sum(span.done for span in found.spans) == 1
    assert len(found.spans) == 13
    assert found.done == 4
    assert began_at < found.spans[0].began_at


def test_a_draft_has_no_spans_and_another_owner_no_campaign(house: ServedDoors) -> None:
    filled(house)

    draft = call(house, "progress.throughput", campaign="rd-os")
    started = call(house, "campaigns.start", campaign="rd-os")
    running = call(house, "progress.throughput", phase="migration")
    other = house.post("progress.throughput", {"campaign": "rd-os"}, token=OWNER_TOKEN)

    assert (draft["spans"], draft["total"]) == ([], 3)
    assert started["campaign"]["status"] == "running"
    assert (running["phase"], len(running["spans"])) == ("migration", 1)
    assert other.status_code == 404
