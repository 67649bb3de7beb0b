"""Reads the live flows and reports what is wrong: stale and stuck ones, and flows that lack their tasks.

It costs as much as the flows in flight: pages of the index by status, and two queries for each page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta

from holdfast.core.errors import RowDamaged
from holdfast.core.finding import Fact, Finding, FindingCode, Severity
from holdfast.core.flow import Flow
from holdfast.core.task import Task
from holdfast.core.transitions import FlowStatus
from holdfast.store import Tx
from holdfast.store.tasks import LAST

STALE_FLOW = timedelta(minutes=30)
CANCEL_STUCK = timedelta(minutes=5)
PAGE = 500
# How many live flows one audit or one sweep looks at.
MOST_LIVE = 10_000
# How many of the newest flows are checked for times that cannot be.
NEWEST = 500
LIVE = (FlowStatus.QUEUED, FlowStatus.RUNNING, FlowStatus.WAITING, FlowStatus.BLOCKED)
_WARNING, _ERROR = Severity.WARNING, Severity.ERROR
_SWEEPS = "holdfast tasks maintenance --apply"


class LivePages:
    """Pages of the live flows, at most MOST_LIVE flows in all. A damaged flow ends no page: it is noted."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self.damaged: dict[str, RowDamaged] = {}
        self.is_complete = True

    def __iter__(self) -> Iterator[list[Flow]]:
        looked_at = 0
        for status in LIVE:
            before = LAST
            while page := self.sound(status, before):
                yield page
                looked_at += len(page)
                before = page[-1].id
                if looked_at >= MOST_LIVE:
                    self.is_complete = False
                    return
                if len(page) < PAGE:
                    break

    def sound(self, status: FlowStatus, before: str) -> list[Flow]:
        return self._read_sound(
            lambda place, limit: self._tx.flows.page(statuses=(status,), before=place, limit=limit),
            before,
            PAGE,
        )

    def newest(self) -> list[Flow]:
        return self._read_sound(
            lambda place, limit: self._tx.flows.page(before=place, limit=limit), LAST, NEWEST
        )

    def _read_sound(self, read: Callable[[str, int], list[Flow]], before: str, limit: int) -> list[Flow]:
        try:
            return read(before, limit)
        except RowDamaged:
            pass
        found: list[Flow] = []
        while len(found) < limit:
            try:
                one = read(before, 1)
            except RowDamaged as damage:
                self.damaged[damage.record_id] = damage
                before = damage.record_id
                continue
            if not one:
                break
            found += one
            before = one[-1].id
        return found


class FlowAudit:
    """The part of one audit that is about flows, inside one read of the ledger."""

    def __init__(self, tx: Tx, *, now: datetime) -> None:
        self._tx = tx
        self._now = now
        self._pages = LivePages(tx)

    @property
    def is_complete(self) -> bool:
        return self._pages.is_complete

    def findings(self) -> Iterator[Finding]:
        for page in self._pages:
            live = self._tx.flows.live_tasks([flow.id for flow in page])
            blockers = self._tx.tasks.get_many(
                [flow.blocked_by_task_id for flow in page if flow.blocked_by_task_id is not None]
            )
            for flow in page:
                blocker = None if flow.blocked_by_task_id is None else blockers.get(flow.blocked_by_task_id)
                yield from self._of_live(flow, live.get(flow.id, 0), blocker)
        for flow in self._pages.newest():
            yield from _of_times(flow)
        yield from _of_damage(list(self._pages.damaged.values()))

    def _of_live(self, flow: Flow, live: int, blocker: Task | None) -> Iterator[Finding]:
        if live < flow.live:
            yield _missing_tasks(flow, live)
        elif flow.is_mirrored and not flow.live and not _ended_tasks(flow) and self._is_old(flow):
            yield _without_tasks(flow)
        if flow.cancel_requested_at is not None:
            yield from self._of_cancelled(flow, live)
            return
        if flow.blocked_by_task_id is not None and blocker is None:
            yield _without_blocker(flow)
            return
        if self._is_old(flow):
            yield from self._of_stale(flow, live, blocker)

    def _is_old(self, flow: Flow) -> bool:
        return self._now - flow.updated_at >= STALE_FLOW

    def _of_cancelled(self, flow: Flow, live: int) -> Iterator[Finding]:
        assert flow.cancel_requested_at is not None
        if self._now - flow.cancel_requested_at < CANCEL_STUCK:
            return
        unasked = bool(self._tx.tasks.to_stop(flow.id, limit=1)) or not live
        yield Finding(
            code=FindingCode.CANCEL_STUCK,
            severity=_WARNING,
            record_ids=(flow.id,),
            message=f"flow {_named(flow)} is {flow.status.value}, although its cancel was requested at "
            f"{_shown(flow.cancel_requested_at)}: "
            + (
                "not all of its tasks were asked to stop"
                if unasked
                else f"{_tasks(live)} alive, and did not stop"
            ),
            evidence={
                "cancel_requested_at": flow.cancel_requested_at.isoformat(),
                "live_tasks": live,
                "status": flow.status.value,
            },
            # The tasks were asked: only their workers can end them, and the page names them.
            repair=_SWEEPS if unasked else f"holdfast tasks flow show {flow.id}",
        )

    def _of_stale(self, flow: Flow, live: int, blocker: Task | None) -> Iterator[Finding]:
        """A flow whose tasks are alive is as fresh as they are; they have codes of their own."""
        evidence: dict[str, Fact] = {
            "updated_at": flow.updated_at.isoformat(),
            "revision": flow.revision,
            "waits_on": flow.waits_on,
            "controller": flow.controller,
            "live_tasks": live,
        }
        since = f"since {_shown(flow.updated_at)}"
        match flow.status:
            case FlowStatus.RUNNING if not live:
                yield Finding(
                    code=FindingCode.STALE_RUNNING,
                    severity=_ERROR,
                    record_ids=(flow.id,),
                    message=f"flow {_named(flow)} is running without a live task, and its controller "
                    f"{flow.controller!r} has not updated it {since}",
                    evidence=evidence,
                    repair=f"holdfast tasks flow cancel {flow.id}",
                )
            case FlowStatus.WAITING if blocker is None or blocker.has_ended:
                yield Finding(
                    code=FindingCode.STALE_WAITING,
                    severity=_WARNING,
                    record_ids=(flow.id,),
                    message=f"flow {_named(flow)} waits {since}, and its controller {flow.controller!r} has "
                    "not updated it",
                    evidence=evidence,
                    repair=f"holdfast tasks flow show {flow.id}",
                )
            case FlowStatus.BLOCKED:
                by = "" if blocker is None else f" by {blocker.id} ({blocker.name})"
                yield Finding(
                    code=FindingCode.STALE_BLOCKED,
                    severity=_WARNING,
                    record_ids=(flow.id,) if blocker is None else (flow.id, blocker.id),
                    message=f"flow {_named(flow)} is blocked{by} {since}",
                    evidence=evidence,
                    repair=_unblocks(flow),
                )


