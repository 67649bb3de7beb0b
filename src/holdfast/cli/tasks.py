"""tasks list, show, steps, wait, cancel, retry, fork; audit and maintenance are in upkeep.py."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

import click
import msgspec

from holdfast.api.contract import Reach
from holdfast.api.tasks import (
    CancelAsked,
    ForkAsked,
    RetryAsked,
    RetryPageAsked,
    StepsAsked,
    TaskAsked,
    TasksAsked,
    cancelling_task,
    fork_task,
    look_at,
    read_detail,
    read_page,
    read_steps,
    retry_page,
    retrying_one,
)
from holdfast.cli.errors import FAILED, REFUSED
from holdfast.cli.invocation import Invocation, maybe_duration, shared_options, task_prefix
from holdfast.cli.output import Output, ago, brief, clock_time, counted, size
from holdfast.core.transitions import TaskStatus, is_terminal
from holdfast.views.checkpoints import CheckpointLineView, PlanView
from holdfast.views.payloads import PayloadView
from holdfast.views.programs import LoopView
from holdfast.views.recorded_facts import RecordedFactsView
from holdfast.views.runs import RunView
from holdfast.views.tasks import (
    CancelView,
    FiringView,
    ForkedView,
    RetriedPageView,
    RetriedView,
    StepLineView,
    StepPageView,
    TaskDetailView,
    TaskPageView,
    TaskView,
    WaitedView,
)
from holdfast.views.text import one_line
from holdfast.views.waits import WaitView, brief_wait

if TYPE_CHECKING:
    from holdfast.store.contract import Store

STATUSES = [status.value for status in TaskStatus]
RETRIED = ["failed", "timed_out", "lost", "cancelled"]
# Tasks per call, each in its own write; progress is reported after each call.
RETRIED_AT_ONCE = 50
LOOK_EVERY_S = 0.25
# Poll a remote gateway less often: it limits requests per second.
LOOK_ELSEWHERE_EVERY_S = 1.0


class _Tasks(click.Group):
    """Imports the commands of upkeep only when one of them is used or listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), "audit", "maintenance"]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in ("audit", "maintenance"):
            return super().get_command(ctx, cmd_name)
        from holdfast.cli import upkeep

        return upkeep.audit if cmd_name == "audit" else upkeep.maintenance


@click.group("tasks", cls=_Tasks)
@shared_options
def tasks() -> None:
    """Tasks: what was asked for, and how far it is."""


# --- list


@tasks.command("list", short_help="Tasks, newest first.")
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice(STATUSES),
    help="Only tasks in this status; repeatable.",
)
@click.option("--owner", help="Only tasks of this owner.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Maximum number to show."
)
@click.option(
    "--before", callback=task_prefix, metavar="ID", help="Show the next page: tasks older than this one."
)
@shared_options
@click.pass_obj
def list_tasks(
    call: Invocation, statuses: tuple[str, ...], owner: str | None, limit: int, before: str | None
) -> None:
    """Tasks, newest first, a page at a time."""
    wanted = tuple(TaskStatus(status) for status in statuses)
    view = call.look_at_list(
        "ledger.list",
        TasksAsked(status=wanted, owner=owner, before=before, limit=limit),
        lambda tx: read_page(tx, statuses=wanted, reach=Reach(owner=owner), before=before, limit=limit),
        TaskPageView(),
    )
    call.output.show(view, lambda: print_page(call.output, view, call.clock.now()))


def print_page(output: Output, view: TaskPageView, now: datetime) -> None:
    if view.tasks:
        # If no task waits, leave the column out: the goal needs the room.
        has_waits = any(task.waits_on is not None for task in view.tasks)
        headers = ["ID", "STATUS", *(["WAITS FOR"] if has_waits else []), "NAME", "OWNER", "CHANGED", "GOAL"]
        rows = [
            [
                task.id,
                shown_status(task),
                *([brief_wait(task.waits_on)] if has_waits else []),
                task.name,
                task.owner,
                ago(task.updated_at, now),
                task.goal,
            ]
            for task in view.tasks
        ]
        output.table(headers, rows)
    say_counts(output, "task", view.counts, shown=len(view.tasks))
    if view.next_page_token is not None:
        output.say(f"for the next page, add --before {view.next_page_token}")


