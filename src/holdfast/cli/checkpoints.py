"""checkpoints list, show, retry, prune; those of campaigns have a file of their own."""

from __future__ import annotations

from datetime import datetime, timedelta

import click

from holdfast.api.checkpoints import (
    MAX_PREVIEWED,
    CheckpointAsked,
    CheckpointsAsked,
    PruneAsked,
    moment_of,
    prunable,
    prune,
    read_checkpoint,
    read_page,
    retrying_checkpoint,
)
from holdfast.cli.campaign_names import campaign_name
from holdfast.cli.groups import LazyListGroup
from holdfast.cli.invocation import (
    Invocation,
    checkpoint_prefix,
    page_option,
    read_duration,
    shared_options,
    task_target,
)
from holdfast.cli.output import Output, clock_time, counted
from holdfast.cli.task_list import say_counts
from holdfast.cli.task_show import print_checkpoints
from holdfast.core.campaign_checkpoint import ID_PREFIX, CampaignCheckpointKind
from holdfast.core.checkpoint import CheckpointKind
from holdfast.core.errors import NoLedger
from holdfast.core.transitions import CheckpointStatus
from holdfast.views.checkpoints import CheckpointLineView, CheckpointPageView, CheckpointView, PrunedView

STATUSES = [status.value for status in CheckpointStatus]


# Every saved step; it has no record of its own.
MICRO = CheckpointKind.MICRO.value
KINDS = [kind.value for kind in CampaignCheckpointKind]

CHECKPOINTS: dict[str, tuple[str, str]] = {
    "list": ("holdfast.cli.checkpoints:list_checkpoints", "Checkpoints, newest first; may be left out."),
    "show": ("holdfast.cli.checkpoints:show_checkpoint", "One checkpoint in full."),
    "retry": ("holdfast.cli.checkpoints:retry_checkpoint", "Retry a failed resume."),
    "milestone": ("holdfast.cli.campaign_checkpoints:name_milestone", "Save a campaign under a name."),
    "restore": (
        "holdfast.cli.campaign_checkpoints:restore_checkpoint",
        "Go back to a milestone of a campaign.",
    ),
    "prune": ("holdfast.cli.checkpoints:prune_checkpoints", "Delete old checkpoints."),
}


@click.group("checkpoints", cls=LazyListGroup, table=CHECKPOINTS)
@shared_options
def checkpoints() -> None:
    """Saved points: of runs, from which interrupted work resumes, and of campaigns."""


# --- list


@click.command("list", short_help="Checkpoints, newest first.")
@click.option("--status", type=click.Choice(STATUSES), help="Only checkpoints in this status.")
@click.option(
    "--task", "task_id", callback=task_target, metavar="TASK", help="Only checkpoints of this task."
)
@click.option(
    "--campaign", callback=campaign_name, metavar="NAME", help="Checkpoints of this campaign instead."
)
@click.option("--campaigns", "is_of_campaigns", is_flag=True, help="Checkpoints of all campaigns instead.")
@click.option("--kind", type=click.Choice([MICRO, *KINDS]), help="With --campaign: only this kind.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Maximum number to show."
)
@page_option
@shared_options
@click.pass_obj
def list_checkpoints(
    call: Invocation,
    status: str | None,
    task_id: str | None,
    campaign: str | None,
    kind: str | None,
    limit: int,
    page: str | None,
    *,
    is_of_campaigns: bool,
) -> None:
    """Checkpoints, newest first, a page at a time: of runs, or of one campaign or all.

    The kind `micro` is every saved step of a task; the list shows the last one of each item.
    """
    if campaign is not None or is_of_campaigns or kind is not None:
        _list_of_campaigns(call, status, task_id, campaign, kind, limit, page, is_of_all=is_of_campaigns)
        return
    wanted = None if status is None else CheckpointStatus(status)
    asked = CheckpointsAsked(status=wanted, task_id=task_id, page_token=page, limit=limit)
    view = call.look_at_list("checkpoints.list", asked, lambda tx: read_page(tx, asked), CheckpointPageView())
    call.output.show(view, lambda: _print_page(call.output, view, call.clock.now()))


def _list_of_campaigns(
    call: Invocation,
    status: str | None,
    task_id: str | None,
    campaign: str | None,
    kind: str | None,
    limit: int,
    page: str | None,
    *,
    is_of_all: bool,
) -> None:
    if status is not None or task_id is not None:
        raise click.UsageError("--status and --task are for checkpoints of runs, not of campaigns")
    if (campaign is None) == (not is_of_all):
        raise click.UsageError("give either --campaign NAME or --campaigns; --kind goes with --campaign NAME")
    if kind is not None and campaign is None:
        raise click.UsageError("--kind goes with --campaign NAME")
    from holdfast.cli.campaign_checkpoints import print_list, print_micro

    if kind == MICRO and campaign is not None:
        if page is not None:
            raise click.UsageError("micro checkpoints have no pages: use a larger --limit")
        print_micro(call, campaign, limit=limit)
        return
    print_list(call, campaign, kind, limit=limit, page=page)


def _print_page(output: Output, view: CheckpointPageView, now: datetime) -> None:
    if view.checkpoints:
        print_checkpoints(output, view.checkpoints, now)
    say_counts(output, "checkpoint", view.counts, shown=len(view.checkpoints))
    if view.next_page_token is not None:
        output.say_next(view.next_page_token)


# --- show


