"""gateway restart, stop, status, restarts, resume: the gateway that runs in a home."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime

import click

from holdfast.api.params import Nothing
from holdfast.api.restart import RestartAsked, RestartsAsked, StopAsked
from holdfast.cli.errors import REFUSED
from holdfast.cli.invocation import Invocation, shared_options
from holdfast.cli.output import Output, ago, clock_time, counted
from holdfast.core.errors import GatewaySilent, HoldfastError
from holdfast.core.transitions import RestartStatus
from holdfast.views.gateway import (
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

# A drain takes its time; whoever asked hears how it ended.
DRAIN_PATIENCE_S = 3600.0
BACK_PATIENCE_S = 60.0
_ASK_AGAIN_S = 0.2
# A screen does not wait long for a gateway that may be frozen.
PATIENCE_S = 5.0
_NOT_RUNNING = "not running; `holdfast up` starts it"


def ask_status(call: Invocation) -> tuple[GatewayView | None, str | None]:
    """How the gateway fares, or why that is not known."""
    if call.gateway_url is None and not (call.settings.home / "gateway.sock").exists():
        return None, _NOT_RUNNING
    try:
        return call.ask("gateway.status", Nothing(), GatewayView, timeout_s=PATIENCE_S), None
    except GatewaySilent as silent:
        # If a process listens there, another `holdfast up` would be refused.
        return None, f"silent: {silent.why}" if silent.was_there else _NOT_RUNNING
    except HoldfastError as error:
        return None, one_line(str(error))


def held_in_words(call: Invocation, holds: Sequence[HoldView]) -> str:
    """Each reason, with the command that ends it as a person may copy it."""
    return "\n".join(
        f"{one.why}; interrupted work waits: look at it (`{call.command('tasks', 'list')}`), then "
        f"`{call.command(*one.remedy.split()[1:])}`"
        for one in holds
    )


def refused_in_words(call: Invocation, view: GatewayView | None) -> str | None:
    """What became of a change of the settings that the gateway did not take."""
    if view is None or view.settings_refused is None:
        return None
    return f"{view.settings_refused}; look with `{call.command('config', 'check')}`"


# --- restart


@click.command("restart", short_help="Drain, restart, and go on.")
@click.option("--force", is_flag=True, help="Also when more would be interrupted than the settings allow.")
@click.option("--reason", default="asked for by an operator", show_default=True, help="Why; it is recorded.")
@click.option("--plan", "is_plan", is_flag=True, help="Only show who would be interrupted.")
@shared_options
@click.pass_context
def restart(context: click.Context, reason: str, *, force: bool, is_plan: bool) -> None:
    """Restart the gateway: what is in flight is saved first, and goes on afterwards.

    Status 3, with the list, when more would be interrupted than `gateway.restart.readiness_gate_threshold`
    allows, and when something in flight cannot be saved: then the gateway goes on working.
    """
    call: Invocation = context.obj
    if is_plan:
        plan = call.ask("gateway.readiness", Nothing(), ReadinessView)
        call.output.show(plan, lambda: _print_readiness(call.output, plan))
        return
    before = call.ask("gateway.status", Nothing(), GatewayView)
    asked = RestartAsked(reason=reason, force=force)
    view = call.ask("gateway.restart", asked, RestartAnswerView, timeout_s=DRAIN_PATIENCE_S)
    call.output.show(view, lambda: _print_answer(call.output, view))
    if not view.is_accepted:
        call.output.say(f"holdfast: {view.why if view.error is None else view.error.message}")
        context.exit(REFUSED)
    _wait_until_back(call, before)


def _print_answer(output: Output, view: RestartAnswerView) -> None:
    if view.is_accepted:
        output.line(f"drained, and restarting ({view.restart_id or 'as part of another restart'})")
        return
    _print_interruptions(output, view.readiness.interruptions)


def _print_readiness(output: Output, view: ReadinessView) -> None:
    _print_interruptions(output, view.interruptions)
    output.line(view.summary)
    if not view.is_safe:
        output.say(f"a restart is refused above {view.threshold:,}; --force passes")


def _print_interruptions(output: Output, found: list[InterruptionView]) -> None:
    if found:
        rows = [(one.kind, one.task_id, one.status, one.session_key or "-", one.title) for one in found]
        output.table(("KIND", "TASK", "STATUS", "SESSION", "TITLE"), rows)


def _wait_until_back(call: Invocation, before: GatewayView) -> None:
    """Only for whoever looks on: the restart itself is decided."""
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
    call.output.say("the gateway is not back yet; `holdfast gateway status` says how it fares")


# --- stop, resume


@click.command("stop", short_help="Drain, and end.")
@click.option("--reason", default="asked for by an operator", show_default=True, help="Why; it is recorded.")
@shared_options
@click.pass_obj
def stop(call: Invocation, reason: str) -> None:
    """Stop the gateway: what is in flight is saved first, and goes on at the next start."""
    call.ask("gateway.readiness", Nothing(), ReadinessView)  # a silent one is told at once
    view = call.ask("gateway.stop", StopAsked(reason=reason), StoppingView, timeout_s=DRAIN_PATIENCE_S)
    call.output.show(view, lambda: call.output.line("drained, and stopping"))


@click.command("resume", short_help="Let go on what is held back after a crash loop.")
@shared_options
@click.pass_obj
def resume(call: Invocation) -> None:
    """Let interrupted work go on that the gateway holds back, because it crashed again and again."""
    view = call.ask("gateway.resume", Nothing(), LetResumeView, timeout_s=DRAIN_PATIENCE_S)
    call.output.show(view, lambda: call.output.line(f"{counted(view.resumed, 'run')} resumed"))


# --- status


@click.command("status", short_help="How the gateway fares.")
@shared_options
@click.pass_obj
def status(call: Invocation) -> None:
    """How the gateway of this home fares. Status 5 when none answers."""
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
    """The name and the words of a line about it; `gateway` is the status of one that runs, if one does."""
    if view is None:
        return "restarted", None
    is_going_on = view.status == RestartStatus.DRAINING and gateway == "draining" and view.kind != "crash"
    name = (_ENDING if is_going_on else _ENDED).get(view.kind, view.kind)
    if view.status == RestartStatus.BLOCKED:
        return f"not {name}", f"{ago(view.requested_at, now)} ago ({view.reason}): {view.why_blocked}"
    return (
        name,
        f"{ago(view.requested_at, now)} ago, {_how_far(view, gateway)}: {view.reason}{_fates(view, gateway)}",
    )


_ENDED = {"restart": "restarted", "stop": "stopped", "crash": "crashed"}
_ENDING = {"restart": "restarting", "stop": "stopping"}
_CLOSED = frozenset({RestartStatus.RECOVERED, RestartStatus.BLOCKED})


def _how_far(view: RestartView, gateway: str | None) -> str:
    """Until what it cut short is recovered it is not over: whoever runs is at it, or comes next."""
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
        how_far, "to go on at the next start"
    )
    return f" ({counted(len(view.interrupted), 'run')} {what})"


# --- restarts


@click.command("restarts", short_help="Each restart or refusal, and what became of what it interrupted.")
@click.option("--limit", type=click.IntRange(1, 200), default=20, show_default=True, help="How many at most.")
@shared_options
@click.pass_obj
def restarts(call: Invocation, limit: int) -> None:
    """Restarts, refusals and crashes, newest first: why, whom they interrupted, and what became of each."""
    asked = RestartsAsked(limit=limit)
    view = _ask_restarts(call, asked) or call.look_at_list(
        "gateway.restarts",
        asked,
        lambda tx: RestartPageView(restarts=[RestartView.of(one) for one in tx.restarts.page(limit)]),
        RestartPageView(),
    )
    call.output.show(view, lambda: _print_restarts(call.output, view))


def _ask_restarts(call: Invocation, asked: RestartsAsked) -> RestartPageView | None:
    """A gateway that runs here knows also what it could not write into its ledger. None if none answers."""
    if call.gateway_url is not None or not (call.settings.home / "gateway.sock").exists():
        return None
    try:
        return call.ask("gateway.restarts", asked, RestartPageView, timeout_s=PATIENCE_S)
    except HoldfastError:  # the ledger is there all the same
        return None


def _print_restarts(output: Output, view: RestartPageView) -> None:
    if not view.restarts:
        output.say("no restart so far")
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
            output.table(("KIND", "TASK", "BECAME", "RUN", "WHY, OR ITS TITLE"), rows)


def _became(found: FateView) -> str:
    return f"{found.fate or '-'}, retry" if found.is_retry else found.fate or "-"


def _is_unfinished_crash(view: RestartView) -> bool:
    """Nobody drained it."""
    return view.kind == "crash" and view.status not in _CLOSED
