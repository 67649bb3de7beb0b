"""cron.calendar: what fired and what will fire, at a bounded cost, also when clocks change."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from holdfast.api.contract import ADMIN, READ, WRITE, Caller
from holdfast.api.methods import METHODS
from holdfast.config.sections import AgentSettings, Config
from holdfast.core.claim import Boot
from holdfast.core.errors import BadInput
from holdfast.core.ids import BootId
from holdfast.core.schedule import Firing
from holdfast.core.transitions import FiringStatus
from holdfast.store import Store, Tx
from holdfast.testing import FakeClock
from tests.builders import START, a_firing

OPERATOR = Caller(who="operator", scopes=frozenset({READ, WRITE, ADMIN}))
PLUGIN = Caller(who="plugin", scopes=frozenset({READ, WRITE}), owner="agent:ada:main")


class House:
    """The methods over one ledger whose gateway knows the agent ada and the task report."""

    def __init__(self, store: Store, clock: FakeClock) -> None:
        self.clock = clock
        config = Config(agents={"ada": AgentSettings(callable="x:y")})
        self.gateway = SimpleNamespace(store=store, clock=clock, config=config, tasks={})
        self.store = store
        names = ("agent.ada", "report")
        boot = Boot(
            id=BootId("boot_1"), host="here", pid=1, role="gateway", started_at=START, task_names=names
        )
        store.write_now(lambda tx: tx.boots.begin(boot))

    def ask(self, method: str, caller: Caller = OPERATOR, /, **params: Any) -> Any:
        one = METHODS[method]
        asked = msgspec.convert(params, one.params)
        return msgspec.to_builtins(asyncio.run(one.call(self.gateway, asked, caller)))  # type: ignore[arg-type]

    def add(self, name: str, **schedule: Any) -> None:
        payload = {"kind": "task", "task": "report"}
        self.ask("cron.add", name=name, schedule=schedule, payload=payload)

    def calendar(self, begins_at: datetime, ends_at: datetime, **more: Any) -> Any:
        span = {"from": begins_at.isoformat(), "to": ends_at.isoformat()}
        return self.ask("cron.calendar", **span, **more)


@pytest.fixture
def house(store: Store, clock: FakeClock) -> House:
    return House(store, clock)


def _create(firing: Firing, tx: Tx) -> None:
    tx.firings.create(firing)


def moments(found: Any, status: str) -> list[str]:
    return [one["at"] for one in found["entries"] if one["status"] == status]


def test_the_calendar_has_what_was_and_what_will_be(house: House) -> None:
    house.add("nightly", kind="cron", expr="0 3 * * *", tz="UTC")
    day = timedelta(days=1)
    statuses = [FiringStatus.DONE, FiringStatus.MISSED, FiringStatus.REQUEUED]
    for number, status in enumerate(statuses):
        firing = a_firing(
            schedule="nightly", occurrence_at=START - day * (3 - number), status=status, is_retry=number == 2
        )
        house.store.write_now(partial(_create, firing))

    found = house.calendar(START - day * 7, START + day * 2)

    assert [one["status"] for one in found["entries"]] == ["done", "missed", "requeued", "coming", "coming"]
    assert [one["schedule"] for one in found["schedules"]] == ["nightly"]
    assert found["entries"][2]["isRetry"]
    assert moments(found, "coming") == ["2026-01-01T03:00:00Z", "2026-01-02T03:00:00Z"]


def test_each_day_has_its_firing_on_both_sides_of_a_change_of_the_clocks(house: House) -> None:
    house.add("morning", kind="cron", expr="30 9 * * *", tz="Europe/Berlin")
    spring = house.calendar(datetime(2026, 3, 28, tzinfo=UTC), datetime(2026, 3, 31, tzinfo=UTC))

    autumn = house.calendar(datetime(2026, 10, 24, tzinfo=UTC), datetime(2026, 10, 27, tzinfo=UTC))

    assert moments(spring, "coming") == [
        "2026-03-28T08:30:00Z",
        "2026-03-29T07:30:00Z",
        "2026-03-30T07:30:00Z",
    ]
    assert moments(autumn, "coming") == [
        "2026-10-24T07:30:00Z",
        "2026-10-25T08:30:00Z",
        "2026-10-26T08:30:00Z",
    ]


def test_a_schedule_that_fires_all_the_time_leaves_room_for_the_others(house: House) -> None:
    house.add("busy", kind="every", everyMs=1000)
    house.add("daily", kind="cron", expr="0 12 * * *", tz="UTC")

    found = house.calendar(START, START + timedelta(days=7), limit=20)

    assert len(found["entries"]) == 17
    cut = {one["schedule"]: one["isCut"] for one in found["schedules"]}
    assert cut == {"busy": True, "daily": False}


def test_a_paused_schedule_has_nothing_to_come(house: House) -> None:
    house.add("daily", kind="cron", expr="0 12 * * *", tz="UTC")
    house.ask("cron.update", id="daily", patch={"enabled": False})

    found = house.calendar(START, START + timedelta(days=7))

    assert found["entries"] == []
    assert [one["isOn"] for one in found["schedules"]] == [False]


def test_schedules_come_in_pages(house: House) -> None:
    for name in ("a", "b", "c"):
        house.add(name, kind="every", everyMs=86_400_000)

    first = house.calendar(START, START + timedelta(days=1), schedules=2)
    second = house.calendar(START, START + timedelta(days=1), schedules=2, pageToken=first["nextPageToken"])

    assert [one["schedule"] for one in first["schedules"] + second["schedules"]] == ["a", "b", "c"]
    assert second["nextPageToken"] is None


def test_a_limited_token_sees_no_schedule_of_others(house: House) -> None:
    house.add("daily", kind="cron", expr="0 12 * * *", tz="UTC")
    span = {"from": START.isoformat(), "to": (START + timedelta(days=2)).isoformat()}

    found = house.ask("cron.calendar", PLUGIN, **span)

    assert found["schedules"] == found["entries"] == []


@pytest.mark.parametrize("days", [0, -1, 94])
def test_a_span_must_be_neither_empty_nor_longer_than_a_quarter(house: House, days: int) -> None:
    with pytest.raises(BadInput, match="at most 93 days"):
        house.calendar(START, START + timedelta(days=days))
