"""Every hand but SQLite's is kept off the ledger file."""

from __future__ import annotations

import ctypes
import fcntl
import io
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from holdfast.core.errors import LedgerFileOpened, LedgerReplaced, StoreUnavailable
from holdfast.store import guard
from holdfast.store.guard import FileGuard
from tests.store.guarded_files import (
    SUFFIXES,
    commit,
    delete_elsewhere,
    move_elsewhere,
    open_ledger,
    run_elsewhere,
)


def holds_file_lock(watch: FileGuard) -> bool:
    """Whether our own lock is held; without it (macOS, old kernels) nothing stops C code."""
    return watch._files.database_inode in guard._SENTRY._locked


def descriptors_of(path: Path) -> list[int]:
    found = path.stat()
    numbers = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            opened = entry.stat()
        except FileNotFoundError:
            continue  # that of the listing itself
        if (opened.st_dev, opened.st_ino) == (found.st_dev, found.st_ino):
            numbers.append(int(entry.name))
    return numbers


def others_find_it_locked(path: Path) -> bool:
    """Whether another process finds the bytes that say "I am here" locked, no matter who locked them."""
    script = f"""
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR)
try:
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, {guard._SHARED_SIZE}, {guard._SHARED_FIRST})
except BlockingIOError:
    print("locked")
"""
    return run_elsewhere(script, path) == "locked\n"


# What the hook refuses.


def open_and_close(path: Path | str | bytes) -> None:
    with open(path, "rb"):  # noqa: PTH123 - the builtin is what is tested
        pass


def os_open_and_close(path: Path | str | bytes) -> None:
    os.close(os.open(path, os.O_RDONLY))


def by_relative_path(path: Path) -> None:
    open_and_close(os.path.relpath(path))


def by_path_with_detours(path: Path) -> None:
    open_and_close(f"{path.parent}/./../{path.parent.name}//{path.name}")


def by_symbolic_link(path: Path) -> None:
    link = path.with_name("link")
    link.symlink_to(path)
    open_and_close(link)


def by_link_to_the_directory(path: Path) -> None:
    link = path.with_name("folder")
    link.symlink_to(path.parent)
    open_and_close(link / path.name)


def by_hard_link(path: Path) -> None:
    link = path.with_name("hard")
    link.hardlink_to(path)
    open_and_close(link)


def by_sqlites_own_descriptor(path: Path) -> None:
    open_and_close(f"/proc/self/fd/{descriptors_of(path)[0]}")


def by_open_code(path: Path) -> None:
    io.open_code(str(path)).close()


def by_file_io(path: Path) -> None:
    io.FileIO(path).close()


def by_copying(path: Path) -> None:
    shutil.copyfile(path, path.with_name("copy"))


def by_writing(path: Path) -> None:
    path.write_bytes(b"")


def by_opener(path: Path) -> None:
    with open(path.name, "rb", opener=lambda _, flags: os.open(path, flags)):
        pass


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    "way",
    [
        open_and_close,
        os_open_and_close,
        lambda path: open_and_close(str(path)),
        lambda path: open_and_close(bytes(path)),
        lambda path: os_open_and_close(bytes(path)),
        by_relative_path,
        by_path_with_detours,
        by_symbolic_link,
        by_link_to_the_directory,
        by_hard_link,
        by_sqlites_own_descriptor,
        by_open_code,
        by_file_io,
        by_copying,
        by_writing,
        by_opener,
    ],
)
def test_no_code_in_the_process_can_open_a_file_of_the_ledger(
    path: Path, watch: FileGuard, suffix: str, way: Callable[[Path], None]
) -> None:
    file = path.with_name(path.name + suffix)

    with pytest.raises(LedgerFileOpened):
        way(file)

    watch.check()
    assert others_find_it_locked(path)


def test_the_refusal_names_the_file_and_the_remedy(path: Path, watch: FileGuard) -> None:
    with pytest.raises(LedgerFileOpened) as caught:
        path.read_bytes()

    assert str(path) in str(caught.value)
    assert "`holdfast store backup`" in str(caught.value)


