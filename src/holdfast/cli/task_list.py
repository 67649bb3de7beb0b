"""tasks list: a page of tasks by any filter, newest first."""

from __future__ import annotations

from datetime import datetime, timedelta

import click

from holdfast.api.task_lists import MAX_SEARCH_CHARS, TasksAsked, read_page
from holdfast.cli.invocation import Invocation, maybe_duration, page_option, shared_options
from holdfast.cli.output import Output, ago, counted
from holdfast.core.task import RuntimeName
from holdfast.core.transitions import TaskStatus
from holdfast.store.task_pages import LOOKED_AT
from holdfast.views.tasks import TaskPageView, TaskView
from holdfast.views.waits import brief_wait

STATUSES = [status.value for status in TaskStatus]
RUNTIMES = [runtime.value for runtime in RuntimeName]


@click.command("list", short_help="Tasks, newest first.")
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice(STATUSES),
    help="Only tasks in this status; repeatable.",
)
@click.option("--runtime", type=click.Choice(RUNTIMES), help="Only tasks of this runtime.")
@click.option("--name", help="Only tasks with this name.")
@click.option("--owner", help="Only tasks of this owner.")
@click.option("--agent", metavar="NAME", help="Only tasks of this agent.")
@click.option("--session", metavar="KEY", help="Only tasks asked for in this session, or done in it.")
@click.option("--key", help="Only tasks with this idempotency key.")
@click.option(
    "--older-than",
    callback=maybe_duration,
    metavar="AGE",
    help="Only tasks created 30m, 12h or 7d ago or earlier.",
)
@click.option(
    "--newer-than",
    callback=maybe_duration,
    metavar="AGE",
    help="Only tasks created in the last 30m, 12h or 7d.",
)
@click.option(
    "--text", metavar="TEXT", help="Only tasks with this text in goal, name, key, session or failure."
)
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Maximum number to show."
)
@page_option
@shared_options
@click.pass_obj
def list_tasks(
    call: Invocation,
    statuses: tuple[str, ...],
    runtime: str | None,
    name: str | None,
    owner: str | None,
    agent: str | None,
    session: str | None,
    key: str | None,
    older_than: timedelta | None,
    newer_than: timedelta | None,
    text: str | None,
    limit: int,
    page: str | None,
) -> None:
    """Tasks, newest first, a page at a time.

    Filters may be combined. A page by one filter is read from its index; several filters together, or --text,
    look at most at 5,000 tasks, and a remark says how to go on.
    """
    if text is not None and not 0 < len(text) <= MAX_SEARCH_CHARS:
        raise click.BadParameter(f"give 1 to {MAX_SEARCH_CHARS} characters", param_hint="--text")
    asked = TasksAsked(
        status=tuple(TaskStatus(status) for status in statuses),
        runtime=None if runtime is None else RuntimeName(runtime),
        name=name,
        owner=owner,
        agent_id=agent,
        session_key=session,
        key=key,
        older_than_s=None if older_than is None else older_than.total_seconds(),
        newer_than_s=None if newer_than is None else newer_than.total_seconds(),
        text=text,
        page_token=page,
        limit=limit,
    )
    view = call.look_at_list(
        "ledger.list",
        asked,
        lambda tx: read_page(tx, asked, now=call.clock.now(), projection=call.projection()),
        TaskPageView(),
    )
    call.output.show(view, lambda: print_page(call.output, view, call.clock.now(), limit=limit))


def print_page(output: Output, view: TaskPageView, now: datetime, *, limit: int) -> None:
    if view.tasks:
        # If no task waits, leave the column out: the goal needs the room.
        has_waits = any(task.waits_on is not None for task in view.tasks)
        headers = ["ID", "STATUS", *(["WAITS FOR"] if has_waits else []), "NAME", "OWNER", "CHANGED", "GOAL"]
        rows = [
            [
                task.id,
                shown_status(task),
                *([brief_wait(task.waits_on)] if has_waits else []),
                task.name,
                task.owner,
                ago(task.updated_at, now),
                task.goal,
            ]
            for task in view.tasks
        ]
        output.table(headers, rows, leave=("OWNER", "CHANGED", "NAME", "WAITS FOR"))
    say_counts(output, "task", view.counts, shown=len(view.tasks))
    if view.next_page_token is not None and len(view.tasks) < limit:
        output.say(f"looked at {LOOKED_AT:,} tasks; to look at older ones, add --page {view.next_page_token}")
    elif view.next_page_token is not None:
        output.say_next(view.next_page_token)


def say_counts(output: Output, noun: str, counts: dict[str, int], *, shown: int) -> None:
    """One line under a list: how many there are, by status."""
    by_status = " · ".join(f"{number:,} {status}" for status, number in sorted(counts.items()))
    if not shown:
        output.say(f"no {noun}s to show" + (f" ({by_status})" if counts else ""))
    else:
        output.say(f"{shown:,} of {counted(sum(counts.values()), noun)}: {by_status}")


def shown_status(task: TaskView) -> str:
    return "damaged" if task.is_damaged else task.status
