"""Reads the ledger and reports what is wrong: stale, lost and orphaned work, and records that disagree.

It changes nothing. It costs as much as the work in flight, not the history: each check reads through an index
that holds only what it looks for, or a bounded page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta

import msgspec

from holdfast.core.claim import Boot
from holdfast.core.clock import Clock
from holdfast.core.errors import NotFound, RowDamaged
from holdfast.core.finding import Fact, Finding, FindingCode, Severity
from holdfast.core.projection import NOT_RESCUED, why_not_carried
from holdfast.core.recorded import UNRECORDED_FACT, RecordedDetails, UnrecordedWork
from holdfast.core.run import Queue, RunRecord
from holdfast.core.task import NotifyPolicy, RuntimeName, Task
from holdfast.core.transitions import EffectStatus, RunStatus, TaskStatus, WakeStatus
from holdfast.engine.claims.claims import NEVER
from holdfast.engine.clocks.jump_facts import FACT, jump_in_words, jumped_by
from holdfast.store import Tx
from holdfast.store.clock import MOST_SKEW, SET_BY_NTP, LedgerClock, skew_in_words
from holdfast.store.tasks import LAST
from holdfast.upkeep.alert_audit import findings_of_rules
from holdfast.upkeep.flow_audit import FlowAudit
from holdfast.upkeep.proofs import last_sign, may_be_silent
from holdfast.upkeep.schedule_audit import findings_of_schedules

STALE_QUEUED = timedelta(minutes=10)
STALE_RUNNING = timedelta(minutes=30)
LONG_RUN = timedelta(minutes=30)
PAGE = 500
# How many live tasks one audit looks at, and how many ended or failed records of each kind.
MOST_LIVE = 10_000
MOST_ENDED = 1000
# How long after the last report dropped ones are a finding; the record keeps their number.
DROPS_SHOWN = timedelta(days=7)
# How many names of tasks that workers can run are in the evidence.
SHOWN_NAMES = 20
# Sorts before the end of every task: the first page of ended tasks, last ended first.
_FROM_LAST = (2**62, LAST)
_LIVE = (
    TaskStatus.QUEUED,
    TaskStatus.RUNNING,
    TaskStatus.WAITING,
    TaskStatus.NEEDS_REVIEW,
    TaskStatus.PAUSED,
)
_WARNING, _ERROR = Severity.WARNING, Severity.ERROR
_SWEEPS = "holdfast tasks maintenance --apply"


class TaskCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many tasks there are, as every write has kept it."""

    by_status: dict[str, int]
    by_runtime: dict[str, int]

    @classmethod
    def of(cls, tx: Tx) -> TaskCounts:
        return cls(by_status=tx.events.counts("task"), by_runtime=tx.events.counts("runtime"))


class AuditReport(msgspec.Struct, frozen=True, kw_only=True):
    """What an audit found."""

    findings: list[Finding]
    # False if there is more than one audit looks at, or if a record cannot be read.
    is_complete: bool = True


class LivingWorkers(msgspec.Struct, frozen=True, kw_only=True):
    """The processes that may run tasks, and which tasks they can run."""

    count: int
    names: frozenset[str]
    # Whether one of them can run any task, or is of an earlier version and did not tell.
    has_any: bool

    @classmethod
    def of(cls, boots: Sequence[Boot]) -> LivingWorkers:
        return cls(
            count=len(boots),
            names=frozenset(name for boot in boots for name in boot.task_names or ()),
            has_any=any(boot.task_names is None for boot in boots),
        )

    def lack(self, name: str) -> bool:
        """Whether there are workers, and none of them can run tasks of this name."""
        return bool(self.names) and not self.has_any and name not in self.names


def has_ended(boot: Boot) -> bool:
    """Whether the end of a boot is recorded: what a process can tell that cannot test its lock."""
    return boot.ended_at is not None


