"""import openclaw: brings the tasks and flows of an OpenClaw state directory into the ledger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.api.imports import ImportBatchAsked, ImportBeginAsked, ImportFlowsAsked, beginning
from holdfast.cli.errors import FAILED
from holdfast.cli.groups import OrderedGroup
from holdfast.cli.invocation import Invocation, shared_options
from holdfast.cli.output import Output, counted
from holdfast.core.errors import NoLedger
from holdfast.core.imported import ActivePolicy, ImportChange, ImportedRecord, ImportOutcome, ImportSource
from holdfast.engine.producers.flow_imports import PreparedFlow, previewing_flows, taking_over_flows
from holdfast.engine.producers.imports import PreparedTask, previewing, taking_over
from holdfast.integrations.openclaw_import import MAX_BATCH_BYTES, OpenClawImport, open_databases
from holdfast.views.imports import BatchTakenView, ImportBegunView, ImportedRowsView, ImportView

if TYPE_CHECKING:
    from holdfast.store.contract import Reader, Store
    from holdfast.store.foreign_file import ForeignReader

SOURCE = ImportSource.OPENCLAW
BEGIN, TASKS, FLOWS = "imports.begin", "imports.tasks", "imports.flows"
# How many rows are named without --json.
SHOWN = 20


@click.group("import", cls=OrderedGroup)
@shared_options
def import_group() -> None:
    """Bring the work of another gateway into this ledger."""


@import_group.command("openclaw", short_help="Tasks and flows of an OpenClaw state directory.")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Print the report, and write nothing.")
@click.option(
    "--active",
    type=click.Choice([one.value for one in ActivePolicy]),
    default=ActivePolicy.KEEP.value,
    show_default=True,
    help="What becomes of tasks and flows that have not ended in OpenClaw.",
)
@shared_options
@click.pass_context
def openclaw(context: click.Context, path: Path, active: str, *, is_dry_run: bool) -> None:
    """Import tasks, deliveries and flows. PATH is OpenClaw's state directory, or one of its databases.

    The databases are copied aside and never changed; OpenClaw may run meanwhile. No message is sent. Run it
    again at any time: it continues, and takes over only what is new.

    Exit status 1 if some rows could not be imported; the report names them.
    """
    call: Invocation = context.obj
    policy = ActivePolicy(active)
    call.must_be_here()
    # The databases first: a wrong path must create no ledger.
    with open_databases(path) as databases:
        view = _preview(call, databases, policy) if is_dry_run else _import(call, path, databases, policy)
    call.output.show(view, lambda: _print(call, view))
    if not view.is_complete:
        context.exit(FAILED)


# --- doors to the ledger


class LedgerDoor:
    """The ledger is open here."""

    max_batch_bytes: int | None = None

    def __init__(self, store: Store, now: Callable[[], datetime]) -> None:
        self._store = store
        self._now = now

    def take(self, batch_id: str, tasks: Sequence[PreparedTask]) -> list[ImportOutcome]:
        return self._store.write_now(taking_over(tasks, source=SOURCE, batch_id=batch_id, now=self._now()))

    def take_flows(
        self, batch_id: str, flows: Sequence[PreparedFlow], *, only_new: bool
    ) -> list[ImportOutcome]:
        return self._store.write_now(
            taking_over_flows(flows, source=SOURCE, batch_id=batch_id, now=self._now(), only_new=only_new)
        )


class GatewayBatchDoor:
    """A gateway holds the home, so it writes."""

    max_batch_bytes: int | None = MAX_BATCH_BYTES

    def __init__(self, call: Invocation) -> None:
        self._call = call

    def take(self, batch_id: str, tasks: Sequence[PreparedTask]) -> list[ImportOutcome]:
        asked = ImportBatchAsked(source=SOURCE, batch_id=batch_id, tasks=[one.imported for one in tasks])
        return self._call.ask_patiently(TASKS, asked, BatchTakenView).taken

    def take_flows(
        self, batch_id: str, flows: Sequence[PreparedFlow], *, only_new: bool
    ) -> list[ImportOutcome]:
        asked = ImportFlowsAsked(
            source=SOURCE, batch_id=batch_id, flows=[one.imported for one in flows], only_new=only_new
        )
        return self._call.ask_patiently(FLOWS, asked, BatchTakenView).taken


class PreviewDoor:
    """Nothing is written. Without a ledger, everything is new."""

    max_batch_bytes: int | None = None

    def __init__(self, reader: Reader | None) -> None:
        self._reader = reader

    def take(self, batch_id: str, tasks: Sequence[PreparedTask]) -> list[ImportOutcome]:  # noqa: ARG002 - the shape of a door
        if self._reader is None:
            return [_all_new(one.record) for one in tasks]
        return self._reader.read_now(previewing(tasks, source=SOURCE))

    def take_flows(
        self,
        batch_id: str,  # noqa: ARG002 - the shape of a door
        flows: Sequence[PreparedFlow],
        *,
        only_new: bool,
    ) -> list[ImportOutcome]:
        if self._reader is None:
            return [_all_new(one.record) for one in flows]
        return self._reader.read_now(previewing_flows(flows, source=SOURCE, only_new=only_new))


def _all_new(record: ImportedRecord) -> ImportOutcome:
    return ImportOutcome(source_id=record.source_id, change=ImportChange.CREATED, record_id=record.record_id)


# --- the import


def _preview(call: Invocation, databases: Sequence[ForeignReader], active: ActivePolicy) -> ImportView:
    try:
        with call.reading() as reader:
            return _run(call, PreviewDoor(reader), databases, active, is_dry_run=True)
    except NoLedger:
        return _run(call, PreviewDoor(None), databases, active, is_dry_run=True)


def _import(
    call: Invocation, path: Path, databases: Sequence[ForeignReader], active: ActivePolicy
) -> ImportView:
    asked = ImportBeginAsked(source=SOURCE, name=str(path.absolute())[:4096])
    with call.writing_or_asking(may_upgrade=not _has_ledger(call)) as store:
        if store is None:
            call.ask(BEGIN, asked, ImportBegunView)
            return _run(call, GatewayBatchDoor(call), databases, active, is_dry_run=False)
        from holdfast.api.audit import recorded

        now = call.clock.now()
        store.write_now(recorded(beginning(asked, now=now), call.actor, BEGIN, asked, now=now))
        return _run(call, LedgerDoor(store, call.clock.now), databases, active, is_dry_run=False)


def _has_ledger(call: Invocation) -> bool:
    try:
        with call.reading(must_be_current=False):
            return True
    except NoLedger:
        return False


def _run(
    call: Invocation,
    door: LedgerDoor | GatewayBatchDoor | PreviewDoor,
    databases: Sequence[ForeignReader],
    active: ActivePolicy,
    *,
    is_dry_run: bool,
) -> ImportView:
    with call.output.progress("importing") as tell:
        run = OpenClawImport(door, now=call.clock.now, active=active, on_rows=tell)
        return ImportView.of(run.run(databases), active=active, is_dry_run=is_dry_run)


# --- the report


def _print(call: Invocation, view: ImportView) -> None:
    output = call.output
    for path in view.databases:
        output.line(f"read {path}")
    rows = [_line("tasks", view.tasks)]
    if view.flows.rows:
        rows.append(_line("flows", view.flows))
    created = "to create" if view.is_dry_run else "created"
    headers = ("table", "rows", created, "advanced", "unchanged", "ignored", "skipped", "left out")
    output.table(headers, rows)
    _print_notes(output, view)
    for one in view.ignored[:SHOWN]:
        output.paragraph(f"ignored   {one.noun.value} {one.id}  {one.why}")
    for one in view.left_out[:SHOWN]:
        output.paragraph(f"left out  {one.noun.value} {one.id}  {one.why}")
    for remark in view.remarks[:SHOWN]:
        output.paragraph(
            f"changed   {remark.text}  ({counted(remark.rows, 'row')}, such as {remark.example})"
        )
    if max(len(view.ignored), len(view.left_out), len(view.remarks)) > SHOWN:
        output.say(f"only {SHOWN} of each are shown; to see more, add --json")
    if view.is_dry_run:
        output.say("nothing was written; to import, leave out --dry-run")
    elif not (view.tasks.created or view.tasks.advanced or view.flows.created or view.flows.advanced):
        output.say(_nothing_new(view))


def _nothing_new(view: ImportView) -> str:
    rows, known = view.tasks.rows + view.flows.rows, view.tasks.unchanged + view.flows.unchanged
    if known == rows:
        return "nothing new: the ledger has all of it already"
    return f"nothing was imported: the ledger has {known:,} of {counted(rows, 'row')} already"


def _line(table: str, rows: ImportedRowsView) -> tuple[str, ...]:
    counts = (
        rows.rows,
        rows.created,
        rows.advanced,
        rows.unchanged,
        rows.ignored,
        rows.skipped,
        rows.left_out,
    )
    return (table, *(f"{count:,}" for count in counts))


def _print_notes(output: Output, view: ImportView) -> None:
    if view.flows.active:
        output.say(
            f"{counted(view.flows.active, 'flow')} had not ended in OpenClaw: their controllers do not "
            "update them here; import again to take over how they go on"
        )
    if view.tasks.active:
        output.say(
            f"{counted(view.tasks.active, 'task')} had not ended in OpenClaw: import again within a day to "
            "take over how they end, or the sweep declares them lost; no requester is told"
        )
    if view.tasks.skipped:
        output.say(
            f"{counted(view.tasks.skipped, 'task')} had not ended in OpenClaw and were skipped; import again "
            "when they have ended"
        )
    if view.dismissed_deliveries:
        output.say(
            f"not sent from here: {counted(view.dismissed_deliveries, 'update')} that OpenClaw still owed; "
            f"{'would be' if view.is_dry_run else 'now'} recorded as dismissed"
        )
    if view.orphan_deliveries:
        output.say(f"{counted(view.orphan_deliveries, 'row')} of task_delivery_state name no task; left out")
    if view.unknown_columns:
        output.say(
            f"unknown columns, kept with the arguments of each task: {', '.join(view.unknown_columns)}"
        )
