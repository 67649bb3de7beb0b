"""status: one screen of how things stand in a home."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click

from holdfast.api.checkpoints import count_failed_resumes
from holdfast.api.params import Nothing
from holdfast.api.questions import read_page as read_questions
from holdfast.cli.gateway import last_restart
from holdfast.cli.invocation import Invocation, shared_options
from holdfast.cli.output import Output, ago, counted
from holdfast.core.errors import GatewaySilent, HoldfastError
from holdfast.core.transitions import TaskStatus
from holdfast.views.gateway import GatewayView, RestartView
from holdfast.views.status import StatusView
from holdfast.views.text import one_line
from holdfast.views.waits import waits_for_person

if TYPE_CHECKING:
    from holdfast.store.transaction import Tx

MAX_PATH_CHARS = 4096
# A screen does not wait long for somebody who may be frozen.
PATIENCE_S = 5.0
COUNTED_AT_MOST = 100
A_DAY = timedelta(days=1)


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
            now = call.clock.now()
            facts = ledger.read_now(lambda tx: _read(tx, now))
    view = StatusView(
        home=one_line(str(call.settings.home), MAX_PATH_CHARS),
        store=one_line(call.settings.store.shown, MAX_PATH_CHARS),
        gateway=gateway,
        why_no_gateway=why,
        **facts,  # type: ignore[arg-type]
    )
    call.output.show(view, lambda: _print(call.output, view, call.clock.now()))


_NOT_RUNNING = "not running; `holdfast up` starts it"


def _ask(call: Invocation) -> tuple[GatewayView | None, str | None]:
    if call.gateway_url is None and not (call.settings.home / "gateway.sock").exists():
        return None, _NOT_RUNNING
    try:
        return call.ask("gateway.status", Nothing(), GatewayView, timeout_s=PATIENCE_S), None
    except GatewaySilent as silent:
        # Where somebody listens, another `holdfast up` would be refused.
        return None, f"silent: {silent.why}" if silent.was_there else _NOT_RUNNING
    except HoldfastError as error:
        return None, one_line(str(error))


def _read(tx: Tx, now: datetime) -> dict[str, object]:
    newest = tx.restarts.page(1)
    busy = tx.sessions.busy(limit=COUNTED_AT_MOST)
    tasks = tx.tasks.get_many([one.task_id for one in busy if one.task_id is not None])
    return {
        "tasks": tx.events.counts("task"),
        "busy_sessions": len(busy),
        "sessions_waiting_for_person": sum(waits_for_person(task.waits_on) for task in tasks.values()),
        "open_reviews": _at_most(lambda: len(tx.effects.reviews(limit=COUNTED_AT_MOST, after=""))),
        "open_questions": _at_most(lambda: _asked(tx)),
        "failed_deliveries": _at_most(lambda: len(tx.deliveries.failed(limit=COUNTED_AT_MOST))),
        "failed_resumes": count_failed_resumes(tx, at_most=COUNTED_AT_MOST),
        "tasks_failed_in_last_day": _failed_since(tx, now - A_DAY),
        "last_restart": RestartView.of(newest[0]) if newest else None,
    }


def _asked(tx: Tx) -> int:
    """As `questions list` has it: nobody waits for the answer to a question of a task that has ended."""
    return len(read_questions(tx, after="", limit=COUNTED_AT_MOST).questions)


def _failed_since(tx: Tx, moment: datetime) -> int:
    """Of the newest that failed."""
    found = tx.tasks.page(statuses=(TaskStatus.FAILED,), limit=COUNTED_AT_MOST)
    return sum(task.ended_at is not None and task.ended_at >= moment for task in found)


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
            ("sessions", _sessions(view)),
            ("tasks", _counts(view.tasks)),
            ("reviews", _open(view.open_reviews, "effect", "holdfast reviews list")),
            ("questions", _open(view.open_questions, "question", "holdfast questions list")),
            ("given up", _open(view.failed_deliveries, "message", "holdfast deliveries list")),
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
        yield f"{counted(number, 'task')}{more} in the last day: `holdfast tasks list --status failed`"


def _sessions(view: StatusView) -> str:
    waiting = view.sessions_waiting_for_person
    how = "being answered" if view.gateway is not None else "to be answered by the gateway"
    return f"{view.busy_sessions - waiting} {how}" + (f", {waiting} waiting for a person" if waiting else "")


def _counts(counts: dict[str, int]) -> str:
    return " · ".join(f"{number:,} {status}" for status, number in sorted(counts.items())) or "none"


def _open(number: int, noun: str, command: str) -> str | None:
    if not number:
        return None
    return f"{counted(number, noun)}{_or_more(number)}: `{command}`"


def _or_more(number: int) -> str:
    return " or more" if number >= COUNTED_AT_MOST else ""
