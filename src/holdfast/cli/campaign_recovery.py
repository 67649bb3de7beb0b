"""campaign recovery: what a restart would have to go on with."""

from __future__ import annotations

import click

from holdfast.api.campaigns import RecoveryAsked, read_recovery
from holdfast.cli.campaign_names import campaign_argument
from holdfast.cli.invocation import Invocation, page_option, shared_options
from holdfast.cli.output import Output, counted
from holdfast.engine.campaigns.recovery_document import RecoveryDocument
from holdfast.views.text import one_line


@click.command("recovery", short_help="What a restart would go on with.")
@campaign_argument
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=100,
    show_default=True,
    help="Maximum number of items of each phase to show.",
)
@page_option
@shared_options
@click.pass_obj
def show_recovery(call: Invocation, campaign: str, limit: int, page: str | None) -> None:
    """Items that are not done, agents that are not idle, and the last checkpoint of the campaign.

    With --json the fields have the names of the SQL views `analysis_state`, `migration_state`, `agents` and
    `checkpoints`.
    """
    asked = RecoveryAsked(campaign=campaign, limit=limit, page_token=page)
    found = call.look("campaigns.recovery", asked, lambda tx: read_recovery(tx, asked), RecoveryDocument)
    call.output.show(found, lambda: _print(call.output, found))


def _print(output: Output, found: RecoveryDocument) -> None:
    rows = [
        (
            one_line(one.repo_id),
            phase,
            one_line(one.status),
            f"{one.progress_percent} %",
            one_line(one.error_message or one.checkpoint_id or "-"),
        )
        for phase, items in (("analysis", found.analysis), ("migration", found.migration))
        for one in items
    ]
    if rows:
        headers = ("ITEM", "PHASE", "STATUS", "%", "ERROR OR CHECKPOINT")
        output.table(headers, rows, matters="ERROR OR CHECKPOINT")
    last = found.latest_checkpoint
    said = "none" if last is None else one_line(last.checkpoint_id)
    output.say(f"{counted(len(found.agents), 'agent')} not idle; last checkpoint: {said}")
    if found.next_page_token is not None:
        output.say_next(found.next_page_token)
