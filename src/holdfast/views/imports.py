"""ImportView: what an import has done, or would do."""

from __future__ import annotations

import msgspec

from holdfast.core.import_report import ImportReport, NounReport, RowNamed
from holdfast.core.imported import ActivePolicy, ImportChange, ImportedKind, ImportOutcome, ImportSource
from holdfast.views.text import one_line

MAX_SENTENCE_CHARS = 500


class ImportedRowsView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of the rows of one table."""

    rows: int = 0
    created: int = 0
    advanced: int = 0
    unchanged: int = 0
    # Rows that contradict a record that has ended here.
    ignored: int = 0
    # Work in flight that was not to be imported.
    skipped: int = 0
    # Rows that cannot be imported.
    left_out: int = 0
    # Work in flight that was imported as such.
    active: int = 0

    @classmethod
    def of(cls, report: NounReport) -> ImportedRowsView:
        return cls(
            rows=report.rows,
            created=report.changes[ImportChange.CREATED],
            advanced=report.changes[ImportChange.ADVANCED],
            unchanged=report.changes[ImportChange.UNCHANGED],
            ignored=report.changes[ImportChange.IGNORED],
            skipped=report.skipped,
            left_out=report.left_out,
            active=report.active,
        )


class NamedRowView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One row by its id in the other gateway."""

    noun: ImportedKind
    id: str
    why: str
    record_id: str | None = None

    @classmethod
    def of(cls, named: RowNamed) -> NamedRowView:
        return cls(
            noun=named.noun,
            id=one_line(named.id),
            why=one_line(named.why, MAX_SENTENCE_CHARS),
            record_id=named.record_id,
        )


class RemarkView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A change that made values fit, in how many rows, and the id of one of them."""

    text: str
    rows: int
    example: str


class ImportView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The report of one import."""

    source: ImportSource
    is_dry_run: bool
    # Whether every row was imported, now or before.
    is_complete: bool
    active: ActivePolicy
    databases: list[str]
    tasks: ImportedRowsView
    flows: ImportedRowsView
    # Updates that the other gateway had not sent yet; they are not sent from here.
    dismissed_deliveries: int
    # Rows about updates of tasks that do not exist.
    orphan_deliveries: int
    left_out: list[NamedRowView]
    ignored: list[NamedRowView]
    remarks: list[RemarkView]
    # Columns that this release does not know; they are kept beside each task.
    unknown_columns: list[str]

    @classmethod
    def of(cls, report: ImportReport, *, active: ActivePolicy, is_dry_run: bool) -> ImportView:
        return cls(
            source=ImportSource.OPENCLAW,
            is_dry_run=is_dry_run,
            is_complete=report.is_complete,
            active=active,
            databases=[one_line(path, MAX_SENTENCE_CHARS) for path in report.databases],
            tasks=ImportedRowsView.of(report.tasks),
            flows=ImportedRowsView.of(report.flows),
            dismissed_deliveries=report.owed,
            orphan_deliveries=report.orphans,
            left_out=[NamedRowView.of(one) for one in report.left_out],
            ignored=[NamedRowView.of(one) for one in report.ignored],
            remarks=[
                RemarkView(
                    text=one_line(text, MAX_SENTENCE_CHARS),
                    rows=rows,
                    example=one_line(report.examples[text]),
                )
                for text, rows in report.remarks.most_common()
            ],
            unknown_columns=sorted(one_line(name) for name in report.unknown_columns),
        )


class ImportBegunView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The import is in the audit log; its batches may be sent."""

    # The database or the directory that is imported.
    name: str


class BatchTakenView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of each row of a batch, in its order."""

    taken: list[ImportOutcome]
