"""producer.*: programs that execute work themselves record it here, and runtimes are asked to stop it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from holdfast.api.contract import EVERYTHING, Reach
from holdfast.api.params import IdText, NameText, Params, ShortText
from holdfast.core.errors import BadInput, NotFound, Refused
from holdfast.core.payload import MAX_GOAL_BYTES, encode_payload
from holdfast.core.recorded import DEFAULT_BEAT_TIMEOUT_S, MAX_BEAT_TIMEOUT_S, RecordedWork
from holdfast.core.secret import refuse_references
from holdfast.core.task import Failure, Progress
from holdfast.core.transitions import RunStatus
from holdfast.views.recorded import RecordedView

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from holdfast.core.clock import Clock
    from holdfast.engine.ledger.ledger import CancelOutcome, FinishOutcome
    from holdfast.engine.producers.contract import Runtime
    from holdfast.engine.producers.writes import NoteOutcome
    from holdfast.store.contract import Store, Write
    from holdfast.store.transaction import Tx

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class RecordAsked(Params, frozen=True, kw_only=True):
    """Work to record. The same run id, or the same key of the same owner, finds the first record."""

    name: NameText
    goal: Annotated[str, msgspec.Meta(max_length=MAX_GOAL_BYTES)]
    runtime: Literal["subagent", "acp", "cron", "cli", "media"]
    owner: NameText | None = None
    run_id: IdText | None = None
    # Whether the work runs already; otherwise it is queued.
    is_running: bool = False
    arguments: Any = None
    session_key: NameText | None = None
    child_session_key: NameText | None = None
    parent_task_id: IdText | None = None
    flow_id: IdText | None = None
    key: NameText | None = None
    notify: Literal["silent", "done_only", "state_changes"] | None = None
    scope: Literal["session", "system"] = "system"
    agent_id: NameText | None = None
    source_id: NameText | None = None
    # There is no `reference` here: with it, a token could make the gateway signal any process of its user.
    beat_timeout_s: Annotated[int, msgspec.Meta(ge=1, le=MAX_BEAT_TIMEOUT_S)] = DEFAULT_BEAT_TIMEOUT_S


class RunAsked(Params, frozen=True, kw_only=True):
    """One recorded run, by its run id or by the id of its task."""

    run_id: IdText


class ProgressAsked(Params, frozen=True, kw_only=True):
    """What the work says of itself. It counts as a sign of life."""

    run_id: IdText
    summary: ShortText | None = None
    done: Count | None = None
    failed: Count = 0
    total: Count | None = None
    tool: NameText | None = None
    tool_uses: Count = 0


class DroppedAsked(Params, frozen=True, kw_only=True):
    """How many reports about one run the producer could not send, counted from the beginning of its work."""

    run_id: IdText
    total: Annotated[int, msgspec.Meta(ge=1, le=2**53)]


class FinishAsked(Params, frozen=True, kw_only=True):
    """The work has succeeded; `blocked` says that it ended well, and something blocks what follows."""

    run_id: IdText
    result: Any = None
    summary: ShortText | None = None
    outcome: Literal["succeeded", "blocked"] = "succeeded"


class FailAsked(Params, frozen=True, kw_only=True):
    """The work has ended without success."""

    run_id: IdText
    message: ShortText
    kind: NameText = "failed"
    status: Literal["failed", "timed_out", "cancelled"] = "failed"
    summary: ShortText | None = None


class RunCancelAsked(Params, frozen=True, kw_only=True):
    """Cancel one recorded run."""

    run_id: IdText
    reason: ShortText = "cancelled by its owner"


def recording_work(asked: RecordAsked, *, now: datetime, reach: Reach = EVERYTHING) -> Write[RecordedView]:
    """The write that creates a record. A limited caller can only create records that it may reach."""
    from holdfast.engine.producers.writes import NewRecord, recording

    if reach.owner is not None and asked.owner not in (None, reach.owner):
        raise BadInput("owner", f"this token is limited to the owner {reach.owner!r}; leave out the owner")
    if reach.names is not None and asked.name not in reach.names:
        raise Refused(
            f"this token may not record tasks named {asked.name!r}; use a token that allows this name"
        )
    refuse_references("arguments", asked.arguments)
    facts: dict[str, Any] = msgspec.structs.asdict(asked)
    is_running = facts.pop("is_running")
    facts |= {"owner": reach.owner or asked.owner, "arguments": facts["arguments"] or {}}
    write = recording(NewRecord(**facts), is_running=is_running, now=now)

    def record(tx: Tx) -> RecordedView:
        work = write(tx)
        if not reach.covers(work.task.owner, work.task.name):
            raise NotFound("run", asked.run_id or work.run.id)
        return RecordedView.of(work, "recorded")

    return record


def starting_work(asked: RunAsked, *, now: datetime, reach: Reach = EVERYTHING) -> Write[RecordedView]:
    from holdfast.engine.producers.writes import starting

    write = starting(asked.run_id, now=now)
    return lambda tx: _noted(tx, _reached(tx, asked.run_id, reach), write(tx))


def beating_work(asked: RunAsked, *, now: datetime, reach: Reach = EVERYTHING) -> Write[RecordedView]:
    from holdfast.engine.producers.writes import beating

    write = beating(asked.run_id, now=now)
    return lambda tx: _noted(tx, _reached(tx, asked.run_id, reach), write(tx))


def progressing_work(
    asked: ProgressAsked, *, now: datetime, reach: Reach = EVERYTHING
) -> Write[RecordedView]:
    from holdfast.engine.producers.writes import progressing

    counts = None
    if asked.done is not None or asked.total is not None or asked.failed:
        counts = Progress(done=asked.done or 0, total=asked.total, failed=asked.failed)
    write = progressing(
        asked.run_id,
        progress=counts,
        summary=asked.summary,
        tool=asked.tool,
        tool_uses=asked.tool_uses,
        now=now,
    )
    return lambda tx: _noted(tx, _reached(tx, asked.run_id, reach), write(tx))


def noting_dropped(asked: DroppedAsked, *, now: datetime, reach: Reach = EVERYTHING) -> Write[RecordedView]:
    from holdfast.engine.producers.writes import noting_drops

    write = noting_drops(asked.run_id, asked.total, now=now)

    def note(tx: Tx) -> RecordedView:
        run_id = _reached(tx, asked.run_id, reach)
        write(tx)
        return RecordedView.of(_find(tx, run_id, EVERYTHING), "noted")

    return note


def finishing_work(asked: FinishAsked, *, now: datetime, reach: Reach = EVERYTHING) -> Write[RecordedView]:
    from holdfast.engine.producers.writes import finishing
    from holdfast.store.blobs import pack

    refuse_references("result", asked.result)
    result = encode_payload("result", asked.result)

    def finish(tx: Tx) -> RecordedView:
        run_id = _reached(tx, asked.run_id, reach)
        packed = pack(result, tx.sealing)
        write = finishing(asked.run_id, packed, summary=asked.summary, outcome=asked.outcome, now=now)
        return _noted(tx, run_id, write(tx))

    return finish


def failing_work(asked: FailAsked, *, now: datetime, reach: Reach = EVERYTHING) -> Write[RecordedView]:
    from holdfast.engine.producers.writes import failing

    failure = Failure(kind=asked.kind, message=asked.message)
    write = failing(asked.run_id, failure, status=RunStatus(asked.status), summary=asked.summary, now=now)
    return lambda tx: _noted(tx, _reached(tx, asked.run_id, reach), write(tx))


def cancelling_work(
    asked: RunCancelAsked, *, now: datetime, reach: Reach = EVERYTHING, cannot_stop: str | None = None
) -> Write[RecordedView]:
    """The write that ends the record, after the runtime was asked. `cannot_stop` is the runtime's reason."""
    from holdfast.engine.producers.stopping import ending_stopped, requesting

    def cancel(tx: Tx) -> RecordedView:
        task_id = _find(tx, asked.run_id, reach).task.id
        if cannot_stop is not None and not requesting(task_id, reason=asked.reason, now=now)(tx).has_ended:
            return RecordedView.of(_find(tx, asked.run_id, reach), "not_supported", reason=cannot_stop)
        outcome = ending_stopped(task_id, reason=asked.reason, now=now)(tx)
        return _noted(tx, asked.run_id, outcome)

    return cancel


