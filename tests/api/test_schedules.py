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
from holdfast.schedule.cron import Cron
from holdfast.testing import FakeClock, RepeatingStore, memory_store
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


REPORT = {"kind": "task", "task": "report"}


class House:
    """The methods over a store in memory, on which a process hosts the agent ada and knows one task."""

    def __init__(self) -> None:
        self.store, self.clock = memory_store(), FakeClock(START)
        config = Config(
            agents={"ada": AgentSettings(callable="x:y")},
            cron=CronSettings(max_per_agent=1, min_agent_interval_s=600.0),
        )
        self.gateway = SimpleNamespace(store=self.store, clock=self.clock, config=config, tasks={})
        boot = Boot(
            id=BootId("boot_1"),
            host="here",
            pid=1,
            role="gateway",
            started_at=START,
            task_names=("agent.ada", "cron.command", "report"),
        )
        self.store.write_now(lambda tx: tx.boots.begin(boot))

    def restart(self, *task_names: str) -> None:
        """Another gateway takes the place of the first one, and knows other tasks."""
        boot = Boot(
            id=BootId("boot_3"), host="here", pid=3, role="gateway", started_at=START, task_names=task_names
        )
        self.store.write_now(lambda tx: (tx.boots.end("boot_1", now=START), tx.boots.begin(boot)))

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
    with pytest.raises(HoldfastError, match="is at revision 3, and this change was made for revision 1"):
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


def test_a_schedule_is_removed_once_whatever_becomes_of_the_answer(house: House) -> None:
    made = house.ask("cron.add", **ADDED)
    house.gateway.store = RepeatingStore(house.store)

    assert house.ask("cron.remove", id=made["id"]) == {"ok": True, "removed": True, "id": made["id"]}

    with pytest.raises(NotFound):
        house.ask("cron.remove", id=made["id"])


def test_an_edit_keeps_the_arguments_that_it_does_not_name(house: House) -> None:
    payload = {"kind": "task", "task": "report", "arguments": {"a": 1, "b": 2, "c": None}}
    every = {"kind": "every", "everyMs": 3_600_000}
    house.ask("cron.add", name="r", schedule=every, payload=payload)

    def edit(**payload: Any) -> Any:
        made = house.ask("cron.update", id="r", patch={"payload": {"kind": "task", **payload}})
        return made["payload"]["arguments"]

    assert edit(arguments={"b": 3}) == {"a": 1, "b": 3, "c": None}
    assert edit(task="report", arguments={"d": 4}) == {"a": 1, "b": 3, "c": None, "d": 4}
    assert edit(dropArguments=["a", "c"], arguments={"b": 5}) == {"b": 5, "d": 4}
    with pytest.raises(BadInput, match="there is no argument 'a' to drop; it has b, d"):
        edit(dropArguments=["a"])
    with pytest.raises(BadInput, match=r"there is no argument 'a' to drop; it has b$"):
        house.ask(
            "cron.add",
            name="s",
            schedule=every,
            payload={"kind": "task", "task": "report", "arguments": {"b": 1}, "dropArguments": ["a"]},
        )


def test_an_edit_to_another_task_begins_with_no_arguments(house: House) -> None:
    boot = Boot(
        id=BootId("boot_2"), host="here", pid=2, role="gateway", started_at=START, task_names=("other",)
    )
    house.store.write_now(lambda tx: tx.boots.begin(boot))
    payload = {"kind": "task", "task": "report", "arguments": {"a": 1}}
    house.ask("cron.add", name="r", schedule={"kind": "every", "everyMs": 3_600_000}, payload=payload)

    patch = {"payload": {"kind": "task", "task": "other", "arguments": {"b": 2}}}

    assert house.ask("cron.update", id="r", patch=patch)["payload"]["arguments"] == {"b": 2}


def test_a_one_shot_that_is_over_is_listed_only_with_those_that_are_off(house: House) -> None:
    house.ask("cron.add", **ADDED | {"name": "once", "schedule": {"kind": "at", "at": "2026-01-01T01:00Z"}})
    house.clock.advance(hours=1)
    asyncio.run(Cron(house.store, house.clock, {}).run_once())

    assert house.ask("cron.list")["jobs"] == []
    assert house.ask("cron.list", pageToken="")["jobs"] == []
    assert [one["id"] for one in house.ask("cron.list", enabled="disabled")["jobs"]] == ["once"]
    assert [one["id"] for one in house.ask("cron.list", includeDisabled=True)["jobs"]] == ["once"]
    assert house.ask("cron.get", id="once")["enabled"] is False


