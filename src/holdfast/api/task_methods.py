"""The methods of tasks: `tasks.*` in OpenClaw's format, and `ledger.*` as the CLI prints it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast.api import (
    ledger,
    openclaw,
    overview,
    producers,
    steps,
    task_changes,
    task_lists,
    task_waits,
    tasks,
)
from holdfast.api.contract import READ, WRITE, Caller, GatewayDoor
from holdfast.api.method_kinds import (
    Method,
    P,
    V,
    acts,
    audited,
    calls,
    reads_own,
    run_write,
    shows_own,
    writes_own,
)
from holdfast.api.params import Nothing
from holdfast.views.status import OverviewView
from holdfast.views.steps import StepPageView
from holdfast.views.tasks import (
    CancelView,
    CreatedView,
    ForkedView,
    NotifyView,
    ResultView,
    RetriedPageView,
    RetriedView,
    TaskDetailView,
    TaskPageView,
    WaitedView,
)
from holdfast.views.wire import TaskCancelled, TaskFound, TaskListed, TasksDismissed, TasksRetried, TaskWaited

if TYPE_CHECKING:
    from holdfast.store.contract import Write


def cancels_own(
    name: str, params: type[P], answer: type[V], writing: Callable[..., Write[V]], summary: str
) -> Method:
    """A cancel: of work that others execute, its runtime is asked to stop it before the record ends."""

    async def call(gateway: GatewayDoor, asked: Any, caller: Caller) -> V:
        target = asked.run_id if isinstance(asked, producers.RunCancelAsked) else asked.task_id
        why = asked.reason or "cancelled by an operator"
        cannot_stop = await producers.why_not_stopped(
            gateway.store, gateway.clock, gateway.runtimes, target, why, caller.reach
        )
        return await run_write(
            gateway, name, writing, asked, caller, reach=caller.reach, cannot_stop=cannot_stop
        )

    return audited(name, params, answer, call, summary, is_owned=True)


async def _retry_page(gateway: GatewayDoor, asked: tasks.RetryPageAsked, caller: Caller) -> RetriedPageView:
    # In a thread: many writes must not block the event loop.
    return await asyncio.to_thread(tasks.retry_page, gateway.store, asked, reach=caller.reach)


async def _fork(gateway: GatewayDoor, asked: tasks.ForkAsked, caller: Caller) -> ForkedView:
    # In a thread: the history of a task may be long.
    return await asyncio.to_thread(
        tasks.fork_task, gateway.store, asked, now=gateway.clock.now(), reach=caller.reach
    )


TASK_METHODS: list[Method] = [
    # Tasks in the format of OpenClaw's protocol.
    shows_own(
        "tasks.list",
        openclaw.ListAsked,
        TaskListed,
        openclaw.list_tasks,
        "A page of tasks in OpenClaw's format; by creation, last change or end, newest first.",
    ),
    shows_own(
        "tasks.get",
        openclaw.GetAsked,
        TaskFound,
        openclaw.get_task,
        "One task in OpenClaw's format.",
    ),
    cancels_own(
        "tasks.cancel",
        openclaw.WireCancelAsked,
        TaskCancelled,
        openclaw.cancelling_wire_task,
        "Cancel a task; for a missing task the answer says so, without an error.",
    ),
    calls(
        "tasks.wait",
        READ,
        task_waits.WireWaitAsked,
        TaskWaited,
        task_waits.wire_wait,
        "Wait until a task has ended, for a bounded time.",
        is_owned=True,
    ),
    writes_own(
        "tasks.retry",
        openclaw.SeveralAsked,
        TasksRetried,
        openclaw.retrying_tasks,
        "Retry tasks whose resume has failed.",
    ),
    writes_own(
        "tasks.dismiss",
        openclaw.SeveralAsked,
        TasksDismissed,
        openclaw.dismissing_tasks,
        "Drop the pending and failed deliveries of these tasks.",
    ),
    # The ledger, as the CLI prints it.
    calls(
        "ledger.list",
        READ,
        task_lists.TasksAsked,
        TaskPageView,
        task_lists.list_tasks,
        "A page of tasks by any filter, newest first, with the number of tasks in each status.",
        is_owned=True,
    ),
    Method(
        name="ledger.show",
        scope=READ,
        params=tasks.TaskAsked,
        answer=TaskDetailView,
        call=tasks.show,
        summary="One task in full.",
        is_owned=True,
    ),
    reads_own(
        "ledger.steps",
        steps.StepsAsked,
        StepPageView,
        steps.read_steps,
        "The steps of a task, also of finished turns: their arguments and what is kept of their results.",
    ),
    calls(
        "ledger.overview",
        READ,
        Nothing,
        OverviewView,
        overview.overview,
        "The number of reviews, questions and failures that a person may have to look at.",
    ),
    calls(
        "ledger.result",
        # Needs the write scope: readers get the redacted values of `ledger.show`.
        WRITE,
        task_waits.ResultAsked,
        ResultView,
        task_waits.result,
        "The outcome of a task with its full result; can wait for the end.",
        is_owned=True,
    ),
    calls(
        "ledger.wait",
        READ,
        task_waits.WaitAsked,
        WaitedView,
        task_waits.wait,
        "Wait until a task has ended, for a bounded time; if it has not, what it waits for.",
        is_owned=True,
    ),
    cancels_own(
        "ledger.cancel",
        task_changes.CancelAsked,
        CancelView,
        task_changes.cancelling_task,
        "Cancel a task; the answer says whether it is cancelled, and why not.",
    ),
    writes_own(
        "ledger.notify",
        task_changes.NotifyAsked,
        NotifyView,
        task_changes.setting_notify,
        "Choose which updates the requester of a task gets: of its end, of changes too, or none.",
    ),
    writes_own(
        "ledger.retry",
        tasks.RetryAsked,
        RetriedView,
        tasks.retrying_one,
        "Retry a task that ended without success, from its last good point.",
    ),
    acts(
        "ledger.retry_page",
        WRITE,
        tasks.RetryPageAsked,
        RetriedPageView,
        _retry_page,
        "Retry a page of tasks, selected by status, name or owner.",
        is_owned=True,
    ),
    acts(
        "ledger.fork",
        WRITE,
        tasks.ForkAsked,
        ForkedView,
        _fork,
        "Create a new task with the history of another, up to the end of one of its turns.",
        is_owned=True,
    ),
    writes_own(
        "ledger.create",
        ledger.CreateAsked,
        CreatedView,
        ledger.creating_task,
        "Create a task for a worker that knows its name.",
    ),
]
