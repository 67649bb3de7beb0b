"""audit log: each action with its actor, entry point and outcome."""

from __future__ import annotations

import click

from holdfast.api.audit import AuditAsked, read_page
from holdfast.cli.groups import OrderedGroup
from holdfast.cli.invocation import Invocation, page_option, shared_options
from holdfast.cli.output import Output
from holdfast.views.audit import AuditEntryView, AuditPageView


@click.group("audit", cls=OrderedGroup)
@shared_options
def audit() -> None:
    """The audit log of this ledger."""


@audit.command("log", short_help="Recorded actions, newest first.")
@click.option(
    "--who", metavar="NAME", help="Only actions of this actor: a token, a user, or a peer of a channel."
)
@click.option("--action", metavar="ACTION", help="Only this action, such as ledger.cancel or token.wrong.")
@click.option("--subject", metavar="ID", help="Only actions on this record; give its full id.")
@page_option
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Maximum number to show."
)
@shared_options
@click.pass_obj
def log(
    call: Invocation,
    *,
    who: str | None,
    action: str | None,
    subject: str | None,
    page: str | None,
    limit: int,
) -> None:
    """Recorded actions, newest first: creates, cancels, retries, decisions, answers, restarts, refusals.

    Give at most one of --who, --action and --subject. Entries are kept for a year.
    """
    asked = AuditAsked(who=who, action=action, subject=subject, page_token=page, limit=limit)
    view = call.look_at_list("audit.list", asked, lambda tx: read_page(tx, asked), AuditPageView())
    call.output.show(view, lambda: _print_page(call.output, view))


def _print_page(output: Output, view: AuditPageView) -> None:
    if not view.entries:
        output.say("the audit log has no such entries")
        return
    headers = ("WHEN", "WHO", "FROM", "ACTION", "OUTCOME", "ABOUT")
    output.table(headers, [_row(output, one) for one in view.entries], leave=("FROM", "OUTCOME", "WHO"))
    if view.next_page_token is not None:
        output.say_next(view.next_page_token)


def _row(output: Output, one: AuditEntryView) -> tuple[str, ...]:
    times = f" ({one.times:,} times)" if one.times > 1 else ""
    place = one.door.value if one.address is None else f"{one.door.value} {one.address}"
    about = " ".join(part for part in (one.subject, one.why) if part)
    return (
        output.stamp(one.at),
        one.who,
        place,
        one.action,
        f"{one.outcome.value}{times}",
        about or "-",
    )
