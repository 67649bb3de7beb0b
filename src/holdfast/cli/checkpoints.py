"""checkpoints list, show, retry, prune."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click
import msgspec

from holdfast.cli.invocation import (
    Invocation,
    checkpoint_prefix,
    read_duration,
    shared_options,
    task_prefix,
)
from holdfast.cli.output import Output, clock_time, counted
from holdfast.cli.tasks import place_of, print_checkpoints, say_counts
from holdfast.core.clock import EPOCH
from holdfast.core.errors import HoldfastError, NoLedger
from holdfast.core.transitions import CheckpointStatus
from holdfast.store.tasks import LAST
from holdfast.views.checkpoints import CheckpointLineView, CheckpointPageView, CheckpointView, PrunedView

if TYPE_CHECKING:
    from holdfast.core.checkpoint import Checkpoint
    from holdfast.store.transaction import Tx

STATUSES = [status.value for status in CheckpointStatus]
MAX_PREVIEWED = 10_000


@click.group("checkpoints")
@shared_options
def checkpoints() -> None:
    """Saved places from which work goes on."""


# --- list


@checkpoints.command("list", short_help="Checkpoints, newest first.")
@click.option("--status", type=click.Choice(STATUSES), help="Only those in this status.")
@click.option("--task", "task_id", callback=task_prefix, metavar="ID", help="Only those of this task.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many at most."
)
@click.option(
    "--before", callback=checkpoint_prefix, metavar="ID", help="Older than this one: the next page."
)
@shared_options
@click.pass_obj
def list_checkpoints(
    call: Invocation, status: str | None, task_id: str | None, limit: int, before: str | None
) -> None:
    """Newest first, a page at a time."""
    wanted = None if status is None else CheckpointStatus(status)
    with call.listing() as ledger:
        view = CheckpointPageView()
        if ledger is not None:
            view = ledger.read_now(
                lambda tx: read_page(tx, status=wanted, task_id=task_id, before=before, limit=limit)
            )
    call.output.show(view, lambda: _print_page(call.output, view, call.clock.now()))


def read_page(
    tx: Tx, *, status: CheckpointStatus | None, task_id: str | None, before: str | None, limit: int
) -> CheckpointPageView:
    of_task = None if task_id is None else tx.tasks.resolve(task_id)
    place = LAST if before is None else place_of(before, tx.checkpoints.resolve)
    found: list[Checkpoint] = []
    while True:
        # The store has no list by task and status, so those of a task are filtered here, page by page.
        page = tx.checkpoints.page(
            status=status if of_task is None else None, task_id=of_task, before=place, limit=limit + 1
        )
        found += [one for one in page if status is None or one.status is status]
        if len(page) <= limit or len(found) > limit:
            break
        place = page[-1].id
    return CheckpointPageView(
        checkpoints=[CheckpointLineView.of(one) for one in found[:limit]],
        counts=tx.events.counts("checkpoint"),
        next_page_token=found[limit - 1].id if len(found) > limit else None,
    )


def _print_page(output: Output, view: CheckpointPageView, now: datetime) -> None:
    if view.checkpoints:
        print_checkpoints(output, view.checkpoints, now)
    say_counts(output, "checkpoint", view.counts, shown=len(view.checkpoints))
    if view.next_page_token is not None:
        output.say(f"more: --before {view.next_page_token}")


# --- show


@checkpoints.command("show", short_help="One checkpoint in full.")
@click.argument("checkpoint_id", metavar="ID", callback=checkpoint_prefix)
@shared_options
@click.pass_obj
def show_checkpoint(call: Invocation, checkpoint_id: str) -> None:
    """One checkpoint: what was saved, and what became of it.

    With --json it is a document of docs/schemas/checkpoint-view.v1.json.
    """
    with call.reading() as ledger:
        view = ledger.read_now(
            lambda tx: CheckpointView.of(_opened(tx, tx.checkpoints.resolve(checkpoint_id)))
        )
    call.output.show(view, lambda: _print(call.output, view))


def _opened(tx: Tx, checkpoint_id: str) -> Checkpoint:
    """The checkpoint with its document in place of a reference."""
    checkpoint = tx.checkpoints.get(checkpoint_id)
    try:
        return msgspec.structs.replace(checkpoint, document=tx.blobs.open(checkpoint.document))
    except HoldfastError:
        return msgspec.structs.replace(checkpoint, is_damaged=True)


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
    if view.status is CheckpointStatus.FAILED_RESUME:
        output.say(f"to try again: holdfast checkpoints retry {view.id}")


# --- retry


@checkpoints.command("retry", short_help="Open a failed resume again.")
@click.argument("checkpoint_id", metavar="ID", callback=checkpoint_prefix)
@shared_options
@click.pass_obj
def retry_checkpoint(call: Invocation, checkpoint_id: str) -> None:
    """Open a failed resume again: a new checkpoint that names the failed one, resumed at the next chance."""
    from holdfast.engine.resume import retrying

    with call.writing() as store:
        whole_id = store.read_now(lambda tx: tx.checkpoints.resolve(checkpoint_id))
        retried = store.write_now(retrying(whole_id, now=call.clock.now()))
    view = CheckpointLineView.of(retried)
    call.output.show(
        view, lambda: call.output.line(f"{view.id} retries {view.retry_of}; it is {view.status}")
    )


# --- prune


@checkpoints.command("prune", short_help="Remove settled checkpoints of ended tasks.")
@click.option(
    "--older-than", callback=read_duration, default="30d", show_default=True, help="How long they are kept."
)
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Only say which.")
@shared_options
@click.pass_obj
def prune_checkpoints(call: Invocation, older_than: timedelta, *, is_dry_run: bool) -> None:
    """Remove settled checkpoints of tasks that have ended."""
    moment = max(EPOCH, call.clock.now() - older_than)
    if is_dry_run:
        with call.listing() as ledger:
            ids = [] if ledger is None else ledger.read_now(lambda tx: _prunable(tx, moment))
    else:
        ids = _prune(call, moment)
    view = PrunedView(is_dry_run=is_dry_run, older_than=moment, count=len(ids), checkpoint_ids=ids)
    call.output.show(view, lambda: _print_pruned(call.output, view))


def _prunable(tx: Tx, moment: datetime) -> list[str]:
    return [str(one.id) for one in tx.checkpoints.to_prune(older_than=moment, limit=MAX_PREVIEWED)]


def _prune(call: Invocation, moment: datetime) -> list[str]:
    from holdfast.engine.retention import pruning_checkpoints

    ids: list[str] = []
    try:
        with call.writing() as store:
            while gone := store.write_now(pruning_checkpoints(older_than=moment)):
                ids += gone
    except NoLedger as error:
        call.output.say(str(error))
    return ids


def _print_pruned(output: Output, view: PrunedView) -> None:
    for checkpoint_id in view.checkpoint_ids:
        output.line(checkpoint_id)
    or_more = " or more" if view.is_dry_run and view.count >= MAX_PREVIEWED else ""
    verb = "would be removed" if view.is_dry_run else "removed"
    output.say(
        f"{counted(view.count, 'checkpoint')}{or_more} {verb} (settled before {clock_time(view.older_than)})"
    )
