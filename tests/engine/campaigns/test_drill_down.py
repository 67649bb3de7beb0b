"""Details of a campaign on demand: groups by pages, items by filters, samples, and which one is meant."""

from __future__ import annotations

import os
import random
from collections import Counter

import pytest

from holdfast.core.campaign import Campaign, Item
from holdfast.core.errors import AmbiguousId, BadInput, NoCampaign, NotFound
from holdfast.core.progress import CountKind
from holdfast.core.transitions import ItemStatus
from holdfast.engine.campaigns.drill_down import groups_of, kind_named, sample_of
from holdfast.engine.campaigns.finding import found_campaign, newest_campaign
from holdfast.engine.client.campaigns import Campaigns
from holdfast.store import Store
from holdfast.store.campaign_pages import ItemFilter
from holdfast.testing import FakeClock
from tests.engine.campaigns.campaign_world import a_spec, items
from tests.engine.priority_campaign import DONE, TOTALS, seed_campaign

pytestmark = pytest.mark.slow

Groups = list[tuple[str, int]]


async def all_groups(store: Store, campaign: Campaign, by: str, *, limit: int) -> tuple[Groups, int]:
    """Every group with how many are done, and how many pages they took."""
    found: Groups = []
    token, pages = None, 0
    while True:
        asked = token
        page, token = await store.read(
            lambda tx: groups_of(tx, campaign, 0, kind_named(by), token=asked, limit=limit)  # noqa: B023 - read at once
        )
        found += [(name, counts.done) for name, counts in page]
        pages += 1
        if token is None:
            return found, pages


async def test_groups_are_paged_without_a_gap(store: Store, clock: FakeClock) -> None:
    campaign = await seed_campaign(store, clock)

    priorities, _ = await all_groups(store, campaign, "priority", limit=3)
    batches, pages = await all_groups(store, campaign, "batch", limit=7)

    assert priorities == list(DONE.items())
    assert [name for name, _ in batches] == [f"batch-{number:03d}" for number in range(1, 41)]
    assert sum(done for _, done in batches) == 150
    assert pages == 6


async def test_categories_of_any_name_are_paged_once_each(store: Store, clock: FakeClock) -> None:
    names = ["", "a", "a b", "a/b", "ab", "b~", "ä", "≈", "🦉", "z/t/x", "P0", "_%"]
    named = [Item(id=f"item-{number}", category=name or None) for number, name in enumerate(names)]
    campaign = await Campaigns(store, clock).create("rd-os", a_spec(), named)

    found, pages = await all_groups(store, campaign, "category", limit=1)

    assert sorted(name for name, _ in found) == sorted(names)
    assert pages == len(names)


async def test_a_token_of_another_list_is_refused(store: Store, clock: FakeClock) -> None:
    campaign = await Campaigns(store, clock).create("rd-os", a_spec(), items(1))

    for by, token in (("batch", "=x"), ("batch", "-1"), ("batch", "9" * 30), ("category", "7")):
        with pytest.raises(BadInput, match="page token"):
            await store.read(
                lambda tx: groups_of(tx, campaign, 0, kind_named(by), token=token, limit=5)  # noqa: B023 - read at once
            )
    with pytest.raises(BadInput, match="use batch, priority, category"):
        kind_named("colour")


FILTERED = [
    (ItemFilter(), 400),
    (ItemFilter(status=ItemStatus.RUNNING), 50),
    (ItemFilter(status=ItemStatus.FAILED), 0),
    (ItemFilter(priority="P2"), TOTALS["P2"]),
    (ItemFilter(priority="P2", status=ItemStatus.DONE), DONE["P2"]),
    (ItemFilter(batch=9), 10),
    (ItemFilter(batch=9, status=ItemStatus.RUNNING), 2),
    (ItemFilter(batch=9, priority="P0"), 0),
    (ItemFilter(category="product"), 400),
    (ItemFilter(category=""), 0),
    (ItemFilter(category="tool", status=ItemStatus.PENDING), 0),
    (ItemFilter(category="product", status=ItemStatus.PENDING, priority="P3"), 100),
]


async def test_items_are_found_by_filters_a_page_at_a_time(store: Store, clock: FakeClock) -> None:
    campaign = await seed_campaign(store, clock)
    for wanted, expected in FILTERED:
        found: list[str] = []
        after = -1
        while page := await store.read(
            lambda tx: tx.campaign_pages.items(campaign.id, 0, wanted, after=after, limit=64)  # noqa: B023 - read at once
        ):
            found += [str(one.id) for one in page]
            after = page[-1].at.place

        assert len(found) == len(set(found)) == expected, wanted
        assert found == sorted(found), wanted


