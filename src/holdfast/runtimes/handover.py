"""The hand-over of a command agent: its checkpoint, the checkpoint of its run and its wake, in one write."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from holdfast.core.agent_checkpoint import has_progressed, plan_of
from holdfast.core.events import EventKind
from holdfast.core.payload import check_name, check_text, clean_text, encode_payload
from holdfast.core.schedule import WakeReason
from holdfast.core.step import Artifact, ArtifactKind
from holdfast.core.task import Progress
from holdfast.core.wake_contract import TaskDocument
from holdfast.engine.journal.artifacts import checksum
from holdfast.engine.program.author_api import Run
from holdfast.engine.program.run_phase import StopReason
from holdfast.engine.recovery.wakes import pausing_until_wake, wake_time
from holdfast.runtimes.contract import AgentFailed
from holdfast.store import Tx

log = logging.getLogger("holdfast")

_MAX_SHOWN = 200
_MAX_TOLD = 500


class HandedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What a command agent hands over when it stops: where it stands, and where it stood before."""

    document: TaskDocument
    before: TaskDocument | None
    # Where its relative paths begin.
    directory: Path
    # Whether it stopped because of its time limit.
    is_timeout: bool
    # The done criteria, and those that do not hold, if it said that it was done.
    criteria: tuple[str, ...] = ()
    unmet: tuple[str, ...] = ()
    # When the time for the whole answer is over.
    deadline: datetime | None = None


async def hand_over(run: Run, given: HandedDocument) -> None:
    """Save it and schedule the wake, once: raises Stopping then. Returns in the run that the wake started.

    Raises AgentFailed if no wake may follow.
    """
    program, live = run._program, run._live  # noqa: SLF001 - a part of the run
    key = await program.key("hand over")
    if program.past.find(key) is not None:
        return
    document, claim = given.document, live.claim
    artifacts, missing = await asyncio.to_thread(_measured, given, live.clock.now())
    now = live.clock.now()
    due_at = await wake_time(live.store, live.place.wakes, now=now)
    if given.deadline is not None and due_at >= given.deadline:
        raise AgentFailed("it handed over a checkpoint, and its timeout_s is over before it could go on")
    step = program.waits.step(key, encode_payload("document", document.status), now)
    plan, progress = plan_of(document), _progress_of(document)
    notes = _note_of(document)

    def save(tx: Tx) -> None:
        tx.journal.put_step(step)
        tx.journal.save_plan(claim, plan, now=now)
        tx.tasks.save_progress(claim.task_id, claim.run_id, claim.fence, progress, now=now)
        for artifact in artifacts:
            tx.journal.save_artifact(claim, artifact, now=now)
        live.note_progress(tx, now)
        tx.emit(
            EventKind.AGENT_HANDED_OVER,
            claim.run_id,
            at=now,
            task_id=claim.task_id,
            status=document.status,
            progress_pct=document.progress_pct,
            current_step=progress.subtask,
            missing_artifacts=missing,
        )

    reason = WakeReason.TIMEOUT_RECOVERY if given.is_timeout else WakeReason.SCHEDULED_PROGRESS
    await live.write(
        pausing_until_wake(
            claim,
            due_at=due_at,
            now=now,
            reason=reason,
            own_reason="done criteria unmet" if given.unmet else None,
            note=notes,
            done_criteria=given.criteria,
            unmet=given.unmet,
            also=save,
            has_progressed=has_progressed(document, given.before),
            max_idle_attempts=live.place.max_idle_attempts,
        )
    )
    raise live.give_up(StopReason.RUN_TIMEOUT)


async def tell_refused(run: Run, agent: str, problems: Sequence[str]) -> None:
    """Tell the operator, once, that a document of the agent is not believed, and why."""
    program, live = run._program, run._live  # noqa: SLF001 - a part of the run
    key = await program.key("refused checkpoint")
    if program.past.find(key) is not None:
        return
    now, claim = live.clock.now(), live.claim
    told = [clean_text(" ".join(one.split()), max_chars=_MAX_TOLD) for one in problems[:5]]

    def tell(tx: Tx) -> None:
        tx.emit(
            EventKind.AGENT_CHECKPOINT_REFUSED,
            claim.run_id,
            at=now,
            task_id=claim.task_id,
            agent=agent,
            problems=told,
        )

    await program.once(key, None, tell)
    log.warning("agent %s handed over a checkpoint that is not believed (%s): %s", agent, claim.task_id, told)


def _progress_of(document: TaskDocument) -> Progress:
    step = document.current_step
    subtask = None if step is None or not step.strip() else check_name("current_step", step)
    return Progress(done=document.progress_pct, total=100, subtask=subtask)


def _note_of(document: TaskDocument) -> str | None:
    """The last error that it names, for the trail."""
    if not document.errors:
        return None
    return check_text("note", clean_text(document.errors[-1], max_chars=_MAX_TOLD), may_be_empty=True) or None


def _measured(given: HandedDocument, now: datetime) -> tuple[list[Artifact], list[str]]:
    """The files that it names, with their checksums; and the names of those that are not there."""
    found: dict[str, Artifact] = {}
    missing: list[str] = []
    for named in given.document.artifacts:
        path = given.directory / Path(named).expanduser()
        try:
            sha256, size = checksum(path)
            name = check_name("artifact", named[-_MAX_SHOWN:])
            place = check_text("path", str(path.absolute()))
        except (OSError, ValueError, RuntimeError):
            missing.append(clean_text(named, max_chars=_MAX_SHOWN))
            continue
        found[name] = Artifact(
            name=name, kind=ArtifactKind.FILE, sha256=sha256, size_bytes=size, path=place, recorded_at=now
        )
    return list(found.values()), missing
