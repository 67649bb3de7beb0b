"""A guard that looks often at the ledger's files is told instead, and misses nothing."""

from __future__ import annotations

import errno
import os
import select
import shutil
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import apsw
import pytest

from holdfast.core.errors import LedgerReplaced
from holdfast.store import file_watch, guard
from holdfast.store.guard import FileGuard
from tests.store.guarded_files import (
    SUFFIXES,
    check_often,
    commit,
    delete_elsewhere,
    make_settled,
    move_elsewhere,
    open_ledger,
    tell,
)


def test_a_guard_that_has_looked_often_is_told_instead_and_looks_no_more(
    connection: apsw.Connection, told: FileGuard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stat(*_: object, **__: object) -> None:
        raise AssertionError("it looked")

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", stat)
        for number in range(100):
            commit(connection, number)
            told.check()
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    told.check()


def test_to_ask_is_no_event_to_the_hook_that_every_event_calls(
    told: FileGuard, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []
    monkeypatch.setattr(guard._Sentry, "__call__", lambda _sentry, event, _args: heard.append(event))
    told.check()

    assert heard == []
    os.listdir(".")  # noqa: PTH208 - an event, so that the silence before means something
    assert heard == ["os.listdir"]


def test_a_caller_that_asks_while_it_is_closed_looks_itself(path: Path, told: FileGuard) -> None:
    assert told._told is not None
    told._told.close()
    told._notices = None
    delete_elsewhere(path.with_name("ledger.db-wal"))

    with pytest.raises(LedgerReplaced, match=r"ledger.db-wal was deleted"):
        told.check()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_that_was_moved_and_put_back_fails_the_check_only_while_it_is_away(
    path: Path, told: FileGuard, suffix: str
) -> None:
    file, aside = path.with_name(path.name + suffix), path.with_name("aside")
    move_elsewhere(file, aside)
    move_elsewhere(aside, file)
    told.check()
    move_elsewhere(file, aside)

    with pytest.raises(LedgerReplaced, match=rf"{file} was deleted"):
        told.check()


@pytest.mark.parametrize("moved", ["home", "above"])
def test_a_folder_around_the_ledger_that_is_moved_away_fails_the_check_of_a_guard_that_is_told(
    tmp_path: Path, moved: str
) -> None:
    above = tmp_path / "above"
    home = above / "home"
    home.mkdir(parents=True)
    connection = open_ledger(home / "ledger.db")
    watch = FileGuard.watch(home / "ledger.db")
    tell(watch, home / "ledger.db")
    {"home": home, "above": above}[moved].rename(tmp_path / "moved")

    with pytest.raises(LedgerReplaced, match=r"ledger.db was deleted"):
        watch.check()

    connection.close()
    watch.release()


def test_what_happens_around_the_files_and_to_their_modes_is_no_harm(path: Path, told: FileGuard) -> None:
    for number in range(10):
        other = path.with_name(f"other {number}")
        other.touch()
        other.rename(path.with_name("another"))
        path.chmod(0o640 if number % 2 else 0o600)
        told.check()
    path.with_name("another").unlink()
    told.check()
    assert told.is_told

    delete_elsewhere(path.with_name("ledger.db-wal"))
    with pytest.raises(LedgerReplaced, match=r"ledger.db-wal was deleted"):
        told.check()


def test_a_caller_that_asks_while_another_has_taken_the_news_looks_as_well(
    path: Path, told: FileGuard, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert told._told is not None
    asked: file_watch.FileWatch = told._told

    ask = asked.ask

    def ask_late() -> object:
        # Another thread is in the midst of `look`, and has found nothing out yet.
        told._told = None
        asked.take()
        return ask()

    monkeypatch.setattr(asked, "ask", ask_late)
    delete_elsewhere(path.with_name("ledger.db-wal"))

    with pytest.raises(LedgerReplaced, match=r"ledger.db-wal was deleted"):
        told.check()


def test_many_may_ask_at_once(path: Path, told: FileGuard) -> None:
    errors: list[Exception] = []

    def ask() -> None:
        try:
            for _ in range(5_000):
                told.check()
        except Exception as error:  # noqa: BLE001 - whatever it is
            errors.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(200):
        path.chmod(0o640 if number % 2 else 0o600)
    for thread in threads:
        thread.join()

    assert errors == []


def test_what_is_not_told_is_found_by_the_next_look(
    path: Path, told: FileGuard, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete_elsewhere(path.with_name("ledger.db-wal"))
    assert told._told is not None
    monkeypatch.setattr(told._told, "ask", list)
    told.check()

    for look in (told.look, told.check):
        with pytest.raises(LedgerReplaced, match=r"ledger.db-wal was deleted"):
            look()


def test_while_one_looks_at_the_news_no_other_takes_it_for_quiet(
    path: Path, told: FileGuard, monkeypatch: pytest.MonkeyPatch
) -> None:
    look, found = FileGuard._check_each, []

    def look_slowly(watch: FileGuard) -> None:
        # What is told has been taken by now, and nothing is known yet.
        found.append(watch.is_told)
        look(watch)

    monkeypatch.setattr(FileGuard, "_check_each", look_slowly)
    path.chmod(0o640)
    told.check()

    assert found == [False]
    assert told.is_told


def test_where_no_news_come_the_check_goes_on_looking(
    path: Path, watch: FileGuard, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = []

    def refuse(files: object) -> None:
        attempts.append(files)
        raise OSError(errno.EMFILE, "too many")

    monkeypatch.setattr(file_watch, "FileWatch", refuse)
    make_settled(path.parent)
    check_often(watch)

    assert len(attempts) == 1
    assert not watch.is_told
    delete_elsewhere(path.with_name("ledger.db-shm"))
    with pytest.raises(LedgerReplaced, match=r"ledger.db-shm was deleted"):
        watch.check()


def test_on_a_disk_that_another_kernel_may_change_the_check_goes_on_looking(
    path: Path, watch: FileGuard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_watch, "_OF_ONE_KERNEL", frozenset())
    make_settled(path.parent)
    check_often(watch)

    assert not watch.is_told


@pytest.mark.parametrize("missing", ["ctypes", "epoll"])
def test_with_a_python_that_lacks_something_the_check_goes_on_looking(
    path: Path, watch: FileGuard, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    if missing == "ctypes":
        monkeypatch.setitem(sys.modules, "ctypes", None)
    else:
        monkeypatch.delattr(select, "epoll")
    make_settled(path.parent)
    check_often(watch)

    assert not watch.is_told


def test_after_the_release_nothing_more_is_arranged(path: Path, connection: apsw.Connection) -> None:
    watch = FileGuard.watch(path)
    connection.close()
    watch.release()
    make_settled(path.parent)
    check_often(watch)

    assert not watch.is_told


def test_a_file_that_went_while_the_telling_was_arranged_is_noticed(
    path: Path, watch: FileGuard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of its name that is there when the telling begins is not the one that was there before."""

    class Late(file_watch.FileWatch):
        def __init__(self, files: Sequence[str]) -> None:
            shutil.copyfile("/dev/null", path.with_name("other"))
            move_elsewhere(path.with_name("other"), path)
            super().__init__(files)

    monkeypatch.setattr(file_watch, "FileWatch", Late)
    make_settled(path.parent)

    with pytest.raises(LedgerReplaced, match=r"ledger.db was replaced"):
        check_often(watch)


def test_who_is_told_lets_go_of_everything_at_the_release(path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    connection = open_ledger(path)
    watch = FileGuard.watch(path)
    tell(watch, path)
    connection.close()
    watch.release()
    watch.release()

    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    watch.check()
