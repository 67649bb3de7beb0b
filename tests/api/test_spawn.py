"""sessions.spawn over RPC: under all its names, once for each packet, bound to the owner of a token."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.config.sections import AgentSettings, Config
from holdfast.engine.conversation import spawning
from tests.api.stand_in import OWNER, OWNER_TOKEN, ServedDoors

PACKET: dict[str, Any] = {
    "task": "Collect the tides",
    "task_id": "smartwake_tides_20260301T120000Z",
    "wakeMode": "cron",
    "resume": {"from": "latest_checkpoint", "current_step": "read", "next_actions": ["read"]},
    "done_criteria": ["output file generated"],
    "agentId": "worker",
}


@pytest.fixture
def working(house: ServedDoors, monkeypatch: pytest.MonkeyPatch) -> ServedDoors:
    config = Config(agents={"worker": AgentSettings(command=["cat"], run_timeout_s=60)})
    monkeypatch.setattr(house.gateway, "config", config)
    return house


def test_a_packet_spawns_once_under_every_name_and_only_for_its_owner(working: ServedDoors) -> None:
    names = ("sessions.spawn", "sessions_spawn", "session_spawn")

    first, *again = [working.post(name, PACKET, token=OWNER_TOKEN).json() for name in names]

    assert first["isDuplicate"] is False
    assert first["taskKey"] == PACKET["task_id"]
    assert {(one["taskId"], one["sessionKey"], one["isDuplicate"]) for one in again} == {
        (first["taskId"], first["sessionKey"], True)
    }
    task = working.gateway.store.read_now(lambda tx: tx.tasks.get(first["taskId"]))
    assert (task.owner, task.name) == (OWNER, "agent.worker")
    changed = working.post("sessions.spawn", PACKET | {"task": "Another"}, token=OWNER_TOKEN)
    assert changed.json()["error"]["details"]["code"] == "key_conflict"


def test_a_token_of_an_owner_that_is_no_session_has_a_limit_too(
    working: ServedDoors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spawning, "MAX_OF_OWNER", 2)

    answers = [
        working.post("sessions.spawn", PACKET | {"task_id": f"smartwake_{n}"}, token=OWNER_TOKEN)
        for n in range(3)
    ]

    assert [one.status_code for one in answers[:2]] == [200, 200]
    assert "2 spawned tasks that have not ended" in answers[2].json()["error"]["message"]


def test_a_paused_agent_is_given_no_child(working: ServedDoors) -> None:
    working.post("agents.pause", {"agent": "worker"})

    refused = working.post("sessions.spawn", PACKET, token=OWNER_TOKEN)

    assert "holdfast agents resume worker" in refused.json()["error"]["message"]
    working.post("agents.resume", {"agent": "worker"})
    assert working.post("sessions.spawn", PACKET, token=OWNER_TOKEN).status_code == 200


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"wakeMode": "sometimes"}, "one of cron, auto, never"),
        ({"task": "x" * 70_000}, "task"),
        ({"done_criteria": ["x"] * 51}, "done_criteria"),
        ({"agentId": "nobody"}, "nobody"),
        ({"sessionKey": "agent:worker:other"}, "agent:worker:other"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_a_wrong_packet_is_refused_with_its_field(
    working: ServedDoors, change: dict[str, Any], says: str
) -> None:
    answer = working.post("sessions.spawn", PACKET | change, token=OWNER_TOKEN)

    assert answer.status_code >= 400
    assert says in answer.json()["error"]["message"]


# As the specification of smart wake has it, word for word.
SAMPLE: dict[str, Any] = {
    "task": "Resume long-running task",
    "task_id": "smartwake_repo_scan_20260301T120000Z",
    "wakeMode": "cron",
    "resume": {
        "from": "latest_checkpoint",
        "current_step": "collect_phase_2",
        "next_actions": ["fetch page 6-10", "dedupe", "export report"],
    },
    "done_criteria": ["output file generated", "validation passed", "status marked done"],
}


def test_a_packet_that_names_no_agent_is_for_the_only_one(working: ServedDoors) -> None:
    spawned = working.post("sessions_spawn", SAMPLE, token=OWNER_TOKEN).json()

    task = working.gateway.store.read_now(lambda tx: tx.tasks.get(spawned["taskId"]))
    assert task.name == "agent.worker"


@pytest.mark.parametrize("names", [[], ["helper", "worker"]])
def test_a_packet_that_names_no_agent_is_refused_unless_there_is_only_one(
    working: ServedDoors, monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    config = Config(agents={name: AgentSettings(command=["cat"], run_timeout_s=60) for name in names})
    monkeypatch.setattr(working.gateway, "config", config)

    answer = working.post("sessions_spawn", SAMPLE, token=OWNER_TOKEN)

    assert answer.status_code == 400
    said = answer.json()["error"]["message"]
    assert said == (
        "agentId: name the agent of the child: helper or worker"
        if names
        else "agentId: the settings have no agent; declare one: [agents.main]"
    )
