"""Durable lists grow once at each place, values are replaced, and what a scope has had applied is counted."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from holdfast.core.errors import Conflict, RowDamaged
from holdfast.core.program_records import StoredValue
from holdfast.core.run import RunRecord
from holdfast.store import Store, Tx
from holdfast.store.blobs import INLINE_BYTES, pack
from holdfast.store.sealing import CLOSED
from holdfast.testing import RepeatingStore, contents_of
from tests.builders import later, running_run, write
from tests.engine.tables import execute
from tests.store.program_records import a_delta, a_value, flip, large

# --- lists


def test_what_was_appended_is_read_back_as_it_was_written(store: Store) -> None:
    run, _ = running_run(store)
    delta = a_delta(run, name="Briefe 🔎", items=b'["\\u0000",{"b":1,"a":2}]', chain=b"\xff" * 16)

    store.write_now(lambda tx: tx.lists.append(delta))

    assert store.read_now(lambda tx: tx.lists.deltas([run.task_id])) == {run.task_id: [delta]}


def test_deltas_come_list_by_list_in_the_order_in_which_they_grew(store: Store) -> None:
    one, two, none = (running_run(store)[0] for _ in range(3))
    grown = [a_delta(one, start) for start in (0, 2, 4, 10, 100)]
    notes = a_delta(one, name="notes")
    others = a_delta(two)

    def append(tx: Tx) -> None:
        for delta in (*reversed(grown), notes, others):
            tx.lists.append(delta)

    store.write_now(append)

    assert store.read_now(lambda tx: tx.lists.deltas([one.task_id, two.task_id, none.task_id])) == {
        one.task_id: [*grown, notes],
        two.task_id: [others],
    }


def test_appending_the_same_again_changes_nothing(store: Store) -> None:
    run, _ = running_run(store)

    RepeatingStore(store).write_now(lambda tx: tx.lists.append(a_delta(run)))
    RepeatingStore(store).write_now(lambda tx: tx.lists.append(a_delta(run, 2, items=large())))

    assert len(store.read_now(lambda tx: tx.lists.deltas([run.task_id]))[run.task_id]) == 2


@pytest.mark.parametrize(
    "changes",
    [{"items": b'["c"]'}, {"count": 1}, {"chain": b"\x01" * 16}, {"run_id": "run_x"}, {"items": large()}],
    ids=lambda changes: next(iter(changes)),
)
def test_another_delta_at_the_same_place_is_refused_and_changes_nothing(
    store: Store, changes: dict[str, Any]
) -> None:
    run, _ = running_run(store)
    store.write_now(lambda tx: tx.lists.append(a_delta(run)))
    before = store.read_now(contents_of)

    with pytest.raises(Conflict, match="'messages'"):
        store.write_now(lambda tx: tx.lists.append(a_delta(run, **changes)))

    assert store.read_now(contents_of) == before


def test_many_items_become_a_blob_and_come_back_whole(store: Store) -> None:
    run, _ = running_run(store)
    delta, packed_before = a_delta(run, items=large()), a_delta(run, 2, items=large("spring tide "))
    packed = pack(packed_before.items, CLOSED)

    def append(tx: Tx) -> None:
        tx.lists.append(delta)
        tx.lists.append(packed_before, packed)

    store.write_now(append)

    assert len(delta.items) > INLINE_BYTES
    assert store.read_now(lambda tx: tx.lists.deltas([run.task_id])) == {run.task_id: [delta, packed_before]}
    assert len(store.read_now(lambda tx: tx.statements.all("scan_blobs", {"after0": "", "limit": 9}))) == 2


def test_a_list_whose_blob_is_missing_is_damage_not_an_empty_list(store: Store) -> None:
    run, _ = running_run(store)
    store.write_now(lambda tx: tx.lists.append(a_delta(run, items=large())))
    execute(store, "DELETE FROM blob_uses")
    execute(store, "DELETE FROM blobs")

    with pytest.raises(RowDamaged, match="missing"):
        store.read_now(lambda tx: tx.lists.deltas([run.task_id]))


# --- values


def test_a_value_is_replaced_by_the_next(store: Store) -> None:
    one, two, none = (running_run(store)[0] for _ in range(3))
    first, second = a_value(one), a_value(one, value=large(), written_at=later(seconds=1))
    other, theirs = a_value(one, name="Ziel 🔎"), a_value(two, value=b"null")

    def set_all(tx: Tx) -> None:
        for value in (first, other, theirs, second):
            tx.lists.set_value(value)

    RepeatingStore(store).write_now(set_all)

    assert store.read_now(lambda tx: tx.lists.values([one.task_id, two.task_id, none.task_id])) == {
        one.task_id: {"budget": second, "Ziel 🔎": other},
        two.task_id: {"budget": theirs},
    }


def set_value(tx: Tx, value: StoredValue) -> None:
    tx.lists.set_value(value)


def test_a_large_value_that_changes_often_leaves_no_blobs_behind(store: Store) -> None:
    run, _ = running_run(store)

    for number in range(3):
        write(store, partial(set_value, value=a_value(run, value=large(f"{number} "))))

    assert store.read_now(lambda tx: tx.statements.all("scan_blobs", {"after0": "", "limit": 9})) == []


# --- operations


def test_the_operations_of_a_scope_are_kept_for_each_task(store: Store) -> None:
    one, two, none = (running_run(store)[0] for _ in range(3))

    def count(tx: Tx) -> None:
        tx.lists.set_ops(one.task_id, "", b"[1]")
        tx.lists.set_ops(one.task_id, "", b"[1,2]")
        tx.lists.set_ops(one.task_id, "main:12/inner:1", b"[2]")
        tx.lists.set_ops(two.task_id, "", b"[9]")

    RepeatingStore(store).write_now(count)

    assert store.read_now(lambda tx: tx.lists.ops([one.task_id, two.task_id, none.task_id])) == {
        one.task_id: {"": b"[1,2]", "main:12/inner:1": b"[2]"},
        two.task_id: {"": b"[9]"},
    }


# --- damage


def write_all(tx: Tx, run: RunRecord) -> None:
    tx.lists.append(a_delta(run))
    tx.lists.set_value(a_value(run))
    tx.lists.set_ops(run.task_id, "main:1", b"[4]")


READS: dict[str, Callable[[Tx, str], object]] = {
    "list_deltas": lambda tx, task_id: tx.lists.deltas([task_id]),
    "durable_values": lambda tx, task_id: tx.lists.values([task_id]),
    "scope_ops": lambda tx, task_id: tx.lists.ops([task_id]),
}


@pytest.mark.parametrize(
    ("table", "column"),
    [
        *[
            ("list_deltas", column)
            for column in ("list", "start", "count", "items", "chain", "run_id", "digest")
        ],
        *[("durable_values", column) for column in ("name", "value", "written_at", "digest")],
        *[("scope_ops", column) for column in ("scope", "ops", "digest")],
    ],
)
def test_what_is_damaged_is_not_handed_out(store: Store, table: str, column: str) -> None:
    run, _ = running_run(store)
    store.write_now(lambda tx: write_all(tx, run))
    assert store.verify() == []
    flip(store, table, column)

    with pytest.raises(RowDamaged, match=run.task_id):
        store.read_now(lambda tx: READS[table](tx, run.task_id))

    assert any(run.task_id in problem for problem in store.verify())
