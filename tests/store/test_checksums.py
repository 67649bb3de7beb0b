"""Page checksums of SQLite: made with the file, kept by every writer and every copy, added to older files."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from holdfast.core.errors import PageDamaged, StoreUnavailable
from holdfast.store import checksums
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite_file import connect
from holdfast.store.sqlite_reader import SqliteReader
from holdfast.testing import FakeClock
from tests.builders import stored_run
from tests.engine.bit_flips import PAGE, flip, leaves_of

KILLS = 30


def make(path: Path, *, runs: int = 20) -> list[str]:
    with closing(SqliteStore(path, clock=FakeClock())) as store:
        return [stored_run(store, task={"goal": "tides " * 100}).id for _ in range(runs)]


def make_without(path: Path, monkeypatch: pytest.MonkeyPatch, *, runs: int = 20) -> list[str]:
    """A ledger as it was made before there were checksums."""
    with monkeypatch.context() as patch:
        patch.setattr(checksums, "vfs", lambda: None)
        return make(path, runs=runs)


def has_them(path: Path) -> bool:
    """Whether the file has checksums, and all of its pages match theirs."""
    with closing(connect(path)) as connection:
        assert checksums.has(connection) == checksums.are_compared(connection)
        assert checksums.damaged_pages(connection) == []
        return checksums.has(connection)


def runs_in(path: Path) -> list[str]:
    with closing(SqliteStore(path, clock=FakeClock())) as store:
        assert store.verify() == []
        return [row[0] for row in store.read_now(lambda tx: tx.statements.all("scan_runs", FIRST))]


FIRST = {"after0": "", "limit": 1000}


def test_a_new_ledger_has_them_and_other_databases_of_the_process_are_left_alone(tmp_path: Path) -> None:
    make(tmp_path / "ledger.db")

    assert has_them(tmp_path / "ledger.db")
    assert apsw.vfs_names()[0] != checksums.VFS


def test_a_page_that_lost_a_bit_is_an_error_and_the_others_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    make(path)
    flip(path, leaves_of(path, "runs")[0] * PAGE - 100, 3)

    with closing(SqliteStore(path, clock=FakeClock())) as store:
        for _ in range(2):
            with pytest.raises(PageDamaged, match=r"checksum.*holdfast store verify.*backup"):
                store.read_now(lambda tx: tx.statements.all("scan_runs", FIRST))
            assert len(store.read_now(lambda tx: tx.tasks.page(limit=100))) == 20
        problems = store.verify()

    assert any(problem.startswith("SQLite: page ") for problem in problems)
    assert any(problem.startswith("runs: the database is damaged") for problem in problems)
    assert not any(problem.startswith("tasks: ") for problem in problems)


def test_a_write_that_meets_a_damaged_page_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    make(path)
    flip(path, leaves_of(path, "runs")[-1] * PAGE - 100, 3)

    with closing(SqliteStore(path, clock=FakeClock())) as store:
        before = store.read_now(lambda tx: tx.events.counts("task"))
        with pytest.raises(PageDamaged):
            stored_run(store)

        assert store.read_now(lambda tx: tx.events.counts("task")) == before


def test_a_backup_has_them_too(tmp_path: Path) -> None:
    runs = make(tmp_path / "ledger.db", runs=300)
    with closing(SqliteReader(tmp_path / "ledger.db")) as reader:
        reader.backup(str(tmp_path / "copy.db"))

    assert has_them(tmp_path / "copy.db")
    assert runs_in(tmp_path / "copy.db") == sorted(runs)


def test_a_damaged_ledger_gives_no_backup(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    make(path)
    flip(path, leaves_of(path, "runs")[0] * PAGE - 100, 3)

    with closing(SqliteReader(path)) as reader, pytest.raises(PageDamaged):
        reader.backup(str(tmp_path / "copy.db"))

    assert not (tmp_path / "copy.db").exists()


def test_an_older_ledger_goes_on_without_them_until_it_is_migrated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.db"
    runs = make_without(path, monkeypatch)

    assert runs_in(path) == sorted(runs)
    assert not has_them(path)
    SqliteStore(path, clock=FakeClock(), may_upgrade=True).close()

    assert has_them(path)
    assert runs_in(path) == sorted(runs)


def test_they_are_not_added_while_another_process_has_the_ledger_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would write pages without: it has not seen that the file has them."""
    path = tmp_path / "ledger.db"
    runs = make_without(path, monkeypatch)
    with (
        closing(SqliteStore(path, clock=FakeClock())),
        pytest.raises(StoreUnavailable, match=r"open.*stop that process.*holdfast store migrate"),
    ):
        SqliteStore(path, clock=FakeClock(), may_upgrade=True)

    assert not has_them(path)
    assert runs_in(path) == sorted(runs)


@pytest.mark.slow
def test_of_a_process_that_is_killed_while_it_adds_them_the_ledger_stays_whole(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = quick_path / "whole.db"
    runs = make_without(whole, monkeypatch, runs=200)
    chance, found = random.Random(14), set()

    for number in range(KILLS):
        path = quick_path / f"{number}.db"
        path.write_bytes(whole.read_bytes())
        pid = os.fork()
        if pid == 0:
            checksums.give(path)
            os._exit(0)
        time.sleep(chance.uniform(0, 0.02))  # to die at another moment each time; nothing waits for it
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

        found.add(has_them(path))
        assert runs_in(path) == sorted(runs)
        SqliteStore(path, clock=FakeClock(), may_upgrade=True).close()
        assert has_them(path)

    assert found


def test_a_killed_upgrade_whose_first_page_is_still_in_the_wal_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The VFS looks at the file alone: a writer that did not notice would write pages without checksums."""
    path, copy = tmp_path / "ledger.db", tmp_path / "copy.db"
    make_without(path, monkeypatch)
    upgrading = apsw.Connection(str(path), vfs=checksums.vfs())
    upgrading.wal_autocheckpoint(0)
    upgrading.reserve_bytes("main", checksums.RESERVED_BYTES)
    upgrading.execute("VACUUM")
    for suffix in ("", "-wal"):
        Path(f"{copy}{suffix}").write_bytes(Path(f"{path}{suffix}").read_bytes())
    upgrading.close()

    assert copy.read_bytes()[20] == 0
    make(copy)
    assert has_them(copy)


def test_a_header_that_denies_them_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    make(path)
    flip(path, 20, 3)

    with pytest.raises(StoreUnavailable, match="created with page checksums"):
        SqliteStore(path, clock=FakeClock())


def test_without_the_extension_a_ledger_with_checksums_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pages would be taken for damaged by everyone who has it."""
    make(tmp_path / "ledger.db")
    monkeypatch.setattr(checksums, "vfs", lambda: None)

    with pytest.raises(StoreUnavailable, match="install apsw from PyPI"):
        SqliteStore(tmp_path / "ledger.db", clock=FakeClock())
