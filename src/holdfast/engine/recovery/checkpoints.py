"""Builds a checkpoint from a run and its journal, saves it, and pauses the run."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

import msgspec

from holdfast.core.checkpoint import (
    Checkpoint,
    CheckpointDocument,
    CheckpointKind,
    ResumeReason,
    encode_document,
)
from holdfast.core.claim import Claim
from holdfast.core.clock import Clock
from holdfast.core.errors import (
    BadInput,
    CannotSeal,
    CheckpointNotSaved,
    KeyLost,
    PageDamaged,
    RowDamaged,
    StoreUnavailable,
)
from holdfast.core.events import EventKind
from holdfast.core.ids import CheckpointId, RunId, new_checkpoint_id
from holdfast.core.payload import check_text
from holdfast.core.plan import Cursor, Plan
from holdfast.core.redaction import redact_text
from holdfast.core.run import RunRecord
from holdfast.core.step import NoteKind
from holdfast.core.task import Task
from holdfast.core.transitions import CheckpointStatus, TaskStatus
from holdfast.engine.ledger.inputs import check_choice, check_claim, check_claims
from holdfast.engine.ledger.ledger import DEFAULT_RETENTION, fail_damaged
from holdfast.store import Store, Tx, Write
from holdfast.store.blobs import pack
from holdfast.store.journal import JournalHead

# The run did not cause these restarts, so they count no attempt.
_BLAMELESS = frozenset({ResumeReason.EXPLICIT_RESTART, ResumeReason.CONFIG_RELOAD, ResumeReason.SIGNAL})
_NO_STEPS = JournalHead()
_NO_RUNS: Mapping[str, str] = MappingProxyType({})


class Paused(msgspec.Struct, frozen=True, kw_only=True):
    """What a pause saved, and the claims that had been lost before it."""

    checkpoints: tuple[Checkpoint, ...]
    lost: tuple[Claim, ...]


class Checkpoints:
    """Saves checkpoints of runs that this process has claimed."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def pause(
        self,
        claims: Sequence[Claim],
        reason: ResumeReason,
        *,
        kind: CheckpointKind = CheckpointKind.RESTART,
        note: str | None = None,
        asking: Mapping[str, str] = _NO_RUNS,
    ) -> Paused:
        """Save a checkpoint of each run and raise its fence, in one commit: later writes are refused.

        `asking` are the runs that asked for the restart themselves, each with its reason. Raises
        CheckpointNotSaved, which names the runs, if the commit failed or its outcome is unknown: the process
        must not stop then.
        """
        now = self._clock.now()
        try:
            try:
                return await self._store.write(
                    pausing(claims, reason, now=now, kind=kind, note=note, asking=asking)
                )
            except (PageDamaged, CannotSeal) as problem:
                # Only one run may be the cause: pause each alone, so that the others are saved.
                if len(claims) > 1:
                    alone = [
                        await self.pause([one], reason, kind=kind, note=note, asking=asking) for one in claims
                    ]
                    return Paused(
                        checkpoints=tuple(saved for one in alone for saved in one.checkpoints),
                        lost=tuple(claim for one in alone for claim in one.lost),
                    )
                if isinstance(problem, CannotSeal):
                    raise
                await self._store.write(_ending_damaged(claims[0], problem, now=now))
                return Paused(checkpoints=(), lost=())
        except (StoreUnavailable, PageDamaged) as error:
            named = [claim.run_id for claim in claims]
            run_ids = ", ".join(named[:3]) + (", …" if len(named) > 3 else "")
            raise CheckpointNotSaved(run_ids, str(error)) from error

    async def record(self, claim: Claim, kind: CheckpointKind, name: str) -> Checkpoint:
        """Save a milestone, a batch or a periodic checkpoint of a run that goes on. It is never resumed."""
        return await self._store.write(recording(claim, kind, name, now=self._clock.now()))


def _ending_damaged(claim: Claim, damage: PageDamaged, *, now: datetime) -> Write[None]:
    def end(tx: Tx) -> None:
        for run in tx.runs.lock_running([claim.run_id]):
            if run.fence == claim.fence:
                fail_damaged(tx, run, damage, now=now, retention=DEFAULT_RETENTION)

    return end


