"""Turns each paused checkpoint into exactly one follow-up run."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from holdfast.core.checkpoint import (
    DEFAULT_MAX_IDLE_ATTEMPTS,
    ArtifactReport,
    Checkpoint,
    CheckpointDocument,
    CheckpointKind,
    ResumeReason,
    SeedContext,
)
from holdfast.core.claim import DEFAULT_LEASE
from holdfast.core.clock import Clock
from holdfast.core.errors import (
    CheckpointUnreadable,
    HoldfastError,
    IllegalMove,
    KeyLost,
    NotFound,
    PageDamaged,
    ResumesHeld,
    RowDamaged,
    StoreUnavailable,
)
from holdfast.core.events import EventKind
from holdfast.core.flow import TaskChangeKind
from holdfast.core.ids import BootId, RunId, check_id, new_checkpoint_id, new_run_id, new_token
from holdfast.core.payload import check_number, clean_text
from holdfast.core.run import Queue, RunOutcome, RunRecord
from holdfast.core.step import Artifact, ArtifactState
from holdfast.core.task import Failure
from holdfast.core.transitions import CheckpointStatus, RunStatus, TaskStatus
from holdfast.engine.claims.claims import Family
from holdfast.engine.journal.artifacts import checksum
from holdfast.engine.journal.scopes import load_pasts
from holdfast.engine.ledger.ledger import (
    DEFAULT_RETENTION,
    cancel_idle_run,
    end_task,
    tell_campaign,
    tell_flow,
    tell_item_progress,
)
from holdfast.engine.recovery.attempts import recorded_attempts
from holdfast.engine.recovery.checkpoints import to_checkpoint
from holdfast.engine.recovery.reopen import check_flow, go_on_with_children
from holdfast.store import Store, Tx, Write
from holdfast.store.blobs import Packed, pack
from holdfast.store.sealing import has_lost_key

# For tasks that fail for good, as in `execution`.
log = logging.getLogger("holdfast.tasks")

BATCH = 500
MAX_BATCH = 10_000
MAX_CONCURRENCY = 100
# How many batches are resumed at a time, by default.
RESUME_CONCURRENCY = 2
# A checkpoint whose resumers die again and again fails after so many attempts.
MAX_RESUME_ATTEMPTS = 5
_MAX_GOAL_CHARS = 80
# After this many crashes without progress a run is a suspect: its follow-up run runs alone.
SUSPECT_AFTER = 2


class FollowUpRun(msgspec.Struct, frozen=True, kw_only=True):
    """A usable checkpoint, with the run that will continue it."""

    checkpoint: Checkpoint
    document: CheckpointDocument
    run_id: RunId
    seed: Packed
    diagnostic: Failure | None


class UnusableCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint that cannot be resumed, and why."""

    checkpoint: Checkpoint
    failure: Failure


class Resumed(msgspec.Struct, frozen=True, kw_only=True):
    """What one pass did, by checkpoint id."""

    followed_up: dict[str, str] = {}
    failed: dict[str, str] = {}
    cancelled: tuple[str, ...] = ()
    # Among `followed_up`: suspects whose process died while it ran nothing else.
    blamed: tuple[str, ...] = ()
    # Among `followed_up`: nothing was saved, so that they begin from the start; with the goal of each task.
    anew: dict[str, str] = {}

    def __add__(self, other: Resumed) -> Resumed:
        return Resumed(
            followed_up=self.followed_up | other.followed_up,
            failed=self.failed | other.failed,
            cancelled=self.cancelled + other.cancelled,
            blamed=self.blamed + other.blamed,
            anew=self.anew | other.anew,
        )


