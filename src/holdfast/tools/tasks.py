"""Tools with which an agent looks at its own tasks and cancels one: only those of the owner of its run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.cancel import CancelAnswer
from holdfast.core.durations import in_one_unit
from holdfast.core.errors import BadInput, NotFound, NotInRun
from holdfast.core.message import plain_line
from holdfast.core.payload import check_text
from holdfast.core.session import acting_session
from holdfast.core.snapshot import title_of
from holdfast.core.step_declarations import idempotent, read, tool

if TYPE_CHECKING:
    from holdfast.core.task import Task
    from holdfast.engine.client.owner_tasks import OwnerTasks
    from holdfast.engine.producers.contract import Runtime
    from holdfast.engine.program.live_run import LiveRun
    from holdfast.store import Tx

# An agent's context is small: the rest is only counted.
MOST_SHOWN = 10
MAX_DETAIL_CHARS = 160

# The runtimes of the gateway that runs the present task: they stop work that others execute.
_runtimes: ContextVar[Sequence[Runtime]] = ContextVar("holdfast_runtimes", default=())


class OwnTask(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One task, in words that do no harm in a prompt."""

    task_id: str
    title: str
    status: str
    # `started 3m ago`, `ended 2m ago` or `created 5s ago`.
    since: str
    # The progress, what it waits for, or why it failed.
    detail: str | None = None
    # Whether it is the task that asks.
    is_this: bool = False


class OwnTasks(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What matters now: active tasks, those that ended in the last five minutes, and what failed in the last
    hour; without tasks that retention is about to remove."""

    # `2 running · 1 queued · last: “render” failed 3m ago`.
    line: str
    tasks: tuple[OwnTask, ...] = ()
    # How many more there are.
    more: int = 0


@contextlib.contextmanager
def stopping_through(runtimes: Sequence[Runtime]) -> Iterator[None]:
    """Runs that start inside the block cancel recorded work through these runtimes."""
    token = _runtimes.set(runtimes)
    try:
        yield
    finally:
        _runtimes.reset(token)


@tool(effect=read, name="my_tasks", raises=(NotInRun,))
async def my_tasks() -> OwnTasks:
    """The tasks of the owner of this run: for an agent, those of its session."""
    live = _live("my_tasks")
    snapshot = await _accessor(live).snapshot()
    found = snapshot.recent
    shown = tuple(_shown(task, snapshot.at, is_this=task.id == live.task.id) for task in found[:MOST_SHOWN])
    return OwnTasks(line=snapshot.line, tasks=shown, more=max(0, len(found) - MOST_SHOWN))


@tool(effect=idempotent, name="cancel_my_task", raises=(BadInput, NotInRun))
async def cancel_my_task(task_id: str, reason: str) -> CancelAnswer:
    """Cancel a task of the same owner, by its id or the beginning of it. The answer says whether it was
    found, whether it is cancelled, and why not. A task cannot cancel itself, nor a task that it works for."""
    check_text("reason", reason)
    live = _live("cancel_my_task")
    tasks = _accessor(live)
    with contextlib.suppress(NotFound):
        task = await tasks.get(task_id)
        if task.id in await live.store.read(lambda tx: _line_of(tx, live.task)):
            raise BadInput("task_id", "this task asks, or works for it; a program ends itself by returning")
    return await tasks.cancel(task_id, reason)


def _live(name: str) -> LiveRun:
    from holdfast.engine.program.live_run import running  # heavy, and needed only inside a run

    live = running.get()
    if live is None:
        raise NotInRun(name)
    return live


def _accessor(live: LiveRun) -> OwnerTasks:
    from holdfast.engine.client.owner_tasks import OwnerTasks

    return OwnerTasks(live.store, live.clock, acting_session(live.task), runtimes=_runtimes.get())


def _line_of(tx: Tx, task: Task) -> set[str]:
    """The task and those above it."""
    found, above = {task.id}, task.parent_task_id
    while above is not None and above not in found:
        found.add(above)
        above = tx.tasks.look(above).parent_task_id
    return set(found)


def _shown(task: Task, now: datetime, *, is_this: bool) -> OwnTask:
    if task.ended_at is not None:
        since = f"ended {in_one_unit(now - task.ended_at)} ago"
    elif task.started_at is not None:
        since = f"started {in_one_unit(now - task.started_at)} ago"
    else:
        since = f"created {in_one_unit(now - task.created_at)} ago"
    return OwnTask(
        task_id=task.id,
        title=title_of(task),
        status=task.status.value,
        since=since,
        detail=plain_line(_detail_of(task), MAX_DETAIL_CHARS) or None,
        is_this=is_this,
    )


def _detail_of(task: Task) -> str:
    if task.ended_at is not None:
        return "" if task.failure is None else task.failure.message
    if task.cancel_requested_at is not None:
        return "is being cancelled"
    if task.progress is None:
        return "" if task.waits_on is None else f"waits for {task.waits_on.partition(':')[0]}"
    progress = task.progress
    count = f"{progress.done}" if progress.total is None else f"{progress.done} of {progress.total}"
    return f"{count} done" + (f" · {progress.subtask}" if progress.subtask else "")
