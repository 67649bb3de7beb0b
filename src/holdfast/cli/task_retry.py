"""tasks retry: one task that ended without success, or all in a status."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from holdfast.api.tasks import RetryAsked, RetryPageAsked, retry_page, retrying_one
from holdfast.cli.errors import REFUSED
from holdfast.cli.invocation import Invocation, page_option, shared_options, task_target
from holdfast.cli.output import Output, counted
from holdfast.core.transitions import TaskStatus
from holdfast.views.tasks import RetriedPageView, RetriedView

if TYPE_CHECKING:
    from holdfast.store.contract import Store

RETRIED = ["failed", "timed_out", "lost", "cancelled"]
# Tasks per call, each in its own write; progress is reported after each call.
RETRIED_AT_ONCE = 50


@click.command("retry", short_help="Retry tasks that failed, timed out or are lost.")
@click.argument("task_id", metavar="[TASK]", required=False, callback=task_target)
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice(RETRIED),
    help="Instead of one task: all tasks in this status; repeatable.",
)
@click.option("--name", help="With --status: only tasks with this name.")
@click.option("--owner", help="With --status: only tasks of this owner.")
@click.option("--cancelled", is_flag=True, help="Also retry a task that was cancelled.")
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=1000,
    show_default=True,
    help="Maximum number to retry.",
)
@page_option
@shared_options
@click.pass_context
def retry_tasks(
    context: click.Context,
    task_id: str | None,
    statuses: tuple[str, ...],
    name: str | None,
    owner: str | None,
    limit: int,
    page: str | None,
    *,
    cancelled: bool,
) -> None:
    """Retry a task that failed, timed out or is lost, after you have fixed the cause.

    The task keeps its id and its key. A follow-up run starts at the last good point with today's code: saved
    steps are kept, the steps that failed run again, and attempts and timeouts start from zero. A worker that
    knows the task's name runs it.

    \b
    holdfast tasks retry task_01h8
    holdfast tasks retry --status failed --name report

    Exit status 3 if the task has not ended or cannot be retried; with --status, if each task that was found
    was refused, and 0 if none was found.
    """
    call: Invocation = context.obj
    if task_id is None:
        if not statuses:
            raise click.UsageError("name a task, or --status to retry all tasks in that status")
        asked = RetryPageAsked(
            status=statuses,  # type: ignore[arg-type]
            name=name,
            owner=owner,
            cancelled=cancelled,
            page_token=page,
        )
        several = _retry_several(call, asked, limit)
        call.output.show(several, lambda: _print_retried(call.output, several))
        if several.refused and not several.count:
            context.exit(REFUSED)
        return
    if statuses or name is not None or owner is not None or page is not None:
        raise click.UsageError(
            "--status, --name, --owner and --page select several tasks; leave out the task"
        )
    one = RetryAsked(task_id=task_id, cancelled=cancelled)
    view = call.change("ledger.retry", one, retrying_one, RetriedView)
    call.output.show(view, lambda: call.output.line(_retried(view)))


def _retried(view: RetriedView) -> str:
    how = "waiting for a worker" if view.task.status == TaskStatus.PAUSED else view.task.status
    return f"{view.task.id} is retried: {view.run_id} is {how}"


def _retry_several(call: Invocation, asked: RetryPageAsked, limit: int) -> RetriedPageView:
    """Retry page by page, and report progress after each: thousands take a while."""
    done = RetriedPageView()
    with call.writing_or_asking() as store:
        while True:
            left = limit - done.count - len(done.refused)
            wanted = min(left, RETRIED_AT_ONCE)
            page = _retry_page(call, store, msgspec.structs.replace(asked, limit=wanted))
            done = RetriedPageView(
                count=done.count + page.count,
                task_ids=done.task_ids + page.task_ids,
                refused=done.refused + page.refused,
                next_page_token=page.next_page_token,
            )
            if page.next_page_token is None or done.count + len(done.refused) >= limit:
                return done
            call.output.say(f"{counted(done.count, 'task')} so far")
            asked = msgspec.structs.replace(asked, page_token=page.next_page_token)


def _retry_page(call: Invocation, store: Store | None, asked: RetryPageAsked) -> RetriedPageView:
    if store is None:
        return call.ask("ledger.retry_page", asked, RetriedPageView)
    call.record(store, "ledger.retry_page", asked)
    return retry_page(store, asked)


def _print_retried(output: Output, view: RetriedPageView) -> None:
    for task_id in view.task_ids:
        output.line(task_id)
    for one in view.refused:
        output.say(f"not retried: {one.task_id}: {one.why}")
    refused = f", {len(view.refused):,} refused" if view.refused else ""
    output.say(f"{counted(view.count, 'task')} retried{refused}")
    if view.next_page_token is not None:
        output.say(f"there may be more; to retry them, add --page {view.next_page_token}")
