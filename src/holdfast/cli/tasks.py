"""The commands of tasks, each in the file that its line names; and tasks steps."""

from __future__ import annotations

import click
import msgspec

from holdfast.api.tasks import StepsAsked, read_steps
from holdfast.cli.groups import LazyListGroup
from holdfast.cli.invocation import Invocation, page_option, shared_options, task_prefix
from holdfast.cli.output import Output, counted, size
from holdfast.cli.task_show import step_place
from holdfast.views.tasks import StepLineView, StepPageView
from holdfast.views.text import one_line

TASKS: dict[str, tuple[str, str]] = {
    "list": ("holdfast.cli.task_list:list_tasks", "Tasks, newest first; the command that may be left out."),
    "show": ("holdfast.cli.task_show:show_task", "One task in full."),
    "steps": ("holdfast.cli.tasks:show_steps", "The steps of a task, also of finished turns."),
    "wait": ("holdfast.cli.task_wait:wait_for_task", "Wait until a task has ended."),
    "notify": ("holdfast.cli.task_changes:set_notify", "Set of what the requester of a task is told."),
    "cancel": ("holdfast.cli.task_changes:cancel_task", "Cancel a task."),
    "retry": ("holdfast.cli.task_retry:retry_tasks", "Retry tasks that failed, timed out or are lost."),
    "fork": ("holdfast.cli.task_changes:fork_one", "Copy a task up to one of its turns."),
    "audit": ("holdfast.cli.upkeep:audit", "What is wrong in the ledger, and the command that helps."),
    "maintenance": ("holdfast.cli.upkeep:maintenance", "Preview or apply a sweep of the ledger."),
}


@click.group("tasks", cls=LazyListGroup, table=TASKS)
@shared_options
def tasks() -> None:
    """Tasks: what was asked for, and how far it is. Without a command: list."""


# --- steps


@click.command("steps", short_help="The steps of a task, also of finished turns.")
@click.argument("task_id", metavar="ID", callback=task_prefix)
@click.option("--full", is_flag=True, help="Print each result in full, as far as it is kept.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="Maximum number of turns."
)
@page_option
@shared_options
@click.pass_obj
def show_steps(call: Invocation, task_id: str, limit: int, page: str | None, *, full: bool) -> None:
    """The steps of a task: its finished turns by loop, then the steps in the journal, with their results.

    A finished turn keeps the name, size and duration of each step, and how its result begins; the list says
    so for each result that is no longer whole. Secrets are redacted.
    """
    asked = StepsAsked(task_id=task_id, limit=limit, page_token=page)
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
        output.table(("STEP", "TOOK", "SIZE", "RUN", "RESULT"), rows, leave=("RUN", "SIZE", "TOOK"))
    cut = sum(not step.is_kept for step in view.steps)
    if not view.steps:
        output.say(f"{view.task_id} has no steps to show")
    elif cut:
        output.say(f"{counted(cut, 'result')} cut: a finished turn keeps only how a long result begins")
    if view.next_page_token is not None:
        output.say_next(view.next_page_token)


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
