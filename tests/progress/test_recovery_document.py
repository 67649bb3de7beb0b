"""The recovery document of seed 002: what a restart would have to go on with."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.core.errors import BadInput
from holdfast.core.task import Failure
from holdfast.engine.campaigns.recovery_document import RecoveryDocument
from holdfast.engine.client.campaigns import Campaigns
from holdfast.store import Store
from holdfast.testing import FakeClock
from tests.repository_campaign import begin, end, seed_campaign, seed_items, start


async def pages_of(campaigns: Campaigns, *, limit: int) -> list[RecoveryDocument]:
    pages = [await campaigns.recovery_state("rd-os", limit=limit)]
    while (following := pages[-1].next_page_token) is not None:
        pages.append(await campaigns.recovery_state("rd-os", limit=limit, page_token=following))
    return pages


async def test_it_holds_what_is_not_done_and_the_agents_that_are_not_idle(
    store: Store, clock: FakeClock
) -> None:
    seed_campaign(store, clock)

    found = await Campaigns(store, clock).recovery_state("rd-os", limit=1000)

    assert list(msgspec.to_builtins(found)) == ["analysis", "migration", "agents", "latest_checkpoint"]
    assert len(found.analysis) == 250
    assert {row.status for row in found.analysis} == {"running", "pending"}
    assert len([row for row in found.analysis if row.status == "running"]) == 50
    assert len(found.migration) == 400
    assert len(found.agents) == 50
    assert {(row.type, row.status) for row in found.agents} == {("analyzer", "active")}
    assert found.latest_checkpoint is None
    assert found.next_page_token is None


@pytest.mark.parametrize("limit", [1, 3, 100, 399])
async def test_the_pages_together_are_the_whole(store: Store, clock: FakeClock, limit: int) -> None:
    campaign = begin(store, clock, seed_items()[:12], concurrency=8)
    end(store, clock, campaign, [0, 1, 5])
    end(store, clock, campaign, [2], failure=Failure(kind="OSError", message="no disk"))
    start(store, clock, campaign)
    campaigns = Campaigns(store, clock)
    whole = await campaigns.recovery_state("rd-os", limit=1000)

    pages = await pages_of(campaigns, limit=limit)

    for name in ("analysis", "migration", "agents"):
        assert [row for page in pages for row in getattr(page, name)] == list(getattr(whole, name))
    assert {row.status for row in whole.agents} == {"active", "error"}
    assert all(len(page.analysis) <= limit and len(page.migration) <= limit for page in pages)


async def test_a_failed_item_tells_its_error_and_the_time_at_which_it_ended(
    store: Store, clock: FakeClock
) -> None:
    campaign = begin(store, clock, seed_items()[:2])
    clock.advance(minutes=3)
    end(store, clock, campaign, [1], failure=Failure(kind="OSError", message="no disk"))

    found = await Campaigns(store, clock).recovery_state("rd-os")

    row = found.analysis[1]
    assert (row.repo_id, row.status, row.error_message) == ("repo-002", "failed", "OSError: no disk")
    assert row.completed_at == clock.now()
    assert row.campaign_id == campaign.id


@pytest.mark.parametrize("limit", [0, -1, 10**9])
async def test_a_limit_that_makes_no_sense_is_refused(store: Store, clock: FakeClock, limit: int) -> None:
    begin(store, clock, seed_items()[:1])

    with pytest.raises(BadInput, match="limit"):
        await Campaigns(store, clock).recovery_state("rd-os", limit=limit)
