"""A backup where other users write, too: no link is followed, and no death leaves half of it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import threading
from pathlib import Path

import pytest

from holdfast import app, trust
from holdfast.config import SqlitePlace
from holdfast.core.errors import StoreUnavailable
from holdfast.gateway import manifests
from holdfast.store import atomic_files, checksums, sqlite_file
from holdfast.store.locks import BootLock
from holdfast.store.sqlite import SqliteStore
from holdfast.testing import FakeClock
from tests.builders import stored_run
from tests.crash.processes import Pipe, fork, kill
from tests.doors.calls import run_process

pytestmark = pytest.mark.slow

UNFINISHED = ".copy.db.0123456789abcdef.unfinished"


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    path = tmp_path / "home" / "ledger.db"
    store = SqliteStore(path, clock=FakeClock())
    for _ in range(3):
        stored_run(store)
    store.close()
    return path


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """As /tmp is."""
    path = tmp_path / "shared"
    path.mkdir()
    path.chmod(0o1777)
    return path


def backup(ledger: Path, target: Path) -> None:
    with contextlib.closing(app.open_reader(SqlitePlace(path=ledger))) as reader:
        reader.backup(str(target))


def is_whole(copy: Path) -> bool:
    with contextlib.closing(app.open_reader(SqlitePlace(path=copy))) as reader:
        return reader.verify() == []


def names_in(directory: Path) -> list[str]:
    """Without what a reader of the copy makes."""
    names = sorted(one.name for one in directory.iterdir())
    return [name for name in names if not name.startswith("copy.db-")]


# --- links


@pytest.mark.parametrize("is_dangling", [True, False])
def test_a_link_in_the_place_of_the_backup_is_not_written_through(
    ledger: Path, shared: Path, tmp_path: Path, *, is_dangling: bool
) -> None:
    victim = tmp_path / "victim"
    if not is_dangling:
        victim.write_text("precious")
    (shared / "copy.db").symlink_to(victim)

    done = run_process(ledger.parent, "store", "backup", str(shared / "copy.db"))

    assert done.status == 2
    assert "never overwrites" in done.err
    assert victim.exists() != is_dangling
    assert is_dangling or victim.read_text() == "precious"


@pytest.mark.parametrize("name", ["copy.db.unfinished", "copy.db.unfinished-journal", UNFINISHED])
def test_a_link_that_another_user_has_laid_in_advance_is_not_written_through(
    ledger: Path, shared: Path, tmp_path: Path, name: str
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (shared / name).symlink_to(victim)

    backup(ledger, shared / "copy.db")

    assert is_whole(shared / "copy.db")
    assert victim.read_text() == "precious"
    assert (shared / name).is_symlink()


def test_a_file_that_is_exchanged_while_it_is_written_gets_no_name(
    ledger: Path, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the directory is not sticky another user can do so."""
    copy_pages = sqlite_file._copy_pages

    def exchange(*args: object) -> None:
        copy_pages(*args)  # type: ignore[arg-type]
        [path] = shared.iterdir()
        path.rename(tmp_path / "taken")
        path.write_text("theirs")

    monkeypatch.setattr(sqlite_file, "_copy_pages", exchange)

    with pytest.raises(StoreUnavailable, match="another program replaced"):
        backup(ledger, shared / "copy.db")

    assert not (shared / "copy.db").exists()


