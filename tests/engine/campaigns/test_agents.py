"""Agents of campaigns: who they are, what they do, when they were last heard of, and what a look costs."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from holdfast.core.agent import AgentStatus, CampaignAgent
from holdfast.core.campaign import Phase
from holdfast.core.errors import BadInput, Conflict, NotFound, NotYours
from holdfast.core.transitions import ItemStatus
from holdfast.engine.campaigns.agents import AgentPage, find_agent, oldest_heartbeat, page_of_agents
from holdfast.store import Store
from holdfast.testing import FakeClock
from tests.engine.flows import BROKEN
from tests.engine.parts import Parts
from tests.engine.small_campaigns import ANALYSIS, MIGRATION, begin, fill, some_items, take


def ids(agents: tuple[CampaignAgent, ...] | list[CampaignAgent]) -> list[str]:
    return [one.id for one in agents]


async def page(store: Store, **asked: object) -> AgentPage:
    return await store.read(lambda tx: page_of_agents(tx, **asked))  # type: ignore[arg-type]


async def everyone(store: Store, *, limit: int, **asked: object) -> list[CampaignAgent]:
    found: list[CampaignAgent] = []
    after = None
    while True:
        one = await page(store, after=after, limit=limit, **asked)
        found += one.agents
        if one.following is None:
            return found
        assert one.agents, "an empty page is the last one"
        after = one.following


async def test_an_agent_is_one_item_in_one_phase(store: Store, clock: FakeClock) -> None:
    await begin(store, clock, some_items(2))

    found = await everyone(store, limit=100)

    assert ids(found) == ["repo-001-analyzer", "repo-002-analyzer", "repo-001-migrator", "repo-002-migrator"]
    assert {(one.status, one.last_heartbeat) for one in found} == {(AgentStatus.IDLE, None)}
    assert (found[0].type, found[0].item_id, found[0].phase) == ("analyzer", "repo-001", "analysis")


async def test_the_status_of_an_agent_is_that_of_its_item(
    parts: Parts, store: Store, clock: FakeClock
) -> None:
    campaign = await begin(store, clock, some_items(4), concurrency=3)
    await fill(store, clock, campaign)
    held = await take(parts)
    await parts.ledger.finish(held["repo-001"].claim, {"lines": 12})
    await parts.ledger.fail(held["repo-002"].claim, BROKEN)

    found = {one.id: one for one in await everyone(store, limit=100, type="analyzer")}

    assert {agent_id: one.status.value for agent_id, one in found.items()} == {
        "repo-001-analyzer": "idle",
        "repo-002-analyzer": "error",
        "repo-003-analyzer": "active",
        "repo-004-analyzer": "idle",
    }
    assert found["repo-001-analyzer"].item_status is ItemStatus.DONE
    assert found["repo-002-analyzer"].error == "test: it broke"


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 100])
async def test_pages_of_every_size_have_each_agent_once(store: Store, clock: FakeClock, limit: int) -> None:
    await begin(store, clock, some_items(3), name="older")
    clock.advance(seconds=1)
    await begin(store, clock, some_items(2), name="newer")

    found = await everyone(store, limit=limit)

    assert [(one.campaign, one.id) for one in found] == [
        ("newer", "repo-001-analyzer"),
        ("newer", "repo-002-analyzer"),
        ("newer", "repo-001-migrator"),
        ("newer", "repo-002-migrator"),
        ("older", "repo-001-analyzer"),
        ("older", "repo-002-analyzer"),
        ("older", "repo-003-analyzer"),
        ("older", "repo-001-migrator"),
        ("older", "repo-002-migrator"),
        ("older", "repo-003-migrator"),
    ]


@pytest.mark.parametrize("limit", [1, 2, 100])
async def test_agents_are_listed_by_status(parts: Parts, store: Store, clock: FakeClock, limit: int) -> None:
    campaign = await begin(store, clock, some_items(4), concurrency=2)
    await fill(store, clock, campaign)
    held = await take(parts)
    await parts.ledger.finish(held["repo-001"].claim, None)

    idle = await everyone(store, limit=limit, status=AgentStatus.IDLE, type="analyzer")
    active = await everyone(store, limit=limit, status=AgentStatus.ACTIVE)

    assert ids(idle) == ["repo-001-analyzer", "repo-003-analyzer", "repo-004-analyzer"]
    assert ids(active) == ["repo-002-analyzer"]


async def test_an_agent_is_found_by_its_id_in_the_newest_campaign(store: Store, clock: FakeClock) -> None:
    older = await begin(store, clock, some_items(2), name="older")
    clock.advance(seconds=1)
    await begin(store, clock, some_items(1), name="newer")

    def find(name: str, **asked: object) -> CampaignAgent:
        return store.read_now(lambda tx: find_agent(tx, name, **asked))  # type: ignore[arg-type]

    assert find("repo-001-analyzer").campaign == "newer"
    assert find("repo-001-analyzer", campaign=older).campaign == "older"
    assert find("repo-002-migrator").campaign == "older"
    with pytest.raises(NotFound):
        find("repo-009-analyzer")
    with pytest.raises(NotFound):
        find("analyzer")
    with pytest.raises(BadInput):
        find("")


async def test_an_agent_of_another_owner_is_neither_found_nor_listed(store: Store, clock: FakeClock) -> None:
    campaign = await begin(store, clock, some_items(1))

    assert await everyone(store, limit=10, owner="eve") == []
    with pytest.raises(NotFound):
        store.read_now(lambda tx: find_agent(tx, "repo-001-analyzer", owner="eve"))
    with pytest.raises(NotYours):
        store.read_now(lambda tx: page_of_agents(tx, campaign=campaign, owner="eve"))


async def test_an_id_that_two_agents_share_names_both_items(store: Store, clock: FakeClock) -> None:
    from holdfast.core.campaign import Item

    phases = [Phase(name="one", task="analyse", role="c"), Phase(name="two", task="migrate", role="b-c")]
    await begin(store, clock, [Item(id="a-b"), Item(id="a")], phases=phases)

    with pytest.raises(Conflict, match=r"item a-b in phase one or item a in phase two"):
        store.read_now(lambda tx: find_agent(tx, "a-b-c"))


async def test_a_heartbeat_is_a_renewed_claim(parts: Parts, store: Store, clock: FakeClock) -> None:
    campaign = await begin(store, clock, some_items(2))
    await fill(store, clock, campaign)
    held = await take(parts)
    begun = clock.now()
    clock.advance(seconds=10)
    await parts.claims.renew([held["repo-002"].claim])

    first, second = await everyone(store, limit=10, type="analyzer")
    oldest = store.read_now(lambda tx: oldest_heartbeat(tx, campaign))

    assert (first.last_heartbeat, second.last_heartbeat) == (begun, clock.now())
    assert oldest is not None
    assert (oldest.agent.id, oldest.at) == ("repo-001-analyzer", begun)


async def test_an_agent_that_waits_for_a_worker_is_not_expected_to_be_heard_of(
    store: Store, clock: FakeClock
) -> None:
    campaign = await begin(store, clock, some_items(2))
    await fill(store, clock, campaign)
    clock.advance(hours=1)

    assert store.read_now(lambda tx: oldest_heartbeat(tx, campaign)) is None


@dataclass
class Reads:
    """How many rows the statements of a read returned, and how many statements there were."""

    statements: int = 0
    rows: int = 0


async def test_what_a_look_costs_does_not_grow_with_the_items(
    parts: Parts, store: Store, clock: FakeClock
) -> None:
    async def cost(name: str, count: int) -> list[Reads]:
        campaign = await begin(store, clock, some_items(count), name=name, concurrency=3)
        await fill(store, clock, campaign)
        await take(parts)
        last = f"repo-{count:03d}-analyzer"
        looks = [
            lambda tx: page_of_agents(tx, campaign=campaign, limit=2),
            lambda tx: page_of_agents(tx, campaign=campaign, status=AgentStatus.ACTIVE, limit=2),
            lambda tx: find_agent(tx, last, campaign=campaign),
            lambda tx: oldest_heartbeat(tx, campaign),
        ]
        found = []
        for look in looks:
            reads = Reads()

            def counted(tx: object, look: object = look, reads: Reads = reads) -> None:
                statements = tx.statements  # type: ignore[attr-defined]
                every, one = statements.all, statements.one
                try:
                    statements.all = lambda *args: _noted(reads, every(*args))
                    statements.one = lambda *args: _noted(reads, one(*args))
                    look(tx)  # type: ignore[operator]
                finally:
                    statements.all, statements.one = every, one

            await store.write(counted)
            found.append(reads)
        return found

    few = await cost("few", 10)
    many = await cost("many", 400)

    assert many == few


def _noted(reads: Reads, answer: object) -> object:
    reads.statements += 1
    reads.rows += len(answer) if isinstance(answer, list) else 1
    return answer


def test_roles_are_those_of_the_seed() -> None:
    from holdfast.core.campaign import agent_id

    assert agent_id("repo-001", ANALYSIS) == "repo-001-analyzer"
    assert agent_id("repo-001", MIGRATION) == "repo-001-migrator"
