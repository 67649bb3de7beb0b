"""Events and counts: the feed in the order of the commits, and counts that need no scan."""

from __future__ import annotations

import random

import pytest

from holdfast.core.errors import BadInput, FeedGap
from holdfast.core.events import Event, EventKind
from holdfast.core.run import Queue, RunOutcome
from holdfast.core.task import Task
from holdfast.core.transitions import RunStatus, TaskStatus
from holdfast.store import Store, Tx
from holdfast.testing import FakeClock
from tests.builders import BOOT, FAILURE, LEASE, START, a_checkpoint, a_run, a_task, later, unique


def emit(store: Store, *subjects: str, at_s: float = 0, task_id: str | None = "task_x") -> None:
    def write(tx: Tx) -> None:
        for subject in subjects:
            tx.emit(EventKind.RUN_WOKEN, subject, at=later(seconds=at_s), task_id=task_id)

    store.write_now(write)


def feed(store: Store, after: str = "0.0", limit: int = 100) -> list[Event]:
    return store.read_now(lambda tx: tx.events.after(after, limit=limit))


def subjects(events: list[Event]) -> list[str]:
    return [event.subject_id for event in events]


def test_an_event_is_read_back_as_it_was_emitted(store: Store) -> None:
    store.write_now(
        lambda tx: tx.emit(
            EventKind.TASK_ENDED,
            "task_x",
            at=later(seconds=1),
            task_id="task_x",
            status="failed",
            attempts=3,
            words=["Ebbe", "🌊"],
        )
    )

    (event,) = feed(store)

    assert (event.kind, event.subject_id, event.task_id) == (EventKind.TASK_ENDED, "task_x", "task_x")
    assert event.at == later(seconds=1)
    assert event.facts == {"status": "failed", "attempts": 3, "words": ["Ebbe", "🌊"]}


def test_the_feed_is_in_the_order_of_the_commits(store: Store) -> None:
    emit(store, "one", "two", at_s=9)
    emit(store, "three", at_s=1)
    emit(store, "four")

    assert subjects(feed(store)) == ["one", "two", "three", "four"]


def test_a_follower_goes_on_from_its_position_and_misses_nothing(store: Store) -> None:
    for number in range(7):
        emit(store, f"subject {number}")

    seen, position = [], "0.0"
    while page := feed(store, position, limit=3):
        seen.extend(subjects(page))
        position = page[-1].position
    emit(store, "subject 7")

    assert seen == [f"subject {number}" for number in range(7)]
    assert subjects(feed(store, position)) == ["subject 7"]


def test_a_write_that_fails_has_no_event(store: Store) -> None:
    def fail(tx: Tx) -> None:
        tx.emit(EventKind.RUN_WOKEN, "never", at=START)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.write_now(fail)
    emit(store, "after")

    assert subjects(feed(store)) == ["after"]


def test_the_events_of_one_task_are_in_order_and_go_on_from_a_position(store: Store) -> None:
    emit(store, "one", task_id="task_a")
    emit(store, "other", task_id="task_b")
    emit(store, "two", task_id="task_a")
    emit(store, "nobody", task_id=None)

    def of_task(position: str = "0.0", limit: int = 10) -> list[Event]:
        return store.read_now(lambda tx: tx.events.of_task("task_a", position, limit=limit))

    assert subjects(of_task()) == ["one", "two"]
    assert subjects(of_task(limit=1)) == ["one"]
    assert subjects(of_task(of_task()[0].position)) == ["two"]


def test_the_end_of_the_feed_shows_the_oldest_of_it_first(store: Store) -> None:
    for number in range(4):
        emit(store, f"subject {number}")

    assert subjects(store.read_now(lambda tx: tx.events.newest(limit=2))) == ["subject 2", "subject 3"]


@pytest.mark.parametrize(
    "position", ["", "7", "0.x", "-1.0", "0.0; DROP TABLE", None, 5, "0.1234567890123456789"]
)
def test_what_is_no_position_is_refused(store: Store, position: object) -> None:
    with pytest.raises(BadInput):
        store.read_now(lambda tx: tx.events.after(position))  # type: ignore[arg-type]


# --- retention


def test_a_follower_behind_pruned_events_is_told_about_the_gap(store: Store) -> None:
    for second in range(5):
        emit(store, f"subject {second}", at_s=second)
    events = feed(store)

    assert store.write_now(lambda tx: tx.events.prune(older_than=later(seconds=2))) == 3

    with pytest.raises(FeedGap) as error:
        feed(store, events[0].position)
    assert error.value.oldest == events[3].position
    with pytest.raises(FeedGap):
        feed(store, events[1].position)
    # It has seen the last one that is gone, so it missed nothing.
    assert subjects(feed(store, events[2].position)) == ["subject 3", "subject 4"]
    assert subjects(feed(store)) == ["subject 3", "subject 4"]


def test_a_gap_is_remembered_when_nothing_is_left(store: Store) -> None:
    emit(store, "one")
    emit(store, "two")
    first, second = feed(store)
    store.write_now(lambda tx: tx.events.prune(older_than=later(days=1)))

    with pytest.raises(FeedGap):
        feed(store, first.position)

    assert feed(store, second.position) == []
    emit(store, "three")
    assert subjects(feed(store, second.position)) == ["three"]


