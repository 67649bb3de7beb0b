"""Flows: how their tasks hang together, what blocks them, and what a person may do about it."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from holdfast.views.browser import NotAnswered, Visitor
from holdfast.web.flow_graph import draw_flow
from holdfast.web.page_kinds import Action, ActionDone, Confirmation, Field, Page, Query
from holdfast.web.queries import given, page_of
from holdfast.web.words import noun, plural

LISTED = 25
# A flow with more nodes is told by a table, page by page.
DRAWN = 200
STATUSES = ("blocked", "running", "waiting", "queued", "succeeded", "failed", "cancelled", "lost")
ENDED = frozenset({"succeeded", "failed", "cancelled", "lost"})


# --- pages


async def load_flows(visitor: Visitor, query: Query) -> dict[str, Any]:
    status = [query["status"]] if query.get("status") else []
    listed = await visitor.ask("flows.list", status=status, limit=LISTED, **given(query, page="pageToken"))
    return {"listed": listed, "statuses": STATUSES, "ended": ENDED}


async def load_flow(visitor: Visitor, query: Query) -> dict[str, Any]:
    detail = await visitor.ask(
        "flows.get", flowId=query["flow"], limit=DRAWN, **given(query, page="pageToken")
    )
    is_drawn = 0 < detail.flow.nodes <= DRAWN
    return {
        "detail": detail,
        "flow": detail.flow,
        "graph": draw_flow(detail.nodes, detail.blockers) if is_drawn else None,
        "blocking": {one.id for one in detail.blockers},
        "has_ended": detail.flow.status in ENDED,
        "may_be_retried": may_be_retried(detail.flow),
        "pending": max(0, detail.flow.nodes - _begun(detail.flow)),
        "drawn": DRAWN,
    }


def may_be_retried(flow: Any) -> bool:
    return (
        flow.status == "blocked"
        and flow.cancel_requested_at is None
        and flow.mode == "managed"
        and bool(flow.nodes or flow.blocked_by_task_id)
    )


def _begun(flow: Any) -> int:
    tasks = flow.tasks
    return int(tasks.live + tasks.succeeded + tasks.failed + tasks.cancelled + tasks.lost)


# --- actions


async def ask_start(visitor: Visitor, query: Query) -> Confirmation:
    names = await _names(visitor)
    return Confirmation(
        title="Start a flow of the settings?",
        says=("A new flow starts: its nodes that need nothing begin at once, the others after them.",),
        fields=(
            Field(
                name="name",
                label="Flow",
                kind="choice",
                choices=tuple((name, f"{name}: {goal}" if goal else name) for name, goal in names.items()),
                value=query.get("name") or next(iter(names), ""),
                is_required=True,
            ),
            Field(name="goal", label="Goal", hint="Left empty, it is the one of the settings."),
        ),
        confirm="Start",
        refused=None if names else "the settings define no flow: add one under `workflows`",
    )


async def start(visitor: Visitor, form: Query) -> ActionDone:
    if not form.get("name"):
        raise NotAnswered("bad_input", "choose a flow", status=HTTPStatus.BAD_REQUEST)
    created = await visitor.ask("flows.start", **given(form, "name", "goal"))
    return ActionDone(text="Started.", link=f"Open {form['name']}", href=page_of("flows", created.flow.id))


async def _names(visitor: Visitor) -> dict[str, str]:
    """The flows of the settings, with the goal of each."""
    try:
        settings = (await visitor.ask("config.get", key="workflows")).settings
    except NotAnswered as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        return {}
    found: dict[str, str] = {}
    for one in settings:
        _, _, rest = one.key.partition(".")
        name, _, key = rest.rpartition(".")
        if name:
            found.setdefault(name, "")
            if key == "goal" and isinstance(one.value, str):
                found[name] = one.value
    return found


async def ask_cancel(visitor: Visitor, query: Query) -> Confirmation:
    detail = await visitor.ask("flows.get", flowId=query["flow"], limit=1)
    flow = detail.flow
    live = (
        "no task of it is alive"
        if not flow.tasks.live
        else f"{flow.tasks.live:,} of its tasks {noun(flow.tasks.live, 'is', 'are')} asked to stop"
    )
    return Confirmation(
        title=f"Cancel {flow.name or 'this flow'}?",
        says=(
            f"Nothing of it starts any more, and {live}.",
            "It ends when the last one has ended. A cancelled flow cannot go on.",
        ),
        fields=(Field(name="reason", label="Reason", value="cancelled at the dashboard", is_required=True),),
        confirm="Cancel the flow",
        is_dangerous=True,
        refused=f"it has already ended as {flow.status}" if flow.status in ENDED else None,
    )


async def cancel(visitor: Visitor, form: Query) -> str:
    done = await visitor.ask("flows.cancel", flowId=form["flow"], **given(form, "reason"))
    if not done.cancelled:
        raise NotAnswered("refused", done.reason or "it was not cancelled", status=HTTPStatus.CONFLICT)
    return f"Cancelled: {done.reason}." if done.reason else "Cancelled."


async def ask_retry(visitor: Visitor, query: Query) -> Confirmation:
    detail = await visitor.ask("flows.get", flowId=query["flow"], limit=1)
    flow, node = detail.flow, query.get("node")
    blockers = [one for one in detail.blockers if node in (None, "", one.id)]
    lines = [f"{one.id}: {one.why or one.status}" for one in blockers]
    says = ["What did not succeed goes on after its last saved step; what succeeded stays."]
    if not flow.nodes:
        lines = [flow.blocked_by_task_id or "nothing"]
        says = ["The task that blocks it goes on after its last saved step."]
    return Confirmation(
        title=f"Retry {node}?" if node else f"Retry {flow.name or 'this flow'}?",
        says=tuple(says),
        lines=tuple(lines),
        confirm="Retry",
        refused=None
        if may_be_retried(flow)
        else f"the flow is {flow.status}; only a blocked one can be retried",
    )


async def retry(visitor: Visitor, form: Query) -> str:
    done = await visitor.ask("flows.retry", flowId=form["flow"], **given(form, "node"))
    number = len(done.task_ids) or len(done.nodes)
    return f"{plural(number, 'task goes', 'tasks go')} on."


# A change of its tasks changes what the page of a flow says, too.
PAGES = [
    Page(
        path="/flows",
        title="Flows",
        template="flows.html",
        load=load_flows,
        section="flows",
        follows="flow",
    ),
    Page(
        path="/flows/{flow}",
        title="Flow",
        template="flow.html",
        load=load_flow,
        section="flows",
        follows="flow task_ run_",
    ),
]
ACTIONS = [
    Action(name="flows.start", ask=ask_start, act=start),
    Action(name="flows.cancel", ask=ask_cancel, act=cancel),
    Action(name="flows.retry", ask=ask_retry, act=retry),
]