@pytest.mark.parametrize(
    "name", ["file:{path}", "file:{escaped}", "file://{path}?mode=ro", "file://localhost{path}"]
)
def test_another_copy_of_sqlite_cannot_connect_to_the_ledger_by_a_uri(
    path: Path, watch: FileGuard, name: str
) -> None:
    escaped = str(path).replace("e", "%65")

    with pytest.raises(LedgerFileOpened):
        sqlite3.connect(name.format(path=path, escaped=escaped), uri=True)


@pytest.mark.parametrize("kind", [str, bytes, Path])
def test_another_copy_of_sqlite_cannot_connect_to_the_ledger_by_a_path(
    path: Path, watch: FileGuard, kind: Callable[[Path], str | bytes | Path]
) -> None:
    with pytest.raises(LedgerFileOpened):
        sqlite3.connect(kind(path))


def test_another_copy_of_sqlite_can_connect_to_other_databases(tmp_path: Path, watch: FileGuard) -> None:
    for name in (":memory:", "", "file:x?mode=memory", str(tmp_path / "other.db")):
        sqlite3.connect(name, uri=True).close()


def in_directory(act: Callable[[int], None], directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        act(descriptor)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    "act",
    [
        lambda file: os.truncate(file, 0),
        lambda file: file.unlink(),
        lambda file: file.rename(file.with_name("gone")),
        lambda file: file.with_name("other").replace(file),
        lambda file: shutil.move(file, file.with_name("gone")),
        lambda file: shutil.rmtree(file.parent),
        lambda file: in_directory(lambda d: os.remove(file.name, dir_fd=d), file.parent),
        lambda file: in_directory(lambda d: os.rename(file.name, "gone", src_dir_fd=d), file.parent),
        lambda file: in_directory(
            lambda d: os.rename(file.parent / "other", file.name, dst_dir_fd=d), file.parent
        ),
    ],
)
def test_no_code_in_the_process_can_cut_remove_or_replace_a_file_of_the_ledger(
    path: Path, watch: FileGuard, suffix: str, act: Callable[[Path], None]
) -> None:
    file = path.with_name(path.name + suffix)
    path.with_name("other").touch()

    with pytest.raises(LedgerFileOpened):
        act(file)

    watch.check()


def test_no_code_can_cut_the_ledger_by_a_descriptor(path: Path, watch: FileGuard) -> None:
    for descriptor in descriptors_of(path):
        with pytest.raises(LedgerFileOpened):
            os.ftruncate(descriptor, 0)


def test_a_file_of_the_ledger_that_is_not_there_yet_cannot_be_made_by_others(path: Path) -> None:
    path.touch()
    watch = FileGuard.watch(path)
    wal = path.with_name("ledger.db-wal")
    link = path.with_name("link")
    link.symlink_to(wal)
    path.with_name("other").touch()

    for name in (wal, link):
        with pytest.raises(LedgerFileOpened):
            name.touch()
    with pytest.raises(LedgerFileOpened):
        path.with_name("other").rename(wal)

    watch.release()
    assert not wal.exists()


# What the hook lets pass.


def test_an_open_of_a_descriptor_passes(path: Path, watch: FileGuard) -> None:
    with open(descriptors_of(path)[0], "rb", closefd=False) as file:
        assert file.read(6) == b"SQLite"


def test_other_files_can_be_opened_made_moved_and_removed(tmp_path: Path, watch: FileGuard) -> None:
    other = tmp_path / "not-ledger.db"
    other.write_text("x")
    os.truncate(other, 0)
    other.rename(tmp_path / "ledger.db-mark")
    (tmp_path / "ledger.db-mark").unlink()

    assert not other.exists()


def test_a_file_of_the_same_name_elsewhere_is_not_the_ledger(tmp_path: Path, watch: FileGuard) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "ledger.db").write_text("x")
    (elsewhere / "ledger.db").rename(elsewhere / "ledger.db-wal")
    (elsewhere / "ledger.db-wal").unlink()

    assert list(elsewhere.iterdir()) == []


