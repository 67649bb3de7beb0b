"""Rows of imported records."""

from __future__ import annotations

from holdfast.core.clock import from_micros, to_micros
from holdfast.core.errors import RowDamaged
from holdfast.core.imported import ImportedKind, ImportedRecord, ImportSource
from holdfast.core.payload import digest_of
from holdfast.store.contract import Row
from holdfast.store.rows.reading import Params, micros_of, moment_of, reads
from holdfast.store.sealing import Sealing

_REST = "imported_records.rest"


@reads("imported record")
def imported_from_row(row: Row, sealing: Sealing) -> ImportedRecord:
    if digest_of(*row[:7]) != row[7]:
        raise RowDamaged("imported record", str(row[2]))
    return ImportedRecord(
        source=ImportSource(row[0]),
        noun=ImportedKind(row[1]),
        source_id=row[2],
        record_id=row[3],
        source_run_id=row[4],
        imported_at=from_micros(row[5]),
        first_batch_id=row[6],
        row_digest=bytes(row[8]),
        batch_id=row[9],
        rest=sealing.maybe_open(row[10], _REST, row[3]),
        expires_at=moment_of(row[11]),
    )


def row_from_imported(record: ImportedRecord, sealing: Sealing) -> Params:
    row: Params = {
        "source": record.source.value,
        "noun": record.noun.value,
        "source_id": record.source_id,
        "record_id": record.record_id,
        "source_run_id": record.source_run_id,
        "imported_at": to_micros(record.imported_at),
        "first_batch_id": record.first_batch_id,
    }
    return row | {
        "digest": digest_of(*row.values()),
        "row_digest": record.row_digest,
        "batch_id": record.batch_id,
        "rest": sealing.maybe(record.rest, _REST, record.record_id),
        "expires_at": micros_of(record.expires_at),
    }