def say_counts(output: Output, noun: str, counts: dict[str, int], *, shown: int) -> None:
    """One line under a list: how many there are, by status."""
    by_status = " · ".join(f"{number:,} {status}" for status, number in sorted(counts.items()))
    if not shown:
        output.say(f"no {noun}s to show" + (f" ({by_status})" if counts else ""))
    else:
        output.say(f"{shown:,} of {counted(sum(counts.values()), noun)}: {by_status}")


def shown_status(task: TaskView) -> str:
    return "damaged" if task.is_damaged else task.status


# --- show


@tasks.command("show", short_help="One task in full.")
@click.argument("task_id", metavar="ID", callback=task_prefix)
@shared_options
@click.pass_obj
def show_task(call: Invocation, task_id: str) -> None:
    """One task: what it waits for, its runs, checkpoints and plan, its turns, lists, effects and children,
    and the end of its journal.
    """
    view = call.look(
        "ledger.show",
        TaskAsked(task_id=task_id),
        lambda tx: read_detail(tx, tx.tasks.resolve(task_id), call.clock.now()),
        TaskDetailView,
    )
    call.output.show(view, lambda: print_detail(call.output, view, call.clock.now()))


def _firing(view: FiringView | None) -> str | None:
    if view is None:
        return None
    retry = "; retried after an interruption" if view.is_retry else ""
    return f"{view.schedule} at {clock_time(view.occurrence_at)}, {view.status}{retry}"


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
            ("firing", _firing(view.firing)),
            ("waits", _waits(view.waits_for)),
            ("progress", _progress(task)),
            *_recorded(view.recorded),
            ("plan", _plan(view.plan)),
            ("steps", _finished_steps(view)),
            ("turns", "\n".join(_loop(loop) for loop in view.loops)),
            ("lists", "\n".join(f"{one.name}: {counted(one.length, 'item')}" for one in view.lists)),
            ("values", "\n".join(f"{one.name} = {one_line(one.value.preview)}" for one in view.values)),
            ("failure", None if task.failure is None else f"{task.failure.kind}: {task.failure.message}"),
            ("raised", None if task.failure is None else "\n".join(task.failure.places)),
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
        output.table(("NO", "ID", "STATUS", "STARTED", "WORKER", "WHY"), rows)
    if view.checkpoints:
        output.heading(counted(len(view.checkpoints), "checkpoint"))
        print_checkpoints(output, view.checkpoints, now)
    if view.questions:
        output.heading(counted(len(view.questions), "open question"))
        asked = [(one.id, ago(one.asked_at, now), one.question) for one in view.questions]
        output.table(("ID", "ASKED", "QUESTION"), asked)
    if view.effects:
        output.heading(_some(view, "effect", len(view.effects)))
        effects = [
            (
                one.id,
                one.status,
                one.effect_class,
                ago(one.begun_at, now),
                step_place(one.scope, one.name, one.occurrence),
            )
            for one in view.effects
        ]
        output.table(("ID", "STATUS", "CLASS", "BEGUN", "STEP"), effects)
    if view.children:
        output.heading("the last children" if "children" in view.more else _children(len(view.children)))
        children = [
            (one.id, one.status, brief_wait(one.waits_on), ago(one.updated_at, now), one.name)
            for one in view.children
        ]
        output.table(("ID", "STATUS", "WAITS FOR", "CHANGED", "NAME"), children)
    if view.latest_steps:
        output.heading(_steps(view))
        lines = [
            (
                step_place(step.scope, step.name, step.occurrence),
                step.run_id,
                ago(step.ended_at, now),
                step.preview,
            )
            for step in view.latest_steps
        ]
        output.table(("STEP", "SAVED BY", "SAVED", "RESULT"), lines)
    for problem in view.problems:
        output.say(f"damaged: {problem}")
    if task.status in RETRIED[:3] and task.session_key is None:
        output.say(f"fix the cause, then: holdfast tasks retry {task.id}")