class Audit:
    """One audit, inside one read of the ledger."""

    def __init__(
        self,
        tx: Tx,
        *,
        now: datetime,
        clock: Clock | None = None,
        has_died: Callable[[Boot], bool] = has_ended,
    ) -> None:
        """`has_died` tells whether a boot is proved dead. Without a clock, clocks are not compared."""
        self._tx = tx
        self._now = now
        self._clock = clock
        self._has_died = has_died
        self._boots: dict[str, Boot | None] = {}
        self._known: LivingWorkers | None = None
        self._is_complete = True

    def report(self) -> AuditReport:
        findings = [
            *self._of_live_tasks(),
            *self._of_lost_tasks(),
            *self._of_failed_deliveries(),
            *self._of_unstamped_tasks(),
            *self._of_ended_tasks(),
            *self._of_dropped_records(),
            *self._of_unrecorded_work(),
            *self._of_late_reports(),
            *self._of_flows(),
            *self._of_clocks(),
            *findings_of_rules(self._tx),
            *findings_of_schedules(self._tx, self._now),
        ]
        # Errors first; each severity in the order of the checks.
        findings.sort(key=lambda one: one.severity is not _ERROR)
        return AuditReport(findings=findings, is_complete=self._is_complete)

    # --- work in flight

    def _of_live_tasks(self) -> Iterator[Finding]:
        """Through the index tasks_by_status, a page at a time."""
        looked_at = 0
        for status in _LIVE:
            before = LAST
            while page := self._tx.tasks.page(statuses=(status,), before=before, limit=PAGE):
                ids = [task.id for task in page]
                runs, facts = self._tx.runs.live_of_tasks(ids), self._tx.recorded.get_many(ids)
                for task in page:
                    yield from self._of_live(task, runs.get(task.id), facts.get(task.id))
                looked_at += len(page)
                before = page[-1].id
                if looked_at >= MOST_LIVE:
                    self._is_complete = False
                    return
                if len(page) < PAGE:
                    break

    def _of_live(
        self, task: Task, run: RunRecord | None, details: RecordedDetails | None
    ) -> Iterator[Finding]:
        yield from _of_timestamps(task)
        if run is not None and run.queue is Queue.PRODUCER:
            yield from _of_metadata(task, run, details)
        if run is None:
            yield Finding(
                code=FindingCode.NO_OWNER,
                severity=_ERROR,
                record_ids=(task.id,),
                message=f"{task.id} ({task.name}) is {task.status.value}, but no run of it is left",
                evidence={"status": task.status.value, "updated_at": task.updated_at.isoformat()},
                repair=f"holdfast tasks cancel {task.id}",
            )
            return
        match run.status:
            case RunStatus.QUEUED:
                yield from self._of_queued(task, run)
            case RunStatus.RUNNING:
                yield from self._of_running(task, run, details)
            case RunStatus.WAITING:
                yield from self._of_waiting(task, run)
            case _:
                yield from self._of_paused(task, run)

    def _of_queued(self, task: Task, run: RunRecord) -> Iterator[Finding]:
        since = max(run.due_at, run.updated_at)
        is_recorded = run.queue is Queue.PRODUCER
        if not is_recorded and self._is_unknown(task, since):
            yield self._unknown(task, run, since)
            return
        if self._now - since < STALE_QUEUED:
            return
        what = "the program that recorded it has not started it" if is_recorded else "no worker has taken it"
        yield Finding(
            code=FindingCode.STALE_QUEUED,
            severity=_WARNING,
            record_ids=(task.id, run.id),
            message=f"{task.id} ({task.name}) is queued, and {what} since {_shown(since)}",
            evidence={
                "since": since.isoformat(),
                "queue": run.queue.value,
                "name": task.name,
                "living_boots": self._workers.count,
            },
            repair=f"holdfast tasks cancel {task.id}" if is_recorded else _starts(task),
        )

    def _of_running(self, task: Task, run: RunRecord, details: RecordedDetails | None) -> Iterator[Finding]:
        sign = last_sign(task, run, details)
        evidence: dict[str, Fact] = {
            "last_sign_at": sign.isoformat(),
            "claimed_by": run.claimed_by,
            "lease_until": None if run.lease_until is None else run.lease_until.isoformat(),
        }
        is_recorded = run.queue is Queue.PRODUCER
        may_be_quiet = is_recorded and may_be_silent(run, details, self._now)
        why = self._why_not_carried(run)
        if why is not None:
            yield Finding(
                code=FindingCode.NO_OWNER,
                severity=_ERROR,
                record_ids=(task.id, run.id),
                message=f"{task.id} ({task.name}) is running, but {why}",
                evidence=evidence,
                # If its process only recorded the work, a sweep ends the record.
                repair=_SWEEPS if is_recorded else _starts(task),
            )
        elif self._now - sign >= STALE_RUNNING and not may_be_quiet:
            yield Finding(
                code=FindingCode.STALE_RUNNING,
                severity=_ERROR,
                record_ids=(task.id, run.id),
                message=f"{task.id} ({task.name}) is running, without a sign of life since {_shown(sign)}",
                evidence=evidence,
                repair=_SWEEPS if is_recorded else _starts(task),
            )
        elif not is_recorded:
            yield from self._of_long_run(task, run)

    def _of_long_run(self, task: Task, run: RunRecord) -> Iterator[Finding]:
        began = run.started_at or run.updated_at
        if self._now - began < LONG_RUN:
            return
        saved = self._tx.journal.last_saved_at(task.id)
        since = began if saved is None else max(began, saved)
        if self._now - since >= LONG_RUN:
            yield Finding(
                code=FindingCode.LONG_RUN_WITHOUT_CHECKPOINT,
                severity=_WARNING,
                record_ids=(task.id, run.id),
                message=f"{task.id} ({task.name}) has run since {_shown(began)} and saved nothing since "
                f"{_shown(since)}: an interruption would lose that work; divide it into smaller steps",
                evidence={
                    "started_at": began.isoformat(),
                    "saved_at": None if saved is None else saved.isoformat(),
                },
                repair=f"holdfast tasks show {task.id}",
            )

    def _why_not_carried(self, run: RunRecord) -> str | None:
        """Why no live process carries a running run; None if one does, or may."""
        boot = self._boot(run.claimed_by or "")
        has_died = boot is not None and self._has_died(boot)
        return why_not_carried(run, boot, has_died=has_died, now=self._now)

    def _of_waiting(self, task: Task, run: RunRecord) -> Iterator[Finding]:
        why = self._why_never_woken(task, run)
        if why is not None:
            yield _never_woken(task, run, why)

    def _why_never_woken(self, task: Task, run: RunRecord) -> str | None:
        """Why nothing can end the wait of a run; None if something can. A run with a due time is woken then,
        whatever it waits for."""
        if run.due_at < NEVER:
            is_late = self._now - run.due_at >= STALE_QUEUED
            return (
                f"its wait was over at {_shown(run.due_at)}, and no worker has woken it" if is_late else None
            )
        kind, _, subject = (run.waits_on or "").partition(":")
        try:
            return self._why_subject_is_settled(task, kind, subject)
        except NotFound:
            return f"{run.waits_on}, for which it waits, does not exist"
        except RowDamaged:
            self._is_complete = False
            return None

    def _why_subject_is_settled(self, task: Task, kind: str, subject: str) -> str | None:
        match kind:
            case "answer":
                is_over = self._tx.questions.get(subject).answered_at is not None
                return f"the question {subject} was answered" if is_over else None
            case "review":
                is_over = self._tx.effects.get(subject).status is not EffectStatus.UNKNOWN
                return f"the effect {subject} was reviewed" if is_over else None
            case "child":
                child = self._tx.tasks.look(subject)
                return f"its child {subject} is {child.status.value}" if child.has_ended else None
            case "children":
                has_any = bool(self._tx.tasks.children(task.id, only_alive=True))
                return None if has_any else "all of its children have ended"
            case "boot":
                boot = self._boot(subject)
                return f"process {subject} has ended" if boot is None or boot.ended_at is not None else None
        return None  # mail, or what another program named: it may still come

    def _of_paused(self, task: Task, run: RunRecord) -> Iterator[Finding]:
        checkpoint = self._tx.checkpoints.open_of_run(run.id)
        if checkpoint is None:
            yield _never_woken(task, run, "it has no open checkpoint to resume")
        elif checkpoint.wake_id is not None:
            yield from self._of_wake(task, run, checkpoint.wake_id)
        elif self._is_unknown(task, run.updated_at):
            yield self._unknown(task, run, run.updated_at)
        elif self._now - run.updated_at >= STALE_QUEUED:
            yield Finding(
                code=FindingCode.STALE_QUEUED,
                severity=_WARNING,
                record_ids=(task.id, run.id, checkpoint.id),
                message=f"{task.id} ({task.name}) is paused, and no worker has resumed it since "
                f"{_shown(run.updated_at)}",
                evidence={"since": run.updated_at.isoformat(), "name": task.name},
                repair=_starts(task),
            )

    def _of_wake(self, task: Task, run: RunRecord, wake_id: str) -> Iterator[Finding]:
        wake = self._tx.wakes.find(wake_id)
        if wake is None or wake.status is not WakeStatus.PENDING:
            yield _never_woken(task, run, f"its wake {wake_id} does not fire any more")
        elif self._now - wake.due_at >= STALE_QUEUED:
            yield _never_woken(task, run, f"its wake {wake_id} was due at {_shown(wake.due_at)}")

    # --- what the living workers can run

    @property
    def _workers(self) -> LivingWorkers:
        if self._known is None:
            boots = [boot for boot in self._tx.boots.alive(limit=PAGE) if not self._has_died(boot)]
            self._known = LivingWorkers.of(boots)
        return self._known

    def _is_unknown(self, task: Task, since: datetime) -> bool:
        """Whether workers live, and none of them can run the task. Without any worker it is only queued. A
        worker that is just being replaced gets a moment."""
        return self._now - since >= NOT_RESCUED and self._workers.lack(task.name)

    def _unknown(self, task: Task, run: RunRecord, since: datetime) -> Finding:
        return Finding(
            code=FindingCode.UNKNOWN_TASK,
            severity=_WARNING,
            record_ids=(task.id, run.id),
            message=f"{task.id} ({task.name}) is {task.status.value} since {_shown(since)}, and no living "
            f"worker can run {task.name!r}",
            evidence={
                "since": since.isoformat(),
                "name": task.name,
                "living_boots": self._workers.count,
                "known": ", ".join(sorted(self._workers.names)[:SHOWN_NAMES]),
            },
            repair=_starts(task),
        )

    def _boot(self, boot_id: str) -> Boot | None:
        if boot_id not in self._boots:
            self._boots[boot_id] = self._tx.boots.get(boot_id)
        return self._boots[boot_id]

    # --- what has ended, in bounded pages

    def _of_lost_tasks(self) -> Iterator[Finding]:
        """Through the index tasks_by_status."""
        found = self._tx.tasks.page(statuses=(TaskStatus.LOST,), limit=MOST_ENDED)
        self._is_complete &= len(found) < MOST_ENDED
        for task in found:
            is_over = task.cleanup_after is not None and task.cleanup_after <= self._now
            why = "" if task.failure is None else f": {task.failure.message}"
            yield Finding(
                code=FindingCode.LOST,
                severity=_ERROR if is_over else _WARNING,
                record_ids=(task.id,),
                message=f"{task.id} ({task.name}) is lost{why}",
                evidence={
                    "ended_at": None if task.ended_at is None else task.ended_at.isoformat(),
                    "cleanup_after": None if task.cleanup_after is None else task.cleanup_after.isoformat(),
                },
                repair=_SWEEPS if is_over else _again(task),
            )

    def _of_failed_deliveries(self) -> Iterator[Finding]:
        """Through the index deliveries_failed."""
        try:
            found = self._tx.deliveries.failed(limit=MOST_ENDED)
        except RowDamaged:  # `holdfast store verify` names it
            self._is_complete = False
            return
        self._is_complete &= len(found) < MOST_ENDED
        for delivery in found:
            why = "" if delivery.failure is None else f": {delivery.failure.message}"
            yield Finding(
                code=FindingCode.DELIVERY_FAILED,
                severity=_WARNING,
                record_ids=(delivery.id, delivery.task_id) if delivery.task_id else (delivery.id,),
                message=f"{delivery.id} was not delivered after {delivery.attempts} attempts{why}",
                evidence={"attempts": delivery.attempts, "channel": delivery.channel},
                repair=f"holdfast deliveries retry {delivery.id}",
            )

    def _of_unstamped_tasks(self) -> Iterator[Finding]:
        """Through the index tasks_unstamped."""
        found = self._tx.tasks.unstamped(now=self._now, limit=MOST_ENDED)
        self._is_complete &= len(found) < MOST_ENDED
        for task in found:
            yield Finding(
                code=FindingCode.MISSING_CLEANUP,
                severity=_WARNING,
                record_ids=(task.id,),
                message=f"{task.id} ({task.name}) is {task.status.value} without a time to clean it up, so "
                "retention never deletes it",
                evidence={"ended_at": None if task.ended_at is None else task.ended_at.isoformat()},
                repair=_SWEEPS,
            )

    def _of_ended_tasks(self) -> Iterator[Finding]:
        """The tasks that ended last, through the index tasks_by_end."""
        for task, _ in self._tx.tasks.page_by_end(before=_FROM_LAST, limit=PAGE):
            yield from _of_timestamps(task)

    def _of_dropped_records(self) -> Iterator[Finding]:
        """Through the index recorded_tasks_dropped."""
        found = self._tx.recorded.with_drops(limit=MOST_ENDED)
        self._is_complete &= len(found) < MOST_ENDED
        for one in found:
            if self._now - one.last_event_at < DROPS_SHOWN:
                yield Finding(
                    code=FindingCode.RECORDS_DROPPED,
                    severity=_WARNING,
                    record_ids=(one.task_id,),
                    message=f"the ledger did not get {one.dropped_reports} reports about {one.task_id}, so "
                    "its record may be incomplete",
                    evidence={"total": one.dropped_reports, "last_event_at": one.last_event_at.isoformat()},
                    repair=f"holdfast tasks show {one.task_id}",
                )

    def _of_unrecorded_work(self) -> Iterator[Finding]:
        """One fact of the ledger, kept by the producers that could not record their work."""
        fact = self._tx.boots.fact(UNRECORDED_FACT)
        if fact is None:
            return
        last = msgspec.json.decode(fact, type=UnrecordedWork)
        if self._now - last.at < DROPS_SHOWN:
            yield Finding(
                code=FindingCode.RECORDS_DROPPED,
                severity=_WARNING,
                message=f"best-effort work was executed {last.total} times without a record, last "
                f"{last.name} (run {last.run_id}) before {_shown(last.at)}: the ledger could not be reached",
                evidence={"total": last.total, "name": last.name, "told_at": last.at.isoformat()},
                repair="holdfast doctor",
            )

    def _of_late_reports(self) -> Iterator[Finding]:
        """Through the index recorded_tasks_late."""
        found = self._tx.recorded.with_late_reports(limit=MOST_ENDED)
        self._is_complete &= len(found) < MOST_ENDED
        tasks = self._tx.tasks.get_many([one.task_id for one in found])
        for one in found:
            task, late = tasks.get(one.task_id), one.late_report
            if task is None or late is None:
                continue
            yield Finding(
                code=FindingCode.LATE_REPORT,
                severity=_WARNING,
                record_ids=(task.id, late.run_id),
                message=f"{task.id} ({task.name}) had ended as {task.status.value} when its producer "
                f"reported at {_shown(late.at)} that it is {late.status.value}; the first end stays",
                evidence={
                    "status": task.status.value,
                    "reported": late.status.value,
                    "reported_at": late.at.isoformat(),
                },
                repair=f"holdfast tasks show {task.id}",
            )

    # --- flows

    def _of_flows(self) -> Iterator[Finding]:
        flows = FlowAudit(self._tx, now=self._now)
        yield from flows.findings()
        self._is_complete &= flows.is_complete

    # --- clocks

    def _of_clocks(self) -> Iterator[Finding]:
        if self._clock is None:
            return
        if isinstance(self._clock, LedgerClock):
            skew = self._clock.skew
            if abs(skew) > MOST_SKEW:
                yield _skewed(skew_in_words(skew), skew)
            return
        ahead = jumped_by(self._tx.boots.fact(FACT), self._clock)
        if ahead is not None:
            yield _skewed(jump_in_words(ahead), ahead)


