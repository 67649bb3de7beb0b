"""Finding: one thing that an audit found wrong, with its evidence and the command that helps."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

import msgspec

# One piece of evidence: a time in ISO 8601, a name, a number.
Fact: TypeAlias = str | float | None


class FindingCode(StrEnum):
    """What is wrong. Programs match it, so a code is never renamed."""

    STALE_QUEUED = "stale_queued"
    STALE_RUNNING = "stale_running"
    LOST = "lost"
    DELIVERY_FAILED = "delivery_failed"
    MISSING_CLEANUP = "missing_cleanup"
    INCONSISTENT_TIMESTAMPS = "inconsistent_timestamps"
    # A task that has not ended, and that no live process carries.
    NO_OWNER = "no_owner"
    # A task that waits for something that can never happen.
    NO_WAKER = "no_waker"
    # A task that none of the living workers can run.
    UNKNOWN_TASK = "unknown_task"
    # Reports of a producer that the ledger did not get.
    RECORDS_DROPPED = "records_dropped"
    # A producer reported another end after its record had ended.
    LATE_REPORT = "late_report"
    # Recorded work without the facts by which it can be found again, proved alive or reported.
    WEAK_METADATA = "weak_metadata"
    # A run works for long and has saved nothing: an interruption would lose all of it.
    LONG_RUN_WITHOUT_CHECKPOINT = "long_run_without_checkpoint"
    CLOCK_SKEW = "clock_skew"
    # Of flows, which also use `stale_running` and `inconsistent_timestamps`; `noun` tells them apart.
    # The record of a flow that cannot be read.
    RESTORE_FAILED = "restore_failed"
    STALE_WAITING = "stale_waiting"
    STALE_BLOCKED = "stale_blocked"
    # A flow whose cancel was requested, and that does not end.
    CANCEL_STUCK = "cancel_stuck"
    # A flow that counts tasks that do not exist, or that mirrors none.
    MISSING_LINKED_TASKS = "missing_linked_tasks"
    BLOCKED_TASK_MISSING = "blocked_task_missing"
    # A rule of alerts that cannot be evaluated now, such as for a division by zero.
    ALERT_RULE_FAILED = "alert_rule_failed"
    # A schedule that does not fire, because no gateway has its agent or task.
    SCHEDULE_WITHOUT_TARGET = "schedule_without_target"


class Severity(StrEnum):
    WARNING = "warning"
    ERROR = "error"


# By the beginning of an id.
_NOUNS = {"task": "task", "flow": "flow", "dlv": "delivery", "alert": "alert"}


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that an audit found wrong. An audit changes nothing."""

    code: FindingCode
    severity: Severity
    # The records that it is about, the most important first; empty if it is about the whole ledger.
    record_ids: tuple[str, ...] = ()
    message: str
    evidence: dict[str, Fact] = {}
    # The command that repairs it, or the first one to run; None if there is none.
    repair: str | None = None

    @property
    def noun(self) -> str:
        """What it is about: a `task`, a `flow`, a `delivery`, an `alert`, or the whole `ledger`."""
        first = self.record_ids[0] if self.record_ids else ""
        return _NOUNS.get(first.partition("_")[0], "ledger")