def _recorded(facts: RecordedFactsView | None) -> list[tuple[str, str | None]]:
    """What the producer of recorded work said, and what it said too late."""
    if facts is None:
        return []
    tool = facts.last_tool_name and f"{facts.last_tool_name} ({counted(facts.tool_use_count, 'use')})"
    dropped = f"{counted(facts.dropped_reports, 'report')} of its producer did not reach the ledger"
    late = facts.late_report
    said = None
    if late is not None:
        what = late.summary or (late.failure and late.failure.message) or _brief(late.result) or ""
        said = f"at {clock_time(late.at)} its producer reported {late.status}: {what}"
    return [
        ("agent", facts.agent_id),
        ("session", facts.child_session_key),
        ("source", facts.source_id),
        ("tool", tool),
        ("says", facts.progress_summary),
        ("summary", facts.terminal_summary),
        ("late", said),
        ("dropped", dropped if facts.dropped_reports else None),
    ]


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
    output.table(("ID", "STATUS", "KIND", "REASON", "SAVED", "RESUMED AS OR FAILURE"), rows)


def step_place(scope: str, name: str, occurrence: str) -> str:
    """A step's key in readable form: `main:12/fetch #2`."""
    which = "" if occurrence == "1" else f" #{occurrence.removeprefix('id:')}"
    return f"{scope}/{name}{which}".lstrip("/")


def _some(view: TaskDetailView, noun: str, shown: int) -> str:
    return f"the last {counted(shown, noun)}" if f"{noun}s" in view.more else counted(shown, noun)


def _children(number: int) -> str:
    return "1 child" if number == 1 else f"{number:,} children"


def _steps(view: TaskDetailView) -> str:
    shown = len(view.latest_steps)
    if shown == view.steps_saved:
        return f"{counted(shown, 'step')} saved"
    # The other steps are in finished turns, which keep none, or earlier in the journal.
    return f"{counted(view.steps_saved, 'step')} saved; the last {shown} of the journal"


def _finished_steps(view: TaskDetailView) -> str | None:
    """For a task with no steps left in the journal; for others the steps are in a table."""
    if view.latest_steps or not view.steps_saved:
        return None
    return f"{view.steps_saved:,} saved, all in finished turns"


def _loop(loop: LoopView) -> str:
    return f"{loop.loop}: {counted(loop.turns_done, 'turn')} done" + (", over" if loop.is_over else "")


def _waits(wait: WaitView | None) -> str | None:
    """The wait in words, and below it the command, unless the words contain it."""
    if wait is None or wait.command is None or wait.command in wait.words:
        return None if wait is None else wait.words
    return f"{wait.words}\n{wait.command}"


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
    return brief(payload)


def _why(run: RunView) -> str:
    if run.failure is not None:
        return f"{run.failure.kind}: {run.failure.message}"
    if run.waits_on is not None:
        return f"waits for {brief_wait(run.waits_on)}"
    return f"resumes {run.resumes_run_id}" if run.resumes_run_id else "-"


# --- steps


@tasks.command("steps", short_help="The steps of a task, also of finished turns.")
@click.argument("task_id", metavar="ID", callback=task_prefix)
@click.option("--full", is_flag=True, help="Print each result in full, as far as it is kept.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="Maximum number of turns."
)
@click.option("--after", metavar="TOKEN", help="Show the next page: the token printed under this one.")
@shared_options
@click.pass_obj
def show_steps(call: Invocation, task_id: str, limit: int, after: str | None, *, full: bool) -> None:
    """The steps of a task: its finished turns by loop, then the steps in the journal, with their results.

    A finished turn keeps the name, size and duration of each step, and how its result begins; the list says
    so for each result that is no longer whole. Secrets are redacted.
    """
    asked = StepsAsked(task_id=task_id, limit=limit, after=after)
    view = call.look("ledger.steps", asked, lambda tx: read_steps(tx, asked), StepPageView)
    call.output.show(view, lambda: print_steps(call.output, view, is_full=full))


