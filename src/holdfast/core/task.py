"""Task, RuntimeName, NotifyPolicy and Origin: one piece of requested work."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from holdfast.core.errors import KeyLost, RowDamaged
from holdfast.core.ids import TaskId
from holdfast.core.payload import check_name
from holdfast.core.transitions import TaskStatus, is_terminal

DEFAULT_PRIORITY = 5
LOWEST_PRIORITY = 9


class RuntimeName(StrEnum):
    """What does the work. Holdfast executes the first three; for the others it only keeps the record."""

    PYTHON = "python"
    COMMAND = "command"
    AGENT = "agent"
    SUBAGENT = "subagent"
    ACP = "acp"
    CRON = "cron"
    CLI = "cli"
    MEDIA = "media"

    @property
    def is_executed_here(self) -> bool:
        return self in {RuntimeName.PYTHON, RuntimeName.COMMAND, RuntimeName.AGENT}


class NotifyPolicy(StrEnum):
    SILENT = "silent"
    DONE_ONLY = "done_only"
    STATE_CHANGES = "state_changes"


class Origin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Channel, account and peer from which the request came."""

    channel: str
    peer: str | None = None
    account_id: str | None = None
    thread: str | None = None

    def checked(self) -> Origin:
        named = {name: getattr(self, name) for name in self.__struct_fields__}
        return Origin(
            **{
                name: check_name(f"origin.{name}", value)
                for name, value in named.items()
                if value is not None or name == "channel"
            }
        )


class Progress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The progress that a task reports."""

    done: int = 0
    total: int | None = None
    failed: int = 0
    subtask: str | None = None


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A structured error: its kind, its message, and the facts that help."""

    kind: str
    message: str
    facts: dict[str, object] = {}


class Task(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One piece of detached work that a caller requested. It outlives every run."""

    id: TaskId
    owner: str
    runtime: RuntimeName
    name: str
    goal: str
    arguments: bytes
    origin: Origin | None = None
    session_key: str | None = None
    parent_task_id: TaskId | None = None
    flow_id: str | None = None
    dedup_key: str | None = None
    notify: NotifyPolicy = NotifyPolicy.DONE_ONLY
    created_at: datetime
    status: TaskStatus = TaskStatus.QUEUED
    priority: int = DEFAULT_PRIORITY
    waits_on: str | None = None
    progress: Progress | None = None
    result: bytes | None = None
    failure: Failure | None = None
    cancel_requested_at: datetime | None = None
    cancel_reason: str | None = None
    updated_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    cleanup_after: datetime | None = None
    # The campaign of which it does one item in one phase.
    campaign_id: str | None = None
    # True when the stored bytes do not match their digest: it may be shown, never executed.
    is_damaged: bool = False
    # No key opens its arguments or its result; SEALED replaces them.
    is_sealed: bool = False

    def checked(self) -> Task:
        """Itself. Raises RowDamaged if its bytes do not match its digest, KeyLost if no key opens it."""
        if self.is_damaged:
            raise RowDamaged("task", self.id)
        if self.is_sealed:
            raise KeyLost("task", self.id)
        return self

    @property
    def has_ended(self) -> bool:
        return is_terminal(self.status)
