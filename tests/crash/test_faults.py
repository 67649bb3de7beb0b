"""Disks that fill up and fail, files that are cut, flipped, deleted and replaced: said aloud, each time."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TypeVar, get_args

import pytest

from holdfast.core.checkpoint import ResumeReason
from holdfast.core.clock import SystemClock
from holdfast.core.errors import (
    CheckpointNotSaved,
    HoldfastError,
    LedgerReplaced,
    ResumesHeld,
    StoreUnavailable,
)
from holdfast.store import checksums
from holdfast.store.migrations import load_migrations
from holdfast.store.queries import load_queries
from holdfast.store.sqlite import SqliteStore
from holdfast.testing import FakeClock
from tests.crash import disks
from tests.crash.disks import Disk, Failure
from tests.crash.facts import Fact, Log, assert_facts_stand, read_facts
from tests.crash.invariants import assert_ledger_is_whole, contents_of
from tests.crash.ledger_address import LedgerAddress
from tests.crash.processes import Pipe, assert_ended_well, fork, killed_in_the_end
from tests.engine.journal_writer import decoded
from tests.engine.parts import Parts, a_new_task
from tests.engine.tables import dump
from tests.new_ledgers import put_new_ledger

pytestmark = pytest.mark.slow

T = TypeVar("T")

ON_WRITE: list[Failure] = ["full", "write error", "sync error", "short write"]
WORDS = {
    "full": "the disk is full",
    "short write": "the disk is full",
    "write error": "the disk failed",
    "sync error": "the disk failed",
    "read error": "the disk failed",
}
WRITERS = 50
MANY_ROUNDS = 20
# How many lives have a disk that fails at one of their calls, spread over all calls that a life makes.
LIVES = int(os.environ.get("HOLDFAST_DISK_FAILURES") or 120)
NOBODY = 65534


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk()
    monkeypatch.setattr(checksums, "vfs", lambda: disks.NAME)
    yield disk
    disk.mend()
    disk.unplug()


@pytest.fixture
def store(disk: Disk, quick_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(quick_path / "ledger.db", clock=SystemClock())
    yield store
    disk.mend()
    store.close()


# --- full and broken disks


@pytest.mark.parametrize("failure", ON_WRITE)
async def test_a_failing_disk_is_said_aloud_and_work_goes_on_when_it_is_mended(
    store: SqliteStore, disk: Disk, failure: Failure
) -> None:
    parts = await Parts.begin(store, SystemClock())
    await parts.create(key="before")
    before = dump(store)

    disk.fail(failure)
    with pytest.raises(StoreUnavailable, match=WORDS[failure]):
        await parts.create(key="during")
    disk.mend()

    assert dump(store) == before
    after = await parts.create(key="during")
    assert (await parts.ledger.get(after.id)).dedup_key == "during"
    assert_ledger_is_whole(store)


@pytest.mark.parametrize("failure", ON_WRITE)
@pytest.mark.parametrize("after", [0, 3, 10, 40])
async def test_no_member_of_a_group_is_acknowledged_falsely(
    store: SqliteStore, disk: Disk, failure: Failure, after: int
) -> None:
    parts = await Parts.begin(store, SystemClock())

    disk.fail(failure, after=after)
    answers = await create_together(parts, range(WRITERS))
    disk.mend()

    acknowledged = {key for key, answer in answers.items() if answer is None}
    assert {type(answer) for answer in answers.values() if answer is not None} <= {StoreUnavailable}
    assert {task.dedup_key for task in contents_of(store).tasks.values()} == acknowledged
    assert set((await create_together(parts, range(WRITERS))).values()) == {None}
    assert len(contents_of(store).tasks) == WRITERS
    assert_ledger_is_whole(store)


@pytest.mark.parametrize("failure", ON_WRITE)
async def test_a_disk_that_fails_once_costs_no_one_who_can_be_served_again(
    store: SqliteStore, disk: Disk, failure: Failure
) -> None:
    """The group's transaction ended, so each of its members is run again, alone."""
    parts = await Parts.begin(store, SystemClock())

    disk.fail(failure, times=1)
    answers = await create_together(parts, range(WRITERS))

    acknowledged = {key for key, answer in answers.items() if answer is None}
    assert len(acknowledged) >= WRITERS - 1
    assert {task.dedup_key for task in contents_of(store).tasks.values()} == acknowledged
    assert_ledger_is_whole(store)


