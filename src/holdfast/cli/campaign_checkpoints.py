"""checkpoints of campaigns: list, show, milestone, restore, prune."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click

from holdfast.api.campaign_checkpoints import (
    CampaignCheckpointAsked,
    CampaignCheckpointsAsked,
    CampaignPruneAsked,
    MicroCheckpointsAsked,
    MilestoneAsked,
    RestoreAsked,
    prunable_checkpoints,
    prune_checkpoints,
    read_campaign_checkpoint,
    read_campaign_checkpoints,
    read_micro_checkpoints,
    read_restore_plan,
    restore_some,
    save_milestone,
)
from holdfast.api.checkpoints import MAX_PREVIEWED, PruneAsked, moment_of
from holdfast.cli.campaign_names import campaign_name
from holdfast.cli.errors import FAILED
from holdfast.cli.invocation import Invocation, milestone_prefix, shared_options
from holdfast.cli.output import Output, ago, clock_time, counted
from holdfast.core.campaign_checkpoint import CampaignCheckpointKind
from holdfast.core.errors import BadInput, NoLedger, Refused
from holdfast.views.campaign_checkpoints import (
    CampaignCheckpointLineView,
    CampaignCheckpointPageView,
    CampaignCheckpointView,
    CampaignPrunedView,
    MicroCheckpointPageView,
    RestorePlanView,
    RestoreProgressView,
    UndonePhaseView,
)

if TYPE_CHECKING:
    from holdfast.engine.program.forks import Compensate

# A restore reads and writes for a while in each call.
_RESTORE_TIMEOUT_S = 300.0


# --- list and show


def print_list(
    call: Invocation, campaign: str | None, kind: str | None, *, limit: int, page: str | None
) -> None:
    """The checkpoints of one campaign, or of all."""
    asked = CampaignCheckpointsAsked(
        campaign=campaign,
        kind=None if kind is None else CampaignCheckpointKind(kind),
        limit=limit,
        page_token=page,
    )
    view = call.look_at_list(
        "campaigns.checkpoints",
        asked,
        lambda tx: read_campaign_checkpoints(tx, asked),
        CampaignCheckpointPageView(),
    )
    call.output.show(view, lambda: _print_page(call.output, view, call.clock.now()))


def print_micro(call: Invocation, campaign: str, *, limit: int) -> None:
    """The steps that the items of a campaign saved last."""
    asked = MicroCheckpointsAsked(campaign=campaign, limit=limit)
    view = call.look_at_list(
        "campaigns.micro_checkpoints",
        asked,
        lambda tx: read_micro_checkpoints(tx, asked),
        MicroCheckpointPageView(),
    )
    call.output.show(view, lambda: _print_micro(call.output, view, call.clock.now()))


def _print_micro(output: Output, view: MicroCheckpointPageView, now: datetime) -> None:
    if view.checkpoints:
        rows = [
            [one.item, one.phase, one.status, one.last_action, ago(one.saved_at, now), one.task_id or "-"]
            for one in view.checkpoints
        ]
        headers = ("ITEM", "PHASE", "STATUS", "LAST STEP", "SAVED", "TASK")
        output.table(headers, rows, leave=("TASK", "STATUS"))
    output.say(
        f"the last saved steps of {counted(len(view.checkpoints), 'item')}; all: holdfast tasks steps TASK"
    )


def _print_page(output: Output, view: CampaignCheckpointPageView, now: datetime) -> None:
    if view.checkpoints:
        rows = [
            [
                one.id,
                "damaged" if one.is_damaged else one.kind,
                f"{one.done:,} of {one.total:,}",
                "yes" if one.recoverable else "-",
                one.campaign,
                one.phase or "-",
                ago(one.created_at, now),
            ]
            for one in view.checkpoints
        ]
        headers = ("ID", "KIND", "DONE", "RESTORE", "CAMPAIGN", "PHASE", "SAVED")
        output.table(headers, rows, leave=("PHASE", "CAMPAIGN", "SAVED"))
    output.say(counted(len(view.checkpoints), "checkpoint"))
    if view.next_page_token is not None:
        output.say_next(view.next_page_token)


def print_one(call: Invocation, checkpoint_id: str) -> None:
    asked = CampaignCheckpointAsked(checkpoint_id=checkpoint_id)
    view = call.look(
        "campaigns.checkpoint",
        asked,
        lambda tx: read_campaign_checkpoint(tx, asked),
        CampaignCheckpointView,
    )
    call.output.show(view, lambda: _print_one(call.output, view))


def _print_one(output: Output, view: CampaignCheckpointView) -> None:
    one = view.checkpoint
    output.fields(
        [
            ("checkpoint", one.id),
            ("campaign", one.campaign),
            ("kind", one.kind),
            ("phase", one.phase),
            ("batch", one.batch),
            ("items", f"{one.items:,}"),
            ("done", f"{one.done:,} of {one.total:,} ({one.percent}%)"),
            ("saved", clock_time(one.created_at)),
            ("problem", view.problem),
        ]
    )
    phases = view.summary.get("phases")
    if isinstance(phases, list):
        output.heading("As it was then")
        rows = [
            [
                str(phase.get("phase", "-")),
                *(_amount(phase, key) for key in ("total", "done", "in_progress", "pending", "failed")),
            ]
            for phase in phases
            if isinstance(phase, dict)
        ]
        output.table(("PHASE", "TOTAL", "DONE", "RUNNING", "PENDING", "FAILED"), rows)
    if view.since is not None:
        output.heading("Changed since then")
        _print_phases(output, view.since)
        output.say(f"what a restore would do: holdfast checkpoints restore {one.id}")


def _amount(phase: dict[str, object], key: str) -> str:
    found = phase.get(key)
    return f"{found:,}" if isinstance(found, int) else "-"


def _print_phases(output: Output, phases: list[UndonePhaseView]) -> None:
    rows = [
        [one.phase, *(f"{amount:,}" for amount in (one.done, one.failed, one.running, one.waiting, one.lost))]
        for one in phases
    ]
    output.table(("PHASE", "DONE", "FAILED", "RUNNING", "WAITING", "LOST"), rows)


# --- milestone


@click.command("milestone", short_help="Save a campaign under a name.")
@click.argument("name", metavar="NAME")
@click.option(
    "--campaign",
    callback=campaign_name,
    metavar="NAME",
    help="The campaign to save; without it the newest one that runs.",
)
@shared_options
@click.pass_obj
def name_milestone(call: Invocation, name: str, campaign: str | None) -> None:
    """Save a campaign as a whole, so that `checkpoints restore` can go back to it.

    NAME has up to 26 small letters, digits, dashes and underscores, such as p0-migrated.
    """
    from holdfast.core.campaign_checkpoint import check_milestone_name

    asked = MilestoneAsked(name=check_milestone_name(name), campaign=campaign)
    with call.writing_or_asking() as store:
        if store is None:
            view = call.ask(
                "campaigns.milestone", asked, CampaignCheckpointLineView, timeout_s=_RESTORE_TIMEOUT_S
            )
        else:
            call.record(store, "campaigns.milestone", asked)
            view = save_milestone(store, asked, clock=call.clock)
    call.output.show(view, lambda: call.output.line(f"{view.id} saved: {view.done:,} of {view.total:,} done"))


# --- restore


@click.command("restore", short_help="Go back to a milestone of a campaign.")
@click.argument("checkpoint_id", metavar="ID", callback=milestone_prefix)
@click.option("--apply", "is_applied", is_flag=True, help="Do it; without this, only say what would happen.")
@click.option(
    "--effects",
    type=click.Choice(["keep", "compensate", "acknowledge"]),
    help="What becomes of effects that happened since.",
)
@click.option(
    "--compensate",
    "function",
    metavar="MODULE:FUNCTION",
    help="With --effects compensate: what undoes one effect.",
)
@shared_options
@click.pass_obj
def restore_checkpoint(
    call: Invocation, checkpoint_id: str, effects: str | None, function: str | None, *, is_applied: bool
) -> None:
    """Let everything that was not done at a milestone start anew, as new tasks. Nothing is deleted.

    Without --apply it only says what would happen. The campaign is paused until the restore is over; if it
    is cut off, the same command goes on. Effects that happened since need a decision:

    \b
    holdfast checkpoints restore p0-migrated
    holdfast checkpoints restore p0-migrated --apply --effects keep

    \b
    keep         the new tasks find them as done, and do not repeat them
    compensate   undo them now, with a function of yours: function(effect, result)
    acknowledge  the new tasks may repeat them
    """
    if (effects == "compensate") != (function is not None):
        raise BadInput(
            "compensate",
            "--effects compensate and --compensate MODULE:FUNCTION go together: the arguments of effects are "
            "not stored, so only your function knows how to undo one",
        )
    plan_asked = CampaignCheckpointAsked(checkpoint_id=checkpoint_id)
    plan = call.look(
        "campaigns.restore_plan", plan_asked, lambda tx: read_restore_plan(tx, plan_asked), RestorePlanView
    )
    if not is_applied:
        call.output.show(plan, lambda: _print_plan(call.output, plan))
        return
    asked = RestoreAsked(
        checkpoint_id=plan.checkpoint.id,
        effects="keep" if effects == "keep" else "acknowledge" if effects == "acknowledge" else "refuse",
    )
    view = _restored(call, asked, function)
    call.output.show(view, lambda: _print_restored(call.output, view))
    if not view.is_over:
        click.get_current_context().exit(FAILED)


def _print_plan(output: Output, plan: RestorePlanView) -> None:
    one = plan.checkpoint
    output.fields([("campaign", one.campaign), ("restore to", one.id)])
    output.line(f"would make {counted(plan.undone, 'item')} pending again, as new tasks; nothing was changed")
    _print_phases(output, plan.phases)
    if plan.effects:
        output.heading("Effects of their tasks")
        rows = [[effect.effect_class, effect.status, f"{effect.count:,}"] for effect in plan.effects]
        output.table(("CLASS", "STATE", "COUNT"), rows)
    if any(phase.lost for phase in plan.phases):
        output.say("LOST: done then and not done now, because of an earlier restore; they stay as they are")
    if plan.is_unfinished:
        output.say("this restore was begun and not finished; the same command with --apply goes on")
    if not plan.undone and not plan.is_unfinished:
        output.say("no item was done after this checkpoint: there is nothing to undo")
        return
    ways = "compensate|acknowledge" if plan.in_children else "keep|compensate|acknowledge"
    needs = f" --effects {ways}" if plan.happened else ""
    if plan.in_children:
        output.say("some effects happened in tasks that the items started; those cannot be kept")
    if plan.in_doubt:
        output.say(f"the outcome of some effects is unknown, such as: {plan.in_doubt[0]}")
        output.say("settle them first: holdfast reviews list; if one is in no review: --effects acknowledge")
    output.say(f"to do it: holdfast checkpoints restore {one.id} --apply{needs}")


def _restored(call: Invocation, asked: RestoreAsked, function: str | None) -> RestoreProgressView:
    said = 0
    with call.writing_or_asking() as store:
        if store is not None:
            import asyncio

            call.record(store, "campaigns.restore", asked)
            compensate = None if function is None else _function(call, function)
            while True:
                view = asyncio.run(restore_some(store, call.clock, asked, compensate=compensate))
                # No worker is here that could stop what runs.
                if view.is_over or view.stopping:
                    return view
    if function is not None:
        raise Refused(
            "the gateway has this ledger, and only a program with your function can compensate: stop the "
            "gateway first, or call campaigns().restore(…, compensate=…) in a program on the same database"
        )
    while True:
        view = call.ask("campaigns.restore", asked, RestoreProgressView, timeout_s=_RESTORE_TIMEOUT_S)
        if view.is_over:
            return view
        if view.stopping != said:
            said = view.stopping
            call.output.say(f"waiting for {counted(said, 'item')} to stop")


def _function(call: Invocation, spec: str) -> Compensate:
    """The user's own function, which runs in this process. Raises BadInput."""
    import importlib
    import sys
    from pathlib import Path

    module, _, name = spec.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadInput("compensate", f"{spec!r:.100} cannot be imported: {error}") from error
    if not callable(found):
        raise BadInput("compensate", f"{spec} is no function")
    call.output.say(f"effects are undone with {spec}")
    function: Compensate = found
    return function


