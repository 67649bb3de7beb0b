"""Changes of one task by an operator: cancel it, or choose which updates its requester gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.api.contract import EVERYTHING, Reach
from holdfast.api.params import Params, ShortText, TargetText
from holdfast.core.task import NotifyPolicy
from holdfast.views.tasks import CancelView, NotifyView, TaskView

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast.core.task import Task
    from holdfast.store.contract import Write
    from holdfast.store.transaction import Tx

CANCELLED_BY_OPERATOR = "cancelled by an operator"


class CancelAsked(Params, frozen=True, kw_only=True):
    """Cancel one task, with a reason."""

    task_id: TargetText
    reason: ShortText = CANCELLED_BY_OPERATOR


def cancelling_task(
    asked: CancelAsked, *, now: datetime, reach: Reach = EVERYTHING, cannot_stop: str | None = None
) -> Write[CancelView]:
    """The write that cancels a task. `cannot_stop` is why the runtime of recorded work cannot stop it."""
    from holdfast.engine.ledger.ledger import AlreadyEnded, Cancelled, CancelRequested
    from holdfast.engine.producers.stopping import ending_stopped, requesting

    def cancel(tx: Tx) -> CancelView:
        task_id = reach.resolve(tx, asked.task_id)
        if cannot_stop is not None:
            kept = requesting(task_id, reason=asked.reason, now=now)(tx)
            if not kept.has_ended:
                return _answer("not_supported", kept, reason=cannot_stop)
        match ending_stopped(task_id, reason=asked.reason, now=now)(tx):
            case Cancelled(task=task):
                return _answer("cancelled", task)
            case CancelRequested(task=task):
                why = "it is running; its worker cancels it when the task next calls Holdfast"
                return _answer("cancel_requested", task, reason=why)
            case AlreadyEnded(task=task):
                return _answer("already_ended", task, reason=f"it has already ended as {task.status.value}")

    return cancel


def _answer(outcome: str, task: Task, *, reason: str | None = None) -> CancelView:
    return CancelView(
        found=True,
        cancelled=outcome in {"cancelled", "cancel_requested"},
        reason=reason,
        outcome=outcome,
        task=TaskView.of(task),
    )


class NotifyAsked(Params, frozen=True, kw_only=True):
    """Choose which updates the requester of a task gets."""

    task_id: TargetText
    notify: NotifyPolicy


def setting_notify(asked: NotifyAsked, *, now: datetime, reach: Reach = EVERYTHING) -> Write[NotifyView]:
    """The write that sets the policy. What was owed when a task ended stays as it is."""
    from holdfast.engine.ledger.updates import setting_policy

    def set_policy(tx: Tx) -> NotifyView:
        task = setting_policy(reach.resolve(tx, asked.task_id), asked.notify, now=now)(tx)
        why = None
        if task.has_ended:
            why = f"it has already ended as {task.status.value}; its updates were decided then"
        elif (
            task.origin is None
            and not task.owner.startswith("agent:")
            and asked.notify is not NotifyPolicy.SILENT
        ):
            why = "no channel or person asked for it, so updates have no recipient"
        return NotifyView(is_set=task.notify is asked.notify, reason=why, task=TaskView.of(task))

    return set_policy