class Resumer:
    """Resumes checkpoints on behalf of one boot."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        boot_id: BootId,
        *,
        lease: timedelta = DEFAULT_LEASE,
        max_idle_attempts: int = DEFAULT_MAX_IDLE_ATTEMPTS,
        retention: timedelta = DEFAULT_RETENTION,
        concurrency: int = RESUME_CONCURRENCY,
        family: Family | None = None,
    ) -> None:
        self._store = store
        self._family = family
        self._clock = clock
        self._boot_id = boot_id
        # How many batches at a time; a change counts from the next pass on.
        self.concurrency = concurrency
        # Why nothing is resumed for now; None when nothing is held.
        self.held: str | None = None
        self._lease = lease
        self._max_idle_attempts = max_idle_attempts
        self._retention = retention

    async def resume_all(
        self, *, batch: int = BATCH, concurrency: int | None = None, is_allowed: bool = False
    ) -> Resumed:
        """Resume every paused checkpoint, most urgent first: in batches of one transaction each, and
        `concurrency` batches at a time.

        Raises StoreUnavailable if the store did not answer: the checkpoints that were claimed are returned
        when their lease lapses, or when this boot ends.
        """
        lanes_wanted = self.concurrency if concurrency is None else concurrency
        check_number("concurrency", lanes_wanted, low=1, high=MAX_CONCURRENCY)
        if self.held is not None and not is_allowed:
            raise ResumesHeld(self.held, remedy="holdfast gateway resume")
        # In a thread: a shared database has to be read for it, and may not answer.
        held = await asyncio.to_thread(self._store.held_why)
        if held is not None:
            raise ResumesHeld(held)

        async def one_lane() -> Resumed:
            mine = Resumed()
            while claimed := await self.claim(batch):
                mine += await self.settle(claimed)
            return mine

        try:
            async with asyncio.TaskGroup() as group:
                lanes = [group.create_task(one_lane()) for _ in range(lanes_wanted)]
        except ExceptionGroup as errors:
            # All lanes fail for the same reason; callers expect one error, not a group.
            raise errors.exceptions[0] from errors
        return sum((lane.result() for lane in lanes), Resumed())

    async def claim(self, limit: int = BATCH) -> list[Checkpoint]:
        """Claim paused checkpoints, so that no other process resumes them."""
        check_number("limit", limit, low=1, high=MAX_BATCH)
        now, token = self._clock.now(), new_token()

        def claim(tx: Tx) -> list[Checkpoint]:
            mine = tx.checkpoints.with_token(self._boot_id, token)
            if mine:  # this write runs again after its own commit
                return mine
            found = self._pick(tx, limit, token, now)
            tx.runs.set_resuming([one.run_id for one in found], now=now)
            for one in found:
                tx.emit(EventKind.CHECKPOINT_CLAIMED, one.id, at=now, task_id=one.task_id)
            return found

        return await self._store.write(claim)

    def _pick(self, tx: Tx, limit: int, token: str, now: datetime) -> list[Checkpoint]:
        boot_id, lease, family = self._boot_id, self._lease, self._family
        if family is None:
            return tx.checkpoints.claim(boot_id=boot_id, token=token, limit=limit, now=now, lease=lease)
        if family.task_id is None:
            return []
        return tx.checkpoints.claim_of_tree(
            family.task_id, boot_id=boot_id, token=token, limit=limit, now=now, lease=lease
        )

    async def settle(self, claimed: Sequence[Checkpoint]) -> Resumed:
        """Give each claimed checkpoint its follow-up run, or make it failed_resume with a diagnostic."""
        prepared = await self._prepare_all(await self._open_all(claimed), claimed)
        good = [one for one in prepared if isinstance(one, FollowUpRun)]
        done = await self._follow_up(good) if good else Resumed()
        for one in prepared:
            if isinstance(one, UnusableCheckpoint):
                done += await self._fail(one)
        return done

    async def _open_all(self, claimed: Sequence[Checkpoint]) -> list[Checkpoint | UnusableCheckpoint]:
        try:
            return await self._store.read(lambda tx: _open_each(tx, claimed))
        except PageDamaged:
            if len(claimed) == 1:
                return [msgspec.structs.replace(claimed[0], is_damaged=True)]
        # The damaged page may belong to any of them: open each alone, so that the others are resumed.
        return [opened for one in claimed for opened in await self._open_all([one])]

    async def _prepare_all(
        self, opened: Sequence[Checkpoint | UnusableCheckpoint], claimed: Sequence[Checkpoint]
    ) -> list[FollowUpRun | UnusableCheckpoint]:
        """Artifacts may be large, so the claim is renewed while their checksums are computed."""
        prepared: list[FollowUpRun | UnusableCheckpoint] = []
        renewed_at = self._clock.now()
        for one in opened:
            prepared.append(one if isinstance(one, UnusableCheckpoint) else await self._prepare(one))
            now = self._clock.now()
            if now - renewed_at > self._lease / 3:
                await self._store.write(self._renewing(claimed, now))
                renewed_at = now
        return prepared

    def _renewing(self, claimed: Sequence[Checkpoint], now: datetime) -> Write[None]:
        ids, token = [one.id for one in claimed], claimed[0].token or ""
        return lambda tx: tx.checkpoints.renew(ids, token, now=now, lease=self._lease)

    async def _prepare(self, checkpoint: Checkpoint) -> FollowUpRun | UnusableCheckpoint:
        """Read and verify the document, and check the artifacts. Nothing is written or executed."""
        try:
            document = checkpoint.read_document()
        except CheckpointUnreadable as error:
            return UnusableCheckpoint(
                checkpoint=checkpoint, failure=Failure(kind=error.code, message=error.problem)
            )
        refusal = await self._store.read(lambda tx: self._refusal(tx, checkpoint, document))
        if refusal is not None:
            return UnusableCheckpoint(checkpoint=checkpoint, failure=refusal)
        reports = tuple([await _look_at(artifact) for artifact in document.artifacts])
        odd = [one for one in reports if one.state is not ArtifactState.SAME]
        return FollowUpRun(
            checkpoint=checkpoint,
            document=document,
            run_id=new_run_id(self._clock.now()),
            seed=pack(msgspec.json.encode(_seed(document, reports)), self._store.sealing),
            diagnostic=_artifact_diagnostic(odd) if odd else None,
        )

    def _refusal(self, tx: Tx, checkpoint: Checkpoint, document: CheckpointDocument) -> Failure | None:
        """Why the checkpoint is not resumed: too many attempts without progress. Age is never a reason."""
        too_many = too_many_attempts(tx, document, self._max_idle_attempts)
        if too_many is None and checkpoint.attempts > MAX_RESUME_ATTEMPTS:
            message = f"{checkpoint.attempts - 1} processes died before they created the follow-up run"
            return Failure(kind="resume_attempts", message=message, facts=_facts_of(document))
        return too_many

    async def _follow_up(self, good: Sequence[FollowUpRun]) -> Resumed:
        """Create all follow-up runs in one transaction; if that fails, each in its own."""
        try:
            return await self._store.write(self._following_up(good))
        except StoreUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - whatever kept the run from being created is its diagnostic
            if len(good) > 1:
                done = Resumed()
                for one in good:
                    done += await self._follow_up([one])
                return done
            said = clean_text(f"{type(error).__name__}: {error}", max_chars=2000)
            failure = Failure(kind="resume_failed", message=said)
            return await self._fail(UnusableCheckpoint(checkpoint=good[0].checkpoint, failure=failure))

    def _following_up(self, good: Sequence[FollowUpRun]) -> Write[Resumed]:
        """The write that creates and links the follow-up runs, marks the checkpoints and queues the tasks."""
        from holdfast.core.message import plain_line

        now = self._clock.now()
        token = good[0].checkpoint.token or ""

        def follow_up(tx: Tx) -> Resumed:
            held = tx.checkpoints.hold([one.checkpoint.id for one in good], token)
            mine = [one for one in good if one.checkpoint.id in held]
            cancelled = tx.tasks.cancels_requested([one.checkpoint.task_id for one in mine])
            ended = [one for one in mine if one.checkpoint.task_id in cancelled]
            for one in ended:
                self._cancel(tx, one.checkpoint, now)
            going_on = [one for one in mine if one.checkpoint.task_id not in cancelled]
            if going_on:
                self._create_runs(tx, going_on, token, now)
            rest = [one for one in good if one.checkpoint.id not in held]
            before = [(one, tx.checkpoints.get(one.checkpoint.id)) for one in rest]
            # Either this write has committed before and its answer was lost, or another process has it.
            going_on += [one for one, found in before if found.resumed_run_id == one.run_id]
            ended += [one for one, found in before if _was_cancelled(found, now)]
            return Resumed(
                followed_up={one.checkpoint.id: one.run_id for one in going_on},
                cancelled=tuple(one.checkpoint.id for one in ended),
                blamed=tuple(one.checkpoint.id for one in going_on if _is_to_blame(one.document)),
                anew={
                    one.checkpoint.id: plain_line(one.document.goal, _MAX_GOAL_CHARS)
                    for one in going_on
                    if _has_nothing(one.document)
                },
            )

        return follow_up

    def _create_runs(self, tx: Tx, going_on: Sequence[FollowUpRun], token: str, now: datetime) -> None:
        tx.runs.set_resumed([one.checkpoint.run_id for one in going_on], now=now)
        before = tx.runs.get_many([one.checkpoint.run_id for one in going_on])
        tx.runs.create_many(
            [self._next_run(tx, one, before[one.checkpoint.run_id].queue, now) for one in going_on]
        )
        tx.checkpoints.set_resumed(
            [(one.checkpoint.id, one.run_id, one.diagnostic) for one in going_on], token, now=now
        )
        tx.tasks.move_many(
            [one.checkpoint.task_id for one in going_on], TaskStatus.PAUSED, TaskStatus.QUEUED, now=now
        )
        anew = [one.checkpoint.task_id for one in going_on if _has_nothing(one.document)]
        for task in tx.tasks.get_many(anew).values():
            tell_item_progress(tx, task, now=now, note="started anew: nothing was saved")
        for one in going_on:
            tx.emit(
                EventKind.CHECKPOINT_RESUMED,
                one.checkpoint.id,
                at=now,
                task_id=one.checkpoint.task_id,
                run_id=one.run_id,
                resumes_run_id=one.checkpoint.run_id,
                reason=one.document.reason.value,
                is_anew=_has_nothing(one.document),
            )
        tx.hint("runs")

    def _next_run(self, tx: Tx, one: FollowUpRun, queue: Queue, now: datetime) -> RunRecord:
        return RunRecord(
            id=one.run_id,
            task_id=one.checkpoint.task_id,
            task_name=one.document.task_name,
            number=one.document.run_number + 1,
            resumes_run_id=one.checkpoint.run_id,
            checkpoint_id=one.checkpoint.id,
            seed=tx.blobs.keep(one.checkpoint.task_id, one.seed),
            created_at=now,
            priority=one.checkpoint.priority,
            due_at=now,
            # A producer outside goes on with its own work.
            queue=queue if queue is Queue.PRODUCER else Queue.READY,
            # A run that reached its time limit has killed no process.
            is_alone=one.document.idle_attempts >= SUSPECT_AFTER
            and one.document.kind is not CheckpointKind.TIMEOUT,
            idle_attempts=one.document.idle_attempts,
            updated_at=now,
        )

    def _cancel(self, tx: Tx, checkpoint: Checkpoint, now: datetime) -> None:
        """A cancel beats a pause: the task ends here instead of going on."""
        task = tx.tasks.look(checkpoint.task_id)
        failure = Failure(kind="cancelled", message=task.cancel_reason or "cancelled")
        cancel_idle_run(tx, tx.runs.lock(checkpoint.run_id), failure, now=now, retention=self._retention)

    async def _fail(self, one: UnusableCheckpoint) -> Resumed:
        failed = await self._store.write(self._failing(one))
        if failed.failed:
            tell_not_resumed(one.checkpoint, one.failure)
        return failed

    def _failing(self, one: UnusableCheckpoint) -> Write[Resumed]:
        """The write that makes a checkpoint failed_resume, with its run and its task."""
        now = self._clock.now()

        def fail(tx: Tx) -> Resumed:
            checkpoint = tx.checkpoints.lock(one.checkpoint.id)
            answer = Resumed(failed={checkpoint.id: one.failure.message})
            if checkpoint.status is CheckpointStatus.FAILED_RESUME:
                return answer
            if checkpoint.status is not CheckpointStatus.RESUMING or checkpoint.token != one.checkpoint.token:
                return Resumed()
            fail_resume(tx, checkpoint, one.failure, now=now, retention=self._retention)
            return answer

        return fail


def _has_nothing(document: CheckpointDocument) -> bool:
    return not document.steps_saved and document.cursor.last_completed is None


def tell_not_resumed(checkpoint: Checkpoint, failure: Failure) -> None:
    message = " ".join(failure.message.split())
    log.warning(
        "%s failed: %s is not resumed: %s: %s", checkpoint.task_id, checkpoint.id, failure.kind, message
    )


def too_many_attempts(tx: Tx, document: CheckpointDocument, max_idle_attempts: int) -> Failure | None:
    """The failure of a run that made no progress in as many attempts as it may have; None if it may go on."""
    idle, most, facts = (
        document.idle_attempts,
        _most_attempts(tx, document, max_idle_attempts),
        _facts_of(document),
    )
    if idle < most:
        return None
    facts["attempts"] = most
    if _died_alone(document):
        message = f"its process died again while it ran nothing else: attempt {idle} of {most}"
        return Failure(kind="quarantined", message=f"{message} without progress", facts=facts)
    message = f"attempt {idle} of {most} without progress"
    if document.kind is CheckpointKind.TIMEOUT:
        facts["run_timeout"] = document.note
        message += f": {document.note or 'the run used its time and saved no step'}"
        message += '; divide the step, or allow a run more time, such as run_timeout="30m"'
    return Failure(kind="no_progress", message=message, facts=facts)


def _facts_of(document: CheckpointDocument) -> dict[str, object]:
    return {
        "idle_attempts": document.idle_attempts,
        "company": document.company,
        "last_completed": document.cursor.last_completed,
    }


def _most_attempts(tx: Tx, document: CheckpointDocument, max_idle_attempts: int) -> int:
    """How many attempts without progress are too many: as the task sets it, else as the settings do.

    At least so many that the run has run alone once. If the process ran other runs, too, any of them may have
    killed it, so that twice as many attempts are allowed.
    """
    least = SUSPECT_AFTER + 1
    if document.idle_attempts < least:
        return least
    named = recorded_attempts(tx, document.task_name)
    most = max(max_idle_attempts if named is None else named, least)
    is_shared = document.reason is ResumeReason.CRASH and not _died_alone(document)
    return 2 * most if is_shared else most


def fail_resume(
    tx: Tx, checkpoint: Checkpoint, failure: Failure, *, now: datetime, retention: timedelta
) -> None:
    """End the checkpoint, its run and its task, with the reason."""
    tx.checkpoints.set_failed(checkpoint, failure, now=now)
    tx.emit(
        EventKind.CHECKPOINT_FAILED,
        checkpoint.id,
        at=now,
        task_id=checkpoint.task_id,
        why=failure.kind,
        message=failure.message,
    )
    run = _paused_run(tx, checkpoint)
    if run is not None and tx.runs.set_failed_resume(run, failure, now=now):
        outcome = RunOutcome(
            status=RunStatus.FAILED_RESUME,
            failure=Failure(
                kind="failed_resume",
                message=failure.message,
                facts={"checkpoint_id": checkpoint.id, "why": failure.kind},
            ),
        )
        if tx.tasks.get_many([run.task_id]):  # its row may be gone
            end_task(tx, run, outcome, now=now, retention=retention)


def _paused_run(tx: Tx, checkpoint: Checkpoint) -> RunRecord | None:
    """The run that a checkpoint pauses; if its run id is damaged, the live run of its task."""
    try:
        return tx.runs.lock(checkpoint.run_id)
    except NotFound:
        return tx.runs.live_of_task(checkpoint.task_id)


def retrying(checkpoint_id: str, *, now: datetime, run_id: RunId | None = None) -> Write[Checkpoint]:
    """The write of a person's retry: it creates a new checkpoint that names the failed one, and reopens the
    task.

    Raises IllegalMove unless the checkpoint is failed_resume and its task failed for that. A second retry of
    the same checkpoint returns what the first one wrote. `run_id` is the id of the run between the failed one
    and its follow-up.
    """
    check_id("checkpoint", checkpoint_id)
    new_id, new_run = new_checkpoint_id(now), run_id or new_run_id(now)

    def retry(tx: Tx) -> Checkpoint:
        failed = tx.checkpoints.lock(checkpoint_id)
        before = tx.checkpoints.that_retries(checkpoint_id)
        if before is not None:
            return before
        task = tx.tasks.lock(failed.task_id)
        if failed.status is not CheckpointStatus.FAILED_RESUME:
            raise IllegalMove("checkpoint", failed.id, str(failed.status), "retried")
        document = _open(tx, failed).read_document()  # what cannot be read cannot be retried
        check_flow(tx, task)
        if not tx.tasks.reopen(task, now=now, waits_on="resume"):
            raise IllegalMove("task", task.id, task.status.value, TaskStatus.PAUSED.value)
        tell_flow(tx, task, TaskChangeKind.REOPENED, now=now, status=task.status)
        tell_campaign(tx, task, now=now)
        go_on_with_children(tx, task, now=now)
        tx.runs.create(_stand_in(tx, failed, document, new_run, now))
        checkpoint = to_checkpoint(
            tx,
            task,
            msgspec.structs.replace(
                document,
                checkpoint_id=new_id,
                run_id=new_run,
                run_number=tx.runs.last_number(failed.task_id),
                created_at=now,
                idle_attempts=0,
                was_alone=False,
                retry_of=failed.id,
                wake_id=None,
            ),
            now=now,
        )
        tx.checkpoints.create_many([checkpoint])
        tx.emit(
            EventKind.TASK_REOPENED,
            task.id,
            at=now,
            task_id=task.id,
            checkpoint_id=new_id,
            retry_of=failed.id,
        )
        tx.hint("checkpoints")
        return checkpoint

    return retry


def _stand_in(
    tx: Tx, failed: Checkpoint, document: CheckpointDocument, run_id: RunId, now: datetime
) -> RunRecord:
    """A paused run between the failed one and its follow-up, so that the lineage has no gap."""
    return RunRecord(
        id=run_id,
        task_id=failed.task_id,
        task_name=document.task_name,
        number=tx.runs.last_number(failed.task_id) + 1,
        resumes_run_id=failed.run_id,
        checkpoint_id=failed.id,
        created_at=now,
        status=RunStatus.PAUSED_FOR_RESTART,
        priority=failed.priority,
        due_at=now,
        updated_at=now,
    )


def _open_each(tx: Tx, claimed: Sequence[Checkpoint]) -> list[Checkpoint | UnusableCheckpoint]:
    """If the ledger has lost a key, read the journals first: a run whose journal cannot be opened gets no
    follow-up run. In other ledgers that would read each journal twice for nothing."""
    if not has_lost_key(tx):
        return [_open(tx, one) for one in claimed]
    return [_lost_values(tx, one) or _open(tx, one) for one in claimed]


def _lost_values(tx: Tx, checkpoint: Checkpoint) -> UnusableCheckpoint | None:
    try:
        tx.tasks.get(checkpoint.task_id)
        load_pasts(tx, [checkpoint.task_id])
    except KeyLost as lost:
        return UnusableCheckpoint(checkpoint=checkpoint, failure=Failure(kind=lost.code, message=str(lost)))
    except RowDamaged:
        pass  # the worker that claims the follow-up run reports it
    return None


def _open(tx: Tx, checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint with its document instead of a reference; damaged if the blob is."""
    try:
        return msgspec.structs.replace(checkpoint, document=tx.blobs.open(checkpoint.document))
    except HoldfastError:
        return msgspec.structs.replace(checkpoint, is_damaged=True)