async def why_not_stopped(
    store: Store,
    clock: Clock,
    runtimes: Sequence[Runtime],
    asked_id: str,
    reason: str,
    reach: Reach = EVERYTHING,
) -> str | None:
    """Ask the runtimes to stop recorded work before its record ends; the reason if they cannot. The request
    is written first, so that a gateway that dies meanwhile leaves it to the next one.

    None for everything else: for missing tasks, for tasks of workers, and for work that has ended.
    """
    from holdfast.engine.producers.contract import Unsupported
    from holdfast.engine.producers.stopping import requesting, stop

    if not runtimes:
        return None

    def read(tx: Tx) -> RecordedWork | None:
        try:
            return _find(tx, asked_id, reach)
        except (NotFound, BadInput):
            return None

    work = await store.read(read)
    if work is None or work.task.has_ended:
        return None
    await store.write(requesting(work.task.id, reason=reason, now=clock.now()))
    answer = await stop(runtimes, work, reason)
    return answer.reason if isinstance(answer, Unsupported) else None


_OUTCOMES = {
    "Noted": "noted",
    "Finished": "finished",
    "Cancelled": "cancelled",
    "CancelRequested": "cancel_requested",
    "AlreadyEnded": "already_ended",
}


def _find(tx: Tx, target: str, reach: Reach) -> RecordedWork:
    """Recorded work by its run id, its task id or a prefix of that. Raises NotFound for what the caller may
    not reach."""
    from holdfast.engine.producers.writes import find

    if target not in tx.runs.get_many([target]):
        target = reach.resolve(tx, target)
    work = find(tx, target)
    if not reach.covers(work.task.owner, work.task.name):
        raise NotFound("run", target)
    return work


def _reached(tx: Tx, target: str, reach: Reach) -> str:
    return _find(tx, target, reach).run.id


def _noted(tx: Tx, run_id: str, outcome: NoteOutcome | FinishOutcome | CancelOutcome) -> RecordedView:
    from holdfast.engine.ledger.ledger import AlreadyEnded

    reason = None
    if isinstance(outcome, AlreadyEnded):
        reason = f"The record has already ended as {outcome.task.status.value}; this call did not change it."
    work = _find(tx, run_id, EVERYTHING)
    if reason is not None and work.details is not None and work.details.late_report is not None:
        reason += " The first report that disagrees with it is kept: `holdfast tasks show` shows it."
    return RecordedView.of(work, _OUTCOMES[type(outcome).__name__], reason=reason)
