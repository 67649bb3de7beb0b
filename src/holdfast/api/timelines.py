"""ledger.timeline: one task over time, with bounded numbers of runs, turns, steps, waits and restarts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.api.contract import EVERYTHING, Reach
from holdfast.api.tasks import TaskAsked
from holdfast.core.checkpoint import ResumeReason
from holdfast.core.events import EventKind
from holdfast.core.ids import id_bound
from holdfast.core.transitions import RestartStatus
from holdfast.views.gateway import RestartView
from holdfast.views.runs import StepView
from holdfast.views.text import one_line
from holdfast.views.timeline import BandView, RunLaneView, SpanView, TimelineView

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from holdfast.core.events import Event
    from holdfast.core.manifest import Restart
    from holdfast.core.run import RunRecord
    from holdfast.core.start_record import StartRecord
    from holdfast.core.task import Task
    from holdfast.store.transaction import Tx

RUNS = 50
TURNS = 300
STEPS = 100
WAITS = 200
RESTARTS = 50
LOOPS = 5
# A run that was saved for one of these goes on at its wake; for the others, after a restart.
_FOR_WAKES = frozenset(
    one.value
    for one in (
        ResumeReason.TIMEOUT,
        ResumeReason.TIMEOUT_RECOVERY,
        ResumeReason.DEPENDENCY_READY,
        ResumeReason.SCHEDULED_PROGRESS,
    )
)


def read_timeline(tx: Tx, asked: TaskAsked, *, now: datetime, reach: Reach = EVERYTHING) -> TimelineView:
    task = tx.tasks.look(reach.resolve(tx, asked.task_id))
    more: list[str] = []
    runs = tx.runs.of_task(task.id)
    if len(runs) > RUNS:
        more.append("runs")
    turns, steps, waits = _turns(tx, task.id, more), _steps(tx, task.id, more), _waits(tx, task.id, more)
    lanes = [_lane(run, turns.get(run.id, []), steps.get(run.id, []), waits) for run in runs[-RUNS:]]
    return TimelineView(
        task_id=one_line(task.id),
        name=one_line(task.name),
        status=task.status.value,
        began_at=task.created_at,
        ended_at=task.ended_at,
        as_of=now,
        runs=lanes,
        # A caller that is limited to an owner must not learn of anything else.
        restarts=[] if reach.is_bound else _bands(tx, task, lanes, now, more),
        more=more,
    )


def _lane(
    run: RunRecord, turns: list[SpanView], steps: list[SpanView], waits: dict[str, list[SpanView]]
) -> RunLaneView:
    return RunLaneView(
        run_id=one_line(run.id),
        number=run.number,
        status=run.status.value,
        queued_at=run.created_at,
        began_at=run.started_at,
        ended_at=run.ended_at,
        turns=turns,
        steps=steps,
        waits=[
            # A run that ended waits no more, whatever woke it.
            span if span.ended_at is not None else _until(span, run.ended_at)
            for span in waits.get(run.id, [])
        ],
    )


def _until(span: SpanView, ended_at: datetime | None) -> SpanView:
    return SpanView(name=span.name, began_at=span.began_at, ended_at=ended_at)


def _turns(tx: Tx, task_id: str, more: list[str]) -> dict[str, list[SpanView]]:
    """The newest turns of the outermost loops, by run."""
    found: dict[str, list[SpanView]] = {}
    loops = [one for one in tx.turns.loops([task_id]).get(task_id, {}).values() if "/" not in one.loop]
    each = TURNS // max(1, len(loops[:LOOPS]))
    if len(loops) > LOOPS or any(one.turns_done > each for one in loops):
        more.append("turns")
    for loop in loops[:LOOPS]:
        for turn in tx.turns.finished(task_id, loop.loop, max(0, loop.turns_done - each), each):
            span = SpanView(
                name=one_line(f"{turn.loop}:{turn.turn}"),
                began_at=turn.began_at,
                ended_at=turn.ended_at,
                steps=len(turn.steps) or turn.sealed_steps,
            )
            found.setdefault(turn.run_id, []).append(span)
    return found


def _steps(tx: Tx, task_id: str, more: list[str]) -> dict[str, list[SpanView]]:
    """The newest steps outside finished turns, by run."""
    newest = tx.journal.newest_steps(task_id, limit=STEPS + 1)
    if len(newest) > STEPS:
        more.append("steps")
    found: dict[str, list[SpanView]] = {}
    for step in reversed(newest[:STEPS]):
        view = StepView.of(step, tx.blobs.open(step.result))
        name = f"{view.scope}: {view.name}" if view.scope else view.name
        span = SpanView(
            name=name, began_at=step.started_at, ended_at=step.ended_at, is_failed=view.failure is not None
        )
        found.setdefault(step.run_id, []).append(span)
    return found


def _waits(tx: Tx, task_id: str, more: list[str]) -> dict[str, list[SpanView]]:
    """When each run began to wait, or was saved for a follow-up run, for what, and until when."""
    begins = (EventKind.RUN_WAITED, EventKind.RUN_PAUSED)
    kinds = (*begins, EventKind.RUN_WOKEN, EventKind.RUN_CLAIMED)
    events = [one for kind in kinds for one in tx.events.of_task_and_kind(task_id, kind, limit=WAITS)]
    if any(sum(one.kind is kind for one in events) == WAITS for kind in begins):
        more.append("waits")
    found: dict[str, list[SpanView]] = {}
    waiting: dict[str, Event] = {}
    for event in sorted(events, key=lambda one: one.at):
        began = waiting.pop(event.subject_id, None)
        if began is not None:
            found.setdefault(event.subject_id, []).append(_wait(began, event.at))
        if event.kind in begins:
            waiting[event.subject_id] = event
    for began in waiting.values():
        found.setdefault(began.subject_id, []).append(_wait(began, None))
    return found


def _wait(began: Event, ended_at: datetime | None) -> SpanView:
    what = one_line(str(began.facts.get("waits_on", "")))
    if began.kind is EventKind.RUN_PAUSED:
        what = "wake" if began.facts.get("reason") in _FOR_WAKES else "resume"
    return SpanView(name=what, began_at=began.at, ended_at=ended_at)


def _bands(
    tx: Tx, task: Task, lanes: Sequence[RunLaneView], now: datetime, more: list[str]
) -> list[BandView]:
    """The restarts in the time of the task: each from its request, or from the last sign of life before a
    crash, to the next start of a gateway that came to work."""
    ended_at = task.ended_at or now
    restarts = tx.restarts.page(limit=RESTARTS + 1, before=_after("rst", ended_at))
    if len(restarts) > RESTARTS and restarts[-1].requested_at > task.created_at:
        more.append("restarts")
    starts = tx.starts.page(role="gateway", limit=2 * RESTARTS)
    bands = []
    for restart in reversed(restarts[:RESTARTS]):
        if restart.status is RestartStatus.BLOCKED:
            continue
        view = RestartView.of(restart)
        began = restart.requested_at
        if view.kind == "crash":
            began = max([_last_sign(lanes, began), *_starts_before(starts, restart)])
            served = next((one for one in starts if one.boot_id == restart.boot_id), None)
        else:
            served = _next_start(starts, began)
        served_at = None if served is None else served.ended_at
        until = max(restart.requested_at, served_at) if served_at is not None else None
        if view.kind == "crash" and until is None:
            until = restart.requested_at
        if (until or now) >= task.created_at:
            bands.append(
                BandView(
                    restart_id=view.id, kind=view.kind, reason=view.reason, began_at=began, ended_at=until
                )
            )
    return bands


def _after(prefix: str, moment: datetime) -> str:
    # The bound of a time sorts before the ids of that millisecond; "~" sorts after all of them.
    return id_bound(prefix, moment) + "~"


def _last_sign(lanes: Sequence[RunLaneView], found_at: datetime) -> datetime:
    """When the task last wrote something before a crash was found; if it wrote nothing, when it was found."""
    signs = [
        span.ended_at
        for lane in lanes
        for span in (*lane.turns, *lane.steps)
        if span.ended_at is not None and span.ended_at <= found_at
    ]
    signs += [lane.began_at for lane in lanes if lane.began_at is not None and lane.began_at <= found_at]
    return max(signs, default=found_at)


def _starts_before(starts: Sequence[StartRecord], crash: Restart) -> list[datetime]:
    """When gateways came to work before the one that found a crash: it cannot have happened earlier."""
    return [
        one.ended_at
        for one in starts
        if one.boot_id != crash.boot_id and one.ended_at is not None and one.ended_at <= crash.requested_at
    ]


def _next_start(starts: Sequence[StartRecord], began: datetime) -> StartRecord | None:
    """The first start since then that came to work; the list is newest first."""
    later = [one for one in starts if one.began_at >= began and one.ended_at is not None]
    return later[-1] if later else None