def print_steps(output: Output, view: StepPageView, *, is_full: bool) -> None:
    if is_full:
        for step in view.steps:
            output.heading(_step_line(step))
            output.fields([("run", step.run_id), ("took", _took(step)), ("result", _step_result(step))])
    elif view.steps:
        rows = [
            (_step_line(step), _took(step), size(step.size_bytes), step.run_id, _beginning(step))
            for step in view.steps
        ]
        output.table(("STEP", "TOOK", "SIZE", "RUN", "RESULT"), rows)
    cut = sum(not step.is_kept for step in view.steps)
    if not view.steps:
        output.say(f"{view.task_id} has no steps to show")
    elif cut:
        output.say(f"{counted(cut, 'result')} cut: a finished turn keeps only how a long result begins")
    if view.next_page_token is not None:
        output.say(f"for the next page, add --after {view.next_page_token}")


def _step_line(step: StepLineView) -> str:
    return step_place(step.scope, step.name, step.occurrence or "1")


def _took(step: StepLineView) -> str:
    is_short = step.duration_ms < 1000
    return f"{step.duration_ms:.1f} ms" if is_short else f"{step.duration_ms / 1000:,.1f} s"


def _beginning(step: StepLineView) -> str:
    return step.preview if step.is_kept else f"{one_line(step.preview, 100)} … (not kept whole)"


def _step_result(step: StepLineView) -> str:
    if not step.is_kept:
        return f"{step.preview}\n… ({size(step.size_bytes)}; the rest is no longer kept)"
    if step.result is None:
        return step.preview
    return msgspec.json.format(msgspec.json.encode(step.result), indent=2).decode()


# --- wait


@tasks.command("wait", short_help="Wait until a task has ended.")
@click.argument("task_id", metavar="ID", callback=task_prefix)
@click.option(
    "--timeout",
    callback=maybe_duration,
    metavar="DURATION",
    help="Give up after 30s, 10m or 2h. [default: never]",
)
@shared_options
@click.pass_context
def wait_for_task(context: click.Context, task_id: str, timeout: timedelta | None) -> None:
    """Wait until a task has ended. Exit status 0 if it succeeded, 1 if it ended otherwise, 3 on a timeout.

    This only watches: it neither runs the task nor changes it, even on a timeout.
    """
    call: Invocation = context.obj
    timeout_s = None if timeout is None else timeout.total_seconds()
    if call.gateway_url is not None:
        view = _wait_elsewhere(call, task_id, timeout_s)
    else:
        with call.reading() as ledger:
            whole_id = ledger.read_now(lambda tx: tx.tasks.resolve(task_id))
            view = _wait(lambda: ledger.read_now(lambda tx: look_at(tx, whole_id)), timeout_s, LOOK_EVERY_S)
    call.output.show(view, lambda: _print_waited(call.output, view))
    if not view.has_ended:
        context.exit(REFUSED)
    if view.task.status != TaskStatus.SUCCEEDED:
        context.exit(FAILED)


def _wait(look: Callable[[], WaitedView], timeout_s: float | None, look_every_s: float) -> WaitedView:
    give_up_at = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        view = look()
        left = look_every_s if give_up_at is None else give_up_at - time.monotonic()
        if view.has_ended or left <= 0:
            return view
        time.sleep(min(look_every_s, left))


def _wait_elsewhere(call: Invocation, task_id: str, timeout_s: float | None) -> WaitedView:
    """Wait through a remote gateway. If the first call fails, raise at once; retry later ones."""
    first = call.ask("ledger.show", TaskAsked(task_id=task_id), TaskDetailView)
    asked = TaskAsked(task_id=first.task.id)

    def look() -> WaitedView:
        found = call.ask_patiently("ledger.show", asked, TaskDetailView)
        has_ended = is_terminal(TaskStatus(found.task.status))
        return WaitedView(has_ended=has_ended, task=found.task, result=found.result)

    return _wait(look, timeout_s, LOOK_ELSEWHERE_EVERY_S)


