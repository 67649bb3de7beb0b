"""status: one screen about a home."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

import click
import msgspec

from holdfast import app
from holdfast.api.overview import COUNTED_AT_MOST, read_overview
from holdfast.api.overview import FAILED as FAILED_TASKS
from holdfast.api.params import Nothing
from holdfast.cli.errors import FAILED
from holdfast.cli.gateway import PATIENCE_S, ask_status, held_in_words, last_restart, refused_in_words
from holdfast.cli.invocation import Invocation, shared_options
from holdfast.cli.output import ago, counted, percent
from holdfast.core.errors import RowDamaged, StoreUnavailable
from holdfast.core.hold import ACCEPT, Hold
from holdfast.core.transitions import TaskStatus
from holdfast.views.gateway import MAX_REASON_CHARS, GatewayView, HoldView
from holdfast.views.status import OverviewView, StatusView
from holdfast.views.text import one_line
from holdfast.views.waits import brief_kind

if TYPE_CHECKING:
    from holdfast.store.contract import Reader

MAX_PATH_CHARS = 4096


@click.command("status")
@click.option(
    "--recovery", "is_recovery", is_flag=True, help="What each step of the last start found and did."
)
@click.option("--boot", metavar="ID", help="With --recovery: the start of this gateway or worker.")
@shared_options
@click.pass_context
def status(context: click.Context, *, is_recovery: bool, boot: str | None) -> None:
    """One screen: the gateway, sessions, tasks, what waits for a person, and the last restart.

    With --recovery: how the newest gateway or worker started: configuration, load, reconcile, resume,
    continue. Each step has what it found, how long it took, and what was not resumed and why; also of a
    start that was cut off.

    Exit status 1 if the ledger cannot be used, else 0, even if no gateway answers (then
    `holdfast gateway status` exits with 5).
    """
    call: Invocation = context.obj
    if boot is not None and not is_recovery:
        raise click.UsageError("--boot names the start that --recovery shows; give both")
    if is_recovery:
        from holdfast.cli.recovery import show_recovery

        show_recovery(call, boot)
        return
    gateway, why = ask_status(call) if call.gateway_url is None else (_ask_elsewhere(call), None)
    facts = _read_ledger(call)
    if gateway is not None:
        # The gateway that writes the ledger knows more than this process, which only reads it.
        facts["holds"] = gateway.holds
        facts["ledger_problem"] = facts.get("ledger_problem") or gateway.ledger_problem
    view = StatusView(
        home=one_line(call.place, MAX_PATH_CHARS),
        store="the gateway's" if call.gateway_url else one_line(call.settings.store.shown, MAX_PATH_CHARS),
        gateway=gateway,
        why_no_gateway=why,
        **facts,  # type: ignore[arg-type]
    )
    call.output.show(view, lambda: _print(call, view, call.clock.now()))
    if view.ledger_problem is not None:
        context.exit(FAILED)


def _read_ledger(call: Invocation) -> dict[str, object]:
    """The ledger's part of the screen; if it cannot be read, the rest is still shown."""
    if call.gateway_url is not None:
        return _read_elsewhere(call)
    try:
        with call.listing() as ledger:
            if ledger is None:
                return {}
            held = ledger.held_why()
            holds = [] if held is None else [HoldView.of(Hold(why=held, remedy=ACCEPT))]
            found = ledger.read_now(lambda tx: read_overview(tx, call.clock, call.projection()))
            return msgspec.structs.asdict(found) | {"holds": holds, "key_problem": _key_problem(call, ledger)}
    except (StoreUnavailable, RowDamaged) as error:
        return {"ledger_problem": one_line(str(error), MAX_REASON_CHARS), "is_counted": False}


def _key_problem(call: Invocation, ledger: Reader) -> str | None:
    """What is wrong with the key; a key that a command would print is not checked here."""
    from holdfast.cli.keys import look_at_key
    from holdfast.store.outer_keys import CommandKey
    from holdfast.store.rekey import read_wrapped

    if isinstance(app.outer_key_of(call.settings, is_reader=True), CommandKey):
        return None
    return look_at_key(call, ledger.read_now(read_wrapped)).problem


def _ask_elsewhere(call: Invocation) -> GatewayView:
    """Ask the gateway at HOLDFAST_URL, the only source here. Raises GatewaySilent."""
    return call.ask("gateway.status", Nothing(), GatewayView, timeout_s=PATIENCE_S)


def _read_elsewhere(call: Invocation) -> dict[str, object]:
    from holdfast.cli.client import Relayed

    try:
        return msgspec.structs.asdict(call.ask("ledger.overview", Nothing(), OverviewView))
    except Relayed as error:
        if error.wire_code not in ("UNAVAILABLE", "FAILED"):
            raise
        return {"ledger_problem": one_line(str(error), MAX_REASON_CHARS), "is_counted": False}