async def create_together(parts: Parts, numbers: range) -> dict[str, BaseException | None]:
    """What each of many concurrent callers was told, by its key."""
    keys = [f"key-{number}" for number in numbers]
    answers = await asyncio.gather(*(parts.create(key=key) for key in keys), return_exceptions=True)
    return {
        key: answer if isinstance(answer, BaseException) else None
        for key, answer in zip(keys, answers, strict=True)
    }


async def test_a_disk_may_fail_once_at_any_call_of_a_whole_life(
    disk: Disk, quick_path: Path, seed: int
) -> None:
    """A caller that was refused asks again; in the end everything is there once."""
    failures: list[Failure] = [*ON_WRITE, "read error"]
    chance = random.Random(seed)
    calls = await calls_of_a_life(disk, quick_path / "recorded.db")

    for number in range(LIVES):
        with closing(a_new_store(quick_path / f"{number}.db")) as store:
            facts: list[Fact] = []
            # One of each stretch of calls, so that none of the life's writes is left out.
            call = int((number + chance.random()) * calls / LIVES)
            disk.fail(failures[(seed + number) % len(failures)], after=call, times=1)
            await live(store, facts)
            disk.mend()

            contents = assert_ledger_is_whole(store)
            assert_facts_stand(store, facts)
            assert Counter(str(task.status) for task in contents.tasks.values()) == {"succeeded": 2}

    assert calls > 50


def a_new_store(path: Path) -> SqliteStore:
    put_new_ledger(path)
    return SqliteStore(path, clock=SystemClock())


async def calls_of_a_life(disk: Disk, path: Path) -> int:
    with closing(a_new_store(path)) as store:
        before = disk.calls
        await live(store, [])
        return disk.calls - before


async def live(store: SqliteStore, facts: list[Fact]) -> None:
    """Two tasks from their creation over a pause to the end; a process that is refused begins a new life."""
    while True:
        parts = await persist(lambda: Parts.begin(store, SystemClock()))
        try:
            await work(parts, facts)
        except (StoreUnavailable, CheckpointNotSaved):
            await persist(parts.life.end)
        else:
            return


async def work(parts: Parts, facts: list[Fact]) -> None:
    tasks = await parts.ledger.create_many([a_new_task(key="one"), a_new_task(key="two")])
    facts += [Fact(kind="created", task=task.id, name=str(task.dedup_key)) for task in tasks]
    for _ in range(MANY_ROUNDS):
        if await is_at_rest(parts):
            break
        await parts.rescuer.rescue()
        resumed = await parts.resumer.resume_all()
        facts += [Fact(kind="resumed", checkpoint=c, run=r) for c, r in resumed.followed_up.items()]
        for one in await parts.claims.take(2):
            await parts.journal.save_step(one.claim, "read", one.run.id)
            value = decoded(await parts.journal.find_step(one.task.id, "read"))
            facts.append(Fact(kind="step", task=one.task.id, name="read", value=value))
            if one.run.number == 1:
                await parts.checkpoints.pause([one.claim], ResumeReason.SIGNAL)
            else:
                await parts.ledger.finish(one.claim, "done")
                facts.append(Fact(kind="finished", task=one.task.id, run=one.run.id, value="done"))


async def is_at_rest(parts: Parts) -> bool:
    return await parts.store.read(lambda tx: tx.events.counts("task")) == {"succeeded": 2}


async def persist(call: Callable[[], Awaitable[T]]) -> T:
    while True:
        try:
            return await call()
        except StoreUnavailable:
            continue


@pytest.mark.parametrize("failure", ON_WRITE)
def test_a_ledger_that_cannot_be_made_says_why(disk: Disk, quick_path: Path, failure: Failure) -> None:
    disk.fail(failure)

    with pytest.raises(StoreUnavailable, match=WORDS[failure]):
        SqliteStore(quick_path / "ledger.db", clock=SystemClock())

    disk.mend()
    store = SqliteStore(quick_path / "ledger.db", clock=SystemClock())
    assert_ledger_is_whole(store)
    store.close()


async def test_a_disk_that_cannot_be_read_is_said_aloud(
    store: SqliteStore, disk: Disk, quick_path: Path
) -> None:
    parts = await Parts.begin(store, SystemClock())
    task = await parts.create()
    store.close()

    disk.fail("read error")
    with pytest.raises(StoreUnavailable, match="the disk failed"):
        SqliteStore(quick_path / "ledger.db", clock=SystemClock())
    disk.mend()

    again = SqliteStore(quick_path / "ledger.db", clock=SystemClock())
    assert again.read_now(lambda tx: tx.tasks.get(task.id)).id == task.id
    again.close()


