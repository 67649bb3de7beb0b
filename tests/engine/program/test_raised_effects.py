"""Effects whose function raises: an exception does not say that nothing happened."""

from __future__ import annotations

import asyncio
import functools
import random
import threading
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.effect import Effect
from holdfast.core.events import EventKind
from holdfast.core.transitions import EffectStatus, RunStatus, TaskStatus
from holdfast.engine.client.handles import Handle
from holdfast.testing import Crashed, crash_everywhere
from tests.engine.stage import Stage


class QuotaExceeded(Exception):
    pass


class Bank:
    """The outside: what was asked of it, under which key, and what really happened there."""

    def __init__(self, *raises: BaseException) -> None:
        self.raises = list(raises)
        self.keys: list[str] = []
        self.paid: Counter[str] = Counter()

    def pay(self, to: str) -> str:
        """It pays, and then it may raise all the same."""
        self.keys.append(hf.idempotency_key())
        self.paid[to] += 1
        if self.raises:
            raise self.raises.pop(0)
        return f"paid {to}"


def paying(bank: Bank, effect: Any, **options: Any) -> Any:
    @hf.tool(effect=effect, **options)
    async def pay(to: str) -> str:
        return bank.pay(to)

    return pay


def task_of(pay: Any, **options: Any) -> Any:
    """A program that does not catch what its effect raises, with the attempts that every task has."""

    @hf.task(**options)
    async def pays(run: hf.Run) -> str:
        return f"{await run.step(pay, 'ann')}!"

    return pays


def effects_of(stage: Stage, handle: Handle[Any]) -> list[Effect]:
    found = stage.store.read_now(lambda tx: tx.effects.of_task(handle.id))
    return sorted(found, key=lambda effect: effect.generation)


def statuses(stage: Stage, handle: Handle[Any]) -> list[EffectStatus]:
    return [effect.status for effect in effects_of(stage, handle)]


async def to_the_end(stage: Stage, handle: Handle[Any]) -> TaskStatus:
    """As far as it gets by itself, with all the time that it wants."""
    for _ in range(50):
        await stage.settle()
        if (await handle.task()).has_ended or not await stage.pass_time():
            break
    return await handle.status()


async def started(stage: Stage, task: Any) -> Handle[Any]:
    await stage.open(task)
    handle = await stage.start(task())
    await to_the_end(stage, handle)
    return handle


# --- opaque


@pytest.mark.parametrize(
    "error",
    [ValueError("not json"), RuntimeError("500"), FileNotFoundError("no file")],
    ids=lambda one: str(one),
)
async def test_an_opaque_effect_that_raised_is_never_called_again_by_itself(
    stage: Stage, error: Exception
) -> None:
    bank = Bank(error)
    handle = await started(stage, task_of(paying(bank, hf.opaque)))

    assert bank.paid["ann"] == 1
    assert await handle.status() is TaskStatus.NEEDS_REVIEW
    assert statuses(stage, handle) == [EffectStatus.UNKNOWN]


async def test_the_review_of_an_effect_that_raised_has_the_evidence(stage: Stage) -> None:
    handle = await started(stage, task_of(paying(Bank(ValueError("not json")), hf.opaque)))

    (effect,) = effects_of(stage, handle)
    assert effect.outcome is not None
    assert b"ValueError" in effect.outcome
    assert b"not json" in effect.outcome
    assert (await handle.task()).waits_on == f"review:{effect.id}"
    told = await stage.events(handle, EventKind.EFFECT_IN_DOUBT)
    assert [event.subject_id for event in told] == [effect.id]


