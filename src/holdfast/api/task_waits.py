"""Waits until a task has ended, for a bounded time: ledger.wait, ledger.result and tasks.wait."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import msgspec

from holdfast.api.openclaw import find_wire_task
from holdfast.api.params import Params, ShortText, TargetText
from holdfast.api.tasks import read_wait
from holdfast.core.errors import KeyLost, RowDamaged
from holdfast.views.payloads import PayloadView
from holdfast.views.tasks import ResultView, TaskView, WaitedView
from holdfast.views.wire import TaskSummary, TaskWaited

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast.api.contract import Caller, GatewayDoor
    from holdfast.core.task import Task
    from holdfast.store.transaction import Tx

# Longer waits are several calls: a client whose connection broke notices it, and calls again.
MAX_WAIT_MS = 25_000
DEFAULT_WAIT_MS = 10_000

WaitMs = Annotated[int, msgspec.Meta(ge=0, le=MAX_WAIT_MS)]


class ResultAsked(Params, frozen=True, kw_only=True):
    """The outcome of one task; can wait for its end."""

    task_id: TargetText
    wait_ms: WaitMs = 0


class WaitAsked(Params, frozen=True, kw_only=True):
    """Wait until one task has ended, at most this long; nothing is changed by a timeout."""

    task_id: TargetText
    wait_ms: WaitMs = DEFAULT_WAIT_MS


class WireWaitAsked(Params, frozen=True, kw_only=True):
    """Wait until one task has ended, at most this long."""

    task_id: ShortText
    timeout_ms: WaitMs = DEFAULT_WAIT_MS


async def result(gateway: GatewayDoor, asked: ResultAsked, caller: Caller) -> ResultView:
    """The result, for callers that may write. Raises RowDamaged if the stored result is damaged."""
    from holdfast.engine.ledger.ledger import opened

    task_id = await gateway.store.read(lambda tx: caller.reach.resolve(tx, asked.task_id))
    await _until_end(gateway, task_id, asked.wait_ms)
    return await gateway.store.read(lambda tx: ResultView.of(opened(tx, tx.tasks.get(task_id))))


async def wait(gateway: GatewayDoor, asked: WaitAsked, caller: Caller) -> WaitedView:
    """The task when it has ended, or when the time is over; then with what it waits for."""
    task_id = await gateway.store.read(lambda tx: caller.reach.resolve(tx, asked.task_id))
    await _until_end(gateway, task_id, asked.wait_ms)
    now = gateway.clock.now()
    return await gateway.store.read(lambda tx: look_at(tx, task_id, now, waited_s=asked.wait_ms / 1000))


async def wire_wait(gateway: GatewayDoor, asked: WireWaitAsked, caller: Caller) -> TaskWaited:
    found = await gateway.store.read(lambda tx: find_wire_task(tx, asked.task_id, caller.reach))
    await _until_end(gateway, found.id, asked.timeout_ms)
    task = await gateway.store.read(lambda tx: tx.tasks.look(found.id))
    why = None if task.has_ended else f"Not ended within {asked.timeout_ms / 1000:g} s."
    return TaskWaited(ended=task.has_ended, reason=why, task=TaskSummary.of(task))


async def _until_end(gateway: GatewayDoor, task_id: str, wait_ms: int) -> None:
    """Return when the task has ended or the time is over. However many wait, one child polls the ledger."""
    if not wait_ms:
        return
    try:
        async with asyncio.timeout(wait_ms / 1000):
            await gateway.ends.wait(task_id)
    except (TimeoutError, RowDamaged, KeyLost):
        return  # the caller reads the task, and reports what it finds


def look_at(tx: Tx, task_id: str, now: datetime, *, waited_s: float | None = None) -> WaitedView:
    task = tx.tasks.look(task_id)
    result = None if task.result is None else PayloadView.of(tx.blobs.open(task.result))
    wait = None if task.has_ended else read_wait(tx, task, now)
    return WaitedView(
        has_ended=task.has_ended,
        task=TaskView.of(task),
        result=result,
        reason=_why_not(task, waited_s),
        waits_for=wait,
    )


def _why_not(task: Task, waited_s: float | None) -> str | None:
    if task.has_ended:
        return None
    how_long = "" if waited_s is None else f" after {waited_s:g} s"
    return f"the wait timed out{how_long}; the task is still {task.status.value}, and nothing was changed"
