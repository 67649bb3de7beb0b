"""gateway restart, stop, status, restarts, resume: control the running gateway."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from datetime import datetime

import click

from holdfast.api.params import Nothing
from holdfast.api.restart import RestartParams, RestartsAsked, StopAsked, place_of_restarts, restart_page
from holdfast.cli.errors import REFUSED
from holdfast.cli.invocation import Invocation, page_option, shared_options
from holdfast.cli.output import Output, ago, clock_time, counted
from holdfast.core.errors import GatewaySilent, HoldfastError, NotReady, SettingsError
from holdfast.core.transitions import RestartStatus
from holdfast.views.gateway import (
    MAX_REASON_CHARS,
    FateView,
    GatewayView,
    HoldView,
    InterruptionView,
    LetResumeView,
    ReadinessView,
    RestartAnswerView,
    RestartPageView,
    RestartView,
    StoppingView,
)
from holdfast.views.text import one_line

# A drain may take long; the command waits for its outcome.
DRAIN_PATIENCE_S = 3600.0
BACK_PATIENCE_S = 60.0
_ASK_AGAIN_S = 0.2
# How often `restart --wait` looks whether the gateway is idle.
_IDLE_CHECK_S = 1.0
# The timeout for status screens: the gateway may be frozen.
PATIENCE_S = 5.0
_NOT_RUNNING = "not running; start it with `holdfast up`"


def ask_status(call: Invocation) -> tuple[GatewayView | None, str | None]:
    """The status of the gateway, or why there is none."""
    if call.gateway_url is None and not (call.settings.home / "gateway.sock").exists():
        return None, _not_running(call)
    try:
        return call.ask("gateway.status", Nothing(), GatewayView, timeout_s=PATIENCE_S), None
    except GatewaySilent as silent:
        # A process holds the socket, so do not suggest another `holdfast up`: it would be refused.
        return None, f"not answering: {silent.why}" if silent.was_there else _not_running(call)
    except HoldfastError as error:
        return None, one_line(str(error))


def _not_running(call: Invocation) -> str:
    """How to start the gateway; with invalid settings it would refuse to start."""
    from holdfast.config.files import load

    try:
        load(call.settings.home, os.environ, {"store": call.store})
    except SettingsError as error:
        return f"not running, and its settings are invalid: {one_line(str(error), MAX_REASON_CHARS)}"
    return _NOT_RUNNING


def held_in_words(call: Invocation, holds: Sequence[HoldView]) -> str:
    """Each reason why work is held, with the command that releases it."""
    return "\n".join(
        f"{one.why}; interrupted work is held: check it (`{call.command('tasks', 'list')}`), then release it "
        f"(`{call.command(*one.remedy.split()[1:])}`)"
        for one in holds
    )


def refused_in_words(call: Invocation, view: GatewayView | None) -> str | None:
    """Why the gateway refused changed settings, and the command that checks them."""
    if view is None or view.settings_refused is None:
        return None
    return f"{view.settings_refused}; check them with `{call.command('config', 'check')}`"


# --- restart


@click.command("restart", short_help="Drain, restart and resume.")
@click.option("--force", is_flag=True, help="Restart even if more runs are in flight than the limit allows.")
@click.option(
    "--wait", "is_patient", is_flag=True, help="Wait until the gateway is idle enough, then restart."
)
@click.option("--reason", default="asked for by an operator", show_default=True, help="Reason to record.")
@click.option("--plan", "is_plan", is_flag=True, help="Only show what a restart would interrupt.")
@shared_options
@click.pass_context
def restart(context: click.Context, reason: str, *, force: bool, is_patient: bool, is_plan: bool) -> None:
    """Restart the gateway. It checkpoints the work in flight first, and resumes it afterwards.

    Exit status 3 if more is in flight than `gateway.restart.readiness_gate_threshold` allows (the command
    lists it), or if some of it cannot be saved. In both cases the gateway keeps running.
    """
    call: Invocation = context.obj
    if force and is_patient:
        raise click.UsageError("--force restarts at once and --wait waits; give only one of them")
    if is_plan:
        plan = call.ask("gateway.readiness", Nothing(), ReadinessView)
        call.output.show(plan, lambda: _print_readiness(call.output, plan))
        return
    before = call.ask("gateway.status", Nothing(), GatewayView)
    asked = RestartParams(reason=reason, force=force)
    if is_patient:
        _wait_until_idle(call)
    view = call.ask("gateway.restart", asked, RestartAnswerView, timeout_s=DRAIN_PATIENCE_S)
    while is_patient and view.error is not None and view.error.code == NotReady.code:
        _wait_until_idle(call)  # work began between the check and the restart
        view = call.ask("gateway.restart", asked, RestartAnswerView, timeout_s=DRAIN_PATIENCE_S)
    call.output.show(view, lambda: _print_answer(call.output, view))
    if not view.is_accepted:
        call.output.say(f"holdfast: {view.why if view.error is None else view.error.message}")
        context.exit(REFUSED)
    _wait_until_back(call, before)


def _print_answer(output: Output, view: RestartAnswerView) -> None:
    if view.is_accepted:
        output.line(f"drained; restarting now ({view.restart_id or 'as part of another restart'})")
        return
    _print_interruptions(output, view.readiness.interruptions)


def _print_readiness(output: Output, view: ReadinessView) -> None:
    _print_interruptions(output, view.interruptions)
    output.line(view.summary)
    if not view.is_safe:
        output.say(
            f"a restart is refused now: the limit is {view.threshold:,}; use "
            "`holdfast gateway restart --wait` or --force"
        )


def _print_interruptions(output: Output, found: list[InterruptionView]) -> None:
    if found:
        rows = [(one.kind, one.task_id, one.status, one.session_key or "-", one.title) for one in found]
        headers = ("KIND", "TASK", "STATUS", "SESSION", "TITLE")
        output.table(headers, rows, leave=("SESSION", "KIND"))


def _wait_until_idle(call: Invocation) -> None:
    """Poll the gateway until a restart would pass its readiness gate; report what is in flight."""
    said = None
    while not (view := call.ask("gateway.readiness", Nothing(), ReadinessView)).is_safe:
        if view.summary != said:
            said = view.summary
            call.output.say(f"waiting: {said} (limit {view.threshold:,}); Ctrl-C gives up")
        time.sleep(_IDLE_CHECK_S)


def _wait_until_back(call: Invocation, before: GatewayView) -> None:
    """Report when the new gateway is ready; the restart no longer depends on this command."""
    give_up_at = time.monotonic() + BACK_PATIENCE_S
    while time.monotonic() < give_up_at:
        try:
            now = call.ask("gateway.status", Nothing(), GatewayView)
        except GatewaySilent:
            time.sleep(_ASK_AGAIN_S)
            continue
        if now.boot_id != before.boot_id and now.is_ready:
            call.output.say(f"the gateway is back (process {now.pid}, {now.boot_id})")
            return
        time.sleep(_ASK_AGAIN_S)
    call.output.say("the gateway is not ready yet; check it with `holdfast gateway status`")


# --- stop, resume


@click.command("stop", short_help="Drain, then stop.")
@click.option("--reason", default="asked for by an operator", show_default=True, help="Reason to record.")
@shared_options
@click.pass_obj
def stop(call: Invocation, reason: str) -> None:
    """Stop the gateway. It checkpoints the work in flight first, and resumes it at the next start."""
    call.ask("gateway.readiness", Nothing(), ReadinessView)  # fail at once if no gateway answers
    view = call.ask("gateway.stop", StopAsked(reason=reason), StoppingView, timeout_s=DRAIN_PATIENCE_S)
    call.output.show(view, lambda: call.output.line("drained; stopping now"))


@click.command("resume", short_help="Release work held after a crash loop.")
@shared_options
@click.pass_obj
def resume(call: Invocation) -> None:
    """Release interrupted work that the gateway holds after it crashed several times in a row."""
    view = call.ask("gateway.resume", Nothing(), LetResumeView, timeout_s=DRAIN_PATIENCE_S)
    call.output.show(view, lambda: call.output.line(f"{counted(view.resumed, 'run')} resumed"))


# --- status


@click.command("status", short_help="Status of the gateway.")
@shared_options
@click.pass_obj
def status(call: Invocation) -> None:
    """Status of the gateway of this home. Exit status 5 if none answers."""
    view = call.ask("gateway.status", Nothing(), GatewayView)
    call.output.show(view, lambda: print_gateway(call, view, call.clock.now()))


def print_gateway(call: Invocation, view: GatewayView, now: datetime) -> None:
    call.output.fields(
        [
            ("gateway", view.status),
            ("process", f"{view.pid} ({view.boot_id}), up for {ago(view.started_at, now)}"),
            ("in flight", counted(view.in_flight, "run")),
            ("ledger", view.ledger_problem),
            ("settings", refused_in_words(call, view)),
            ("held", held_in_words(call, view.holds)),
            last_restart(view.last_restart, now, gateway=view.status),
        ]
    )


def last_restart(view: RestartView | None, now: datetime, *, gateway: str | None) -> tuple[str, str | None]:
    """The name and the text of the status line; `gateway` is the status of the running gateway, if any."""
    if view is None:
        return "restarted", None
    is_going_on = view.status == RestartStatus.DRAINING and gateway == "draining" and view.kind != "crash"
    name = (_ENDING if is_going_on else _ENDED).get(view.kind, view.kind)
    if view.status == RestartStatus.BLOCKED:
        return f"not {name}", f"{ago(view.requested_at, now)} ago ({view.reason}): {view.why_blocked}"
    when = f"{ago(view.requested_at, now)} ago ({view.reason})"
    return name, f"{when}, {_how_far(view, gateway)}{_fates(view, gateway)}"


_ENDED = {"restart": "restarted", "stop": "stopped", "crash": "crashed"}
_ENDING = {"restart": "restarting", "stop": "stopping"}
_CLOSED = frozenset({RestartStatus.RECOVERED, RestartStatus.BLOCKED})


def _how_far(view: RestartView, gateway: str | None) -> str:
    """How far the restart is: it is over once the work that it interrupted is recovered."""
    if view.status in _CLOSED:
        return view.status
    if view.kind != "crash" and gateway == "draining":
        return "draining"
    if gateway is not None:
        return "being recovered"
    return "drained" if view.status == RestartStatus.DRAINED else "not recovered yet"


def _fates(view: RestartView, gateway: str | None) -> str:
    if view.fates:
        return f" ({', '.join(f'{number} {fate}' for fate, number in view.fates.items())})"
    if not view.interrupted:
        return " (nothing interrupted)"
    how_far = _how_far(view, gateway)
    what = {"draining": "being saved", "being recovered": "being recovered"}.get(
        how_far, "to resume at the next start"
    )
    return f" ({counted(len(view.interrupted), 'run')} {what})"


# --- restarts


@click.command("restarts", short_help="Past restarts, and the outcome of the work that each interrupted.")
@page_option
@click.option(
    "--limit", type=click.IntRange(1, 200), default=20, show_default=True, help="Maximum number to show."
)
@shared_options
@click.pass_obj
def restarts(call: Invocation, *, page: str | None, limit: int) -> None:
    """Restarts, refused restarts and crashes, newest first, with the outcome of all interrupted work."""
    asked = RestartsAsked(page_token=page, limit=limit)
    view = _ask_restarts(call, asked) or call.look_at_list(
        "gateway.restarts",
        asked,
        lambda tx: restart_page(asked, tx.restarts.page(limit + 1, place_of_restarts(asked))),
        RestartPageView(),
    )
    call.output.show(view, lambda: _print_restarts(call.output, view))


def _ask_restarts(call: Invocation, asked: RestartsAsked) -> RestartPageView | None:
    """Ask the running gateway, which also knows refusals not yet in the ledger. None if none answers."""
    if call.gateway_url is not None or not (call.settings.home / "gateway.sock").exists():
        return None
    try:
        return call.ask("gateway.restarts", asked, RestartPageView, timeout_s=PATIENCE_S)
    except HoldfastError:  # read the ledger instead
        return None


def _print_restarts(output: Output, view: RestartPageView) -> None:
    if not view.restarts:
        output.say("no restarts yet")
    for number, one in enumerate(view.restarts):
        if number:
            output.line()
        output.fields(
            [
                ("restart", one.id),
                ("kind", one.kind),
                ("status", "being recovered" if _is_unfinished_crash(one) else one.status),
                ("at", clock_time(one.requested_at)),
                ("reason", one.reason),
                ("by", one.triggered_by),
                ("blocked", one.why_blocked),
                ("also", "\n".join(f"{more.reason} ({more.triggered_by})" for more in one.triggers[1:])),
            ]
        )
        if one.interrupted:
            rows = [
                (found.kind, found.task_id, _became(found), found.run_id or "-", found.why or found.title)
                for found in one.interrupted
            ]
            headers = ("KIND", "TASK", "OUTCOME", "RUN", "REASON OR TITLE")
            output.table(headers, rows, leave=("RUN", "KIND"))
    if view.next_page_token is not None:
        output.say_next(view.next_page_token)


def _became(found: FateView) -> str:
    return f"{found.fate or '-'}, retry" if found.is_retry else found.fate or "-"


def _is_unfinished_crash(view: RestartView) -> bool:
    """A crash is never drained; until recovery ends, its stored status says little."""
    return view.kind == "crash" and view.status not in _CLOSED
