"""tasks list, show, cancel."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

import click
import msgspec

from holdfast.cli.invocation import Invocation, shared_options, task_prefix
from holdfast.cli.output import Output, ago, clock_time, counted, size
from holdfast.core.errors import HoldfastError, NotFound, RowDamaged
from holdfast.core.transitions import TaskStatus
from holdfast.store.tasks import LAST
from holdfast.views.checkpoints import CheckpointLineView, PlanView
from holdfast.views.payloads import PayloadView
from holdfast.views.runs import RunView, StepView
from holdfast.views.tasks import CancelView, TaskDetailView, TaskPageView, TaskView
from holdfast.views.text import one_line

if TYPE_CHECKING:
    from holdfast.store.transaction import Tx

STATUSES = [status.value for status in TaskStatus]
LATEST_STEPS = 10


@click.group("tasks")
@shared_options
def tasks() -> None:
    """Work that someone asked for."""


# --- list


@tasks.command("list", short_help="Tasks, newest first.")
@click.option(
    "--status", "statuses", multiple=True, type=click.Choice(STATUSES), help="Only these; may be repeated."
)
@click.option("--owner", help="Only those of this owner.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many at most."
)
@click.option("--before", callback=task_prefix, metavar="ID", help="Older than this one: the next page.")
@shared_options
@click.pass_obj
def list_tasks(
    call: Invocation, statuses: tuple[str, ...], owner: str | None, limit: int, before: str | None
) -> None:
    """Newest first, a page at a time."""
    wanted = tuple(TaskStatus(status) for status in statuses)
    with call.listing() as ledger:
        view = TaskPageView()
        if ledger is not None:
            view = ledger.read_now(
                lambda tx: read_page(tx, statuses=wanted, owner=owner, before=before, limit=limit)
            )
    call.output.show(view, lambda: print_page(call.output, view, call.clock.now()))


def read_page(
    tx: Tx, *, statuses: tuple[TaskStatus, ...], owner: str | None, before: str | None, limit: int
) -> TaskPageView:
    end = LAST if before is None else place_of(before, tx.tasks.resolve)
    found = tx.tasks.page(statuses=statuses, owner=owner, before=end, limit=limit + 1)
    return TaskPageView(
        tasks=[TaskView.of(task) for task in found[:limit]],
        counts=tx.events.counts("task"),
        next_page_token=found[limit - 1].id if len(found) > limit else None,
    )


def place_of(before: str, resolve: Callable[[str], str]) -> str:
    """Where a page begins. The record that the last page ended with may have been pruned meanwhile."""
    try:
        return resolve(before)
    except NotFound:
        return before


def print_page(output: Output, view: TaskPageView, now: datetime) -> None:
    if view.tasks:
        rows = [
            (task.id, shown_status(task), task.name, task.owner, ago(task.updated_at, now), task.goal)
            for task in view.tasks
        ]
        output.table(("ID", "STATUS", "NAME", "OWNER", "CHANGED", "GOAL"), rows)
    say_counts(output, "task", view.counts, shown=len(view.tasks))
    if view.next_page_token is not None:
        output.say(f"more: --before {view.next_page_token}")


def say_counts(output: Output, noun: str, counts: dict[str, int], *, shown: int) -> None:
    """One remark under a list: how many there are, and how they fare."""
    by_status = " · ".join(f"{number:,} {status}" for status, number in sorted(counts.items()))
    if not shown:
        output.say(f"no {noun}s to show" + (f" ({by_status})" if counts else ""))
    else:
        output.say(f"{shown:,} of {counted(sum(counts.values()), noun)}: {by_status}")


def shown_status(task: TaskView) -> str:
    return "damaged" if task.is_damaged else task.status


# --- show


@tasks.command("show", short_help="One task with everything about it.")
@click.argument("task_id", metavar="ID", callback=task_prefix)
@shared_options
@click.pass_obj
def show_task(call: Invocation, task_id: str) -> None:
    """One task with its runs, its checkpoints, its plan and the end of its journal."""
    with call.reading() as ledger:
        view = ledger.read_now(lambda tx: read_detail(tx, tx.tasks.resolve(task_id)))
    call.output.show(view, lambda: print_detail(call.output, view, call.clock.now()))


def read_detail(tx: Tx, task_id: str) -> TaskDetailView:
    """Everything that can be read; a damaged part is named and does not hide the others."""
    problems: list[str] = []
    task = tx.tasks.look(task_id)
    if task.is_damaged:
        problems.append(str(RowDamaged("task", task_id)))
    view = TaskDetailView(
        task=TaskView.of(task),
        arguments=_payload(tx, task.arguments, problems),
        result=None if task.result is None else _payload(tx, task.result, problems),
        plan=None,
        runs=[],
        checkpoints=[],
        steps_saved=0,
        latest_steps=[],
        problems=problems,
    )
    try:
        view = msgspec.structs.replace(view, runs=[RunView.of(run) for run in tx.runs.of_task(task_id)])
    except HoldfastError as error:
        problems.append(one_line(str(error)))
    try:
        found = tx.checkpoints.page(task_id=task_id, limit=100)
        lines = [CheckpointLineView.of(one) for one in reversed(found)]
        view = msgspec.structs.replace(view, checkpoints=lines)
    except HoldfastError as error:
        problems.append(one_line(str(error)))
    try:
        plans = tx.journal.plans([task_id])
        steps = tx.journal.steps(task_id)
        latest = [StepView.of(step, tx.blobs.open(step.result)) for step in steps[-LATEST_STEPS:]]
        plan = PlanView.of(plans[task_id][1]) if task_id in plans else None
        view = msgspec.structs.replace(view, plan=plan, steps_saved=len(steps), latest_steps=latest)
    except HoldfastError as error:
        problems.append(one_line(str(error)))
    return view


def _payload(tx: Tx, stored: bytes, problems: list[str]) -> PayloadView | None:
    try:
        return PayloadView.of(tx.blobs.open(stored))
    except HoldfastError as error:
        problems.append(one_line(str(error)))
        return None


def print_detail(output: Output, view: TaskDetailView, now: datetime) -> None:
    task = view.task
    output.fields(
        [
            ("task", task.id),
            ("status", shown_status(task)),
            ("goal", task.goal),
            ("name", task.name),
            ("owner", task.owner),
            ("runtime", task.runtime),
            ("key", task.key),
            ("parent", task.parent_task_id),
            ("waits on", task.waits_on),
            ("progress", _progress(task)),
            ("plan", _plan(view.plan)),
            ("failure", None if task.failure is None else f"{task.failure.kind}: {task.failure.message}"),
            ("cancel", _cancel(task)),
            ("created", clock_time(task.created_at)),
            ("started", clock_time(task.started_at)),
            ("ended", clock_time(task.ended_at)),
            ("arguments", _brief(view.arguments)),
            ("result", _brief(view.result)),
        ]
    )
    if view.runs:
        output.heading(counted(len(view.runs), "run"))
        rows = [
            (
                str(run.number),
                run.id,
                "damaged" if run.is_damaged else run.status,
                ago(run.started_at, now),
                run.claimed_by or "-",
                _why(run),
            )
            for run in view.runs
        ]
        output.table(("NO", "ID", "STATUS", "STARTED", "CARRIED BY", "WHY"), rows)
    if view.checkpoints:
        output.heading(counted(len(view.checkpoints), "checkpoint"))
        print_checkpoints(output, view.checkpoints, now)
    if view.latest_steps:
        output.heading(f"{counted(view.steps_saved, 'step')} saved; the last {len(view.latest_steps)}")
        lines = [
            (f"{step.scope}/{step.name}".lstrip("/"), step.run_id, ago(step.ended_at, now), step.preview)
            for step in view.latest_steps
        ]
        output.table(("STEP", "SAVED BY", "SAVED", "RESULT"), lines)
    for problem in view.problems:
        output.say(f"damaged: {problem}")


def print_checkpoints(output: Output, lines: list[CheckpointLineView], now: datetime) -> None:
    rows = [
        (
            one.id,
            "damaged" if one.is_damaged else (one.status or "recorded"),
            one.kind.value,
            one.reason.value,
            ago(one.created_at, now),
            one.resumed_run_id or (one.diagnostic.message if one.diagnostic else "-"),
        )
        for one in lines
    ]
    output.table(("ID", "STATUS", "KIND", "REASON", "SAVED", "RESUMED AS, OR WHY NOT"), rows)


def _progress(task: TaskView) -> str | None:
    if task.progress is None:
        return None
    total = "" if task.progress.total is None else f" of {task.progress.total:,}"
    failed = f", {task.progress.failed:,} failed" if task.progress.failed else ""
    return f"{task.progress.done:,}{total} done{failed}" + (
        f" ({task.progress.subtask})" if task.progress.subtask else ""
    )


def _plan(plan: PlanView | None) -> str | None:
    if plan is None:
        return None
    done = sum(item.is_done for item in plan.items)
    ahead = f"; next: {plan.next_step}" if plan.next_step is not None else ""
    return f"{done} of {len(plan.items)} done{ahead}"


def _cancel(task: TaskView) -> str | None:
    if task.cancel_requested_at is None:
        return None
    return f"{task.cancel_reason or 'requested'} ({clock_time(task.cancel_requested_at)})"


def _brief(payload: PayloadView | None) -> str | None:
    if payload is None or payload.preview in {"{}", "null"}:
        return None
    return f"{one_line(payload.preview, 300)}  ({size(payload.size_bytes)})"


def _why(run: RunView) -> str:
    if run.failure is not None:
        return f"{run.failure.kind}: {run.failure.message}"
    if run.waits_on is not None:
        return f"waits on {run.waits_on}"
    return f"resumes {run.resumes_run_id}" if run.resumes_run_id else "-"


# --- cancel


@tasks.command("cancel", short_help="Ask for the end of a task.")
@click.argument("task_id", metavar="ID", callback=task_prefix)
@click.option("--reason", default="cancelled by an operator", show_default=True, help="Why; it is recorded.")
@shared_options
@click.pass_obj
def cancel_task(call: Invocation, task_id: str, reason: str) -> None:
    """Ask for the end of a task: at once when nobody carries it, else at its holder's next call."""
    from holdfast.engine.ledger import cancelling

    with call.writing() as store:
        whole_id = store.read_now(lambda tx: tx.tasks.resolve(task_id))
        outcome = store.write_now(cancelling(whole_id, reason=reason, owner=None, now=call.clock.now()))
    view = CancelView(outcome=_OUTCOMES[type(outcome).__name__], task=TaskView.of(outcome.task))
    call.output.show(view, lambda: call.output.line(_cancelled(view)))


_OUTCOMES = {
    "Cancelled": "cancelled",
    "CancelRequested": "cancel_requested",
    "AlreadyEnded": "already_ended",
}


def _cancelled(view: CancelView) -> str:
    match view.outcome:
        case "cancelled":
            return f"{view.task.id} is cancelled"
        case "cancel_requested":
            return f"{view.task.id} is being carried; its holder is told at its next call"
        case _:
            return f"{view.task.id} had ended before as {view.task.status}; nothing changed"
