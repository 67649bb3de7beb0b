"""Records for tests: sensible unless told otherwise, and in any status that the schema permits."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, TypeVar

from holdfast.core.checkpoint import (
    Checkpoint,
    CheckpointDocument,
    CheckpointKind,
    ResumeReason,
    encode_document,
)
from holdfast.core.claim import Boot, Claim
from holdfast.core.clock import to_micros
from holdfast.core.delivery import Delivery
from holdfast.core.effect import Effect, EffectClass
from holdfast.core.flow import Flow, FlowMode, FlowNode
from holdfast.core.ids import (
    BootId,
    DeliveryId,
    EffectId,
    FiringId,
    FlowId,
    MessageId,
    RestartId,
    SessionId,
    WakeId,
    new_checkpoint_id,
    new_id,
    new_run_id,
    new_task_id,
)
from holdfast.core.manifest import Manifest, Restart
from holdfast.core.message import Message, Role
from holdfast.core.plan import Cursor, Plan, PlanItem
from holdfast.core.run import TASK_STATUS_OF, RunRecord
from holdfast.core.schedule import Firing, Wake, WakeReason
from holdfast.core.session import Session
from holdfast.core.step import Artifact, ArtifactKind, Note, NoteKind, Step
from holdfast.core.task import DEFAULT_PRIORITY, Failure, RuntimeName, Task
from holdfast.core.transitions import (
    CheckpointStatus,
    DeliveryStatus,
    EffectStatus,
    FiringStatus,
    FlowStatus,
    MessageStatus,
    RunStatus,
    SessionStatus,
    TaskStatus,
    WakeStatus,
    is_terminal,
)
from holdfast.store import Store, Tx

T = TypeVar("T")

START = datetime(2026, 1, 1, tzinfo=UTC)
LEASE = timedelta(seconds=30)
BOOT = BootId("boot_one")
OTHER_BOOT = BootId("boot_two")
FAILURE = Failure(kind="test", message="it broke")

_numbers = count(1)


def unique() -> str:
    """Something that no other test has used."""
    return f"{next(_numbers):06d}"


def later(**by: float) -> datetime:
    return START + timedelta(**by)


def a_boot(**changes: Any) -> Boot:
    boot: dict[str, Any] = {"id": BOOT, "host": "here", "pid": 1, "role": "worker", "started_at": START}
    return Boot(**boot | changes)


def a_task(**changes: Any) -> Task:
    now = changes.get("created_at", START)
    status = changes.get("status", TaskStatus.QUEUED)
    task: dict[str, Any] = {
        "id": new_task_id(now),
        "owner": "ada",
        "runtime": RuntimeName.PYTHON,
        "name": "research",
        "goal": "find out how tides work",
        "arguments": b'["tides"]',
        "created_at": now,
        "updated_at": now,
        "ended_at": now if is_terminal(status) else None,
    }
    return Task(**task | changes)


def a_run(task: Task, **changes: Any) -> RunRecord:
    """A run of the task; what its status demands is filled in."""
    now = changes.get("created_at", START)
    status = changes.get("status", RunStatus.QUEUED)
    is_running = status is RunStatus.RUNNING
    run: dict[str, Any] = {
        "id": new_run_id(now),
        "task_id": task.id,
        "task_name": task.name,
        "number": 1,
        "created_at": now,
        "priority": task.priority,
        "due_at": now,
        "claimed_by": BOOT if is_running else None,
        "claim_token": f"token_{unique()}" if is_running else None,
        "fence": 1 if is_running else 0,
        "lease_until": now + LEASE if is_running else None,
        "waits_on": "a person" if status is RunStatus.WAITING else None,
        "updated_at": now,
        "ended_at": now if is_terminal(status) else None,
    }
    return RunRecord(**run | changes)


def a_checkpoint(run: RunRecord, **changes: Any) -> Checkpoint:
    """A checkpoint of the run; its document agrees with it."""
    now = changes.get("created_at", START)
    checkpoint_id = changes.get("id", new_checkpoint_id(now))
    kind = changes.get("kind", CheckpointKind.RESTART)
    status = changes.get("status", CheckpointStatus.PAUSED_FOR_RESTART if kind.is_resumable else None)
    document = CheckpointDocument(
        checkpoint_id=checkpoint_id,
        task_id=run.task_id,
        run_id=run.id,
        run_number=run.number,
        kind=kind,
        reason=ResumeReason.SIGNAL,
        created_at=now,
        owner="ada",
        task_name=run.task_name,
        goal="find out how tides work",
        cursor=Cursor(),
    )
    is_resuming = status is CheckpointStatus.RESUMING
    checkpoint: dict[str, Any] = {
        "id": checkpoint_id,
        "task_id": run.task_id,
        "run_id": run.id,
        "kind": kind,
        "reason": ResumeReason.SIGNAL,
        "document": encode_document(document),
        "created_at": now,
        "status": status,
        "priority": DEFAULT_PRIORITY,
        "token": f"token_{unique()}" if is_resuming else None,
        "claimed_by": BOOT if is_resuming else None,
        "lease_until": now + LEASE if is_resuming else None,
        "resumed_run_id": new_run_id(now) if status is CheckpointStatus.RESUMED else None,
        "updated_at": now,
    }
    return Checkpoint(**checkpoint | changes)


def a_step(run: RunRecord, **changes: Any) -> Step:
    step: dict[str, Any] = {
        "task_id": run.task_id,
        "name": "look",
        "run_id": run.id,
        "seq": 1,
        "result": b'"seen"',
        "started_us": to_micros(START),
        "ended_us": to_micros(START),
    }
    return Step(**step | changes)


def plan_of(*titles: str) -> Plan:
    """A plan whose items have their titles as ids."""
    return Plan(items=tuple(PlanItem(id=title, title=title) for title in titles))


def an_artifact(**changes: Any) -> Artifact:
    artifact: dict[str, Any] = {
        "name": "report",
        "kind": ArtifactKind.FILE,
        "sha256": "0" * 64,
        "size_bytes": 3,
        "path": "/tmp/report",
        "recorded_at": START,
    }
    return Artifact(**artifact | changes)


def a_note(**changes: Any) -> Note:
    note: dict[str, Any] = {"kind": NoteKind.DECISION, "text": "use the tables", "written_at": START}
    return Note(**note | changes)


def an_effect(**changes: Any) -> Effect:
    effect: dict[str, Any] = {
        "id": EffectId(new_id("eff", START)),
        "task_id": "task_x",
        "run_id": "run_x",
        "name": "send",
        "occurrence": unique(),
        "effect_class": EffectClass.OPAQUE,
        "idempotency_key": f"key_{unique()}",
        "request": b"[]",
        "created_us": to_micros(START),
        "status": EffectStatus.INTENT,
        "fence": 1,
        "updated_us": to_micros(START),
    }
    return Effect(**effect | changes)


def a_delivery(**changes: Any) -> Delivery:
    delivery: dict[str, Any] = {
        "id": DeliveryId(new_id("dlv", START)),
        "task_id": "task_x",
        "idempotency_key": f"key_{unique()}",
        "message": b'"done"',
        "created_at": START,
        "status": DeliveryStatus.PENDING,
        "due_at": START,
        "updated_at": START,
    }
    return Delivery(**delivery | changes)


def a_flow(**changes: Any) -> Flow:
    status = changes.get("status", FlowStatus.QUEUED)
    flow: dict[str, Any] = {
        "id": FlowId(new_id("flow", START)),
        "owner": "ada",
        "mode": FlowMode.MANAGED,
        "goal": "a book about the sea",
        "created_at": START,
        "status": status,
        "updated_at": START,
        "ended_at": START if is_terminal(status) else None,
    }
    return Flow(**flow | changes)


def a_flow_node(**changes: Any) -> FlowNode:
    node: dict[str, Any] = {
        "flow_id": FlowId(new_id("flow", START)),
        "place": "00000",
        "id": "build",
        "plan": b'{"task":"build"}',
        "created_at": START,
        "updated_at": START,
    }
    return FlowNode(**node | changes)


def a_session(**changes: Any) -> Session:
    session: dict[str, Any] = {
        "id": SessionId(new_id("sess", START)),
        "key": f"agent:scholar:{unique()}",
        "agent": "scholar",
        "created_at": START,
        "status": SessionStatus.IDLE,
        "updated_at": START,
    }
    return Session(**session | changes)


def a_message(**changes: Any) -> Message:
    message: dict[str, Any] = {
        "id": MessageId(new_id("msg", START)),
        "session_key": "agent:scholar:main",
        "position": int(unique()),
        "role": Role.USER,
        "channel": "console",
        "body": b'"how do tides work?"',
        "created_at": START,
        "status": MessageStatus.QUEUED,
        "updated_at": START,
    }
    return Message(**message | changes)


def a_firing(**changes: Any) -> Firing:
    firing: dict[str, Any] = {
        "id": FiringId(new_id("fire", START)),
        "schedule": f"schedule_{unique()}",
        "occurrence_at": START,
        "session_key": "agent:scholar:cron",
        "created_at": START,
        "status": FiringStatus.DUE,
        "updated_at": START,
    }
    return Firing(**firing | changes)


def a_wake(**changes: Any) -> Wake:
    wake: dict[str, Any] = {
        "id": WakeId(new_id("wake", START)),
        "task_id": "task_x",
        "reason": WakeReason.TIMEOUT_RECOVERY,
        "created_at": START,
        "status": WakeStatus.PENDING,
        "due_at": START,
        "updated_at": START,
    }
    return Wake(**wake | changes)


def a_restart(**changes: Any) -> Restart:
    restart_id = changes.get("id", new_id("rst", START))
    restart: dict[str, Any] = {
        "id": RestartId(restart_id),
        "boot_id": BOOT,
        "place": "here",
        "requested_at": START,
        "manifest": Manifest(
            timestamp="2026-03-29T23:25:30Z",
            reason="config-change",
            triggered_by="agent:main:main",
            restart_id=restart_id,
        ),
        "updated_at": START,
    }
    return Restart(**restart | changes)


def write(store: Store, act: Callable[[Tx], T]) -> T:
    """`store.write_now` for lambdas: the type checker looks inside those of a plain callable only."""
    return store.write_now(act)


def due_by(store: Store, moment: datetime) -> list[Delivery]:
    """What may be sent by then, through any channel."""

    def read(tx: Tx) -> list[Delivery]:
        looks = [
            tx.deliveries.due(name, now=moment, limit=99) for name in tx.deliveries.waiting_channels(limit=99)
        ]
        return [delivery for look in looks for delivery in look.deliveries]

    return store.read_now(read)


def put(tx: Tx, task: Task, *runs: RunRecord, checkpoints: tuple[Checkpoint, ...] = ()) -> None:
    """A task with its runs and checkpoints, just as they are."""
    tx.tasks.create(task)
    for run in runs:
        tx.runs.create(run)
    tx.checkpoints.create_many(checkpoints)


def stored_run(
    store: Store, status: RunStatus = RunStatus.QUEUED, *, task: dict[str, Any] | None = None, **changes: Any
) -> RunRecord:
    """A run in the ledger, with its task in the status that fits."""
    its_task = a_task(**{"status": TASK_STATUS_OF.get(status, TaskStatus.QUEUED)} | (task or {}))
    run = a_run(its_task, status=status, **changes)
    store.write_now(lambda tx: put(tx, its_task, run))
    return run


def running_run(store: Store, **changes: Any) -> tuple[RunRecord, Claim]:
    """A run that BOOT carries, and the claim that proves it."""
    run = stored_run(store, RunStatus.RUNNING, **changes)
    return run, claim_of(run)


def claim_of(run: RunRecord) -> Claim:
    assert run.claimed_by is not None
    assert run.lease_until is not None
    return Claim(
        run_id=run.id,
        task_id=run.task_id,
        boot_id=run.claimed_by,
        fence=run.fence,
        lease_until=run.lease_until,
    )


def stored_checkpoint(
    store: Store, status: CheckpointStatus = CheckpointStatus.PAUSED_FOR_RESTART, **changes: Any
) -> Checkpoint:
    """A checkpoint in the ledger, with the run that it pauses."""
    task = a_task(status=TASK_STATUS_OF.get(RunStatus(status), TaskStatus.QUEUED))
    run = a_run(task, status=RunStatus(status))
    checkpoint = a_checkpoint(run, status=status, **changes)
    store.write_now(lambda tx: put(tx, task, run, checkpoints=(checkpoint,)))
    return checkpoint
