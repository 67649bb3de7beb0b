"""The seed's example: 400 repositories in four priorities, of which 150 are done and 50 in progress."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from holdfast.core.campaign import Campaign, CampaignSpec, Item, Phase
from holdfast.engine.campaigns.changes import starting_campaign
from holdfast.engine.campaigns.creating import NewCampaign, adding_items, creating_campaign
from holdfast.engine.campaigns.starting import starting_items
from holdfast.engine.claims.boots import Life
from holdfast.engine.claims.claims import Claims
from holdfast.engine.ledger.ledger import Ledger
from holdfast.store import Store
from holdfast.testing import FakeClock

PHASE = "repository_analysis"
TOTALS = {"P0": 50, "P1": 100, "P2": 150, "P3": 100}
DONE = {"P0": 50, "P1": 80, "P2": 20, "P3": 0}
# Those of P1 that are in progress are the last two of its batch 9 and the last 18 of all.
_RUNNING_P1 = {"repo-089", "repo-090", *(f"repo-{number:03d}" for number in range(133, 151))}


def seed_items() -> list[Item]:
    priorities = [priority for priority, count in TOTALS.items() for _ in range(count)]
    return [
        Item(
            id=f"repo-{number:03d}", name=f"pingcap/repo-{number:03d}", priority=priority, category="product"
        )
        for number, priority in enumerate(priorities, 1)
    ]


def seed_spec(**changes: object) -> CampaignSpec:
    facts = {"phases": (Phase(name=PHASE, task="analyse"),), "concurrency": 200}
    return CampaignSpec(**facts | changes)  # type: ignore[arg-type]


async def seed_campaign(
    store: Store, clock: FakeClock, *, name: str = "rd-os", owner: str = "system"
) -> Campaign:
    """150 of 400 done, 50 running, 200 pending: 37.5 %; begun half an hour ago."""
    new = NewCampaign(name=name, spec=seed_spec(), owner=owner)
    campaign = await store.write(creating_campaign(new, now=clock.now()))
    await store.write(adding_items(campaign.id, seed_items(), now=clock.now()))
    await store.write(starting_campaign(campaign.id, now=clock.now()))
    await Life.begin(store, clock, locks=None)
    clock.advance(minutes=5)
    await store.write(starting_items(campaign.id, now=clock.now()))
    clock.advance(minutes=25)
    await finish_items(store, clock, campaign, _done_ids())
    return await store.read(lambda tx: tx.campaigns.get(campaign.id))


def _done_ids() -> list[str]:
    ids = [item.id for item in seed_items()]
    of_p1 = [one for one in ids[50:150] if one not in _RUNNING_P1]
    return ids[:50] + of_p1 + ids[150:170]


async def finish_items(store: Store, clock: FakeClock, campaign: Campaign, ids: Sequence[str]) -> None:
    """Let the tasks of these items succeed; all others that are ready stay claimed."""
    life = await Life.begin(store, clock, locks=None)
    claims, ledger = Claims(store, clock, life.id, lease=timedelta(days=7)), Ledger(store, clock)
    held = {claimed.task.id: claimed for claimed in await claims.take(1000)}
    known = await store.read(lambda tx: tx.items.by_ids(campaign.id, ids))
    for item_id in ids:
        place = known[item_id].place
        rows = await store.read(lambda tx: tx.item_phases.of_item(campaign.id, place))  # noqa: B023 - read at once
        running = next(one for one in rows if one.task_id in held)
        assert running.task_id is not None
        await ledger.finish(held[running.task_id].claim, {"lines_of_code": place})
