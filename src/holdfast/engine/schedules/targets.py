"""Schedules that are overdue because no gateway has their agent or task any more."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from holdfast.core.schedule_spec import Schedule, ScheduleSpec
from holdfast.store import Tx

# Before that, a gateway may only be busy, or be restarting.
OVERDUE = timedelta(minutes=1)
# The processes that fire schedules.
_ROLES = ("gateway", "serve")


def without_target(tx: Tx, schedules: Sequence[Schedule], now: datetime) -> dict[str, str]:
    """By the names of those that are overdue: why none of the running gateways fires them.

    Empty while no gateway runs: then it is not known what the next one has.
    """
    overdue = [one for one in schedules if one.due_at is not None and one.due_at <= now - OVERDUE]
    if not overdue:
        return {}
    gateways = [boot for boot in tx.boots.alive() if boot.role in _ROLES]
    if not gateways or any(boot.task_names is None for boot in gateways):
        return {}
    names = {name for boot in gateways for name in boot.task_names or ()}
    return {
        one.name: f"no gateway has {_target(one.spec)}" for one in overdue if one.spec.task_name not in names
    }


def _target(spec: ScheduleSpec) -> str:
    if spec.agent is not None:
        return f"agent {spec.agent}"
    return "commands of schedules" if spec.task is None else f"task {spec.task}"
