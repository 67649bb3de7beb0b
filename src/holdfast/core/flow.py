"""Flow, FlowMode and FlowNode: state above several tasks, guarded by a revision; its cancel is sticky."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from holdfast.core.errors import KeyLost, RowDamaged
from holdfast.core.ids import FlowId, TaskId
from holdfast.core.task import DEFAULT_PRIORITY, Failure, RuntimeName
from holdfast.core.transitions import FlowNodeStatus, FlowStatus, TaskStatus, is_terminal

# The largest state document and the largest wait document.
MAX_DOCUMENT_BYTES = 256 * 1024


class FlowMode(StrEnum):
    MANAGED = "managed"
    TASK_MIRRORED = "task_mirrored"


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """State above several tasks. A managed flow has a definition, whose nodes Holdfast starts in order, or a
    controller, which updates it. A mirrored one only follows its tasks."""

    id: FlowId
    owner: str
    mode: FlowMode
    goal: str
    created_at: datetime
    status: FlowStatus = FlowStatus.QUEUED
    revision: int = 1
    current_step: str | None = None
    # The state document of its controller, as JSON.
    contents: bytes | None = None
    waits_on: str | None = None
    blocked_by_task_id: TaskId | None = None
    cancel_requested_at: datetime | None = None
    updated_at: datetime
    ended_at: datetime | None = None
    # None only in flows of an earlier schema.
    name: str | None = None
    controller: str | None = None
    dedup_key: str | None = None
    # The wait document of its controller, as JSON: what the flow waits for.
    wait: bytes | None = None
    failure: Failure | None = None
    cancel_reason: str | None = None
    # The token of the last update, by which an update that runs again after its own commit knows itself.
    change_token: str | None = None
    # How many nodes its definition has; 0 for a flow without one.
    nodes: int = 0
    # How many of its tasks are alive, and how the others ended. `failed` includes timed-out tasks, and nodes
    # that could not be started.
    live: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    lost: int = 0
    cleanup_after: datetime | None = None
    # No key opens its documents; SEALED replaces them.
    is_sealed: bool = False

    @property
    def has_ended(self) -> bool:
        return is_terminal(self.status)

    @property
    def has_nodes(self) -> bool:
        """Whether it has a definition, so that Holdfast itself starts its tasks."""
        return self.nodes > 0

    @property
    def is_mirrored(self) -> bool:
        return self.mode is FlowMode.TASK_MIRRORED

    @property
    def unsuccessful(self) -> int:
        """How many of its tasks ended without success, or could not be started."""
        return self.failed + self.cancelled + self.lost

    def checked(self) -> Flow:
        """Itself. Raises KeyLost if no key opens its documents."""
        if self.is_sealed:
            raise KeyLost("flow", self.id)
        return self


class NeededResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a node, or a part of it, as an argument of another node."""

    # Where it goes in the arguments, and which part of the result it is.
    to: tuple[str | int, ...]
    node: str
    path: tuple[str | int, ...] = ()


class NodePlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a node does: its task and arguments, the nodes that it needs, and the places of those that need
    it."""

    task: str
    arguments: object = {}
    results: tuple[NeededResult, ...] = ()
    needs: tuple[str, ...] = ()
    # The places of the nodes that need this one, so that its end touches only those.
    dependents: tuple[str, ...] = ()
    # The places of the nodes whose results it takes, in the order of `results`.
    sources: tuple[str, ...] = ()
    goal: str | None = None
    priority: int = DEFAULT_PRIORITY
    runtime: RuntimeName = RuntimeName.PYTHON


class FlowNode(msgspec.Struct, frozen=True, kw_only=True):
    """One node of a flow: the plan of a task, and the task once it has started."""

    flow_id: FlowId
    # Its number in the definition, with leading zeros: nodes are listed in this order.
    place: str
    id: str
    # JSON of a NodePlan.
    plan: bytes
    created_at: datetime
    status: FlowNodeStatus = FlowNodeStatus.PENDING
    # How many of its needs have not succeeded yet.
    unmet: int = 0
    task_id: TaskId | None = None
    # Why it could not be started; the failure of a started one is its task's.
    failure: Failure | None = None
    updated_at: datetime
    is_damaged: bool = False
    # No key opens its plan.
    is_sealed: bool = False

    def read_plan(self) -> NodePlan:
        """Raises RowDamaged if it was changed since it was written, KeyLost if no key opens it."""
        name = f"{self.flow_id} {self.id}"
        if self.is_damaged:
            raise RowDamaged("flow node", name)
        if self.is_sealed:
            raise KeyLost("flow node", name)
        try:
            return msgspec.json.decode(self.plan, type=NodePlan)
        except msgspec.DecodeError as error:
            raise RowDamaged("flow node", name, str(error)) from error


class TaskChangeKind(StrEnum):
    JOINED = "joined"
    BEGAN = "began"
    ENDED = "ended"
    REOPENED = "reopened"


class TaskChange(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to a task of a flow. `status` is its end, or the end from which it was reopened."""

    kind: TaskChangeKind
    task_id: TaskId
    at: datetime
    status: TaskStatus | None = None
    # Its producer says that something blocks what follows.
    is_blocked: bool = False
    # Whether a worker of Holdfast executes it; then its start is not told.
    is_executed_here: bool = False


def node_key(flow_id: str, node_id: str) -> str:
    """The dedup key of a node's task."""
    return f"{flow_id}:{node_id}"
