"""A write that runs again after its own commit changes nothing: so a lost answer can be asked for again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from holdfast.core.delivery import Delivery
from holdfast.core.errors import IllegalMove, RevisionMismatch
from holdfast.core.events import EventKind
from holdfast.core.ids import new_run_id
from holdfast.core.run import Queue, RunOutcome
from holdfast.core.session import Session
from holdfast.core.task import Progress, Task
from holdfast.core.transitions import (
    CheckpointStatus,
    DeliveryStatus,
    EffectStatus,
    FiringStatus,
    FlowStatus,
    RunStatus,
    TaskStatus,
)
from holdfast.store import Store, Tx
from holdfast.store.blobs import INLINE_BYTES, pack
from holdfast.store.journal import saving_step
from holdfast.store.sealing import CLOSED
from holdfast.testing import RepeatingStore, contents_of
from tests.builders import (
    BOOT,
    FAILURE,
    LEASE,
    START,
    a_boot,
    a_checkpoint,
    a_delivery,
    a_firing,
    a_flow,
    a_message,
    a_note,
    a_run,
    a_session,
    a_step,
    a_task,
    a_wake,
    an_artifact,
    an_effect,
    later,
    plan_of,
    put,
    running_run,
    stored_checkpoint,
    stored_run,
)
from tests.store.program_records import a_delta, a_question, a_turn, a_value, large, leave_everything, send

Write = Callable[[Tx], object]

LATER = later(seconds=1)
OVER = RunOutcome(status=RunStatus.FAILED, failure=FAILURE)

# --- what is run twice: each arranges its ledger and returns the write


def create_task(store: Store) -> Write:
    task = a_task(dedup_key="tides")
    return lambda tx: tx.tasks.create(task)


def move_task(store: Store) -> Write:
    task = stored_task(store)
    return lambda tx: tx.tasks.move(task, TaskStatus.RUNNING, now=LATER)


def move_tasks(store: Store) -> Write:
    ids = [stored_task(store).id for _ in range(3)]
    return lambda tx: tx.tasks.move_many(ids, TaskStatus.QUEUED, TaskStatus.RUNNING, now=LATER)


def end_task(store: Store) -> Write:
    task = stored_task(store)
    return lambda tx: tx.tasks.end(task, TaskStatus.FAILED, OVER, now=LATER, cleanup_after=LATER)


def reopen_task(store: Store) -> Write:
    task = a_task(status=TaskStatus.FAILED)
    store.write_now(lambda tx: tx.tasks.create(task))
    return lambda tx: tx.tasks.reopen(task, now=LATER, waits_on="resume")


def go_on_with_task(store: Store) -> Write:
    task = a_task(status=TaskStatus.FAILED)
    store.write_now(lambda tx: tx.tasks.create(task))
    return lambda tx: tx.tasks.go_on(task, now=LATER)


def request_cancel(store: Store) -> Write:
    task = stored_task(store)
    return lambda tx: tx.tasks.request_cancel(task.id, "enough", now=LATER)


def save_progress(store: Store) -> Write:
    run, claim = running_run(store)
    return lambda tx: tx.tasks.save_progress(run.task_id, run.id, claim.fence, Progress(done=1), now=LATER)


def delete_tasks(store: Store) -> Write:
    gone = a_task(status=TaskStatus.SUCCEEDED, cleanup_after=START, dedup_key="old")
    store.write_now(lambda tx: [tx.tasks.create(gone), tx.tasks.create(a_task())])
    ended = store.write_now(lambda tx: tx.tasks.to_prune(now=LATER, limit=9))
    return lambda tx: tx.tasks.delete(ended, keys_expire_at=later(days=90))


def forget_keys(store: Store) -> Write:
    delete = delete_tasks(store)
    store.write_now(delete)
    return lambda tx: tx.tasks.forget_keys(now=later(days=90))


def create_run(store: Store) -> Write:
    run = a_run(stored_task(store))
    return lambda tx: tx.runs.create(run)


def claim_ready_runs(store: Store) -> Write:
    for _ in range(5):
        stored_run(store)

    def take(tx: Tx) -> object:
        return tx.runs.with_token(BOOT, "mine") or tx.runs.claim_ready(
            boot_id=BOOT, token="mine", names=None, limit=2, now=LATER, lease=LEASE
        )

    return take


def claim_run(store: Store) -> Write:
    run = stored_run(store)
    return lambda tx: tx.runs.claim(run.id, boot_id=BOOT, token="mine", now=LATER, lease=LEASE)


def renew_claims(store: Store) -> Write:
    ids = [running_run(store)[0].id for _ in range(2)]
    return lambda tx: tx.runs.renew([*ids, "run_nothing"], boot_id=BOOT, now=LATER, lease=LEASE)


def exonerate_run(store: Store) -> Write:
    run, claim = running_run(store, is_alone=True)
    return lambda tx: tx.runs.exonerate(run.id, claim.fence, now=LATER)


def release_run(store: Store) -> Write:
    run, claim = running_run(store)
    return lambda tx: tx.runs.release(run.id, claim.fence, due_at=LATER, queue=Queue.LATER, now=LATER)


def wait_run(store: Store) -> Write:
    run, claim = running_run(store)
    return lambda tx: tx.runs.wait(run.id, claim.fence, waits_on="luck", due_at=LATER, now=LATER)


def wake_run(store: Store) -> Write:
    run = stored_run(store, RunStatus.WAITING)
    return lambda tx: tx.runs.wake(run.id, now=LATER)


def end_run(store: Store) -> Write:
    run, claim = running_run(store)
    return lambda tx: tx.runs.end(run.id, claim.fence, RunStatus.SUCCEEDED, failure=None, now=LATER)


def end_idle_run(store: Store) -> Write:
    run = stored_run(store)
    return lambda tx: tx.runs.end_idle(run, RunStatus.CANCELLED, failure=FAILURE, now=LATER)


def pause_runs(store: Store) -> Write:
    ids = [running_run(store)[0].id for _ in range(2)]
    return lambda tx: tx.runs.pause(ids, now=LATER)


def set_resuming(store: Store) -> Write:
    run = stored_run(store, RunStatus.PAUSED_FOR_RESTART)
    return lambda tx: tx.runs.set_resuming([run.id], now=LATER)


def set_paused_again(store: Store) -> Write:
    run = stored_run(store, RunStatus.RESUMING)
    return lambda tx: tx.runs.set_paused_again([run.id], now=LATER)


def set_resumed(store: Store) -> Write:
    run = stored_run(store, RunStatus.RESUMING)
    return lambda tx: tx.runs.set_resumed([run.id], now=LATER)


def set_failed_resume(store: Store) -> Write:
    run = stored_run(store, RunStatus.RESUMING)
    return lambda tx: tx.runs.set_failed_resume(run, FAILURE, now=LATER)


def ready_due_runs(store: Store) -> Write:
    stored_run(store, queue=Queue.LATER)
    return lambda tx: tx.runs.ready_due(now=LATER, limit=9)


def delete_everything_of_a_task(store: Store) -> Write:
    checkpoint = stored_checkpoint(store, CheckpointStatus.FAILED_RESUME)
    stored_checkpoint(store)
    run = store.read_now(lambda tx: tx.runs.get(checkpoint.run_id))
    store.write_now(lambda tx: leave_everything(tx, run))

    def delete(tx: Tx) -> None:
        tx.blobs.stop_using([checkpoint.task_id])
        tx.journal.delete_of_tasks([checkpoint.task_id])
        tx.checkpoints.delete_of_tasks([checkpoint.task_id])
        tx.runs.delete_of_tasks([checkpoint.task_id])

    return delete


def save_step(store: Store) -> Write:
    run, claim = running_run(store)
    return saving_step(a_step(run), claim.fence, CLOSED)


def write_journal(store: Store) -> Write:
    _, claim = running_run(store)

    def save(tx: Tx) -> None:
        tx.journal.save_plan(claim, plan_of("read"), now=LATER)
        tx.journal.save_artifact(claim, an_artifact(), now=LATER)
        tx.journal.add_note(claim, a_note(), seq=1)

    return save


def put_step(store: Store) -> Write:
    run, _ = running_run(store)
    return lambda tx: tx.journal.put_step(a_step(run))


def forget_step(store: Store) -> Write:
    run, claim = running_run(store)
    store.write_now(saving_step(a_step(run), claim.fence, CLOSED))
    return lambda tx: tx.journal.forget_step(claim, "", "look", "1")


def commit_turn(store: Store) -> Write:
    run, claim = running_run(store)
    for scope in ("main:1", "main:1/inner:1"):
        store.write_now(saving_step(a_step(run, scope=scope), claim.fence, CLOSED))
    store.write_now(
        lambda tx: tx.turns.commit(a_turn(run, loop="main:1/inner"), "main:1/inner:1", is_over=True)
    )
    return lambda tx: tx.turns.commit(a_turn(run), "main:1", is_over=False)


def write_lists(store: Store) -> Write:
    run, _ = running_run(store)

    def save(tx: Tx) -> None:
        tx.lists.append(a_delta(run))
        tx.lists.append(a_delta(run, 2, items=large()))
        tx.lists.set_value(a_value(run))
        tx.lists.set_ops(run.task_id, "", b"[3]")

    return save


def send_mail(store: Store) -> Write:
    task = stored_task(store)
    return lambda tx: send(tx, task.id, key="once")


def take_mail(store: Store) -> Write:
    task = stored_task(store)
    store.write_now(lambda tx: send(tx, task.id))
    return lambda tx: tx.mail.take(task.id, 1, LATER)


def ask_question(store: Store) -> Write:
    question = a_question(running_run(store)[0])
    return lambda tx: tx.questions.create(question)


def answer_question(store: Store) -> Write:
    question = a_question(running_run(store)[0])
    store.write_now(lambda tx: tx.questions.create(question))
    return lambda tx: tx.questions.answer(question.id, b'"yes"', by="ada", now=LATER)


def begin_effect(store: Store) -> Write:
    run, claim = running_run(store)
    effect = an_effect(task_id=run.task_id, run_id=run.id)
    return lambda tx: tx.effects.begin(effect, claim)


def settle_effect(store: Store) -> Write:
    effect = an_effect()
    store.write_now(lambda tx: tx.effects.create(effect))
    return lambda tx: tx.effects.settle(effect, EffectStatus.DONE, outcome=b"1", now=LATER)


def review_effect(store: Store) -> Write:
    effect = an_effect(status=EffectStatus.UNKNOWN)
    store.write_now(lambda tx: tx.effects.create(effect))
    return lambda tx: tx.effects.set_review(effect.id, b"{}", LATER)


def save_checkpoint(store: Store) -> Write:
    run, claim = running_run(store)
    checkpoint = a_checkpoint(run)

    def pause(tx: Tx) -> object:
        if tx.journal.holds(run.id, run.task_id, claim.fence):
            tx.checkpoints.create_many([checkpoint])
            tx.runs.pause([run.id], now=LATER)
            tx.emit(EventKind.RUN_PAUSED, run.id, at=LATER)
        return tx.checkpoints.find(checkpoint.id)

    return pause


def claim_checkpoints(store: Store) -> Write:
    for _ in range(5):
        stored_checkpoint(store)

    def claim(tx: Tx) -> object:
        return tx.checkpoints.with_token(BOOT, "mine") or tx.checkpoints.claim(
            boot_id=BOOT, token="mine", limit=2, now=LATER, lease=LEASE
        )

    return claim


def resume_checkpoint(store: Store) -> Write:
    checkpoint = stored_checkpoint(store, CheckpointStatus.RESUMING)
    token = checkpoint.token or ""
    task = store.read_now(lambda tx: tx.tasks.get(checkpoint.task_id))
    run = a_run(task, number=2, resumes_run_id=checkpoint.run_id, id=new_run_id(START))

    def resume(tx: Tx) -> object:
        if tx.checkpoints.hold([checkpoint.id], token):
            tx.runs.set_resumed([checkpoint.run_id], now=LATER)
            tx.runs.create_many([run])
            tx.checkpoints.set_resumed([(checkpoint.id, run.id, None)], token, now=LATER)
        return tx.checkpoints.get(checkpoint.id)

    return resume


def fail_checkpoint(store: Store) -> Write:
    checkpoint = stored_checkpoint(store)
    return lambda tx: tx.checkpoints.set_failed(checkpoint, FAILURE, now=LATER)


def return_checkpoint(store: Store) -> Write:
    checkpoint = stored_checkpoint(store, CheckpointStatus.RESUMING)
    return lambda tx: tx.checkpoints.return_claimed([checkpoint.id], now=LATER)


def delete_checkpoint(store: Store) -> Write:
    checkpoint = stored_checkpoint(store, CheckpointStatus.FAILED_RESUME)
    return lambda tx: tx.checkpoints.delete([checkpoint])


def prune_events(store: Store) -> Write:
    store.write_now(lambda tx: tx.emit(EventKind.RUN_WOKEN, "run_x", at=START))
    store.write_now(lambda tx: tx.emit(EventKind.RUN_WOKEN, "run_y", at=LATER))
    return lambda tx: tx.events.prune(older_than=START)


def keep_blob(store: Store) -> Write:
    packed = pack(b'"' + b"x" * INLINE_BYTES + b'"', CLOSED)
    task = stored_task(store)
    return lambda tx: tx.blobs.keep(task.id, packed)


def begin_boot(store: Store) -> Write:
    return lambda tx: tx.boots.begin(a_boot())


def end_boot(store: Store) -> Write:
    store.write_now(lambda tx: tx.boots.begin(a_boot()))
    return lambda tx: tx.boots.end(BOOT, now=LATER)


def set_fact(store: Store) -> Write:
    return lambda tx: tx.boots.set_fact("colour", "blue")


def create_others(store: Store) -> Write:
    records = [an_effect(), a_delivery(), a_flow(), a_session(), a_message(), a_firing(), a_wake()]

    def create(tx: Tx) -> object:
        nouns: list[Any] = [
            *(tx.effects, tx.deliveries, tx.flows, tx.sessions),
            *(tx.messages, tx.firings, tx.wakes),
        ]
        return [noun.create(record) for noun, record in zip(nouns, records, strict=True)]

    return create


def append_to_session(store: Store) -> Write:
    session = a_session()
    message = a_message(session_key=session.key)
    store.write_now(lambda tx: tx.sessions.create(session))

    def append(tx: Tx) -> object:
        if tx.messages.find(message) is None:
            place = tx.sessions.append(session.key, is_queued=True, origin=None, now=LATER)
            tx.messages.create(msgspec.structs.replace(message, position=place.last_position))
        return tx.messages.get(message.id)

    return append


def take_session(store: Store) -> Write:
    session = waiting_session(store)
    return lambda tx: tx.sessions.take(session.id, "task_x", now=LATER) is not None


def free_session(store: Store) -> Write:
    session = waiting_session(store)
    store.write_now(lambda tx: tx.sessions.take(session.id, "task_x", now=LATER))
    return lambda tx: tx.sessions.free(session.id, "task_x", now=LATER) is not None


def drop_queued(store: Store) -> Write:
    session = waiting_session(store)
    return lambda tx: tx.sessions.drop_queued(session.key, now=LATER) is not None


def take_message(store: Store) -> Write:
    message = a_message()
    store.write_now(lambda tx: tx.messages.create(message))
    return lambda tx: tx.messages.take(message.id, "task_x", now=LATER) is not None


def follow_message(store: Store) -> Write:
    firing = a_firing(message_id="msg_x")
    store.write_now(lambda tx: tx.firings.create(firing))
    return lambda tx: (
        tx.firings.follow("msg_x", FiringStatus.RUNNING, task_id="task_x", now=LATER) is not None
    )


def repost_firing(store: Store) -> Write:
    firing = a_firing(status=FiringStatus.REQUEUED)
    store.write_now(lambda tx: tx.firings.create(firing))
    return lambda tx: tx.firings.repost(firing.id, "msg_y", now=LATER)


def attempt_delivery(store: Store) -> Write:
    delivery = a_delivery()
    store.write_now(lambda tx: tx.deliveries.create(delivery))
    return lambda tx: attempted(tx, delivery) is not None


def reclaim_delivery(store: Store) -> Write:
    delivery = a_delivery(status=DeliveryStatus.ATTEMPTING)
    store.write_now(lambda tx: tx.deliveries.create(delivery))
    return lambda tx: tx.deliveries.reclaim(delivery, boot_id=BOOT, lease_until=LATER, now=LATER) is not None


def settle_delivery(store: Store) -> Write:
    delivery = a_delivery(status=DeliveryStatus.ATTEMPTING)
    store.write_now(lambda tx: tx.deliveries.create(delivery))
    return lambda tx: tx.deliveries.settle(delivery, DeliveryStatus.DELIVERED, now=LATER) is not None


def attempted(tx: Tx, delivery: Delivery) -> Delivery | None:
    return tx.deliveries.attempt(delivery.id, boot_id=BOOT, lease_until=LATER, now=LATER)


def waiting_session(store: Store) -> Session:
    session = a_session(queued=1, last_position=1, ready_at=START)
    store.write_now(lambda tx: tx.sessions.create(session))
    return session


def stored_task(store: Store) -> Task:
    task = a_task()
    store.write_now(lambda tx: tx.tasks.create(task))
    return task


# These do not show in their answer that they ran before.
SAME_ANSWER: list[Callable[[Store], Write]] = [
    move_task,
    save_progress,
    delete_tasks,
    forget_keys,
    claim_ready_runs,
    renew_claims,
    delete_everything_of_a_task,
    save_step,
    write_journal,
    forget_step,
    commit_turn,
    write_lists,
    ask_question,
    begin_effect,
    settle_effect,
    review_effect,
    save_checkpoint,
    claim_checkpoints,
    resume_checkpoint,
    delete_checkpoint,
    keep_blob,
    set_fact,
    create_others,
    append_to_session,
    repost_firing,
]
# These say whether they did it just now; their caller looks at the record when they did not.
SAYS_SO: list[Callable[[Store], Write]] = [
    create_task,
    begin_boot,
    move_tasks,
    end_task,
    reopen_task,
    go_on_with_task,
    request_cancel,
    create_run,
    claim_run,
    exonerate_run,
    release_run,
    wait_run,
    wake_run,
    end_run,
    end_idle_run,
    pause_runs,
    set_resuming,
    set_paused_again,
    set_resumed,
    set_failed_resume,
    ready_due_runs,
    fail_checkpoint,
    return_checkpoint,
    prune_events,
    end_boot,
    put_step,
    send_mail,
    take_mail,
    answer_question,
    take_session,
    free_session,
    drop_queued,
    take_message,
    follow_message,
    attempt_delivery,
    reclaim_delivery,
    settle_delivery,
]


@pytest.mark.parametrize("case", SAME_ANSWER, ids=lambda case: case.__name__)
def test_a_write_that_runs_again_answers_the_same_and_changes_nothing(
    store: Store, case: Callable[[Store], Write]
) -> None:
    write = case(store)
    before = store.read_now(contents_of)

    RepeatingStore(store).write_now(write)

    hidden = {keep_blob, set_fact, forget_keys, begin_boot}  # not all of what they do is in the contents
    assert case in hidden or store.read_now(contents_of) != before
    assert store.verify() == []


@pytest.mark.parametrize("case", SAYS_SO, ids=lambda case: case.__name__)
def test_a_verb_that_runs_again_changes_nothing_and_says_so(
    store: Store, case: Callable[[Store], Write]
) -> None:
    write = case(store)
    first = store.write_now(write)
    after_one = store.read_now(contents_of)

    second = store.write_now(write)

    assert store.read_now(contents_of) == after_one
    assert store.verify() == []
    if isinstance(first, tuple):
        assert (first[1], second) == (True, (first[0], False))
    else:
        assert first
        assert not second


def test_a_move_by_the_table_that_runs_again_is_refused_and_changes_nothing(store: Store) -> None:
    delivery, flow = a_delivery(), a_flow()
    store.write_now(lambda tx: [tx.deliveries.create(delivery), tx.flows.create(flow)])
    store.write_now(lambda tx: tx.deliveries.move(delivery.id, DeliveryStatus.ATTEMPTING, now=LATER))
    store.write_now(lambda tx: tx.flows.move(flow.id, FlowStatus.RUNNING, now=LATER, revision=1))
    after_one = store.read_now(contents_of)

    with pytest.raises(IllegalMove):
        store.write_now(lambda tx: tx.deliveries.move(delivery.id, DeliveryStatus.ATTEMPTING, now=LATER))
    with pytest.raises(RevisionMismatch):
        store.write_now(lambda tx: tx.flows.move(flow.id, FlowStatus.RUNNING, now=LATER, revision=1))

    assert store.read_now(contents_of) == after_one


# --- the store that repeats is itself tested


def test_the_repeating_store_finds_a_write_that_counts_twice(store: Store) -> None:
    def careless(tx: Tx) -> None:
        tx.emit(EventKind.RUN_WOKEN, "run_x", at=START)

    with pytest.raises(AssertionError, match="emitted events"):
        RepeatingStore(store).write_now(careless)


def test_the_repeating_store_finds_a_write_that_answers_otherwise(store: Store) -> None:
    task = a_task()

    with pytest.raises(AssertionError, match="answered"):
        RepeatingStore(store).write_now(lambda tx: tx.tasks.create(task))


def test_the_repeating_store_finds_a_write_that_raises_the_second_time(store: Store) -> None:
    wake = a_wake()

    def careless(tx: Tx) -> None:
        if tx.statements.one("get_wake", {"id": wake.id}) is not None:
            raise IllegalMove("wake", wake.id, "pending", "pending")
        tx.wakes.create(wake)

    with pytest.raises(AssertionError, match="raised when it ran again"):
        RepeatingStore(store).write_now(careless)


def test_the_repeating_store_finds_a_write_that_adds_a_row_each_time(store: Store) -> None:
    with pytest.raises(AssertionError, match="changed wakes"):
        RepeatingStore(store).write_now(lambda tx: tx.wakes.create(a_wake()) and None)


def test_what_a_test_puts_into_the_ledger_verifies(store: Store) -> None:
    task = a_task()
    run = a_run(task)
    store.write_now(lambda tx: put(tx, task, run))

    assert store.verify() == []