def _print(call: Invocation, view: StatusView, now: datetime) -> None:
    gateway = view.gateway
    call.output.fields(
        [
            ("home", view.home),
            ("store", view.store),
            ("ledger", view.ledger_problem),
            ("gateway", _gateway(view, now)),
            ("settings", refused_in_words(call, gateway)),
            ("key", _key(view)),
            ("clock", view.clock_problem),
            ("held", held_in_words(call, view.holds)),
            ("sessions", _sessions(view) if view.is_counted else None),
            ("now", view.line or None),
            ("tasks", _counts(view.tasks) if view.is_counted else None),
            ("waiting", _waiting(view)),
            ("oldest", _oldest(view, now)),
            ("campaigns", _campaigns(view)),
            ("messages", _messages(view)),
            ("alerts", _alerts(view)),
            ("reviews", _open(view.open_reviews, "effect", "holdfast reviews list")),
            ("questions", _open(view.open_questions, "question", "holdfast questions list")),
            ("blocked", _blocked(view)),
            ("undelivered", _open(view.failed_deliveries, "message", "holdfast deliveries list")),
            ("to deliver", _open(view.owed_deliveries, "message", "holdfast deliveries list --owed")),
            ("failed", "\n".join(_failed(view))),
            last_restart(view.last_restart, now, gateway=None if gateway is None else gateway.status),
        ]
    )


def _gateway(view: StatusView, now: datetime) -> str:
    gateway = view.gateway
    if gateway is None:
        return view.why_no_gateway or "not running"
    runs = counted(gateway.in_flight, "run")
    return f"{gateway.status}, up for {ago(gateway.started_at, now)}, process {gateway.pid}, {runs} in flight"


def _failed(view: StatusView) -> Iterator[str]:
    if view.failed_resumes:
        yield _open(view.failed_resumes, "resume", "holdfast checkpoints list --status failed_resume") or ""
    if view.tasks_failed_in_last_day:
        number, more = view.tasks_failed_in_last_day, _or_more(view.tasks_failed_in_last_day)
        statuses = " ".join(f"--status {one.value}" for one in FAILED_TASKS if view.tasks.get(one.value))
        yield f"{counted(number, 'task')}{more} in the last day: `holdfast tasks list {statuses}`"


def _oldest(view: StatusView, now: datetime) -> str | None:
    one = view.oldest_waiting
    if one is None:
        return None
    waits = one.status if one.waits_for is None else f"{one.status} for {one.waits_for}"
    return f"{one.task_id} ({one.name}), {waits}, created {ago(one.created_at, now)} ago"


def _blocked(view: StatusView) -> str | None:
    if not view.blocked_flows:
        return None
    return f"{counted(view.blocked_flows, 'flow')}: `holdfast tasks flow list --status blocked`"


def _alerts(view: StatusView) -> str | None:
    if not view.raised_alerts:
        return None
    return f"{counted(view.raised_alerts, 'alert')}: `holdfast alerts list`"


def _sessions(view: StatusView) -> str:
    if not view.busy_sessions:
        return "none busy"
    waiting = view.sessions_waiting_for_person
    how = "being answered" if view.gateway is not None else "waiting for the gateway to start"
    return f"{view.busy_sessions - waiting} {how}" + (f", {waiting} waiting for a person" if waiting else "")


def _waiting(view: StatusView) -> str | None:
    """What tasks wait for, most frequent first, and the command that lists them."""
    if not view.waiting:
        return None
    kinds = sorted(view.waiting.items(), key=lambda one: (-one[1], one[0]))
    words = ", ".join(f"{number}{_or_more(number)} for {brief_kind(kind)}" for kind, number in kinds)
    statuses = sorted({_STATUS_OF_WAIT.get(kind, TaskStatus.WAITING).value for kind in view.waiting})
    return f"{words}: `holdfast tasks list {' '.join(f'--status {one}' for one in statuses)}`"


_STATUS_OF_WAIT = {
    "review": TaskStatus.NEEDS_REVIEW,
    "resume": TaskStatus.PAUSED,
    **dict.fromkeys(("retry", "alone", "worker", "producer"), TaskStatus.QUEUED),
}


def _campaigns(view: StatusView) -> str | None:
    """Those that run, each with how far it is; of the others those that have not ended are counted."""
    lines = [
        f"{one.campaign.name}: {one.done:,} of {one.total:,} done ({percent(one.percent)})"
        + (f", {one.failed:,} failed" if one.failed else "")
        + f": `holdfast progress {one.campaign.name}`"
        for one in view.running_campaigns
    ]
    others = {
        "running": view.campaigns.get("running", 0) - len(lines),
        "paused": view.campaigns.get("paused", 0),
        "not started": view.campaigns.get("draft", 0),
    }
    more = ", ".join(f"{number:,} {word}" for word, number in others.items() if number > 0)
    if more:
        lines.append(f"{'also ' if lines else ''}{more}: `holdfast campaign list`")
    return "\n".join(lines) or None


def _messages(view: StatusView) -> str | None:
    names = ", ".join(view.messages_wait_for)
    return f"wait for {names}: `holdfast agents list`" if names else None


def _key(view: StatusView) -> str | None:
    return None if view.key_problem is None else f"{view.key_problem}: `holdfast store key show`"


def _counts(counts: dict[str, int]) -> str:
    return " · ".join(f"{number:,} {status}" for status, number in sorted(counts.items())) or "none"


def _open(number: int, noun: str, command: str) -> str | None:
    if not number:
        return None
    return f"{counted(number, noun)}{_or_more(number)}: `{command}`"


def _or_more(number: int) -> str:
    return " or more" if number >= COUNTED_AT_MOST else ""
