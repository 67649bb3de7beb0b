"""The overview: what waits for a person first, then what goes on, and the gateway itself."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from holdfast.views.browser import NotAnswered, Visitor
from holdfast.web.page_kinds import ADMIN, Action, Confirmation, Field, Page, Query
from holdfast.web.words import plural

SHOWN = 5
RUNNING = 8
# Of the newest campaigns, so many that have ended.
LOOKED_AT, ENDED_SHOWN = 10, 3
ENDED = ("done", "failed")
# The gateway counts what waits, and some of what needs a person, among so many of each.
COUNTED_AT_MOST = 100
WAITING = ("queued", "waiting", "needs_review", "paused")


async def load(visitor: Visitor, query: Query) -> dict[str, Any]:  # noqa: ARG001 - as every page has it
    gateway = await visitor.ask("gateway.status")
    overview = await visitor.ask("ledger.overview")
    found: dict[str, Any] = {
        "gateway": gateway,
        "overview": overview,
        "reviews": [],
        "questions": [],
        "alerts": [],
        "campaigns": [],
        "ended_campaigns": [],
        "running": (await visitor.ask("ledger.list", status=["running"], limit=RUNNING)).tasks,
        "readiness": await visitor.ask("gateway.readiness"),
        "counted_at_most": COUNTED_AT_MOST,
        "is_waiting_cut": any(overview.tasks.get(status, 0) > COUNTED_AT_MOST for status in WAITING),
    }
    if overview.open_reviews:
        found["reviews"] = (await visitor.ask("reviews.list", limit=SHOWN)).reviews
    if overview.open_questions:
        found["questions"] = (await visitor.ask("questions.list", limit=SHOWN)).questions
    if overview.raised_alerts:
        found["alerts"] = (await visitor.ask("alerts.list", limit=SHOWN)).alerts
    if any(overview.campaigns.get(status) for status in ENDED):
        listed = (await visitor.ask("campaigns.list", limit=LOOKED_AT)).campaigns
        found["ended_campaigns"] = [one for one in listed if one.campaign.status in ENDED][:ENDED_SHOWN]
    for one in overview.running_campaigns:
        found["campaigns"].append(await visitor.ask("progress.get", campaign=one.campaign.id))
    return found


async def ask_restart(visitor: Visitor, query: Query) -> Confirmation:  # noqa: ARG001 - as every action has it
    readiness = await visitor.ask("gateway.readiness")
    lines = tuple(f"{one.kind}: {one.title} ({one.status})" for one in readiness.interruptions)
    says = [
        readiness.summary,
        "The gateway takes no new work, lets each run stop at its next saved step, and starts anew.",
        "Then each interrupted run goes on once. Messages that arrive meanwhile are stored and answered.",
    ]
    fields = [Field(name="reason", label="Reason", value="asked for at the dashboard", is_required=True)]
    if not readiness.is_safe:
        fields.append(
            Field(
                name="force",
                label=f"Restart although this interrupts more than {readiness.threshold}",
                kind="check",
                hint="Without it the gateway refuses the restart, and nothing is interrupted.",
            )
        )
    return Confirmation(
        title="Restart the gateway?",
        says=tuple(says),
        lines=lines,
        fields=tuple(fields),
        confirm="Restart",
        is_dangerous=not readiness.is_safe,
    )


async def restart(visitor: Visitor, form: Query) -> str:
    answer = await visitor.ask(
        "gateway.restart", reason=form.get("reason", ""), force=form.get("force") == "yes"
    )
    if not answer.is_accepted:
        raise NotAnswered("refused", answer.why or "the restart was refused", status=HTTPStatus.CONFLICT)
    return "The gateway restarts; this page comes back by itself."


async def ask_release(visitor: Visitor, query: Query) -> Confirmation:  # noqa: ARG001 - as every action has it
    gateway = await visitor.ask("gateway.status")
    return Confirmation(
        title="Release held work?",
        says=(
            "Interrupted work is held, so that a run that kills the gateway cannot do so again and again.",
            "Released, each run goes on from its checkpoint.",
        ),
        lines=tuple(hold.why for hold in gateway.holds),
        confirm="Release",
        refused=None if gateway.holds else "nothing is held now",
    )


async def release(visitor: Visitor, form: Query) -> str:  # noqa: ARG001 - as every action has it
    answer = await visitor.ask("gateway.resume")
    return f"Released; {plural(answer.resumed, 'run goes', 'runs go')} on."


PAGES = [
    Page(
        path="/",
        title="Overview",
        template="overview.html",
        load=load,
        section="overview",
        follows="task run effect question campaign item alert restart boot flow delivery checkpoint",
    )
]
ACTIONS = [
    Action(name="gateway.restart", ask=ask_restart, act=restart, needs=ADMIN),
    Action(name="gateway.resume", ask=ask_release, act=release, needs=ADMIN),
]
