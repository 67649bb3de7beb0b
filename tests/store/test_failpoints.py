"""Failpoints: a process that dies before, inside or after any of its writes, without a process."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.core.errors import ClaimLost
from holdfast.core.events import EventKind
from holdfast.store import Store, Tx
from holdfast.store.journal import saving_step
from holdfast.store.sealing import CLOSED
from holdfast.store.sqlite import SqliteStore
from holdfast.testing import (
    Crashed,
    FailingStore,
    Failpoint,
    FakeClock,
    RecordedWrite,
    contents_of,
)
from tests.builders import START, a_run, a_step, a_task, running_run, unique

BEFORE = Failpoint(call=1, where="before")
AFTER = Failpoint(call=1, where="after")


def inside(statement: int, call: int = 1) -> Failpoint:
    return Failpoint(call=call, where="inside", statement=statement)


class CreateTask:
    """Three statements, an event and two counts: a write that can die in many places."""

    def __init__(self) -> None:
        self.task = a_task(dedup_key=unique())
        self.run = a_run(self.task)

    def __call__(self, tx: Tx) -> str:
        kept, is_new = tx.tasks.create(self.task)
        if is_new:
            tx.runs.create(self.run)
            tx.emit(EventKind.TASK_CREATED, self.task.id, at=START, task_id=self.task.id)
        return kept.id


def run(store: FailingStore, write: CreateTask, *, is_async: bool) -> str:
    return asyncio.run(store.write(write)) if is_async else store.write_now(write)


def test_a_recording_names_every_call_and_counts_its_statements(store: Store) -> None:
    run, claim = running_run(store)
    recording = FailingStore(store)

    def end(tx: Tx) -> None:
        tx.boots.set_fact("a", "b")

    recording.write_now(CreateTask())
    asyncio.run(recording.write(end))
    recording.write_now(saving_step(a_step(run), claim.fence, CLOSED))

    assert recording.calls == [
        RecordedWrite(number=1, name="CreateTask", statements=3),
        RecordedWrite(
            number=2,
            name="test_a_recording_names_every_call_and_counts_its_statements.<locals>.end",
            statements=1,
        ),
        RecordedWrite(number=3, name="SaveStep", statements=1),
    ]
    assert [str(point) for point in recording.failpoints()] == [
        "before of call 1",
        "inside statement 1 of call 1",
        "inside statement 2 of call 1",
        "inside statement 3 of call 1",
        "after of call 1",
        "before of call 2",
        "inside statement 1 of call 2",
        "after of call 2",
        "before of call 3",
        "inside statement 1 of call 3",
        "after of call 3",
    ]


def test_a_recording_changes_nothing_about_what_is_written(store: Store) -> None:
    write = CreateTask()

    assert FailingStore(store).write_now(write) == write.task.id

    assert store.read_now(lambda tx: tx.tasks.get(write.task.id)) == write.task
    assert store.read_now(lambda tx: tx.events.counts("run")) == {"queued": 1}
    events = store.read_now(lambda tx: tx.events.of_task(write.task.id))
    assert [event.kind for event in events] == [EventKind.TASK_CREATED]


@pytest.mark.parametrize("point", [BEFORE, inside(1), inside(2), inside(3)], ids=str)
@pytest.mark.parametrize("is_async", [True, False], ids=["awaited", "blocking"])
def test_a_death_before_or_inside_a_write_leaves_nothing_of_it(
    store: Store, point: Failpoint, is_async: bool
) -> None:
    dying, write = FailingStore(store, [point]), CreateTask()
    before = store.read_now(contents_of)

    with pytest.raises(Crashed, match=str(point)):
        run(dying, write, is_async=is_async)

    assert dying.is_dead
    assert store.read_now(contents_of) == before
    assert store.write_now(write) == write.task.id
    assert store.verify() == []


@pytest.mark.parametrize("is_async", [True, False], ids=["awaited", "blocking"])
def test_a_death_after_the_commit_keeps_all_of_it_and_tells_no_caller(store: Store, is_async: bool) -> None:
    dying, write = FailingStore(store, [AFTER]), CreateTask()

    with pytest.raises(Crashed):
        run(dying, write, is_async=is_async)

    assert store.read_now(lambda tx: tx.tasks.get(write.task.id)) == write.task
    assert store.verify() == []


def test_a_dead_process_does_nothing_more_and_its_ledger_serves_others(store: Store) -> None:
    dying = FailingStore(store, [BEFORE])
    with pytest.raises(Crashed):
        dying.write_now(CreateTask())

    for attempt in (
        lambda: dying.write_now(CreateTask()),
        lambda: dying.read_now(lambda tx: tx.tasks.page()),
        lambda: asyncio.run(dying.write(CreateTask())),
        lambda: asyncio.run(dying.read(lambda tx: tx.tasks.page())),
        lambda: asyncio.run(dying.wait_for("runs", 0)),
        dying.verify,
        dying.held_why,
        dying.accept,
        lambda: dying.backup("/nowhere"),
    ):
        with pytest.raises(Crashed):
            attempt()
    dying.close()

    assert store.read_now(lambda tx: tx.tasks.page()) == []


def test_no_except_clause_of_a_write_saves_it_from_its_death(store: Store) -> None:
    def stubborn(tx: Tx) -> str:
        for number in range(5):
            try:
                tx.boots.set_fact(f"fact {number}", "x")
            except Exception:  # noqa: BLE001 - that is what is tested
                continue
        return "survived"

    with pytest.raises(Crashed):
        FailingStore(store, [inside(2)]).write_now(stubborn)

    assert store.read_now(lambda tx: tx.boots.fact("fact 0")) is None
    assert store.read_now(lambda tx: tx.boots.fact("fact 4")) is None


def test_only_the_planned_call_dies(store: Store) -> None:
    dying = FailingStore(store, [Failpoint(call=3, where="before")])
    writes = [CreateTask() for _ in range(3)]

    dying.write_now(writes[0])
    dying.write_now(writes[1])
    with pytest.raises(Crashed):
        dying.write_now(writes[2])

    kept = store.read_now(lambda tx: tx.tasks.get_many([write.task.id for write in writes]))
    assert set(kept) == {writes[0].task.id, writes[1].task.id}


def test_a_write_that_fails_by_itself_fails_as_without_failpoints(store: Store) -> None:
    run, _ = running_run(store)

    with pytest.raises(ClaimLost):
        FailingStore(store).write_now(saving_step(a_step(run), 99, CLOSED))


def test_in_a_crowd_everybody_dies_with_the_one(store: Store) -> None:
    async def scenario() -> list[object]:
        dying = FailingStore(store, [inside(2, call=20)])
        writes = [dying.write(CreateTask()) for _ in range(40)]
        return list(await asyncio.gather(*writes, return_exceptions=True))

    answers = asyncio.run(scenario())

    # No caller that waited at that moment was told anything but the crash, and what is kept is whole.
    assert any(isinstance(answer, Crashed) for answer in answers)
    told = {answer for answer in answers if isinstance(answer, str)}
    kept = {task.id for task in store.read_now(lambda tx: tx.tasks.page(limit=100))}
    assert told <= kept
    assert len(kept) < 40
    assert store.verify() == []


def test_an_action_that_returns_lets_the_scenario_go_on(store: Store) -> None:
    write, seen = CreateTask(), []
    watched = FailingStore(
        store,
        [BEFORE, inside(1), inside(3), AFTER],
        act=lambda: seen.append(len(seen)),
    )

    assert watched.write_now(write) == write.task.id

    assert seen == [0, 1, 2, 3]
    assert not watched.is_dead
    assert store.read_now(lambda tx: tx.tasks.get(write.task.id)) == write.task


def test_another_process_can_interfere_at_a_failpoint(store: Store) -> None:
    run, claim = running_run(store)
    rob = FailingStore(
        store, [BEFORE], act=lambda: store.write_now(lambda tx: tx.runs.pause([run.id], now=START))
    )

    with pytest.raises(ClaimLost):
        rob.write_now(saving_step(a_step(run), claim.fence, CLOSED))


def test_every_point_of_a_write_is_survived_by_running_it_again(store: Store) -> None:
    recording = FailingStore(store)
    recording.write_now(CreateTask())

    for point in recording.failpoints():
        write = CreateTask()
        with pytest.raises(Crashed):
            FailingStore(store, [point]).write_now(write)
        assert store.write_now(write) == write.task.id

    tasks = 1 + len(recording.failpoints())
    assert store.read_now(lambda tx: tx.events.counts("run")) == {"queued": tasks}
    assert len(store.read_now(lambda tx: tx.events.after(limit=100))) == tasks
    assert store.verify() == []


# --- with a real process

KILLED = """
import os, signal, sys
from pathlib import Path
from holdfast.store.sqlite import SqliteStore
from holdfast.testing import FailingStore, Failpoint, FakeClock

path, where, statement = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
store = FailingStore(
    SqliteStore(path, clock=FakeClock()),
    [Failpoint(call=2, where=where, statement=statement)],
    act=lambda: os.kill(os.getpid(), signal.SIGKILL),
)

def write(value):
    def set_two(tx):
        tx.boots.set_fact("first", value)
        tx.boots.set_fact("second", value)
    return set_two

store.write_now(write("old"))
store.write_now(write("new"))
print("still alive")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "statement", "kept"),
    [("before", 0, "old"), ("inside", 1, "old"), ("inside", 2, "old"), ("after", 0, "new")],
)
def test_a_process_that_kills_itself_at_a_failpoint_leaves_the_ledger_whole(
    tmp_path: Path, where: str, statement: int, kept: str
) -> None:
    path = tmp_path / "ledger.db"

    died = subprocess.run(
        [sys.executable, "-c", KILLED, str(path), where, str(statement)],
        capture_output=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "src")},
    )

    assert (died.returncode, died.stdout) == (-signal.SIGKILL, b""), died.stderr.decode()
    store = SqliteStore(path, clock=FakeClock())
    facts = store.read_now(lambda tx: (tx.boots.fact("first"), tx.boots.fact("second")))
    store.close()
    assert facts == (kept, kept)
