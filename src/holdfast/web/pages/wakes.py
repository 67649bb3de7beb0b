"""Wakes: what is to be woken and when, and what was."""

from __future__ import annotations

from typing import Any

from holdfast.views.browser import Visitor
from holdfast.web.page_kinds import Action, Confirmation, Field, Page, Query

PAGE = 30
PENDING, HISTORY = "pending", "history"


async def load(visitor: Visitor, query: Query) -> dict[str, Any]:
    which = HISTORY if query.get("which") == HISTORY else PENDING
    found = await visitor.ask(
        "wakes.history" if which == HISTORY else "wakes.list",
        limit=PAGE,
        taskId=query.get("task") or None,
        pageToken=query.get("page") or None,
    )
    return {"found": found, "which": which}


async def ask_cancel(visitor: Visitor, query: Query) -> Confirmation:
    task = (await visitor.ask("ledger.show", taskId=query["task"])).task
    return Confirmation(
        title="Cancel this wake?",
        says=(
            "The alarm does not go off.",
            f"The task {task.name} fails, because nothing would resume it; Retry brings it back.",
        ),
        lines=(f"{task.name}: {task.goal}",),
        fields=(Field(name="reason", label="Reason", value="cancelled at the dashboard"),),
        confirm="Cancel the wake",
        is_dangerous=True,
    )


async def cancel(visitor: Visitor, form: Query) -> str:
    wake = await visitor.ask(
        "wakes.cancel", wakeId=form["wakeId"], reason=form.get("reason") or "cancelled at the dashboard"
    )
    return f"The wake is {wake.status.value}."


PAGES = [
    Page(
        path="/wakes",
        title="Wakes",
        template="wakes.html",
        load=load,
        section="wakes",
        follows="wake run_w task_ended",
    )
]
ACTIONS = [Action(name="wakes.cancel", ask=ask_cancel, act=cancel)]