def _print_waited(output: Output, view: WaitedView) -> None:
    task = view.task
    if not view.has_ended:
        waits = "" if task.waits_on is None else f" (waits for {brief_wait(task.waits_on)})"
        output.line(f"{task.id} is still {task.status}{waits}")
        output.say(f"the wait timed out; to see what the task is doing: `holdfast tasks show {task.id}`")
        return
    why = "" if task.failure is None else f": {task.failure.kind}: {one_line(task.failure.message)}"
    output.line(f"{task.id} {_ENDED.get(task.status, 'is ' + task.status)}{why}")


_ENDED = {"succeeded": "succeeded", "failed": "failed", "timed_out": "timed out"}
_ENDED |= {"cancelled": "was cancelled", "lost": "is lost"}


# --- cancel


@tasks.command("cancel", short_help="Cancel a task.")
@click.argument("task_id", metavar="ID", callback=task_prefix)
@click.option("--reason", default="cancelled by an operator", show_default=True, help="Reason to record.")
@shared_options
@click.pass_obj
def cancel_task(call: Invocation, task_id: str, reason: str) -> None:
    """Cancel a task: at once if no worker runs it, else when the task next calls Holdfast."""
    asked = CancelAsked(task_id=task_id, reason=reason)
    stop = partial(_stop_recorded, call, asked)
    view = call.change("ledger.cancel", asked, cancelling_task, CancelView, before=stop)
    call.output.show(view, lambda: call.output.line(_cancelled(view)))


def _stop_recorded(call: Invocation, asked: CancelAsked, store: Store) -> dict[str, object]:
    """Ask the runtimes of this machine, as a gateway does, to stop work that others execute."""
    from asyncio import run

    from holdfast.api.producers import why_not_stopped
    from holdfast.app.runtimes import build_runtimes
    from holdfast.engine.ledger.ledger import Ledger

    runtimes = build_runtimes(store, Ledger(store, call.clock), call.settings.home)
    return {"cannot_stop": run(why_not_stopped(store, call.clock, runtimes, asked.task_id, asked.reason))}


def _cancelled(view: CancelView) -> str:
    match view.outcome:
        case "cancelled":
            return f"{view.task.id} is cancelled"
        case "cancel_requested":
            return f"{view.task.id} is running; its worker cancels it when the task next calls Holdfast"
        case "not_stopped":
            return (
                f"{view.task.id} goes on: {view.reason}; its producer hears of the request at its next call"
            )
        case _:
            return f"{view.task.id} has already ended as {view.task.status}; nothing changed"


# --- retry


@tasks.command("retry", short_help="Retry tasks that failed, timed out or are lost.")
@click.argument("task_id", metavar="[ID]", required=False, callback=task_prefix)
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice(RETRIED),
    help="Instead of ID: all tasks in this status; repeatable.",
)
@click.option("--name", help="With --status: only tasks with this name.")
@click.option("--owner", help="With --status: only tasks of this owner.")
@click.option("--cancelled", is_flag=True, help="Also retry a task that was cancelled.")
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=1000,
    show_default=True,
    help="Maximum number to retry.",
)
@click.option(
    "--before", callback=task_prefix, metavar="ID", help="With --status: only tasks older than this one."
)
@shared_options
@click.pass_context
def retry_tasks(
    context: click.Context,
    task_id: str | None,
    statuses: tuple[str, ...],
    name: str | None,
    owner: str | None,
    limit: int,
    before: str | None,
    *,
    cancelled: bool,
) -> None:
    """Retry a task that failed, timed out or is lost, after you have fixed the cause.

    The task keeps its id and its key. A follow-up run starts at the last good point with today's code: saved
    steps are kept, the steps that failed run again, and attempts and timeouts start from zero. A worker that
    knows the task's name runs it.

    \b
    holdfast tasks retry task_01h8
    holdfast tasks retry --status failed --name report

    Exit status 3 if the task has not ended or cannot be retried; with --status, if no task was retried.
    """
    call: Invocation = context.obj
    if task_id is None:
        if not statuses:
            raise click.UsageError("give the ID of a task, or --status to retry all tasks in that status")
        asked = RetryPageAsked(
            status=statuses,  # type: ignore[arg-type]
            name=name,
            owner=owner,
            cancelled=cancelled,
            before=before,
        )
        several = _retry_several(call, asked, limit)
        call.output.show(several, lambda: _print_retried(call.output, several))
        if several.refused and not several.count:
            context.exit(REFUSED)
        return
    if statuses or name is not None or owner is not None or before is not None:
        raise click.UsageError(
            "--status, --name, --owner and --before select several tasks; leave out the ID"
        )
    one = RetryAsked(task_id=task_id, cancelled=cancelled)
    view = call.change("ledger.retry", one, retrying_one, RetriedView)
    call.output.show(view, lambda: call.output.line(_retried(view)))


