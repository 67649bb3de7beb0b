"""Loops and turns: a finished turn stays, its loop moves on, and what only an open turn needs is gone."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.core.clock import to_micros
from holdfast.core.errors import Conflict, RowDamaged
from holdfast.core.program_records import KeptStep, LoopPosition
from holdfast.core.run import RunRecord
from holdfast.store import Store, Tx
from holdfast.store.journal import JournalHead, saving_step
from holdfast.store.sealing import CLOSED
from holdfast.testing import RepeatingStore, contents_of
from tests.builders import a_step, later, running_run
from tests.store.program_records import a_summary, a_turn, flip, kept_of


def loops_of(store: Store, run: RunRecord) -> dict[str, LoopPosition]:
    return store.read_now(lambda tx: tx.turns.loops([run.task_id])).get(run.task_id, {})


def save_steps(store: Store, run: RunRecord, fence: int, *scopes: str) -> None:
    for seq, scope in enumerate(scopes, start=1):
        store.write_now(saving_step(a_step(run, scope=scope, seq=seq), fence, CLOSED))


# --- finished turns


def test_a_finished_turn_is_read_back_as_it_was_written(store: Store) -> None:
    run, _ = running_run(store)
    turn = a_turn(run, turn="Vorbereitung 🔎", loop="plan")

    store.write_now(lambda tx: tx.turns.commit(turn, "plan:Vorbereitung 🔎", is_over=False))

    assert store.read_now(lambda tx: tx.turns.finished(run.task_id)) == [turn]
    assert loops_of(store, run) == {"plan": LoopPosition(loop="plan", turns_done=1, is_over=False)}


def test_turns_come_in_order_a_page_at_a_time(store: Store) -> None:
    run, _ = running_run(store)
    turns = [a_turn(run, seq) for seq in range(1, 13)]
    other = a_turn(run, loop="after")

    def commit(tx: Tx) -> None:
        for turn in (*turns, other):
            tx.turns.commit(turn, f"{turn.loop}:{turn.turn}", is_over=False)

    store.write_now(commit)

    read = store.read_now
    assert read(lambda tx: tx.turns.finished(run.task_id, "main")) == turns
    assert read(lambda tx: tx.turns.finished(run.task_id, "main", after=4, limit=3)) == turns[4:7]
    assert read(lambda tx: tx.turns.finished(run.task_id)) == [other, *turns]
    assert read(lambda tx: tx.turns.finished(run.task_id, "mai")) == []
    assert read(lambda tx: tx.turns.finished("task_nothing")) == []


def test_a_page_of_turns_begins_after_the_last_one_also_in_another_loop(store: Store) -> None:
    run, _ = running_run(store)
    turns = [a_turn(run, seq, loop=loop) for loop in ("after", "main", "main:2/inner") for seq in (1, 2, 3)]

    def commit(tx: Tx) -> None:
        for turn in turns:
            tx.turns.commit(turn, f"{turn.loop}:{turn.turn}", is_over=False, has_loops=False)

    store.write_now(commit)
    seen: list[object] = []
    after = ("", 0)
    while page := store.read_now(lambda tx, after=after: tx.turns.page(run.task_id, after=after, limit=2)):  # type: ignore[misc]
        seen += [turn for _, _, turn in page]
        after = page[-1][:2]

    assert seen == turns
    inside = store.read_now(lambda tx: tx.turns.page(run.task_id, scope="main:2", limit=9))
    assert [(loop, seq) for loop, seq, _ in inside] == [
        ("main", 2),
        *(("main:2/inner", seq) for seq in (1, 2, 3)),
    ]


def test_what_a_turn_keeps_is_read_back_and_goes_with_its_task(store: Store) -> None:
    run, _ = running_run(store)
    turn, long = a_turn(run), b'"' + b"tide " * 1000 + b'"'
    kept = kept_of(long, None)

    RepeatingStore(store).write_now(lambda tx: tx.turns.commit(turn, "main:1", is_over=False, kept=kept))

    assert len(kept.body) < len(long) / 2
    assert store.read_now(lambda tx: tx.kept_steps.of_turn(turn)) == [KeptStep(long), KeptStep()]
    store.write_now(lambda tx: tx.journal.delete_of_tasks([run.task_id]))
    assert store.read_now(contents_of)["kept_steps"] == []


@pytest.mark.parametrize("column", ["loop", "seq", "body", "digest"])
def test_a_damaged_document_of_kept_steps_is_found(store: Store, column: str) -> None:
    run, _ = running_run(store)
    kept = kept_of(b'"' + b"tide " * 1000 + b'"', None)
    store.write_now(lambda tx: tx.turns.commit(a_turn(run), "main:1", is_over=False, kept=kept))
    flip(store, "kept_steps", column)

    assert any("kept step" in problem for problem in store.verify())


def test_the_loops_of_many_tasks_are_told_apart(store: Store) -> None:
    one, two, none = (running_run(store)[0] for _ in range(3))

    def commit(tx: Tx) -> None:
        tx.turns.commit(a_turn(one), "main:1", is_over=False)
        tx.turns.commit(a_turn(one, 2), "main:2", is_over=True)
        tx.turns.commit(a_turn(two, loop="plan"), "plan:1", is_over=False)

    store.write_now(commit)

    assert store.read_now(lambda tx: tx.turns.loops([one.task_id, two.task_id, none.task_id])) == {
        one.task_id: {"main": LoopPosition(loop="main", turns_done=2, is_over=True)},
        two.task_id: {"plan": LoopPosition(loop="plan", turns_done=1, is_over=False)},
    }


def test_the_same_turn_again_changes_nothing(store: Store) -> None:
    run, claim = running_run(store)
    save_steps(store, run, claim.fence, "main:1")

    RepeatingStore(store).write_now(lambda tx: tx.turns.commit(a_turn(run), "main:1", is_over=True))

    assert store.verify() == []


def test_a_turn_that_runs_again_late_does_not_take_its_loop_back(store: Store) -> None:
    run, claim = running_run(store)
    store.write_now(lambda tx: tx.turns.commit(a_turn(run), "main:1", is_over=False))
    store.write_now(lambda tx: tx.turns.commit(a_turn(run, 2), "main:2", is_over=False))
    save_steps(store, run, claim.fence, "main:3")

    store.write_now(lambda tx: tx.turns.commit(a_turn(run), "main:1", is_over=False))

    assert loops_of(store, run)["main"].turns_done == 2
    assert len(store.read_now(lambda tx: tx.journal.steps(run.task_id))) == 1


def test_another_turn_at_the_same_place_is_refused_and_changes_nothing(store: Store) -> None:
    run, claim = running_run(store)
    store.write_now(lambda tx: tx.turns.commit(a_turn(run), "main:1", is_over=False))
    save_steps(store, run, claim.fence, "main:1")
    before = store.read_now(contents_of)
    other = a_turn(run, steps=())

    with pytest.raises(Conflict, match="turn 1 of loop 'main'"):
        store.write_now(lambda tx: tx.turns.commit(other, "main:1", is_over=True))

    assert store.read_now(contents_of) == before


# --- what a commit forgets


def test_a_committed_turn_takes_its_steps_and_all_that_lies_inside_it(store: Store) -> None:
    run, claim = running_run(store)
    inside = ["main:1", "main:1/inner:1", "main:1/inner:1/deep:9", "main:1/ä:1"]
    # What only looks alike: other turns, other loops, characters around the slash, wildcards.
    kept = ["", "main", "main:", "main:10", "main:11/inner:1", "main:1.5", "main:1-", "main:10/inner:1"]
    kept += ["main:2", "other:1", "main:1 /x", "Main:1", "main_1", "main:1\x7f"]
    save_steps(store, run, claim.fence, *inside, *kept)

    def count_all(tx: Tx) -> None:
        for scope in (*inside, *kept):
            tx.lists.set_ops(run.task_id, scope, b"[]")
        tx.turns.commit(a_turn(run), "main:1", is_over=False)

    store.write_now(count_all)

    steps = store.read_now(lambda tx: tx.journal.steps(run.task_id))
    assert {step.scope for step in steps} == set(kept)
    assert set(store.read_now(lambda tx: tx.lists.ops([run.task_id]))[run.task_id]) == set(kept)


@pytest.mark.parametrize("turn", ["50%", "a_b", "it's", "[x]*", "a\\b"])
def test_a_turn_may_have_any_name_and_takes_only_its_own(store: Store, turn: str) -> None:
    run, claim = running_run(store)
    scope = f"plan:{turn}"
    save_steps(store, run, claim.fence, scope, f"{scope}/inner:1", "plan:50x", "plan:axb", "plan:its")

    store.write_now(lambda tx: tx.turns.commit(a_turn(run, turn=turn), scope, is_over=False))

    steps = store.read_now(lambda tx: tx.journal.steps(run.task_id))
    assert {step.scope for step in steps} == {"plan:50x", "plan:axb", "plan:its"}


def test_the_loops_inside_a_turn_go_with_it_but_their_turns_stay_for_people(store: Store) -> None:
    run, _ = running_run(store)
    neighbours = ["main", "main:1.5/inner", "main:10/inner", "main:2/inner", "main:1"]

    def commit(tx: Tx) -> None:
        for loop in ("main:1/inner", "main:1/inner:1/deep", *neighbours[1:]):
            tx.turns.commit(a_turn(run, loop=loop), f"{loop}:1", is_over=True)
        tx.turns.commit(a_turn(run), "main:1", is_over=False)

    store.write_now(commit)

    assert set(loops_of(store, run)) == set(neighbours)
    finished = store.read_now(lambda tx: tx.turns.finished(run.task_id))
    assert {turn.loop for turn in finished} == {"main:1/inner", "main:1/inner:1/deep", *neighbours}


def test_another_task_keeps_what_has_the_same_scope(store: Store) -> None:
    run, _ = running_run(store)
    other, claim = running_run(store)
    save_steps(store, other, claim.fence, "main:1", "main:1/inner:1")

    store.write_now(lambda tx: tx.turns.commit(a_turn(run), "main:1", is_over=False))

    assert len(store.read_now(lambda tx: tx.journal.steps(other.task_id))) == 2


# --- the head of the journal


def head_of(store: Store, run: RunRecord) -> JournalHead | None:
    return store.read_now(lambda tx: tx.journal.heads([run.task_id])).get(run.task_id)


def test_the_head_counts_the_steps_of_finished_turns_and_names_their_writers(store: Store) -> None:
    run, claim = running_run(store)
    save_steps(store, run, claim.fence, "", "main:1", "main:1/inner:1")
    turn = a_turn(run, steps=(a_summary("think"), a_summary("act")))
    by_another = msgspec.structs.replace(turn, seq=2, run_id="run_before", steps=(a_summary("look"),))

    def commit(tx: Tx) -> None:
        tx.turns.commit(turn, "main:1", is_over=False)
        tx.turns.commit(by_another, "main:2", is_over=False)

    store.write_now(commit)

    head = head_of(store, run)
    assert head is not None
    assert (head.steps_saved, head.written_by) == (1 + 2 + 1, frozenset({run.id, "run_before"}))


def test_the_last_step_is_that_of_the_newest_turn_unless_a_newer_step_was_saved(store: Store) -> None:
    run, claim = running_run(store)
    store.write_now(
        saving_step(a_step(run, name="prepare", ended_us=to_micros(later(seconds=1))), claim.fence, CLOSED)
    )
    store.write_now(lambda tx: tx.turns.commit(a_turn(run, 2), "main:2", is_over=False))
    after_the_turn = head_of(store, run)

    newer = a_step(run, name="report", seq=2, ended_us=to_micros(later(seconds=3)))
    store.write_now(saving_step(newer, claim.fence, CLOSED))

    after_the_step = head_of(store, run)
    assert after_the_turn is not None
    assert after_the_step is not None
    assert (after_the_turn.last_step, after_the_step.last_step) == ("act 🌊", "report")


def test_a_turn_without_steps_is_progress_without_a_last_step(store: Store) -> None:
    run, _ = running_run(store)

    store.write_now(lambda tx: tx.turns.commit(a_turn(run, steps=()), "main:1", is_over=False))

    assert head_of(store, run) == JournalHead(written_by=frozenset({run.id}))


# --- damage


@pytest.mark.parametrize(
    "column", ["turn", "run_id", "steps", "step_count", "last_step", "ended_at", "digest"]
)
def test_a_damaged_turn_is_not_handed_out(store: Store, column: str) -> None:
    run, _ = running_run(store)
    store.write_now(lambda tx: tx.turns.commit(a_turn(run), "main:1", is_over=False))
    flip(store, "turns", column)

    with pytest.raises(RowDamaged, match="main/1"):
        store.read_now(lambda tx: tx.turns.finished(run.task_id))

    assert any("turn" in problem for problem in store.verify())


@pytest.mark.parametrize("column", ["turns_done", "is_over", "updated_at", "digest"])
def test_a_loop_of_which_a_bit_is_lost_runs_no_turn_twice(store: Store, column: str) -> None:
    run, _ = running_run(store)
    store.write_now(lambda tx: tx.turns.commit(a_turn(run), "main:1", is_over=False))
    flip(store, "loops", column)

    with pytest.raises(RowDamaged, match=f"{run.task_id}/main"):
        store.read_now(lambda tx: tx.turns.loops([run.task_id]))

    assert any("loop" in problem for problem in store.verify())
