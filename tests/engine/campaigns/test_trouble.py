"""What a campaign says of workers that are gone: of its running items, and of the tasks that they knew."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.core.campaign import Campaign
from holdfast.core.claim import DEFAULT_LEASE, Boot, Carried
from holdfast.core.ids import BootId
from holdfast.core.projection import NOT_RESCUED, is_gone
from holdfast.engine.campaigns.report import counts_of_phases, totals_of
from holdfast.engine.campaigns.trouble import campaign_issues
from holdfast.store import Tx
from holdfast.store.boot_proofs import BootProofs
from holdfast.testing import FakeClock
from tests.builders import START, a_boot
from tests.engine.campaigns.campaign_world import CampaignWorker, a_spec, begun, items
from tests.engine.parts import Parts


class KnowsDead(BootProofs):
    """Proves these boots dead, and all others alive."""

    def __init__(self, *dead: str) -> None:
        super().__init__(None, "")
        self._dead = dead

    def is_held(self, boot: Boot) -> bool | None:
        return boot.id not in self._dead


async def issues(parts: Parts, campaign: Campaign, proofs: BootProofs) -> list[str]:
    def look(tx: Tx) -> list[str]:
        counts = totals_of(counts_of_phases(tx, campaign))
        return campaign_issues(tx, campaign, counts, now=parts.clock.now(), proofs=proofs)

    return await parts.store.read(look)


async def working(parts: Parts) -> CampaignWorker:
    """One process of the ledger has claimed two items of three."""
    worker = CampaignWorker(parts, await begun(parts.store, parts.clock, a_spec(concurrency=2), items(3)))
    await worker.take()
    return worker


async def test_items_of_a_process_that_is_proved_dead_are_not_carried(parts: Parts, clock: FakeClock) -> None:
    worker = await working(parts)
    heard = clock.now()
    clock.advance(seconds=3)

    alive = await issues(parts, worker.campaign, KnowsDead())
    dead = await issues(parts, worker.campaign, KnowsDead(parts.life.id))

    assert alive == []
    assert dead == [
        f"no process carries its 2 running items since {heard:%Y-%m-%d %H:%M:%S} UTC: holdfast worker MODULE",
        "no worker knows the task analyse: holdfast worker MODULE (the module of analyse)",
        "no worker knows the task migrate: holdfast worker MODULE (the module of migrate)",
    ]


async def test_without_a_proof_items_are_carried_until_their_leases_lapsed_a_while_ago(
    parts: Parts, clock: FakeClock
) -> None:
    worker = await working(parts)
    no_proof = BootProofs(None, "")
    clock.advance(seconds=(DEFAULT_LEASE + NOT_RESCUED).total_seconds() - 1)
    before = await issues(parts, worker.campaign, no_proof)
    clock.advance(seconds=2)

    after = await issues(parts, worker.campaign, no_proof)
    still_alive = await issues(parts, worker.campaign, KnowsDead())

    assert before == []
    assert len(after) == 1
    assert after[0].startswith("no process carries its 2 running items since ")
    assert still_alive == []


async def test_only_the_items_of_the_process_that_is_gone_count(parts: Parts) -> None:
    worker = await working(parts)
    other = a_boot(id=BootId("boot_other"), task_names=("analyse", "migrate"))
    await parts.store.write(lambda tx: tx.boots.begin(other))
    await worker.finish("repo-001/analysis")
    await worker.start()

    found = await issues(parts, worker.campaign, KnowsDead(parts.life.id))

    assert len(found) == 1
    assert found[0].startswith("no process carries its running item since ")


@pytest.mark.parametrize(
    ("lapsed_since", "is_alive", "has_died", "gone"),
    [
        (None, False, False, False),
        (None, False, True, True),
        (timedelta(0), False, False, False),
        (NOT_RESCUED, False, False, True),
        (NOT_RESCUED, True, False, False),
    ],
)
def test_when_a_process_is_gone(
    lapsed_since: timedelta | None, is_alive: bool, has_died: bool, gone: bool
) -> None:
    until = None if lapsed_since is None else START - lapsed_since
    carried = Carried(runs=1, lease_until=until)

    assert is_gone(carried, is_alive=is_alive, has_died=has_died, now=START) is gone