def _of_timestamps(task: Task) -> Iterator[Finding]:
    wrong = [
        f"it {late} at {_shown(after)}, before it {early} at {_shown(before)}"
        for early, before, late, after in (
            ("was created", task.created_at, "started", task.started_at),
            ("was created", task.created_at, "ended", task.ended_at),
            ("was created", task.created_at, "last changed", task.updated_at),
            ("started", task.started_at, "ended", task.ended_at),
        )
        if before is not None and after is not None and after < before
    ]
    if wrong:
        yield Finding(
            code=FindingCode.INCONSISTENT_TIMESTAMPS,
            severity=_WARNING,
            record_ids=(task.id,),
            message=f"{task.id} ({task.name}) has times that cannot be: {'; '.join(wrong)}",
            evidence={
                name: None if moment is None else moment.isoformat()
                for name, moment in (
                    ("created_at", task.created_at),
                    ("started_at", task.started_at),
                    ("updated_at", task.updated_at),
                    ("ended_at", task.ended_at),
                )
            },
            repair="holdfast doctor",
        )


def _of_metadata(task: Task, run: RunRecord, details: RecordedDetails | None) -> Iterator[Finding]:
    """What recorded work lacks while it is in flight: these facts cannot be added later, so only the next
    record of its producer can be better."""
    lacks = list(_lacks(task, details))
    if lacks:
        yield Finding(
            code=FindingCode.WEAK_METADATA,
            severity=_WARNING,
            record_ids=(task.id, run.id),
            message=f"{task.id} ({task.name}) was recorded without {' and '.join(why for _, why in lacks)}",
            evidence={"runtime": task.runtime.value, "lacks": ", ".join(name for name, _ in lacks)},
            repair=f"holdfast tasks show {task.id}",
        )


