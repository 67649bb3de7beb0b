"""Every listing of the command line, over a ledger in which whatever can hold a text holds one."""

from __future__ import annotations

import functools
import unicodedata

import msgspec

from holdfast.core.alert import Alert, AlertAction, AlertActionKind, AlertSeverity, VerdictKind
from holdfast.core.audit import Actor, AuditOutcome, Door
from holdfast.core.campaign import Campaign, CampaignSpec, ItemPhase, ItemRecord, Phase
from holdfast.core.campaign_checkpoint import CampaignCheckpoint, CampaignCheckpointKind, pack_places
from holdfast.core.flow import Flow, FlowMode, FlowNode, NodePlan
from holdfast.core.flow_definition import place_of
from holdfast.core.ids import BootId, CampaignId, new_alert_id, new_boot_id, new_flow_id
from holdfast.core.manifest import Interruption, InterruptionKind, Manifest
from holdfast.core.start_record import StartRecord, StartStep, StepRecord
from holdfast.core.task import Failure, Origin
from holdfast.core.transitions import (
    AlertActionStatus,
    AlertStatus,
    CampaignStatus,
    DeliveryStatus,
    FlowNodeStatus,
    FlowStatus,
    ItemStatus,
)
from holdfast.engine.ledger.campaign_progress import count_new
from holdfast.store import Store, Tx, Write
from tests.builders import START, a_delivery, a_message, a_restart, a_session, a_task
from tests.doors.test_tasks import hostile_ledger

