"""The journal: a step's first result stays, and only the run's holder writes any of it."""

from __future__ import annotations

from functools import partial
from typing import Protocol

import msgspec
import pytest

from holdfast.core.claim import Claim
from holdfast.core.clock import to_micros
from holdfast.core.errors import ClaimLost, RowDamaged
from holdfast.core.run import Queue
from holdfast.core.step import NoteKind, Step
from holdfast.core.transitions import RunStatus
from holdfast.store import Store, Tx
from holdfast.store.blobs import INLINE_BYTES, pack
from holdfast.store.journal import JournalHead, saving_step
from holdfast.store.sealing import CLOSED
from holdfast.testing import RepeatingStore, contents_of
from tests.builders import START, a_note, a_step, an_artifact, later, plan_of, running_run, stored_run
from tests.store.program_records import leave_everything


class JournalWrite(Protocol):
    def __call__(self, tx: Tx, /, claim: Claim) -> None: ...


WRITES: dict[str, JournalWrite] = {
    "plan": lambda tx, claim: tx.journal.save_plan(claim, plan_of("read", "write"), now=START),
    "artifact": lambda tx, claim: tx.journal.save_artifact(claim, an_artifact(), now=START),
    "note": lambda tx, claim: tx.journal.add_note(claim, a_note(), seq=1),
}


# --- steps


def test_a_saved_step_is_read_back_as_it_was_written(store: Store) -> None:
    run, claim = running_run(store)
    step = a_step(
        run,
        scope="turn:1",
        name="Suche 🔎",
        occurrence="call_7",
        seq=3,
        input_digest=b"\x00\xff",
        result=b'{"b":1,"a":2}',
        ended_us=to_micros(later(seconds=2)),
    )

    assert store.write_now(saving_step(step, claim.fence, CLOSED)) is None
    assert (
        store.read_now(lambda tx: tx.journal.find_step(run.task_id, "turn:1", "Suche 🔎", "call_7")) == step
    )


def test_a_step_that_was_never_saved_is_not_found(store: Store) -> None:
    run, claim = running_run(store)
    store.write_now(saving_step(a_step(run), claim.fence, CLOSED))

    def find(*key: str) -> Step | None:
        return store.read_now(lambda tx: tx.journal.find_step(*key))

    assert find(run.task_id, "", "other", "1") is None
    assert find(run.task_id, "", "look", "2") is None
    assert find(run.task_id, "turn:1", "look", "1") is None
    assert find("task_nothing", "", "look", "1") is None
    assert find(run.task_id, "", "look", "1") is not None


def test_the_first_result_stays_and_a_second_save_is_told_so(store: Store) -> None:
    run, claim = running_run(store)
    first, second = a_step(run, result=b"1"), a_step(run, result=b"2", seq=2)
    store.write_now(saving_step(first, claim.fence, CLOSED))

    assert store.write_now(saving_step(second, claim.fence, CLOSED)) == first
    assert store.read_now(lambda tx: tx.journal.steps(run.task_id)) == [first]


@pytest.mark.parametrize("fence", [0, 2, 99, -1])
def test_a_step_with_another_fence_is_refused(store: Store, fence: int) -> None:
    run, _ = running_run(store)

    with pytest.raises(ClaimLost) as error:
        store.write_now(saving_step(a_step(run), fence, CLOSED))

    assert (error.value.record_id, error.value.fence) == (run.id, fence)
    assert store.read_now(lambda tx: tx.journal.steps(run.task_id)) == []


def test_a_step_saved_before_is_not_handed_to_a_stranger(store: Store) -> None:
    run, claim = running_run(store)
    store.write_now(saving_step(a_step(run), claim.fence, CLOSED))

    with pytest.raises(ClaimLost):
        store.write_now(saving_step(a_step(run), claim.fence + 1, CLOSED))


@pytest.mark.parametrize("status", [status for status in RunStatus if status is not RunStatus.RUNNING])
def test_a_run_that_is_not_running_saves_no_step(store: Store, status: RunStatus) -> None:
    run = stored_run(store, status, fence=1)

    with pytest.raises(ClaimLost):
        store.write_now(saving_step(a_step(run), 1, CLOSED))

    assert store.read_now(lambda tx: tx.journal.steps(run.task_id)) == []