@pytest.mark.parametrize(
    ("decision", "result", "paid", "answer"),
    [
        ("done", "paid by hand", 1, "paid by hand!"),
        ("retry", None, 2, "paid ann!"),
        ("skip", None, 1, "None!"),
    ],
)
async def test_a_task_that_an_effect_ended_goes_on_as_a_person_decides(
    stage: Stage, decision: str, result: object, paid: int, answer: str
) -> None:
    bank = Bank(ValueError("not json"))
    handle = await started(stage, task_of(paying(bank, hf.opaque), attempts=1))

    (effect,) = effects_of(stage, handle)
    await stage.holdfast.resolve(effect.id, decision, result=result)
    await to_the_end(stage, handle)

    assert await stage.result(handle) == answer
    assert bank.paid["ann"] == paid
    assert len(set(bank.keys)) == paid
    assert len(await stage.runs(handle)) == 1


async def test_a_person_may_have_it_undone_and_then_the_task_fails(stage: Stage) -> None:
    undone: list[str] = []
    pay = paying(Bank(ValueError("not json")), hf.opaque, compensate=undone.append)
    handle = await started(stage, task_of(pay))

    (effect,) = effects_of(stage, handle)
    await stage.holdfast.resolve(effect.id, "compensate")

    assert await to_the_end(stage, handle) is TaskStatus.FAILED
    assert undone == ["ann"]
    assert statuses(stage, handle) == [EffectStatus.FAILED]


async def test_one_that_raises_again_after_a_retry_is_put_before_a_person_again(stage: Stage) -> None:
    bank = Bank(ValueError("not json"), ValueError("still not"))
    handle = await started(stage, task_of(paying(bank, hf.opaque)))
    (first,) = effects_of(stage, handle)
    await stage.holdfast.resolve(first.id, "retry")
    await to_the_end(stage, handle)

    assert await handle.status() is TaskStatus.NEEDS_REVIEW
    assert statuses(stage, handle) == [EffectStatus.FAILED, EffectStatus.UNKNOWN]
    assert bank.paid["ann"] == 2


async def test_a_program_that_catches_the_failure_goes_on_and_nobody_is_asked(stage: Stage) -> None:
    bank = Bank(ValueError("not json"))
    pay = paying(bank, hf.opaque)

    @hf.task
    async def agent(run: hf.Run) -> str:
        async for turn in run.turns(max=2):
            try:
                await turn.tool(pay, {"to": "ann"}, id="call-1")
            except hf.StepFailed as error:
                return f"the model hears: {error.message}"
        return "?"

    await stage.open(agent)

    assert await stage.run(agent()) == "the model hears: not json"
    assert bank.paid["ann"] == 1


@pytest.mark.parametrize("dies", [False, True], ids=["retried", "killed, then retried"])
async def test_a_retried_task_hears_of_the_same_failure_and_does_not_call_it_again(
    stage: Stage, dies: bool
) -> None:
    bank, heard, lives = Bank(ValueError("not json")), list[str](), Counter[str]()
    pay = paying(bank, hf.opaque)

    @hf.task(attempts=3, backoff="1s")
    async def stubborn(run: hf.Run) -> str:
        try:
            await run.step(pay, "ann")
        except hf.StepFailed as error:
            heard.append(f"{error.kind}: {error.message}")
        lives["all"] += 1
        if dies and lives["all"] == 1:
            raise Crashed
        if lives["all"] < 3:
            raise RuntimeError("something else")
        return "done"

    await stage.open(stubborn)
    handle = await stage.start(stubborn())
    await stage.settle()
    if dies:
        await stage.open(stubborn)
    await to_the_end(stage, handle)

    assert await stage.result(handle) == "done"
    assert heard == ["ValueError: not json"] * 3
    assert bank.paid["ann"] == 1
    assert statuses(stage, handle) == [EffectStatus.FAILED]


async def catch_and_raise(run: hf.Run, pay: Any) -> None:
    try:
        await run.step(pay, "ann")
    except hf.StepFailed as error:
        raise KeyError("lost") from error


async def raise_in_a_handler(run: hf.Run, pay: Any) -> None:
    try:
        await run.step(pay, "ann")
    except hf.StepFailed:
        raise KeyError("lost")  # noqa: B904 - the context is what is tested


