"""Every listing of the command line, over a ledger in which whatever can hold a text holds one."""

from __future__ import annotations

import functools
import unicodedata

import msgspec

from holdfast.core.audit import Actor, AuditOutcome, Door
from holdfast.core.flow import Flow, FlowMode, FlowNode, NodePlan
from holdfast.core.flow_definition import place_of
from holdfast.core.ids import new_flow_id
from holdfast.core.manifest import Interruption, InterruptionKind, Manifest
from holdfast.core.task import Failure, Origin
from holdfast.core.transitions import DeliveryStatus, FlowNodeStatus, FlowStatus
from holdfast.store import Store, Tx, Write
from tests.builders import START, a_delivery, a_message, a_restart, a_session, a_task
from tests.doors.test_tasks import hostile_ledger

SESSION = "agent:ada:main"
# What shows more than one record, and the parts of what shows one. TASK, CHECKPOINT and EFFECT are ids.
LISTINGS: dict[str, tuple[str, ...]] = {
    "tasks list": ("tasks", "list"),
    "tasks by text": ("tasks", "--text", "a"),
    "tasks show": ("tasks", "show", "TASK"),
    "tasks steps": ("tasks", "steps", "TASK"),
    "tasks flow list": ("tasks", "flow", "list"),
    "tasks flow show": ("tasks", "flow", "show", "FLOW"),
    "tasks audit": ("tasks", "audit"),
    "tasks maintenance": ("tasks", "maintenance"),
    "sessions list": ("sessions", "list", "--all-agents"),
    "sessions tasks": ("sessions", "tasks", SESSION),
    "agents list": ("agents", "list"),
    "tokens list": ("tokens", "list"),
    "reviews list": ("reviews", "list"),
    "reviews show": ("reviews", "show", "eff"),
    "questions list": ("questions", "list"),
    "cron list": ("cron", "list", "--all"),
    "cron history": ("cron", "history"),
    "deliveries list": ("deliveries", "list"),
    "deliveries list --owed": ("deliveries", "list", "--owed"),
    "checkpoints list": ("checkpoints", "list"),
    "wakes list": ("wakes", "list"),
    "wakes history": ("wakes", "history"),
    "checkpoints show": ("checkpoints", "show", "CHECKPOINT"),
    "audit log": ("audit", "log"),
    "events": ("events",),
    "events of a task": ("events", "--task", "TASK"),
    "gateway restarts": ("gateway", "restarts"),
    "config explain": ("config", "explain"),
    "status": ("status",),
}


def full_ledger(store: Store, text: str) -> tuple[str, str]:
    """A task and a checkpoint; with them, something in every listing."""
    task_id, checkpoint_id = hostile_ledger(store, text)
    origin = Origin(channel=text, peer=text)
    failure = Failure(kind=text, message=text)
    message = msgspec.json.encode({"text": text})
    found = Interruption(
        kind=InterruptionKind.RUN, task_id=task_id, title=text, status="running", session_key=text
    )
    manifest = Manifest(
        timestamp="2026-03-29T23:25:30Z",
        reason=text,
        triggered_by=text,
        restart_id="rst_1",
        interruptions=(found,),
    )

    def write(tx: Tx) -> None:
        for number in range(3):
            owner = text if number else SESSION
            tx.tasks.create(a_task(name=text, goal=f"{text} {number}", owner=owner))
        tx.sessions.create(a_session(key=f"agent:ada:{text}", agent="ada", origin=origin))
        tx.messages.create(a_message(session_key=f"agent:ada:{text}", body=msgspec.json.encode(text)))
        for status in (DeliveryStatus.PENDING, DeliveryStatus.FAILED):
            failed = None if status is DeliveryStatus.PENDING else failure
            tx.deliveries.create(
                a_delivery(
                    task_id=task_id, origin=origin, message=message, status=status, failure=failed, attempts=1
                )
            )
        tx.restarts.create(a_restart(manifest=manifest))
        actor = Actor(who=text, door=Door.HTTP, address="127.0.0.1")
        entry = actor.entry("ledger.cancel", AuditOutcome.REFUSED, now=START, subject=text, why=text)
        tx.audit.add(entry)

    store.write_now(write)
    store.write_now(hostile_flow(text))
    return task_id, checkpoint_id


def hostile_flow(text: str) -> Write[None]:
    """A flow as an older version or a damaged disk may have left it: this text wherever a text can stand."""
    flow = Flow(
        id=new_flow_id(START),
        owner=text,
        mode=FlowMode.MANAGED,
        goal=text,
        created_at=START,
        updated_at=START,
        status=FlowStatus.BLOCKED,
        name=text,
        controller=text,
        current_step=text,
        contents=msgspec.json.encode({text: text}),
        waits_on=f"node:{text}",
        failure=Failure(kind=text, message=text),
        cancel_reason=text,
        nodes=2,
        failed=1,
    )
    plans = [NodePlan(task=text, goal=text), NodePlan(task="b", needs=(text,))]
    nodes = [
        FlowNode(
            flow_id=flow.id,
            place=place_of(number),
            id=text if number == 0 else "b",
            plan=msgspec.json.encode(plan),
            created_at=START,
            updated_at=START,
            status=FlowNodeStatus.FAILED if number == 0 else FlowNodeStatus.PENDING,
            failure=flow.failure if number == 0 else None,
            unmet=number,
        )
        for number, plan in enumerate(plans)
    ]

    def write(tx: Tx) -> None:
        tx.flows.create(flow)
        tx.flow_nodes.create_many(nodes)

    return write


def arguments_of(name: str, task_id: str, checkpoint_id: str) -> tuple[str, ...]:
    # The only flow, by its prefix.
    ids = {"TASK": task_id, "CHECKPOINT": checkpoint_id, "FLOW": "flow_"}
    return tuple(ids.get(word, word) for word in LISTINGS[name])


@functools.cache
def columns_of(sign: str) -> int:
    """How many columns a terminal gives a sign; written anew here, so that it checks the other."""
    if unicodedata.category(sign) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(sign) in {"W", "F"} else 1


def width(line: str) -> int:
    return sum(map(columns_of, line))
