"""Limits of campaigns: an item runs while its task holds a slot of its campaign, its phase and its host.

A slot is a row that is taken under a lock, so no limit is passed, however many processes start items or
claim runs. The process that starts an item gives it a slot of its own host; a worker of another host that
claims the run changes it for one of its own, or leaves the run to the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from holdfast.core.campaign import Campaign, ItemPhase
from holdfast.core.errors import HoldfastError
from holdfast.core.task import Task
from holdfast.store import Tx

CAMPAIGN_SCOPE = "campaign"
_HOST = "host:"


def phase_scope(number: int) -> str:
    return f"phase:{number}"


def host_scope(host: str) -> str:
    return _HOST + host


def free_slots(tx: Tx, campaign: Campaign, scope: str, limit: int, *, count: int | None) -> list[int]:
    """Free slots of a scope, held by this transaction. The slots of a host are created when they are first
    looked for: `count` of them."""
    if count is not None and not tx.slots.has(campaign.id, scope):
        tx.slots.create(campaign.id, scope, count)
    return tx.slots.free(campaign.id, scope, limit=limit)


def take_free(tx: Tx, campaign: Campaign, row: ItemPhase) -> None:
    """Slots for a task that an operator reopened: those that are free. It does not wait for the others."""
    scopes = [CAMPAIGN_SCOPE]
    if campaign.spec.phases[row.phase].concurrency is not None:
        scopes.append(phase_scope(row.phase))
    for scope in scopes:
        free = tx.slots.free(campaign.id, scope, limit=1)
        if free and row.task_id is not None:
            tx.slots.take(campaign.id, scope, [(free[0], row.task_id)])


class HostLimits:
    """The limits of campaigns on one host, for the worker that claims runs there."""

    def __init__(self, host: str) -> None:
        self._scope = host_scope(host)
        # By campaign: how many item-phases a host may run; None without a limit. It never changes.
        self._limits: dict[str, int | None] = {}

    def left_out(self, tx: Tx, tasks: Iterable[Task]) -> set[str]:
        """The tasks that must not run on this host now. The others hold a slot of it from now on."""
        limited = [task for task in tasks if task.campaign_id is not None and self._limit_of(tx, task)]
        if not limited:
            return set()
        held = {
            slot[3]: slot
            for slot in tx.slots.of_tasks([task.id for task in limited])
            if slot[1].startswith(_HOST)
        }
        wanting: dict[str, list[str]] = {}
        for task in limited:
            if task.id not in held or held[task.id][1] != self._scope:
                wanting.setdefault(str(task.campaign_id), []).append(task.id)
        left_out: set[str] = set()
        for campaign_id, task_ids in sorted(wanting.items()):
            left_out.update(self._change(tx, campaign_id, task_ids, held))
        return left_out

    def _change(
        self,
        tx: Tx,
        campaign_id: str,
        task_ids: Sequence[str],
        held: Mapping[str, tuple[str, str, int, str]],
    ) -> Sequence[str]:
        """Give as many of these tasks a slot of this host as are free; the tasks that got none."""
        limit = self._limits[campaign_id]
        assert limit is not None
        if not tx.slots.has(campaign_id, self._scope):
            tx.slots.create(campaign_id, self._scope, limit)
        free = tx.slots.free(campaign_id, self._scope, limit=len(task_ids))
        taken = list(zip(free, task_ids, strict=False))
        tx.slots.leave([held[task_id] for _, task_id in taken if task_id in held])
        tx.slots.take(campaign_id, self._scope, taken)
        return task_ids[len(taken) :]

    def _limit_of(self, tx: Tx, task: Task) -> int | None:
        campaign_id = str(task.campaign_id)
        if campaign_id not in self._limits:
            try:
                self._limits[campaign_id] = tx.campaigns.get(campaign_id).spec.host_concurrency
            except HoldfastError:  # it is gone or damaged, which keeps no task from its end
                self._limits[campaign_id] = None
        return self._limits[campaign_id]