def test_a_target_that_appears_meanwhile_stays_as_it_is(
    ledger: Path, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_pages = sqlite_file._copy_pages

    def appear(*args: object) -> None:
        copy_pages(*args)  # type: ignore[arg-type]
        (shared / "copy.db").write_text("theirs")

    monkeypatch.setattr(sqlite_file, "_copy_pages", appear)

    with pytest.raises(StoreUnavailable, match="never overwrites"):
        backup(ledger, shared / "copy.db")

    assert (shared / "copy.db").read_text() == "theirs"
    assert names_in(shared) == ["copy.db"]


def test_a_backup_is_for_its_owner_alone_from_its_first_moment(
    ledger: Path, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[int] = []
    monkeypatch.setattr(sqlite_file, "BACKUP_PAGES", 1)
    with contextlib.closing(app.open_reader(SqlitePlace(path=ledger))) as reader:
        before = os.umask(0)
        try:
            reader.backup(
                str(shared / "copy.db"),
                on_pages=lambda _done, _all: modes.extend(
                    stat.S_IMODE(one.stat().st_mode) for one in shared.iterdir()
                ),
            )
        finally:
            os.umask(before)

    assert set(modes) == {0o600}
    assert stat.S_IMODE((shared / "copy.db").stat().st_mode) == 0o600


# --- deaths


# Before anything is in it; half-way; whole, and without its name; with it, and its other name still there.
@pytest.mark.parametrize(
    ("point", "has_name"),
    [("begin", False), ("BACKUP_PAGES", False), ("_give_name", False), ("sync_directory", True)],
)
def test_a_death_leaves_no_half_of_a_backup_and_the_next_one_tidies_up(
    ledger: Path, shared: Path, point: str, *, has_name: bool
) -> None:
    pipe = Pipe()

    def begin() -> None:
        def stop(*_: object, **__: object) -> None:
            pipe.say("here")
            threading.Event().wait()

        if point == "BACKUP_PAGES":
            sqlite_file.BACKUP_PAGES = 1
        else:
            module = {"begin": checksums, "_give_name": atomic_files}.get(point, trust)
            setattr(module, point, stop)
        with contextlib.closing(app.open_reader(SqlitePlace(path=ledger))) as reader:
            reader.backup(
                str(shared / "copy.db"), on_pages=stop if point == "BACKUP_PAGES" else lambda *_: None
            )

    pid = fork(begin)
    assert pipe.hear() == "here"
    kill(pid)
    pipe.close()

    assert (shared / "copy.db").exists() == has_name
    if has_name:
        assert is_whole(shared / "copy.db")
        (shared / "copy.db").unlink()
    backup(ledger, shared / "copy.db")
    assert is_whole(shared / "copy.db")
    assert names_in(shared) == ["copy.db"]


def test_two_backups_to_one_place_do_not_disturb_each_other(ledger: Path, shared: Path) -> None:
    """The file of a living one is not taken for a leftover; one of them gets the name."""
    others = shared / UNFINISHED
    others.touch(0o600)
    (shared / f"{UNFINISHED}-journal").touch(0o600)
    with others.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)

        backup(ledger, shared / "copy.db")

    assert names_in(shared) == [UNFINISHED, f"{UNFINISHED}-journal", "copy.db"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_leftover_of_another_user_is_not_removed(ledger: Path, shared: Path) -> None:
    (shared / UNFINISHED).touch(0o644)
    os.chown(shared / UNFINISHED, 12345, -1)

    backup(ledger, shared / "copy.db")

    assert names_in(shared) == [UNFINISHED, "copy.db"]


def test_a_disk_without_hard_links_will_do(
    ledger: Path, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)

    backup(ledger, shared / "copy.db")

    assert is_whole(shared / "copy.db")
    assert names_in(shared) == ["copy.db"]


# --- other files


def test_the_manifest_is_not_written_through_a_link_that_was_laid_in_advance(
    shared: Path, tmp_path: Path
) -> None:
    """`gateway.restart.manifest_path` may name a place such as /tmp."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for name in (f".manifest.json.{os.getpid()}", "manifest.json"):
        (shared / name).symlink_to(victim)

    manifests._replace(shared / "manifest.json", b"{}")

    assert victim.read_text() == "precious"
    assert not (shared / "manifest.json").is_symlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_no_boot_is_registered_in_a_directory_of_another_user(tmp_path: Path) -> None:
    locks = tmp_path / "boots"
    locks.mkdir(mode=0o700)
    os.chown(locks, 12345, -1)

    with pytest.raises(StoreUnavailable, match=f"chown root {locks}"):
        BootLock.take(locks, "boot_01")
