"""Effects whose function raises: what is certain not to have happened, and what only looks so."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.transitions import EffectStatus, TaskStatus
from holdfast.testing import Crashed
from tests.engine.program.bank import (
    Bank,
    QuotaExceeded,
    effects_of,
    paying,
    started,
    statuses,
    task_of,
)
from tests.engine.stage import Stage

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


async def test_what_is_certain_ends_the_task_as_failed_and_no_person_is_asked(stage: Stage) -> None:
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


async def test_a_type_error_inside_a_foreign_wrapper_is_not_certain(stage: Stage) -> None:
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

    assert await stage.to_the_end(handle) is TaskStatus.FAILED
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
    await stage.to_the_end(handle)

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
