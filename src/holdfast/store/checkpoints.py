"""Reads and writes of checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.checkpoint import Checkpoint
from holdfast.core.clock import to_micros
from holdfast.core.errors import NotFound, RowDamaged
from holdfast.core.ids import CheckpointId
from holdfast.core.task import Failure
from holdfast.core.transitions import CheckpointStatus
from holdfast.store.contract import Row
from holdfast.store.rows.work import checkpoint_from_row, row_from_checkpoint
from holdfast.store.tasks import LAST, resolve

if TYPE_CHECKING:
    from holdfast.store.transaction import Tx

_MICROSECOND = timedelta(microseconds=1)


class CheckpointTable:
    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._sql = tx.statements

    def create_many(self, checkpoints: Sequence[Checkpoint]) -> None:
        """Store new checkpoints of runs that the caller holds, so none of them can exist already."""
        self._sql.many("insert_checkpoint", [row_from_checkpoint(one) for one in checkpoints])
        for one in checkpoints:
            self._tx.count("checkpoint", one.status, 1)

    def get(self, checkpoint_id: str) -> Checkpoint:
        return self._one("get_checkpoint", checkpoint_id)

    def find(self, checkpoint_id: str) -> Checkpoint | None:
        return self._maybe("get_checkpoint", {"id": checkpoint_id})

    def lock(self, checkpoint_id: str) -> Checkpoint:
        """The checkpoint, locked until this transaction ends."""
        return self._one("lock_checkpoint", checkpoint_id)

    def resolve(self, prefix: str) -> CheckpointId:
        return CheckpointId(resolve(self._tx, "checkpoint", "find_checkpoints", prefix))

    def page(
        self,
        *,
        status: CheckpointStatus | None = None,
        task_id: str | None = None,
        before: str = LAST,
        limit: int = 50,
    ) -> list[Checkpoint]:
        """Newest first; the last id of a page is the page token of the next."""
        name, params = "page_of_checkpoints", {"before": before, "limit": limit}
        if task_id is not None:
            name, params = f"{name}_of_task", params | {"task_id": task_id}
        if status is not None:
            name, params = f"{name}_in_status", params | {"status": status.value}
        return [checkpoint_from_row(row) for row in self._sql.all(name, params)]

    def open_of_run(self, run_id: str) -> Checkpoint | None:
        return self._maybe("open_checkpoint_of_run", {"run_id": run_id})

    def that_retries(self, checkpoint_id: str) -> Checkpoint | None:
        return self._maybe("checkpoint_that_retries", {"id": checkpoint_id})

    def count_interruptions(self, task_id: str) -> int:
        """How many runs of a task a restart or a crash has cut short."""
        row = self._sql.one("count_interruptions", {"task_id": task_id})
        return 0 if row is None else int(row[0])

    def claim(
        self, *, boot_id: str, token: str, limit: int, now: datetime, lease: timedelta
    ) -> list[Checkpoint]:
        """Claim the most urgent paused checkpoints; `with_token` finds them again."""
        params = {
            "boot_id": boot_id,
            "token": token,
            "limit": limit,
            "now": to_micros(now),
            "lease": lease // _MICROSECOND,
        }
        return self._claimed(boot_id, token, lambda: self._sql.all("claim_checkpoints", params))

    def claim_of_tree(
        self, task_id: str, *, boot_id: str, token: str, limit: int, now: datetime, lease: timedelta
    ) -> list[Checkpoint]:
        """The same for the checkpoints of one task and of the tasks that it started."""
        params = {"boot_id": boot_id, "token": token, "now": to_micros(now), "lease": lease // _MICROSECOND}
        paused = self._sql.all("paused_checkpoints_of_tree", {"task_id": task_id, "limit": limit})

        def claim() -> list[Row]:
            return [
                row for one in paused for row in self._sql.all("claim_checkpoint", params | {"id": one[0]})
            ]

        return self._claimed(boot_id, token, claim)

    def _claimed(self, boot_id: str, token: str, claim: Callable[[], Iterable[Row]]) -> list[Checkpoint]:
        try:
            found = [checkpoint_from_row(row) for row in claim()]
        except RowDamaged:
            found = self.with_token(boot_id, token)  # claimed, but a returned row is damaged: read them again
        self._moved(CheckpointStatus.PAUSED_FOR_RESTART, CheckpointStatus.RESUMING, len(found))
        return sorted(found, key=lambda one: (one.priority, one.created_at, one.id))

    def with_token(self, boot_id: str, token: str) -> list[Checkpoint]:
        """The checkpoints of a claim whose answer was lost."""
        mine = self._sql.all("resumes_with_token", {"boot_id": boot_id, "token": token})
        return [checkpoint_from_row(row) for row in mine]

    def hold(self, checkpoint_ids: Sequence[str], token: str) -> set[str]:
        """Those that this resume still holds, locked until the transaction ends."""
        params = {"ids": self._sql.pack(checkpoint_ids), "token": token}
        return {row[0] for row in self._sql.all("hold_checkpoints", params)}

    def free_woken(self, checkpoint_id: str, wake_id: str, *, now: datetime) -> str | None:
        """The wake has fired: the checkpoint that waited for it may be claimed. Returns the id of its task;
        None if it did not wait."""
        params = {"id": checkpoint_id, "wake_id": wake_id, "now": to_micros(now)}
        row = self._sql.one("free_woken_checkpoint", params)
        return None if row is None else str(row[0])

    def that_waits_for(self, wake_id: str) -> CheckpointId | None:
        """The checkpoint that waits for a wake. It scans: for a damaged wake, which does not tell."""
        row = self._sql.one("checkpoint_that_waits", {"wake_id": wake_id})
        return None if row is None else CheckpointId(row[0])

    def set_resumed(
        self, resumed: Sequence[tuple[str, str, Failure | None]], token: str, *, now: datetime
    ) -> None:
        """Link each checkpoint to its follow-up run: (id, run, diagnostic). The caller holds them."""
        at = to_micros(now)
        self._sql.many(
            "set_checkpoint_resumed",
            [
                {
                    "id": checkpoint_id,
                    "resumed_run_id": run_id,
                    "diagnostic": None if diagnostic is None else msgspec.json.encode(diagnostic),
                    "token": token,
                    "now": at,
                }
                for checkpoint_id, run_id, diagnostic in resumed
            ],
        )
        self._moved(CheckpointStatus.RESUMING, CheckpointStatus.RESUMED, len(resumed))

    def set_failed(self, checkpoint: Checkpoint, diagnostic: Failure, *, now: datetime) -> bool:
        assert checkpoint.status is not None
        params = {
            "id": checkpoint.id,
            "from": checkpoint.status.value,
            "diagnostic": msgspec.json.encode(diagnostic),
            "now": to_micros(now),
        }
        if self._sql.one("set_checkpoint_failed", params) is None:
            return False
        self._moved(checkpoint.status, CheckpointStatus.FAILED_RESUME, 1)
        return True

    def renew(self, checkpoint_ids: Sequence[str], token: str, *, now: datetime, lease: timedelta) -> None:
        """Extend the leases of checkpoints whose resume takes longer."""
        params = {
            "ids": self._sql.pack(checkpoint_ids),
            "token": token,
            "now": to_micros(now),
            "lease": lease // _MICROSECOND,
        }
        self._sql.all("renew_resumes", params)

    def return_claimed(self, checkpoint_ids: Sequence[str], *, now: datetime) -> list[tuple[str, str, str]]:
        """Move claimed checkpoints back to paused; returns the checkpoint, run and task ids of each."""
        params = {"ids": self._sql.pack(checkpoint_ids), "now": to_micros(now)}
        found = [(row[0], row[1], row[2]) for row in self._sql.all("return_checkpoints", params)]
        self._moved(CheckpointStatus.RESUMING, CheckpointStatus.PAUSED_FOR_RESTART, len(found))
        return found

    def resuming_of_boot(self, boot_id: str, *, limit: int) -> list[Checkpoint]:
        found = self._sql.all("resuming_of_boot", {"boot_id": boot_id, "limit": limit})
        return [checkpoint_from_row(row) for row in found]

    def lapsed(self, *, now: datetime, limit: int) -> list[Checkpoint]:
        found = self._sql.all("lapsed_resumes", {"now": to_micros(now), "limit": limit})
        return [checkpoint_from_row(row) for row in found]

    def lock_resuming(self, checkpoint_ids: Sequence[str]) -> list[Checkpoint]:
        found = self._sql.all("lock_resuming", {"ids": self._sql.pack(checkpoint_ids)})
        return [checkpoint_from_row(row) for row in found]

    def to_prune(self, *, older_than: datetime, before: str = LAST, limit: int = 1000) -> list[Checkpoint]:
        """Recorded or settled checkpoints of ended tasks."""
        params = {"older_than": to_micros(older_than), "before": before, "limit": limit}
        return [self.get(row[0]) for row in self._sql.all("checkpoints_to_prune", params)]

    def delete(self, checkpoints: Sequence[Checkpoint]) -> None:
        self._delete("delete_checkpoints", [one.id for one in checkpoints])

    def delete_of_tasks(self, task_ids: Sequence[str]) -> None:
        self._delete("delete_checkpoints_of_tasks", task_ids)

    def _delete(self, query: str, ids: Sequence[str]) -> None:
        for row in self._sql.all(query, {"ids": self._sql.pack(ids)}):
            if row[0] is not None:
                self._tx.count("checkpoint", CheckpointStatus(row[0]), -1)

    def _one(self, query: str, checkpoint_id: str) -> Checkpoint:
        found = self._maybe(query, {"id": checkpoint_id})
        if found is None:
            raise NotFound("checkpoint", checkpoint_id)
        return found

    def _maybe(self, query: str, params: dict[str, object]) -> Checkpoint | None:
        row = self._sql.one(query, params)
        return None if row is None else checkpoint_from_row(row)

    def _moved(self, status: CheckpointStatus, to: CheckpointStatus, by: int) -> None:
        self._tx.moved("checkpoint", status, to, by)