# --- read-only places


def as_nobody(work: Callable[[], None]) -> Callable[[], None]:
    """Permissions do not bind root, so root becomes a user that they bind."""

    def run() -> None:
        # Read while we may: another user cannot enter a clone below a private directory.
        load_queries("sqlite")
        load_migrations("sqlite")
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        work()

    return run


def give_away(*paths: Path) -> None:
    for path in paths:
        if os.geteuid() == 0:
            os.chown(path, NOBODY, NOBODY)


def test_a_directory_that_cannot_be_written_is_said_aloud(quick_path: Path) -> None:
    home = quick_path / "home"
    home.mkdir()
    give_away(quick_path, home)
    home.chmod(0o555)

    def work() -> None:
        with pytest.raises(StoreUnavailable):
            SqliteStore(home / "ledger.db", clock=SystemClock())

    assert_ended_well(fork(as_nobody(work)))
    assert list(home.iterdir()) == []
    home.chmod(0o755)


def test_a_file_that_cannot_be_written_is_said_aloud_and_stays_as_it_is(quick_path: Path) -> None:
    path = quick_path / "ledger.db"
    SqliteStore(path, clock=SystemClock()).close()
    before = path.read_bytes()
    for one in quick_path.iterdir():
        give_away(one)
        one.chmod(0o444)
    give_away(quick_path)
    quick_path.chmod(0o555)

    def work() -> None:
        with pytest.raises(StoreUnavailable):
            SqliteStore(path, clock=SystemClock())

    assert_ended_well(fork(as_nobody(work)))
    assert path.read_bytes() == before
    quick_path.chmod(0o755)


# --- a WAL that was cut


async def write_until_killed(place: LedgerAddress, out: Pipe) -> None:
    """Ten tasks, one commit each; the mark is saved after the fifth."""
    store = place.open()
    assert isinstance(store, SqliteStore)
    parts = await Parts.begin(store, SystemClock(), locks=place.locks)
    claimed = await parts.carry(key="carried")
    await parts.checkpoints.pause([claimed.claim], ResumeReason.SIGNAL)
    log = Log(place.home / "facts.jsonl")
    for number in range(10):
        task = await parts.create(key=f"key-{number}")
        log.write("created", task=task.id, name=f"key-{number}")
        if number == 4:
            store.save_mark()
    out.say("done")
    await asyncio.Event().wait()


FRAME = 24 + 4096


@pytest.fixture
def killed(quick_path: Path) -> LedgerAddress:
    """A ledger that was closed well once, and then left by a killed process with much in its WAL."""
    place = LedgerAddress.of_file(quick_path / "killed")
    place.open().close()
    out = Pipe()
    with killed_in_the_end(fork(lambda: asyncio.run(write_until_killed(place, out)))):
        assert out.only_hear().hear() == "done"
    out.close()
    return place


def size_of_wal(place: LedgerAddress) -> int:
    return Path(f"{place.path}-wal").stat().st_size


def cut(killed: LedgerAddress, directory: Path, size: int) -> LedgerAddress:
    """The same ledger with so much of its WAL."""
    shutil.copytree(killed.home, directory)
    place = LedgerAddress.of_file(directory)
    os.truncate(f"{place.path}-wal", size)
    Path(f"{place.path}-shm").unlink()
    return place