def test_pruning_is_bounded_and_takes_the_oldest_first(store: Store) -> None:
    for second in range(5):
        emit(store, f"subject {second}", at_s=second)

    assert store.write_now(lambda tx: tx.events.prune(older_than=later(days=1), limit=2)) == 2
    assert subjects(feed(store)) == ["subject 2", "subject 3", "subject 4"]
    assert store.write_now(lambda tx: tx.events.prune(older_than=later(seconds=-1))) == 0


# --- counts


def test_counts_know_only_the_statuses_that_a_task_is_in(store: Store) -> None:
    assert store.read_now(lambda tx: tx.events.counts("task")) == {}

    task = a_task()
    store.write_now(lambda tx: tx.tasks.create(task))
    store.write_now(lambda tx: tx.tasks.move(task, TaskStatus.RUNNING, now=START))

    assert store.read_now(lambda tx: tx.events.counts("task")) == {"running": 1}


def kept_counts(store: Store, noun: str) -> dict[str, int]:
    return store.read_now(lambda tx: tx.events.counts(noun))


def scanned_counts(store: Store, noun: str) -> dict[str, int]:
    return store.read_now(lambda tx: {row[0]: row[1] for row in tx.statements.all(f"count_{noun}s", {})})


def test_counts_follow_every_move_of_a_random_walk(store: Store, clock: FakeClock) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)

    for _ in range(150):
        store.write_now(lambda tx: step(tx, chance, clock))
        clock.advance(seconds=1)

    for noun in ("task", "runtime", "run", "checkpoint"):
        assert kept_counts(store, noun) == scanned_counts(store, noun)
    assert store.verify() == []


def step(tx: Tx, chance: random.Random, clock: FakeClock) -> None:
    """Something that an engine might do to some task; a third of it is refused by the guards."""
    now = clock.now()
    tasks = tx.tasks.page(limit=20)
    if len(tasks) < 5 or chance.random() < 0.2:
        task = a_task(created_at=now)
        tx.tasks.create(task)
        tx.runs.create(a_run(task, created_at=now))
        return
    task = chance.choice(tasks)
    run = tx.runs.live_of_task(task.id)
    match chance.randrange(9):
        case 0:
            tx.runs.claim_ready(
                boot_id=BOOT, token=unique(), names=None, limit=chance.randrange(4), now=now, lease=LEASE
            )
        case 1 if run is not None:
            tx.runs.release(run.id, run.fence, due_at=now, queue=Queue.READY, now=now)
        case 2 if run is not None:
            tx.runs.wait(run.id, run.fence, waits_on="luck", due_at=now, now=now)
        case 3 if run is not None:
            tx.runs.wake(run.id, now=now)
        case 4 if run is not None:
            tx.runs.end(run.id, run.fence - chance.randrange(2), RunStatus.SUCCEEDED, failure=None, now=now)
        case 5 if run is not None and run.status is RunStatus.RUNNING:
            tx.checkpoints.create_many([a_checkpoint(run, created_at=now)])
            tx.runs.pause([run.id], now=now)
        case 6:
            for checkpoint in tx.checkpoints.claim(
                boot_id=BOOT, token=unique(), limit=2, now=now, lease=LEASE
            ):
                tx.runs.set_resuming([checkpoint.run_id], now=now)
                settle(tx, chance, checkpoint.id, now=clock)
        case 7:
            tx.tasks.move(task, chance.choice(list(TaskStatus)[:5]), now=now)
        case _:
            forget(tx, task, clock)


def settle(tx: Tx, chance: random.Random, checkpoint_id: str, *, now: FakeClock) -> None:
    checkpoint = tx.checkpoints.get(checkpoint_id)
    run = tx.runs.get(checkpoint.run_id)
    if chance.random() < 0.3:
        tx.checkpoints.return_claimed([checkpoint.id], now=now.now())
        tx.runs.set_paused_again([run.id], now=now.now())
    elif chance.random() < 0.3:
        tx.checkpoints.set_failed(checkpoint, FAILURE, now=now.now())
        tx.runs.set_failed_resume(run, FAILURE, now=now.now())
    else:
        tx.runs.set_resumed([run.id], now=now.now())
        task = tx.tasks.get(run.task_id)
        next_run = a_run(task, number=run.number + 1, resumes_run_id=run.id, created_at=now.now())
        tx.runs.create(next_run)
        tx.checkpoints.set_resumed(
            [(checkpoint.id, next_run.id, None)], checkpoint.token or "", now=now.now()
        )


def forget(tx: Tx, task: Task, clock: FakeClock) -> None:
    """End a task, and prune what ended."""
    now = clock.now()
    run = tx.runs.live_of_task(task.id)
    if run is not None:
        tx.runs.end_idle(run, RunStatus.CANCELLED, failure=None, now=now)
    tx.tasks.end(
        task, TaskStatus.CANCELLED, RunOutcome(status=RunStatus.CANCELLED), now=now, cleanup_after=now
    )
    gone = [one for one in tx.tasks.to_prune(now=now, limit=1) if tx.runs.live_of_task(one[0]) is None]
    for delete in (tx.journal.delete_of_tasks, tx.checkpoints.delete_of_tasks, tx.runs.delete_of_tasks):
        delete([task_id for task_id, _, _ in gone])
    tx.tasks.delete(gone, keys_expire_at=now)
