"""Reads and writes of runs and their claims."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.claim import Claim
from holdfast.core.clock import from_micros, to_micros
from holdfast.core.errors import NotFound, RowDamaged
from holdfast.core.run import Queue, RunRecord
from holdfast.core.task import Failure
from holdfast.core.transitions import RunStatus
from holdfast.store.contract import Params
from holdfast.store.rows.work import row_from_run, run_from_row

if TYPE_CHECKING:
    from holdfast.store.transaction import Tx

_MICROSECOND = timedelta(microseconds=1)


def by_urgency(run: RunRecord) -> tuple[int, datetime, str]:
    return run.priority, run.due_at, run.id


class RunTable:
    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._sql = tx.statements

    def create(self, run: RunRecord) -> bool:
        """False when it exists already: the write runs a second time after its own commit."""
        if self._sql.one("insert_run", row_from_run(run)) is None:
            return False
        self._tx.count("run", run.status, 1)
        return True

    def create_many(self, runs: Sequence[RunRecord]) -> None:
        """Store new runs of checkpoints that the caller holds, so none of them can exist already."""
        self._sql.many("insert_run", [row_from_run(run) for run in runs])
        for run in runs:
            self._tx.count("run", run.status, 1)

    def get(self, run_id: str) -> RunRecord:
        """Raises RowDamaged instead of returning a damaged run."""
        run = self.look(run_id)
        if run.is_damaged:
            raise RowDamaged("run", run_id)
        return run

    def look(self, run_id: str) -> RunRecord:
        """The run, damaged or not: for showing and for ending, never for executing."""
        return self._one("get_run", run_id)

    def get_many(self, run_ids: Sequence[str]) -> dict[str, RunRecord]:
        found = self._sql.all("get_runs", {"ids": self._sql.pack(run_ids)})
        return {row[0]: run_from_row(row) for row in found}

    def with_prefix(self, prefix: str) -> list[tuple[str, str]]:
        """The id and the task of the first runs whose ids begin with a prefix; at most three."""
        found = self._sql.all("find_runs", {"low": prefix, "high": f"{prefix}~"})
        return [(str(row[0]), str(row[1])) for row in found]

    def lock(self, run_id: str) -> RunRecord:
        """The run, damaged or not, locked until this transaction ends."""
        return self._one("lock_run", run_id)

    def live_of_task(self, task_id: str) -> RunRecord | None:
        row = self._sql.one("live_run_of_task", {"task_id": task_id})
        return None if row is None else run_from_row(row)

    def live_of_tasks(self, task_ids: Sequence[str]) -> dict[str, RunRecord]:
        """The live runs of several tasks, by task id."""
        found = self._sql.all("live_runs_of_tasks", {"ids": self._sql.pack(task_ids)})
        return {run.task_id: run for run in (run_from_row(row) for row in found)}

    def recorded(self, *, after: str = "", limit: int) -> list[RunRecord]:
        """Runs of recorded work that have not ended, by id."""
        found = self._sql.all("recorded_runs", {"after": after, "limit": limit})
        return [run_from_row(row) for row in found]

    def recorded_to_stop(self, *, after: str = "", limit: int) -> list[RunRecord]:
        """Runs of recorded work that have not ended although their cancel was requested, by their tasks; a
        page begins after a task."""
        params = {"after": after, "limit": limit}
        return [run_from_row(row) for row in self._sql.all("recorded_runs_to_stop", params)]

    def beat(self, run_id: str, fence: int, *, now: datetime) -> bool:
        """Record a sign of life of recorded work that its runtime has proved."""
        params = {"id": run_id, "fence": fence, "now": to_micros(now)}
        return self._sql.one("beat_run", params) is not None

    def hand_over(self, run_id: str, fence: int, *, claimed_by: str) -> bool:
        """Recorded work whose process is dead is held by its runtime from now on."""
        params = {"id": run_id, "fence": fence, "claimed_by": claimed_by}
        return self._sql.one("hand_over_run", params) is not None

    def of_task(self, task_id: str, *, limit: int = 1000) -> list[RunRecord]:
        found = self._sql.all("runs_of_task", {"task_id": task_id, "limit": limit})
        return [run_from_row(row) for row in found]

    def last_of_task(self, task_id: str) -> RunRecord:
        row = self._sql.one("last_run_of_task", {"task_id": task_id})
        if row is None:
            raise NotFound("run", f"of {task_id}")
        return run_from_row(row)

    def last_ids_of_tasks(self, task_ids: Sequence[str]) -> dict[str, str]:
        """The id of the newest run of each task."""
        found = self._sql.all("last_run_ids_of_tasks", {"ids": self._sql.pack(task_ids)})
        return {row[0]: row[1] for row in found}

    def count_failed(self, task_id: str) -> int:
        """How many runs of a task have failed."""
        row = self._sql.one("count_failed_runs", {"task_id": task_id})
        return 0 if row is None else int(row[0])

    def last_number(self, task_id: str) -> int:
        row = self._sql.one("last_number", {"task_id": task_id})
        return 0 if row is None else int(row[0])

    # --- claims

    def claim_ready(
        self,
        *,
        boot_id: str,
        token: str,
        names: Sequence[str] | None,
        limit: int,
        now: datetime,
        lease: timedelta,
    ) -> list[RunRecord]:
        """Claim the most urgent ready runs, each with a new fence; `with_token` finds them again."""
        params = self._claim_params(boot_id, token, now, lease) | {"limit": limit}
        try:
            if names is None:
                found = self._sql.all("claim_ready_runs", params)
            else:
                found = self._sql.all("claim_named_runs", params | {"names": self._sql.pack(names)})
            runs = sorted((run_from_row(row) for row in found), key=by_urgency)
        except RowDamaged:
            runs = self.with_token(boot_id, token)  # claimed, but a row is damaged: read them again
        self._tx.moved("run", RunStatus.QUEUED, RunStatus.RUNNING, len(runs))
        return runs

    def ready_since(self, since: datetime, names: Sequence[str], *, limit: int) -> list[str]:
        """Ready runs created since then, of tasks with these names; of all tasks when none is given."""
        params = {
            "since": to_micros(since),
            "names": self._sql.pack(names),
            "is_any": int(not names),
            "limit": limit,
        }
        return [row[0] for row in self._sql.all("ready_runs_since", params)]

    def claim(
        self,
        run_id: str,
        *,
        boot_id: str,
        token: str,
        now: datetime,
        lease: timedelta,
        status: RunStatus = RunStatus.QUEUED,
    ) -> RunRecord | None:
        """Claim one run by its id, if it still has that status."""
        params = self._claim_params(boot_id, token, now, lease) | {"id": run_id, "from": status.value}
        return self.look(run_id) if self._moved_one("claim_run", params, status, RunStatus.RUNNING) else None

    def suspects(self, *, limit: int = 1) -> list[tuple[str, str, datetime]]:
        """Ready runs that must execute alone: id, task name, since when."""
        found = self._sql.all("suspects_waiting", {"limit": limit})
        return [(row[0], row[1], from_micros(row[2])) for row in found]

    def boot_carries_suspect(self, boot_id: str) -> bool:
        return self._sql.one("boot_carries_suspect", {"boot_id": boot_id}) is not None

    def boot_carries_any(self, boot_id: str) -> bool:
        return self._sql.one("boot_carries_any", {"boot_id": boot_id}) is not None

    def renew(
        self, run_ids: Sequence[str], *, boot_id: str, now: datetime, lease: timedelta
    ) -> dict[str, tuple[int, datetime]]:
        """Renew leases; returns the fence and new end of each that the boot still holds. The others are
        lost."""
        params = {
            "ids": self._sql.pack(run_ids),
            "boot_id": boot_id,
            "now": to_micros(now),
            "lease": lease // _MICROSECOND,
        }
        return {row[0]: (row[1], from_micros(row[2])) for row in self._sql.all("renew_claims", params)}

    def exonerate(self, run_id: str, fence: int, *, now: datetime) -> bool:
        params = {"id": run_id, "fence": fence, "now": to_micros(now)}
        return self._sql.one("exonerate_run", params) is not None

    def release(self, run_id: str, fence: int, *, due_at: datetime, queue: Queue, now: datetime) -> bool:
        params = {
            "id": run_id,
            "fence": fence,
            "due_at": to_micros(due_at),
            "queue": queue.value,
            "now": to_micros(now),
        }
        return self._moved_one("release_run", params, RunStatus.RUNNING, RunStatus.QUEUED)

    def wait(self, run_id: str, fence: int, *, waits_on: str, due_at: datetime, now: datetime) -> bool:
        params = {
            "id": run_id,
            "fence": fence,
            "waits_on": waits_on,
            "due_at": to_micros(due_at),
            "now": to_micros(now),
        }
        return self._moved_one("wait_run", params, RunStatus.RUNNING, RunStatus.WAITING)

    def wake(self, run_id: str, *, now: datetime) -> bool:
        params = {"id": run_id, "now": to_micros(now)}
        return self._moved_one("wake_run", params, RunStatus.WAITING, RunStatus.QUEUED)

    def end(
        self, run_id: str, fence: int, to: RunStatus, *, failure: Failure | None, now: datetime
    ) -> RunRecord | None:
        """End a run for its holder; None when the fence is no longer the newest or the run has ended."""
        is_ended = self.end_held(run_id, fence, to, failure=failure, now=now)
        return self.look(run_id) if is_ended else None

    def end_held(
        self, run_id: str, fence: int, to: RunStatus, *, failure: Failure | None, now: datetime
    ) -> bool:
        """The same for a caller that needs no Run back."""
        params = {
            "id": run_id,
            "fence": fence,
            "to": to.value,
            "failure": _encode(failure),
            "now": to_micros(now),
        }
        return self._moved_one("end_run", params, RunStatus.RUNNING, to)

    def succeed(self, claims: Sequence[Claim], *, now: datetime) -> int:
        """End several runs with success; returns how many were still held with those fences."""
        params = {
            "ids": self._sql.pack([claim.run_id for claim in claims]),
            "held": self._sql.pack([f"{claim.run_id}:{claim.fence}" for claim in claims]),
            "now": to_micros(now),
        }
        ended = len(self._sql.all("succeed_runs", params))
        self._tx.moved("run", RunStatus.RUNNING, RunStatus.SUCCEEDED, ended)
        return ended

    def end_idle(self, run: RunRecord, to: RunStatus, *, failure: Failure | None, now: datetime) -> bool:
        """End a run that no worker holds."""
        params = {
            "id": run.id,
            "from": run.status.value,
            "to": to.value,
            "failure": _encode(failure),
            "now": to_micros(now),
        }
        return self._moved_one("end_idle_run", params, run.status, to)

    # --- pause and resume

    def pause(self, run_ids: Sequence[str], *, now: datetime) -> int:
        return self._moved_many("pause_runs", run_ids, RunStatus.RUNNING, RunStatus.PAUSED_FOR_RESTART, now)

    def set_resuming(self, run_ids: Sequence[str], *, now: datetime) -> int:
        return self._moved_many(
            "set_runs_resuming", run_ids, RunStatus.PAUSED_FOR_RESTART, RunStatus.RESUMING, now
        )

    def set_paused_again(self, run_ids: Sequence[str], *, now: datetime) -> int:
        return self._moved_many(
            "set_runs_paused_again", run_ids, RunStatus.RESUMING, RunStatus.PAUSED_FOR_RESTART, now
        )

    def set_resumed(self, run_ids: Sequence[str], *, now: datetime) -> int:
        return self._moved_many("set_runs_resumed", run_ids, RunStatus.RESUMING, RunStatus.RESUMED, now)

    def set_failed_resume(self, run: RunRecord, failure: Failure, *, now: datetime) -> bool:
        params = {
            "id": run.id,
            "from": run.status.value,
            "failure": _encode(failure),
            "now": to_micros(now),
        }
        return self._moved_one("set_run_failed_resume", params, run.status, RunStatus.FAILED_RESUME)

    # --- due runs, and runs whose lease has lapsed

    def ready_due(self, *, now: datetime, limit: int) -> int:
        """Move due runs to the ready queue; returns how many."""
        return len(self._sql.all("ready_due_runs", {"now": to_micros(now), "limit": limit}))

    def waits_over(self, *, now: datetime, limit: int) -> list[tuple[str, str]]:
        """Waiting runs that are due: run and task ids."""
        found = self._sql.all("waits_over", {"now": to_micros(now), "limit": limit})
        return [(row[0], row[1]) for row in found]

    def last_wait_written_at(self) -> datetime | None:
        """When the last retry was queued for later, or the last run began to wait; None if there is none."""
        found = [row[0] for row in self._sql.all("last_wait_written", {}) if row[0] is not None]
        return from_micros(max(found)) if found else None

    def reschedule_ahead(self, *, now: datetime, slack: timedelta, limit: int) -> None:
        """Count the delay of retries from now, if they were queued for later more than `slack` after now."""
        params = {"now": to_micros(now), "moment": to_micros(now + slack), "limit": limit}
        self._sql.run("reschedule_runs_ahead", params)

    def waits_ahead(self, *, now: datetime, slack: timedelta, limit: int) -> list[str]:
        """The ids of runs that began to wait more than `slack` after now."""
        params = {"moment": to_micros(now + slack), "limit": limit}
        return [row[0] for row in self._sql.all("waits_ahead", params)]

    def waiting_on(self, waits_on: str) -> list[tuple[str, str]]:
        """Runs that wait for exactly this: run and task ids. It scans all waiting runs."""
        return [(row[0], row[1]) for row in self._sql.all("runs_waiting_on", {"waits_on": waits_on})]

    def next_wake_at(self) -> datetime | None:
        """When the next wake is due; None when there is none. Here, so that a process without wakes need not
        load their table."""
        row = self._sql.one("next_wake", {})
        return None if row is None or row[0] is None else from_micros(row[0])

    def last_wake_written_at(self) -> datetime | None:
        """When the pending wake was written that was written last; None when there is none."""
        row = self._sql.one("last_wake_written", {})
        return None if row is None or row[0] is None else from_micros(row[0])

    def waiting(self, *, after: tuple[int, str] = (0, ""), limit: int) -> list[RunRecord]:
        """Runs that wait, the first due first, after one that is due then."""
        params = {"due_at": after[0], "after": after[1], "limit": limit}
        return [run_from_row(row) for row in self._sql.all("waiting_runs", params)]

    def next_due_at(self) -> datetime | None:
        """When the next run that is not ready becomes due; None when there is none."""
        found = self._sql.all("next_due_runs", {})
        return min((from_micros(row[0]) for row in found if row[0] is not None), default=None)

    def has_ready(self, names: Sequence[str]) -> bool:
        """Whether there is a ready run of a task with one of these names."""
        return self._sql.one("find_ready_run", {"names": self._sql.pack(names)}) is not None

    def ready_of_tree(
        self, task_id: str, names: Sequence[str], *, limit: int
    ) -> list[tuple[str, bool, datetime]]:
        """Ready runs of a task and of those that it started: id, whether it must be alone, since when."""
        params = {"task_id": task_id, "names": self._sql.pack(names), "limit": limit}
        found = self._sql.all("ready_runs_of_tree", params)
        return [(row[0], bool(row[1]), from_micros(row[2])) for row in found]

    def ready_names(self, *, limit: int = 1000) -> list[str]:
        """The names of the tasks that have ready runs."""
        return [row[0] for row in self._sql.all("names_of_ready_runs", {"limit": limit})]

    def of_boot(self, boot_id: str, *, limit: int) -> list[RunRecord]:
        found = self._sql.all("runs_of_boot", {"boot_id": boot_id, "limit": limit})
        return [run_from_row(row) for row in found]

    def count_of_boot(self, boot_id: str) -> int:
        row = self._sql.one("count_of_boot", {"boot_id": boot_id})
        return 0 if row is None else int(row[0])

    def lapsed(self, *, now: datetime, limit: int) -> list[RunRecord]:
        found = self._sql.all("lapsed_runs", {"now": to_micros(now), "limit": limit})
        return [run_from_row(row) for row in found]

    def next_lapse(self, *, now: datetime) -> timedelta | None:
        """How long until the first lease of a claim or a resume lapses; None when there is no lease."""
        found = self._sql.all("next_lapse", {"now": to_micros(now)})
        return min((row[0] * _MICROSECOND for row in found if row[0] is not None), default=None)

    def lock_running(self, run_ids: Sequence[str]) -> list[RunRecord]:
        """Those of these runs that are still running, locked until this transaction ends."""
        found = self._sql.all("lock_running", {"ids": self._sql.pack(run_ids)})
        return [run_from_row(row) for row in found]

    def delete_of_tasks(self, task_ids: Sequence[str]) -> None:
        for row in self._sql.all("delete_runs_of_tasks", {"ids": self._sql.pack(task_ids)}):
            self._tx.count("run", RunStatus(row[0]), -1)

    def _one(self, query: str, run_id: str) -> RunRecord:
        row = self._sql.one(query, {"id": run_id})
        if row is None:
            raise NotFound("run", run_id)
        return run_from_row(row)

    def with_token(self, boot_id: str, token: str) -> list[RunRecord]:
        """The runs of a claim whose answer was lost."""
        found = self._sql.all("claims_with_token", {"boot_id": boot_id, "token": token})
        return [run_from_row(row) for row in found]

    def _claim_params(self, boot_id: str, token: str, now: datetime, lease: timedelta) -> dict[str, object]:
        return {
            "boot_id": boot_id,
            "token": token,
            "now": to_micros(now),
            "lease": lease // _MICROSECOND,
        }

    def _moved_one(self, query: str, params: Params, status: RunStatus, to: RunStatus) -> bool:
        if self._sql.one(query, params) is None:
            return False
        self._tx.moved("run", status, to)
        return True

    def _moved_many(
        self, query: str, run_ids: Sequence[str], status: RunStatus, to: RunStatus, now: datetime
    ) -> int:
        moved = len(self._sql.all(query, {"ids": self._sql.pack(run_ids), "now": to_micros(now)}))
        self._tx.moved("run", status, to, moved)
        return moved


def _encode(failure: Failure | None) -> bytes | None:
    return None if failure is None else msgspec.json.encode(failure)
