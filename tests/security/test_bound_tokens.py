"""A bound token learns nothing of what it does not reach: not whether it exists, and not by any method."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from holdfast.api.contract import READ, WRITE, Caller
from holdfast.api.methods import METHODS
from holdfast.api.tokens import Tokens
from holdfast.core.campaign import Campaign, CampaignSpec, Item, Phase
from holdfast.core.fingerprint import fingerprint_of
from holdfast.core.manifest import Manifest
from holdfast.core.schedule_spec import Schedule, ScheduleSource, ScheduleSpec
from holdfast.core.task import Failure, Origin
from holdfast.core.transitions import (
    CheckpointStatus,
    DeliveryStatus,
    EffectStatus,
    ItemStatus,
    MessageStatus,
    RunStatus,
    TaskStatus,
)
from holdfast.engine.campaigns.changes import starting_campaign
from holdfast.engine.campaigns.creating import NewCampaign, adding_items, creating_campaign
from holdfast.engine.campaigns.saving import prepared_milestone, saving
from holdfast.engine.campaigns.starting import starting_items
from holdfast.engine.ledger.campaign_progress import count_move
from holdfast.engine.ledger.flows import NewFlow, creating_flow
from holdfast.store import Store, Tx
from tests.api.stand_in import TOKEN, ServedDoors, served_doors
from tests.builders import (
    START,
    a_checkpoint,
    a_delivery,
    a_message,
    a_restart,
    a_run,
    a_session,
    a_task,
    an_effect,
    put,
)
from tests.conftest import quick_directory
from tests.store.program_records import a_question

BOUND = "hf_test_bound_" + "d4" * 32
CANARY = "canary-of-the-victim"
NOTHING = "~nothing-is-named~"
SESSION = "agent:ada:victim"
BOTH = frozenset({READ, WRITE})
CALLERS = {
    "owner": Caller(who="bound", scopes=BOTH, owner="me"),
    "names": Caller(who="bound", scopes=BOTH, tasks=frozenset({"mine"})),
    "both": Caller(who="bound", scopes=BOTH, owner="me", tasks=frozenset({"mine"})),
}
# What is asked of each method with one id of a kind; a new method needs a line here.
_CREATED = {"sourceId": "x-1", "owner": "bound", "goal": "x", "createdAt": "2026-01-01T00:00:00Z"}
IMPORTED_TASK = _CREATED | {"runtime": "cli", "name": "x", "status": "queued"}
IMPORTED_FLOW = _CREATED | {
    "mode": "task_mirrored",
    "status": "queued",
    "updatedAt": "2026-01-01T00:00:00Z",
}
SPAN = {"from": "2026-01-01T00:00:00Z", "to": "2026-03-31T00:00:00Z"}
PROBES: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "tasks.list": [("task", {"cursor": "ID"}), ("session", {"sessionKey": "ID"}), ("", {"agentId": "ada"})],
    "tasks.get": [("task", {"taskId": "ID"}), ("session", {"taskId": "ID"})],
    "tasks.wait": [("task", {"taskId": "ID", "timeoutMs": 0})],
    "tasks.cancel": [("task", {"taskId": "ID"})],
    "tasks.retry": [("task", {"taskIds": ["ID"]})],
    "tasks.dismiss": [("task", {"taskIds": ["ID"]})],
    "ledger.list": [
        ("task", {"pageToken": "ID"}),
        ("", {"owner": "victim"}),
        ("", {"status": ["failed"]}),
        ("session", {"sessionKey": "ID"}),
        ("", {"text": CANARY}),
        ("", {"key": CANARY}),
        ("", {"name": "theirs", "agentId": "ada"}),
    ],
    "cron.list": [
        ("", {"includeDisabled": True}),
        ("schedule", {"pageToken": "ID"}),
        ("", {"query": CANARY}),
    ],
    "cron.get": [("schedule", {"id": "ID"})],
    "cron.status": [("", {})],
    "cron.add": [
        (
            "session",
            {
                "name": "mine",
                "schedule": {"kind": "every", "everyMs": 3_600_000},
                "payload": {"kind": "agentTurn", "message": "x"},
                "sessionKey": "ID",
            },
        ),
        (
            "",
            {
                "name": "mine",
                "schedule": {"kind": "every", "everyMs": 3_600_000},
                "payload": {"kind": "command", "argv": ["true"]},
            },
        ),
    ],
    "cron.update": [("schedule", {"id": "ID", "patch": {"enabled": False}})],
    "cron.remove": [("schedule", {"id": "ID"}), ("schedule", {"id": "ID", "force": True})],
    "cron.run": [("schedule", {"id": "ID", "requestId": "x"})],
    "cron.calendar": [
        ("schedule", SPAN | {"id": "ID"}),
        ("schedule", SPAN | {"pageToken": "ID"}),
        ("", SPAN),
    ],
    "cron.runs": [("schedule", {"id": "ID"}), ("", {"scope": "all"})],
    "ledger.show": [("task", {"taskId": "ID"}), ("session", {"taskId": "ID"})],
    "ledger.wait": [("task", {"taskId": "ID", "waitMs": 0}), ("session", {"taskId": "ID", "waitMs": 0})],
    "ledger.timeline": [("task", {"taskId": "ID"}), ("session", {"taskId": "ID"})],
    "ledger.notify": [("task", {"taskId": "ID", "notify": "silent"})],
    "ledger.steps": [("task", {"taskId": "ID"})],
    "producer.create": [("", {"name": "theirs", "goal": "x", "runtime": "cli", "owner": "victim"})],
    "producer.start": [("task", {"runId": "ID"})],
    "producer.beat": [("task", {"runId": "ID"})],
    "producer.dropped": [("task", {"runId": "ID", "total": 1})],
    "producer.progress": [("task", {"runId": "ID", "summary": "x"})],
    "producer.finish": [("task", {"runId": "ID"})],
    "producer.fail": [("task", {"runId": "ID", "message": "x"})],
    "producer.cancel": [("task", {"runId": "ID"})],
    "ledger.overview": [("", {})],
    "ledger.result": [("task", {"taskId": "ID"})],
    "ledger.cancel": [("task", {"taskId": "ID"})],
    "ledger.retry": [("task", {"taskId": "ID"}), ("task", {"taskId": "ID", "cancelled": True})],
    "ledger.retry_page": [
        ("", {"status": ["failed"], "owner": "victim"}),
        ("", {"status": ["failed"]}),
        ("task", {"status": ["failed"], "pageToken": "ID"}),
    ],
    "failures.list": [("fingerprint", {"fingerprint": "ID"}), ("", {}), ("", {"name": "theirs"})],
    "failures.retry": [
        ("fingerprint", {"fingerprint": "ID"}),
        ("fingerprint", {"fingerprint": "ID", "name": "theirs"}),
    ],
    "ledger.fork": [("task", {"taskId": "ID", "at": "start"})],
    "ledger.create": [
        ("", {"name": "mine", "goal": "x", "owner": "victim", "key": CANARY}),
        ("session", {"name": "agent.ada", "goal": "x", "arguments": {"session_key": "ID"}}),
    ],
    "flows.list": [("flow", {"pageToken": "ID"}), ("", {"owner": "victim"}), ("", {"status": ["queued"]})],
    "flows.get": [("flow", {"flowId": "ID"})],
    "flows.nodes": [("flow", {"flowId": "ID"})],
    "flows.tasks": [("flow", {"flowId": "ID"})],
    "flows.state": [("flow", {"flowId": "ID"})],
    "flows.create": [
        ("", {"name": "x", "controller": "c", "owner": "victim", "key": CANARY}),
        ("task", {"name": "x", "mode": "task_mirrored", "taskIds": ["ID"]}),
    ],
    "flows.start": [("", {"name": "theirs", "owner": "victim"})],
    "flows.update": [("flow", {"flowId": "ID", "expectedRevision": 1, "state": 1})],
    "flows.wait": [("flow", {"flowId": "ID", "expectedRevision": 1, "wait": 1})],
    "flows.resume": [("flow", {"flowId": "ID", "expectedRevision": 1})],
    "flows.finish": [("flow", {"flowId": "ID", "expectedRevision": 1})],
    "flows.fail": [("flow", {"flowId": "ID", "expectedRevision": 1, "message": "x"})],
    "flows.cancel": [("flow", {"flowId": "ID"})],
    "flows.retry": [("flow", {"flowId": "ID"})],
    "campaigns.list": [("campaign", {"pageToken": "ID"}), ("", {"owner": "victim"}), ("", {})],
    "campaigns.get": [("campaign", {"campaign": "ID"})],
    "campaigns.items": [
        ("campaign", {"campaign": "ID"}),
        ("campaign", {"campaign": "ID", "status": "failed"}),
    ],
    "campaigns.item": [("campaign", {"campaign": "ID", "itemId": "repo-victim"})],
    "campaigns.recovery": [("campaign", {"campaign": "ID"})],
    "campaigns.batches": [("campaign", {"campaign": "ID"})],
    "campaigns.create": [
        ("", {"name": "x", "phases": [{"name": "analysis", "task": "theirs"}], "owner": "victim"}),
        # The name of a campaign is taken for everyone, and names no id and no owner.
        ("", {"name": "survey-victim", "phases": [{"name": "analysis", "task": "mine"}]}),
    ],
    "campaigns.add": [("campaign", {"campaign": "ID", "items": [{"id": "repo-x"}]})],
    "campaigns.start": [("campaign", {"campaign": "ID"})],
    "campaigns.pause": [("campaign", {"campaign": "ID"})],
    "campaigns.resume": [("campaign", {"campaign": "ID"})],
    "campaigns.retry": [
        ("campaign", {"campaign": "ID"}),
        ("campaign", {"campaign": "ID", "itemIds": ["repo-victim"]}),
    ],
    "campaigns.checkpoints": [("campaign", {"campaign": "ID"}), ("", {})],
    "campaigns.micro_checkpoints": [("campaign", {"campaign": "ID"})],
    "campaigns.checkpoint": [("milestone", {"checkpointId": "ID"})],
    "campaigns.restore_plan": [("milestone", {"checkpointId": "ID"})],
    "campaigns.milestone": [("campaign", {"name": "x", "campaign": "ID"}), ("", {"name": "x"})],
    "campaigns.restore": [("milestone", {"checkpointId": "ID", "effects": "keep"})],
    "campaigns.prune": [("campaign", {"campaign": "ID", "olderThanS": 0})],
    "progress.get": [("campaign", {"campaign": "ID"}), ("", {})],
    "progress.context": [("campaign", {"campaign": "ID"}), ("", {})],
    "progress.phase": [("campaign", {"campaign": "ID"}), ("", {})],
    "progress.batches": [
        ("campaign", {"campaign": "ID"}),
        ("campaign", {"campaign": "ID", "by": "category"}),
        ("", {}),
    ],
    "progress.throughput": [("campaign", {"campaign": "ID"}), ("", {})],
    "progress.sample": [("campaign", {"campaign": "ID", "seed": 1}), ("", {"seed": 1})],
    "reviews.list": [("effect", {}), ("effect", {"pageToken": "ID"})],
    "reviews.show": [("effect", {"effectId": "ID"})],
    "reviews.resolve": [("effect", {"effectId": "ID", "decision": "retry"})],
    "questions.list": [("question", {}), ("question", {"pageToken": "ID"})],
    "questions.show": [("question", {"questionId": "ID"})],
    "questions.answer": [("question", {"questionId": "ID", "answer": "x"})],
    "deliveries.list": [("delivery", {}), ("delivery", {"which": "owed", "pageToken": "ID"})],
    "deliveries.retry": [("delivery", {"deliveryId": "ID"})],
    "deliveries.confirm": [("delivery", {"deliveryId": "ID"})],
    "deliveries.dismiss": [("delivery", {"deliveryId": "ID"})],
    "checkpoints.list": [("task", {"taskId": "ID"}), ("checkpoint", {"pageToken": "ID"})],
    "checkpoints.show": [("checkpoint", {"checkpointId": "ID"})],
    "checkpoints.retry": [("checkpoint", {"checkpointId": "ID"})],
    "checkpoints.prune": [("", {"isDryRun": True, "olderThanS": 0})],
    "wakes.list": [("task", {"taskId": "ID"}), ("", {})],
    "wakes.history": [("task", {"taskId": "ID"}), ("", {})],
    "wakes.cancel": [("", {"wakeId": "wake_none"})],
    "wake": [("", {"mode": "now", "text": "x"})],
    "events.list": [("task", {"taskId": "ID"}), ("", {}), ("", {"after": "0"})],
    "audit.list": [("", {}), ("task", {"subject": "ID"}), ("", {"who": "victim"})],
    "upkeep.audit": [("", {}), ("", {"code": "delivery_failed"})],
    "upkeep.maintenance": [("", {}), ("", {"isDryRun": False})],
    "chat.send": [("session", {"sessionKey": "ID", "message": "x"})],
    "chat.history": [("session", {"sessionKey": "ID"})],
    "chat.abort": [("session", {"sessionKey": "ID"})],
    "sessions.list": [("", {"includeLastMessage": True})],
    "sessions.page": [("", {})],
    "sessions.transcript": [("session", {"sessionKey": "ID"})],
    "sessions.abort": [("session", {"key": "ID", "clearQueued": True})],
    "agent": [("session", {"sessionKey": "ID", "message": "x", "idempotencyKey": "k"})],
    "agent.wait": [("", {"runId": "msg_none"})],
    "send": [("", {"to": "victim", "message": "x", "channel": "hook", "idempotencyKey": "k"})],
    "models.list": [("session", {"sessionKey": "ID"})],
    "question.list": [("question", {})],
    "question.get": [("question", {"id": "ID"})],
    "question.resolve": [("question", {"id": "ID", "answers": {"answers": {"answer": ["x"]}}})],
    "channels.status": [("", {})],
    "logs.tail": [("", {})],
    "status": [("", {"includeCliProjection": True})],
    "system-presence": [("", {})],
    "config.schema": [("", {})],
    "sessions.get": [("session", {"sessionKey": "ID"})],
    "sessions.tasks": [("session", {"sessionKey": "ID"})],
    "sessions.spawn": [("session", {"sessionKey": "ID", "task": "x", "task_id": "x", "agentId": "ada"})],
    "sessions.send": [("session", {"sessionKey": "ID", "message": "x"})],
    "agents.list": [("", {})],
    "agents.page": [("", {}), ("campaign", {"campaign": "ID"})],
    "agents.get": [("", {"agent": "repo-victim-analyzer"}), ("campaign", {"agent": "x", "campaign": "ID"})],
    "agents.pause": [("", {"agent": "repo-victim-analyzer"})],
    "agents.resume": [("", {"agent": "repo-victim-analyzer"})],
    "agents.restart": [("", {"agent": "repo-victim-analyzer"})],
    "alerts.list": [("", {}), ("", {"hasCleared": True})],
    "alerts.rules": [("", {})],
    "alerts.check": [("", {})],
    "alerts.silence": [("", {"rule": "agent_down", "duration": "2h"})],
    "health": [("", {})],
    "workers.list": [("", {}), ("", {"which": "ended"})],
    "dashboard.link": [("", {}), ("", {"token": "operator"})],
    "gateway.status": [("", {})],
    "gateway.readiness": [("", {})],
    "gateway.restart.preflight": [("", {})],
    "gateway.restart": [("", {"reason": "x", "force": True})],
    "gateway.restarts": [("", {})],
    "gateway.recovery": [("", {})],
    "gateway.resume": [("", {})],
    "gateway.stop": [("", {})],
    "store.accept": [("", {})],
    "config.get": [("", {})],
    "rpc.describe": [("", {})],
    "imports.begin": [("", {"source": "openclaw", "name": "/tmp/openclaw"})],
    "imports.flows": [("", {"source": "openclaw", "batchId": "imp_1", "flows": [IMPORTED_FLOW]})],
    "imports.tasks": [("", {"source": "openclaw", "batchId": "imp_1", "tasks": [IMPORTED_TASK]})],
    "tokens.list": [("", {})],
    "tokens.create": [("", {"name": "more", "scopes": ["operator.admin"]})],
    "tokens.revoke": [("", {"name": "bound"})],
    "tokens.rotate": [("", {"name": "operator"})],
}


def a_running_campaign(store: Store, text: str) -> tuple[Campaign, str]:
    """A campaign of the victim with a failed item and a milestone; the text stands wherever one can."""
    spec = CampaignSpec(phases=(Phase(name="analysis", task="theirs"),), goal=text)
    new = NewCampaign(name="survey-victim", spec=spec, owner="victim")
    campaign = store.write_now(creating_campaign(new, now=START))
    item = Item(id="repo-victim", name=text, category=text, fields={"note": text})
    store.write_now(adding_items(campaign.id, [item], now=START))
    store.write_now(starting_campaign(campaign.id, now=START))
    store.write_now(starting_items(campaign.id, now=START))

    def fail(tx: Tx) -> None:
        (row,) = tx.item_phases.page(campaign.id, 0)
        tx.item_phases.end([msgspec.structs.replace(row, status=ItemStatus.FAILED, error=text)], now=START)
        count_move(tx, row, ItemStatus.FAILED, now=START)

    store.write_now(fail)
    running = store.read_now(lambda tx: tx.campaigns.get(campaign.id))
    prepared = store.read_now(lambda tx: prepared_milestone(tx, running, "victim", now=START))
    saved = store.write_now(saving(prepared))
    assert saved is not None
    return running, saved[-1].id


class RevokedClient:
    """Everything that another owner may have in a ledger, with the canary wherever a text can stand."""

    def __init__(self, house: ServedDoors) -> None:
        failure = Failure(kind="TideFailed", message=CANARY)
        task = a_task(
            owner="victim",
            name="theirs",
            goal=CANARY,
            session_key=SESSION,
            status=TaskStatus.FAILED,
            failure=failure,
            ended_at=START,
        )
        run = a_run(task, status=RunStatus.FAILED)
        checkpoint = a_checkpoint(run, status=CheckpointStatus.FAILED_RESUME)
        alive = a_task(owner="victim", name="theirs", goal=CANARY)
        asks = a_run(alive)
        effect = an_effect(task_id=alive.id, run_id=asks.id, status=EffectStatus.UNKNOWN)
        question = a_question(asks, question=CANARY)
        delivery = a_delivery(
            task_id=task.id, status=DeliveryStatus.FAILED, origin=Origin(channel="hook", peer=CANARY)
        )
        manifest = Manifest(
            timestamp="2026-03-29T23:25:30Z", reason=CANARY, triggered_by=CANARY, restart_id="rst_victim"
        )

        spec = ScheduleSpec(every_s=3600, agent="ada", session="x", prompt=CANARY, description=CANARY)
        schedule = Schedule(
            name="schedule-victim",
            source=ScheduleSource.RUNTIME,
            owner="victim",
            spec=spec,
            created_at=START,
            updated_at=START,
            due_at=START,
        )

        def write(tx: Tx) -> None:
            tx.schedules.create(schedule)
            put(tx, task, run, checkpoints=(checkpoint,))
            put(tx, alive, asks)
            tx.effects.create(effect)
            tx.questions.create(question)
            tx.deliveries.create(delivery)
            tx.sessions.create(a_session(key=SESSION, agent="ada"))
            tx.messages.create(
                a_message(session_key=SESSION, body=msgspec.json.encode(CANARY), status=MessageStatus.NOTED)
            )
            tx.restarts.create(a_restart(id="rst_victim", manifest=manifest))

        house.gateway.store.write_now(write)
        new = NewFlow(name="theirs", goal=CANARY, owner="victim", controller="c", state=CANARY)
        flow = house.gateway.store.write_now(creating_flow(new, now=START))
        campaign, milestone = a_running_campaign(house.gateway.store, CANARY)
        self.before = self.look(house)
        self.ids: dict[str, list[str]] = {
            "task": [task.id, alive.id],
            "checkpoint": [checkpoint.id],
            "effect": [effect.id],
            "question": [question.id],
            "delivery": [delivery.id],
            "session": [SESSION],
            "schedule": [schedule.name],
            "flow": [flow.id],
            "campaign": [campaign.id],
            "milestone": [milestone],
            "fingerprint": [fingerprint_of(failure).id],
            "": [NOTHING],
        }
        self.all_ids = {one for ids in self.ids.values() for one in ids} - {NOTHING, SESSION} | {
            "rst_victim",
            run.id,
        }

    def look(self, house: ServedDoors) -> object:
        """What must stay as it is."""

        def read(tx: Tx) -> object:
            return (
                [(one.id, one.status, one.cancel_requested_at) for one in tx.tasks.page(owner="victim")],
                [(one.id, one.revision) for one in tx.flows.page()],
                [(one.id, one.status) for one in tx.deliveries.failed(limit=9)],
                [one.id for one in tx.messages.before(SESSION, limit=9)],
                [one.id for one in tx.checkpoints.page(limit=9)],
                tx.schedules.page(limit=9),
                tx.campaigns.page(),
                [tx.item_phases.page(one.id, 0) for one in tx.campaigns.page()],
            )

        return house.gateway.store.read_now(read)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[ServedDoors]:
    with quick_directory(tmp_path) as home, served_doors(home) as house:
        yield house


def unknown_of(known: str) -> str:
    """Another id of the same shape, which nothing has."""
    if known == SESSION:
        return "agent:ada:nobody"
    return known[:-4] + "".join("1" if one == "0" else "0" for one in known[-4:])


def filled(params: Any, chosen: str) -> Any:
    if isinstance(params, dict):
        return {name: filled(value, chosen) for name, value in params.items()}
    if isinstance(params, list):
        return [filled(one, chosen) for one in params]
    return chosen if params == "ID" else params


def said(answer: httpx.Response, asked: str) -> tuple[int, str]:
    return answer.status_code, re.sub(r'"asOf":"[^"]*"', "", answer.text.replace(asked, "ID"))


def test_every_method_of_the_table_is_probed() -> None:
    assert set(PROBES) == set(METHODS)


@pytest.mark.parametrize("how", CALLERS)
def test_no_method_tells_a_bound_token_of_what_it_does_not_reach(house: ServedDoors, how: str) -> None:
    victim = RevokedClient(house)
    house.tokens.replace(Tokens.of(TOKEN, {BOUND: CALLERS[how]}))

    for method, probes in PROBES.items():
        for kind, params in probes:
            if method == "ledger.create" and how == "names" and "owner" in params:
                continue  # a token that is bound to no owner may name any
            for known in victim.ids[kind]:
                asked = (known, unknown_of(known))
                answers = [house.post(method, filled(params, one), token=BOUND) for one in asked]

                if method != "health":  # it tells the time
                    assert said(answers[0], asked[0]) == said(answers[1], asked[1]), (method, params)
                text = answers[0].text.replace(known, "ID")
                assert CANARY not in text, (method, params)
                assert not [one for one in victim.all_ids if one in text], (method, params)
    for path in ("/events", "/metrics", f"/events?task={victim.ids['task'][0]}"):
        assert house.get(path, token=BOUND).status_code == 403
    ready = house.get("/readyz", token=BOUND).json()
    assert ready == house.get("/readyz", token=None).json()
    assert victim.look(house) == victim.before
    assert not house.gateway.wishes
    assert not house.gateway.stops


def test_a_token_with_names_reaches_tasks_of_these_names(house: ServedDoors) -> None:
    theirs = RevokedClient(house)
    house.tokens.replace(Tokens.of(TOKEN, {BOUND: CALLERS["names"]}))
    ids = {}
    for name in ("mine", "other"):
        made = house.post("ledger.create", {"name": name, "goal": "x", "key": name}).json()
        ids[name] = made["taskId"]

    def tasks(method: str, **params: Any) -> list[str]:
        return [one["id"] for one in house.post(method, params, token=BOUND).json()["tasks"]]

    assert tasks("ledger.list") == tasks("tasks.list") == [ids["mine"]]
    assert tasks("ledger.list", status=["queued"]) == tasks("tasks.list", sortBy="updatedAt") == [ids["mine"]]
    assert tasks("ledger.list", owner="system") == [ids["mine"]]
    assert house.post("ledger.show", {"taskId": ids["mine"]}, token=BOUND).status_code == 200
    assert house.post("ledger.show", {"taskId": ids["mine"][:-1]}, token=BOUND).status_code == 404
    assert house.post("ledger.cancel", {"taskId": ids["other"]}, token=BOUND).status_code == 404
    # The key of a task that it does not reach is taken, and tells no id.
    conflict = house.post("ledger.create", {"name": "mine", "goal": "x", "key": "other"}, token=BOUND)
    assert (conflict.status_code, ids["other"] in conflict.text) == (409, False)
    refused = house.post("ledger.create", {"name": "other", "goal": "x"}, token=BOUND)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "REFUSED")
    assert theirs.look(house) == theirs.before


def test_a_token_with_methods_calls_no_other_and_hears_no_feed(house: ServedDoors) -> None:
    few = Caller(who="bound", scopes=BOTH, methods=frozenset({"ledger.create", "health"}))
    house.tokens.replace(Tokens.of(TOKEN, {BOUND: few}))

    answers = {name: house.post(name, token=BOUND).status_code for name in METHODS}

    assert {name for name, status in answers.items() if status != 403} == {"ledger.create", "health"}
    for path in ("/events", "/metrics", "/openapi.json"):
        assert house.get(path, token=BOUND).status_code == 403
    why = house.post("ledger.list", token=BOUND).json()["error"]["message"]
    assert "may not call ledger.list" in why