SESSION = "agent:ada:main"
CAMPAIGN = "camp_" + "0" * 26
# What shows more than one record, and the parts of what shows one. TASK, CHECKPOINT and EFFECT are ids.
LISTINGS: dict[str, tuple[str, ...]] = {
    "tasks list": ("tasks", "list"),
    "tasks by text": ("tasks", "--text", "a"),
    "tasks show": ("tasks", "show", "TASK"),
    "tasks steps": ("tasks", "steps", "TASK"),
    "tasks flow list": ("tasks", "flow", "list"),
    "tasks flow show": ("tasks", "flow", "show", "FLOW"),
    "campaign list": ("campaign", "list"),
    "campaign show": ("campaign", "show", CAMPAIGN),
    "campaign items": ("campaign", "items", CAMPAIGN),
    "campaign item": ("campaign", "item", CAMPAIGN, "repo-1"),
    "progress": ("progress",),
    "progress by category": ("progress", "--by", "category"),
    "progress by batch": ("progress", "--by", "batch"),
    "progress sample": ("progress", "--sample", "2"),
    "tasks audit": ("tasks", "audit"),
    "tasks maintenance": ("tasks", "maintenance"),
    "sessions list": ("sessions", "list", "--all-agents"),
    "sessions tasks": ("sessions", "tasks", SESSION),
    "agents list": ("agents", "list"),
    "status --recovery": ("status", "--recovery"),
    "tokens list": ("tokens", "list"),
    "reviews list": ("reviews", "list"),
    "reviews show": ("reviews", "show", "eff"),
    "questions list": ("questions", "list"),
    "cron list": ("cron", "list", "--all"),
    "cron history": ("cron", "history"),
    "deliveries list": ("deliveries", "list"),
    "deliveries list --owed": ("deliveries", "list", "--owed"),
    "checkpoints list": ("checkpoints", "list"),
    "checkpoints of campaigns": ("checkpoints", "list", "--campaigns"),
    "micro checkpoints": ("checkpoints", "list", "--campaign", "camp_1", "--kind", "micro"),
    "checkpoints show, of a campaign": ("checkpoints", "show", "checkpoint-"),
    "checkpoints restore": ("checkpoints", "restore", "checkpoint-"),
    "wakes list": ("wakes", "list"),
    "wakes history": ("wakes", "history"),
    "alerts list": ("alerts", "list", "--all"),
    "alerts rules": ("alerts", "rules"),
    "alerts check": ("alerts", "check"),
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
        step = StepRecord(step=StartStep.RESUME, began_at=START, ended_at=START, notes=(text,), error=text)
        boot_id = BootId(new_boot_id(START))
        tx.starts.save(
            StartRecord(boot_id=boot_id, role=text, host=text, pid=1, began_at=START, steps=(step,))
        )

    store.write_now(write)
    store.write_now(hostile_flow(text))
    store.write_now(hostile_campaign(text))
    store.write_now(hostile_alert(text))
    store.write_now(hostile_campaign_checkpoint(text))
    return task_id, checkpoint_id


def hostile_campaign_checkpoint(text: str) -> Write[None]:
    """A checkpoint of a campaign as a damaged disk may have left it, with this text in it."""
    spec = CampaignSpec(phases=(Phase(name=text, task=text, role=text),), goal=text)
    campaign = Campaign(
        id=CampaignId("camp_1"), name=text, owner=text, spec=spec, created_at=START, updated_at=START
    )
    counts = {"total": 3, "done": 1, "percent": 33.33, text: text}
    checkpoint = CampaignCheckpoint(
        id="",
        campaign_id=campaign.id,
        number=1,
        kind=CampaignCheckpointKind.MILESTONE,
        name=text,
        phase=0,
        batch=1,
        items=3,
        recoverable=True,
        summary=msgspec.json.encode({"overall": counts, "phases": [counts | {"phase": text}, text], text: 1}),
        created_at=START,
    )

    def write(tx: Tx) -> None:
        tx.campaigns.create(campaign)
        tx.campaign_checkpoints.create(checkpoint, [pack_places([1], 3)])

    return write


def hostile_alert(text: str) -> Write[None]:
    """An alert as a damaged disk may have left it, with a silence: this text wherever a text can stand."""
    alert = Alert(
        id=new_alert_id(START),
        rule=text,
        kind=VerdictKind.CONDITION,
        subject=text,
        subject_name=text,
        severity=AlertSeverity.CRITICAL,
        condition=text,
        figures={text: 1.5},
        raised_at=START,
        status=AlertStatus.CLEARED,
        why_cleared=text,
        updated_at=START,
        cleared_at=START,
    )
    action = AlertAction(
        alert_id=alert.id,
        action=AlertActionKind.NOTIFY_HUMAN,
        status=AlertActionStatus.FAILED,
        attempts=5,
        due_at=START,
        outcome=text,
        updated_at=START,
    )

    def write(tx: Tx) -> None:
        tx.alerts.create(alert)
        tx.alerts.add_action(action)

    return write


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


def hostile_campaign(text: str) -> Write[None]:
    """The same for a campaign: its phase, its item and the reason of its pause."""
    phase = Phase(name=text, task=text, role=text, stages=(text,))
    campaign = Campaign(
        id=CampaignId(CAMPAIGN),
        name=f"{text} again",
        owner=text,
        spec=CampaignSpec(phases=(phase,), goal=text),
        created_at=START,
        updated_at=START,
        status=CampaignStatus.PAUSED,
        items=1,
        batches=1,
        reason=text,
    )
    item = ItemRecord(
        campaign_id=campaign.id,
        place=0,
        id="repo-1",
        name=text,
        priority="P0",
        category=text,
        batch=1,
        contents=msgspec.json.encode({text: text}),
        created_at=START,
    )
    row = ItemPhase(
        campaign_id=campaign.id,
        phase=0,
        place=0,
        priority="P0",
        category=text,
        batch=1,
        status=ItemStatus.PENDING,
        updated_at=START,
    )
    failed = msgspec.structs.replace(
        row, status=ItemStatus.FAILED, error=text, summary=msgspec.json.encode({text: text})
    )

    def write(tx: Tx) -> None:
        tx.campaigns.create(campaign)
        tx.items.create_many([item])
        tx.item_phases.create_many([row])
        tx.item_phases.end([failed], now=START)
        count_new(tx, [msgspec.structs.replace(row, category=text.replace("\x00", ""))])

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