def test_of_a_cut_wal_a_prefix_of_the_commits_remains_and_the_mark_tells(
    killed: LedgerAddress, quick_path: Path
) -> None:
    facts = read_facts(killed.home / "facts.jsonl")
    whole = size_of_wal(killed)
    sizes = {0, 16, 32, 32 + FRAME // 2, whole - 1, whole} | set(range(32, whole, 2 * FRAME))
    found = []

    for size in sorted(sizes):
        place = cut(killed, quick_path / f"cut-{size}", size)
        store = place.open()
        kept = {task.dedup_key for task in contents_of(store).tasks.values()}
        assert store.verify() == []
        found.append((len(kept & {fact.name for fact in facts}), store.held_why() is not None))
        assert kept & {fact.name for fact in facts} == {fact.name for fact in facts[: found[-1][0]]}
        store.close()

    assert found[0][0] == 0
    assert found[-1] == (10, False)
    # The mark was saved after the fifth: who lost that commit is told, who lost later ones cannot know.
    assert {is_held for kept, is_held in found if kept < 5} == {True}
    assert {is_held for kept, is_held in found if kept > 5} == {False}


async def test_after_a_cut_nothing_is_resumed_before_a_person_accepts(
    killed: LedgerAddress, quick_path: Path
) -> None:
    sizes = range(32, size_of_wal(killed), FRAME)
    for size in sizes:
        place = cut(killed, quick_path / f"cut-{size}", size)
        store = place.open()
        parts = await Parts.begin(store, SystemClock(), locks=place.locks)
        if store.held_why() is not None and await paused_checkpoints(parts):
            break
        store.close()

    with pytest.raises(ResumesHeld):
        await parts.recover()
    assert await paused_checkpoints(parts) == 1
    store.accept()
    resumed = await parts.recover()

    assert len(resumed.followed_up) == 1
    store.close()
    again = place.open()
    assert again.held_why() is None
    again.close()


async def paused_checkpoints(parts: Parts) -> int:
    counts = await parts.store.read(lambda tx: tx.events.counts("checkpoint"))
    return counts.get("paused_for_restart", 0)


def test_an_older_copy_put_in_place_of_the_ledger_is_noticed(quick_path: Path) -> None:
    place = LedgerAddress.of_file(quick_path)
    place.open().close()
    shutil.copy(place.path, quick_path / "older.db")
    store = place.open()
    asyncio.run(Parts.begin(store, SystemClock()))
    store.close()

    shutil.copy(quick_path / "older.db", place.path)

    store = place.open()
    assert "older" in (store.held_why() or "")
    store.close()


# --- flipped bits


async def fill(store: SqliteStore) -> None:
    parts = await Parts.begin(store, FakeClock())
    for number in range(12):
        claimed = await parts.carry(arguments={"number": number, "text": "tide " * 200}, key=f"key-{number}")
        await parts.journal.save_step(claimed.claim, "read", "calm " * 100)
        await parts.journal.decide(claimed.claim, "use the tables")
        await parts.artifacts.record_output(claimed.claim, "report", "calm " * 50)
        if number % 3 == 0:
            await parts.checkpoints.pause([claimed.claim], ResumeReason.SIGNAL)
        elif number % 3 == 1:
            await parts.ledger.finish(claimed.claim, "done " * 4000)


def test_a_flipped_bit_anywhere_is_reported(quick_path: Path, seed: int) -> None:
    path = quick_path / "ledger.db"
    store = SqliteStore(path, clock=FakeClock())
    asyncio.run(fill(store))
    store.close()
    whole, chance = path.read_bytes(), random.Random(seed)

    for number in range(80):
        # The first bytes say how the others are read.
        place, bit = chance.randrange(100 if number < 20 else len(whole)), 1 << chance.randrange(8)
        copy = quick_path / f"flipped-{number}.db"
        copy.write_bytes(whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])
        assert is_reported(copy), f"byte {place}, bit {bit}"
        copy.unlink()


def is_reported(path: Path) -> bool:
    try:
        store = SqliteStore(path, clock=FakeClock())
    except HoldfastError:
        return True
    with closing(store):
        return store.verify() != []


# --- deleted and replaced files


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
@pytest.mark.parametrize("how", ["deleted", "replaced"])
async def test_a_file_deleted_or_replaced_while_in_use_stops_all_writing(
    quick_path: Path, suffix: str, how: str
) -> None:
    path = quick_path / "ledger.db"
    store = SqliteStore(path, clock=SystemClock())
    parts = await Parts.begin(store, SystemClock())
    await parts.create(key="before")

    take_away(Path(f"{path}{suffix}"), is_replaced=how == "replaced")
    answers = await create_together(parts, range(WRITERS))
    with pytest.raises(LedgerReplaced):
        await parts.create(key="after")

    assert {type(answer) for answer in answers.values()} == {LedgerReplaced}
    store.close()


def take_away(path: Path, *, is_replaced: bool) -> None:
    """From another process: in this one, no code may touch the files at all."""
    subprocess.run(["rm", path], check=True)
    if is_replaced:
        subprocess.run(["cp", "/dev/null", path], check=True)


def test_every_fault_of_the_disk_is_tried() -> None:
    assert set(get_args(Failure)) == {*ON_WRITE, "read error"}