def _missing_tasks(flow: Flow, live: int) -> Finding:
    return Finding(
        code=FindingCode.MISSING_LINKED_TASKS,
        severity=_ERROR,
        record_ids=(flow.id,),
        message=f"flow {_named(flow)} is {flow.status.value} and counts {_tasks(flow.live)} alive, but "
        f"{live:,} of them exist",
        evidence={"counted": flow.live, "live_tasks": live, "status": flow.status.value},
        repair=_SWEEPS,
    )


def _without_tasks(flow: Flow) -> Finding:
    return Finding(
        code=FindingCode.MISSING_LINKED_TASKS,
        severity=_WARNING,
        record_ids=(flow.id,),
        message=f"flow {_named(flow)} mirrors tasks, and no producer has recorded one since "
        f"{_shown(flow.updated_at)}",
        evidence={"counted": 0, "live_tasks": 0, "status": flow.status.value},
        repair=f"holdfast tasks flow cancel {flow.id}",
    )


def _without_blocker(flow: Flow) -> Finding:
    return Finding(
        code=FindingCode.BLOCKED_TASK_MISSING,
        severity=_ERROR,
        record_ids=(flow.id,),
        message=f"flow {_named(flow)} is {flow.status.value} by {flow.blocked_by_task_id}, which does not "
        "exist, so it cannot be retried",
        evidence={"blocked_by_task_id": flow.blocked_by_task_id, "status": flow.status.value},
        repair=f"holdfast tasks flow cancel {flow.id}",
    )


def _of_times(flow: Flow) -> Iterator[Finding]:
    wrong = [
        f"it {late} at {_shown(after)}, before it was created at {_shown(flow.created_at)}"
        for late, after in (
            ("last changed", flow.updated_at),
            ("was to be cancelled", flow.cancel_requested_at),
            ("ended", flow.ended_at),
        )
        if after is not None and after < flow.created_at
    ]
    if wrong:
        yield Finding(
            code=FindingCode.INCONSISTENT_TIMESTAMPS,
            severity=_WARNING,
            record_ids=(flow.id,),
            message=f"flow {_named(flow)} has times that cannot be: {'; '.join(wrong)}",
            evidence={
                "created_at": flow.created_at.isoformat(),
                "updated_at": flow.updated_at.isoformat(),
                "ended_at": None if flow.ended_at is None else flow.ended_at.isoformat(),
            },
            repair="holdfast doctor",
        )


def _of_damage(damaged: Sequence[RowDamaged]) -> Iterator[Finding]:
    for damage in damaged:
        yield Finding(
            code=FindingCode.RESTORE_FAILED,
            severity=_ERROR,
            record_ids=(damage.record_id,),
            message=f"{damage.finding}, so nothing of it can go on",
            evidence={"problem": damage.problem},
            repair="holdfast store verify",
        )


def _unblocks(flow: Flow) -> str:
    """The command that lets a blocked flow go on; of one that has nothing to retry, the one that ends it."""
    if flow.is_mirrored or flow.waits_on == "operator":
        return f"holdfast tasks flow cancel {flow.id}"
    if flow.has_nodes or flow.blocked_by_task_id is not None:
        return f"holdfast tasks flow retry {flow.id}"
    return f"holdfast tasks flow show {flow.id}"


def _ended_tasks(flow: Flow) -> int:
    return flow.succeeded + flow.unsuccessful


def _named(flow: Flow) -> str:
    return flow.id if flow.name is None else f"{flow.id} ({flow.name})"


def _tasks(number: int) -> str:
    return "1 task is" if number == 1 else f"{number:,} tasks are"


def _shown(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