def test_a_schedule_whose_agent_no_gateway_has_any_more_says_so(house: House) -> None:
    house.ask("cron.add", **ADDED | {"name": "tea", "schedule": {"kind": "every", "everyMs": 3_600_000}})
    house.ask("cron.add", name="report", schedule={"kind": "every", "everyMs": 60_000}, payload=REPORT)
    house.clock.advance(hours=1, minutes=1)
    assert "problem" not in house.ask("cron.get", id="tea")

    house.restart("report")

    assert house.ask("cron.get", id="tea")["problem"] == "no gateway has agent ada"
    assert {one["id"]: one.get("problem") for one in house.ask("cron.list")["jobs"]} == {
        "tea": "no gateway has agent ada",
        "report": None,
    }
    house.ask("cron.update", id="tea", patch={"enabled": False})
    assert "problem" not in house.ask("cron.get", id="tea")


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


def test_a_token_sees_nothing_of_an_earlier_schedule_of_the_same_name(house: House) -> None:
    task = {"kind": "task", "task": "report"}
    nightly = {"name": "nightly", "schedule": {"kind": "every", "everyMs": 3_600_000}, "payload": task}
    bob, eve = (msgspec.structs.replace(AGENT, owner=f"agent:{name}:main") for name in ("bob", "eve"))
    house.ask("cron.add", bob, **nightly, overlap="skip")
    house.ask("cron.run", bob, id="nightly", requestId="click")
    house.ask("cron.remove", bob, id="nightly")
    house.clock.advance(seconds=1)

    made = house.ask("cron.add", eve, **nightly, overlap="skip")

    assert "lastFiringId" not in made
    assert house.ask("cron.runs", eve, id="nightly")["entries"] == []
    span = {"from": "2025-12-31T00:00:00Z", "to": "2026-01-01T00:30:00Z"}
    assert house.ask("cron.calendar", eve, **span)["entries"] == []
    ran = house.ask("cron.run", eve, id="nightly", requestId="click")
    assert ran["ran"]
    assert [one["runId"] for one in house.ask("cron.runs", eve, id="nightly")["entries"]] == [ran["runId"]]
    assert len(house.ask("cron.runs", id="nightly")["entries"]) == 2


def test_the_history_of_all_schedules_is_newest_first_in_pages_also_what_was_run_by_hand(
    house: House,
) -> None:
    for name in ("a", "b"):
        house.ask("cron.add", **ADDED | {"name": name})
    ran = []
    for number in range(7):
        house.clock.advance(seconds=1)
        request = {"requestId": f"click-{number}"} if number % 2 else {}
        ran.append(house.ask("cron.run", id="ab"[number % 2], **request)["runId"])

    seen: list[str] = []
    token: dict[str, str] = {}
    while len(seen) < 7:
        page = house.ask("cron.runs", scope="all", limit=2, **token)
        seen += [one["runId"] for one in page["entries"]]
        token = {"pageToken": page["nextPageToken"]}

    assert seen == ran[::-1]
    assert page["nextPageToken"] is None
    for wrong in ("fire_1", "1.2.task_3", "-1.2.fire_3", "9" * 20 + ".1.fire_1"):
        with pytest.raises(HoldfastError, match="page token"):
            house.ask("cron.runs", scope="all", pageToken=wrong)


def test_a_token_of_an_owner_has_no_more_schedules_by_adding_them_paused(house: House) -> None:
    reminder = {
        "name": "reminder",
        "schedule": {"kind": "every", "everyMs": 3_600_000},
        "payload": {"kind": "agentTurn", "message": "Tea?"},
        "enabled": False,
    }
    house.ask("cron.add", AGENT, **reminder)

    with pytest.raises(Refused, match="which is the limit"):
        house.ask("cron.add", AGENT, **reminder | {"name": "another"})

    assert house.ask("cron.update", AGENT, id="reminder", patch={"enabled": True})["enabled"]


def test_a_token_resumes_no_schedule_above_a_lowered_limit(house: House) -> None:
    reminder = {
        "schedule": {"kind": "every", "everyMs": 3_600_000},
        "payload": {"kind": "agentTurn", "message": "Tea?"},
        "enabled": False,
    }
    generous, strict = CronSettings(max_per_agent=2), CronSettings(max_per_agent=1)
    house.gateway.config = msgspec.structs.replace(house.gateway.config, cron=generous)
    for name in ("a", "b"):
        house.ask("cron.add", AGENT, name=name, **reminder)
    house.gateway.config = msgspec.structs.replace(house.gateway.config, cron=strict)

    for patch in ({"enabled": True}, {"enabled": True, "description": "tea"}):
        with pytest.raises(Refused, match="which is the limit"):
            house.ask("cron.update", AGENT, id="a", patch=patch)

    assert house.ask("cron.update", OPERATOR, id="a", patch={"enabled": True})["enabled"]


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
        ({"payload": {"kind": "task", "task": "agent.ada"}}, 'agent = "ada" with a prompt'),
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
