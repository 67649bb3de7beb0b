"""Checkpoints for the API and the CLI: list, show, retry and prune."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import msgspec

from holdfast.api.contract import EVERYTHING
from holdfast.api.pages import place_of
from holdfast.api.params import IdText, PageSize, PageToken, Params, TargetText
from holdfast.core.clock import EPOCH
from holdfast.core.errors import BadInput, HoldfastError
from holdfast.core.transitions import CheckpointStatus, TaskStatus
from holdfast.store.tasks import LAST
from holdfast.views.checkpoints import CheckpointLineView, CheckpointPageView, CheckpointView, PrunedView
from holdfast.views.text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.core.checkpoint import Checkpoint
    from holdfast.store.contract import Write
    from holdfast.store.transaction import Tx

MAX_PREVIEWED = 10_000
DEFAULT_KEPT_S = 30 * 86_400.0


class CheckpointsAsked(Params, frozen=True, kw_only=True):
    """Which checkpoints, newest first."""

    status: CheckpointStatus | None = None
    task_id: TargetText | None = None
    # Only failed resumes that need a person: not retried yet, and their tasks have not ended otherwise.
    needs_person: bool = False
    limit: PageSize = 50
    # The `nextPageToken` of the previous page.
    page_token: PageToken | None = None


class CheckpointAsked(Params, frozen=True, kw_only=True):
    """One checkpoint."""

    checkpoint_id: IdText


class PruneAsked(Params, frozen=True, kw_only=True):
    """Delete settled checkpoints of ended tasks that are older than this."""

    older_than_s: Annotated[float, msgspec.Meta(ge=0, le=1e10)] = DEFAULT_KEPT_S
    is_dry_run: bool = False


def count_failed_resumes(tx: Tx, *, at_most: int) -> int:
    """How many failed resumes need a person."""
    number, before = 0, LAST
    while number < at_most:
        page = tx.checkpoints.page(status=CheckpointStatus.FAILED_RESUME, before=before, limit=at_most)
        number += len(_in_need(tx, page))
        if len(page) < at_most:
            break
        before = page[-1].id
    return min(number, at_most)


def _in_need(tx: Tx, page: list[Checkpoint]) -> list[Checkpoint]:
    """The failed resumes that need a person: not retried yet, and their tasks have not ended otherwise."""
    failed = [one for one in page if one.status is CheckpointStatus.FAILED_RESUME]
    tasks = tx.tasks.get_many([one.task_id for one in failed])
    return [
        one
        for one in failed
        if (task := tasks.get(one.task_id)) is not None
        and task.status not in (TaskStatus.SUCCEEDED, TaskStatus.CANCELLED)
        and tx.checkpoints.that_retries(one.id) is None
    ]


def read_page(tx: Tx, asked: CheckpointsAsked) -> CheckpointPageView:
    if asked.needs_person and asked.status not in (None, CheckpointStatus.FAILED_RESUME):
        raise BadInput("needsPerson", f"only failed resumes need a person; leave out status {asked.status}")
    status = CheckpointStatus.FAILED_RESUME if asked.needs_person else asked.status
    of_task = None if asked.task_id is None else EVERYTHING.resolve(tx, asked.task_id)
    place = LAST if asked.page_token is None else place_of("ckpt", asked.page_token, tx.checkpoints.resolve)
    found: list[Checkpoint] = []
    while True:
        # The store has no query by task and status, so filter the pages of the task here.
        page = tx.checkpoints.page(
            status=status if of_task is None else None, task_id=of_task, before=place, limit=asked.limit + 1
        )
        wanted = [one for one in page if status is None or one.status is status]
        found += _in_need(tx, wanted) if asked.needs_person else wanted
        if len(page) <= asked.limit or len(found) > asked.limit:
            break
        place = page[-1].id
    shown = found[: asked.limit]
    tasks = tx.tasks.get_many([one.task_id for one in shown])
    return CheckpointPageView(
        checkpoints=[CheckpointLineView.of(one, tasks.get(one.task_id)) for one in shown],
        counts=tx.events.counts("checkpoint"),
        next_page_token=shown[-1].id if len(found) > asked.limit else None,
    )


def read_checkpoint(tx: Tx, prefix: str) -> CheckpointView:
    checkpoint = _opened(tx, tx.checkpoints.resolve(prefix))
    view = CheckpointView.of(checkpoint)
    if checkpoint.status is not CheckpointStatus.FAILED_RESUME:
        return view
    why_not = _why_no_retry(tx, checkpoint, view.problem)
    retry = f"fix the cause, then: holdfast checkpoints retry {view.id}"
    return msgspec.structs.replace(view, can_retry=why_not is None, advice=why_not or retry)


def _why_no_retry(tx: Tx, checkpoint: Checkpoint, problem: str | None) -> str | None:
    """Why `checkpoints retry` would not help, and the command that does; None if it would."""
    retried = tx.checkpoints.that_retries(checkpoint.id)
    if retried is not None:
        return f"it was retried already: holdfast checkpoints show {retried.id}"
    task = tx.tasks.get_many([checkpoint.task_id]).get(checkpoint.task_id)
    if task is None:
        return f"its task {one_line(checkpoint.task_id)} is no longer in the ledger, so it cannot be retried"
    if task.status is TaskStatus.CANCELLED:
        return f"its task was cancelled; to resume it: holdfast tasks retry {task.id} --cancelled"
    if task.status is not TaskStatus.FAILED:
        return f"its task is {task.status.value}, so it cannot be retried: holdfast tasks show {task.id}"
    if problem is not None:
        return (
            f"it is damaged, so it cannot be retried; to start the task again from the beginning: "
            f"holdfast tasks fork {task.id} --at start"
        )
    if tx.runs.last_of_task(task.id).id != checkpoint.run_id:
        return f"its task was resumed since, and failed for another reason: holdfast tasks retry {task.id}"
    return None


def _opened(tx: Tx, checkpoint_id: str) -> Checkpoint:
    """The checkpoint with its document loaded."""
    checkpoint = tx.checkpoints.get(checkpoint_id)
    try:
        return msgspec.structs.replace(checkpoint, document=tx.blobs.open(checkpoint.document))
    except HoldfastError:
        return msgspec.structs.replace(checkpoint, is_damaged=True)


def retrying_checkpoint(asked: CheckpointAsked, *, now: datetime) -> Write[CheckpointLineView]:
    """The write of an operator's retry; idempotent."""
    from holdfast.engine.recovery.resume import retrying

    def retry(tx: Tx) -> CheckpointLineView:
        checkpoint_id = tx.checkpoints.resolve(asked.checkpoint_id)
        return CheckpointLineView.of(retrying(checkpoint_id, now=now)(tx))

    return retry


def moment_of(asked: PruneAsked, now: datetime) -> datetime:
    """Checkpoints settled before this time are deleted."""
    try:
        return max(EPOCH, now - timedelta(seconds=asked.older_than_s))
    except OverflowError:
        return EPOCH


def prunable(tx: Tx, moment: datetime) -> PrunedView:
    found = tx.checkpoints.to_prune(older_than=moment, limit=MAX_PREVIEWED)
    ids = [str(one.id) for one in found]
    return PrunedView(is_dry_run=True, older_than=moment, count=len(ids), checkpoint_ids=ids)


def prune(write: Callable[[Write[list[str]]], list[str]], moment: datetime) -> PrunedView:
    """Delete in batches until none is left."""
    from holdfast.engine.ledger.retention import pruning_checkpoints

    ids: list[str] = []
    while gone := write(pruning_checkpoints(older_than=moment)):
        ids += gone
    return PrunedView(is_dry_run=False, older_than=moment, count=len(ids), checkpoint_ids=ids)
