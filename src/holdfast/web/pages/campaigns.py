"""Campaigns: how far each is and when it will be done, its items, and what a person may do with it."""

from __future__ import annotations

from typing import Any

from holdfast.views.browser import Visitor
from holdfast.web.charts import done_over_time, done_per_span
from holdfast.web.page_kinds import Action, Confirmation, Field, Page, Query
from holdfast.web.queries import given, whole_number
from holdfast.web.words import plural

LISTED = 25
BATCHES = 20
CHECKPOINTS = 6
ITEMS = 50
HOURS = {"1": 1, "6": 6, "24": 24, "48": 48}
DEFAULT_HOURS = "6"
STATUSES = ("running", "draft", "paused", "done", "failed")
ITEM_STATUSES = ("pending", "running", "paused", "done", "failed")


# --- pages


async def load_list(visitor: Visitor, query: Query) -> dict[str, Any]:
    listed = await visitor.ask("campaigns.list", **given(query, "status", page="pageToken"), limit=LISTED)
    return {"listed": listed, "statuses": STATUSES}


async def load_campaign(visitor: Visitor, query: Query) -> dict[str, Any]:
    name = query["campaign"]
    detail = await visitor.ask("campaigns.get", campaign=name)
    progress = await visitor.ask("progress.get", campaign=name)
    phase = query.get("phase") or progress.current_phase
    hours = query.get("hours") if query.get("hours") in HOURS else DEFAULT_HOURS
    throughput = await visitor.ask("progress.throughput", campaign=name, phase=phase, hours=HOURS[str(hours)])
    batches = await visitor.ask(
        "progress.batches", campaign=name, phase=phase, limit=BATCHES, **given(query, page="pageToken")
    )
    checkpoints = await visitor.ask("campaigns.checkpoints", campaign=name, limit=CHECKPOINTS)
    rate = next(one.rate for one in progress.phases if one.name == throughput.phase)
    return {
        "detail": detail,
        "campaign": detail.campaign,
        "progress": progress,
        "shown": throughput.phase,
        "rate": rate,
        "hours": hours,
        "hours_choices": [(one, f"{one} h") for one in HOURS],
        "done_chart": done_over_time(throughput, rate),
        "rate_chart": done_per_span(throughput),
        "batches": batches,
        "checkpoints": checkpoints,
        "specs": {one.name: one for one in detail.phases},
    }


async def load_items(visitor: Visitor, query: Query) -> dict[str, Any]:
    name = query["campaign"]
    detail = await visitor.ask("campaigns.get", campaign=name)
    wanted = given(query, "phase", "status", "priority", "category", page="pageToken")
    if query.get("uncategorised"):
        wanted["category"] = ""
    found = await visitor.ask(
        "campaigns.items", campaign=name, limit=ITEMS, batch=whole_number(query, "batch"), **wanted
    )
    return {
        "detail": detail,
        "campaign": detail.campaign,
        "found": found,
        "statuses": ITEM_STATUSES,
        "priorities": [f"P{number}" for number in range(10)],
        "kept": given(
            query, "phase", "status", "priority", "category", "uncategorised", "batch", page="page"
        ),
    }


async def load_item(visitor: Visitor, query: Query) -> dict[str, Any]:
    item = await visitor.ask("campaigns.item", campaign=query["campaign"], itemId=query["item"])
    return {"item": item}


# --- actions


async def ask_start(visitor: Visitor, query: Query) -> Confirmation:
    detail = await visitor.ask("campaigns.get", campaign=query["campaign"])
    unknown = [one for one in detail.phases if not one.is_task_known]
    many, limit = plural(detail.campaign.items, "item"), f"at most {detail.concurrency:,} at a time"
    return Confirmation(
        title=f"Start {detail.campaign.name}?",
        says=(f"Workers take its {many} through {_phases(detail)}, {limit}.",),
        lines=tuple(f"No worker that is alive knows the task {one.task} of {one.name}." for one in unknown),
        confirm="Start",
    )


async def start(visitor: Visitor, form: Query) -> str:
    changed = await visitor.ask("campaigns.start", campaign=form["campaign"])
    return f"{changed.campaign.name} is {changed.campaign.status}."


async def ask_pause(visitor: Visitor, query: Query) -> Confirmation:
    detail = await visitor.ask("campaigns.get", campaign=query["campaign"])
    return Confirmation(
        title=f"Pause {detail.campaign.name}?",
        says=(
            "No further item starts.",
            f"{plural(detail.in_flight, 'item')} in flight {_come(detail.in_flight)}.",
            "Nothing is interrupted.",
        ),
        fields=(Field(name="reason", label="Reason", value="paused at the dashboard", is_required=True),),
        confirm="Pause",
    )