async def raise_in_a_group(run: hf.Run, pay: Any) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(run.tool(pay, {"to": "ann"}, id="a"))
        group.create_task(run.tool(pay, {"to": "bob"}, id="b"))


@pytest.mark.parametrize("ends", [catch_and_raise, raise_in_a_handler, raise_in_a_group])
async def test_a_failure_that_ends_the_run_by_way_of_others_is_in_doubt_too(
    stage: Stage, ends: Callable[..., Any]
) -> None:
    bank = Bank(ValueError("not json"))
    pay = paying(bank, hf.opaque)

    @hf.task
    async def agent(run: hf.Run) -> None:
        await ends(run, pay)

    handle = await started(stage, agent)

    assert await handle.status() is TaskStatus.NEEDS_REVIEW
    assert set(bank.paid.values()) == {1}  # in a group, on a server, either may be called first
    assert EffectStatus.UNKNOWN in statuses(stage, handle)


async def test_two_that_raised_together_are_decided_one_after_the_other(stage: Stage) -> None:
    bank = Bank(ValueError("one"), ValueError("two"))
    pay = paying(bank, hf.opaque)

    @hf.task(attempts=1)
    async def agent(run: hf.Run) -> list[str]:
        calls = [run.tool(pay, {"to": name}, id=name) for name in ("ann", "bob")]
        given = await asyncio.gather(*calls, return_exceptions=True)
        errors = [one for one in given if isinstance(one, Exception)]
        if errors:
            raise ExceptionGroup("payments", errors)
        return [str(one) for one in given]

    handle = await started(stage, agent)
    for effect in effects_of(stage, handle):
        assert effect.status is EffectStatus.UNKNOWN
        await stage.holdfast.resolve(effect.id, "done", result=f"seen {effect.occurrence}")
        await to_the_end(stage, handle)

    assert await stage.result(handle) == ["seen id:ann", "seen id:bob"]
    assert bank.paid == {"ann": 1, "bob": 1}


async def test_a_failure_of_a_finished_turn_that_ends_the_run_later_is_not_in_doubt(stage: Stage) -> None:
    """The program has gone on from it: its turn is data, and nothing of it is called again."""
    bank = Bank(ValueError("not json"))
    pay = paying(bank, hf.opaque)

    @hf.task(attempts=2, backoff="1s")
    async def agent(run: hf.Run) -> None:
        kept: list[Exception] = []
        async for turn in run.turns(max=2):
            try:
                await turn.tool(pay, {"to": f"turn {turn.number}"})
            except hf.StepFailed as error:
                kept.append(error)
        if kept:
            raise kept[0]

    handle = await started(stage, agent)

    assert await handle.status() is TaskStatus.SUCCEEDED
    assert bank.paid == {"turn 1": 1, "turn 2": 1}


@pytest.mark.parametrize("error", [ConnectionResetError("reset"), TimeoutError("slow")], ids=str)
async def test_a_transport_error_is_in_doubt_at_once_and_the_program_is_not_told(
    stage: Stage, error: Exception
) -> None:
    told: list[Exception] = []
    bank = Bank(error)
    pay = paying(bank, hf.opaque)

    @hf.task
    async def agent(run: hf.Run) -> None:
        try:
            await run.step(pay, "ann")
        except Exception as problem:
            told.append(problem)
            raise

    handle = await started(stage, agent)

    assert await handle.status() is TaskStatus.NEEDS_REVIEW
    assert (told, bank.paid["ann"]) == ([], 1)


async def test_an_error_that_the_program_was_handling_says_nothing_about_the_effect(stage: Stage) -> None:
    """Python makes it the context of what the effect raises."""
    bank = Bank(ValueError("not json"))
    pay = paying(bank, hf.opaque)

    @hf.task
    async def agent(run: hf.Run) -> str:
        try:
            raise TimeoutError("of something else")  # noqa: TRY301 - so that it is being handled
        except TimeoutError:
            try:
                await run.step(pay, "ann")
            except hf.StepFailed as error:
                return error.message
        return "?"

    await stage.open(agent)

    assert await stage.run(agent()) == "not json"


