"""ImportReport: what became of every row that an import has read."""

from __future__ import annotations

from collections import Counter

import msgspec

from holdfast.core.imported import ImportChange, ImportedKind, ImportOutcome

# How many rows a report names; it counts them all.
MAX_NAMED = 1000


class RowNamed(msgspec.Struct, frozen=True, kw_only=True):
    """One row that is named in a report."""

    noun: ImportedKind
    id: str
    why: str
    record_id: str | None = None


class NounReport(msgspec.Struct, kw_only=True):
    """What became of the rows of one table."""

    rows: int = 0
    changes: Counter[ImportChange] = msgspec.field(default_factory=Counter)
    # Rows that cannot be imported.
    left_out: int = 0
    # Work in flight that was not to be imported.
    skipped: int = 0
    # Work in flight that was imported.
    active: int = 0


class ImportReport(msgspec.Struct, kw_only=True):
    """The whole import. It may be read while the import runs."""

    databases: list[str] = []
    tasks: NounReport = msgspec.field(default_factory=NounReport)
    flows: NounReport = msgspec.field(default_factory=NounReport)
    # Updates that OpenClaw still owed, and that are dismissed here.
    owed: int = 0
    # Rows of task_delivery_state without a task.
    orphans: int = 0
    left_out: list[RowNamed] = []
    ignored: list[RowNamed] = []
    # What was changed to make a value fit, with how many rows and one of them.
    remarks: Counter[str] = msgspec.field(default_factory=Counter)
    examples: dict[str, str] = {}
    unknown_columns: set[str] = set()

    @property
    def is_complete(self) -> bool:
        return not (self.tasks.left_out or self.flows.left_out or self.orphans)

    def leave_out(self, noun: ImportedKind, row_id: str, why: str) -> None:
        report = self.tasks if noun is ImportedKind.TASK else self.flows
        report.left_out += 1
        if len(self.left_out) < MAX_NAMED:
            self.left_out.append(RowNamed(noun=noun, id=row_id, why=why))

    def remark(self, row_id: str, remark: str) -> None:
        # A remark names a value, so that there may be as many as rows.
        known = remark if remark in self.remarks or len(self.remarks) < MAX_NAMED else "other remarks"
        self.remarks[known] += 1
        self.examples.setdefault(known, row_id)

    def count(self, noun: ImportedKind, taken: ImportOutcome) -> None:
        report = self.tasks if noun is ImportedKind.TASK else self.flows
        report.changes[taken.change] += 1
        if taken.change is ImportChange.IGNORED and len(self.ignored) < MAX_NAMED:
            named = RowNamed(noun=noun, id=taken.source_id, why=taken.why or "", record_id=taken.record_id)
            self.ignored.append(named)
