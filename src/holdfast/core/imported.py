"""ImportedTask and ImportedRecord: work of another gateway, and which record of this ledger it became."""

from __future__ import annotations

import hashlib
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from holdfast.core.flow import FlowMode
from holdfast.core.ids import id_from
from holdfast.core.payload import digest_of
from holdfast.core.recorded import ScopeKind, TerminalOutcome
from holdfast.core.task import NotifyPolicy, Origin, RuntimeName
from holdfast.core.transitions import DeliveryStatus, FlowStatus, TaskStatus, is_terminal


class ImportSource(StrEnum):
    """The other gateways whose records can be imported."""

    OPENCLAW = "openclaw"


class ImportedKind(StrEnum):
    TASK = "task"
    FLOW = "flow"


class ActivePolicy(StrEnum):
    """What an import does with work that had not ended in the other gateway."""

    # It is recorded as it is. If no later import tells how it ended, the sweep declares it lost.
    KEEP = "keep"
    # It is recorded as lost.
    LOST = "lost"
    # It is not imported.
    SKIP = "skip"


class ImportChange(StrEnum):
    """What an import does to the record of one row."""

    CREATED = "created"
    # The row tells more than the record, such as the end of work that was running.
    ADVANCED = "advanced"
    UNCHANGED = "unchanged"
    # The row contradicts a record that has ended. An end is never changed.
    IGNORED = "ignored"


class SourceIdentity(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Another record of the same gateway: its id there, and when it was created."""

    source_id: str
    created_at: datetime


class SourceOrigin(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """The origin of a task, with the names that it has outside of the ledger."""

    channel: str
    peer: str | None = None
    account_id: str | None = None
    thread: str | None = None

    def checked(self) -> Origin:
        """Raises BadInput."""
        return Origin(
            channel=self.channel, peer=self.peer, account_id=self.account_id, thread=self.thread
        ).checked()


class ImportedTask(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    rename="camel",
    forbid_unknown_fields=True,
):
    """A task of another gateway, in the words of this ledger."""

    source_id: str
    source_run_id: str | None = None
    runtime: RuntimeName
    name: str
    goal: str
    owner: str
    status: TaskStatus
    scope: ScopeKind = ScopeKind.SYSTEM
    notify: NotifyPolicy = NotifyPolicy.SILENT
    origin: SourceOrigin | None = None
    session_key: str | None = None
    child_session_key: str | None = None
    agent_id: str | None = None
    # What the work belongs to in its gateway, such as the id of a schedule.
    work_id: str | None = None
    parent: SourceIdentity | None = None
    flow: SourceIdentity | None = None
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    last_event_at: datetime | None = None
    cleanup_after: datetime | None = None
    error: str | None = None
    progress_summary: str | None = None
    terminal_summary: str | None = None
    terminal_outcome: TerminalOutcome | None = None
    tool_use_count: int = 0
    last_tool_name: str | None = None
    # What became of the update to its requester; None if it needed none.
    delivery: DeliveryStatus | None = None
    delivery_why: str | None = None
    # What the ledger has no column for, as the other gateway has it.
    rest: dict[str, Any] = {}

    @property
    def has_ended(self) -> bool:
        return is_terminal(self.status)

    @property
    def digest(self) -> bytes:
        """Equal rows have equal digests, in every import."""
        return digest_of(msgspec.json.encode(self))


class ImportedFlow(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    rename="camel",
    forbid_unknown_fields=True,
):
    """A flow of another gateway, in the words of this ledger."""

    source_id: str
    mode: FlowMode
    owner: str
    goal: str
    # Of a managed flow: the program that updates it there.
    controller: str | None = None
    status: FlowStatus
    revision: int = 1
    current_step: str | None = None
    # The documents of the controller, as JSON text.
    contents_json: str | None = None
    wait_json: str | None = None
    blocked_by: SourceIdentity | None = None
    blocked_why: str | None = None
    cancel_requested_at: datetime | None = None
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None = None
    rest: dict[str, Any] = {}

    @property
    def has_ended(self) -> bool:
        return is_terminal(self.status)

    @property
    def digest(self) -> bytes:
        """Equal rows have equal digests, in every import."""
        return digest_of(msgspec.json.encode(self))


class ImportedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Which record of this ledger a record of another gateway became."""

    source: ImportSource
    noun: ImportedKind
    source_id: str
    record_id: str
    source_run_id: str | None = None
    imported_at: datetime
    # The write that created it.
    first_batch_id: str
    row_digest: bytes
    # The write that took over its newest state.
    batch_id: str
    # What a flow has no column for, as JSON.
    rest: bytes | None = None
    # When to forget a record that retention has deleted; None while it exists.
    expires_at: datetime | None = None


class ImportOutcome(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What became of one row."""

    source_id: str
    change: ImportChange
    record_id: str
    why: str | None = None

    @property
    def is_new(self) -> bool:
        """Whether the ledger has changed."""
        return self.change in (ImportChange.CREATED, ImportChange.ADVANCED)


def imported_id(prefix: str, source: ImportSource, source_id: str, created_at: datetime) -> str:
    """The id of an imported record: it sorts by its time of creation, and every import makes the same one."""
    chance = hashlib.blake2b(f"{source.value}:{prefix}:{source_id}".encode(), digest_size=10).digest()
    return id_from(prefix, created_at, chance)