# --- what is certain


@pytest.mark.parametrize(
    "error", [ValueError("bad amount"), QuotaExceeded("tomorrow"), hf.NotDone("the till is shut")], ids=str
)
async def test_what_the_author_says_did_not_happen_is_tried_again_with_a_new_key(
    stage: Stage, error: Exception
) -> None:
    bank = Bank(error)
    pay = paying(bank, hf.opaque(did_not_happen=(ValueError, QuotaExceeded)))
    handle = await started(stage, task_of(pay, attempts=2, backoff="1s"))

    assert await stage.result(handle) == "paid ann!"
    assert len(set(bank.keys)) == 2
    assert statuses(stage, handle) == [EffectStatus.FAILED, EffectStatus.DONE]


async def test_what_is_certain_ends_the_task_as_failed_and_nobody_is_asked(stage: Stage) -> None:
    bank = Bank(hf.NotDone("shut"), hf.NotDone("shut"))
    handle = await started(stage, task_of(paying(bank, hf.opaque), attempts=2, backoff="1s"))

    assert await handle.status() is TaskStatus.FAILED
    assert statuses(stage, handle) == [EffectStatus.FAILED, EffectStatus.FAILED]


async def test_the_retry_of_an_opaque_tool_is_for_what_is_certain_only(stage: Stage) -> None:
    bank = Bank(QuotaExceeded("tomorrow"), KeyError("id"))
    pay = paying(bank, hf.opaque(did_not_happen=QuotaExceeded), retry=hf.retry(5, backoff="1s"))
    handle = await started(stage, task_of(pay))

    assert await handle.status() is TaskStatus.NEEDS_REVIEW
    assert len(bank.keys) == 2


async def test_arguments_that_do_not_fit_are_certain_for_nothing_was_called(stage: Stage) -> None:
    pay = paying(bank := Bank(), hf.opaque)

    @hf.task(attempts=1)
    async def agent(run: hf.Run) -> None:
        await run.tool(pay, {"whom": "ann"}, id="call-1")

    handle = await started(stage, agent)

    assert await handle.status() is TaskStatus.FAILED
    assert (statuses(stage, handle), bank.keys) == ([EffectStatus.FAILED], [])


async def test_a_secret_that_is_not_known_is_certain_for_nothing_was_called(stage: Stage) -> None:
    pay = paying(bank := Bank(), hf.opaque)

    @hf.task(attempts=1)
    async def agent(run: hf.Run) -> None:
        await run.tool(pay, {"to": hf.secret("NOBODY_KNOWS_ME")}, id="call-1")

    handle = await started(stage, agent)

    assert await handle.status() is TaskStatus.FAILED
    assert (statuses(stage, handle), bank.keys) == ([EffectStatus.FAILED], [])


async def test_a_type_error_from_inside_the_function_is_not_certain(stage: Stage) -> None:
    handle = await started(stage, task_of(paying(Bank(TypeError("None has no len()")), hf.opaque)))

    assert await handle.status() is TaskStatus.NEEDS_REVIEW


async def test_a_type_error_inside_somebody_elses_wrapper_is_not_certain(stage: Stage) -> None:
    """The wrapper was entered: what it did before it called the function, it has done."""
    bank = Bank()

    async def pay(to: str) -> str:
        return to

    @functools.wraps(pay)
    async def wrapper(*args: Any, **kwargs: Any) -> str:
        bank.pay("ann")
        return await pay(*args, **kwargs)

    @hf.task(attempts=1)
    async def agent(run: hf.Run) -> None:
        await run.tool(wrapper, {"whom": "ann"}, id="call-1")

    handle = await started(stage, agent)

    assert await handle.status() is TaskStatus.NEEDS_REVIEW
    assert bank.paid["ann"] == 1


