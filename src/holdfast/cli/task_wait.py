"""tasks wait: until a task has ended, through the gateway if one runs, else by looking at the ledger."""

from __future__ import annotations

import time
from datetime import timedelta

import click
import msgspec

from holdfast.api.contract import EVERYTHING
from holdfast.api.task_waits import MAX_WAIT_MS, WaitAsked, look_at
from holdfast.cli.errors import FAILED, REFUSED
from holdfast.cli.invocation import Invocation, maybe_duration, shared_options, task_argument
from holdfast.cli.output import Output
from holdfast.core.errors import GatewaySilent
from holdfast.core.transitions import TaskStatus
from holdfast.views.tasks import WaitedView
from holdfast.views.text import one_line
from holdfast.views.waits import brief_wait

LOOK_EVERY_S = 0.25

_ENDED = {"succeeded": "succeeded", "failed": "failed", "timed_out": "timed out"}
_ENDED |= {"cancelled": "was cancelled", "lost": "is lost"}


@click.command("wait", short_help="Wait until a task has ended.")
@task_argument
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
    view = _wait(call, task_id, timeout_s)
    if not view.has_ended and timeout_s is not None:
        view = msgspec.structs.replace(view, reason=_timed_out(view, timeout_s))
    call.output.show(view, lambda: _print_waited(call.output, view))
    if not view.has_ended:
        context.exit(REFUSED)
    if view.task.status != TaskStatus.SUCCEEDED:
        context.exit(FAILED)


def _timed_out(view: WaitedView, timeout_s: float) -> str:
    return f"the wait timed out after {timeout_s:g} s; the task is still {view.task.status}"


def _wait(call: Invocation, target: str, timeout_s: float | None) -> WaitedView:
    """Through the gateway if one runs: it polls once for all that wait, and may be on another machine."""
    from holdfast.cli.client import is_listening

    give_up_at = None if timeout_s is None else time.monotonic() + timeout_s
    if call.gateway_url is not None:
        return _wait_there(call, target, give_up_at)
    if is_listening(call.settings.home):
        try:
            return _wait_there(call, target, give_up_at)
        except GatewaySilent:
            call.output.say("the gateway has stopped; waiting for the ledger")
    return _wait_here(call, target, give_up_at)


def _wait_there(call: Invocation, target: str, give_up_at: float | None) -> WaitedView:
    """If the first call fails, raise at once; later ones are repeated while the gateway restarts."""
    view = call.ask("ledger.wait", WaitAsked(task_id=target, wait_ms=0), WaitedView)
    asked = WaitAsked(task_id=view.task.id, wait_ms=MAX_WAIT_MS)
    while not view.has_ended:
        left = MAX_WAIT_MS / 1000 if give_up_at is None else give_up_at - time.monotonic()
        if left <= 0:
            return view
        asked = msgspec.structs.replace(asked, wait_ms=min(MAX_WAIT_MS, max(1, int(left * 1000))))
        view = call.ask_patiently("ledger.wait", asked, WaitedView)
    return view


def _wait_here(call: Invocation, target: str, give_up_at: float | None) -> WaitedView:
    with call.reading() as ledger:
        task_id = ledger.read_now(lambda tx: EVERYTHING.resolve(tx, target))
        while True:
            view = ledger.read_now(lambda tx: look_at(tx, task_id, call.clock.now()))
            left = LOOK_EVERY_S if give_up_at is None else give_up_at - time.monotonic()
            if view.has_ended or left <= 0:
                return view
            time.sleep(min(LOOK_EVERY_S, left))


def _print_waited(output: Output, view: WaitedView) -> None:
    task = view.task
    if not view.has_ended:
        waits = "" if task.waits_on is None else f" (waits for {brief_wait(task.waits_on)})"
        output.line(f"{task.id} is still {task.status}{waits}")
        output.say(f"the wait timed out; to see what the task is doing: `holdfast tasks show {task.id}`")
        if view.waits_for is not None:
            output.say(view.waits_for.words)
        return
    why = "" if task.failure is None else f": {task.failure.kind}: {one_line(task.failure.message)}"
    output.line(f"{task.id} {_ENDED.get(task.status, 'is ' + task.status)}{why}")
