"""Locks on files prove who is alive: one per boot, one per home."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from holdfast.core.errors import BadInput, HomeInUse, StoreUnavailable
from holdfast.store import locks
from holdfast.store.locks import BootLock, HomeLock, bury, holder_of, is_held

BOOT = "boot_01"

TAKE_BOOT = """
import os, sys
from pathlib import Path
from holdfast.store.locks import BootLock
lock = BootLock.take(Path(sys.argv[1]), sys.argv[2])
"""
TAKE_HOME = """
import os, sys
from pathlib import Path
from holdfast.store.locks import HomeLock
lock = HomeLock.take(Path(sys.argv[1]), role="gateway")
"""
SAY_READY_AND_WAIT = """
print("ready", flush=True)
sys.stdin.readline()
"""
# The child lives until the test closes the pipe.
FORK_A_CHILD_THAT_WAITS = """
child = os.fork()
if child == 0:
    sys.stdin.readline()
    os._exit(0)
"""


@contextmanager
def running(script: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A process that has reached its "ready"; it is killed at the end."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", script, *map(str, arguments)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


def let_children_end(process: subprocess.Popen[str]) -> None:
    """Close the pipe on which children wait, and wait until they have closed theirs by ending."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    assert process.stdout.read() == ""


@pytest.fixture
def boots(tmp_path: Path) -> Path:
    return tmp_path / "boots"


@pytest.fixture
def held() -> Iterator[ExitStack]:
    """Where a test puts what is to be released at its end."""
    with ExitStack() as stack:
        yield stack


def take_boot(held: ExitStack, boots: Path, boot_id: str = BOOT) -> BootLock:
    lock = BootLock.take(boots, boot_id)
    held.callback(lock.release)
    return lock


def take_home(held: ExitStack, home: Path) -> HomeLock:
    lock = HomeLock.take(home, role="gateway")
    held.callback(lock.release)
    return lock


# One per boot.


def test_a_boot_that_holds_its_lock_is_not_dead(boots: Path, held: ExitStack) -> None:
    take_boot(held, boots)

    assert is_held(boots, BOOT) is True


def test_a_boot_of_another_process_is_dead_once_that_process_is_killed(boots: Path) -> None:
    with running(TAKE_BOOT + SAY_READY_AND_WAIT, boots, BOOT) as process:
        assert is_held(boots, BOOT) is True
        kill(process)

    assert is_held(boots, BOOT) is False


def test_a_released_boot_leaves_no_file_and_so_no_proof(boots: Path) -> None:
    lock = BootLock.take(boots, BOOT)
    lock.release()

    assert is_held(boots, BOOT) is None
    assert list(boots.iterdir()) == []


def test_a_boot_lock_may_be_released_twice(boots: Path, held: ExitStack) -> None:
    lock = BootLock.take(boots, BOOT)
    lock.release()
    take_boot(held, boots)
    lock.release()

    assert is_held(boots, BOOT) is True


def test_a_boot_stays_alive_when_its_file_is_opened_and_closed_in_its_own_process(
    boots: Path, held: ExitStack
) -> None:
    take_boot(held, boots)
    (boots / f"{BOOT}.lock").read_bytes()
    is_held(boots, BOOT)

    assert is_held(boots, BOOT) is True


