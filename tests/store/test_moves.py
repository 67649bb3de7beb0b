"""Every pair of statuses, in SQL: what the tables allow succeeds, all else is refused and changes nothing.

A record is put into each status in turn, and every verb of its noun is tried on it with every target.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol

import msgspec
import pytest

from holdfast.core.errors import IllegalMove
from holdfast.core.ids import new_run_id
from holdfast.core.run import Queue, RunOutcome, RunRecord
from holdfast.core.task import Task
from holdfast.core.transitions import (
    CHECKPOINT_MOVES,
    DELIVERY_MOVES,
    EFFECT_MOVES,
    FIRING_MOVES,
    FLOW_MOVES,
    MESSAGE_MOVES,
    RESTART_MOVES,
    RUN_MOVES,
    SESSION_MOVES,
    TASK_MOVES,
    TASK_REOPENS,
    WAKE_MOVES,
    CheckpointStatus,
    EffectStatus,
    RunStatus,
    TaskStatus,
    is_terminal,
)
from holdfast.store import Store, Tx
from holdfast.store.queries import read_files
from tests.builders import (
    BOOT,
    FAILURE,
    LEASE,
    START,
    a_checkpoint,
    a_delivery,
    a_firing,
    a_flow,
    a_message,
    a_restart,
    a_run,
    a_session,
    a_task,
    a_wake,
    an_effect,
    later,
    put,
    unique,
)

Pairs = set[tuple[str, str]]

# What a verb is tried with: the transaction, the record as it was read, the status to reach.
Verb = Callable[[Tx, Any, Any], object]

LATER = later(seconds=1)


class Get(Protocol):
    def __call__(self, tx: Tx, /, record_id: str) -> Any: ...


def pairs_of(table: Any) -> Pairs:
    return {(status.value, to.value) for status, ways in table.items() for to in ways}


def made_moves(
    store: Store,
    refusal: type[Exception],
    records: Iterable[Any],
    targets: Iterable[Any],
    verb: Verb,
    get: Get,
) -> Pairs:
    """The pairs that a verb made possible; asserts that a refused move left its record as it was."""
    made: Pairs = set()
    records = list(records)
    for to in targets:
        for record in records:
            fresh = store.read_now(partial(get, record_id=record.id))
            assert fresh.status is record.status
            after = try_once(store, refusal, verb, get, fresh, to)
            if after.status is fresh.status:
                assert after == fresh, f"{fresh.status} -> {to} was refused, but something changed"
            else:
                assert after.status is to
                made.add((fresh.status.value, to.value))
    return made


class Undone(Exception):
    """Rolls a move back, so that the next one finds its record as it was."""

    def __init__(self, after: Any) -> None:
        self.after = after


def try_once(store: Store, refusal: type[Exception], verb: Verb, get: Get, record: Any, to: Any) -> Any:
    """The record as it stands after the attempt, which is then rolled back."""

    def attempt(tx: Tx) -> None:
        verb(tx, record, to)
        raise Undone(get(tx, record.id))

    try:
        store.write_now(attempt)
    except Undone as undone:
        return undone.after
    except (refusal, IllegalMove):
        pass
    return store.read_now(partial(get, record_id=record.id))


# --- tasks


def get_task(tx: Tx, record_id: str) -> Task:
    return tx.tasks.get(record_id)


def move_task(tx: Tx, task: Task, to: TaskStatus) -> None:
    tx.tasks.move(task, to, now=LATER, waits_on="x")


def move_tasks(tx: Tx, task: Task, to: TaskStatus) -> None:
    tx.tasks.move_many([task.id], task.status, to, now=LATER, waits_on="x")


def end_task(tx: Tx, task: Task, to: TaskStatus) -> None:
    outcome = RunOutcome(status=RunStatus.FAILED, failure=FAILURE)
    tx.tasks.end(task, to, outcome, now=LATER, cleanup_after=LATER)


def reopen_task(tx: Tx, task: Task, to: TaskStatus) -> None:
    tx.tasks.reopen(task, now=LATER, waits_on="resume")


def go_on_with_task(tx: Tx, task: Task, to: TaskStatus) -> None:
    tx.tasks.go_on(task, now=LATER)


LIVE_TASK_MOVES = {(a, b) for a, b in pairs_of(TASK_MOVES) if not is_terminal(TaskStatus(b))}


@pytest.mark.parametrize(
    ("verb", "allowed"),
    [
        (move_task, LIVE_TASK_MOVES),
        (move_tasks, LIVE_TASK_MOVES),
        (end_task, pairs_of(TASK_MOVES) - LIVE_TASK_MOVES),
    ],
)
def test_a_task_makes_every_allowed_move_and_no_other(
    store: Store, refusal: type[Exception], verb: Verb, allowed: Pairs
) -> None:
    tasks = [a_task(status=status) for status in TaskStatus]
    store.write_now(lambda tx: [tx.tasks.create(task) for task in tasks])

    made = made_moves(store, refusal, tasks, TaskStatus, verb, get_task)

    assert made == allowed


@pytest.mark.parametrize(
    ("verb", "to"), [(reopen_task, TaskStatus.PAUSED), (go_on_with_task, TaskStatus.QUEUED)]
)
def test_only_what_ended_without_success_is_opened_again(
    store: Store, refusal: type[Exception], verb: Verb, to: TaskStatus
) -> None:
    tasks = [a_task(status=status) for status in TaskStatus]
    store.write_now(lambda tx: [tx.tasks.create(task) for task in tasks])

    made = made_moves(store, refusal, tasks, [to], verb, get_task)

    assert made == {pair for pair in pairs_of(TASK_REOPENS) if pair[1] == to}


# --- runs


def get_run(tx: Tx, record_id: str) -> RunRecord:
    return tx.runs.get(record_id)


def claim_run(tx: Tx, run: RunRecord, to: RunStatus) -> None:
    tx.runs.claim(run.id, boot_id=BOOT, token=unique(), now=LATER, lease=LEASE, status=run.status)


def claim_ready_runs(tx: Tx, run: RunRecord, to: RunStatus) -> None:
    tx.runs.claim_ready(boot_id=BOOT, token=unique(), names=None, limit=99, now=LATER, lease=LEASE)


def claim_named_runs(tx: Tx, run: RunRecord, to: RunStatus) -> None:
    tx.runs.claim_ready(boot_id=BOOT, token=unique(), names=["research"], limit=99, now=LATER, lease=LEASE)


def release_run(tx: Tx, run: RunRecord, to: RunStatus) -> None:
    tx.runs.release(run.id, run.fence, due_at=LATER, queue=Queue.READY, now=LATER)


def wait_run(tx: Tx, run: RunRecord, to: RunStatus) -> None:
    tx.runs.wait(run.id, run.fence, waits_on="luck", due_at=LATER, now=LATER)


def wake_run(tx: Tx, run: RunRecord, to: RunStatus) -> None:
    tx.runs.wake(run.id, now=LATER)


def end_run(tx: Tx, run: RunRecord, to: RunStatus) -> None:
    tx.runs.end(run.id, run.fence, to, failure=FAILURE, now=LATER)


def end_idle_run(tx: Tx, run: RunRecord, to: RunStatus) -> None:
    tx.runs.end_idle(run, to, failure=FAILURE, now=LATER)


def pause_runs(tx: Tx, run: RunRecord, to: RunStatus) -> None:
    tx.runs.pause([run.id], now=LATER)


def set_runs_resuming(tx: Tx, run: RunRecord, to: RunStatus) -> None:
    tx.runs.set_resuming([run.id], now=LATER)


def set_runs_paused_again(tx: Tx, run: RunRecord, to: RunStatus) -> None:
    tx.runs.set_paused_again([run.id], now=LATER)


def set_runs_resumed(tx: Tx, run: RunRecord, to: RunStatus) -> None:
    tx.runs.set_resumed([run.id], now=LATER)


def set_run_failed_resume(tx: Tx, run: RunRecord, to: RunStatus) -> None:
    tx.runs.set_failed_resume(run, FAILURE, now=LATER)


# Each verb is named as its query; those that are told where to go are tried with every status.
RUN_VERBS: dict[Verb, Iterable[RunStatus]] = {
    claim_run: [RunStatus.RUNNING],
    claim_ready_runs: [RunStatus.RUNNING],
    claim_named_runs: [RunStatus.RUNNING],
    release_run: [RunStatus.QUEUED],
    wait_run: [RunStatus.WAITING],
    wake_run: [RunStatus.QUEUED],
    end_run: RunStatus,
    end_idle_run: RunStatus,
    pause_runs: [RunStatus.PAUSED_FOR_RESTART],
    set_runs_resuming: [RunStatus.RESUMING],
    set_runs_paused_again: [RunStatus.PAUSED_FOR_RESTART],
    set_runs_resumed: [RunStatus.RESUMED],
    set_run_failed_resume: [RunStatus.FAILED_RESUME],
}
# Allowed by the table, and no code does it yet.
WITHOUT_A_VERB = {("waiting", "paused_for_restart")}


def name_of(verb: Verb) -> str:
    return str(getattr(verb, "__name__", verb))


def promised(query: str) -> Pairs:
    """What a query says on its lines `-- moves: run a|b -> c|d`."""
    lines = re.findall(r"^-- moves: \w+ ([\w|]+) -> ([\w|]+)", read_files("common")[query], re.MULTILINE)
    assert lines, f"{query} does not say what it moves"
    return {(a, b) for before, after in lines for a in before.split("|") for b in after.split("|")}


@pytest.mark.parametrize("verb", RUN_VERBS, ids=name_of)
def test_a_verb_of_runs_makes_the_moves_that_its_query_promises_and_no_other(
    store: Store, refusal: type[Exception], verb: Verb
) -> None:
    def arrange(tx: Tx) -> list[RunRecord]:
        tasks = [a_task() for _ in RunStatus]
        runs = [a_run(task, status=status) for task, status in zip(tasks, RunStatus, strict=True)]
        for task, run in zip(tasks, runs, strict=True):
            put(tx, task, run)
        return runs

    runs = store.write_now(arrange)

    made = made_moves(store, refusal, runs, RUN_VERBS[verb], verb, get_run)

    assert made == promised(name_of(verb))


def test_the_verbs_of_runs_make_exactly_the_moves_of_the_table() -> None:
    made = set().union(*(promised(name_of(verb)) for verb in RUN_VERBS))

    assert made == pairs_of(RUN_MOVES) - WITHOUT_A_VERB


# --- checkpoints


def claim_checkpoints(tx: Tx, checkpoint: Any, to: CheckpointStatus) -> None:
    tx.checkpoints.claim(boot_id=BOOT, token=unique(), limit=99, now=LATER, lease=LEASE)


def set_checkpoint_resumed(tx: Tx, checkpoint: Any, to: CheckpointStatus) -> None:
    tx.checkpoints.set_resumed(
        [(checkpoint.id, new_run_id(START), FAILURE)], checkpoint.token or "", now=LATER
    )


def set_checkpoint_failed(tx: Tx, checkpoint: Any, to: CheckpointStatus) -> None:
    tx.checkpoints.set_failed(checkpoint, FAILURE, now=LATER)


def return_checkpoints(tx: Tx, checkpoint: Any, to: CheckpointStatus) -> None:
    tx.checkpoints.return_claimed([checkpoint.id], now=LATER)


CHECKPOINT_VERBS: dict[Verb, CheckpointStatus] = {
    claim_checkpoints: CheckpointStatus.RESUMING,
    set_checkpoint_resumed: CheckpointStatus.RESUMED,
    set_checkpoint_failed: CheckpointStatus.FAILED_RESUME,
    return_checkpoints: CheckpointStatus.PAUSED_FOR_RESTART,
}


@pytest.mark.parametrize("verb", CHECKPOINT_VERBS, ids=name_of)
def test_a_verb_of_checkpoints_makes_the_moves_that_its_query_promises_and_no_other(
    store: Store, refusal: type[Exception], verb: Verb
) -> None:
    def arrange(tx: Tx) -> list[Any]:
        checkpoints = []
        for status in CheckpointStatus:
            task = a_task()
            run = a_run(task, status=RunStatus(status))
            checkpoints.append(a_checkpoint(run, status=status, token=unique()))
            put(tx, task, run, checkpoints=(checkpoints[-1],))
        return checkpoints

    checkpoints = store.write_now(arrange)

    made = made_moves(
        store,
        refusal,
        checkpoints,
        [CHECKPOINT_VERBS[verb]],
        verb,
        lambda tx, record_id: tx.checkpoints.get(record_id),
    )

    assert made == promised(name_of(verb))


def test_the_verbs_of_checkpoints_make_exactly_the_moves_of_the_table() -> None:
    made = set().union(*(promised(name_of(verb)) for verb in CHECKPOINT_VERBS))

    assert made == pairs_of(CHECKPOINT_MOVES)


# --- the other nouns

OTHERS: dict[str, tuple[Callable[..., Any], Any]] = {
    "deliveries": (a_delivery, DELIVERY_MOVES),
    "flows": (a_flow, FLOW_MOVES),
    "sessions": (a_session, SESSION_MOVES),
    "messages": (a_message, MESSAGE_MOVES),
    "firings": (a_firing, FIRING_MOVES),
    "wakes": (a_wake, WAKE_MOVES),
    "restarts": (a_restart, RESTART_MOVES),
}


@pytest.mark.parametrize("noun", OTHERS)
def test_every_other_record_makes_every_allowed_move_and_no_other(
    store: Store, refusal: type[Exception], noun: str
) -> None:
    build, table = OTHERS[noun]
    records = [build(status=status) for status in table]
    store.write_now(lambda tx: [getattr(tx, noun).create(record) for record in records])

    made = made_moves(
        store,
        refusal,
        records,
        list(table),
        lambda tx, record, to: getattr(tx, noun).move(record.id, to, now=LATER),
        lambda tx, record_id: getattr(tx, noun).get(record_id),
    )

    assert made == pairs_of(table)


def test_settling_an_effect_makes_every_allowed_move_and_no_other(
    store: Store, refusal: type[Exception]
) -> None:
    effects = [an_effect(status=status) for status in EffectStatus]
    store.write_now(lambda tx: [tx.effects.create(effect) for effect in effects])

    made = made_moves(
        store,
        refusal,
        effects,
        EffectStatus,
        lambda tx, effect, to: tx.effects.settle(effect, to, outcome=b"1", now=LATER),
        lambda tx, record_id: tx.effects.again(next(one for one in effects if one.id == record_id)),
    )

    assert made == pairs_of(EFFECT_MOVES)


# --- bystanders and counts


def test_a_refused_move_is_not_counted(store: Store) -> None:
    tasks = [a_task(status=status) for status in TaskStatus]
    store.write_now(lambda tx: [tx.tasks.create(task) for task in tasks])

    def refuse_everything(tx: Tx) -> None:
        for task in tasks:
            wrong = msgspec.structs.replace(task, status=TaskStatus.RUNNING)
            if task.status is not TaskStatus.RUNNING:
                tx.tasks.move(wrong, TaskStatus.QUEUED, now=LATER)
                end_task(tx, wrong, TaskStatus.FAILED)
            if task.status is not TaskStatus.FAILED:
                reopen_task(tx, task, TaskStatus.PAUSED)

    store.write_now(refuse_everything)

    assert store.read_now(lambda tx: tx.events.counts("task")) == {status.value: 1 for status in TaskStatus}


def test_a_move_of_one_record_leaves_its_neighbours_alone(store: Store) -> None:
    def arrange(tx: Tx) -> list[RunRecord]:
        tasks = [a_task(status=TaskStatus.RUNNING) for _ in range(3)]
        runs = [a_run(task, status=RunStatus.RUNNING) for task in tasks]
        for task, run in zip(tasks, runs, strict=True):
            put(tx, task, run)
        return runs

    runs = store.write_now(arrange)

    def move_the_second(tx: Tx) -> None:
        end_run(tx, runs[1], RunStatus.SUCCEEDED)
        end_task(tx, tx.tasks.get(runs[1].task_id), TaskStatus.SUCCEEDED)

    store.write_now(move_the_second)

    kept = store.read_now(lambda tx: tx.runs.get_many([run.id for run in runs]))
    assert [kept[run.id] == run for run in runs] == [True, False, True]
    tasks = store.read_now(lambda tx: tx.tasks.get_many([run.task_id for run in runs]))
    assert [tasks[run.task_id].has_ended for run in runs] == [False, True, False]
