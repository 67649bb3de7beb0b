"""wakes list, history, cancel."""

from __future__ import annotations

from datetime import datetime

import click

from holdfast.api.wakes import (
    WakeCancelAsked,
    WakeHistoryAsked,
    WakesAsked,
    cancelling,
    list_wakes,
    read_history,
)
from holdfast.cli.groups import ListGroup
from holdfast.cli.invocation import Invocation, page_option, shared_options, task_target, wake_prefix
from holdfast.cli.output import Output, ago, clock_time, counted
from holdfast.views.waits import brief_wait
from holdfast.views.wakes import WakeHistoryView, WakePageView, WakeView


@click.group("wakes", cls=ListGroup)
@shared_options
def wakes() -> None:
    """Work that waits to go on, and when it is woken."""


@wakes.command("list", short_help="What is to be woken, the first due first.")
@click.option("--task", "task_id", callback=task_target, metavar="TASK", help="Only wakes of this task.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Maximum number to show."
)
@page_option
@shared_options
@click.pass_obj
def show_wakes(call: Invocation, task_id: str | None, limit: int, page: str | None) -> None:
    """Wakes that have not fired, and runs that sleep or wait, the first due first."""
    asked = WakesAsked(task_id=task_id, limit=limit, page_token=page)
    view = call.look_at_list("wakes.list", asked, lambda tx: list_wakes(tx, asked), WakePageView())
    call.output.show(view, lambda: _print_page(call.output, view, call.clock.now()))


def _print_page(output: Output, view: WakePageView, now: datetime) -> None:
    rows = [
        (
            one.id or "-",
            one.task_id,
            _reason(one),
            "-" if one.due_at is None else clock_time(one.due_at) or "-",
            str(one.attempt),
            brief_wait(one.waits_on) if one.waits_on else "its wake",
        )
        for one in view.wakes
    ]
    if rows:
        output.table(("ID", "TASK", "REASON", "DUE", "TRY", "WAITS FOR"), rows, leave=("TRY", "WAITS FOR"))
    output.say(f"{counted(len(rows), 'wake')}; now {clock_time(now)}")
    if view.next_page_token is not None:
        output.say_next(view.next_page_token)


def _reason(one: WakeView) -> str:
    return "damaged" if one.is_damaged else one.reason


@wakes.command("history", short_help="Past wakes, and the reports of a task's cycles.")
@click.option("--task", "task_id", callback=task_target, metavar="TASK", help="Only wakes of this task.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Maximum number to show."
)
@page_option
@shared_options
@click.pass_obj
def show_history(call: Invocation, task_id: str | None, limit: int, page: str | None) -> None:
    """Wakes newest first; with --task also the report of each wake cycle."""
    asked = WakeHistoryAsked(task_id=task_id, limit=limit, page_token=page)
    view = call.look_at_list("wakes.history", asked, lambda tx: read_history(tx, asked), WakeHistoryView())
    call.output.show(view, lambda: _print_history(call.output, view, call.clock.now()))


def _print_history(output: Output, view: WakeHistoryView, now: datetime) -> None:
    rows = [
        (one.id or "-", one.task_id, one.status.value, _reason(one), ago(one.updated_at, now))
        for one in view.wakes
    ]
    if rows:
        output.table(("ID", "TASK", "STATUS", "REASON", "CHANGED"), rows, leave=("CHANGED",))
    if view.reports:
        output.heading(counted(len(view.reports), "report"))
        lines = [
            (
                clock_time(one.at) or "-",
                one.status,
                f"{one.progress_pct} %",
                one.current_step or "-",
                "-" if one.next_wake_at is None else clock_time(one.next_wake_at) or "-",
                one.notes,
            )
            for one in view.reports
        ]
        headers = ("AT", "STATUS", "DONE", "STEP", "NEXT WAKE", "NOTES")
        output.table(headers, lines, leave=("NOTES", "NEXT WAKE"))
    output.say(counted(len(rows), "wake"))
    if view.next_page_token is not None:
        output.say_next(view.next_page_token)


@wakes.command("cancel", short_help="Cancel a wake; the task that waits for it fails.")
@click.argument("wake_id", metavar="ID", callback=wake_prefix)
@click.option("--reason", default="cancelled by an operator", show_default=True, help="Why.")
@shared_options
@click.pass_obj
def cancel_wake(call: Invocation, wake_id: str, reason: str) -> None:
    """Cancel a wake. The task that waits for it fails, because nothing would ever resume it.

    To resume the task after all: holdfast checkpoints retry ID.
    """
    asked = WakeCancelAsked(wake_id=wake_id, reason=reason)
    view = call.change("wakes.cancel", asked, cancelling, WakeView)
    call.output.show(view, lambda: _print_cancelled(call, view))


def _print_cancelled(call: Invocation, view: WakeView) -> None:
    call.output.line(f"{view.id} is {view.status.value}; its task {view.task_id} does not go on")
    if view.checkpoint_id is not None:
        retry = call.command("checkpoints", "retry", view.checkpoint_id)
        call.output.say(f"to resume it after all: {retry}")
