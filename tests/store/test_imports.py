"""Imported records: the first import of a record wins, a deleted one is remembered, and damage is noticed."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.errors import RowDamaged
from holdfast.core.imported import ImportedKind, ImportedRecord, ImportSource
from holdfast.store import Store
from tests.builders import START, later
from tests.engine.tables import execute

SOURCE, TASK = ImportSource.OPENCLAW, ImportedKind.TASK


def a_record(source_id: str = "t-1", **changes: Any) -> ImportedRecord:
    facts: dict[str, Any] = {
        "source": SOURCE,
        "noun": TASK,
        "source_id": source_id,
        "record_id": f"task_{source_id}",
        "source_run_id": "cron:1",
        "imported_at": START,
        "first_batch_id": "imp_1",
        "row_digest": b"12345678",
        "batch_id": "imp_1",
        "rest": b'{"mood":"calm"}',
    }
    return ImportedRecord(**facts | changes)


def found(store: Store, *ids: str) -> dict[str, ImportedRecord]:
    return store.read_now(lambda tx: tx.imports.get_many(SOURCE, TASK, ids))


def test_the_first_import_of_a_record_wins(store: Store) -> None:
    first, late = a_record(), a_record(batch_id="imp_2", first_batch_id="imp_2", record_id="task_other")
    store.write_now(lambda tx: tx.imports.add([first]))

    store.write_now(lambda tx: tx.imports.add([late, a_record("t-2")]))

    assert found(store, "t-1", "t-2", "t-3") == {"t-1": first, "t-2": a_record("t-2")}


def test_a_record_is_found_by_its_id_and_its_run_there_until_it_is_deleted(store: Store) -> None:
    store.write_now(lambda tx: tx.imports.add([a_record(), a_record("t-2")]))

    def find(source_id: str) -> list[str]:
        return store.read_now(lambda tx: tx.imports.find(TASK, source_id, limit=5))

    before = [find("t-1"), find("cron:1"), find("t-9")]
    store.write_now(lambda tx: tx.imports.bury(["task_t-1"], expires_at=later(days=90)))

    assert before == [["task_t-1"], ["task_t-1", "task_t-2"], []]
    assert [find("t-1"), find("cron:1")] == [[], ["task_t-2"]]
    assert found(store, "t-1")["t-1"].rest is None
    store.write_now(lambda tx: tx.imports.forget(now=later(days=89)))
    assert set(found(store, "t-1", "t-2")) == {"t-1", "t-2"}
    store.write_now(lambda tx: tx.imports.forget(now=later(days=90)))
    assert set(found(store, "t-1", "t-2")) == {"t-2"}


def test_a_record_that_was_changed_behind_the_ledgers_back_is_damaged(store: Store) -> None:
    store.write_now(lambda tx: tx.imports.add([a_record()]))
    execute(store, "UPDATE imported_records SET record_id = 'task_other'")

    with pytest.raises(RowDamaged):
        found(store, "t-1")

    assert any("imported record" in problem for problem in store.verify())