@pytest.mark.parametrize(
    "declare",
    [
        lambda fn: hf.tool(fn, effect=hf.opaque, retry=hf.retry(2)),
        lambda fn: hf.tool(fn, retry=hf.retry(2)),
        lambda fn: hf.step(hf.opaque(fn), retry=hf.retry(2)),
        lambda fn: hf.opaque(hf.step(fn, retry=hf.retry(2))),
    ],
    ids=["tool", "tool that declares nothing", "step of an opaque one", "opaque step"],
)
def test_a_retry_of_an_opaque_tool_is_refused_where_it_is_declared(declare: Callable[[Any], Any]) -> None:
    async def pay(to: str) -> str:
        return to

    with pytest.raises(hf.BadInput, match="did_not_happen"):
        declare(pay)


async def test_a_retry_of_what_is_opaque_by_default_is_refused_where_it_is_called(quick: Stage) -> None:
    @hf.step(retry=hf.retry(2))
    async def pay(to: str) -> str:
        return to

    @hf.task(attempts=1)
    async def agent(run: hf.Run) -> None:
        await run.tool(pay, {"to": "ann"})

    handle = await started(quick, agent)

    failure = (await handle.task()).failure
    assert failure is not None
    assert "did_not_happen" in failure.message


@pytest.mark.parametrize("kinds", [(), "ValueError", [int], KeyboardInterrupt, 7], ids=str)
def test_what_did_not_happen_is_named_by_classes_of_exceptions(kinds: Any) -> None:
    with pytest.raises(hf.BadInput, match="did_not_happen"):
        hf.opaque(did_not_happen=kinds)


# --- keyed


