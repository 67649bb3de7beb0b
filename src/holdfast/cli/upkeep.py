"""tasks audit and tasks maintenance: what is wrong in the ledger, and a sweep that repairs it."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, cast

import click

from holdfast.api.upkeep import FindingsAsked, MaintenanceAsked, maintain
from holdfast.app.runtimes import build_runtimes
from holdfast.app.sweeps import ReadingStore, build_sweep
from holdfast.cli.client import is_listening
from holdfast.cli.errors import FAILED
from holdfast.cli.invocation import Invocation, shared_options
from holdfast.cli.output import Output, counted
from holdfast.config.files import load
from holdfast.core.finding import FindingCode, Severity
from holdfast.upkeep.audit import Audit, AuditReport
from holdfast.upkeep.sweep import Sweep
from holdfast.views.upkeep import AuditView, MaintenanceView

if TYPE_CHECKING:
    from holdfast.store.contract import Reader, Store


# --- audit


@click.command("audit", short_help="What is wrong in the ledger, and the command that helps.")
@click.option("--code", type=click.Choice([code.value for code in FindingCode]), help="Show only this code.")
@click.option(
    "--severity", type=click.Choice([one.value for one in Severity]), help="Show only this severity."
)
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Maximum number to show."
)
@shared_options
@click.pass_context
def audit(context: click.Context, code: str | None, severity: str | None, limit: int) -> None:
    """Stale, lost and orphaned work, failed deliveries and records that disagree; errors first.

    It changes nothing. Exit status 1 if there is an error, whatever is shown.
    """
    call: Invocation = context.obj
    asked = FindingsAsked(
        code=None if code is None else FindingCode(code),
        severity=None if severity is None else Severity(severity),
        limit=limit,
    )
    if call.gateway_url is not None:
        view = call.ask("upkeep.audit", asked, AuditView)
    else:
        with call.listing() as ledger:
            report = AuditReport(findings=[]) if ledger is None else _read_report(call, ledger)
        view = AuditView.of(report, asked.filters)
    call.output.show(view, lambda: _print_audit(call.output, view))
    if view.summary.errors:
        context.exit(FAILED)


def _read_report(call: Invocation, ledger: Reader) -> AuditReport:
    now, has_died = call.clock.now(), call.boot_proofs.has_died
    return ledger.read_now(lambda tx: Audit(tx, now=now, clock=ledger.clock, has_died=has_died).report())


def _print_audit(output: Output, view: AuditView) -> None:
    for one in view.findings:
        output.paragraph(f"{one.severity.value}  {one.code.value}  {one.message}")
        if one.repair is not None:
            output.line(f"    {output.paint('fix: ' + one.repair, 'bold')}")
    if view.displayed < view.filtered_count:
        output.say(f"{view.filtered_count - view.displayed} more; to show them, add --limit 1000")
    if not view.summary.is_complete:
        output.say("there is more than one audit looks at; repair these first, then run it again")
    if not view.count:
        output.say("no problems found")
    else:
        errors, warnings = counted(view.summary.errors, "error"), counted(view.summary.warnings, "warning")
        output.say(f"{errors}, {warnings}")


# --- maintenance


@click.command("maintenance", short_help="Preview or apply a sweep of the ledger.")
@click.option("--apply", "is_applied", is_flag=True, help="Make the changes, instead of only listing them.")
@shared_options
@click.pass_obj
def maintenance(call: Invocation, *, is_applied: bool) -> None:
    """End recorded work that is lost, stamp ended tasks, and delete what is past retention.

    A gateway does the same every minute. Without --apply nothing is changed.
    """
    view = _apply(call) if is_applied else _preview(call)
    call.output.show(view, lambda: _print_maintenance(call.output, view))


def _preview(call: Invocation) -> MaintenanceView:
    asked = MaintenanceAsked(is_dry_run=True)
    # A gateway has runtimes that this process has not: it can tell more of silent work.
    if call.gateway_url is not None or is_listening(call.settings.home):
        return call.ask("upkeep.maintenance", asked, MaintenanceView)
    with call.reading() as ledger:
        store = cast("Store", ReadingStore(ledger))
        return asyncio.run(maintain(_sweep(call, store), store, is_dry_run=True))


def _apply(call: Invocation) -> MaintenanceView:
    asked = MaintenanceAsked(is_dry_run=False)
    with call.writing_or_asking() as store:
        if store is None:
            return call.ask("upkeep.maintenance", asked, MaintenanceView)
        call.record(store, "upkeep.maintenance", asked)
        return asyncio.run(maintain(_sweep(call, store), store, is_dry_run=False))


def _sweep(call: Invocation, store: Store) -> Sweep:
    """The sweep of a process without a gateway, with the same settings and the same runtimes."""
    settings = load(call.settings.home, os.environ, {"store": call.store}).config.upkeep
    runtimes = build_runtimes(store, call.clock, call.settings.home)
    return build_sweep(store, call.clock, runtimes, settings, has_died=call.boot_proofs.has_died)


def _print_maintenance(output: Output, view: MaintenanceView) -> None:
    for change in view.changes:
        output.paragraph(f"{change.kind.value}  {change.task_id}  {change.reason}")
    for flow in view.flow_changes:
        output.paragraph(f"{flow.kind.value}  {flow.flow_id}  {flow.reason}")
    done, tasks, flows = view.mode == "apply", view.maintenance.tasks, view.maintenance.task_flows
    for plugin in view.maintenance.plugins:
        for line in plugin.changes:
            output.line(f"plugin  {plugin.name}  {line}")
        if plugin.problem is not None:
            output.say(f"the sweep of the plug-in {plugin.name} failed: {plugin.problem}")
    of_tasks = (tasks.reconciled, "lost"), (tasks.recovered, "recovered")
    output.say(
        _in_words("task", *of_tasks, (tasks.cleanup_stamped, "stamped"), (tasks.pruned, "deleted"), done=done)
    )
    if view.flow_changes:
        of_flows = (flows.reconciled, "reconciled"), (flows.cleanup_stamped, "stamped")
        output.say(_in_words("flow", *of_flows, (flows.pruned, "deleted"), done=done))
    if not done and (view.changes or view.flow_changes):
        output.say("to make these changes, add --apply")


def _in_words(noun: str, *changes: tuple[int, str], done: bool) -> str:
    """Such as `1 task was lost, 0 were deleted`."""
    parts = []
    for place, (number, what) in enumerate(changes):
        verb = "would be" if not done else "was" if number == 1 else "were"
        parts.append(f"{f'{number:,}' if place else counted(number, noun)} {verb} {what}")
    return ", ".join(parts)
