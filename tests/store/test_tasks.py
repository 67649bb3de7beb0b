"""Tasks: what someone asked for, kept under one id, found again by prefix, page and dedup key."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.core.errors import AmbiguousId, BadInput, KeyConflict, NotFound
from holdfast.core.ids import TaskId
from holdfast.core.payload import digest_of
from holdfast.core.redaction import hide_name, redact_json, redact_text
from holdfast.core.run import RunOutcome
from holdfast.core.task import NotifyPolicy, Origin, Progress, RuntimeName, Task
from holdfast.core.transitions import EffectStatus, RunStatus, TaskStatus
from holdfast.store import Store, Tx
from holdfast.store.blobs import INLINE_BYTES, pack
from holdfast.store.sealing import CLOSED
from holdfast.store.tasks import LAST, KeyedRequest
from holdfast.testing import FakeClock, contents_of
from tests.builders import (
    FAILURE,
    START,
    a_run,
    a_step,
    a_task,
    an_effect,
    later,
    put,
    running_run,
    write,
)
from tests.engine.tables import dump, execute, literal
from tests.store.program_records import a_delta, large, leave_everything

DONE = RunOutcome(status=RunStatus.SUCCEEDED, result=b'"done"')


def create(store: Store, *tasks: Task) -> None:
    store.write_now(lambda tx: [tx.tasks.create(task) for task in tasks])


def move(store: Store, task: Task, to: TaskStatus, *, at_s: int = 0) -> None:
    store.write_now(lambda tx: tx.tasks.move(tx.tasks.lock(task.id), to, now=later(seconds=at_s)))


def ids(tasks: list[Task]) -> list[str]:
    return [task.id for task in tasks]


# --- create and get


def test_a_task_is_read_back_as_it_was_written(store: Store) -> None:
    task = a_task(
        origin=Origin(channel="console", peer="ada", account_id="a1", thread="t"),
        session_key="agent:scholar:main",
        parent_task_id="task_parent",
        flow_id="flow_x",
        dedup_key="tides",
        notify=NotifyPolicy.STATE_CHANGES,
        runtime=RuntimeName.MEDIA,
        goal="Gezeiten verstehen — 潮汐 🌊\n\tin detail",
        arguments=b'{"z":1,"a":[2,1]}',
        priority=2,
        progress=Progress(done=1, total=3, subtask="read"),
    )

    kept, is_new = store.write_now(lambda tx: tx.tasks.create(task))

    assert is_new
    assert kept == task
    assert store.read_now(lambda tx: tx.tasks.get(task.id)) == task


def test_a_task_that_was_never_created_is_not_found(store: Store) -> None:
    with pytest.raises(NotFound) as error:
        store.read_now(lambda tx: tx.tasks.get("task_nothing"))

    assert error.value.record_id == "task_nothing"


def test_several_tasks_are_read_at_once_and_the_unknown_are_missing(store: Store) -> None:
    one, two, three = a_task(), a_task(), a_task()
    create(store, one, two, three)

    found = store.read_now(lambda tx: tx.tasks.get_many([one.id, "task_nothing", three.id]))

    assert found == {one.id: one, three.id: three}


def test_a_write_that_fails_leaves_no_trace_of_its_task(store: Store) -> None:
    task = a_task(dedup_key="tides")

    def fail(tx: Tx) -> None:
        tx.tasks.create(task)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.write_now(fail)

    assert store.read_now(lambda tx: tx.tasks.page()) == []
    assert store.read_now(lambda tx: tx.events.counts("task")) == {}
    _, is_new = store.write_now(lambda tx: tx.tasks.create(a_task(dedup_key="tides")))
    assert is_new


def test_creating_the_same_task_again_finds_it_as_it_stands(store: Store) -> None:
    task = a_task()
    create(store, task)
    store.write_now(lambda tx: tx.tasks.move(task, TaskStatus.RUNNING, now=START))

    kept, is_new = store.write_now(lambda tx: tx.tasks.create(task))

    assert not is_new
    assert kept.status is TaskStatus.RUNNING
    assert store.read_now(lambda tx: tx.events.counts("task")) == {"running": 1}


# --- ids and pages


def test_a_unique_prefix_finds_its_task(store: Store) -> None:
    one, two = a_task(id=TaskId("task_aa1")), a_task(id=TaskId("task_ab2"))
    create(store, one, two)

    assert store.read_now(lambda tx: tx.tasks.resolve("task_aa")) == one.id
    assert store.read_now(lambda tx: tx.tasks.resolve(two.id)) == two.id


def test_a_whole_id_that_is_also_the_beginning_of_another_finds_itself(store: Store) -> None:
    create(store, a_task(id=TaskId("task_aa")), a_task(id=TaskId("task_aab")))

    assert store.read_now(lambda tx: tx.tasks.resolve("task_aa")) == "task_aa"


def test_a_prefix_of_several_tasks_is_refused_and_names_them(store: Store) -> None:
    create(store, a_task(id=TaskId("task_aa1")), a_task(id=TaskId("task_aa2")))

    with pytest.raises(AmbiguousId) as error:
        store.read_now(lambda tx: tx.tasks.resolve("task_a"))

    assert error.value.matches == ["task_aa1", "task_aa2"]


def test_a_prefix_of_nothing_is_not_found(store: Store) -> None:
    with pytest.raises(NotFound):
        store.read_now(lambda tx: tx.tasks.resolve("task_x"))


@pytest.mark.parametrize("prefix", ["", "TASK_", "task_%", "task_' OR 1=1", "a\x00", "x" * 65, "task_é"])
def test_what_cannot_be_an_id_is_refused_before_it_reaches_the_database(store: Store, prefix: str) -> None:
    with pytest.raises(BadInput):
        store.read_now(lambda tx: tx.tasks.resolve(prefix))


def test_pages_show_the_newest_first_and_each_task_once(store: Store) -> None:
    tasks = [a_task(created_at=later(seconds=second)) for second in range(7)]
    create(store, *tasks)

    def page_before(token: str) -> list[Task]:
        return store.read_now(lambda tx: tx.tasks.page(before=token, limit=3))

    pages, before = [], LAST
    while page := page_before(before):
        pages.append(ids(page))
        before = page[-1].id

    assert [len(page) for page in pages] == [3, 3, 1]
    assert [task_id for page in pages for task_id in page] == [task.id for task in reversed(tasks)]


def test_a_task_created_while_a_reader_pages_moves_nothing(store: Store) -> None:
    tasks = [a_task(created_at=later(seconds=second)) for second in range(4)]
    create(store, *tasks)
    first = store.read_now(lambda tx: tx.tasks.page(limit=2))
    create(store, a_task(created_at=later(seconds=9)))

    second = store.read_now(lambda tx: tx.tasks.page(before=first[-1].id, limit=2))

    assert ids(second) == [tasks[1].id, tasks[0].id]


def test_pages_are_filtered_by_status_and_by_owner(store: Store) -> None:
    def at(second: int, owner: str, status: TaskStatus) -> Task:
        return a_task(created_at=later(seconds=second), owner=owner, status=status)

    queued, running = at(1, "ada", TaskStatus.QUEUED), at(2, "ada", TaskStatus.RUNNING)
    failed, hers = at(3, "ada", TaskStatus.FAILED), at(4, "grace", TaskStatus.RUNNING)
    create(store, queued, running, failed, hers)

    def page(*statuses: TaskStatus, owner: str | None = None, limit: int = 50) -> list[str]:
        return ids(store.read_now(lambda tx: tx.tasks.page(statuses=statuses, owner=owner, limit=limit)))

    assert page(TaskStatus.RUNNING) == [hers.id, running.id]
    assert page(owner="ada") == [failed.id, running.id, queued.id]
    assert page(TaskStatus.RUNNING, owner="ada") == [running.id]
    assert page(TaskStatus.QUEUED, TaskStatus.RUNNING, TaskStatus.FAILED) == [
        hers.id,
        failed.id,
        running.id,
        queued.id,
    ]
    assert page(TaskStatus.QUEUED, TaskStatus.RUNNING, limit=2) == [hers.id, running.id]
    assert page(TaskStatus.RUNNING, TaskStatus.RUNNING) == [hers.id, running.id]
    assert page(owner="nobody") == []


# --- dedup keys


def test_the_same_key_of_the_same_owner_finds_the_first_task(store: Store) -> None:
    first, second = a_task(dedup_key="tides"), a_task(dedup_key="tides")
    create(store, first)

    kept, is_new = store.write_now(lambda tx: tx.tasks.create(second))

    assert (kept, is_new) == (first, False)
    assert ids(store.read_now(lambda tx: tx.tasks.page())) == [first.id]
    assert store.read_now(lambda tx: tx.events.counts("task")) == {"queued": 1}


def test_two_tasks_with_one_key_in_one_write_are_one_task(store: Store) -> None:
    first, second = a_task(dedup_key="tides"), a_task(dedup_key="tides")

    answers = store.write_now(lambda tx: [tx.tasks.create(first), tx.tasks.create(second)])

    assert answers == [(first, True), (first, False)]


def test_owners_do_not_share_their_keys(store: Store) -> None:
    hers, his = a_task(owner="ada", dedup_key="tides"), a_task(owner="charles", dedup_key="tides")

    create(store, hers, his)

    assert set(ids(store.read_now(lambda tx: tx.tasks.page()))) == {hers.id, his.id}


@pytest.mark.parametrize(
    "change",
    [{"arguments": b'["moons"]'}, {"name": "another"}, {"runtime": RuntimeName.COMMAND}],
    ids=["arguments", "name", "runtime"],
)
def test_a_key_with_something_else_behind_it_is_a_conflict(store: Store, change: dict[str, object]) -> None:
    first, second = a_task(dedup_key="tides"), a_task(dedup_key="tides", **change)
    create(store, first)

    with pytest.raises(KeyConflict) as error:
        store.write_now(lambda tx: tx.tasks.create(second))

    assert error.value.task_id == first.id
    assert ids(store.read_now(lambda tx: tx.tasks.page())) == [first.id]


def test_a_key_with_another_goal_behind_it_is_a_conflict_that_says_so(store: Store) -> None:
    first, second = a_task(dedup_key="tides"), a_task(dedup_key="tides", goal="another")
    create(store, first)

    with pytest.raises(KeyConflict, match="another goal; use another key, or the same goal, or no goal"):
        store.write_now(lambda tx: tx.tasks.create(second, KeyedRequest(goal=second.goal)))

    assert ids(store.read_now(lambda tx: tx.tasks.page())) == [first.id]
    # What was only made up may be made up otherwise; and the same goal is the same task.
    assert store.write_now(lambda tx: tx.tasks.create(second))[0].id == first.id
    same = a_task(dedup_key="tides")
    assert store.write_now(lambda tx: tx.tasks.create(same, KeyedRequest(goal=same.goal)))[0].id == first.id


def test_goals_that_differ_only_in_a_secret_are_two_goals(store: Store) -> None:
    said = "log in with password=hunter21"
    first = a_task(dedup_key="tides", goal=redact_text(said))
    store.write_now(lambda tx: tx.tasks.create(first, KeyedRequest(goal=said)))
    again, other = (a_task(dedup_key="tides", goal=first.goal) for _ in range(2))

    assert store.write_now(lambda tx: tx.tasks.create(again, KeyedRequest(goal=said)))[0].id == first.id
    with pytest.raises(KeyConflict, match="another goal"):
        store.write_now(lambda tx: tx.tasks.create(other, KeyedRequest(goal="log in with password=hunter22")))


@pytest.mark.parametrize("is_hidden", [True, False])
def test_a_key_is_found_by_a_process_that_takes_something_else_for_a_secret(
    store: Store, *, is_hidden: bool
) -> None:
    forms = ["import harbour", hide_name("import harbour")]
    before, now = forms[::-1] if is_hidden else forms
    first, second = a_task(dedup_key=before), a_task(dedup_key=now)
    create(store, first)

    found, is_new = store.write_now(lambda tx: tx.tasks.create(second, KeyedRequest(key="import harbour")))

    assert (found.id, is_new) == (first.id, False)


def test_a_key_of_an_older_release_is_found_with_any_goal_and_redacted_arguments(store: Store) -> None:
    given = msgspec.json.encode({"password": "hunter2!"})
    first = a_task(dedup_key="tides", arguments=redact_json(given))
    create(store, first)
    # As it was written: without the goal.
    old = digest_of(first.runtime.value, first.name, first.arguments)
    execute(store, f"UPDATE dedup_keys SET arguments_digest = {literal(store, old)}")

    again, is_new = store.write_now(
        lambda tx: tx.tasks.create(a_task(dedup_key="tides", arguments=given), KeyedRequest(goal="any"))
    )

    assert (again.id, is_new) == (first.id, False)


def test_a_key_finds_its_task_also_after_it_has_ended(store: Store) -> None:
    first = a_task(dedup_key="tides", status=TaskStatus.FAILED, failure=FAILURE)
    create(store, first)

    kept, is_new = store.write_now(lambda tx: tx.tasks.create(a_task(dedup_key="tides")))

    assert (kept, is_new) == (first, False)


def prune(store: Store, clock: FakeClock) -> list[str]:
    """What retention does: everything of the ended tasks whose time is over."""

    def work(tx: Tx) -> list[str]:
        ended = tx.tasks.to_prune(now=clock.now(), limit=100)
        gone = [task_id for task_id, _, _ in ended]
        tx.blobs.stop_using(gone)
        tx.journal.delete_of_tasks(gone)
        tx.checkpoints.delete_of_tasks(gone)
        tx.runs.delete_of_tasks(gone)
        tx.tasks.delete(ended, keys_expire_at=later(days=90))
        return gone

    return store.write_now(work)


def test_a_key_whose_task_was_pruned_still_knows_how_it_ended(store: Store, clock: FakeClock) -> None:
    first = a_task(dedup_key="tides", status=TaskStatus.SUCCEEDED, result=b"1", cleanup_after=START)
    create(store, first)
    assert prune(store, clock) == [first.id]

    kept, is_new = store.write_now(lambda tx: tx.tasks.create(a_task(dedup_key="tides")))

    assert not is_new
    assert kept.id == first.id
    assert kept.status is TaskStatus.SUCCEEDED
    assert kept.failure is not None
    assert kept.failure.kind == "pruned"
    with pytest.raises(NotFound):
        store.read_now(lambda tx: tx.tasks.get(first.id))


def test_nothing_stays_of_a_pruned_task_but_its_key(store: Store, clock: FakeClock) -> None:
    task = a_task(dedup_key="tides", status=TaskStatus.SUCCEEDED, cleanup_after=START)
    run = a_run(task, status=RunStatus.SUCCEEDED)

    def live(tx: Tx) -> None:
        put(tx, task, run)
        tx.journal.put_step(a_step(run))
        leave_everything(tx, run)
        tx.lists.append(a_delta(run, 2, items=large()))
        tx.effects.create(an_effect(task_id=task.id, status=EffectStatus.DONE))

    store.write_now(live)
    assert prune(store, clock) == [task.id]

    left = {table for table, rows in dump(store).items() if task.id in repr(rows)}
    assert left == {"dedup_keys"}
    assert store.read_now(contents_of)["blobs"] == []


def test_the_children_of_a_task_are_found_and_those_of_others_are_not(store: Store) -> None:
    parent, other = a_task(), a_task()
    children = [
        a_task(id=TaskId(f"task_child_{place}"), parent_task_id=parent.id, status=status)
        for place, status in enumerate((TaskStatus.QUEUED, TaskStatus.SUCCEEDED, TaskStatus.WAITING))
    ]
    create(store, parent, other, a_task(parent_task_id=other.id), *reversed(children))

    assert store.read_now(lambda tx: tx.tasks.children(parent.id)) == children
    assert store.read_now(lambda tx: tx.tasks.children(parent.id, only_alive=True)) == [
        children[0],
        children[2],
    ]
    assert store.read_now(lambda tx: tx.tasks.children(children[0].id)) == []


def test_pruning_the_same_tasks_again_takes_nothing_from_their_tombstones(
    store: Store, clock: FakeClock
) -> None:
    first = a_task(dedup_key="tides", status=TaskStatus.SUCCEEDED, cleanup_after=START)
    create(store, first)
    seen_by_two = store.write_now(lambda tx: tx.tasks.to_prune(now=START, limit=100))
    prune(store, clock)

    store.write_now(lambda tx: tx.tasks.delete(seen_by_two, keys_expire_at=later(days=90)))

    kept, _ = store.write_now(lambda tx: tx.tasks.create(a_task(dedup_key="tides")))
    assert kept.status is TaskStatus.SUCCEEDED
    assert store.read_now(lambda tx: tx.events.counts("task")) == {}


def test_a_key_is_free_again_when_its_tombstone_has_expired(store: Store, clock: FakeClock) -> None:
    first = a_task(dedup_key="tides", status=TaskStatus.SUCCEEDED, cleanup_after=START)
    create(store, first)
    prune(store, clock)
    store.write_now(lambda tx: tx.tasks.forget_keys(now=later(days=89)))
    assert not store.write_now(lambda tx: tx.tasks.create(a_task(dedup_key="tides")))[1]

    store.write_now(lambda tx: tx.tasks.forget_keys(now=later(days=90)))

    second = a_task(dedup_key="tides", arguments=b'["moons"]')
    assert store.write_now(lambda tx: tx.tasks.create(second)) == (second, True)


# --- cancel and progress


def test_the_first_cancel_stays_with_its_reason(store: Store, clock: FakeClock) -> None:
    task = a_task()
    create(store, task)
    assert store.write_now(lambda tx: tx.tasks.request_cancel(task.id, "first", now=START))

    clock.advance(minutes=1)
    again = store.write_now(lambda tx: tx.tasks.request_cancel(task.id, "second", now=clock.now()))

    kept = store.read_now(lambda tx: tx.tasks.get(task.id))
    assert not again
    assert (kept.cancel_reason, kept.cancel_requested_at) == ("first", START)
    assert kept.status is TaskStatus.QUEUED


def test_a_cancel_survives_every_move_of_its_task(store: Store) -> None:
    task = a_task()
    create(store, task)
    store.write_now(lambda tx: tx.tasks.request_cancel(task.id, "enough", now=START))

    for to in (TaskStatus.RUNNING, TaskStatus.PAUSED, TaskStatus.QUEUED):
        move(store, task, to)

    assert store.read_now(lambda tx: tx.tasks.cancels_requested([task.id, "task_nothing"])) == {task.id}


@pytest.mark.parametrize("status", [TaskStatus.SUCCEEDED, TaskStatus.FAILED, TaskStatus.LOST])
def test_a_task_that_has_ended_takes_no_cancel(store: Store, status: TaskStatus) -> None:
    task = a_task(status=status)
    create(store, task)

    assert not store.write_now(lambda tx: tx.tasks.request_cancel(task.id, "late", now=START))
    assert store.read_now(lambda tx: tx.tasks.get(task.id)) == task


def test_only_the_holder_of_its_run_says_how_far_a_task_is(store: Store) -> None:
    run, claim = running_run(store)
    progress = Progress(done=2, total=5, failed=1, subtask="read")

    def say(run_id: str, fence: int) -> bool:
        return write(
            store,
            lambda tx: tx.tasks.save_progress(claim.task_id, run_id, fence, progress, now=later(seconds=1)),
        )

    assert not say(run.id, claim.fence + 1)
    assert not say(run.id, claim.fence - 1)
    assert not say("run_nothing", claim.fence)
    assert store.read_now(lambda tx: tx.tasks.get(claim.task_id)).progress is None
    assert say(run.id, claim.fence)
    assert store.read_now(lambda tx: tx.tasks.get(claim.task_id)).progress == progress


def test_the_holder_of_one_run_says_nothing_about_another_task(store: Store) -> None:
    mine, _ = running_run(store)
    other, _ = running_run(store)

    said = store.write_now(
        lambda tx: tx.tasks.save_progress(other.task_id, mine.id, mine.fence, Progress(done=9), now=START)
    )

    assert not said
    assert store.read_now(lambda tx: tx.tasks.get(other.task_id)).progress is None


def test_a_holder_that_ended_its_run_says_nothing_more(store: Store) -> None:
    run, claim = running_run(store)
    store.write_now(lambda tx: tx.runs.end(run.id, claim.fence, RunStatus.SUCCEEDED, failure=None, now=START))

    assert not store.write_now(
        lambda tx: tx.tasks.save_progress(run.task_id, run.id, claim.fence, Progress(done=9), now=START)
    )


# --- moves, ends and the way back


def test_a_task_remembers_when_it_first_ran(store: Store) -> None:
    task = a_task()
    create(store, task)

    for second, to in enumerate((TaskStatus.RUNNING, TaskStatus.QUEUED, TaskStatus.RUNNING), start=1):
        move(store, task, to, at_s=second)

    assert store.read_now(lambda tx: tx.tasks.get(task.id)).started_at == later(seconds=1)


def test_a_task_that_waits_names_what_it_waits_for_until_it_moves_on(store: Store) -> None:
    task = a_task(status=TaskStatus.RUNNING)
    create(store, task)

    store.write_now(lambda tx: tx.tasks.move(task, TaskStatus.WAITING, now=START, waits_on="an answer"))
    waiting = store.read_now(lambda tx: tx.tasks.get(task.id))
    store.write_now(lambda tx: tx.tasks.move(waiting, TaskStatus.QUEUED, now=START))

    assert waiting.waits_on == "an answer"
    assert store.read_now(lambda tx: tx.tasks.get(task.id)).waits_on is None


def test_several_tasks_move_together_and_those_in_another_status_stay(store: Store) -> None:
    running = [a_task(status=TaskStatus.RUNNING) for _ in range(3)]
    queued, failed = a_task(), a_task(status=TaskStatus.FAILED)
    create(store, *running, queued, failed)
    everyone = [task.id for task in (*running, queued, failed)]

    moved = store.write_now(
        lambda tx: tx.tasks.move_many(
            everyone, TaskStatus.RUNNING, TaskStatus.PAUSED, now=START, waits_on="resume"
        )
    )

    assert moved == 3
    assert store.read_now(lambda tx: tx.tasks.get(queued.id)) == queued
    assert store.read_now(lambda tx: tx.tasks.get(failed.id)) == failed
    assert store.read_now(lambda tx: tx.events.counts("task")) == {"failed": 1, "paused": 3, "queued": 1}


def test_a_task_ends_once_with_its_result(store: Store) -> None:
    task = a_task(status=TaskStatus.RUNNING, waits_on="x")
    create(store, task)

    def end(to: TaskStatus, outcome: RunOutcome) -> bool:
        return write(
            store,
            lambda tx: tx.tasks.end(
                tx.tasks.lock(task.id), to, outcome, now=later(seconds=1), cleanup_after=later(days=1)
            ),
        )

    assert end(TaskStatus.SUCCEEDED, DONE)
    assert not end(TaskStatus.FAILED, RunOutcome(status=RunStatus.FAILED, failure=FAILURE))
    kept = store.read_now(lambda tx: tx.tasks.get(task.id))
    assert (kept.status, kept.result, kept.failure) == (TaskStatus.SUCCEEDED, b'"done"', None)
    assert (kept.ended_at, kept.cleanup_after, kept.waits_on) == (later(seconds=1), later(days=1), None)


def test_an_end_decided_on_an_old_reading_is_refused(store: Store) -> None:
    task = a_task()
    create(store, task)
    store.write_now(lambda tx: tx.tasks.move(task, TaskStatus.RUNNING, now=START))

    ended = store.write_now(
        lambda tx: tx.tasks.end(
            task, TaskStatus.FAILED, RunOutcome(status=RunStatus.FAILED), now=START, cleanup_after=START
        )
    )

    assert not ended
    assert store.read_now(lambda tx: tx.tasks.get(task.id)).status is TaskStatus.RUNNING


def test_a_failed_task_that_a_person_reopens_is_alive_again(store: Store) -> None:
    task = a_task(status=TaskStatus.FAILED, failure=FAILURE, cleanup_after=later(days=1))
    create(store, task)

    assert store.write_now(lambda tx: tx.tasks.reopen(task, now=later(seconds=1), waits_on="resume"))

    kept = store.read_now(lambda tx: tx.tasks.get(task.id))
    assert (kept.status, kept.waits_on) == (TaskStatus.PAUSED, "resume")
    assert (kept.failure, kept.ended_at, kept.cleanup_after) == (None, None, None)


# --- retention


def test_only_ended_tasks_whose_time_is_over_are_pruned_oldest_first(store: Store) -> None:
    def ended(cleanup_s: int) -> Task:
        return a_task(status=TaskStatus.SUCCEEDED, cleanup_after=later(seconds=cleanup_s))

    late, early, fresh, alive = ended(5), ended(1), ended(100), a_task()
    create(store, late, early, fresh, alive)

    found = store.write_now(lambda tx: tx.tasks.to_prune(now=later(seconds=5), limit=100))
    one = store.write_now(lambda tx: tx.tasks.to_prune(now=later(seconds=5), limit=1))

    assert [task_id for task_id, _, _ in found] == [early.id, late.id]
    assert one == [(early.id, TaskStatus.SUCCEEDED, "ada")]


def test_pruning_takes_a_task_with_everything_that_hangs_on_it(store: Store, clock: FakeClock) -> None:
    packed = pack(b'"' + b"x" * INLINE_BYTES + b'"', CLOSED)
    task = a_task(
        status=TaskStatus.SUCCEEDED, cleanup_after=START, arguments=packed.stored, dedup_key="tides"
    )
    other = a_task(arguments=packed.stored)
    run = a_run(task, status=RunStatus.SUCCEEDED)

    def arrange(tx: Tx) -> None:
        put(tx, task, run)
        put(tx, other, a_run(other))
        tx.blobs.keep(task.id, packed)
        tx.blobs.keep(other.id, packed)

    store.write_now(arrange)
    prune(store, clock)

    assert ids(store.read_now(lambda tx: tx.tasks.page())) == [other.id]
    assert store.read_now(lambda tx: tx.runs.of_task(task.id)) == []
    assert store.read_now(lambda tx: tx.events.counts("run")) == {"queued": 1}
    assert store.read_now(lambda tx: tx.events.counts("task")) == {"queued": 1}
    # The other task still needs the blob.
    assert store.read_now(lambda tx: len(tx.blobs.open(other.arguments))) == INLINE_BYTES + 2
    assert store.verify() == []


def test_a_blob_goes_with_the_last_task_that_needed_it(store: Store, clock: FakeClock) -> None:
    packed = pack(b'"' + b"x" * INLINE_BYTES + b'"', CLOSED)
    assert packed.digest is not None
    tasks = [a_task(status=TaskStatus.SUCCEEDED, cleanup_after=START) for _ in range(2)]
    create(store, *tasks)
    store.write_now(lambda tx: [tx.blobs.keep(task.id, packed) for task in tasks])

    prune(store, clock)

    assert store.read_now(lambda tx: tx.statements.one("get_blob", {"digest": packed.digest})) is None


def test_a_large_payload_is_kept_once_and_comes_back_whole(store: Store) -> None:
    payload = msgspec.json.encode(["tides 🌊"] * 5000)
    packed = pack(payload, CLOSED)
    one, two = a_task(arguments=packed.stored), a_task(arguments=packed.stored)
    create(store, one, two)

    store.write_now(lambda tx: [tx.blobs.keep(task.id, packed) for task in (one, two)])

    assert len(packed.stored) < 100
    kept = store.read_now(lambda tx: tx.tasks.get(one.id))
    assert store.read_now(lambda tx: tx.blobs.open(kept.arguments)) == payload
    assert len(store.read_now(lambda tx: tx.statements.all("scan_blobs", {"after0": "", "limit": 9}))) == 1