def test_a_run_saves_no_step_of_another_task(store: Store) -> None:
    run, claim = running_run(store)
    other, _ = running_run(store)

    with pytest.raises(ClaimLost):
        store.write_now(saving_step(a_step(run, task_id=other.task_id), claim.fence, CLOSED))

    assert store.read_now(lambda tx: tx.journal.steps(other.task_id)) == []


def test_steps_come_in_the_order_they_were_written(store: Store) -> None:
    run, claim = running_run(store)
    steps = [a_step(run, name=f"step {seq % 3}", occurrence=str(seq), seq=seq) for seq in range(1, 8)]

    for step in reversed(steps):
        store.write_now(saving_step(step, claim.fence, CLOSED))

    assert store.read_now(lambda tx: tx.journal.steps(run.task_id)) == steps
    assert store.read_now(lambda tx: tx.journal.steps(run.task_id, limit=2)) == steps[:2]


def test_many_steps_saved_at_once_are_all_there(store: Store) -> None:
    runs = [running_run(store) for _ in range(5)]
    writes = [
        saving_step(a_step(run, name=f"step {number}", seq=number), claim.fence, CLOSED)
        for run, claim in runs
        for number in range(1, 5)
    ]

    def all_of_them(tx: Tx) -> list[object]:
        return [write(tx) for write in writes]

    assert store.write_now(all_of_them) == [None] * 20
    saved = store.read_now(lambda tx: [len(tx.journal.steps(run.task_id)) for run, _ in runs])
    assert saved == [4] * 5


def test_a_crowd_is_read_back_as_it_was_saved_whatever_stands_in_it(store: Store) -> None:
    run, claim = running_run(store)
    odd = (
        "Suche 🔎",
        'say "hi"',
        "back\\slash",
        "{}[],:",
        "'; --",
        "null",
        "17",
        "a\tb",
        "\u2028",
        "é",
        "%s :name ?",
    )
    steps = [
        a_step(
            run,
            scope=f"turn:{number}",
            name=text,
            occurrence=f"id:{text}",
            seq=number,
            input_digest=None if number % 2 else bytes([number, 0, 255]),
            result=b"" if number == 3 else b'"%b"' % text.encode(),
            ended_us=to_micros(later(seconds=number)),
        )
        for number, text in enumerate(odd)
    ]

    answers = store.write_now(
        lambda tx: tx.journal.save_many([saving_step(step, claim.fence, CLOSED) for step in steps])
    )

    assert answers == [None] * len(odd)
    assert store.read_now(lambda tx: tx.journal.steps(run.task_id)) == steps
    assert store.verify() == []


def test_the_journals_of_many_tasks_come_in_order_and_are_told_apart(store: Store) -> None:
    one, one_claim = running_run(store)
    two, two_claim = running_run(store)
    steps = [a_step(one, name=f"step {seq % 3}", occurrence=str(seq), seq=seq) for seq in range(1, 8)]
    other = a_step(two, scope="main:1")
    for step in reversed(steps):
        store.write_now(saving_step(step, one_claim.fence, CLOSED))
    store.write_now(saving_step(other, two_claim.fence, CLOSED))

    tasks = [one.task_id, two.task_id, "task_nothing"]
    assert store.read_now(lambda tx: tx.journal.steps_of(tasks)) == {one.task_id: steps, two.task_id: [other]}
    assert store.read_now(lambda tx: tx.journal.steps_of([])) == {}


def test_a_step_that_is_put_by_a_greater_write_needs_no_claim_and_the_first_stays(store: Store) -> None:
    run = stored_run(store, RunStatus.WAITING)
    first, second = a_step(run, result=b"1"), a_step(run, result=b"2")

    assert store.write_now(lambda tx: tx.journal.put_step(first))
    assert not store.write_now(lambda tx: tx.journal.put_step(second))
    assert store.read_now(lambda tx: tx.journal.steps(run.task_id)) == [first]


