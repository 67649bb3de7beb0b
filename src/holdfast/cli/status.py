"""status: one screen of how things stand in a home."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

import click

from holdfast.api.params import Nothing
from holdfast.cli.gateway import restart_line
from holdfast.cli.invocation import Invocation, shared_options
from holdfast.cli.output import Output, ago, counted
from holdfast.core.errors import GatewaySilent, HoldfastError
from holdfast.core.transitions import CheckpointStatus
from holdfast.views.gateway import GatewayView, RestartView
from holdfast.views.status import StatusView
from holdfast.views.text import one_line

if TYPE_CHECKING:
    from holdfast.store.transaction import Tx

MAX_PATH_CHARS = 4096
# A screen does not wait long for somebody who may be frozen.
PATIENCE_S = 5.0
COUNTED_AT_MOST = 100


@click.command("status")
@shared_options
@click.pass_obj
def status(call: Invocation) -> None:
    """One screen: the gateway, sessions, tasks, what waits for a person, and the last restart.

    Status 0 also when no gateway answers; `holdfast gateway status` then ends with 5.
    """
    gateway, why = _ask(call)
    facts: dict[str, object] = {}
    with call.listing() as ledger:
        if ledger is not None:
            facts = ledger.read_now(_read)
    view = StatusView(
        home=one_line(str(call.settings.home), MAX_PATH_CHARS),
        store=one_line(call.settings.store.shown, MAX_PATH_CHARS),
        gateway=gateway,
        why_no_gateway=why,
        **facts,  # type: ignore[arg-type]
    )
    call.output.show(view, lambda: _print(call.output, view, call.clock.now()))


def _ask(call: Invocation) -> tuple[GatewayView | None, str | None]:
    if call.gateway_url is None and not (call.settings.home / "gateway.sock").exists():
        return None, "none runs there"
    try:
        return call.ask("gateway.status", Nothing(), GatewayView, timeout_s=PATIENCE_S), None
    except GatewaySilent as silent:
        return None, silent.why
    except HoldfastError as error:
        return None, one_line(str(error))


def _read(tx: Tx) -> dict[str, object]:
    failed = tx.checkpoints.page(status=CheckpointStatus.FAILED_RESUME, limit=COUNTED_AT_MOST)
    newest = tx.restarts.page(1)
    return {
        "tasks": tx.events.counts("task"),
        "busy_sessions": len(tx.sessions.busy(limit=COUNTED_AT_MOST)),
        "open_reviews": _at_most(lambda: len(tx.effects.reviews(limit=COUNTED_AT_MOST, after=""))),
        "open_questions": _at_most(lambda: len(tx.questions.open_page(limit=COUNTED_AT_MOST, after=""))),
        "failed_resumes": len(failed),
        "last_restart": RestartView.of(newest[0]) if newest else None,
    }


def _at_most(count: Callable[[], int]) -> int:
    """A damaged one among them is the doctor's concern, not this screen's."""
    try:
        return count()
    except HoldfastError:
        return 0


def _print(output: Output, view: StatusView, now: datetime) -> None:
    gateway = view.gateway
    output.fields(
        [
            ("home", view.home),
            ("store", view.store),
            ("gateway", _gateway(view, now)),
            ("held", None if gateway is None else gateway.why_held),
            ("sessions", f"{view.busy_sessions} being answered"),
            ("tasks", _counts(view.tasks)),
            ("reviews", _open(view.open_reviews, "effect", "holdfast reviews list")),
            ("questions", _open(view.open_questions, "question", "holdfast questions list")),
            (
                "failed",
                _open(view.failed_resumes, "resume", "holdfast checkpoints list --status failed_resume"),
            ),
            ("restarted", None if view.last_restart is None else restart_line(view.last_restart, now)),
        ]
    )


def _gateway(view: StatusView, now: datetime) -> str:
    gateway = view.gateway
    if gateway is None:
        return f"not running ({view.why_no_gateway}); `holdfast up` starts it"
    runs = counted(gateway.in_flight, "run")
    return f"{gateway.status}, up for {ago(gateway.started_at, now)}, process {gateway.pid}, {runs} in flight"


def _counts(counts: dict[str, int]) -> str:
    return " · ".join(f"{number:,} {status}" for status, number in sorted(counts.items())) or "none"


def _open(number: int, noun: str, command: str) -> str | None:
    if not number:
        return None
    more = " or more" if number >= COUNTED_AT_MOST else ""
    return f"{counted(number, noun)}{more}: `{command}`"
