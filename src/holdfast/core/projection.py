"""ProjectedStatus: the status of a task whose worker is gone, as the next rescue will leave it."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from holdfast.core.claim import Boot, Carried
from holdfast.core.run import TASK_STATUS_OF, Queue, RunRecord
from holdfast.core.transitions import RunStatus, TaskStatus

# A lease that lapsed a moment ago proves nothing: the machine may have slept, and the worker renews it now.
NOT_RESCUED = timedelta(minutes=1)


class ProjectedStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown instead of `running`, and why. Nothing is written: the rescue does that."""

    run_status: RunStatus
    why: str

    @property
    def status(self) -> TaskStatus:
        return TASK_STATUS_OF[self.run_status]


def why_not_carried(run: RunRecord, boot: Boot | None, *, has_died: bool, now: datetime) -> str | None:
    """Why no process carries a running run; None if one does, or may. `boot` is the one that claimed it, and
    `has_died` whether that one is proved dead."""
    if boot is not None and has_died:
        return f"its process {boot.pid} on {boot.node} has ended"
    if run.queue is Queue.PRODUCER or run.lease_until is None or now - run.lease_until < NOT_RESCUED:
        return None
    holder = f"process {run.claimed_by}" if boot is None else f"process {boot.pid} on {boot.node}"
    return f"the lease of its {holder} lapsed at {run.lease_until:%Y-%m-%d %H:%M:%S} UTC"


def is_gone(carried: Carried, *, is_alive: bool, has_died: bool, now: datetime) -> bool:
    """Whether a process carries its runs no more: it is proved dead, or not proved alive and all its leases
    lapsed a while ago."""
    until = carried.lease_until
    return has_died or (not is_alive and until is not None and now - until >= NOT_RESCUED)


def project(
    run: RunRecord, boot: Boot | None, *, is_alive: bool, has_died: bool, now: datetime
) -> ProjectedStatus | None:
    """How to show a run that the ledger has as running; None if it may be running.

    A worker that is proved alive keeps its run, even if its lease has lapsed. Work that others execute is
    lost only with the process that recorded it; when it is silent, its runtime has to be asked.
    """
    if run.status is not RunStatus.RUNNING or is_alive:
        return None
    why = why_not_carried(run, boot, has_died=has_died, now=now)
    if why is None:
        return None
    to = RunStatus.LOST if run.queue is Queue.PRODUCER else RunStatus.PAUSED_FOR_RESTART
    return ProjectedStatus(run_status=to, why=why)
