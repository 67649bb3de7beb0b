"""Wakes for the API and the CLI: list, history and cancel; and `wake` as OpenClaw's clients call it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from holdfast.api.contract import EVERYTHING
from holdfast.api.pages import bad_token, place_of
from holdfast.api.params import IdText, NameText, PageSize, PageToken, Params, ShortText, TargetText
from holdfast.core.clock import to_micros
from holdfast.core.events import EventKind
from holdfast.core.message import CONSOLE_CHANNEL, MAX_MESSAGE_BYTES
from holdfast.core.schedule import Wake
from holdfast.core.task import Origin
from holdfast.core.transitions import RunStatus, WakeStatus
from holdfast.core.wake_contract import CycleReport
from holdfast.store.tasks import LAST
from holdfast.views.text import maybe_line, one_line
from holdfast.views.wakes import CycleReportView, WakeHistoryView, WakePageView, WakeView, with_tasks

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast.api.contract import Caller, GatewayDoor
    from holdfast.core.events import Event
    from holdfast.store.contract import Write
    from holdfast.store.transaction import Tx

# As far as the history of one task is shown.
MAX_REPORTS = 1000
_NEVER_YEAR = 9000
_TOKEN = re.compile(r"(\d{1,19})\.([a-z0-9_-]{1,64})")


class WakesAsked(Params, frozen=True, kw_only=True):
    """What is to be woken, the first due first."""

    task_id: TargetText | None = None
    limit: PageSize = 50
    # The `nextPageToken` of the previous page.
    page_token: PageToken | None = None


class WakeHistoryAsked(Params, frozen=True, kw_only=True):
    """Wakes of all tasks or of one, newest first."""

    task_id: TargetText | None = None
    limit: PageSize = 50
    # The `nextPageToken` of the previous page.
    page_token: PageToken | None = None


class WakeCancelAsked(Params, frozen=True, kw_only=True):
    """Cancel one wake."""

    wake_id: IdText
    reason: ShortText = "cancelled by an operator"


class WakeAsked(Params, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """Wake an agent with a text, as OpenClaw's clients do; other fields are ignored, as there."""

    mode: Literal["now", "next-heartbeat"]
    text: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_MESSAGE_BYTES)]
    session_key: NameText | None = None
    agent_id: NameText | None = None


class WokenView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Whether the text is stored."""

    ok: bool


def list_wakes(tx: Tx, asked: WakesAsked) -> WakePageView:
    """Wakes that have not fired, and runs that wait; two indexes, merged by their due times."""
    if asked.task_id is not None:
        return _of_task(tx, EVERYTHING.resolve(tx, asked.task_id))
    place = _place(asked.page_token)
    limit = asked.limit + 1
    found = [
        *(
            (to_micros(one.due_at), one.id, WakeView.of(one))
            for one in tx.wakes.pending(after=place, limit=limit)
        ),
        *(
            (to_micros(run.due_at), run.id, WakeView.of_wait(run, due_at=_due(run.due_at)))
            for run in tx.runs.waiting(after=place, limit=limit)
        ),
    ]
    found.sort(key=lambda one: one[:2])
    shown = found[: asked.limit]
    token = f"{shown[-1][0]}.{shown[-1][1]}" if len(found) > asked.limit else None
    return WakePageView(wakes=_with_tasks(tx, [view for _, _, view in shown]), next_page_token=token)


def _with_tasks(tx: Tx, wakes: list[WakeView]) -> list[WakeView]:
    return with_tasks(wakes, tx.tasks.get_many(list({one.task_id for one in wakes})))


def _of_task(tx: Tx, task_id: str) -> WakePageView:
    wakes = [one for one in tx.wakes.page(task_id=task_id, limit=100) if one.status is WakeStatus.PENDING]
    run = tx.runs.live_of_task(task_id)
    waits = [] if run is None or run.status is not RunStatus.WAITING else [run]
    views = [
        *(WakeView.of(one) for one in wakes),
        *(WakeView.of_wait(one, due_at=_due(one.due_at)) for one in waits),
    ]
    return WakePageView(wakes=_with_tasks(tx, views))


def _due(moment: datetime) -> datetime | None:
    return None if moment.year >= _NEVER_YEAR else moment


def _place(token: str | None) -> tuple[int, str]:
    if token is None:
        return (0, "")
    found = _TOKEN.fullmatch(token)
    if found is None:
        raise bad_token(token)
    return int(found[1]), found[2]


def read_history(tx: Tx, asked: WakeHistoryAsked) -> WakeHistoryView:
    task_id = None if asked.task_id is None else EVERYTHING.resolve(tx, asked.task_id)
    before = LAST if asked.page_token is None else place_of("wake", asked.page_token, tx.wakes.resolve)
    found = tx.wakes.page(task_id=task_id, before=before, limit=asked.limit + 1)
    shown = found[: asked.limit]
    return WakeHistoryView(
        wakes=_with_tasks(tx, [WakeView.of(one) for one in shown]),
        reports=[] if task_id is None else _reports(tx, task_id, shown),
        next_page_token=shown[-1].id if len(found) > asked.limit else None,
    )


def _reports(tx: Tx, task_id: str, shown: list[Wake]) -> list[CycleReportView]:
    """The reports of these wakes, as far as their events are kept, oldest first."""
    ids = {wake.id for wake in shown}
    kind = EventKind.WAKE_REPORTED
    events = tx.events.of_task_and_kind(task_id, kind, limit=MAX_REPORTS)
    return [view for event in events if event.subject_id in ids and (view := _report(event)) is not None]


def _report(event: Event) -> CycleReportView | None:
    try:
        report = msgspec.convert(event.facts.get("report"), CycleReport)
    except msgspec.ValidationError:
        return None
    facts = msgspec.structs.asdict(report)
    facts |= {"notes": one_line(report.notes, 300), "current_step": maybe_line(report.current_step)}
    return CycleReportView(at=event.at, wake_id=event.subject_id, **facts)


def cancelling(asked: WakeCancelAsked, *, now: datetime) -> Write[WakeView]:
    """The write of an operator's cancel."""
    from holdfast.engine.recovery.wakes import cancelling_wake

    def cancel(tx: Tx) -> WakeView:
        wake_id = tx.wakes.resolve(asked.wake_id)
        return WakeView.of(cancelling_wake(wake_id, why=asked.reason, now=now)(tx))

    return cancel


async def wake(gateway: GatewayDoor, asked: WakeAsked, caller: Caller) -> WokenView:
    """`now`: the agent answers the text. `next-heartbeat`: it reads the text with its next message."""
    from holdfast.api.sessions import known_key
    from holdfast.core.errors import BadInput
    from holdfast.core.ids import new_message_id
    from holdfast.core.message import Role

    target = asked.session_key or asked.agent_id
    if target is None:
        agents = sorted(gateway.config.agents)
        if not agents:
            raise BadInput("agentId", "the settings have no agent to wake; declare one: [agents.main]")
        target = "main" if "main" in agents else agents[0]
    key = known_key(gateway.config, target)
    if asked.mode == "now":
        await gateway.inbox.post(key, asked.text, Origin(channel=CONSOLE_CHANNEL, peer=caller.who))
    else:
        note = f"wake:{new_message_id(gateway.clock.now())}"
        await gateway.inbox.note(key, asked.text, key=note, role=Role.USER)
    return WokenView(ok=True)
