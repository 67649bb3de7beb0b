"""tasks steps: what each step of a task was called with, and what it returned."""

from __future__ import annotations

import click
import msgspec

from holdfast.api.steps import StepsAsked, read_steps
from holdfast.cli.invocation import Invocation, page_option, shared_options, task_argument
from holdfast.cli.output import Output, counted, size, step_place
from holdfast.views.steps import StepLineView, StepPageView
from holdfast.views.text import one_line

# In a table; `--full` shows everything.
_MAX_PLACE_CHARS = 36
_MAX_ARGUMENTS_CHARS = 40


@click.command("steps", short_help="The steps of a task, also of finished turns.")
@task_argument
@click.option("--full", is_flag=True, help="Print each result in full, as far as it is kept.")
@click.option("--turn", metavar="TURN", help="Only this turn: 12, or main:12 in a task of several loops.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="Maximum number of turns."
)
@page_option
@shared_options
@click.pass_obj
def show_steps(
    call: Invocation, task_id: str, turn: str | None, limit: int, page: str | None, *, full: bool
) -> None:
    """The steps of a task with their arguments and results: its finished turns, then the open one.

    A finished turn keeps the name, size and duration of each step, how its arguments and its result begin,
    and the whole result up to `store.keep_results`, until the task's retention. Secrets are redacted.
    """
    asked = StepsAsked(task_id=task_id, turn=turn, full=full, limit=limit, page_token=page)
    view = call.look("ledger.steps", asked, lambda tx: read_steps(tx, asked), StepPageView)
    call.output.show(view, lambda: print_steps(call.output, view, is_full=full))


def print_steps(output: Output, view: StepPageView, *, is_full: bool) -> None:
    if is_full:
        for step in view.steps:
            output.heading(_place(step))
            output.fields(
                [
                    ("run", step.run_id),
                    ("took", _took(step)),
                    ("arguments", step.arguments),
                    ("result", _result(step)),
                ]
            )
    elif view.steps:
        rows = [
            (one_line(_place(step), _MAX_PLACE_CHARS), _took(step), size(step.size_bytes), _call(step))
            for step in view.steps
        ]
        output.table(("STEP", "TOOK", "SIZE", "ARGUMENTS -> RESULT"), rows, leave=("SIZE", "TOOK"))
    else:
        output.say(f"{view.task_id} has no steps to show")
    _print_remarks(output, view, is_full=is_full)


def _print_remarks(output: Output, view: StepPageView, *, is_full: bool) -> None:
    for problem in view.problems:
        output.say(problem)
    sealed = sum(step.is_sealed for step in view.steps)
    if sealed:
        output.say(
            f"{counted(sealed, 'step')} sealed, and the key is not here: set HOLDFAST_KEY, or copy the key "
            "here with `holdfast store key import`; `holdfast store key show` names it"
        )
    cut = sum(not (step.is_kept or step.is_sealed) for step in view.steps)
    if cut:
        output.say(
            f"{counted(cut, 'result')} not kept whole: a finished turn keeps results up to store.keep_results"
        )
    if view.next_page_token is not None:
        output.say_next(view.next_page_token)
    elif view.steps and not is_full:
        output.say("for whole results, add --full")


def _place(step: StepLineView) -> str:
    return step_place(step.scope, step.name, step.occurrence)


def _took(step: StepLineView) -> str:
    is_short = step.duration_ms < 1000
    return f"{step.duration_ms:.1f} ms" if is_short else f"{step.duration_ms / 1000:,.1f} s"


def _call(step: StepLineView) -> str:
    arguments = one_line(step.arguments, _MAX_ARGUMENTS_CHARS) or "()"
    mark = "" if step.is_kept or step.is_sealed else " (not kept whole)"
    return f"{arguments} -> {one_line(step.preview, 120)}{mark}"


def _result(step: StepLineView) -> str:
    if step.result is None:
        if step.is_kept or step.is_sealed or step.failure is not None:
            return step.preview
        return f"{step.preview}\n… ({size(step.size_bytes)}; the rest is no longer kept)"
    return msgspec.json.format(msgspec.json.encode(step.result), indent=2).decode()
