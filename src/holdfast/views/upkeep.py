"""AuditView and MaintenanceView: what is wrong in the ledger, and what a sweep changes or would change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import msgspec

from holdfast.core.finding import Fact, Finding, FindingCode, Severity
from holdfast.core.task import RuntimeName
from holdfast.core.transitions import TaskStatus, is_terminal
from holdfast.upkeep.audit import AuditReport, TaskCounts
from holdfast.upkeep.flow_sweep import FlowChangeKind, PlannedFlowChange, SweptFlows
from holdfast.upkeep.plugins import PluginSwept
from holdfast.upkeep.sweep import ChangeKind, PlannedChange, SweepPlan, Swept
from holdfast.views.text import one_line

MAX_SENTENCE_CHARS = 1000
# How many changes are listed; the counts are complete.
MAX_CHANGES = 100
_FAILURES = (TaskStatus.FAILED, TaskStatus.TIMED_OUT, TaskStatus.LOST)


class FindingView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One thing that is wrong, its evidence, and the command that helps."""

    code: FindingCode
    # What it is about: a `task`, a `flow`, a `delivery`, or the whole `ledger`.
    noun: str
    severity: Severity
    record_ids: list[str]
    message: str
    evidence: dict[str, Fact]
    repair: str | None

    @classmethod
    def of(cls, finding: Finding) -> FindingView:
        return cls(
            code=finding.code,
            noun=finding.noun,
            severity=finding.severity,
            record_ids=[one_line(record_id) for record_id in finding.record_ids],
            message=one_line(finding.message, MAX_SENTENCE_CHARS),
            evidence={
                name: one_line(value) if isinstance(value, str) else value
                for name, value in finding.evidence.items()
            },
            repair=None if finding.repair is None else one_line(finding.repair, MAX_SENTENCE_CHARS),
        )


class AuditSummaryView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many findings there are, by severity and by code."""

    total: int
    warnings: int
    errors: int
    by_code: dict[str, int]
    # False if there is more than one audit looks at; the counts are lower limits then.
    is_complete: bool

    @classmethod
    def of(cls, report: AuditReport) -> AuditSummaryView:
        severities = Counter(one.severity for one in report.findings)
        codes = Counter(one.code for one in report.findings)
        return cls(
            total=len(report.findings),
            warnings=severities[Severity.WARNING],
            errors=severities[Severity.ERROR],
            by_code={code.value: codes[code] for code in FindingCode},
            is_complete=report.is_complete,
        )


class AuditFiltersView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Which findings were asked for; null for all."""

    code: FindingCode | None = None
    severity: Severity | None = None
    limit: int = 50


class AuditView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What an audit found: how many there are, how many match the filters, and the first of those."""

    count: int
    filtered_count: int
    displayed: int
    filters: AuditFiltersView
    summary: AuditSummaryView
    findings: list[FindingView]

    @classmethod
    def of(cls, report: AuditReport, filters: AuditFiltersView) -> AuditView:
        matching = [
            one
            for one in report.findings
            if filters.code in (None, one.code) and filters.severity in (None, one.severity)
        ]
        shown = matching[: filters.limit]
        return cls(
            count=len(report.findings),
            filtered_count=len(matching),
            displayed=len(shown),
            filters=filters,
            summary=AuditSummaryView.of(report),
            findings=[FindingView.of(one) for one in shown],
        )


class ChangeView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One change of a sweep, planned or made, and its reason."""

    kind: ChangeKind
    task_id: str
    reason: str

    @classmethod
    def of(cls, change: PlannedChange) -> ChangeView:
        reason = one_line(change.reason, MAX_SENTENCE_CHARS)
        return cls(kind=change.kind, task_id=one_line(change.task_id), reason=reason)


class FlowChangeView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One change of a flow by a sweep, planned or made, and its reason."""

    kind: FlowChangeKind
    flow_id: str
    reason: str

    @classmethod
    def of(cls, change: PlannedFlowChange) -> FlowChangeView:
        reason = one_line(change.reason, MAX_SENTENCE_CHARS)
        return cls(kind=change.kind, flow_id=one_line(change.flow_id), reason=reason)


class SweptTasksView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many tasks a sweep changed, or would change."""

    # Recorded work that is lost.
    reconciled: int = 0
    # Recorded work whose outcome its runtime or the history knew, or that its runtime has found again.
    recovered: int = 0
    cleanup_stamped: int = 0
    pruned: int = 0

    @classmethod
    def planned(cls, plan: SweepPlan) -> SweptTasksView:
        kinds = Counter(change.kind for change in plan.changes)
        return cls(
            reconciled=kinds[ChangeKind.RECONCILE],
            recovered=kinds[ChangeKind.SETTLE],
            cleanup_stamped=kinds[ChangeKind.STAMP],
            pruned=kinds[ChangeKind.PRUNE],
        )

    @classmethod
    def made(cls, swept: Swept) -> SweptTasksView:
        return cls(
            reconciled=swept.reconciled,
            recovered=swept.settled + swept.recovered,
            cleanup_stamped=swept.stamped,
            pruned=swept.pruned,
        )


