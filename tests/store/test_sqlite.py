"""What only SQLite has: pragmas that must hold, a private file, a disk that fills while a crowd writes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import subprocess
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast.core.errors import LedgerReplaced, StoreUnavailable
from holdfast.store import Tx, Write, sqlite
from holdfast.store.guard import FileGuard
from holdfast.store.journal import saving_step
from holdfast.store.sealing import CLOSED
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite_file import connect
from holdfast.testing import FakeClock, memory_store
from tests.builders import START, a_step, running_run, stored_run
from tests.store.test_writer import crowd

LARGE = "x" * 20_000


@pytest.fixture
def store(quick_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(quick_path / "home" / "ledger.db", clock=FakeClock())
    yield store
    store.close()


def writing(store: SqliteStore) -> apsw.Connection:
    connection: apsw.Connection = store._writer.exclusively(lambda session: session.connection)  # type: ignore[attr-defined]
    return connection


def remember(name: str, value: str = LARGE) -> Write[str]:
    def write(tx: Tx) -> str:
        tx.boots.set_fact(name, value)
        return name

    return write


def fact(store: SqliteStore, name: str) -> str | None:
    return store.read_now(lambda tx: tx.boots.fact(name))


# --- the file


def test_every_commit_reaches_the_disk_before_it_is_answered(store: SqliteStore) -> None:
    connection = writing(store)

    assert connection.pragma("journal_mode") == "wal"
    assert connection.pragma("synchronous") == 2
    assert connection.pragma("foreign_keys") == 1
    assert connection.pragma("fullfsync") == 1


def test_only_its_user_may_read_the_ledger(store: SqliteStore) -> None:
    store.write_now(remember("fact"))
    assert store.path is not None

    for path in store.path.parent.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert stat.S_IMODE(store.path.parent.stat().st_mode) == 0o700


def test_opening_a_ledger_leaves_the_umask_as_it_was(quick_path: Path) -> None:
    before = os.umask(0o022)
    try:
        SqliteStore(quick_path / "ledger.db", clock=FakeClock()).close()
        after = os.umask(0o022)
    finally:
        os.umask(before)

    assert after == 0o022


def test_a_reader_cannot_write(store: SqliteStore) -> None:
    assert store.path is not None
    reader = connect(store.path, is_reader=True)
    try:
        with pytest.raises(apsw.ReadOnlyError):
            reader.execute("DELETE FROM tasks")
    finally:
        reader.close()


def test_a_place_that_cannot_hold_a_ledger_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")

    with pytest.raises(StoreUnavailable, match="file"):
        SqliteStore(tmp_path / "file" / "ledger.db", clock=FakeClock())


def test_a_file_that_is_no_database_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(b"my precious notes\n" * 100)

    with pytest.raises(StoreUnavailable, match="not a Holdfast database"):
        SqliteStore(path, clock=FakeClock())

    assert path.read_bytes() == b"my precious notes\n" * 100


def test_a_ledger_is_found_again_as_it_was_left(quick_path: Path) -> None:
    path = quick_path / "ledger.db"
    first = SqliteStore(path, clock=FakeClock())
    run, claim = running_run(first)
    first.write_now(saving_step(a_step(run), claim.fence, CLOSED))
    first.close()

    second = SqliteStore(path, clock=FakeClock())
    found = second.read_now(lambda tx: (tx.runs.get(run.id), len(tx.journal.steps(run.task_id))))
    held = second.held_why()
    second.close()

    assert found == (run, 1)
    assert held is None


def test_a_ledger_in_memory_is_set_up_like_one_in_a_file_and_has_an_id_of_its_own(
    store: SqliteStore,
) -> None:
    in_memory = [memory_store() for _ in range(2)]

    schema = "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name"
    expected = writing(store).execute(schema).fetchall()
    assert all(writing(one).execute(schema).fetchall() == expected for one in in_memory)
    assert len({fact(one, "ledger_id") for one in (store, *in_memory)}) == 3
    for one in in_memory:
        one.close()


def test_a_ledger_in_memory_belongs_to_its_process_alone() -> None:
    one, two = memory_store(), memory_store()
    one.write_now(remember("colour", "blue"))

    assert two.read_now(lambda tx: tx.boots.fact("colour")) is None
    one.close()
    two.close()


# --- the full disk


def fill(store: SqliteStore, *, pages_left: int) -> None:
    """From now on the file may grow by so many pages only."""
    connection = writing(store)
    limit = connection.pragma("page_count") + pages_left
    assert connection.pragma("max_page_count", limit) == limit


def make_room(store: SqliteStore) -> None:
    writing(store).pragma("max_page_count", 1_000_000)


def test_a_write_on_a_full_disk_is_refused_in_words_and_works_once_there_is_room(store: SqliteStore) -> None:
    fill(store, pages_left=1)

    with pytest.raises(StoreUnavailable, match="disk is full"):
        store.write_now(remember("fact"))
    with pytest.raises(StoreUnavailable, match="disk is full"):
        asyncio.run(store.write(remember("fact")))

    assert fact(store, "fact") is None
    make_room(store)
    assert store.write_now(remember("fact")) == "fact"
    assert fact(store, "fact") == LARGE


def test_a_disk_that_fills_in_the_middle_of_a_crowd_gives_no_caller_a_false_answer(
    store: SqliteStore,
) -> None:
    names = [f"fact {number}" for number in range(40)]
    fill(store, pages_left=60)  # room for about ten of them

    answers: list[Any] = asyncio.run(crowd(store, *(remember(name) for name in names)))

    kept = [name for name in names if fact(store, name) is not None]
    told = [answer for answer in answers if isinstance(answer, str)]
    assert told == kept
    assert 0 < len(kept) < len(names)
    refused = [answer for answer in answers if not isinstance(answer, str)]
    assert {type(error) for error in refused} == {StoreUnavailable}
    make_room(store)
    rest = [name for name in names if name not in kept]
    assert asyncio.run(crowd(store, *(remember(name) for name in rest))) == rest
    assert [fact(store, name) for name in names] == [LARGE] * len(names)
    assert store.verify() == []


def test_steps_that_no_longer_fit_on_the_disk_are_not_taken_for_saved(store: SqliteStore) -> None:
    runs = [running_run(store) for _ in range(40)]
    result = b'"' + LARGE.encode() + b'"'
    fill(store, pages_left=60)

    answers = asyncio.run(
        crowd(store, *(saving_step(a_step(run, result=result), claim.fence, CLOSED) for run, claim in runs))
    )

    saved = store.read_now(lambda tx: [len(tx.journal.steps(run.task_id)) == 1 for run, _ in runs])
    assert [answer is None for answer in answers] == saved
    assert True in saved
    assert False in saved
    assert {type(answer) for answer in answers if answer is not None} == {StoreUnavailable}


def test_a_store_on_a_full_disk_can_be_closed(store: SqliteStore) -> None:
    fill(store, pages_left=0)

    store.close()


@pytest.mark.timeout(15)  # it used to wait for 20 seconds
def test_a_store_is_closed_at_once_while_another_process_is_frozen_in_the_middle_of_a_read(
    quick_path: Path,
) -> None:
    store = SqliteStore(quick_path / "ledger.db", clock=FakeClock())
    with contextlib.closing(apsw.Connection(str(quick_path / "ledger.db"))) as frozen:
        frozen.execute("BEGIN")
        frozen.execute("SELECT count(*) FROM tasks").fetchall()
        store.write_now(lambda tx: tx.boots.set_fact("news", "since then"))

        store.close()

    with contextlib.closing(SqliteStore(quick_path / "ledger.db", clock=FakeClock())) as again:
        assert again.read_now(lambda tx: tx.boots.fact("news")) == "since then"


def test_a_text_that_is_not_utf8_is_damaged_and_hides_no_other_task(tmp_path: Path) -> None:
    """Every eighth flipped bit in a plain text leaves it invalid."""
    store = SqliteStore(tmp_path / "ledger.db", clock=FakeClock())
    bad, good = stored_run(store), stored_run(store)
    sneak(store, "UPDATE tasks SET goal = CAST(x'66ff66' AS TEXT) WHERE id = ?", bad.task_id)
    sneak(store, "UPDATE runs SET task_name = CAST(x'66ff66' AS TEXT) WHERE id = ?", bad.id)

    page = store.read_now(lambda tx: tx.tasks.page())
    claimed = store.write_now(
        lambda tx: tx.runs.claim_ready(
            boot_id="boot_x", token="t", names=None, limit=9, now=START, lease=timedelta(seconds=30)
        )
    )

    assert {task.id: task.is_damaged for task in page} == {bad.task_id: True, good.task_id: False}
    assert {run.id: run.is_damaged for run in claimed} == {bad.id: True, good.id: False}
    store.close()


def test_a_ledger_that_was_deleted_is_neither_read_nor_backed_up_as_an_empty_one(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "ledger.db", clock=FakeClock())
    stored_run(store)
    subprocess.run(["rm", str(tmp_path / "ledger.db")], check=True)

    with pytest.raises(LedgerReplaced):
        store.backup(str(tmp_path / "copy.db"))
    with pytest.raises(LedgerReplaced):
        store.read_now(lambda tx: tx.tasks.page())

    assert not (tmp_path / "ledger.db").exists()
    store.close()


def test_a_ledger_that_is_replaced_unheard_is_found_by_the_commit_that_sets_the_mark(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a file system that is mounted over its own: the system does not tell it, and no commit looks."""
    monkeypatch.setattr(sqlite, "MARK_EVERY_S", 0.01)
    looks = threading.Semaphore(0)
    look = FileGuard.look

    def look_and_say(guard: FileGuard) -> None:
        try:
            look(guard)
        finally:
            looks.release()

    monkeypatch.setattr(FileGuard, "look", look_and_say)
    store = SqliteStore(tmp_path / "ledger.db", clock=clock)
    monkeypatch.setattr(store._guard, "check", lambda: None)
    subprocess.run(["rm", tmp_path / "ledger.db-wal"], check=True)
    while looks.acquire(blocking=False):
        pass
    assert looks.acquire(timeout=20)
    assert looks.acquire(timeout=20)  # begun after the file was gone

    assert store._guard is not None
    assert "ledger.db-wal was deleted" in (store._guard._broken or "")
    store.close()


def sneak(store: SqliteStore, sql: str, record_id: str) -> None:
    """What a disk may do to a row behind our back."""
    store._writer.exclusively(lambda session: session.connection.execute(sql, (record_id,)))  # type: ignore[attr-defined]
