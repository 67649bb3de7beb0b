"""campaign: campaigns as a list and in full, and their items; changes have a file of their own."""

from __future__ import annotations

import re
from datetime import datetime

import click

from holdfast.api.campaigns import (
    CampaignAsked,
    CampaignsAsked,
    ItemAsked,
    ItemsAsked,
    read_campaign,
    read_campaigns,
    read_item,
    read_items,
)
from holdfast.cli.campaign_names import campaign_argument, campaign_name
from holdfast.cli.groups import LazyListGroup
from holdfast.cli.invocation import Invocation, page_option, shared_options
from holdfast.cli.output import Output, ago, brief, clock_time, counted, percent
from holdfast.cli.task_list import say_counts
from holdfast.core.transitions import CampaignStatus, ItemStatus
from holdfast.views.campaigns import (
    CampaignDetailView,
    CampaignPageView,
    ItemDetailView,
    ItemPageView,
    ItemPhaseView,
    PhaseView,
)

ITEM_STATUSES = [status.value for status in ItemStatus]
_PRIORITY = re.compile(r"P[0-9]")
_BATCH = re.compile(r"(?:batch-)?0*([1-9][0-9]{0,7})")

CAMPAIGN: dict[str, tuple[str, str]] = {
    "list": ("holdfast.cli.campaigns:list_campaigns", "Campaigns, newest first; may be left out."),
    "show": ("holdfast.cli.campaigns:show_campaign", "One campaign: its limits and its phases."),
    "items": ("holdfast.cli.campaigns:list_items", "Items of one phase, by status, priority or batch."),
    "item": ("holdfast.cli.campaigns:show_item", "One item through all phases."),
    "recovery": ("holdfast.cli.campaign_recovery:show_recovery", "What a restart would go on with."),
    "create": ("holdfast.cli.campaign_changes:create_campaign", "Create one, and add the items of a file."),
    "analyse": ("holdfast.cli.campaign_analysis:analyse_folder", "Analyse the repositories of a folder."),
    "add": ("holdfast.cli.campaign_changes:add_items", "Add items, also while it runs."),
    "start": ("holdfast.cli.campaign_changes:start_campaign", "Start a campaign."),
    "pause": ("holdfast.cli.campaign_changes:pause_campaign", "Start no more items."),
    "resume": ("holdfast.cli.campaign_changes:resume_campaign", "Let a paused campaign go on."),
    "retry": ("holdfast.cli.campaign_changes:retry_items", "Let failed items start again."),
}


@click.group("campaign", cls=LazyListGroup, table=CAMPAIGN)
@shared_options
def campaign() -> None:
    """Campaigns: many items that go through the same phases."""


