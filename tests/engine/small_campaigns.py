"""Small campaigns for tests, and a worker that ends their tasks as the test says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.core.campaign import Campaign, CampaignSpec, Item, Phase
from holdfast.core.clock import Clock
from holdfast.core.payload import decode_payload
from holdfast.engine.campaigns.starting import starting_items
from holdfast.engine.claims.claims import ClaimedRun
from holdfast.engine.client.campaigns import Campaigns
from holdfast.store import Store
from tests.engine.parts import Parts

ANALYSIS = Phase(name="analysis", task="analyse")
MIGRATION = Phase(name="migration", task="migrate")


def some_items(count: int, *, first: int = 1, **changes: Any) -> list[Item]:
    return [Item(id=f"repo-{number:03d}", **changes) for number in range(first, first + count)]


async def begin(
    store: Store,
    clock: Clock,
    items: Sequence[Item],
    *,
    name: str = "rd-os",
    phases: Sequence[Phase] = (ANALYSIS, MIGRATION),
    **spec: Any,
) -> Campaign:
    """A running campaign; nothing of it is started yet."""
    campaigns = Campaigns(store, clock)
    campaign = await campaigns.create(name, CampaignSpec(phases=tuple(phases), **spec), items)
    return await campaigns.start(campaign.id)


async def fill(store: Store, clock: Clock, campaign: Campaign) -> int:
    """Start what can start; returns how many items that were."""
    return (await store.write(starting_items(campaign.id, now=clock.now()))).started


async def take(parts: Parts, limit: int = 1000) -> dict[str, ClaimedRun]:
    """Claim what is ready, by the id of the item."""
    claimed = await parts.claims.take(limit)
    return {_item_id(one): one for one in claimed}


def _item_id(claimed: ClaimedRun) -> str:
    arguments: Any = decode_payload(claimed.task.arguments)
    return str(arguments["item"]["id"])
