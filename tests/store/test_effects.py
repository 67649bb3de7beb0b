"""Effects: noted under the run's fence before they happen, settled once, reviewed by people."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.core.claim import Claim
from holdfast.core.clock import to_micros
from holdfast.core.effect import Effect, EffectClass
from holdfast.core.errors import ClaimLost, IllegalMove, NotFound, RowDamaged
from holdfast.core.ids import EffectId
from holdfast.core.program_records import FinishedTurn
from holdfast.core.run import RunRecord
from holdfast.core.step import Step
from holdfast.core.transitions import EffectStatus, RunStatus
from holdfast.store import Store, Tx
from holdfast.store.effects import FinishEffect, beginning_effect, finishing_effect
from holdfast.store.journal import saving_step
from holdfast.store.queries import load_queries, numbered
from holdfast.store.rows.effects import IN_ORDER
from holdfast.store.sealing import CLOSED
from holdfast.testing import RepeatingStore, contents_of
from tests.builders import START, an_effect, claim_of, later, running_run, stored_run
from tests.engine.tables import execute
from tests.store.program_records import flip


def effect_of(run: RunRecord, **changes: Any) -> Effect:
    return an_effect(**{"task_id": run.task_id, "run_id": run.id, "fence": run.fence} | changes)


def begun(store: Store) -> tuple[Effect, Claim]:
    run, claim = running_run(store)
    effect = effect_of(run)
    assert store.write_now(lambda tx: tx.effects.begin(effect, claim))
    return effect, claim


def get(store: Store, effect: Effect) -> Effect:
    return store.read_now(lambda tx: tx.effects.again(effect))


def test_an_effect_is_created_once(store: Store) -> None:
    effect = an_effect(outcome=b'"sent"', generation=2)
    twin = msgspec.structs.replace(effect, id="eff_another", updated_us=to_micros(later(seconds=9)))

    assert store.write_now(lambda tx: tx.effects.create(effect)) == effect == get(store, effect)
    assert store.write_now(lambda tx: tx.effects.create(twin)) == effect


@pytest.mark.parametrize("status", EffectStatus)
def test_by_id_those_are_found_that_a_caller_asks_about(store: Store, status: EffectStatus) -> None:
    effect = an_effect(status=status)
    store.write_now(lambda tx: tx.effects.create(effect))
    if status in (EffectStatus.INTENT, EffectStatus.DONE):
        with pytest.raises(NotFound, match=r"holdfast reviews list"):
            store.read_now(lambda tx: tx.effects.get(effect.id))
    else:
        assert store.read_now(lambda tx: tx.effects.get(effect.id)) == effect


# --- the intent


def test_an_intent_is_read_back_as_it_was_noted(store: Store) -> None:
    run, claim = running_run(store)
    effect = effect_of(
        run,
        scope="main:12/inner:1",
        name="Senden 🔎",
        occurrence="id:call_7",
        settle_us=to_micros(later(hours=1)),
    )

    assert store.write_now(lambda tx: tx.effects.begin(effect, claim))
    assert get(store, effect) == effect


def test_noting_the_same_intent_again_changes_nothing(store: Store) -> None:
    run, claim = running_run(store)
    effect = effect_of(run)

    RepeatingStore(store).write_now(lambda tx: tx.effects.begin(effect, claim))

    assert get(store, effect) == effect


@pytest.mark.parametrize("changes", [{"id": "eff_other"}, {"request": b"[1]"}])
def test_another_intent_with_the_same_key_is_not_noted(store: Store, changes: dict[str, Any]) -> None:
    effect, claim = begun(store)
    before = store.read_now(contents_of)
    other = msgspec.structs.replace(effect, **changes)

    assert not store.write_now(lambda tx: tx.effects.begin(other, claim))
    assert store.read_now(contents_of) == before


@pytest.mark.parametrize("fence", [0, 2, -1])
def test_only_the_holder_of_the_run_notes_an_intent(store: Store, fence: int) -> None:
    run, claim = running_run(store)
    stranger = msgspec.structs.replace(claim, fence=fence)
    effect = effect_of(run)

    with pytest.raises(ClaimLost) as error:
        store.write_now(lambda tx: tx.effects.begin(effect, stranger))

    assert (error.value.record_id, error.value.fence) == (run.id, fence)
    assert store.read_now(lambda tx: tx.effects.of_task(run.task_id)) == []


def test_an_intent_that_stands_there_is_not_shown_to_a_stranger(store: Store) -> None:
    effect, claim = begun(store)
    stranger = msgspec.structs.replace(claim, fence=claim.fence + 1)

    with pytest.raises(ClaimLost):
        store.write_now(lambda tx: tx.effects.begin(effect, stranger))


def test_a_run_notes_no_intent_of_another_task(store: Store) -> None:
    run, claim = running_run(store)
    other, _ = running_run(store)

    with pytest.raises(ClaimLost):
        store.write_now(lambda tx: tx.effects.begin(effect_of(run, task_id=other.task_id), claim))

    assert store.read_now(lambda tx: tx.effects.of_task(other.task_id)) == []


@pytest.mark.parametrize("status", [status for status in RunStatus if status is not RunStatus.RUNNING])
def test_a_run_that_is_not_running_notes_no_intent(store: Store, status: RunStatus) -> None:
    run = stored_run(store, status, fence=1)
    claim = claim_of(running_run(store)[0])
    its_claim = msgspec.structs.replace(claim, run_id=run.id, task_id=run.task_id, fence=1)

    with pytest.raises(ClaimLost):
        store.write_now(lambda tx: tx.effects.begin(effect_of(run), its_claim))


# --- the outcome


@pytest.mark.parametrize(
    ("way", "outcome"),
    [
        ((EffectStatus.DONE,), b'"sent"'),
        ((EffectStatus.FAILED,), b'{"kind":"refused"}'),
        ((EffectStatus.UNKNOWN,), None),
        ((EffectStatus.UNKNOWN, EffectStatus.CONFIRMED), b'"sent"'),
        ((EffectStatus.UNKNOWN, EffectStatus.FAILED), None),
    ],
)
def test_an_effect_is_settled_with_what_came_of_it(
    store: Store, way: tuple[EffectStatus, ...], outcome: bytes | None
) -> None:
    effect, _ = begun(store)

    def settle(tx: Tx) -> Effect:
        settled = [
            tx.effects.settle(effect, to, outcome=outcome, now=later(seconds=place))
            for place, to in enumerate(way, start=1)
        ]
        return settled[-1]

    settled = store.write_now(settle)

    assert settled == msgspec.structs.replace(
        effect, status=way[-1], outcome=outcome, updated_us=to_micros(later(seconds=len(way)))
    )
    assert get(store, effect) == settled
    assert store.verify() == []


def test_settling_an_effect_so_again_changes_nothing(store: Store) -> None:
    effect, _ = begun(store)

    RepeatingStore(store).write_now(
        lambda tx: tx.effects.settle(effect, EffectStatus.DONE, outcome=b"1", now=later(seconds=1))
    )


@pytest.mark.parametrize(
    ("to", "outcome", "seconds"),
    [
        (EffectStatus.DONE, b"2", 1),
        (EffectStatus.DONE, b"1", 2),
        (EffectStatus.FAILED, b"1", 1),
        (EffectStatus.UNKNOWN, b"1", 1),
        (EffectStatus.CONFIRMED, b"1", 1),
    ],
)
def test_an_effect_that_is_settled_is_settled(
    store: Store, to: EffectStatus, outcome: bytes, seconds: int
) -> None:
    effect, _ = begun(store)
    settled = store.write_now(
        lambda tx: tx.effects.settle(effect, EffectStatus.DONE, outcome=b"1", now=later(seconds=1))
    )

    with pytest.raises(IllegalMove, match=effect.id):
        store.write_now(lambda tx: tx.effects.settle(effect, to, outcome=outcome, now=later(seconds=seconds)))

    assert get(store, effect) == settled


def test_an_effect_that_was_never_noted_is_neither_settled_nor_reviewed(store: Store) -> None:
    with pytest.raises(NotFound, match="eff_nothing"):
        store.write_now(
            lambda tx: tx.effects.settle(
                an_effect(id="eff_nothing"), EffectStatus.DONE, outcome=None, now=START
            )
        )
    with pytest.raises(NotFound, match="eff_nothing"):
        store.write_now(lambda tx: tx.effects.set_review("eff_nothing", b"{}", START))


# --- the outcome of one that went as it should


def step_of(effect: Effect, **changes: Any) -> Step:
    step: dict[str, Any] = {
        "task_id": effect.task_id,
        "scope": effect.scope,
        "name": effect.name,
        "occurrence": effect.occurrence,
        "run_id": effect.run_id,
        "seq": 1,
        "result": b'"sent"',
        "started_us": to_micros(START),
        "ended_us": to_micros(later(seconds=1)),
        "is_effect": True,
    }
    return Step(**step | changes)


def finishing(effect: Effect, claim: Claim, outcome: bytes = b'"sent"') -> FinishEffect:
    return finishing_effect(effect, claim, outcome, micros=to_micros(later(seconds=1)), sealing=CLOSED)


def test_an_effect_that_is_finished_is_its_own_step(store: Store) -> None:
    effect, claim = begun(store)
    step = step_of(effect, seq=to_micros(later(seconds=1)))

    RepeatingStore(store).write_now(finishing(effect, claim))

    settled = get(store, effect)
    assert (settled.status, settled.outcome, settled.updated_at) == (
        EffectStatus.DONE,
        b'"sent"',
        later(seconds=1),
    )
    journal = store.read_now(
        lambda tx: (
            tx.journal.steps(effect.task_id),
            tx.journal.newest_steps(effect.task_id, limit=1),
            tx.journal.steps_of([effect.task_id])[effect.task_id],
            [tx.journal.find_step(effect.task_id, effect.scope, effect.name, effect.occurrence)],
        )
    )
    assert journal == ([step],) * 4
    head = store.read_now(lambda tx: tx.journal.heads([effect.task_id]))[effect.task_id]
    assert (head.steps_saved, head.last_step, head.written_by) == (
        1,
        effect.name,
        frozenset({effect.run_id}),
    )


def test_effects_and_steps_are_one_journal_in_the_order_of_their_ends(store: Store) -> None:
    effect, claim = begun(store)
    effects = [msgspec.structs.replace(effect, id=f"eff_{n}", occurrence=str(n)) for n in (2, 3)]
    for number, one in enumerate(effects):
        assert store.write_now(beginning_effect(one, CLOSED))
        assert store.write_now(finishing_effect(one, claim, b"1", micros=10 * number + 10, sealing=CLOSED))
    for seq in (5, 15, 25):
        step = step_of(effect, name="look", occurrence=str(seq), seq=seq)
        store.write_now(saving_step(step, claim.fence, CLOSED))

    def read(tx: Tx) -> tuple[list[int], list[int], list[int]]:
        steps, newest = tx.journal.steps(effect.task_id), tx.journal.newest_steps(effect.task_id, limit=2)
        first = tx.journal.steps(effect.task_id, limit=3)
        return [step.seq for step in steps], [step.seq for step in newest], [step.seq for step in first]

    # The one that is only begun is none.
    assert store.read_now(read) == ([5, 10, 15, 20, 25], [25, 20], [5, 10, 15])


def test_the_effects_of_a_turn_leave_the_journal_with_it(store: Store) -> None:
    run, claim = running_run(store)
    done, failed, unknown, beside, begun = (
        effect_of(run, id=f"eff_{name}", scope=scope, name=name)
        for name, scope in (
            ("done", "main:1"),
            ("failed", "main:1/inner:2"),
            ("unknown", "main:1"),
            ("beside", "main:10"),
            ("begun", "main:1"),
        )
    )

    def play(tx: Tx) -> None:
        for effect in (done, failed, unknown, beside, begun):
            assert tx.effects.begin(effect, claim)
        for effect, to in ((done, "done"), (failed, "failed"), (unknown, "unknown"), (beside, "done")):
            tx.effects.settle(effect, EffectStatus(to), outcome=b"1", now=later(seconds=1))

    def commit(tx: Tx) -> None:
        turn = FinishedTurn(
            task_id=run.task_id,
            loop="main",
            seq=1,
            turn="1",
            run_id=run.id,
            steps=(),
            began_at=START,
            ended_at=START,
        )
        tx.turns.commit(turn, "main:1", is_over=False)

    store.write_now(play)
    RepeatingStore(store).write_now(commit)

    def read(tx: Tx) -> tuple[list[str], list[str], list[str], bool]:
        return (
            [step.name for step in tx.journal.steps(run.task_id)],
            [effect.name for effect in tx.effects.unsettled([run.task_id])[run.task_id]],
            sorted(effect.name for effect in tx.effects.newest_of_task(run.task_id, limit=9)),
            tx.effects.again(done).status is EffectStatus.DONE,
        )

    # What is open stays, whatever became of its turn: a worker has to settle it.
    assert store.read_now(read) == (
        ["beside"],
        ["begun", "unknown"],
        ["begun", "beside", "done", "failed", "unknown"],
        True,
    )
    # And what has left has its key for ever.
    again = msgspec.structs.replace(done, id="eff_again")
    assert not store.write_now(lambda tx: tx.effects.begin(again, claim))
    assert not store.write_now(beginning_effect(again, CLOSED))
    assert store.write_now(lambda tx: tx.effects.create(again)).id == done.id


def test_who_lost_the_claim_finishes_nothing(store: Store) -> None:
    effect, claim = begun(store)
    before = store.read_now(contents_of)

    assert not store.write_now(finishing(effect, msgspec.structs.replace(claim, fence=claim.fence + 1)))
    assert store.read_now(contents_of) == before


@pytest.mark.parametrize("status", [EffectStatus.UNKNOWN, EffectStatus.FAILED])
def test_an_effect_that_was_settled_otherwise_is_not_simply_finished(
    store: Store, status: EffectStatus
) -> None:
    effect, claim = begun(store)
    store.write_now(lambda tx: tx.effects.settle(effect, status, outcome=None, now=START))
    before = store.read_now(contents_of)

    assert not store.write_now(finishing(effect, claim))
    assert store.read_now(contents_of) == before


def test_a_step_that_is_saved_under_its_key_comes_before_the_effect(store: Store) -> None:
    effect, claim = begun(store)
    first = step_of(effect, result=b'"first"', is_effect=False)
    store.write_now(saving_step(first, claim.fence, CLOSED))

    assert store.write_now(finishing(effect, claim))
    assert get(store, effect).status is EffectStatus.DONE
    found = store.read_now(lambda tx: tx.journal.find_step(effect.task_id, "", "send", effect.occurrence))
    assert found == first
    assert store.read_now(lambda tx: tx.journal.steps(effect.task_id)) == [first]


# --- reviews


def test_a_review_stays_with_its_effect(store: Store) -> None:
    effect = an_effect(status=EffectStatus.UNKNOWN)
    store.write_now(lambda tx: tx.effects.create(effect))

    def decide(tx: Tx) -> Effect:
        tx.effects.set_review(effect.id, b'{"decision":"skip"}', later(seconds=1))
        return tx.effects.set_review(effect.id, b'{"decision":"retry"}', later(seconds=2))

    reviewed = RepeatingStore(store)
    reviewed.write_now(decide)

    assert get(store, effect) == msgspec.structs.replace(
        effect, review=b'{"decision":"retry"}', updated_us=to_micros(later(seconds=2))
    )
    assert store.verify() == []


def test_what_waits_for_a_person_comes_oldest_first_a_page_at_a_time(store: Store) -> None:
    effects = [an_effect(id=EffectId(f"eff_{number}"), status=EffectStatus.UNKNOWN) for number in range(5)]
    others = [an_effect(status=status) for status in EffectStatus if status is not EffectStatus.UNKNOWN]
    store.write_now(lambda tx: [tx.effects.create(one) for one in (*reversed(effects), *others)])

    read = store.read_now
    assert read(lambda tx: tx.effects.reviews(2)) == effects[:2]
    assert read(lambda tx: tx.effects.reviews(2, after="eff_1")) == effects[2:4]
    assert read(lambda tx: tx.effects.reviews(limit=9, after="eff_3")) == effects[4:]


# --- the effects of tasks


def test_the_effects_of_tasks_are_told_apart_and_done_ones_are_settled(store: Store) -> None:
    def of(task: str) -> list[Effect]:
        return [
            an_effect(id=EffectId(f"eff_{task}_{place}"), task_id=task, status=status)
            for place, status in enumerate(EffectStatus)
        ]

    one, two, done = of("task_1"), of("task_2"), an_effect(task_id="task_3", status=EffectStatus.DONE)
    store.write_now(lambda tx: [tx.effects.create(effect) for effect in (*reversed(one), *two, done)])

    assert store.read_now(lambda tx: tx.effects.of_task("task_1")) == one
    assert store.read_now(lambda tx: tx.effects.unsettled(["task_1", "task_2", "task_3", "task_4"])) == {
        task: [effect for effect in effects if effect.status is not EffectStatus.DONE]
        for task, effects in (("task_1", one), ("task_2", two))
    }


# --- damage


@pytest.mark.parametrize(
    "column",
    ["scope", "occurrence", "request", "digest", "outcome", "outcome_digest", "review", "review_digest"],
)
def test_a_damaged_effect_is_not_handed_out(store: Store, column: str) -> None:
    effect = an_effect(scope="main:1", status=EffectStatus.CONFIRMED, outcome=b"1", review=b"{}")
    store.write_now(lambda tx: tx.effects.create(effect))
    assert store.verify() == []
    flip(store, "effects", column)

    with pytest.raises(RowDamaged, match=effect.id):
        store.read_now(lambda tx: tx.effects.get(effect.id))

    assert any(effect.id in problem for problem in store.verify())


@pytest.mark.parametrize("column", ["updated_at", "settle_after"])
def test_a_time_that_no_clock_can_have_said_is_damage(store: Store, column: str) -> None:
    effect = an_effect(status=EffectStatus.CONFIRMED, outcome=b"1", settle_us=1)
    store.write_now(lambda tx: tx.effects.create(effect))
    execute(store, f"UPDATE effects SET {column} = {2**60}")

    with pytest.raises(RowDamaged, match=effect.id):
        store.read_now(lambda tx: tx.effects.get(effect.id))

    assert any(effect.id in problem for problem in store.verify())


@pytest.mark.parametrize("column", ["status", "effect_class"])
def test_the_database_refuses_a_word_that_it_does_not_know(
    store: Store, refusal: type[Exception], column: str
) -> None:
    store.write_now(lambda tx: tx.effects.create(an_effect()))

    with pytest.raises(refusal):
        execute(store, f"UPDATE effects SET {column} = 'perhaps'")


def test_values_are_given_in_the_order_in_which_sqlite_counts_parameters() -> None:
    queries = load_queries("sqlite")

    assert {name: numbered(queries[name])[1] for name in IN_ORDER} == IN_ORDER


@pytest.mark.parametrize("status", EffectStatus)
@pytest.mark.parametrize("is_cancelled", [True, False])
def test_open_effects_of_tasks_that_are_to_end_are_found_by_their_keys(
    store: Store, status: EffectStatus, is_cancelled: bool
) -> None:
    task = {"cancel_requested_at": START, "cancel_reason": "enough"} if is_cancelled else {}
    run = stored_run(store, RunStatus.RUNNING, task=task)
    effect = effect_of(run, status=status, effect_class=EffectClass.VERIFIABLE, idempotency_key="key_a")
    other = effect_of(run, status=status, effect_class=EffectClass.OPAQUE, idempotency_key="key_b")
    store.write_now(lambda tx: [tx.effects.create(one) for one in (effect, other)])

    found = store.read_now(lambda tx: tx.effects.to_stop(["key_a", "key_b", "key_c"]))

    is_open = status in (EffectStatus.INTENT, EffectStatus.UNKNOWN)
    assert found == ([effect] if is_open and is_cancelled else [])
