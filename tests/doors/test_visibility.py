"""Every door shows what the table of who sees what says."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from holdfast.api.methods import METHODS
from holdfast.cli.main import program
from holdfast.cli.up import MAX_LOGGED_CHARS, RedactingFormatter
from holdfast.core.campaign import CampaignSpec, Item, Phase
from holdfast.core.checkpoint import CheckpointKind, ResumeReason
from holdfast.core.message import Role
from holdfast.core.redaction import redact_text
from holdfast.core.schedule_spec import Schedule, ScheduleSource, ScheduleSpec
from holdfast.core.task import Failure, Origin
from holdfast.core.transitions import DeliveryStatus, EffectStatus, ItemStatus, RunStatus, TaskStatus
from holdfast.engine.campaigns.changes import starting_campaign
from holdfast.engine.campaigns.creating import NewCampaign, adding_items, creating_campaign
from holdfast.engine.campaigns.saving import prepared_milestone, saving
from holdfast.engine.campaigns.starting import starting_items
from holdfast.engine.conversation.transcripts import new_message, post
from holdfast.engine.ledger.campaign_progress import count_move, summary_of
from holdfast.engine.ledger.flows import NewFlow, creating_flow
from holdfast.engine.recovery.checkpoints import build
from holdfast.store import Store, Tx
from holdfast.views.visibility import PLACES, Exposure
from tests.api.stand_in import READ_TOKEN, ServedDoors, served_doors
from tests.builders import START, a_delivery, a_run, a_task, an_effect, put
from tests.conftest import quick_directory
from tests.doors.calls import CANARIES, Run
from tests.store.program_records import a_question, a_turn, a_value

ROOT = Path(__file__).parents[2]
SAMPLE_TASKS = "tests.doors.sample_tasks"
SECRET = CANARIES[0]
SESSION = "agent:ada:main"


# --- the two tables


# What may show stored values as they are.
WHOLE_METHODS = {name for place in PLACES if place.seen is Exposure.WHOLE for name in place.methods}
WHOLE_COMMANDS = {name for place in PLACES if place.seen is Exposure.WHOLE for name in place.commands}


def test_the_table_of_security_md_is_that_of_the_code() -> None:
    page = (ROOT / "SECURITY.md").read_text()
    rows = re.findall(r"^\| (.+?) \| (whole|redacted) \| (.+?) \|$", page, re.MULTILINE)

    assert rows == [(place.where, place.seen.value, place.why) for place in PLACES]


def test_the_table_names_methods_and_commands_that_there_are() -> None:
    assert set(METHODS) >= WHOLE_METHODS
    assert set(program.list_commands(click.Context(program))) >= WHOLE_COMMANDS


# --- methods


@pytest.fixture
def house(tmp_path: Path) -> Iterator[ServedDoors]:
    with quick_directory(tmp_path) as directory, served_doors(directory) as house:
        yield house


def fill(store: Store) -> dict[str, str]:
    """A ledger in which a program has left the secret wherever it may; the ids of what holds it."""
    said = msgspec.json.encode({"password": "x", "said": f"use {SECRET} now"})
    ended = a_task(status=TaskStatus.SUCCEEDED, arguments=said, result=said, ended_at=START)
    failure = Failure(kind="lost", message=f"no {SECRET} at hand", facts={"step": SECRET})
    failed = a_task(name="mend", status=TaskStatus.FAILED, failure=failure, ended_at=START)
    task = a_task(status=TaskStatus.RUNNING, arguments=said)
    held = a_run(task, status=RunStatus.RUNNING)
    effect = an_effect(
        task_id=task.id,
        run_id=held.id,
        status=EffectStatus.UNKNOWN,
        request=msgspec.json.encode({"shown": SECRET}),
        outcome=msgspec.json.encode(Failure(kind="lost", message=f"sent {SECRET}")),
    )
    question = a_question(held, question="which?", choices=(SECRET, "none"), default_answer=said)
    message = new_message(
        SESSION, f"use {SECRET} now", Origin(channel="console", peer="ada"), role=Role.USER, now=START
    )
    delivery = a_delivery(
        task_id=task.id,
        message=msgspec.json.encode({"text": f"use {SECRET} now"}),
        status=DeliveryStatus.FAILED,
        failure=Failure(kind="not_sent", message=f"no {SECRET}"),
    )

    spec = ScheduleSpec(every_s=60, agent="ada", session="x", prompt=f"use {SECRET} now", description=SECRET)
    schedule = Schedule(
        name="tide",
        source=ScheduleSource.RUNTIME,
        owner="system",
        spec=spec,
        created_at=START,
        updated_at=START,
    )

    def write(tx: Tx) -> str:
        tx.schedules.create(schedule)
        put(tx, ended, a_run(ended, status=RunStatus.SUCCEEDED))
        put(tx, failed, a_run(failed, status=RunStatus.FAILED))
        put(tx, task, held)
        tx.effects.create(effect)
        tx.questions.create(question)
        tx.turns.commit(a_turn(held), "elsewhere", is_over=False)
        tx.lists.set_value(a_value(held, value=said))
        tx.deliveries.create(delivery)
        post(tx, message)
        tx.statements.run(
            "insert_event",
            {"at": 0, "kind": "run_woken", "task_id": task.id, "subject_id": "x", "facts": said},
        )
        (checkpoint,) = build(
            tx,
            [held],
            {held.id: "ckpt_visibility"},  # type: ignore[dict-item]
            kind=CheckpointKind.MILESTONE,
            reason=ResumeReason.SCHEDULED_PROGRESS,
            now=START,
            note=SECRET,
        )
        tx.checkpoints.create_many([checkpoint])
        return checkpoint.id

    checkpoint_id = store.write_now(write)
    new = NewFlow(name="triage", controller="mailer", state={"note": SECRET})
    flow = store.write_now(creating_flow(new, now=START))
    return {
        "flow": flow.id,
        "milestone": a_campaign(store, said),
        "ended": ended.id,
        "task": task.id,
        "effect": effect.id,
        "question": question.id,
        "checkpoint": checkpoint_id,
        "message": message.id,
    }


def a_campaign(store: Store, result: bytes) -> str:
    """A campaign with an item that is done and one that failed; the id of its milestone."""
    spec = CampaignSpec(phases=(Phase(name="analysis", task="analyse"),), goal=f"use {SECRET} now")
    made = store.write_now(creating_campaign(NewCampaign(name="survey", spec=spec), now=START))
    items = [Item(id=name, name=f"{name} {SECRET}", fields={"note": SECRET}) for name in ("done", "failed")]
    store.write_now(adding_items(made.id, items, now=START))
    store.write_now(starting_campaign(made.id, now=START))
    store.write_now(starting_items(made.id, now=START))

    def end(tx: Tx) -> None:
        done, failed = tx.item_phases.page(made.id, 0)
        ends = [
            msgspec.structs.replace(done, status=ItemStatus.DONE, summary=summary_of(result)),
            msgspec.structs.replace(failed, status=ItemStatus.FAILED, error=redact_text(f"no {SECRET}")),
        ]
        tx.item_phases.end(ends, now=START)
        for before, after in zip((done, failed), ends, strict=True):
            count_move(tx, before, after.status, now=START)

    store.write_now(end)
    campaign = store.read_now(lambda tx: tx.campaigns.get(made.id))
    prepared = store.read_now(lambda tx: prepared_milestone(tx, campaign, "half", now=START))
    saved = store.write_now(saving(prepared))
    assert saved is not None
    return saved[-1].id


def asked(ids: dict[str, str]) -> dict[str, list[dict[str, Any]]]:
    """What each method is asked that needs more than nothing."""
    both = [{"taskId": ids["ended"]}, {"taskId": ids["task"]}]
    return {
        "tasks.get": both,
        "tasks.wait": [one | {"timeoutMs": 0} for one in both],
        "ledger.show": both,
        "ledger.wait": [one | {"waitMs": 0} for one in both],
        "ledger.steps": both,
        "ledger.result": both,
        "agents.get": [{"agent": f"{name}-analyzer"} for name in ("done", "failed")],
        "campaigns.get": [{"campaign": "survey"}],
        "campaigns.micro_checkpoints": [{"campaign": "survey"}],
        "campaigns.items": [{"campaign": "survey"}, {"campaign": "survey", "status": "done"}],
        "campaigns.item": [{"campaign": "survey", "itemId": name} for name in ("done", "failed")],
        "campaigns.recovery": [{"campaign": "survey"}],
        "campaigns.batches": [{"campaign": "survey"}],
        "campaigns.checkpoint": [{"checkpointId": ids["milestone"]}],
        "campaigns.restore_plan": [{"checkpointId": ids["milestone"]}],
        "flows.get": [{"flowId": ids["flow"]}],
        "flows.nodes": [{"flowId": ids["flow"]}],
        "flows.tasks": [{"flowId": ids["flow"]}],
        "flows.state": [{"flowId": ids["flow"]}],
        "reviews.show": [{"effectId": ids["effect"]}],
        "checkpoints.show": [{"checkpointId": ids["checkpoint"]}],
        "checkpoints.prune": [{"isDryRun": True}],
        "deliveries.list": [{"which": "failed"}, {"which": "owed"}],
        "cron.get": [{"id": "tide"}],
        "cron.runs": [{"id": "tide"}, {}],
        "cron.calendar": [
            {"from": "2026-03-01T00:00:00Z", "to": "2026-05-01T00:00:00Z"} | more
            for more in ({}, {"id": "tide"})
        ],
        "failures.list": [{}, {"name": "mend"}],
        "ledger.timeline": both,
        "questions.show": [{"questionId": ids["question"]}],
        "progress.throughput": [{"campaign": "survey"}],
        "workers.list": [{}, {"which": "ended"}],
        "chat.history": [{"sessionKey": SESSION}],
        "sessions.transcript": [{"sessionKey": SESSION}],
        "sessions.list": [{"includeDerivedTitles": True, "includeLastMessage": True}],
        "agent.wait": [{"runId": ids["message"], "timeoutMs": 0}],
        "sessions.get": [{"sessionKey": SESSION}],
        "sessions.tasks": [{"sessionKey": SESSION}],
    }


# These change something: what they answer is a line of what the others show.
CHANGING = {name for name, method in METHODS.items() if method.scope != "operator.read"} - {
    "ledger.result",
    "flows.state",
}


def test_each_method_shows_what_the_table_says(house: ServedDoors) -> None:
    params = asked(fill(house.gateway.store))
    whole, redacted = set(), set()

    for name in sorted(set(METHODS) - CHANGING):
        for given in params.get(name, [{}]):
            answer = house.post(name, given)
            assert answer.status_code == 200, (name, answer.text)
            if SECRET in answer.text:
                whole.add(name)
            if "[redacted:" in answer.text:
                redacted.add(name)

    assert whole == WHOLE_METHODS
    # They would have shown it: what they are asked about holds it.
    shown = "ledger.show reviews.list reviews.show questions.list deliveries.list events.list sessions.get"
    assert set(shown.split()) | {"checkpoints.show", "flows.get"} <= redacted


def test_those_who_only_read_see_no_conversation_whole_and_no_result(house: ServedDoors) -> None:
    ids = fill(house.gateway.store)

    transcript = house.post("chat.history", {"sessionKey": SESSION}, token=READ_TOKEN)
    result = house.post("ledger.result", {"taskId": ids["ended"]}, token=READ_TOKEN)

    assert "use [redacted:github] now" in transcript.text
    assert SECRET not in transcript.text
    assert result.status_code == 403


def test_a_result_comes_over_rpc_as_it_was(house: ServedDoors) -> None:
    ids = fill(house.gateway.store)

    found = house.post("ledger.result", {"taskId": ids["ended"]}).json()

    assert (found["hasEnded"], found["status"]) == (True, "succeeded")
    assert found["result"] == {"password": "x", "said": f"use {SECRET} now"}


# --- commands


@pytest.mark.parametrize("as_json", [False, True])
def test_the_result_of_a_program_is_printed_as_it_was(run: Run, *, as_json: bool) -> None:
    text = f"password: hunter2, {SECRET}"
    given = f"text={msgspec.json.encode(text).decode()}"

    called = run("run", f"{SAMPLE_TASKS}:say", "--json-arg", given, *(["--json"] if as_json else []))

    assert (called.json["result"] if as_json else called.out) == (text if as_json else f"{text}\n")
    assert SECRET not in called.err


# --- the log


def test_the_log_of_the_gateway_holds_no_secret_also_in_tracebacks() -> None:
    formatter = RedactingFormatter("%(message)s")
    try:
        int(SECRET)
    except ValueError:
        record = logging.LogRecord("holdfast", logging.ERROR, "x", 1, "%s", (SECRET,), sys.exc_info())

    line = formatter.format(record)

    assert "ValueError" in line
    assert SECRET not in line


def test_a_secret_at_the_end_of_what_is_logged_leaves_no_beginning() -> None:
    room = MAX_LOGGED_CHARS - len(SECRET) // 2
    said = f"{'tide ' * (room // 5)} {SECRET}"
    record = logging.LogRecord("holdfast", logging.ERROR, "x", 1, "%s", (said,), None)

    line = RedactingFormatter("%(message)s").format(record)

    assert len(line) <= MAX_LOGGED_CHARS
    assert SECRET[:8] not in line


def test_every_place_is_told_once() -> None:
    assert len({place.where for place in PLACES}) == len(PLACES)
    assert {place.seen for place in PLACES} == set(Exposure)