def _died_alone(document: CheckpointDocument) -> bool:
    """Whether its process died while it ran nothing else."""
    return document.reason is ResumeReason.CRASH and (document.was_alone or document.company == 1)


def _is_to_blame(document: CheckpointDocument) -> bool:
    return document.idle_attempts > SUSPECT_AFTER and _died_alone(document)


def _was_cancelled(checkpoint: Checkpoint, now: datetime) -> bool:
    """Whether it ended at this very moment because its task was cancelled."""
    diagnostic = checkpoint.diagnostic
    return checkpoint.updated_at == now and diagnostic is not None and diagnostic.kind == "cancelled"


def _seed(document: CheckpointDocument, reports: tuple[ArtifactReport, ...]) -> SeedContext:
    from holdfast.core.message import CRON_CHANNEL

    return SeedContext(
        checkpoint_id=document.checkpoint_id,
        reason=document.reason,
        previous_run_id=document.run_id,
        goal=document.goal,
        plan=document.plan,
        cursor=document.cursor,
        steps_saved=document.steps_saved,
        progress=document.progress,
        decisions=document.decisions,
        tool_context=document.tool_context,
        artifacts=reports,
        is_retry=document.origin is not None and document.origin.channel == CRON_CHANNEL,
        task_id=document.task_id,
        task_key=document.task_key,
        wake_id=document.wake_id,
        done_criteria=document.done_criteria,
        unmet=document.unmet,
    )


async def _look_at(artifact: Artifact) -> ArtifactReport:
    """Whether an artifact is still as its step left it."""
    found: str | None
    if artifact.path is None:
        found = hashlib.sha256((artifact.content or "").encode()).hexdigest()
    else:
        try:
            found, _ = await asyncio.to_thread(checksum, Path(artifact.path))
        except OSError:
            found = None
    if found is None:
        state = ArtifactState.MISSING
    else:
        state = ArtifactState.SAME if found == artifact.sha256 else ArtifactState.CHANGED
    return ArtifactReport(
        name=artifact.name,
        state=state,
        path=artifact.path,
        expected_sha256=artifact.sha256,
        found_sha256=found,
    )


def _artifact_diagnostic(odd: Sequence[ArtifactReport]) -> Failure:
    named = ", ".join(f"{one.name} ({one.state.value})" for one in odd)
    facts = {"artifacts": msgspec.to_builtins(odd)}
    return Failure(kind="artifacts", message=f"not as the run left them: {named}"[:4000], facts=facts)