def _retried(view: RetriedView) -> str:
    how = "waiting for a worker" if view.task.status == TaskStatus.PAUSED else view.task.status
    return f"{view.task.id} is retried: {view.run_id} is {how}"


def _retry_several(call: Invocation, asked: RetryPageAsked, limit: int) -> RetriedPageView:
    """Retry page by page, and report progress after each: thousands take a while."""
    done = RetriedPageView()
    with call.writing_or_asking() as store:
        while True:
            left = limit - done.count - len(done.refused)
            wanted = min(left, RETRIED_AT_ONCE)
            page = _retry_page(call, store, msgspec.structs.replace(asked, limit=wanted))
            done = RetriedPageView(
                count=done.count + page.count,
                task_ids=done.task_ids + page.task_ids,
                refused=done.refused + page.refused,
                next_page_token=page.next_page_token,
            )
            if page.next_page_token is None or done.count + len(done.refused) >= limit:
                return done
            call.output.say(f"{counted(done.count, 'task')} so far")
            asked = msgspec.structs.replace(asked, before=page.next_page_token)


def _retry_page(call: Invocation, store: Store | None, asked: RetryPageAsked) -> RetriedPageView:
    if store is None:
        return call.ask("ledger.retry_page", asked, RetriedPageView)
    call.record(store, "ledger.retry_page", asked)
    return retry_page(store, asked)


def _print_retried(output: Output, view: RetriedPageView) -> None:
    for task_id in view.task_ids:
        output.line(task_id)
    for one in view.refused:
        output.say(f"not retried: {one.task_id}: {one.why}")
    refused = f", {len(view.refused):,} refused" if view.refused else ""
    output.say(f"{counted(view.count, 'task')} retried{refused}")
    if view.next_page_token is not None:
        output.say(f"there may be more; to retry them, add --before {view.next_page_token}")


# --- fork


@tasks.command("fork", short_help="Copy a task up to one of its turns.")
@click.argument("task_id", metavar="ID", callback=task_prefix)
@click.option(
    "--at",
    required=True,
    metavar="PLACE",
    help="Copy up to the end of: turn:3, LOOP:TURN, plan:ITEM, or start.",
)
@click.option(
    "--effects",
    type=click.Choice(["refuse", "keep", "acknowledge"]),
    default="refuse",
    show_default=True,
    help="What to do about effects that happened after that point.",
)
@click.option("--key", help="Idempotency key: the same key finds the first fork.")
@shared_options
@click.pass_obj
def fork_one(call: Invocation, task_id: str, at: str, effects: str, key: str | None) -> None:
    """Create a new task with the history of another, up to the end of a turn. The original does not change.

    Refused if effects happened after that point; the message names them. With `--effects keep` the fork uses
    their results, with `--effects acknowledge` it may perform them again. See the guide "Fork a task".
    """
    asked = ForkAsked(task_id=task_id, at=at, effects=effects, key=key)  # type: ignore[arg-type]
    view = _fork(call, asked)
    call.output.show(view, lambda: _print_forked(call.output, view))


def _fork(call: Invocation, asked: ForkAsked) -> ForkedView:
    with call.writing_or_asking() as store:
        if store is not None:
            call.record(store, "ledger.fork", asked)
            return fork_task(store, asked, now=call.clock.now())
    return call.ask("ledger.fork", asked, ForkedView)


def _print_forked(output: Output, view: ForkedView) -> None:
    output.line(view.task.id)
    again = "" if view.is_new else f"; it was forked before, and is {view.task.status}"
    output.say(f"forked from {view.source_task_id} at {view.at}{again}")