@click.command("show", short_help="One checkpoint in full.")
@click.argument("checkpoint_id", metavar="ID", callback=checkpoint_prefix)
@shared_options
@click.pass_obj
def show_checkpoint(call: Invocation, checkpoint_id: str) -> None:
    """One checkpoint: what was saved, and how it was resumed. Of a campaign: what has changed since.

    The output of --json follows docs/schemas/checkpoint-view.v1.json; of a campaign's, docs/guides/json.md.
    """
    if checkpoint_id.startswith(ID_PREFIX):
        from holdfast.cli.campaign_checkpoints import print_one

        print_one(call, checkpoint_id)
        return
    view = call.look(
        "checkpoints.show",
        CheckpointAsked(checkpoint_id=checkpoint_id),
        lambda tx: read_checkpoint(tx, checkpoint_id),
        CheckpointView,
    )
    call.output.show(view, lambda: _print(call.output, view))


def _print(output: Output, view: CheckpointView) -> None:
    diagnostic = None if view.diagnostic is None else f"{view.diagnostic.kind}: {view.diagnostic.message}"
    output.fields(
        [
            ("checkpoint", view.id),
            ("status", view.status or "recorded"),
            ("kind", view.kind.value),
            ("reason", view.reason.value),
            ("task", view.task_id),
            ("run", view.run_id),
            ("resumed as", view.resumed_run_id),
            ("retry of", view.retry_of),
            ("attempts", str(view.attempts)),
            ("held by", view.claimed_by if view.status is CheckpointStatus.RESUMING else None),
            ("diagnostic", diagnostic),
            ("problem", view.problem),
            ("saved", clock_time(view.created_at)),
            ("changed", clock_time(view.updated_at)),
        ]
    )
    if view.document is not None:
        document = view.document
        output.heading("What was saved")
        output.fields(
            [
                ("goal", document.goal),
                ("last step", document.cursor.last_completed),
                ("next step", document.cursor.next_step),
                ("steps saved", f"{document.steps_saved:,}"),
                ("decisions", "\n".join(note.text for note in document.decisions)),
                ("tool context", "\n".join(note.text for note in document.tool_context)),
                (
                    "artifacts",
                    "\n".join(f"{one.name} ({one.path or one.kind})" for one in document.artifacts),
                ),
                ("idle attempts", str(document.idle_attempts) if document.idle_attempts else None),
                ("note", document.note),
            ]
        )
    if view.advice is not None:
        output.say(view.advice)


# --- retry


@click.command("retry", short_help="Retry a failed resume.")
@click.argument("checkpoint_id", metavar="ID", callback=checkpoint_prefix)
@shared_options
@click.pass_obj
def retry_checkpoint(call: Invocation, checkpoint_id: str) -> None:
    """Retry a failed resume. This creates a new checkpoint that refers to the failed one, and resumes it."""
    asked = CheckpointAsked(checkpoint_id=checkpoint_id)
    view = call.change("checkpoints.retry", asked, retrying_checkpoint, CheckpointLineView)
    call.output.show(
        view, lambda: call.output.line(f"{view.id} retries {view.retry_of}; it is {view.status}")
    )


# --- prune


@click.command("prune", short_help="Delete old checkpoints of ended tasks.")
@click.option(
    "--older-than",
    callback=read_duration,
    default="30d",
    show_default=True,
    help="Delete only checkpoints older than this.",
)
@click.option(
    "--campaign",
    callback=campaign_name,
    metavar="NAME",
    help="Checkpoints of this campaign instead; its last one stays.",
)
@click.option("--kind", type=click.Choice(KINDS), help="With --campaign: only this kind.")
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Only list what would be deleted.")
@shared_options
@click.pass_obj
def prune_checkpoints(
    call: Invocation, older_than: timedelta, campaign: str | None, kind: str | None, *, is_dry_run: bool
) -> None:
    """Delete settled checkpoints (resumed or failed) of tasks that have ended, or those of a campaign."""
    if campaign is not None:
        from holdfast.cli.campaign_checkpoints import prune_campaign

        prune_campaign(call, campaign, kind, older_than, is_dry_run=is_dry_run)
        return
    if kind is not None:
        raise click.UsageError("--kind goes with --campaign NAME")
    asked = PruneAsked(older_than_s=older_than.total_seconds(), is_dry_run=is_dry_run)
    view = _preview(call, asked) if is_dry_run else _prune(call, asked)
    call.output.show(view, lambda: _print_pruned(call.output, view))


def _preview(call: Invocation, asked: PruneAsked) -> PrunedView:
    if call.gateway_url is not None:
        return call.ask("checkpoints.prune", asked, PrunedView)
    with call.listing() as ledger:
        moment = moment_of(asked, call.clock.now())
        if ledger is not None:
            return ledger.read_now(lambda tx: prunable(tx, moment))
    return PrunedView(is_dry_run=True, older_than=moment, count=0, checkpoint_ids=[])


def _prune(call: Invocation, asked: PruneAsked) -> PrunedView:
    try:
        with call.writing_or_asking() as ledger:
            if ledger is None:
                return call.ask("checkpoints.prune", asked, PrunedView)
            call.record(ledger, "checkpoints.prune", asked)
            return prune(ledger.write_now, moment_of(asked, call.clock.now()))
    except NoLedger as error:
        call.output.say(str(error))
        moment = moment_of(asked, call.clock.now())
        return PrunedView(is_dry_run=False, older_than=moment, count=0, checkpoint_ids=[])


def _print_pruned(output: Output, view: PrunedView) -> None:
    for checkpoint_id in view.checkpoint_ids:
        output.line(checkpoint_id)
    or_more = " or more" if view.is_dry_run and view.count >= MAX_PREVIEWED else ""
    verb = "would be deleted" if view.is_dry_run else "deleted"
    output.say(
        f"{counted(view.count, 'checkpoint')}{or_more} {verb} (settled before {clock_time(view.older_than)})"
    )
