"""Shows running tasks whose worker is gone as the next rescue will leave them, without writing anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.core.projection import ProjectedStatus, is_gone, project
from holdfast.core.transitions import TaskStatus

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast.core.claim import Boot
    from holdfast.core.run import RunRecord
    from holdfast.core.task import Task
    from holdfast.store.boot_proofs import BootProofs
    from holdfast.store.transaction import Tx


class Projection:
    """How one read shows tasks: with what this process can prove now about their workers."""

    def __init__(self, proofs: BootProofs, now: datetime) -> None:
        self.proofs = proofs
        self.now = now

    def of_tasks(self, tx: Tx, tasks: Sequence[Task]) -> dict[str, ProjectedStatus]:
        """Those tasks of a page that are not shown as they are stored, by id. It takes one query for all of
        their runs, and one test for each of their workers; nothing if no task is running."""
        running = [task.id for task in tasks if task.status is TaskStatus.RUNNING]
        return self.of_runs(tx, list(tx.runs.live_of_tasks(running).values())) if running else {}

    def status_of(self, boot: Boot) -> str:
        """`ended`, `alive` or `dead` if that is proved here; else `unknown`."""
        if boot.ended_at is not None:
            return "ended"
        if self.proofs.is_alive(boot):
            return "alive"
        return "dead" if self.proofs.has_died(boot) else "unknown"

    def uncarried(self, tx: Tx) -> int:
        """How many running runs no process carries. It takes one query for the runs of all boots that have
        not ended, and one test for each of these."""
        boots = tx.boots.alive()
        carried = tx.boots.carried([boot.id for boot in boots])
        return sum(
            carried[boot.id].runs
            for boot in boots
            if boot.id in carried
            and is_gone(
                carried[boot.id],
                is_alive=self.proofs.is_alive(boot),
                has_died=self.proofs.has_died(boot),
                now=self.now,
            )
        )

    def of_runs(self, tx: Tx, runs: Sequence[RunRecord]) -> dict[str, ProjectedStatus]:
        """The same for the live runs of tasks, by the ids of the tasks."""
        holders = sorted({run.claimed_by for run in runs if run.claimed_by is not None})
        boots = {boot.id: boot for boot in map(tx.boots.get, holders) if boot is not None}
        dead = {boot.id for boot in boots.values() if self.proofs.has_died(boot)}
        alive = {boot.id for boot in boots.values() if self.proofs.is_alive(boot)}
        shown = {
            run.task_id: project(
                run,
                None if run.claimed_by is None else boots.get(run.claimed_by),
                is_alive=run.claimed_by in alive,
                has_died=run.claimed_by in dead,
                now=self.now,
            )
            for run in runs
        }
        return {task_id: one for task_id, one in shown.items() if one is not None}


def project_tasks(tx: Tx, tasks: Sequence[Task], projection: Projection | None) -> dict[str, ProjectedStatus]:
    """The same for a reader that may be without a projection: then all tasks are shown as they are stored."""
    return {} if projection is None else projection.of_tasks(tx, tasks)