def pausing(
    claims: Sequence[Claim],
    reason: ResumeReason,
    *,
    now: datetime,
    kind: CheckpointKind = CheckpointKind.RESTART,
    note: str | None = None,
    asking: Mapping[str, str] = _NO_RUNS,
) -> Write[Paused]:
    """The write that saves a checkpoint of each run and raises its fence."""
    claims = check_claims(claims)
    kind = check_choice("kind", kind, CheckpointKind)
    reason = check_choice("reason", reason, ResumeReason)
    if not kind.is_resumable:
        raise BadInput("kind", f"a {kind.value} checkpoint pauses nothing")
    note = None if note is None else check_text("note", note)
    wanted = {claim.run_id: (claim, new_checkpoint_id(now)) for claim in claims}

    def pause(tx: Tx) -> Paused:
        running = {run.id: run for run in tx.runs.lock_running(list(wanted))}
        ours = [
            running[run_id]
            for run_id, (claim, _) in wanted.items()
            if run_id in running and running[run_id].fence == claim.fence
        ]
        ids = {run.id: wanted[run.id][1] for run in ours}
        others = [run for run in ours if run.id not in asking]
        saved = save_and_pause(tx, others, ids, kind=kind, reason=reason, now=now, note=note)
        for run in ours:
            if run.id in asking:
                facts: dict[str, Any] = {"kind": kind, "reason": ResumeReason.REQUIRES_RESTART, "now": now}
                saved += save_and_pause(tx, [run], ids, note=asking[run.id], **facts)
        rest = [pair for run_id, pair in wanted.items() if run_id not in ids]
        # Either this write has committed before and its answer was lost, or the claim was lost.
        before = [tx.checkpoints.find(checkpoint_id) for _, checkpoint_id in rest]
        return Paused(
            checkpoints=(*saved, *(found for found in before if found is not None)),
            lost=tuple(claim for (claim, _), found in zip(rest, before, strict=True) if found is None),
        )

    return pause


def recording(claim: Claim, kind: CheckpointKind, name: str, *, now: datetime) -> Write[Checkpoint]:
    """The write that records a checkpoint of a run that goes on."""
    check_claim(claim)
    kind = check_choice("kind", kind, CheckpointKind)
    if kind.is_resumable:
        raise BadInput("kind", f"a {kind.value} checkpoint pauses its run; use pause")
    note = check_text("name", name)
    checkpoint_id = new_checkpoint_id(now)

    def record(tx: Tx) -> Checkpoint:
        found = tx.checkpoints.find(checkpoint_id)
        if found is not None:
            return found
        tx.journal.require(claim)
        run = tx.runs.get(claim.run_id)
        reason = ResumeReason.SCHEDULED_PROGRESS
        (checkpoint,) = build(
            tx, [run], {run.id: checkpoint_id}, kind=kind, reason=reason, now=now, note=note
        )
        tx.checkpoints.create_many([checkpoint])
        tx.emit(EventKind.CHECKPOINT_SAVED, checkpoint.id, at=now, task_id=run.task_id, saved=kind.value)
        return checkpoint

    return record


def save_and_pause(
    tx: Tx,
    runs: Sequence[RunRecord],
    ids: Mapping[RunId, CheckpointId],
    *,
    kind: CheckpointKind,
    reason: ResumeReason,
    now: datetime,
    note: str | None = None,
    company: int | None = None,
    retention: timedelta = DEFAULT_RETENTION,
) -> list[Checkpoint]:
    """Save checkpoints of running runs that this transaction has locked, and pause the runs and their tasks.

    A run with a damaged record gets no checkpoint: it fails, with the reason.
    """
    if not runs:
        return []
    facts: dict[str, Any] = {"kind": kind, "reason": reason, "now": now, "note": note, "company": company}
    try:
        saved = build(tx, runs, ids, **facts)
    except RowDamaged:
        saved = [one for run in runs for one in _build_or_fail(tx, run, ids, retention=retention, **facts)]
    tx.checkpoints.create_many(saved)
    tx.runs.pause([one.run_id for one in saved], now=now)
    tx.tasks.move_many(
        [one.task_id for one in saved], TaskStatus.RUNNING, TaskStatus.PAUSED, now=now, waits_on="resume"
    )
    for one in saved:
        tx.emit(
            EventKind.RUN_PAUSED,
            one.run_id,
            at=now,
            task_id=one.task_id,
            checkpoint_id=one.id,
            reason=reason.value,
        )
    tx.hint("checkpoints")
    return saved


def _build_or_fail(
    tx: Tx, run: RunRecord, ids: Mapping[RunId, CheckpointId], *, retention: timedelta, **facts: Any
) -> list[Checkpoint]:
    try:
        return build(tx, [run], ids, **facts)
    except RowDamaged as damage:
        fail_damaged(tx, run, damage, now=facts["now"], retention=retention)
        return []


