"""The tables of allowed moves for every noun that has a status."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from holdfast.core.errors import IllegalMove


class TaskStatus(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    NEEDS_REVIEW = "needs_review"
    PAUSED = "paused"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    LOST = "lost"


class RunStatus(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    PAUSED_FOR_RESTART = "paused_for_restart"
    RESUMING = "resuming"
    RESUMED = "resumed"
    FAILED_RESUME = "failed_resume"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    LOST = "lost"


class CheckpointStatus(StrEnum):
    PAUSED_FOR_RESTART = "paused_for_restart"
    RESUMING = "resuming"
    RESUMED = "resumed"
    FAILED_RESUME = "failed_resume"


class EffectStatus(StrEnum):
    INTENT = "intent"
    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"
    CONFIRMED = "confirmed"


class DeliveryStatus(StrEnum):
    PENDING = "pending"
    ATTEMPTING = "attempting"
    DELIVERED = "delivered"
    SESSION_QUEUED = "session_queued"
    FAILED = "failed"
    PARENT_MISSING = "parent_missing"
    NOT_APPLICABLE = "not_applicable"
    DISMISSED = "dismissed"


class FlowStatus(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    BLOCKED = "blocked"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"


class FlowNodeStatus(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class CampaignStatus(StrEnum):
    DRAFT = "draft"
    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    FAILED = "failed"


class ItemStatus(StrEnum):
    """The status of one item in one phase of a campaign."""

    PENDING = "pending"
    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    FAILED = "failed"


class AlertStatus(StrEnum):
    RAISED = "raised"
    SILENCED = "silenced"
    CLEARED = "cleared"


class AlertActionStatus(StrEnum):
    PENDING = "pending"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"


class SessionStatus(StrEnum):
    IDLE = "idle"
    PROCESSING = "processing"
    DRAINING = "draining"
    INTERRUPTED = "interrupted"
    WAITING = "waiting"


class WakeStatus(StrEnum):
    PENDING = "pending"
    FIRED = "fired"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class MessageStatus(StrEnum):
    QUEUED = "queued"
    TAKEN = "taken"
    ANSWERED = "answered"
    FAILED = "failed"
    NOTED = "noted"


class FiringStatus(StrEnum):
    DUE = "due"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    MISSED = "missed"
    REQUEUED = "requeued"


class RestartStatus(StrEnum):
    DRAINING = "draining"
    DRAINED = "drained"
    BLOCKED = "blocked"
    RECOVERED = "recovered"


T, R, C, E = TaskStatus, RunStatus, CheckpointStatus, EffectStatus
D, F, S, W = DeliveryStatus, FlowStatus, SessionStatus, WakeStatus
N, K, M = FlowNodeStatus, CampaignStatus, ItemStatus

_TASK_ENDS = frozenset({T.FAILED, T.TIMED_OUT, T.CANCELLED, T.LOST})
_RUN_ENDS = frozenset({R.FAILED, R.TIMED_OUT, R.CANCELLED, R.LOST})
_FLOW_ENDS = frozenset({F.FAILED, F.CANCELLED, F.LOST})

TASK_MOVES: Mapping[TaskStatus, frozenset[TaskStatus]] = {
    T.QUEUED: frozenset({T.RUNNING, T.PAUSED}) | _TASK_ENDS,
    # Back to queued when its run was released, resumed or is to be retried.
    T.RUNNING: frozenset({T.QUEUED, T.WAITING, T.NEEDS_REVIEW, T.PAUSED, T.SUCCEEDED}) | _TASK_ENDS,
    T.WAITING: frozenset({T.QUEUED, T.RUNNING, T.NEEDS_REVIEW, T.PAUSED}) | _TASK_ENDS,
    T.NEEDS_REVIEW: frozenset({T.QUEUED, T.RUNNING, T.PAUSED}) | _TASK_ENDS,
    T.PAUSED: frozenset({T.QUEUED, T.RUNNING, T.NEEDS_REVIEW}) | _TASK_ENDS,
    T.SUCCEEDED: frozenset(),
    T.FAILED: frozenset(),
    T.TIMED_OUT: frozenset(),
    T.CANCELLED: frozenset(),
    T.LOST: frozenset(),
}

# Moves that only an operator makes: `holdfast tasks retry` reopens a task, `holdfast checkpoints retry`
# reopens a failed resume and pauses its task. A parent that is retried continues with its children.
TASK_REOPENS: Mapping[TaskStatus, frozenset[TaskStatus]] = {
    T.FAILED: frozenset({T.PAUSED, T.QUEUED}),
    T.TIMED_OUT: frozenset({T.QUEUED}),
    T.CANCELLED: frozenset({T.QUEUED}),
    T.LOST: frozenset({T.QUEUED}),
}

RUN_MOVES: Mapping[RunStatus, frozenset[RunStatus]] = {
    R.QUEUED: frozenset({R.RUNNING}) | _RUN_ENDS,
    R.RUNNING: frozenset({R.QUEUED, R.WAITING, R.PAUSED_FOR_RESTART, R.SUCCEEDED}) | _RUN_ENDS,
    # A wake makes it queued; directly to running only for work that an external producer executes.
    R.WAITING: frozenset({R.QUEUED, R.RUNNING}) | _RUN_ENDS,
    R.PAUSED_FOR_RESTART: frozenset({R.RESUMING, R.FAILED_RESUME, R.CANCELLED}),
    R.RESUMING: frozenset({R.RESUMED, R.FAILED_RESUME, R.PAUSED_FOR_RESTART, R.CANCELLED}),
    R.RESUMED: frozenset(),
    R.FAILED_RESUME: frozenset(),
    R.SUCCEEDED: frozenset(),
    R.FAILED: frozenset(),
    R.TIMED_OUT: frozenset(),
    R.CANCELLED: frozenset(),
    R.LOST: frozenset(),
}

CHECKPOINT_MOVES: Mapping[CheckpointStatus, frozenset[CheckpointStatus]] = {
    C.PAUSED_FOR_RESTART: frozenset({C.RESUMING, C.FAILED_RESUME}),
    # Back to paused when the resuming process died before it created the follow-up run.
    C.RESUMING: frozenset({C.RESUMED, C.FAILED_RESUME, C.PAUSED_FOR_RESTART}),
    C.RESUMED: frozenset(),
    C.FAILED_RESUME: frozenset(),  # an operator's retry writes a new checkpoint that names this one
}

EFFECT_MOVES: Mapping[EffectStatus, frozenset[EffectStatus]] = {
    E.INTENT: frozenset({E.DONE, E.FAILED, E.UNKNOWN}),
    # Verification or a person found out whether it happened.
    E.UNKNOWN: frozenset({E.CONFIRMED, E.FAILED}),
    E.DONE: frozenset(),
    # A retry is a new effect with a higher generation. Unknown again when its failure ended the run, or when
    # its key can no longer be used: an exception does not prove that nothing happened.
    E.FAILED: frozenset({E.UNKNOWN}),
    E.CONFIRMED: frozenset(),
}

DELIVERY_MOVES: Mapping[DeliveryStatus, frozenset[DeliveryStatus]] = {
    D.PENDING: frozenset({D.ATTEMPTING, D.SESSION_QUEUED, D.PARENT_MISSING, D.NOT_APPLICABLE, D.DISMISSED}),
    # Back to pending when the sender died before it recorded how the attempt ended.
    D.ATTEMPTING: frozenset({D.PENDING, D.DELIVERED, D.SESSION_QUEUED, D.FAILED, D.PARENT_MISSING}),
    D.SESSION_QUEUED: frozenset({D.DELIVERED, D.FAILED, D.DISMISSED}),
    # To delivered when a person found out that it had arrived.
    D.FAILED: frozenset({D.PENDING, D.DELIVERED, D.DISMISSED}),
    D.DELIVERED: frozenset(),
    D.PARENT_MISSING: frozenset({D.DISMISSED}),
    D.NOT_APPLICABLE: frozenset(),
    D.DISMISSED: frozenset(),
}

FLOW_MOVES: Mapping[FlowStatus, frozenset[FlowStatus]] = {
    # To succeeded when a producer reports the end of work whose start it never reported.
    F.QUEUED: frozenset({F.RUNNING, F.WAITING, F.BLOCKED, F.SUCCEEDED}) | _FLOW_ENDS,
    F.RUNNING: frozenset({F.QUEUED, F.WAITING, F.BLOCKED, F.SUCCEEDED}) | _FLOW_ENDS,
    F.WAITING: frozenset({F.QUEUED, F.RUNNING, F.BLOCKED, F.SUCCEEDED}) | _FLOW_ENDS,
    F.BLOCKED: frozenset({F.QUEUED, F.RUNNING, F.WAITING}) | _FLOW_ENDS,
    F.SUCCEEDED: frozenset(),
    F.FAILED: frozenset(),
    F.CANCELLED: frozenset(),
    F.LOST: frozenset(),
}

# A mirrored flow follows its task, also when an operator reopens the task.
FLOW_REOPENS: Mapping[FlowStatus, frozenset[FlowStatus]] = {
    F.FAILED: frozenset({F.QUEUED}),
    F.CANCELLED: frozenset({F.QUEUED}),
    F.LOST: frozenset({F.QUEUED}),
}

FLOW_NODE_MOVES: Mapping[FlowNodeStatus, frozenset[FlowNodeStatus]] = {
    # To failed when its task cannot be created: the result that it takes is gone.
    N.PENDING: frozenset({N.RUNNING, N.FAILED}),
    N.RUNNING: frozenset({N.SUCCEEDED, N.FAILED, N.CANCELLED}),
    N.SUCCEEDED: frozenset(),
    # An operator retries its task.
    N.FAILED: frozenset({N.RUNNING}),
    N.CANCELLED: frozenset({N.RUNNING}),
}

CAMPAIGN_MOVES: Mapping[CampaignStatus, frozenset[CampaignStatus]] = {
    K.DRAFT: frozenset({K.RUNNING}),
    K.RUNNING: frozenset({K.PAUSED, K.DONE, K.FAILED}),
    K.PAUSED: frozenset({K.RUNNING}),
    # Late items, a retry or a restore let it go on.
    K.DONE: frozenset({K.RUNNING}),
    K.FAILED: frozenset({K.RUNNING}),
}

ITEM_MOVES: Mapping[ItemStatus, frozenset[ItemStatus]] = {
    M.PENDING: frozenset({M.RUNNING, M.PAUSED}),
    M.RUNNING: frozenset({M.DONE, M.FAILED, M.PAUSED}),
    M.PAUSED: frozenset({M.PENDING, M.RUNNING, M.DONE, M.FAILED}),
    # A restore of an earlier milestone makes it pending again, as a new task.
    M.DONE: frozenset({M.PENDING}),
    # A retry makes it pending; running when an operator reopened its task.
    M.FAILED: frozenset({M.PENDING, M.RUNNING, M.PAUSED}),
}

ALERT_MOVES: Mapping[AlertStatus, frozenset[AlertStatus]] = {
    AlertStatus.RAISED: frozenset({AlertStatus.SILENCED, AlertStatus.CLEARED}),
    # Back to raised when the silence of its rule is over and the condition is still true.
    AlertStatus.SILENCED: frozenset({AlertStatus.RAISED, AlertStatus.CLEARED}),
    AlertStatus.CLEARED: frozenset(),  # the next time the condition is true is another alert
}

ALERT_ACTION_MOVES: Mapping[AlertActionStatus, frozenset[AlertActionStatus]] = {
    AlertActionStatus.PENDING: frozenset(
        {AlertActionStatus.DONE, AlertActionStatus.FAILED, AlertActionStatus.SKIPPED}
    ),
    AlertActionStatus.DONE: frozenset(),
    AlertActionStatus.FAILED: frozenset(),
    AlertActionStatus.SKIPPED: frozenset(),
}

SESSION_MOVES: Mapping[SessionStatus, frozenset[SessionStatus]] = {
    S.IDLE: frozenset({S.PROCESSING, S.WAITING, S.DRAINING}),
    S.PROCESSING: frozenset({S.IDLE, S.WAITING, S.DRAINING, S.INTERRUPTED}),
    S.DRAINING: frozenset({S.IDLE, S.INTERRUPTED}),
    S.INTERRUPTED: frozenset({S.IDLE, S.PROCESSING, S.WAITING}),
    S.WAITING: frozenset({S.IDLE, S.PROCESSING, S.DRAINING, S.INTERRUPTED}),
}

WAKE_MOVES: Mapping[WakeStatus, frozenset[WakeStatus]] = {
    W.PENDING: frozenset({W.FIRED, W.CANCELLED, W.EXPIRED}),
    W.FIRED: frozenset(),
    W.CANCELLED: frozenset(),
    W.EXPIRED: frozenset(),
}

RESTART_MOVES: Mapping[RestartStatus, frozenset[RestartStatus]] = {
    # Recovered without having been drained: the gateway died during the drain.
    RestartStatus.DRAINING: frozenset(
        {RestartStatus.DRAINED, RestartStatus.BLOCKED, RestartStatus.RECOVERED}
    ),
    RestartStatus.DRAINED: frozenset({RestartStatus.RECOVERED}),
    RestartStatus.BLOCKED: frozenset(),
    RestartStatus.RECOVERED: frozenset(),
}

MESSAGE_MOVES: Mapping[MessageStatus, frozenset[MessageStatus]] = {
    # Noted when its sender withdrew it.
    MessageStatus.QUEUED: frozenset({MessageStatus.TAKEN, MessageStatus.NOTED}),
    # Never back to queued: later messages of its session would be answered first.
    MessageStatus.TAKEN: frozenset({MessageStatus.ANSWERED, MessageStatus.FAILED}),
    MessageStatus.ANSWERED: frozenset(),
    # An operator retried the checkpoint of its task, and the task answered after all.
    MessageStatus.FAILED: frozenset({MessageStatus.ANSWERED}),
    MessageStatus.NOTED: frozenset(),  # part of the transcript, and needs no answer
}

FIRING_MOVES: Mapping[FiringStatus, frozenset[FiringStatus]] = {
    FiringStatus.DUE: frozenset({FiringStatus.RUNNING, FiringStatus.MISSED, FiringStatus.FAILED}),
    FiringStatus.RUNNING: frozenset({FiringStatus.DONE, FiringStatus.FAILED, FiringStatus.REQUEUED}),
    FiringStatus.REQUEUED: frozenset({FiringStatus.RUNNING, FiringStatus.DONE, FiringStatus.FAILED}),
    FiringStatus.DONE: frozenset(),
    # Its message was answered after all, or the firing was queued again.
    FiringStatus.FAILED: frozenset({FiringStatus.DONE, FiringStatus.REQUEUED}),
    FiringStatus.MISSED: frozenset(),
}

Status = TypeVar("Status", bound=StrEnum)
# A table for callers that know only that a record has some status.
Moves = Mapping[StrEnum, frozenset[StrEnum]]


def _of_any_status(table: Mapping[Status, frozenset[Status]]) -> Moves:
    """The same table with a wider type: the keys of a Mapping are invariant. A type checker refuses a table
    with a status of another noun."""
    return dict(table.items())


# By noun.
MOVES: Mapping[str, Moves] = {
    "task": _of_any_status(TASK_MOVES),
    "run": _of_any_status(RUN_MOVES),
    "checkpoint": _of_any_status(CHECKPOINT_MOVES),
    "effect": _of_any_status(EFFECT_MOVES),
    "delivery": _of_any_status(DELIVERY_MOVES),
    "flow": _of_any_status(FLOW_MOVES),
    "node": _of_any_status(FLOW_NODE_MOVES),
    "campaign": _of_any_status(CAMPAIGN_MOVES),
    "item": _of_any_status(ITEM_MOVES),
    "alert": _of_any_status(ALERT_MOVES),
    "action": _of_any_status(ALERT_ACTION_MOVES),
    "session": _of_any_status(SESSION_MOVES),
    "wake": _of_any_status(WAKE_MOVES),
    "message": _of_any_status(MESSAGE_MOVES),
    "firing": _of_any_status(FIRING_MOVES),
    "restart": _of_any_status(RESTART_MOVES),
}

# Moves that only a retry makes, by noun. The tests hold the guards of the queries against both tables.
REOPENS: Mapping[str, Moves] = {
    "task": _of_any_status(TASK_REOPENS),
    "flow": _of_any_status(FLOW_REOPENS),
}


def is_terminal(status: StrEnum) -> bool:
    """Whether the tables of moves have no way out of this status."""
    return not _table_of(status)[status]


def sources_of(to: StrEnum) -> tuple[str, ...]:
    """Every status from which a record may become `to`, sorted: the guard of the UPDATE."""
    return tuple(sorted(status.value for status, ways in _table_of(to).items() if to in ways))


def move(noun: str, record_id: str, status: Status, to: Status) -> Status:
    """The new status, if the table allows it."""
    if to not in MOVES[noun][status]:
        raise IllegalMove(noun, record_id, status.value, to.value)
    return to


def _table_of(status: StrEnum) -> Moves:
    return _TABLES[type(status)]


_TABLES: Mapping[type[StrEnum], Moves] = {type(next(iter(table))): table for table in MOVES.values()}