def batch_number(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """`9` and `batch-009` are the same."""
    if value is None:
        return None
    found = _BATCH.fullmatch(value)
    if found is None:
        raise click.BadParameter(f"{value!r:.40} is no batch; write 9 or batch-009", context, parameter)
    return int(found[1])


def priority_text(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not _PRIORITY.fullmatch(value):
        raise click.BadParameter(f"{value!r:.40} is no priority; write P0 to P9", context, parameter)
    return value


# --- list


@click.command("list", short_help="Campaigns, newest first.")
@click.option(
    "--status", type=click.Choice([status.value for status in CampaignStatus]), help="Only in this status."
)
@click.option("--owner", help="Only campaigns of this owner.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Maximum number to show."
)
@page_option
@shared_options
@click.pass_obj
def list_campaigns(
    call: Invocation, status: str | None, owner: str | None, limit: int, page: str | None
) -> None:
    """Campaigns, newest first, a page at a time.

    DONE counts each item once in each phase.
    """
    asked = CampaignsAsked(
        status=None if status is None else CampaignStatus(status), owner=owner, limit=limit, page_token=page
    )
    view = call.look_at_list(
        "campaigns.list", asked, lambda tx: read_campaigns(tx, asked), CampaignPageView()
    )
    call.output.show(view, lambda: _print_page(call.output, view, call.clock.now()))


def _print_page(output: Output, view: CampaignPageView, now: datetime) -> None:
    if view.campaigns:
        rows = [
            [
                line.campaign.name,
                line.campaign.status,
                f"{line.done:,} of {line.total:,}",
                percent(line.percent),
                f"{line.failed:,}" if line.failed else "-",
                ago(line.campaign.updated_at, now),
                line.campaign.owner,
                line.campaign.id,
                ", ".join(line.campaign.phases),
            ]
            for line in view.campaigns
        ]
        headers = ("NAME", "STATUS", "DONE", "%", "FAILED", "CHANGED", "OWNER", "ID", "PHASES")
        output.table(headers, rows, leave=("ID", "OWNER", "CHANGED", "FAILED"))
    say_counts(output, "campaign", view.counts, shown=view.count)
    for problem in view.problems:
        output.say(f"damaged: {problem}")
    if view.next_page_token is not None:
        output.say_next(view.next_page_token)


# --- show


@click.command("show", short_help="One campaign: its limits and its phases.")
@campaign_argument
@shared_options
@click.pass_obj
def show_campaign(call: Invocation, campaign: str) -> None:
    """One campaign: its limits, its phases with their tasks and counts, and what needs attention."""
    asked = CampaignAsked(campaign=campaign)
    view = call.look(
        "campaigns.get",
        asked,
        lambda tx: read_campaign(tx, asked, projection=call.projection()),
        CampaignDetailView,
    )
    call.output.show(view, lambda: _print_campaign(call, view))


def _print_campaign(call: Invocation, view: CampaignDetailView) -> None:
    one, output = view.campaign, call.output
    output.fields(
        [
            ("campaign", one.name),
            ("id", one.id),
            ("status", one.status),
            ("reason", one.reason),
            ("goal", one.goal),
            ("owner", one.owner),
            ("items", f"{one.items:,} in {one.batches:,} batches of at most {view.batch_size:,}"),
            ("in flight", _in_flight(view)),
            (
                "saved",
                f"after {counted(view.checkpoint_every_items, 'item')} or {view.checkpoint_every_s} s",
            ),
            ("last checkpoint", view.last_checkpoint),
            ("created", clock_time(one.created_at)),
            ("started", clock_time(one.started_at)),
            ("ended", clock_time(one.ended_at)),
        ]
    )
    output.heading(counted(len(view.phases), "phase"))
    rows = [
        (
            phase.name,
            f"{phase.done:,} of {phase.total:,}",
            f"{phase.running + phase.paused:,}",
            f"{phase.failed:,}",
            _needs(phase),
            ", ".join(phase.stages) or "-",
            "-" if phase.concurrency is None else f"{phase.concurrency:,}",
            phase.task,
        )
        for phase in view.phases
    ]
    headers = ("PHASE", "DONE", "RUNNING", "FAILED", "NEEDS", "STAGES", "LIMIT", "TASK")
    output.table(headers, rows, leave=("LIMIT", "STAGES", "NEEDS"))
    print_issues(output, view.issues)
    output.say(f"its progress: {call.command('progress', one.name)}")


def print_issues(output: Output, issues: list[str]) -> None:
    """What needs attention, with the commands to copy; nothing if there is nothing."""
    if issues:
        output.heading("needs attention")
        for issue in issues:
            output.line(f"  {output.paint('!', 'yellow')} {output.to_copy(issue)}")


def _in_flight(view: CampaignDetailView) -> str:
    host = "" if view.host_concurrency is None else f", {view.host_concurrency:,} on a host"
    return f"{view.in_flight:,} of at most {view.concurrency:,}{host}"


def _needs(phase: PhaseView) -> str:
    return ("all of " if phase.waits_for_all and phase.needs else "") + (", ".join(phase.needs) or "-")


# --- items


@click.command("items", short_help="Items of one phase, by status, priority or batch.")
@campaign_argument
@click.option("--phase", metavar="NAME", help="The phase; by default the current one.")
@click.option("--status", type=click.Choice(ITEM_STATUSES), help="Only items in this status.")
@click.option("--priority", callback=priority_text, metavar="P0-P9", help="Only items of this priority.")
@click.option("--category", help="Only items of this category; '' for those without one.")
@click.option("--batch", callback=batch_number, metavar="BATCH", help="Only items of this batch.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Maximum number to show."
)
@page_option
@shared_options
@click.pass_obj
def list_items(
    call: Invocation,
    campaign: str,
    phase: str | None,
    status: str | None,
    priority: str | None,
    category: str | None,
    batch: int | None,
    limit: int,
    page: str | None,
) -> None:
    """The items of a campaign in one phase, in the order in which they were added, a page at a time."""
    asked = ItemsAsked(
        campaign=campaign,
        phase=phase,
        status=None if status is None else ItemStatus(status),
        priority=priority,
        category=category,
        batch=batch,
        limit=limit,
        page_token=page,
    )
    view = call.look("campaigns.items", asked, lambda tx: read_items(tx, asked), ItemPageView)
    call.output.show(view, lambda: _print_items(call.output, view, call.clock.now()))


def _print_items(output: Output, view: ItemPageView, now: datetime) -> None:
    if view.items:
        rows = [
            [
                one.id or "damaged",
                one.status,
                one.priority,
                one.batch,
                one.category or "-",
                _how_far(one),
                ago(one.updated_at, now),
                one.task_id or "-",
                one.name or "-",
                why_of(one),
            ]
            for one in view.items
        ]
        headers = ["ITEM", "STATUS", "PRIO", "BATCH", "CATEGORY", "STAGE", "CHANGED", "TASK", "NAME", "WHY"]
        leave = ["NAME", "CHANGED", "CATEGORY", "TASK"]
        if not any(why_of(one) for one in view.items):
            # Nothing failed: the names matter more than an empty column.
            headers, rows, leave = headers[:-1], [row[:-1] for row in rows], leave[1:]
        output.table(headers, rows, leave=leave)
    output.say(f"{counted(view.count, 'item')} of {view.campaign} in the phase {view.phase}")
    if view.next_page_token is not None:
        output.say_next(view.next_page_token)


def _how_far(one: ItemPhaseView) -> str:
    """`transfer 50%`; a dash if its task has told nothing, or is over."""
    if one.status == "done":
        return "-"
    share = f"{one.percent}%" if one.percent else ""
    return f"{one.stage or ''} {share}".strip() or "-"


def why_of(one: ItemPhaseView) -> str:
    """Why it failed, or why it was started anew; else nothing."""
    return one.error or one.note or ""


# --- one item


@click.command("item", short_help="One item through all phases.")
@campaign_argument
@click.argument("item_id", metavar="ITEM", callback=campaign_name)
@shared_options
@click.pass_obj
def show_item(call: Invocation, campaign: str, item_id: str) -> None:
    """One item: its fields, and how it went in each phase."""
    asked = ItemAsked(campaign=campaign, item_id=item_id)
    view = call.look("campaigns.item", asked, lambda tx: read_item(tx, asked), ItemDetailView)
    call.output.show(view, lambda: _print_item(call.output, view))


def _print_item(output: Output, view: ItemDetailView) -> None:
    output.fields(
        [
            ("item", view.id),
            ("campaign", view.campaign),
            ("name", view.name),
            ("priority", view.priority),
            ("category", view.category),
            ("batch", view.batch),
            ("number", f"{view.number:,}"),
            ("fields", brief(view.fields)),
            ("added", clock_time(view.created_at)),
        ]
    )
    for one in view.phases:
        output.heading(one.phase)
        output.fields(facts_of(one))
    for problem in view.problems:
        output.say(f"damaged: {problem}")


def facts_of(one: ItemPhaseView) -> list[tuple[str, str | None]]:
    """One item in one phase, as names and values."""
    waits = f"{counted(one.unmet, 'phase')} before it" if one.unmet else None
    return [
        ("status", one.status),
        ("waits for", waits if one.status == "pending" else None),
        ("agent", one.agent_id),
        ("task", one.task_id),
        ("stage", None if one.stage is None else f"{one.stage} ({one.percent}%)"),
        ("subtask", one.subtask),
        ("last action", one.last_action),
        ("attempt", f"{one.attempt}" if one.attempt > 1 else None),
        ("error", one.error),
        ("note", one.note),
        ("result", None if one.summary is None else brief(one.summary)),
        ("started", clock_time(one.started_at)),
        ("ended", clock_time(one.ended_at)),
    ]