async def test_a_sample_has_only_items_in_the_status_and_is_repeatable(
    store: Store, clock: FakeClock
) -> None:
    campaign = await seed_campaign(store, clock)

    async def draw(status: ItemStatus | None, size: int, seed: int) -> tuple[list[str], int]:
        found, total = await store.read(lambda tx: sample_of(tx, campaign, 0, status, size=size, seed=seed))
        assert status is None or {one.at.status for one in found} <= {status}
        return [str(one.id) for one in found], total

    for status, number in ((ItemStatus.RUNNING, 50), (ItemStatus.PENDING, 200), (ItemStatus.DONE, 150)):
        some, total = await draw(status, 5, 7)
        assert total == number
        assert len(set(some)) == 5
        assert some == (await draw(status, 5, 7))[0]
        assert some != (await draw(status, 5, 8))[0]
    assert await draw(ItemStatus.FAILED, 5, 7) == ([], 0)
    everything, total = await draw(ItemStatus.RUNNING, 100, 1)
    assert (len(set(everything)), total) == (50, 50)
    assert len(set((await draw(None, 100, 1))[0])) == 100


async def test_each_item_is_as_likely_to_be_drawn_as_any_other(store: Store, clock: FakeClock) -> None:
    """Running items lie in two clumps far apart: a draw by random places would prefer their beginnings."""
    campaign = await seed_campaign(store, clock)
    seed = int(os.environ.get("HOLDFAST_SEED") or random.SystemRandom().randrange(10**6))
    print(f"HOLDFAST_SEED={seed}")
    drawn: Counter[str] = Counter()
    for number in range(300):
        found, _ = await store.read(
            lambda tx: sample_of(tx, campaign, 0, ItemStatus.RUNNING, size=10, seed=seed + number)  # noqa: B023 - read at once
        )
        drawn.update(str(one.id) for one in found)

    # 60 draws are expected of each of the 50; 20 and 110 are more than five deviations away.
    assert len(drawn) == 50
    assert min(drawn.values()) > 20
    assert max(drawn.values()) < 110


async def test_the_newest_running_campaign_is_meant_before_any_other(store: Store, clock: FakeClock) -> None:
    campaigns = Campaigns(store, clock)
    with pytest.raises(NoCampaign):
        await store.read(newest_campaign)
    names = []

    async def newest() -> str:
        return (await store.read(newest_campaign)).name

    for name in ("one", "two", "three"):
        clock.advance(seconds=1)
        await campaigns.create(name, a_spec(), items(1))
        names.append(await newest())
    await campaigns.start("two")
    names.append(await newest())
    await campaigns.start("one")
    names.append(await newest())
    await campaigns.pause("two")
    names.append(await newest())
    await campaigns.pause("one")
    names.append(await newest())

    assert names == ["one", "two", "three", "two", "two", "one", "two"]


async def test_a_campaign_of_another_owner_is_not_found(store: Store, clock: FakeClock) -> None:
    mine = await Campaigns(store, clock, owner="ada").create("mine", a_spec(), items(1))
    await Campaigns(store, clock, owner="bob").create("theirs", a_spec(), items(1))

    found = await store.read(lambda tx: found_campaign(tx, "mine", owner="ada"))
    whole = await store.read(lambda tx: found_campaign(tx, str(mine.id), owner="ada"))
    newest = await store.read(lambda tx: newest_campaign(tx, owner="ada"))

    assert found == whole == newest == mine
    for name in ("theirs", "camp_", str(mine.id)[:8], "no.such.one", "NOPE"):
        with pytest.raises(NotFound):
            await store.read(lambda tx: found_campaign(tx, name, owner="ada"))  # noqa: B023 - read at once
    with pytest.raises(AmbiguousId):
        await store.read(lambda tx: found_campaign(tx, "camp_"))
    with pytest.raises(NoCampaign):
        await store.read(lambda tx: newest_campaign(tx, owner="eve"))


def test_every_kind_of_group_has_a_name() -> None:
    assert {kind_named(by) for by in ("batch", "priority", "category")} == set(CountKind) - {CountKind.SPAN}