class SweptFlowsView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many flows a sweep changed, or would change."""

    # Flows that lacked their tasks, and cancelled ones with tasks that were not asked to stop.
    reconciled: int = 0
    cleanup_stamped: int = 0
    pruned: int = 0

    @classmethod
    def planned(cls, plan: SweepPlan) -> SweptFlowsView:
        return cls.made(SweptFlows.of(Counter(change.kind for change in plan.flows)))

    @classmethod
    def made(cls, swept: SweptFlows) -> SweptFlowsView:
        return cls(reconciled=swept.reconciled, cleanup_stamped=swept.stamped, pruned=swept.pruned)


class PluginSweptView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the sweep of one plug-in changed, or would change; or why it failed."""

    name: str
    changes: list[str]
    problem: str | None

    @classmethod
    def of(cls, swept: PluginSwept) -> PluginSweptView:
        return cls(
            name=one_line(swept.name),
            changes=[one_line(change, MAX_SENTENCE_CHARS) for change in swept.changes[:MAX_CHANGES]],
            problem=None if swept.problem is None else one_line(swept.problem, MAX_SENTENCE_CHARS),
        )


class SweptView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a sweep changed, or would change."""

    tasks: SweptTasksView
    task_flows: SweptFlowsView
    plugins: list[PluginSweptView] = []


class TaskCountsView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many tasks there are, by status and by runtime."""

    total: int
    active: int
    terminal: int
    failures: int
    by_status: dict[str, int]
    by_runtime: dict[str, int]

    @classmethod
    def of(cls, counts: TaskCounts) -> TaskCountsView:
        by_status = {status: counts.by_status.get(status.value, 0) for status in TaskStatus}
        terminal = sum(count for status, count in by_status.items() if is_terminal(status))
        total = sum(by_status.values())
        return cls(
            total=total,
            active=total - terminal,
            terminal=terminal,
            failures=sum(by_status[status] for status in _FAILURES),
            by_status={status.value: count for status, count in by_status.items()},
            by_runtime={runtime.value: counts.by_runtime.get(runtime.value, 0) for runtime in RuntimeName},
        )


class MaintenanceView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A sweep, previewed or applied, with the audit before and after it."""

    mode: Literal["preview", "apply"]
    maintenance: SweptView
    # The first 100 changes; in an apply, a record that changed meanwhile was left alone.
    changes: list[ChangeView]
    # The same for flows.
    flow_changes: list[FlowChangeView]
    tasks: TaskCountsView
    audit_before: AuditSummaryView
    # Null in a preview.
    audit_after: AuditSummaryView | None = None

    @classmethod
    def preview(
        cls, plan: SweepPlan, plugins: Sequence[PluginSwept], counts: TaskCounts, before: AuditReport
    ) -> MaintenanceView:
        return cls(
            mode="preview",
            maintenance=SweptView(
                tasks=SweptTasksView.planned(plan),
                task_flows=SweptFlowsView.planned(plan),
                plugins=[PluginSweptView.of(one) for one in plugins],
            ),
            changes=_changes(plan),
            flow_changes=[FlowChangeView.of(change) for change in plan.flows[:MAX_CHANGES]],
            tasks=TaskCountsView.of(counts),
            audit_before=AuditSummaryView.of(before),
        )

    @classmethod
    def applied(
        cls, plan: SweepPlan, swept: Swept, counts: TaskCounts, before: AuditReport, after: AuditReport
    ) -> MaintenanceView:
        return cls(
            mode="apply",
            maintenance=SweptView(
                tasks=SweptTasksView.made(swept),
                task_flows=SweptFlowsView.made(swept.flows),
                plugins=[PluginSweptView.of(one) for one in swept.plugins],
            ),
            changes=_changes(plan),
            flow_changes=[FlowChangeView.of(change) for change in plan.flows[:MAX_CHANGES]],
            tasks=TaskCountsView.of(counts),
            audit_before=AuditSummaryView.of(before),
            audit_after=AuditSummaryView.of(after),
        )


def _changes(plan: SweepPlan) -> list[ChangeView]:
    return [ChangeView.of(change) for change in plan.changes[:MAX_CHANGES]]
