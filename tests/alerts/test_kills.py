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
from tests.alerts.field import Field

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


async def evening(field: Field, store: Store) -> None:
    """Alerts are raised, acted on and cleared; one gateway after another may do this."""
    watch = field.watch(RULES, store=store)
    await field.ticks(watch, minutes=1.5, every_s=20)


def facts(field: Field) -> dict[str, object]:
    alerts = field.alerts()
    return {
        "alerts": sorted((one.rule, one.kind.value, one.status.value) for one in alerts),
        "actions": sorted(
            (one.rule, name, action.status.value)
            for one in alerts
            for name, action in field.actions(one).items()
        ),
        "notices": sorted(text.splitlines()[0] for text in field.texts()),
        "counts": {name: number for name, number in field.counts().items() if number},
        "paused": field.store.read_now(lambda tx: tx.campaigns.get(field.campaign.id).status),
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


async def scene(store: Store, clock: FakeClock) -> Field:
    field = Field(store, clock)
    await field.begin()
    await field.fail(1)
    return field


def failpoints() -> list[Failpoint]:
    """Every place at which the gateway can die in that evening."""

    async def record() -> list[Failpoint]:
        clock = FakeClock()
        with contextlib.closing(memory_store(clock)) as store:
            field = await scene(store, clock)
            recording = FailingStore(store)
            await evening(field, recording)
            assert facts(field) == EXPECTED
            return list(recording.failpoints())

    return asyncio.run(record())


@pytest.mark.parametrize("point", failpoints(), ids=str)
async def test_a_gateway_that_dies_at_any_write_leaves_each_alert_and_action_done_once(
    point: Failpoint,
) -> None:
    clock = FakeClock()
    with contextlib.closing(memory_store(clock)) as store:
        field = await scene(store, clock)
        with contextlib.suppress(Crashed):
            await evening(field, FailingStore(store, [point]))
        await evening(field, store)

        assert facts(field) == EXPECTED


async def test_every_write_may_run_twice(field: Field) -> None:
    await field.begin()
    await field.fail(1)
    await evening(field, TwiceStore(field.store))

    assert facts(field) == EXPECTED


async def test_two_gateways_at_every_pass_do_what_one_does(field: Field) -> None:
    await field.begin()
    await field.fail(1)
    watches = [field.watch(RULES, place=place) for place in ("one", "two", "three")]
    for _ in range(5):
        field.clock.advance(seconds=20)
        await asyncio.gather(*(one.run_once() for one in watches))

    assert facts(field) == EXPECTED