def test_a_tree_with_a_file_of_the_same_name_can_be_removed_from_within_the_home(
    tmp_path: Path, watch: FileGuard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a removal names its files relative to a directory that is not the working directory."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "ledger.db").touch()
    monkeypatch.chdir(tmp_path)

    shutil.rmtree(elsewhere)

    assert not elsewhere.exists()


def test_a_symbolic_link_to_the_ledger_can_be_removed(path: Path, watch: FileGuard) -> None:
    link = path.with_name("link")
    link.symlink_to(path)
    link.rename(path.with_name("link2"))
    path.with_name("link2").unlink()

    watch.check()


def test_a_call_with_nonsense_for_a_path_fails_as_it_always_did(watch: FileGuard) -> None:
    with pytest.raises(ValueError, match="null"):
        open_and_close("a\0b")
    with pytest.raises(TypeError):
        open_and_close(3.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        sqlite3.connect(None)  # type: ignore[call-overload]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.truncate(9999, 0)


def test_the_ledger_can_be_backed_up_while_it_is_guarded(
    path: Path, connection: apsw.Connection, watch: FileGuard
) -> None:
    commit(connection, 1)
    with closing(apsw.Connection(str(path.with_name("copy.db")))) as copy:
        with copy.backup("main", connection, "main") as backup:
            backup.step()

        assert copy.execute("SELECT number FROM commits").fetchall() == [(1,)]


def test_after_its_release_the_file_is_free_again(
    path: Path, connection: apsw.Connection, watch: FileGuard
) -> None:
    connection.close()
    watch.release()
    watch.release()

    assert path.read_bytes()
    assert descriptors_of(path) == []


def test_the_hook_is_installed_once_and_stays_quiet_to_the_end_of_the_process(tmp_path: Path) -> None:
    script = """
import os, sys
installed = []
sys.addaudithook(lambda event, args: installed.append(event) if event == "sys.addaudithook" else None)
import apsw
from pathlib import Path
from holdfast.store import guard

class OpensAtTheVeryEnd:
    # Code that holds the module lets the interpreter empty it instead of dropping it.
    def __del__(self, open=open, write=os.write, guard=guard):
        open("/dev/null").close()
        write(1, b"opened at the end")

sys.last_words = OpensAtTheVeryEnd()
connections, guards = [], []
for name in ("a.db", "b.db"):
    connections.append(apsw.Connection(str(Path(sys.argv[1], name))))
    connections[-1].pragma("journal_mode", "wal")
    guards.append(guard.FileGuard.watch(Path(sys.argv[1], name)))
print(len(installed), flush=True)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(
        [sys.executable, "-c", script, tmp_path], env=environment, check=True, capture_output=True, text=True
    )

    assert ended.stdout == "1\nopened at the end"
    assert ended.stderr == ""


# Several guards.


def test_two_guards_share_one_descriptor_and_the_file_is_guarded_until_both_are_released(
    path: Path, connection: apsw.Connection
) -> None:
    before = len(descriptors_of(path))
    first, second = FileGuard.watch(path), FileGuard.watch(path)
    assert len(descriptors_of(path)) == before + 1
    connection.close()

    first.release()
    with pytest.raises(LedgerFileOpened):
        path.read_bytes()
    assert holds_file_lock(second)
    assert others_find_it_locked(path)

    second.release()
    assert descriptors_of(path) == []
    assert not others_find_it_locked(path)


def test_two_ledgers_are_guarded_apart(path: Path, watch: FileGuard) -> None:
    other_path = path.with_name("other.db")
    connection = open_ledger(other_path)
    other = FileGuard.watch(other_path)

    connection.close()
    other.release()

    other_path.read_bytes()
    with pytest.raises(LedgerFileOpened):
        path.read_bytes()


def test_a_release_before_the_last_connection_is_closed_does_not_drop_its_locks(
    path: Path, connection: apsw.Connection
) -> None:
    """To close our descriptor would be the very mistake that we guard against."""
    commit(connection, 1)
    FileGuard.watch(path).release()

    assert others_find_it_locked(path)

    again = FileGuard.watch(path)
    connection.close()
    again.release()
    assert descriptors_of(path) == []


def test_a_file_that_took_the_place_of_a_guarded_one_can_be_guarded_too(
    path: Path, connection: apsw.Connection, watch: FileGuard
) -> None:
    for suffix in SUFFIXES:
        delete_elsewhere(path.with_name(path.name + suffix))
    with closing(open_ledger(path)):
        successor = FileGuard.watch(path)
        successor.check()
        assert others_find_it_locked(path)
        with pytest.raises(LedgerReplaced):
            watch.check()

    successor.release()
    assert descriptors_of(path) == []


# What `check` sees.


def test_a_ledger_that_was_not_touched_passes_its_check(
    connection: apsw.Connection, watch: FileGuard
) -> None:
    for number in range(100):
        commit(connection, number)
        watch.check()
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    watch.check()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_deleted_file_fails_the_check_and_is_named(path: Path, either: FileGuard, suffix: str) -> None:
    file = path.with_name(path.name + suffix)
    delete_elsewhere(file)

    for _ in range(2):
        with pytest.raises(LedgerReplaced, match=rf"{file} was deleted"):
            either.check()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_replaced_file_fails_the_check_and_is_named(path: Path, either: FileGuard, suffix: str) -> None:
    file = path.with_name(path.name + suffix)
    other = path.with_name("other")
    shutil.copyfile("/dev/null", other)
    move_elsewhere(other, file)

    with pytest.raises(LedgerReplaced, match=rf"{file} was replaced"):
        either.check()


def test_a_file_that_took_the_place_of_a_guarded_one_is_refused_to_others_like_the_first(
    path: Path, watch: FileGuard
) -> None:
    path.with_name("other").touch()
    move_elsewhere(path.with_name("other"), path)

    with pytest.raises(LedgerFileOpened):
        path.read_bytes()


def test_a_check_that_failed_once_fails_for_ever(path: Path, watch: FileGuard) -> None:
    wal, aside = path.with_name("ledger.db-wal"), path.with_name("aside")
    move_elsewhere(wal, aside)
    with pytest.raises(LedgerReplaced):
        watch.check()
    move_elsewhere(aside, wal)

    with pytest.raises(LedgerReplaced, match=r"ledger.db-wal was deleted"):
        watch.check()


def test_a_home_that_was_moved_away_fails_the_check(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    connection = open_ledger(home / "ledger.db")
    watch = FileGuard.watch(home / "ledger.db")
    home.rename(tmp_path / "moved")

    with pytest.raises(LedgerReplaced, match=r"ledger.db was deleted"):
        watch.check()

    connection.close()
    watch.release()


def test_files_that_appear_after_the_watch_began_are_remembered_from_then_on(path: Path) -> None:
    path.touch()
    watch = FileGuard.watch(path)
    watch.check()
    # SQLite cannot turn WAL on any more once our lock is there, so the files come from elsewhere.
    run_elsewhere("import sys; [open(sys.argv[1] + end, 'w') for end in ('-wal', '-shm')]", path)
    link = path.with_name("link")
    link.symlink_to(path.with_name("ledger.db-wal"))
    watch.check()

    with pytest.raises(LedgerFileOpened):
        open_and_close(link)
    delete_elsewhere(path.with_name("ledger.db-shm"))
    with pytest.raises(LedgerReplaced, match=r"ledger.db-shm was deleted"):
        watch.check()

    watch.release()


def test_a_ledger_reached_by_a_link_is_guarded_where_it_really_lies(tmp_path: Path) -> None:
    """SQLite puts its -wal beside the file that the link points to."""
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "ledger.db").symlink_to(real / "ledger.db")
    (real / "ledger.db").touch()
    connection = open_ledger(tmp_path / "ledger.db")
    watch = FileGuard.watch(tmp_path / "ledger.db")
    watch.check()

    delete_elsewhere(real / "ledger.db-wal")
    with pytest.raises(LedgerReplaced, match=r"real/ledger.db-wal was deleted"):
        watch.check()

    connection.close()
    watch.release()


def test_a_file_that_does_not_exist_cannot_be_guarded(path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="No such file"):
        FileGuard.watch(path)


# Our own lock.


def test_our_lock_stands_when_sqlites_own_was_dropped(
    path: Path, connection: apsw.Connection, watch: FileGuard
) -> None:
    assert holds_file_lock(watch)
    drop_locks_from_c(path)

    assert others_find_it_locked(path)


def drop_locks_from_c(path: Path) -> None:
    """What a library written in C may do: no audit hook sees it."""
    libc = ctypes.CDLL(None)
    libc.close(libc.open(os.fsencode(path), os.O_RDONLY))


def test_a_program_that_we_start_does_not_inherit_our_descriptor(path: Path, watch: FileGuard) -> None:
    for descriptor in descriptors_of(path):
        assert fcntl.fcntl(descriptor, fcntl.F_GETFD) & fcntl.FD_CLOEXEC


def test_a_ledger_that_another_process_has_for_itself_cannot_be_guarded_until_it_lets_go(path: Path) -> None:
    path.touch()
    script = f"""
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR)
fcntl.lockf(descriptor, fcntl.LOCK_EX, {guard._SHARED_SIZE}, {guard._SHARED_FIRST})
print("ready", flush=True)
sys.stdin.readline()
"""
    with subprocess.Popen(
        [sys.executable, "-c", script, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        with pytest.raises(StoreUnavailable, match="cannot lock the ledger"):
            FileGuard.watch(path)
        other.communicate("\n")

    watch = FileGuard.watch(path)
    assert holds_file_lock(watch)
    watch.release()
    assert descriptors_of(path) == []


def test_where_the_system_has_no_such_locks_the_hook_and_the_check_remain(
    path: Path, connection: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "_F_OFD_SETLK", None)
    watch = FileGuard.watch(path)

    assert not holds_file_lock(watch)
    with pytest.raises(LedgerFileOpened):
        path.read_bytes()
    watch.check()

    connection.close()
    watch.release()


def test_where_the_kernel_refuses_such_locks_the_hook_and_the_check_remain(
    path: Path, connection: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "_F_OFD_SETLK", 9999)
    watch = FileGuard.watch(path)

    assert not holds_file_lock(watch)
    with pytest.raises(LedgerFileOpened):
        path.read_bytes()
    watch.check()

    connection.close()
    watch.release()
    assert descriptors_of(path) == []


# The trial: commits were acknowledged, C code opened and closed the files, another process came and went.

USE_THE_LEDGER_CARELESSLY = """
import ctypes, os, subprocess, sys
from pathlib import Path
import apsw
from holdfast.core.errors import LedgerReplaced
from holdfast.store import guard

path, lock, visit = sys.argv[1:]
connection = apsw.Connection(path)
connection.pragma("journal_mode", "wal")
connection.pragma("synchronous", "full")
connection.execute("CREATE TABLE commits (number INTEGER)")
connection.execute("INSERT INTO commits VALUES (1)")
if lock == "without our lock":
    guard._F_OFD_SETLK = None
watch = guard.FileGuard.watch(Path(path))

libc = ctypes.CDLL(None)
for suffix in ("", "-wal", "-shm"):
    libc.close(libc.open(os.fsencode(path + suffix), os.O_RDONLY))

subprocess.run([sys.executable, "-c", visit, path], check=True)
connection.execute("INSERT INTO commits VALUES (3)")
print("acknowledged", flush=True)
try:
    watch.check()
    print("unharmed", flush=True)
except LedgerReplaced:
    print("noticed", flush=True)
os._exit(0)  # as if killed: nothing is put right by a tidy close
"""

VISIT_WITH_OUR_SQLITE = """
import apsw, sys
connection = apsw.Connection(sys.argv[1])
connection.execute("INSERT INTO commits VALUES (2)")
connection.close()
"""
VISIT_WITH_THE_SYSTEMS_SQLITE = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("INSERT INTO commits VALUES (2)")
connection.close()
"""


@pytest.mark.parametrize(
    "visit", [VISIT_WITH_OUR_SQLITE, VISIT_WITH_THE_SYSTEMS_SQLITE], ids=["apsw", "sqlite3"]
)
@pytest.mark.parametrize(
    ("lock", "said", "kept"),
    [
        ("with our lock", ["acknowledged", "unharmed"], [1, 2, 3]),
        # Proof that it is the lock which matters: the same, without it, loses an acknowledged commit.
        ("without our lock", ["acknowledged", "noticed"], [1, 2]),
    ],
    ids=["with", "without"],
)
def test_acknowledged_commits_survive_c_code_that_opens_the_files_because_of_our_lock(
    path: Path, lock: str, said: list[str], kept: list[int], visit: str
) -> None:
    assert run_elsewhere(USE_THE_LEDGER_CARELESSLY, path, lock, visit).split("\n")[:-1] == said

    with closing(apsw.Connection(str(path))) as connection:
        found = [number for (number,) in connection.execute("SELECT number FROM commits ORDER BY number")]
    assert found == kept