def build(
    tx: Tx,
    runs: Sequence[RunRecord],
    ids: Mapping[RunId, CheckpointId],
    *,
    kind: CheckpointKind,
    reason: ResumeReason,
    now: datetime,
    note: str | None = None,
    company: int | None = None,
) -> list[Checkpoint]:
    """One checkpoint per run, from the ledger. Raises RowDamaged."""
    found = documents(tx, runs, ids, kind=kind, reason=reason, now=now, note=note, company=company)
    return [to_checkpoint(tx, task, document, now=now) for task, document in found]


def documents(
    tx: Tx,
    runs: Sequence[RunRecord],
    ids: Mapping[RunId, CheckpointId],
    *,
    kind: CheckpointKind,
    reason: ResumeReason,
    now: datetime,
    note: str | None = None,
    company: int | None = None,
) -> list[tuple[Task, CheckpointDocument]]:
    """The task and the document of each run, from the ledger: five queries, however many runs.

    Titles of plans are stored as they are, for the program, so they are redacted here; everything else was
    redacted when it was stored. Raises RowDamaged: damaged data must not get a new, valid digest.
    """
    task_ids = [run.task_id for run in runs]
    tasks = tx.tasks.get_many(task_ids)
    heads = tx.journal.heads(task_ids)
    plans = _plans(tx, task_ids)
    artifacts = tx.journal.artifacts(task_ids)
    notes = tx.journal.notes(task_ids)
    built = []
    for run in runs:
        if run.is_damaged:
            raise RowDamaged("run", run.id)
        task, head = tasks[run.task_id], heads.get(run.task_id, _NO_STEPS)
        if task.is_damaged:
            raise RowDamaged("task", task.id)
        planner, plan = plans.get(run.task_id, (None, None))
        has_progressed = run.id in head.written_by or planner == run.id
        document = CheckpointDocument(
            checkpoint_id=ids[run.id],
            task_id=run.task_id,
            run_id=run.id,
            run_number=run.number,
            boot_id=run.claimed_by,
            kind=kind,
            reason=reason,
            created_at=now,
            owner=task.owner,
            account_id=None if task.origin is None else task.origin.account_id,
            origin=task.origin,
            session_key=task.session_key,
            task_name=task.name,
            task_key=task.dedup_key,
            goal=task.goal,
            plan=None if plan is None else _fit_to_show(plan),
            cursor=Cursor(last_completed=head.last_step) if plan is None else plan.cursor,
            steps_saved=head.steps_saved,
            progress=task.progress,
            artifacts=tuple(artifacts.get(run.task_id, ())),
            decisions=tuple(one for one in notes.get(run.task_id, ()) if one.kind is NoteKind.DECISION),
            tool_context=tuple(
                one for one in notes.get(run.task_id, ()) if one.kind is NoteKind.TOOL_CONTEXT
            ),
            idle_attempts=_idle_attempts(run, reason, has_progressed=has_progressed),
            was_alone=run.is_alone,
            company=company,
            note=note,
        )
        built.append((task, document))
    return built


def _plans(tx: Tx, task_ids: Sequence[str]) -> dict[str, tuple[str, Plan]]:
    """The plans that can be read. If a task's key is lost, its checkpoint becomes failed_resume later."""
    try:
        return tx.journal.plans(task_ids)
    except KeyLost:
        found: dict[str, tuple[str, Plan]] = {}
        for task_id in task_ids:
            with contextlib.suppress(KeyLost):
                found |= tx.journal.plans([task_id])
        return found


def _fit_to_show(plan: Plan) -> Plan:
    return Plan(
        items=tuple(msgspec.structs.replace(item, title=redact_text(item.title)) for item in plan.items)
    )


def to_checkpoint(tx: Tx, task: Task, document: CheckpointDocument, *, now: datetime) -> Checkpoint:
    """The record of a document. A large document becomes a blob in the same transaction."""
    return Checkpoint(
        id=document.checkpoint_id,
        task_id=document.task_id,
        run_id=document.run_id,
        kind=document.kind,
        reason=document.reason,
        document=tx.blobs.keep(document.task_id, pack(encode_document(document), tx.sealing)),
        retry_of=document.retry_of,
        created_at=now,
        status=CheckpointStatus.PAUSED_FOR_RESTART if document.kind.is_resumable else None,
        priority=task.priority,
        updated_at=now,
        wake_id=document.wake_id,
    )


def _idle_attempts(run: RunRecord, reason: ResumeReason, *, has_progressed: bool) -> int:
    if has_progressed:
        return 0
    return run.idle_attempts if reason in _BLAMELESS else run.idle_attempts + 1
