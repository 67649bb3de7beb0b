"""What happened: the vocabulary of the feed, of logs and of metrics."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec


class EventKind(StrEnum):
    """Past tense, one per fact."""

    TASK_CREATED = "task_created"
    TASK_CANCEL_REQUESTED = "task_cancel_requested"
    TASK_NOTIFY_CHANGED = "task_notify_changed"
    TASK_ENDED = "task_ended"
    TASK_REOPENED = "task_reopened"
    TASK_FORKED = "task_forked"
    TASK_PRUNED = "task_pruned"
    TASK_SWEPT = "task_swept"
    RUN_CLAIMED = "run_claimed"
    RUN_RELEASED = "run_released"
    RUN_WAITED = "run_waited"
    RUN_WOKEN = "run_woken"
    RUN_PAUSED = "run_paused"
    RUN_LIMITED = "run_limited"
    RUN_RETRIED = "run_retried"
    RUN_ENDED = "run_ended"
    STEP_RETRIED = "step_retried"
    STEP_DRIFTED = "step_drifted"
    EFFECT_IN_DOUBT = "effect_in_doubt"
    EFFECT_SEEN_LATE = "effect_seen_late"
    EFFECT_REVIEWED = "effect_reviewed"
    QUESTION_ASKED = "question_asked"
    QUESTION_ANSWERED = "question_answered"
    MAIL_SENT = "mail_sent"
    PROGRAM_TOLD = "program_told"
    TASK_MIGRATED = "task_migrated"
    CHECKPOINT_SAVED = "checkpoint_saved"
    CHECKPOINT_CLAIMED = "checkpoint_claimed"
    CHECKPOINT_RETURNED = "checkpoint_returned"
    CHECKPOINT_RESUMED = "checkpoint_resumed"
    CHECKPOINT_FAILED = "checkpoint_failed"
    FLOW_CREATED = "flow_created"
    FLOW_MOVED = "flow_moved"
    FLOW_UPDATED = "flow_updated"
    FLOW_BLOCKED = "flow_blocked"
    FLOW_CANCEL_REQUESTED = "flow_cancel_requested"
    FLOW_ENDED = "flow_ended"
    FLOW_REOPENED = "flow_reopened"
    FLOW_NODE_STARTED = "flow_node_started"
    WAKE_SCHEDULED = "wake_scheduled"
    WAKE_FIRED = "wake_fired"
    WAKE_CANCELLED = "wake_cancelled"
    WAKE_REPORTED = "wake_reported"
    AGENT_HANDED_OVER = "agent_handed_over"
    AGENT_CHECKPOINT_REFUSED = "agent_checkpoint_refused"
    ARTIFACT_DIFFERED = "artifact_differed"
    DONE_CHECKED = "done_checked"
    FLOW_SWEPT = "flow_swept"
    FLOW_PRUNED = "flow_pruned"
    MESSAGE_POSTED = "message_posted"
    MESSAGE_FAILED = "message_failed"
    DELIVERY_SENT = "delivery_sent"
    DELIVERY_FAILED = "delivery_failed"
    DELIVERY_QUEUED = "delivery_queued"
    DELIVERY_DISMISSED = "delivery_dismissed"
    DELIVERY_CONFIRMED = "delivery_confirmed"
    DELIVERY_RETRIED = "delivery_retried"
    SCHEDULE_FIRED = "schedule_fired"
    SCHEDULE_MISSED = "schedule_missed"
    SCHEDULE_ADDED = "schedule_added"
    SCHEDULE_CHANGED = "schedule_changed"
    SCHEDULE_PAUSED = "schedule_paused"
    SCHEDULE_RESUMED = "schedule_resumed"
    SCHEDULE_REMOVED = "schedule_removed"
    RESTART_BEGUN = "restart_begun"
    RESTART_BLOCKED = "restart_blocked"
    RESTART_DRAINED = "restart_drained"
    RESTART_RECOVERED = "restart_recovered"
    BOOT_STARTED = "boot_started"
    BOOT_ENDED = "boot_ended"
    STORE_ACCEPTED = "store_accepted"
    UPDATE_IGNORED = "update_ignored"
    RECORDS_DROPPED = "records_dropped"
    RECORDS_IMPORTED = "records_imported"


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened to one record, with its position in the feed."""

    position: str
    at: datetime
    kind: EventKind
    task_id: str | None
    subject_id: str
    facts: dict[str, object]
