"""cron.*: schedules as OpenClaw's clients ask for them, and what a limited token may do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from holdfast.api.contract import ADMIN, READ, WRITE, Caller
from holdfast.api.methods import METHODS
from holdfast.config.sections import AgentSettings, Config, CronSettings
from holdfast.core.claim import Boot
from holdfast.core.errors import BadInput, HoldfastError, NotFound, Refused
from holdfast.core.ids import BootId
from holdfast.testing import FakeClock, memory_store
from tests.builders import START

OPERATOR = Caller(who="operator", scopes=frozenset({READ, WRITE, ADMIN}))
WRITER = Caller(who="writer", scopes=frozenset({READ, WRITE}))
SESSION = "agent:ada:main"
AGENT = Caller(who="agent", scopes=frozenset({READ, WRITE}), owner=SESSION)
# As the command `openclaw cron add --name "Morning brief" --cron … --message …` sends it.
ADDED = {
    "name": "Morning brief",
    "description": "for the team",
    "enabled": True,
    "schedule": {"kind": "cron", "expr": "0 7 * * *", "tz": "Europe/Berlin", "staggerMs": 60_000},
    "sessionTarget": "isolated",
    "wakeMode": "now",
    "payload": {"kind": "agentTurn", "message": "Brief me."},
    "delivery": {"mode": "announce", "channel": "last"},
}


class House:
    """The methods over a store in memory, on which a process hosts the agent ada and knows one task."""

    def __init__(self) -> None:
        self.store, self.clock = memory_store(), FakeClock(START)
        config = Config(
            agents={"ada": AgentSettings(callable="x:y")},
            cron=CronSettings(max_per_agent=1, min_agent_interval_s=600.0),
        )
        self.gateway = SimpleNamespace(store=self.store, clock=self.clock, config=config)
        boot = Boot(
            id=BootId("boot_1"),
            host="here",
            pid=1,
            role="gateway",
            started_at=START,
            task_names=("agent.ada", "cron.command", "report"),
        )
        self.store.write_now(lambda tx: tx.boots.begin(boot))

    def ask(self, method: str, caller: Caller = OPERATOR, /, **params: Any) -> Any:
        one = METHODS[method]
        asked = msgspec.convert(params, one.params)
        return msgspec.to_builtins(asyncio.run(one.call(self.gateway, asked, caller)))  # type: ignore[arg-type]


@pytest.fixture
def house() -> Iterator[House]:
    built = House()
    yield built
    built.store.close()


def test_a_schedule_of_an_openclaw_client_comes_back_in_its_format(house: House) -> None:
    made = house.ask("cron.add", **ADDED)

    assert (made["id"], made["name"], made["enabled"]) == ("morning-brief", "Morning brief", True)
    assert made["schedule"] == ADDED["schedule"]
    assert made["payload"] == ADDED["payload"]
    assert (made["agentId"], made["wakeMode"]) == ("ada", "now")
    assert made["sessionTarget"] == "session:agent:ada:cron-morning-brief"
    assert made["state"] == {"nextRunAtMs": made["nextRunAtMs"]}
    listed = house.ask("cron.list", includeDisabled=True, sortBy="nextRunAtMs", sortDir="asc", limit=200)
    assert [one["id"] for one in listed["jobs"]] == ["morning-brief"]
    assert (listed["total"], listed["hasMore"], listed["nextOffset"]) == (1, False, None)
    assert listed["snapshotRevision"]  # without it a client takes the page for invalid
    assert house.ask("cron.status")["jobs"] == 1
    assert house.ask("cron.get", jobId="morning-brief") == made


def test_a_client_updates_runs_reads_and_removes_a_schedule(house: House) -> None:
    made = house.ask("cron.add", **ADDED)

    off = house.ask("cron.update", id=made["id"], patch={"enabled": False})
    assert (off["enabled"], "nextRunAtMs" in off) == (False, False)
    changed = house.ask(
        "cron.update",
        jobId=made["id"],
        patch={"schedule": {"kind": "every", "everyMs": 900_000}, "enabled": True},
        expectedConfigRevision=off["configRevision"],
    )
    assert (changed["schedule"]["everyMs"], changed["enabled"]) == (900_000, True)
    with pytest.raises(HoldfastError, match="is at revision 3, and this update was made for revision 1"):
        house.ask("cron.update", id=made["id"], patch={"missed": "skip"}, expectedConfigRevision="1")

    assert house.ask("cron.run", id=made["id"], mode="due") == {"ok": True, "ran": False, "reason": "not-due"}
    ran = house.ask("cron.run", id=made["id"], mode="force", requestId="click")
    again = house.ask("cron.run", id=made["id"], mode="force", requestId="click")
    assert ran == again
    (entry,) = house.ask("cron.runs", id=made["id"], limit=50)["entries"]
    assert (entry["jobId"], entry["runId"], entry["action"]) == (made["id"], ran["runId"], "started")
    assert [one["runId"] for one in house.ask("cron.runs", scope="all")["entries"]] == [ran["runId"]]

    assert house.ask("cron.remove", id=made["id"])["removed"] is True
    with pytest.raises(NotFound):
        house.ask("cron.get", id=made["id"])
    audited = house.store.read_now(lambda tx: tx.audit.page(99))
    assert {one.action for one in audited} == {"cron.add", "cron.update", "cron.run", "cron.remove"}
    assert {one.subject for one in audited} >= {made["id"]}


def test_a_command_needs_the_scope_of_an_administrator(house: House) -> None:
    command = {
        "name": "sweep",
        "schedule": {"kind": "every", "everyMs": 3_600_000},
        "payload": {"kind": "command", "argv": ["du", "-sh"]},
    }

    with pytest.raises(Refused, match="needs the scope operator"):
        house.ask("cron.add", WRITER, **command)

    assert house.ask("cron.add", **command)["payload"] == {"kind": "command", "argv": ["du", "-sh"]}


def test_a_token_of_an_owner_schedules_for_its_own_session_within_limits(house: House) -> None:
    house.ask("cron.add", **ADDED)
    reminder = {
        "name": "reminder",
        "schedule": {"kind": "every", "everyMs": 3_600_000},
        "payload": {"kind": "agentTurn", "message": "Tea?"},
    }

    with pytest.raises(BadInput, match="an agent may schedule at most every 10m"):
        house.ask("cron.add", AGENT, **reminder | {"schedule": {"kind": "every", "everyMs": 60_000}})
    with pytest.raises(Refused, match="for its own session only"):
        house.ask("cron.add", AGENT, **reminder, sessionKey="agent:ada:other")
    made = house.ask("cron.add", AGENT, **reminder)
    assert (made["sessionKey"], made["ownedBy"]) == (SESSION, SESSION)
    with pytest.raises(Refused, match="which is the limit"):
        house.ask("cron.add", AGENT, **reminder | {"name": "another"})

    assert [one["id"] for one in house.ask("cron.list", AGENT)["jobs"]] == ["reminder"]
    for method in ("cron.get", "cron.remove", "cron.run", "cron.runs"):
        with pytest.raises(NotFound):
            house.ask(method, AGENT, id="morning-brief")
    with pytest.raises(NotFound):
        house.ask("cron.update", AGENT, id="morning-brief", patch={"enabled": False})
    with pytest.raises(BadInput):
        house.ask("cron.runs", AGENT, scope="all")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"schedule": {"kind": "cron", "expr": "61 * * * *"}}, "such as 0 9"),
        ({"schedule": {"kind": "cron", "expr": "0 9 * * *", "tz": "Mars/Olympus"}}, "such as Europe/Berlin"),
        ({"schedule": {"kind": "every", "everyMs": 1}}, "whole seconds are needed"),
        ({"schedule": {"kind": "every", "everyMs": -60_000}}, "too short or too long"),
        ({"schedule": {"kind": "at", "at": "2020-01-01T00:00:00Z"}}, "has passed"),
        ({"agentId": "nobody"}, "there is no agent 'nobody'; there are ada"),
        ({"payload": {"kind": "task", "task": "nope"}}, "knows the task 'nope' \\(known: report\\)"),
        ({"payload": {"kind": "task", "task": "report", "arguments": {"k": {"$secret": "A"}}}}, "secret"),
        ({"payload": {"kind": "agentTurn", "message": "x", "model": "gpt"}}, "payload.model"),
        ({"delivery": {"mode": "webhook", "to": "https://x"}}, "delivery.mode"),
        ({"name": "🐙"}, "1 to 64 letters"),
        ({"schedule": {"kind": "cron", "expr": "0 9 * * *"}, "jitterMs": 90_000_000}, "at most a day"),
    ],
    ids=str,
)
def test_what_can_never_work_is_refused_with_the_reason(
    house: House, change: dict[str, Any], told: str
) -> None:
    with pytest.raises(HoldfastError, match=told):
        house.ask("cron.add", **ADDED | change)

    assert house.ask("cron.list", includeDisabled=True)["jobs"] == []


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("cron.list", {"sessionAgentId": "ada"}),
        ("cron.runs", {"deliveryStatus": "delivered"}),
        ("cron.runs", {"deliveryStatuses": ["delivered"]}),
        ("cron.run", {"id": "tide", "expectedProcessInstanceId": "other"}),
    ],
)
def test_what_would_make_an_answer_wrong_if_it_were_ignored_is_refused(
    house: House, method: str, params: dict[str, Any]
) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"leave it out|use agentId"):
        house.ask(method, **params)


def test_pages_by_name_follow_each_other(house: House) -> None:
    for number in range(5):
        house.ask("cron.add", **ADDED | {"name": f"n{number}"})

    first = house.ask("cron.list", limit=2, pageToken="")
    second = house.ask("cron.list", limit=2, pageToken=first["nextPageToken"])
    by_offset = house.ask("cron.list", limit=2, offset=2)

    assert [one["id"] for one in (*first["jobs"], *second["jobs"])] == ["n0", "n1", "n2", "n3"]
    assert [one["id"] for one in by_offset["jobs"]] == ["n2", "n3"]
    assert (by_offset["total"], by_offset["nextOffset"]) == (5, 4)
    with pytest.raises(HoldfastError, match="page token"):
        house.ask("cron.list", pageToken="../x")
    for number in range(3):
        house.clock.advance(seconds=1)
        house.ask("cron.run", id="n0", requestId=str(number))
    latest = house.ask("cron.runs", id="n0", limit=2)
    rest = house.ask("cron.runs", id="n0", limit=2, pageToken=latest["nextPageToken"])
    assert (len(latest["entries"]), len(rest["entries"]), rest["nextPageToken"]) == (2, 1, None)