def test_no_process_can_find_a_boots_file_before_it_is_locked(
    boots: Path, held: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    found_before_lock: list[bool] = []
    real = fcntl.flock

    def look_then_lock(descriptor: int, operation: int) -> None:
        found_before_lock.append((boots / f"{BOOT}.lock").exists())
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", look_then_lock)
    take_boot(held, boots)
    monkeypatch.undo()

    assert found_before_lock == [False]
    assert is_held(boots, BOOT) is True


def test_two_who_ask_at_the_same_time_do_not_take_each_other_for_the_boot(boots: Path) -> None:
    with running(TAKE_BOOT + SAY_READY_AND_WAIT, boots, BOOT) as process:
        kill(process)

    with (boots / f"{BOOT}.lock").open() as other:
        assert locks._try_lock(other.fileno(), fcntl.LOCK_SH)  # what the other asker does in `is_held`
        assert is_held(boots, BOOT) is False


def test_a_file_that_was_removed_under_a_living_process_proves_nothing(boots: Path) -> None:
    with running(TAKE_BOOT + SAY_READY_AND_WAIT, boots, BOOT) as process:
        (boots / f"{BOOT}.lock").unlink()
        assert is_held(boots, BOOT) is None
        kill(process)

    assert is_held(boots, BOOT) is None


def test_a_copy_of_the_file_of_a_living_process_proves_nothing(boots: Path) -> None:
    path = boots / f"{BOOT}.lock"
    with running(TAKE_BOOT + SAY_READY_AND_WAIT, boots, BOOT):
        shutil.copy2(path, path.with_suffix(".copy"))
        path.with_suffix(".copy").replace(path)

        assert is_held(boots, BOOT) is None


def test_a_whole_directory_that_was_put_back_from_a_backup_proves_nothing(boots: Path) -> None:
    with running(TAKE_BOOT + SAY_READY_AND_WAIT, boots, BOOT):
        shutil.copytree(boots, boots.with_name("backup"))
        shutil.rmtree(boots)
        shutil.copytree(boots.with_name("backup"), boots)

        assert is_held(boots, BOOT) is None


def test_an_empty_file_as_earlier_versions_made_it_proves_nothing(boots: Path) -> None:
    boots.mkdir()
    (boots / f"{BOOT}.lock").touch()

    assert is_held(boots, BOOT) is None


def test_the_file_of_a_boot_is_on_the_disk_before_the_boot_can_be_registered(
    boots: Path, held: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def note(descriptor: int) -> None:
        synced.append("directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")

    monkeypatch.setattr(os, "fsync", note)
    take_boot(held, boots)

    # The directory of the locks itself comes first.
    assert synced == ["directory", "file", "directory"]


def test_a_boot_that_was_never_registered_proves_nothing(boots: Path, held: ExitStack) -> None:
    take_boot(held, boots)

    assert is_held(boots, "boot_02") is None


def test_without_the_directory_nothing_is_proved(boots: Path) -> None:
    assert is_held(boots, BOOT) is None


def test_a_file_in_place_of_the_directory_proves_nothing(boots: Path) -> None:
    boots.touch()

    with pytest.raises(StoreUnavailable, match="cannot prove that boot_01 is dead"):
        is_held(boots, BOOT)


def test_a_dead_boot_may_be_buried_twice(boots: Path) -> None:
    with running(TAKE_BOOT + SAY_READY_AND_WAIT, boots, BOOT) as process:
        kill(process)
    bury(boots, BOOT)
    bury(boots, BOOT)

    assert list(boots.iterdir()) == []


def test_a_living_boot_cannot_be_buried(boots: Path, held: ExitStack) -> None:
    take_boot(held, boots)

    with pytest.raises(StoreUnavailable, match="boot_01 is alive"):
        bury(boots, BOOT)

    assert is_held(boots, BOOT) is True


def test_a_second_boot_of_the_same_id_is_refused_and_the_first_lives_on(boots: Path, held: ExitStack) -> None:
    take_boot(held, boots)

    with pytest.raises(StoreUnavailable, match="registered already"):
        BootLock.take(boots, BOOT)

    assert is_held(boots, BOOT) is True
    assert [path.name for path in boots.iterdir()] == [f"{BOOT}.lock"]


@pytest.mark.parametrize("boot_id", ["../boot", "a/b", "", ".", "boot\n"])
def test_a_boot_id_that_could_name_another_file_is_refused(boots: Path, boot_id: str) -> None:
    with pytest.raises(BadInput):
        BootLock.take(boots, boot_id)
    with pytest.raises(BadInput):
        is_held(boots, boot_id)
    with pytest.raises(BadInput):
        bury(boots, boot_id)


def test_only_its_user_may_see_a_boots_file(boots: Path, held: ExitStack) -> None:
    take_boot(held, boots)

    assert stat.S_IMODE(boots.stat().st_mode) == 0o700
    assert stat.S_IMODE((boots / f"{BOOT}.lock").stat().st_mode) == 0o600


def test_a_boot_whose_forked_child_lives_is_not_dead_until_the_child_is_gone(boots: Path) -> None:
    with running(TAKE_BOOT + FORK_A_CHILD_THAT_WAITS + SAY_READY_AND_WAIT, boots, BOOT) as process:
        kill(process)
        assert is_held(boots, BOOT) is True
        let_children_end(process)

    assert is_held(boots, BOOT) is False


def test_a_boot_is_dead_although_a_program_that_it_started_lives(boots: Path) -> None:
    start_a_program = "import subprocess; subprocess.Popen(['cat'], close_fds=False)"

    with running(TAKE_BOOT + start_a_program + SAY_READY_AND_WAIT, boots, BOOT) as process:
        kill(process)
        assert is_held(boots, BOOT) is False
        let_children_end(process)


def test_a_forked_child_that_releases_does_not_end_its_parents_boot(boots: Path) -> None:
    release_in_a_child = """
if os.fork() == 0:
    lock.release()
    os._exit(0)
os.wait()
"""
    with running(TAKE_BOOT + release_in_a_child + SAY_READY_AND_WAIT, boots, BOOT):
        assert is_held(boots, BOOT) is True


# One per home.


def test_a_home_that_is_held_refuses_the_next_and_names_the_holder(tmp_path: Path) -> None:
    with running(TAKE_HOME + SAY_READY_AND_WAIT, tmp_path) as process:
        with pytest.raises(HomeInUse) as caught:
            HomeLock.take(tmp_path, role="cli")

        assert caught.value.home == str(tmp_path)
        assert caught.value.pid == process.pid


def test_a_home_is_held_against_the_same_process_too(tmp_path: Path, held: ExitStack) -> None:
    take_home(held, tmp_path)

    with pytest.raises(HomeInUse) as caught:
        HomeLock.take(tmp_path, role="cli")

    assert caught.value.pid == os.getpid()


def test_the_holder_of_a_home_can_be_asked_for(tmp_path: Path) -> None:
    with running(TAKE_HOME + SAY_READY_AND_WAIT, tmp_path) as process:
        assert holder_of(tmp_path) == process.pid
        kill(process)

    assert holder_of(tmp_path) is None


def test_to_ask_for_the_holder_does_not_drop_its_lock(tmp_path: Path, held: ExitStack) -> None:
    take_home(held, tmp_path)
    holder_of(tmp_path)

    with pytest.raises(HomeInUse):
        HomeLock.take(tmp_path, role="cli")


def test_a_home_without_a_lock_file_has_no_holder_and_gets_no_file(tmp_path: Path) -> None:
    assert holder_of(tmp_path) is None
    assert holder_of(tmp_path / "missing") is None
    assert list(tmp_path.iterdir()) == []


def test_the_home_of_a_killed_holder_can_be_taken(tmp_path: Path, held: ExitStack) -> None:
    with running(TAKE_HOME + SAY_READY_AND_WAIT, tmp_path) as process:
        kill(process)
    take_home(held, tmp_path)

    assert holder_of(tmp_path) == os.getpid()


def test_a_released_home_can_be_taken_and_its_file_stays_but_empty(tmp_path: Path, held: ExitStack) -> None:
    lock = HomeLock.take(tmp_path, role="gateway")
    inode = (tmp_path / "gateway.lock").stat().st_ino
    lock.release()

    assert (tmp_path / "gateway.lock").read_bytes() == b""
    assert (tmp_path / "gateway.lock").stat().st_ino == inode
    take_home(held, tmp_path)


def test_a_home_lock_may_be_released_twice(tmp_path: Path, held: ExitStack) -> None:
    lock = HomeLock.take(tmp_path, role="gateway")
    lock.release()
    take_home(held, tmp_path)
    lock.release()

    assert holder_of(tmp_path) == os.getpid()


def test_the_lock_file_tells_a_person_who_holds_the_home_and_as_what(tmp_path: Path, held: ExitStack) -> None:
    take_home(held, tmp_path)

    assert (tmp_path / "gateway.lock").read_text() == f"{os.getpid()} gateway\n"
    assert stat.S_IMODE((tmp_path / "gateway.lock").stat().st_mode) == 0o600


def test_a_home_that_does_not_exist_is_made_for_its_user_alone(tmp_path: Path, held: ExitStack) -> None:
    home = tmp_path / "new"
    take_home(held, home)

    assert stat.S_IMODE(home.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "written", [b"", b"12", b"12 gate", b"999999999999999999999 gateway\n", b"rubbish\n"]
)
def test_a_holder_that_has_not_finished_writing_is_held_to_be_unknown(
    tmp_path: Path, held: ExitStack, written: bytes
) -> None:
    file = held.enter_context((tmp_path / "gateway.lock").open("wb"))
    fcntl.flock(file, fcntl.LOCK_EX)
    file.write(written)
    file.flush()

    with pytest.raises(HomeInUse) as caught:
        HomeLock.take(tmp_path, role="cli")

    assert caught.value.pid is None
    assert holder_of(tmp_path) is None


def test_the_pid_that_a_killed_holder_left_behind_is_not_given_for_the_next_ones(
    tmp_path: Path, held: ExitStack
) -> None:
    with running(TAKE_HOME + SAY_READY_AND_WAIT, tmp_path) as process:
        kill(process)
    file = held.enter_context((tmp_path / "gateway.lock").open("rb"))
    fcntl.flock(file, fcntl.LOCK_EX)  # the next holder, before it has written

    assert file.read() == f"{process.pid} gateway\n".encode()
    assert holder_of(tmp_path) is None


def test_someone_who_only_asks_is_not_mistaken_for_a_holder(
    tmp_path: Path, held: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gateway.lock").touch()
    asker = (tmp_path / "gateway.lock").open()
    held.callback(asker.close)
    fcntl.flock(asker, fcntl.LOCK_SH)  # what `holder_of` does for a moment
    refusals: list[int] = []
    real = locks._try_lock

    def end_the_moment_after_a_refusal(descriptor: int, kind: int) -> bool:
        taken = real(descriptor, kind)
        if not taken:
            refusals.append(kind)
            asker.close()
        return taken

    monkeypatch.setattr(locks, "_try_lock", end_the_moment_after_a_refusal)
    take_home(held, tmp_path)

    assert refusals == [fcntl.LOCK_EX]
    assert holder_of(tmp_path) == os.getpid()


def test_a_home_that_cannot_be_locked_is_reported_and_nothing_stays_open(tmp_path: Path) -> None:
    (tmp_path / "gateway.lock").mkdir()

    with pytest.raises(StoreUnavailable, match="Is a directory"):
        HomeLock.take(tmp_path, role="gateway")


def test_a_forked_child_that_releases_does_not_give_away_its_parents_home(tmp_path: Path) -> None:
    release_in_a_child = """
if os.fork() == 0:
    lock.release()
    os._exit(0)
os.wait()
"""
    with running(TAKE_HOME + release_in_a_child + SAY_READY_AND_WAIT, tmp_path) as process:
        assert holder_of(tmp_path) == process.pid