async def pause(visitor: Visitor, form: Query) -> str:
    changed = await visitor.ask("campaigns.pause", campaign=form["campaign"], **given(form, "reason"))
    return f"{changed.campaign.name} is {changed.campaign.status}."


async def ask_resume(visitor: Visitor, query: Query) -> Confirmation:
    detail = await visitor.ask("campaigns.get", campaign=query["campaign"])
    campaign = detail.campaign
    why = f"It was paused: {campaign.reason}." if campaign.reason else "It is paused."
    return Confirmation(
        title=f"Resume {campaign.name}?",
        says=(why, "Items start again, the most urgent first; those that were interrupted go on."),
        confirm="Resume",
    )


async def resume(visitor: Visitor, form: Query) -> str:
    changed = await visitor.ask("campaigns.resume", campaign=form["campaign"])
    return f"{changed.campaign.name} is {changed.campaign.status}."


async def ask_retry(visitor: Visitor, query: Query) -> Confirmation:
    detail = await visitor.ask("campaigns.get", campaign=query["campaign"])
    phase, item = query.get("phase"), query.get("item")
    after = "Each goes on after its last saved step; what was done is not done again."
    if item:
        return Confirmation(
            title=f"Retry {item}?",
            says=(f"It starts again in {phase}." if phase else "It starts again.", after),
            confirm="Retry",
        )
    failed = {one.name: one.failed for one in detail.phases if phase in (None, "", one.name) and one.failed}
    number = sum(failed.values())
    return Confirmation(
        title=f"Retry the failed items of {phase or detail.campaign.name}?",
        says=(f"{plural(number, 'item starts', 'items start')} again.", after),
        lines=tuple(f"{name}: {count:,} failed" for name, count in failed.items()),
        confirm="Retry",
        refused=None if number else "no item has failed",
    )


async def retry(visitor: Visitor, form: Query) -> str:
    items = [form["item"]] if form.get("item") else []
    done = await visitor.ask(
        "campaigns.retry", campaign=form["campaign"], itemIds=items, **given(form, "phase")
    )
    more = " More have failed: retry again." if done.has_more else ""
    return f"{plural(done.retried, 'item starts', 'items start')} again.{more}"


async def ask_milestone(visitor: Visitor, query: Query) -> Confirmation:
    detail = await visitor.ask("campaigns.get", campaign=query["campaign"])
    return Confirmation(
        title=f"Save a milestone of {detail.campaign.name}?",
        says=(
            "The campaign is saved as a whole under this name; nothing of it stops.",
            "A restore can later let everything that was not done then start anew.",
        ),
        fields=(
            Field(
                name="name",
                label="Name",
                is_required=True,
                hint="Small letters, digits, - and _, at most 26 of them: before-cleanup.",
                pattern="[a-z0-9][a-z0-9_\\-]{0,25}",
            ),
        ),
        confirm="Save",
    )


async def milestone(visitor: Visitor, form: Query) -> str:
    saved = await visitor.ask("campaigns.milestone", campaign=form["campaign"], name=form.get("name", ""))
    return f"Saved {saved.id}: {saved.done:,} of {saved.total:,} done."


def _come(number: int) -> str:
    return "comes to its end" if number == 1 else "come to their end"


def _phases(detail: Any) -> str:
    return " and ".join(one.name for one in detail.phases)


_FOLLOWS = "campaign item restore"
PAGES = [
    Page(
        path="/campaigns",
        title="Campaigns",
        template="campaigns.html",
        load=load_list,
        section="campaigns",
        follows=_FOLLOWS,
    ),
    Page(
        path="/campaigns/{campaign}",
        title="Campaign",
        template="campaign.html",
        load=load_campaign,
        section="campaigns",
        follows=_FOLLOWS,
        every_s=10,
    ),
    Page(
        path="/campaigns/{campaign}/items",
        title="Items",
        template="campaign-items.html",
        load=load_items,
        section="campaigns",
        follows=_FOLLOWS,
    ),
    Page(
        path="/campaigns/{campaign}/items/{item}",
        title="Item",
        template="campaign-item.html",
        load=load_item,
        section="campaigns",
        follows=_FOLLOWS,
    ),
]
ACTIONS = [
    Action(name="campaigns.start", ask=ask_start, act=start),
    Action(name="campaigns.pause", ask=ask_pause, act=pause),
    Action(name="campaigns.resume", ask=ask_resume, act=resume),
    Action(name="campaigns.retry", ask=ask_retry, act=retry),
    Action(name="campaigns.milestone", ask=ask_milestone, act=milestone),
]