@pytest.fixture
def no_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every pause is as long as it may be."""
    monkeypatch.setattr(random, "random", lambda: 1.0)


async def test_a_keyed_effect_that_raised_is_tried_again_with_the_same_key(stage: Stage) -> None:
    bank = Bank(RuntimeError("500"), ValueError("not json"))
    pay = paying(bank, hf.keyed("24h"), retry=hf.retry(1, backoff="1m"))
    handle = await started(stage, task_of(pay, attempts=2, backoff="1m"))

    assert await stage.result(handle) == "paid ann!"
    assert len(bank.keys) == 3
    assert len(set(bank.keys)) == 1
    assert statuses(stage, handle) == [EffectStatus.FAILED, EffectStatus.FAILED, EffectStatus.DONE]


@pytest.mark.usefixtures("no_jitter")
async def test_attempts_that_share_a_key_share_its_window(stage: Stage) -> None:
    bank = Bank(*(RuntimeError("500") for _ in range(5)))
    pay = paying(bank, hf.keyed("20h"), retry=hf.retry(5, backoff="18h", most="18h"))
    handle = await started(stage, task_of(pay, attempts=1))

    assert await handle.status() is TaskStatus.NEEDS_REVIEW
    assert (len(bank.keys), len(set(bank.keys))) == (2, 1)
    assert statuses(stage, handle)[-1] is EffectStatus.UNKNOWN


@pytest.mark.usefixtures("no_jitter")
async def test_the_window_of_a_shared_key_is_counted_from_its_first_use_after_a_restart_too(
    stage: Stage,
) -> None:
    bank = Bank(RuntimeError("500"), Crashed())
    pay = paying(bank, hf.keyed("20h"), retry=hf.retry(5, backoff="18h", most="18h"))
    task = task_of(pay, attempts=1)
    await started(stage, task)  # killed in the second attempt, 18 hours after the first
    stage.clock.advance(hours=12)
    await stage.open(task)
    await stage.settle()

    effect = await stage.review()
    assert "window" in str(effect.outcome)
    assert len(bank.keys) == 2


class Keyed(Bank):
    """A provider that knows keys. What is said instead of an answer is said before or after it looks."""

    def __init__(self, *says: BaseException | None, performs: int = 1) -> None:
        super().__init__()
        self.says = list(says)
        # So many calls get as far as to be performed, before any is refused.
        self._performs = performs

    def pay(self, to: str) -> str:
        key = hf.idempotency_key()
        says = self.says.pop(0) if self.says else None
        if (says is None or len(self.keys) < self._performs) and key not in self.keys:
            self.paid[to] += 1
        self.keys.append(key)
        if says is not None:
            raise says
        return f"paid {to}"


CERTAIN = [hf.RetryAfter(1), hf.NotDone("refused"), QuotaExceeded("tomorrow")]


@pytest.mark.parametrize("lost", [ConnectionResetError("reset"), RuntimeError("500")])
@pytest.mark.parametrize("certain", CERTAIN, ids=lambda one: type(one).__name__)
async def test_what_is_certain_of_one_call_says_nothing_of_an_earlier_one_with_the_same_key(
    stage: Stage, lost: Exception, certain: Exception
) -> None:
    bank = Keyed(lost, certain)
    pay = paying(bank, hf.keyed("24h", did_not_happen=QuotaExceeded), retry=hf.retry(5, backoff="1s"))
    handle = await started(stage, task_of(pay))

    assert await stage.result(handle) == "paid ann!"
    assert bank.paid == {"ann": 1}
    assert (len(bank.keys), len(set(bank.keys))) == (3, 1)


@pytest.mark.parametrize("certain", CERTAIN, ids=lambda one: type(one).__name__)
async def test_neither_does_it_after_the_worker_was_killed_in_the_first_call(
    stage: Stage, certain: Exception
) -> None:
    bank = Keyed(Crashed(), certain)
    pay = paying(bank, hf.keyed("24h", did_not_happen=QuotaExceeded), retry=hf.retry(5, backoff="1s"))
    task = task_of(pay)
    handle = await started(stage, task)
    await stage.open(task)
    await to_the_end(stage, handle)

    assert await stage.result(handle) == "paid ann!"
    assert bank.paid == {"ann": 1}
    assert (len(bank.keys), len(set(bank.keys))) == (3, 1)


async def test_nor_when_the_clock_was_put_back_between_the_two(stage: Stage) -> None:
    bank = Keyed(RuntimeError("500"), hf.NotDone("refused"))

    @hf.tool(effect=hf.keyed("24h"), retry=hf.retry(5, backoff="1s"))
    async def pay(to: str) -> str:
        stage.clock.set(stage.clock.now() - timedelta(minutes=5))
        return bank.pay(to)

    handle = await started(stage, task_of(pay))

    assert await stage.result(handle) == "paid ann!"
    assert bank.paid == {"ann": 1}


async def test_a_clock_that_was_set_back_does_not_open_the_window_of_a_key_again(stage: Stage) -> None:
    bank = Bank(Crashed())
    task = task_of(paying(bank, hf.keyed("24h")))
    await started(stage, task)
    stage.clock.jump(days=-2)
    await stage.open(task)
    await stage.settle()

    assert "window" in str((await stage.review()).outcome)
    assert len(bank.keys) == 1


async def test_what_a_keyed_effect_says_did_not_happen_gets_a_new_key(stage: Stage) -> None:
    bank = Bank(QuotaExceeded("tomorrow"))
    pay = paying(bank, hf.keyed("24h", did_not_happen=QuotaExceeded))
    handle = await started(stage, task_of(pay, attempts=2, backoff="1s"))

    assert await stage.result(handle) == "paid ann!"
    assert len(set(bank.keys)) == 2


# --- verifiable


@pytest.mark.parametrize(
    ("verdict", "status", "paid"),
    [
        (hf.Happened("seen"), TaskStatus.SUCCEEDED, 1),
        (hf.DidNotHappen(), TaskStatus.SUCCEEDED, 2),
        (hf.Unknown("the bank is shut"), TaskStatus.NEEDS_REVIEW, 1),
    ],
)
async def test_a_verifiable_effect_that_raised_is_verified_first(
    stage: Stage, verdict: object, status: TaskStatus, paid: int
) -> None:
    bank = Bank(ValueError("not json"))
    asked: list[str] = []

    def verify(to: str) -> object:
        asked.append(to)
        return verdict

    handle = await started(stage, task_of(paying(bank, hf.verifiable(verify)), attempts=2, backoff="1s"))

    assert await handle.status() is status
    assert (asked, bank.paid["ann"]) == (["ann"], paid)


async def test_what_a_verifiable_effect_says_did_not_happen_needs_no_look_at_the_world(stage: Stage) -> None:
    bank = Bank(QuotaExceeded("tomorrow"))

    def verify(to: str) -> object:
        raise AssertionError(to)

    pay = paying(bank, hf.verifiable(verify, did_not_happen=QuotaExceeded))
    handle = await started(stage, task_of(pay, attempts=2, backoff="1s"))

    assert await stage.result(handle) == "paid ann!"


async def test_an_effect_that_raised_while_it_was_opaque_is_verified_once_it_can_be(stage: Stage) -> None:
    """The program was changed between the two lives."""
    bank = Bank(ValueError("not json"))

    def verify(to: str) -> object:
        return hf.Happened(f"seen {to}")

    def program(pay: Any) -> Any:
        @hf.task(name="pays", attempts=2, backoff="1s")
        async def pays(run: hf.Run) -> str:
            try:
                return str(await run.step(pay, "ann"))
            except hf.StepFailed:
                raise Crashed from None

        return pays

    await stage.open(old := program(paying(bank, hf.opaque, name="pay")))
    handle = await stage.start(old())
    await stage.settle()
    # What an older version left: the effect has failed, and nothing is remembered of its step.
    stage.store.write_now(lambda tx: tx.statements.run("delete_step", step_of(effects_of(stage, handle)[0])))
    await stage.open(program(paying(bank, hf.verifiable(verify), name="pay")))
    await to_the_end(stage, handle)

    assert await stage.result(handle) == "seen ann"
    assert statuses(stage, handle) == [EffectStatus.CONFIRMED]
    assert bank.paid["ann"] == 1


def step_of(effect: Effect) -> dict[str, Any]:
    scope, name, occurrence = effect.key
    return {"task_id": effect.task_id, "scope": scope, "name": name, "occurrence": occurrence}


async def test_an_opaque_effect_without_its_step_is_still_not_called_again(stage: Stage) -> None:
    bank = Bank(ValueError("not json"))
    pay = paying(bank, hf.opaque)
    heard: list[str] = []

    @hf.task
    async def pays(run: hf.Run) -> str:
        try:
            return str(await run.step(pay, "ann"))
        except hf.StepFailed as error:
            heard.append(error.message)
            if len(heard) == 1:
                raise Crashed from None
            return "heard"

    await stage.open(pays)
    handle = await stage.start(pays())
    await stage.settle()
    stage.store.write_now(lambda tx: tx.statements.run("delete_step", step_of(effects_of(stage, handle)[0])))
    await stage.open(pays)
    await to_the_end(stage, handle)

    assert heard == ["not json"] * 2
    assert bank.paid["ann"] == 1


# --- kills


async def test_a_run_that_waits_for_a_decision_is_still_its_first(stage: Stage) -> None:
    handle = await started(stage, task_of(paying(Bank(ValueError("no")), hf.opaque), attempts=5))

    assert [run.status for run in await stage.runs(handle)] == [RunStatus.WAITING]


@pytest.mark.parametrize("pairs", [False, True], ids=["once", "twice"])
async def test_killed_anywhere_around_an_effect_that_raises_it_is_called_once(pairs: bool) -> None:
    @hf.opaque
    async def pay(to: str) -> str:
        raise ValueError(f"{to}: not json")

    @hf.task(attempts=3)
    async def pays(run: hf.Run) -> str:
        return f"{await run.tool(pay, {'to': 'ann'}, id='call-1')}!"

    report = await crash_everywhere(pays, pairs=pairs, twice=True)

    assert report.result == "None!"  # the person leaves it out
    assert report.reviews
    assert report.repeated == 0


# --- what looks certain, and is not


@pytest.mark.parametrize("certain", [OSError, TimeoutError, Exception])
async def test_the_steps_own_timeout_is_not_the_authors_word_that_nothing_happened(
    stage: Stage, certain: type[Exception]
) -> None:
    """A TimeoutError is an OSError, and Holdfast itself raised it."""
    paid: list[str] = []

    @hf.tool(effect=hf.opaque(did_not_happen=certain), timeout="50ms", retry=hf.retry(2, "1s"))
    async def pay(to: str) -> None:
        paid.append(to)
        await asyncio.Event().wait()

    handle = await started(stage, task_of(pay))

    assert paid == ["ann"]
    assert await handle.status() is TaskStatus.NEEDS_REVIEW


async def test_a_function_that_is_still_in_its_thread_is_not_asked_about(stage: Stage) -> None:
    paid, gate = list[str](), threading.Event()

    def verify(to: str) -> object:
        return hf.DidNotHappen()  # so far

    @hf.tool(effect=hf.verifiable(verify), timeout="50ms", retry=hf.retry(2, "1s"))
    def pay(to: str) -> None:
        gate.wait(10)
        paid.append(to)

    handle = await started(stage, task_of(pay))
    (effect,) = effects_of(stage, handle)
    gate.set()

    assert await handle.status() is TaskStatus.NEEDS_REVIEW
    assert effect.outcome is not None
    assert b"still running in a thread" in effect.outcome


async def test_a_person_has_an_effect_undone_once_however_its_program_wraps_the_failure(stage: Stage) -> None:
    undone: list[str] = []
    pay = paying(Bank(ConnectionResetError("reset")), hf.opaque, compensate=undone.append)

    @hf.task(attempts=3, backoff="1s")
    async def pays(run: hf.Run) -> None:
        try:
            await run.step(pay, "ann")
        except hf.StepFailed as error:
            raise RuntimeError("no rent was paid") from error

    handle = await started(stage, pays)
    await stage.holdfast.resolve((await stage.review()).id, "compensate")

    assert await to_the_end(stage, handle) is TaskStatus.FAILED
    assert undone == ["ann"]


async def test_an_effect_that_sent_no_key_is_not_repeated_because_it_has_one_now(stage: Stage) -> None:
    """It was opaque when its process died, and its author has declared it anew since."""
    paid: list[str] = []

    def program(effect: Any, *, dies: bool) -> Any:
        @hf.tool(effect=effect, name="pay")
        async def pay(to: str) -> str:
            paid.append(to)
            if dies:
                raise Crashed
            return f"paid {to}"

        @hf.task(name="pays")
        async def pays(run: hf.Run) -> str:
            return await run.step(pay, "ann")

        return pays

    await stage.open(before := program(hf.opaque, dies=True))
    handle = await stage.start(before())
    await stage.settle()
    await stage.open(program(hf.keyed("24h"), dies=False))
    await to_the_end(stage, handle)

    assert await handle.status() is TaskStatus.NEEDS_REVIEW
    assert paid == ["ann"]


async def test_a_key_is_not_sent_again_with_other_arguments(stage: Stage) -> None:
    bank, amounts = Bank(RuntimeError("500")), iter(["100", "200"])
    pay = paying(bank, hf.keyed("24h"))

    @hf.task(attempts=2, backoff="1s")
    async def pays(run: hf.Run) -> str:
        return str(await run.step(pay, next(amounts)))

    handle = await started(stage, pays)

    assert await handle.status() is TaskStatus.NEEDS_REVIEW
    assert bank.paid == {"100": 1}


def test_not_done_needs_no_words_and_opaque_takes_no_function_beside_its_exceptions() -> None:
    async def pay() -> None: ...

    assert str(hf.NotDone()) == "nothing happened"
    with pytest.raises(hf.BadInput, match="above the function"):
        hf.opaque(pay, did_not_happen=ValueError)  # type: ignore[call-overload]
    with pytest.raises(hf.BadInput, match="did_not_happen=ValueError"):
        hf.opaque(ValueError)
