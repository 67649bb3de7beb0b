"""tasks show: one task in full."""

from __future__ import annotations

from datetime import datetime

import click

from holdfast.api.contract import EVERYTHING
from holdfast.api.tasks import TaskAsked, read_detail
from holdfast.cli.invocation import Invocation, shared_options, task_argument
from holdfast.cli.output import Output, ago, brief, clock_time, counted, step_place
from holdfast.cli.task_list import shown_status
from holdfast.views.checkpoints import CheckpointLineView, PlanView
from holdfast.views.payloads import PayloadView
from holdfast.views.programs import LoopView
from holdfast.views.recorded_facts import RecordedFactsView
from holdfast.views.runs import RunView
from holdfast.views.tasks import FiringView, TaskDetailView, TaskView
from holdfast.views.text import one_line
from holdfast.views.waits import WaitView, brief_wait

RETRIED = ("failed", "timed_out", "lost")


@click.command("show", short_help="One task in full.")
@task_argument
@click.option("--trail", "is_trail", is_flag=True, help="Only its trail: checkpoint, wake, resume, done.")
@shared_options
@click.pass_obj
def show_task(call: Invocation, task_id: str, *, is_trail: bool) -> None:
    """One task: what it waits for, its runs, checkpoints and plan, its turns, lists, effects and children,
    and the end of its journal.
    """
    view = call.look(
        "ledger.show",
        TaskAsked(task_id=task_id),
        lambda tx: read_detail(
            tx, EVERYTHING.resolve(tx, task_id), call.clock.now(), projection=call.projection()
        ),
        TaskDetailView,
    )
    show = print_trail if is_trail else print_detail
    call.output.show(view, lambda: show(call.output, view, call.clock.now()))


def print_trail(output: Output, view: TaskDetailView, now: datetime) -> None:  # noqa: ARG001 - as print_detail
    rows = [(clock_time(one.at) or "-", one.what, one.id, one.words) for one in view.trail]
    output.table(("AT", "WHAT", "ID", "WHY"), rows, leave=("WHY",))
    output.say(f"{view.task.id} is {shown_status(view.task)}")


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
            ("worker", None if task.projection is None else f"gone: {task.projection.why}"),
            ("goal", task.goal),
            ("name", task.name),
            ("owner", task.owner),
            ("runtime", task.runtime),
            ("key", task.key),
            ("session", task.session_key),
            ("notifies", None if task.origin is None else task.notify),
            ("parent", task.parent_task_id),
            ("flow", task.flow_id and f"{task.flow_id}  (holdfast tasks flow show {task.flow_id})"),
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
        headers = ("NO", "ID", "STATUS", "STARTED", "WORKER", "WHY")
        output.table(headers, rows, leave=("WORKER", "STARTED", "NO"))
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
        output.table(("ID", "STATUS", "CLASS", "BEGUN", "STEP"), effects, leave=("BEGUN", "CLASS"))
    if view.children:
        output.heading("the last children" if "children" in view.more else _children(len(view.children)))
        children = [
            (one.id, one.status, brief_wait(one.waits_on), ago(one.updated_at, now), one.name)
            for one in view.children
        ]
        names = ("ID", "STATUS", "WAITS FOR", "CHANGED", "NAME")
        output.table(names, children, leave=("CHANGED", "WAITS FOR"))
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
        output.table(("STEP", "SAVED BY", "SAVED", "RESULT"), lines, leave=("SAVED BY", "SAVED"))
    for problem in view.problems:
        output.say(f"damaged: {problem}")
    if task.status in RETRIED and task.session_key is None:
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
    headers = ("ID", "STATUS", "KIND", "REASON", "SAVED", "RESUMED AS OR FAILURE")
    output.table(headers, rows, leave=("SAVED", "KIND", "REASON"))


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