def test_only_the_holder_forgets_a_step_and_no_other_step_goes_with_it(store: Store) -> None:
    run, claim = running_run(store)
    stranger = msgspec.structs.replace(claim, fence=claim.fence + 1)
    gone, others = a_step(run), [a_step(run, occurrence="2", seq=2), a_step(run, scope="main:1", seq=3)]
    for step in (gone, *others):
        store.write_now(saving_step(step, claim.fence, CLOSED))

    with pytest.raises(ClaimLost):
        store.write_now(lambda tx: tx.journal.forget_step(stranger, "", "look", "1"))
    assert store.read_now(lambda tx: tx.journal.find_step(run.task_id, "", "look", "1")) == gone

    RepeatingStore(store).write_now(lambda tx: tx.journal.forget_step(claim, "", "look", "1"))
    assert store.read_now(lambda tx: tx.journal.steps(run.task_id)) == others


def test_a_large_result_becomes_a_blob_and_comes_back_whole(store: Store) -> None:
    run, claim = running_run(store)
    payload = msgspec.json.encode({"text": "ebb and flow 🌊 " * 10_000})
    packed = pack(payload, CLOSED)

    def save(tx: Tx) -> object:
        result = tx.blobs.keep(run.task_id, packed)
        return saving_step(a_step(run, result=result), claim.fence, CLOSED)(tx)

    store.write_now(save)

    step = store.read_now(lambda tx: tx.journal.find_step(run.task_id, "", "look", "1"))
    assert step is not None
    assert len(step.result) < 200 < INLINE_BYTES < len(payload)
    assert store.read_now(lambda tx: tx.blobs.open(step.result)) == payload


def test_a_small_result_stays_in_its_row(store: Store) -> None:
    payload = b'"' + b"x" * (INLINE_BYTES - 2) + b'"'

    packed = pack(payload, CLOSED)

    assert packed.digest is None
    assert store.read_now(lambda tx: tx.blobs.open(packed.stored)) == payload


def test_a_reference_to_a_missing_blob_is_damage_not_a_result(store: Store) -> None:
    packed = pack(b'"' + b"x" * INLINE_BYTES + b'"', CLOSED)

    with pytest.raises(RowDamaged, match="missing"):
        store.read_now(lambda tx: tx.blobs.open(packed.stored))


def test_the_head_of_a_journal_counts_steps_and_names_the_last_and_its_writers(store: Store) -> None:
    run, claim = running_run(store)
    empty, _ = running_run(store)
    for seq, name in enumerate(("read", "think", "write"), start=1):
        store.write_now(saving_step(a_step(run, name=name, seq=seq), claim.fence, CLOSED))

    heads = store.read_now(lambda tx: tx.journal.heads([run.task_id, empty.task_id]))

    assert heads == {
        run.task_id: JournalHead(steps_saved=3, last_step="write", written_by=frozenset({run.id}))
    }


def test_the_head_of_a_journal_that_several_runs_wrote_adds_them_up(store: Store) -> None:
    run, claim = running_run(store)
    for seq in (1, 3):
        store.write_now(saving_step(a_step(run, name=f"step {seq}", seq=seq), claim.fence, CLOSED))
    for seq in (2, 4, 5):
        earlier = a_step(run, name=f"step {seq}", seq=seq, run_id="run_before")
        store.write_now(partial(put_step, step=earlier))

    heads = store.read_now(lambda tx: tx.journal.heads([run.task_id]))

    assert heads[run.task_id] == JournalHead(
        steps_saved=5, last_step="step 5", written_by=frozenset({run.id, "run_before"})
    )


def put_step(tx: Tx, step: Step) -> bool:
    return tx.journal.put_step(step)


# --- plans, artifacts and notes


def test_plan_artifact_and_note_are_read_back_as_they_were_written(store: Store) -> None:
    run, claim = running_run(store)
    plan = plan_of("read", "write").complete("read")
    artifact, note = an_artifact(), a_note(kind=NoteKind.TOOL_CONTEXT, text="browser: tab 3\nscrolled")

    def save(tx: Tx) -> None:
        tx.journal.save_plan(claim, plan, now=START)
        tx.journal.save_artifact(claim, artifact, now=START)
        tx.journal.add_note(claim, note, seq=1)

    store.write_now(save)

    tasks = [run.task_id, "task_nothing"]
    assert store.read_now(lambda tx: tx.journal.plans(tasks)) == {run.task_id: (run.id, plan)}
    assert store.read_now(lambda tx: tx.journal.artifacts(tasks)) == {run.task_id: [artifact]}
    assert store.read_now(lambda tx: tx.journal.notes(tasks)) == {run.task_id: [note]}