def _lacks(task: Task, details: RecordedDetails | None) -> Iterator[tuple[str, str]]:
    if details is None:
        yield "producer.create", "a producer's facts, so no runtime can find it again"
    elif details.reference is None:
        if task.runtime is RuntimeName.CLI:
            yield "reference", "its process, so nothing can prove that it is alive"
        elif task.runtime in (RuntimeName.SUBAGENT, RuntimeName.ACP) and details.child_session_key is None:
            yield "childSessionKey", "its session, so it cannot be stopped or found again"
        elif task.runtime is RuntimeName.CRON and details.source_id is None:
            yield "sourceId", "its schedule, so its result cannot be recovered from the history"
    is_deaf = task.origin is None and task.session_key is None and task.parent_task_id is None
    if task.notify is not NotifyPolicy.SILENT and is_deaf:
        yield "origin", "a place for its updates, although it promises them"


def _never_woken(task: Task, run: RunRecord, why: str) -> Finding:
    return Finding(
        code=FindingCode.NO_WAKER,
        severity=_ERROR,
        record_ids=(task.id, run.id),
        message=f"{task.id} ({task.name}) is {task.status.value}, but nothing will wake it: {why}",
        evidence={"waits_on": run.waits_on, "run_status": run.status.value, "due_at": run.due_at.isoformat()},
        # A worker wakes what is due. What nothing can wake is cancelled, and may be retried then.
        repair=_starts(task) if run.due_at < NEVER else f"holdfast tasks cancel {task.id}",
    )


def _skewed(words: str, by: timedelta) -> Finding:
    return Finding(
        code=FindingCode.CLOCK_SKEW,
        severity=_WARNING,
        message=words,
        evidence={"seconds": round(by.total_seconds(), 3)},
        repair=SET_BY_NTP,
    )


def _starts(task: Task) -> str:
    """The command that starts a worker for a task."""
    if task.runtime is RuntimeName.AGENT:
        return "holdfast up"
    return f"holdfast run --resume {task.id} MODULE:{task.name}"


def _again(task: Task) -> str:
    """Only what Holdfast executes can be retried here; the producer of other work starts it again."""
    return f"holdfast tasks {'retry' if task.runtime.is_executed_here else 'show'} {task.id}"


def _shown(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
