"""A gateway dies at any write about an alert: the next one goes on, and each thing is done once."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TypeVar

import pytest

from holdfast.config.alerts import AlertSettings
from holdfast.core.transitions import CampaignStatus
from holdfast.store import Store, Write
from holdfast.testing import Crashed, FailingStore, Failpoint, FakeClock, WrappingStore, memory_store
from tests.alerts.watched_campaign import WatchedCampaign

pytestmark = pytest.mark.slow

RULES: dict[str, AlertSettings | str] = {
    "stop": AlertSettings(
        condition="failed_count > 0",
        action="notify_human + force_checkpoint + pause_campaign",
        raise_after="30s",
    ),
    "broken": AlertSettings(condition="done_count / paused_count > 1"),
    "few": AlertSettings(condition="running_count < 10", clear_after=0),
}
T = TypeVar("T")


class TwiceStore(WrappingStore):
    """Runs every write a second time after its own commit; its caller gets the first answer."""

    async def write(self, write: Write[T]) -> T:
        answer = await self.inner.write(write)
        with contextlib.suppress(Exception):
            await self.inner.write(write)
        return answer


async def evening(watched: WatchedCampaign, store: Store) -> None:
    """Alerts are raised, acted on and cleared; one gateway after another may do this."""
    watch = watched.watch(RULES, store=store)
    await watched.ticks(watch, minutes=1.5, every_s=20)


def facts(watched: WatchedCampaign) -> dict[str, object]:
    alerts = watched.alerts()
    return {
        "alerts": sorted((one.rule, one.kind.value, one.status.value) for one in alerts),
        "actions": sorted(
            (one.rule, name, action.status.value)
            for one in alerts
            for name, action in watched.actions(one).items()
        ),
        "notices": sorted(text.splitlines()[0] for text in watched.texts()),
        "counts": {name: number for name, number in watched.counts().items() if number},
        "paused": watched.store.read_now(lambda tx: tx.campaigns.get(watched.campaign.id).status),
    }


EXPECTED = {
    "alerts": [
        ("broken", "failure", "raised"),
        ("few", "condition", "raised"),
        ("stop", "condition", "raised"),
    ],
    "actions": [
        ("broken", "notify_human", "done"),
        ("few", "notify_human", "done"),
        ("stop", "force_checkpoint", "done"),
        ("stop", "notify_human", "done"),
        ("stop", "pause_campaign", "done"),
    ],
    "notices": ["[warning] broken of rd-os", "[warning] few of rd-os", "[warning] stop of rd-os"],
    "counts": {"raised": 3},
    "paused": CampaignStatus.PAUSED,
}


async def scene(store: Store, clock: FakeClock) -> WatchedCampaign:
    watched = WatchedCampaign(store, clock)
    await watched.begin()
    await watched.fail(1)
    return watched


def failpoints() -> list[Failpoint]:
    """Every place at which the gateway can die in that evening."""

    async def record() -> list[Failpoint]:
        clock = FakeClock()
        with contextlib.closing(memory_store(clock)) as store:
            watched = await scene(store, clock)
            recording = FailingStore(store)
            await evening(watched, recording)
            assert facts(watched) == EXPECTED
            return list(recording.failpoints())

    return asyncio.run(record())


@pytest.mark.parametrize("point", failpoints(), ids=str)
async def test_a_gateway_that_dies_at_any_write_leaves_each_alert_and_action_done_once(
    point: Failpoint,
) -> None:
    clock = FakeClock()
    with contextlib.closing(memory_store(clock)) as store:
        watched = await scene(store, clock)
        with contextlib.suppress(Crashed):
            await evening(watched, FailingStore(store, [point]))
        await evening(watched, store)

        assert facts(watched) == EXPECTED


async def test_every_write_may_run_twice(watched: WatchedCampaign) -> None:
    await watched.begin()
    await watched.fail(1)
    await evening(watched, TwiceStore(watched.store))

    assert facts(watched) == EXPECTED


async def test_two_gateways_at_every_pass_do_what_one_does(watched: WatchedCampaign) -> None:
    await watched.begin()
    await watched.fail(1)
    watches = [watched.watch(RULES, place=place) for place in ("one", "two", "three")]
    for _ in range(5):
        watched.clock.advance(seconds=20)
        await asyncio.gather(*(one.run_once() for one in watches))

    assert facts(watched) == EXPECTED