def test_a_newer_plan_and_a_newer_artifact_replace_the_older(store: Store) -> None:
    run, claim = running_run(store)
    plan, artifact = plan_of("read"), an_artifact(size_bytes=4)

    def save(tx: Tx) -> None:
        tx.journal.save_plan(claim, plan_of("write"), now=START)
        tx.journal.save_plan(claim, plan, now=START)
        tx.journal.save_artifact(claim, an_artifact(), now=START)
        tx.journal.save_artifact(claim, artifact, now=START)
        tx.journal.save_artifact(claim, an_artifact(name="another"), now=START)

    store.write_now(save)

    assert store.read_now(lambda tx: tx.journal.plans([run.task_id])) == {run.task_id: (run.id, plan)}
    kept = store.read_now(lambda tx: tx.journal.artifacts([run.task_id]))[run.task_id]
    assert kept == [an_artifact(name="another"), artifact]


def test_notes_keep_their_order_and_none_is_lost(store: Store) -> None:
    run, claim = running_run(store)

    def note(text: str, seq: int) -> None:
        store.write_now(lambda tx: tx.journal.add_note(claim, a_note(text=text), seq=seq))

    note("decision 0", 1)
    note("decision 1", 2)
    note("decision 2", 2)  # given a place that is taken

    kept = store.read_now(lambda tx: tx.journal.notes([run.task_id]))[run.task_id]
    assert [note.text for note in kept] == ["decision 0", "decision 1", "decision 2"]


@pytest.mark.parametrize("kind", WRITES)
def test_only_the_holder_writes_to_the_journal(store: Store, kind: str) -> None:
    run, claim = running_run(store)
    stranger = msgspec.structs.replace(claim, fence=claim.fence + 1)
    elsewhere = msgspec.structs.replace(claim, task_id=running_run(store)[0].task_id)

    for wrong in (stranger, elsewhere):
        with pytest.raises(ClaimLost):
            store.write_now(partial(WRITES[kind], claim=wrong))

    everyone = [claim.task_id, elsewhere.task_id]
    assert store.read_now(
        lambda tx: (tx.journal.plans(everyone), tx.journal.artifacts(everyone), tx.journal.notes(everyone))
    ) == ({}, {}, {})
    store.write_now(lambda tx: WRITES[kind](tx, claim))
    assert run.task_id == claim.task_id


@pytest.mark.parametrize("kind", WRITES)
def test_a_holder_that_gave_its_run_back_writes_nothing_more(store: Store, kind: str) -> None:
    run, claim = running_run(store)
    store.write_now(
        lambda tx: tx.runs.release(run.id, claim.fence, due_at=START, queue=Queue.READY, now=START)
    )

    with pytest.raises(ClaimLost):
        store.write_now(lambda tx: WRITES[kind](tx, claim))


def test_retention_takes_the_journal_of_its_tasks_only(store: Store) -> None:
    gone, gone_claim = running_run(store)
    kept, kept_claim = running_run(store)
    for run, claim in ((gone, gone_claim), (kept, kept_claim)):
        store.write_now(saving_step(a_step(run), claim.fence, CLOSED))
        for write in WRITES.values():
            store.write_now(partial(write, claim=claim))

    store.write_now(lambda tx: tx.journal.delete_of_tasks([gone.task_id]))

    def left(tx: Tx) -> list[set[str]]:
        both = [gone.task_id, kept.task_id]
        journal = tx.journal
        return [
            set(found)
            for found in (
                journal.heads(both),
                journal.plans(both),
                journal.artifacts(both),
                journal.notes(both),
            )
        ]

    assert store.read_now(left) == [{kept.task_id}] * 4


def test_retention_takes_all_that_a_program_left_of_its_tasks_only(store: Store) -> None:
    gone, kept = running_run(store)[0], running_run(store)[0]
    store.write_now(lambda tx: leave_everything(tx, kept))
    before = store.read_now(contents_of)
    store.write_now(lambda tx: leave_everything(tx, gone))
    nouns = ("loops", "turns", "list_deltas", "values", "scope_ops", "mail", "questions")
    both = store.read_now(contents_of)
    assert [noun for noun in nouns if both[noun] == before[noun]] == []

    store.write_now(lambda tx: tx.journal.delete_of_tasks([gone.task_id]))

    assert store.read_now(contents_of) == before
