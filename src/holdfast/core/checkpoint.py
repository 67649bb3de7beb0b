"""Checkpoint, its document, kinds and reasons; validation on read."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

import msgspec

from holdfast.core.errors import CheckpointUnreadable
from holdfast.core.ids import BootId, CheckpointId, RunId, TaskId, WakeId
from holdfast.core.plan import Cursor, Plan
from holdfast.core.step import Artifact, ArtifactState, Note
from holdfast.core.task import Failure, Origin, Progress
from holdfast.core.transitions import CheckpointStatus

if TYPE_CHECKING:
    from holdfast.core.wake_contract import ResumePacket

SCHEMA_VERSION = 1
# The default; settings and tasks may set another number.
DEFAULT_MAX_IDLE_ATTEMPTS = 5


class CheckpointKind(StrEnum):
    """The first four are only recorded; the last three have a status and can be resumed."""

    MICRO = "micro"
    BATCH = "batch"
    MILESTONE = "milestone"
    PERIODIC = "periodic"
    RESTART = "restart"
    CRASH = "crash"
    TIMEOUT = "timeout"

    @property
    def is_resumable(self) -> bool:
        return self in {CheckpointKind.RESTART, CheckpointKind.CRASH, CheckpointKind.TIMEOUT}


class ResumeReason(StrEnum):
    EXPLICIT_RESTART = "explicit_restart"
    CONFIG_RELOAD = "config_reload"
    REQUIRES_RESTART = "requires_restart"
    SIGNAL = "signal"
    CRASH = "crash"
    TIMEOUT = "timeout"
    # The reasons of wakes.
    TIMEOUT_RECOVERY = "timeout_recovery"
    DEPENDENCY_READY = "dependency_ready"
    SCHEDULED_PROGRESS = "scheduled_progress"


class CheckpointDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The saved facts from which a follow-up run can continue. Written once; the digest covers its bytes."""

    schema: Literal["holdfast.checkpoint"] = "holdfast.checkpoint"
    version: Literal[1] = 1
    checkpoint_id: CheckpointId
    task_id: TaskId
    run_id: RunId
    run_number: int
    boot_id: BootId | None = None
    kind: CheckpointKind
    reason: ResumeReason
    policy: Literal["at_most_once"] = "at_most_once"
    created_at: datetime
    owner: str
    account_id: str | None = None
    origin: Origin | None = None
    session_key: str | None = None
    task_name: str
    # The key of the task, which its requester may have chosen.
    task_key: str | None = None
    goal: str
    plan: Plan | None = None
    cursor: Cursor
    steps_saved: int = 0
    progress: Progress | None = None
    artifacts: tuple[Artifact, ...] = ()
    decisions: tuple[Note, ...] = ()
    tool_context: tuple[Note, ...] = ()
    # Attempts without progress up to and including the run that this checkpoint ends.
    idle_attempts: int = 0
    # Whether the run was a suspect, executed alone.
    was_alone: bool = False
    # How many runs its process was executing when it died.
    company: int | None = None
    note: str | None = None
    retry_of: CheckpointId | None = None
    # The wake that it waits for, if its run was saved before its time limit.
    wake_id: WakeId | None = None
    # Of a run with a time limit: what must hold when the task is done, and what of it did not hold when its
    # program last came to its end.
    done_criteria: tuple[str, ...] = ()
    unmet: tuple[str, ...] = ()

    @property
    def packet(self) -> ResumePacket:
        """What a follow-up run is told, in the words of the contract for long tasks."""
        return _packet_of(self)


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A stored checkpoint: the document as it was written, and the status of its resume."""

    id: CheckpointId
    task_id: TaskId
    run_id: RunId
    kind: CheckpointKind
    reason: ResumeReason
    schema_version: int = SCHEMA_VERSION
    document: bytes
    retry_of: CheckpointId | None = None
    created_at: datetime
    status: CheckpointStatus | None
    priority: int
    token: str | None = None
    claimed_by: BootId | None = None
    lease_until: datetime | None = None
    attempts: int = 0
    resumed_run_id: RunId | None = None
    diagnostic: Failure | None = None
    updated_at: datetime
    # The wake that it waits for: until that fires, it cannot be claimed.
    wake_id: WakeId | None = None
    is_damaged: bool = False

    def read_document(self) -> CheckpointDocument:
        """The document. Raises CheckpointUnreadable: damaged, truncated, wrong schema, or of another run."""
        if self.is_damaged:
            raise CheckpointUnreadable(self.id, "its bytes do not match its digest")
        if self.schema_version != SCHEMA_VERSION:
            raise CheckpointUnreadable(
                self.id, f"it has schema version {self.schema_version}; this Holdfast reads {SCHEMA_VERSION}"
            )
        try:
            document = msgspec.json.decode(self.document, type=CheckpointDocument)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise CheckpointUnreadable(self.id, f"its document is not valid: {error}") from error
        if (document.checkpoint_id, document.task_id, document.run_id) != (
            self.id,
            self.task_id,
            self.run_id,
        ):
            raise CheckpointUnreadable(self.id, f"its document is about {document.run_id}")
        return document


class ArtifactReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of one artifact of a checkpoint when its task was resumed."""

    name: str
    state: ArtifactState
    path: str | None = None
    expected_sha256: str
    found_sha256: str | None = None


class SeedContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a follow-up run starts with: why it exists, how far the work is, the state of its artifacts."""

    checkpoint_id: CheckpointId
    reason: ResumeReason
    previous_run_id: RunId
    goal: str
    plan: Plan | None
    cursor: Cursor
    steps_saved: int
    progress: Progress | None
    decisions: tuple[Note, ...]
    tool_context: tuple[Note, ...]
    artifacts: tuple[ArtifactReport, ...]
    # Whether it belongs to a firing of a schedule that was interrupted and queued again.
    is_retry: bool = False
    task_id: TaskId | None = None
    task_key: str | None = None
    wake_id: WakeId | None = None
    # What must hold when the task is done, and what of it did not hold when it last came to its end.
    done_criteria: tuple[str, ...] = ()
    unmet: tuple[str, ...] = ()

    @property
    def packet(self) -> ResumePacket:
        """The same in the words of the contract for long tasks: objective, next actions, done criteria."""
        return _packet_of(self)


def _packet_of(saved: CheckpointDocument | SeedContext) -> ResumePacket:
    from holdfast.core.wake_contract import ResumePacket, ResumeStep, current_step, known_as, next_actions

    is_timeout = saved.reason is ResumeReason.TIMEOUT
    return ResumePacket(
        task_id=known_as(saved.task_id or "", saved.task_key),
        resume=ResumeStep(
            current_step=current_step(saved.cursor, saved.progress),
            next_actions=next_actions(saved.plan, saved.cursor),
        ),
        done_criteria=list(saved.done_criteria),
        objective=saved.goal,
        checkpoint=saved.checkpoint_id,
        reason=ResumeReason.TIMEOUT_RECOVERY.value if is_timeout else saved.reason.value,
        unmet=list(saved.unmet),
    )


def encode_document(document: CheckpointDocument) -> bytes:
    return msgspec.json.encode(document)


def decode_seed(seed: bytes) -> SeedContext:
    return msgspec.json.decode(seed, type=SeedContext)


def checkpoint_json_schema() -> dict[str, object]:
    """The published JSON Schema of the checkpoint document."""
    schema = msgspec.json.schema(CheckpointDocument)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"holdfast.checkpoint v{SCHEMA_VERSION}",
        **schema,
    }
