"""Effects: noted under the run's fence before they happen, settled once, reviewed by people."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.core.claim import Claim
from holdfast.core.effect import Effect
from holdfast.core.errors import ClaimLost, IllegalMove, NotFound, RowDamaged
from holdfast.core.ids import EffectId
from holdfast.core.run import Run
from holdfast.core.step import Step
from holdfast.core.transitions import EffectStatus, RunStatus
from holdfast.store import Store, Tx
from holdfast.store.effects import FinishEffect
from holdfast.store.journal import SaveStep
from holdfast.testing import RepeatingStore, contents_of
from tests.builders import START, an_effect, claim_of, later, running_run, stored_run
from tests.store.programs import flip


def effect_of(run: Run, **changes: Any) -> Effect:
    return an_effect(**{"task_id": run.task_id, "run_id": run.id, "fence": run.fence} | changes)


def begun(store: Store) -> tuple[Effect, Claim]:
    run, claim = running_run(store)
    effect = effect_of(run)
    assert store.write_now(lambda tx: tx.effects.begin(effect, claim))
    return effect, claim


def get(store: Store, effect: Effect) -> Effect:
    return store.read_now(lambda tx: tx.effects.get(effect.id))


# --- the intent


def test_an_intent_is_read_back_as_it_was_noted(store: Store) -> None:
    run, claim = running_run(store)
    effect = effect_of(
        run, scope="main:12/inner:1", name="Senden 🔎", occurrence="id:call_7", settle_after=later(hours=1)
    )

    assert store.write_now(lambda tx: tx.effects.begin(effect, claim))
    assert get(store, effect) == effect


def test_noting_the_same_intent_again_changes_nothing(store: Store) -> None:
    run, claim = running_run(store)
    effect = effect_of(run)

    RepeatingStore(store).write_now(lambda tx: tx.effects.begin(effect, claim))

    assert get(store, effect) == effect


@pytest.mark.parametrize("changes", [{"id": "eff_other"}, {"request": b"[1]"}, {"occurrence": "2"}])
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
            tx.effects.settle(effect.id, to, outcome=outcome, now=later(seconds=place))
            for place, to in enumerate(way, start=1)
        ]
        return settled[-1]

    settled = store.write_now(settle)

    assert settled == msgspec.structs.replace(
        effect, status=way[-1], outcome=outcome, updated_at=later(seconds=len(way))
    )
    assert get(store, effect) == settled
    assert store.verify() == []


def test_settling_an_effect_so_again_changes_nothing(store: Store) -> None:
    effect, _ = begun(store)

    RepeatingStore(store).write_now(
        lambda tx: tx.effects.settle(effect.id, EffectStatus.DONE, outcome=b"1", now=later(seconds=1))
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
        lambda tx: tx.effects.settle(effect.id, EffectStatus.DONE, outcome=b"1", now=later(seconds=1))
    )

    with pytest.raises(IllegalMove, match=effect.id):
        store.write_now(
            lambda tx: tx.effects.settle(effect.id, to, outcome=outcome, now=later(seconds=seconds))
        )

    assert get(store, effect) == settled


def test_an_effect_that_was_never_noted_is_neither_settled_nor_reviewed(store: Store) -> None:
    with pytest.raises(NotFound, match="eff_nothing"):
        store.write_now(
            lambda tx: tx.effects.settle("eff_nothing", EffectStatus.DONE, outcome=None, now=START)
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
        "started_at": START,
        "ended_at": later(seconds=1),
    }
    return Step(**step | changes)


def test_an_effect_is_finished_together_with_its_step(store: Store) -> None:
    effect, claim = begun(store)
    step = step_of(effect)

    RepeatingStore(store).write_now(FinishEffect(effect.id, step, claim.fence))

    settled = get(store, effect)
    assert (settled.status, settled.outcome, settled.updated_at) == (
        EffectStatus.DONE,
        b'"sent"',
        later(seconds=1),
    )
    assert store.read_now(lambda tx: tx.journal.steps(effect.task_id)) == [step]


def test_who_lost_the_claim_finishes_nothing(store: Store) -> None:
    effect, claim = begun(store)
    before = store.read_now(contents_of)

    assert not store.write_now(FinishEffect(effect.id, step_of(effect), claim.fence + 1))
    assert store.read_now(contents_of) == before


@pytest.mark.parametrize("status", [EffectStatus.UNKNOWN, EffectStatus.FAILED])
def test_an_effect_that_was_settled_otherwise_is_not_simply_finished(
    store: Store, status: EffectStatus
) -> None:
    effect, claim = begun(store)
    store.write_now(lambda tx: tx.effects.settle(effect.id, status, outcome=None, now=START))
    before = store.read_now(contents_of)

    assert not store.write_now(FinishEffect(effect.id, step_of(effect), claim.fence))
    assert store.read_now(contents_of) == before


def test_a_result_that_stands_there_stays_when_its_effect_is_finished(store: Store) -> None:
    effect, claim = begun(store)
    first = step_of(effect, result=b'"first"')
    store.write_now(SaveStep(first, claim.fence))

    assert store.write_now(FinishEffect(effect.id, step_of(effect), claim.fence))
    assert get(store, effect).status is EffectStatus.DONE
    assert store.read_now(lambda tx: tx.journal.steps(effect.task_id)) == [first]


# --- reviews


def test_a_review_stays_with_its_effect(store: Store) -> None:
    effect, _ = begun(store)

    def decide(tx: Tx) -> Effect:
        tx.effects.set_review(effect.id, b'{"decision":"skip"}', later(seconds=1))
        return tx.effects.set_review(effect.id, b'{"decision":"retry"}', later(seconds=2))

    reviewed = RepeatingStore(store)
    reviewed.write_now(decide)

    assert get(store, effect) == msgspec.structs.replace(
        effect, review=b'{"decision":"retry"}', updated_at=later(seconds=2)
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
    effect = an_effect(scope="main:1", status=EffectStatus.DONE, outcome=b"1", review=b"{}")
    store.write_now(lambda tx: tx.effects.create(effect))
    assert store.verify() == []
    flip(store, "effects", column)

    with pytest.raises(RowDamaged, match=effect.id):
        get(store, effect)

    assert any(effect.id in problem for problem in store.verify())
