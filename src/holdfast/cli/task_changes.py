"""tasks cancel, notify and fork: changes of one task."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from holdfast.api.task_changes import (
    CANCELLED_BY_OPERATOR,
    CancelAsked,
    NotifyAsked,
    cancelling_task,
    setting_notify,
)
from holdfast.api.tasks import ForkAsked, fork_task
from holdfast.cli.errors import NOT_FOUND, REFUSED, exit_status
from holdfast.cli.invocation import Invocation, shared_options, task_argument
from holdfast.cli.output import Output
from holdfast.core.errors import HoldfastError, NoLedger
from holdfast.core.task import NotifyPolicy
from holdfast.core.transitions import TaskStatus
from holdfast.views.tasks import CancelView, ForkedView, NotifyView
from holdfast.views.text import one_line

if TYPE_CHECKING:
    from holdfast.store.contract import Store

POLICIES = [policy.value for policy in NotifyPolicy]

# --- cancel


@click.command("cancel", short_help="Cancel a task.")
@task_argument
@click.option("--reason", default=CANCELLED_BY_OPERATOR, show_default=True, help="Reason to record.")
@shared_options
@click.pass_context
def cancel_task(context: click.Context, task_id: str, reason: str) -> None:
    """Cancel a task: at once if no worker runs it, else when the task next calls Holdfast.

    Exit status 0 if the task is cancelled or will be, 3 if it has ended otherwise or its runtime cannot stop
    it, 4 if there is no such task. With --json the answer has found, cancelled and reason in each case.
    """
    call: Invocation = context.obj
    asked = CancelAsked(task_id=task_id, reason=reason)
    try:
        stop = partial(_stop_recorded, call, asked)
        view = call.change("ledger.cancel", asked, cancelling_task, CancelView, before=stop)
    except HoldfastError as error:
        if isinstance(error, NoLedger) or exit_status(error) != NOT_FOUND:
            raise
        reason = one_line(str(error))
        view = CancelView(found=False, cancelled=False, reason=reason, outcome="not_found")
    call.output.show(view, lambda: _print_cancelled(call.output, view))
    if not view.found:
        call.output.say(f"holdfast: {view.reason}")
        context.exit(NOT_FOUND)
    was_cancelled = view.task is not None and view.task.status == TaskStatus.CANCELLED
    if not view.cancelled and not was_cancelled:
        context.exit(REFUSED)


def _stop_recorded(call: Invocation, asked: CancelAsked, store: Store) -> dict[str, object]:
    """Ask the runtimes of this machine, as a gateway does, to stop work that others execute."""
    from asyncio import run

    from holdfast.api.producers import why_not_stopped
    from holdfast.app.runtimes import build_runtimes

    runtimes = build_runtimes(store, call.clock, call.settings.home)
    return {"cannot_stop": run(why_not_stopped(store, call.clock, runtimes, asked.task_id, asked.reason))}


def _print_cancelled(output: Output, view: CancelView) -> None:
    if view.task is None:
        return
    match view.outcome:
        case "cancelled":
            output.line(f"{view.task.id} is cancelled")
        case "cancel_requested":
            output.line(f"{view.task.id} is running; its worker cancels it when the task next calls Holdfast")
        case "not_supported":
            output.line(f"{view.task.id} is not cancelled: {view.reason}")
            output.say("the request is recorded; its producer learns of it at its next call")
        case _:
            output.line(f"{view.task.id} has already ended as {view.task.status}; nothing changed")


# --- notify


@click.command("notify", short_help="Choose which updates the requester of a task gets.")
@task_argument
@click.argument("policy", type=click.Choice(POLICIES))
@shared_options
@click.pass_context
def set_notify(context: click.Context, task_id: str, policy: str) -> None:
    """Choose which updates the person or session gets that asked for a task.

    \b
    done_only      that it has ended, and how
    state_changes  also that it waits, or needs a decision
    silent         nothing

    What is owed of an end is decided when the task ends, so a change after that is refused (exit status 3).
    """
    call: Invocation = context.obj
    asked = NotifyAsked(task_id=task_id, notify=NotifyPolicy(policy))
    view = call.change("ledger.notify", asked, setting_notify, NotifyView)
    call.output.show(view, lambda: _print_notify(call.output, view))
    if not view.is_set:
        context.exit(REFUSED)


def _print_notify(output: Output, view: NotifyView) -> None:
    output.line(f"{view.task.id} notifies: {view.task.notify}")
    if view.reason is not None:
        output.say(("" if view.is_set else "nothing changed: ") + view.reason)


# --- fork


@click.command("fork", short_help="Copy a task up to one of its turns.")
@task_argument
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

    \b
    holdfast tasks fork task_01h8 --at turn:3
    holdfast tasks fork task_01h8 --at plan:walls --effects keep

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