def _print_restored(output: Output, view: RestoreProgressView) -> None:
    if view.is_over:
        output.line(
            f"{view.campaign} is at {view.checkpoint_id} again: {counted(view.undone, 'item')} pending, "
            f"campaign {view.campaign_status}"
        )
        return
    output.line(f"{view.campaign} stays paused: {counted(view.stopping, 'item')} must stop first")
    output.say(
        "they stop when a worker or gateway of this ledger runs; then give the same command again: "
        f"holdfast checkpoints restore {view.checkpoint_id} --apply"
    )


# --- prune


def prune_campaign(
    call: Invocation, campaign: str, kind: str | None, older_than: timedelta, *, is_dry_run: bool
) -> None:
    asked = CampaignPruneAsked(
        campaign=campaign,
        kind=None if kind is None else CampaignCheckpointKind(kind),
        older_than_s=older_than.total_seconds(),
        is_dry_run=is_dry_run,
    )
    view = _preview(call, asked) if is_dry_run else _prune(call, asked)
    call.output.show(view, lambda: _print_pruned(call.output, view))


def _preview(call: Invocation, asked: CampaignPruneAsked) -> CampaignPrunedView:
    moment = moment_of(PruneAsked(older_than_s=asked.older_than_s), call.clock.now())
    return call.look(
        "campaigns.prune", asked, lambda tx: prunable_checkpoints(tx, asked, moment), CampaignPrunedView
    )


def _prune(call: Invocation, asked: CampaignPruneAsked) -> CampaignPrunedView:
    moment = moment_of(PruneAsked(older_than_s=asked.older_than_s), call.clock.now())
    try:
        with call.writing_or_asking() as store:
            if store is None:
                return call.ask("campaigns.prune", asked, CampaignPrunedView)
            call.record(store, "campaigns.prune", asked)
            return prune_checkpoints(store, asked, moment)
    except NoLedger as error:
        call.output.say(str(error))
        return CampaignPrunedView(
            is_dry_run=False, campaign=asked.campaign, older_than=moment, count=0, checkpoint_ids=[]
        )


def _print_pruned(output: Output, view: CampaignPrunedView) -> None:
    for checkpoint_id in view.checkpoint_ids:
        output.line(checkpoint_id)
    or_more = " or more" if view.is_dry_run and view.count >= MAX_PREVIEWED else ""
    verb = "would be deleted" if view.is_dry_run else "deleted"
    output.say(
        f"{counted(view.count, 'checkpoint')}{or_more} of {view.campaign} {verb} (saved before "
        f"{clock_time(view.older_than)})"
    )
