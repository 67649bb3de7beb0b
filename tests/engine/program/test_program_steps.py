"""Steps of a program: their keys, where one may be called, results that cannot be stored, and retries."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.events import EventKind
from holdfast.core.transitions import TaskStatus
from holdfast.store import Tx
from tests.engine.program.sample_program import Kept, add, failure_of, failure_of_all
from tests.engine.stage import Stage

# --- keys


async def test_a_step_of_one_name_in_flight_from_two_asyncio_tasks_is_refused(quick: Stage) -> None:
    @hf.task
    async def both(run: hf.Run) -> None:
        async def one() -> int:
            return await run.step(add, 1)

        await asyncio.gather(one(), one())

    await quick.open(both)
    handle = await quick.start(both())
    await quick.settle()

    assert await handle.status() is TaskStatus.FAILED
    assert await failure_of(handle) == (
        "step add: is called by two asyncio tasks, which a restart could not tell apart; "
        "give each an id: hf.step(fn, id=…), turn.tool(fn, …, id=…)"
    )


async def test_an_id_that_is_in_flight_cannot_be_used_again(quick: Stage) -> None:
    @hf.task
    async def both(run: hf.Run) -> None:
        named = hf.step(add, id="a")
        first = asyncio.ensure_future(run.step(named, 1))
        await run.step(named, 2)
        await first

    await quick.open(both)
    handle = await quick.start(both())
    await quick.settle()

    assert await failure_of(handle) == "step add: 'a' is in flight already; give each its own id"


async def test_an_id_that_was_used_gives_what_it_gave(quick: Stage, kept: Kept) -> None:
    @hf.task
    async def twice(run: hf.Run) -> None:
        for _ in range(2):
            kept(await run.step(hf.step(add, id="a"), 1))

    await quick.open(twice)
    await quick.run(twice())

    assert kept.seen == [1, 1]


async def test_a_key_is_taken_when_the_step_is_called_and_not_when_it_is_awaited(quick: Stage) -> None:
    order: list[int] = []

    async def note(number: int) -> int:
        order.append(number)
        return number

    @hf.task
    async def backwards(run: hf.Run) -> list[int]:
        first, second = run.step(note, 1), run.step(note, 2)
        return [await second, await first]

    await quick.open(backwards)

    assert await quick.run(backwards()) == [2, 1]
    assert order == [2, 1]
    keys = {(row[2], row[3]) for row in quick.rows("steps")}
    assert keys == {("note", "1"), ("note", "2")}


async def test_a_step_inside_a_step_is_refused(quick: Stage) -> None:
    @hf.task
    async def outer(run: hf.Run) -> int:
        async def work() -> int:
            return await run.step(add, 1)

        return await run.step(work)

    await quick.open(outer)
    handle = await quick.start(outer())
    await quick.settle()
    await quick.pass_time()

    assert "step add: was called inside step work, which would hide it from a replay" in await failure_of_all(
        quick, handle
    )


@pytest.mark.parametrize("what", ["append", "set", "ask", "sleep", "emit", "spend", "turns"])
async def test_a_step_must_not_use_the_run_that_it_is_a_step_of(quick: Stage, what: str) -> None:
    @hf.task(attempts=1)
    async def misuse(run: hf.Run) -> None:
        items, value = run.list("items"), run.value("value", 0)

        async def work() -> None:
            match what:
                case "append":
                    items.append(1)
                case "set":
                    value.set(1)
                case "ask":
                    await run.ask("why?")
                case "sleep":
                    await run.sleep(1)
                case "emit":
                    await run.emit("news")
                case "spend":
                    await run.spend(1)
                case "turns":
                    async for _ in run.turns(max=1):
                        pass

        await run.step(work)

    await quick.open(misuse)
    handle = await quick.start(misuse())
    await quick.settle()

    assert "step work" in await failure_of(handle) or "from work" in await failure_of(handle)


async def test_a_turn_that_is_over_takes_no_more_steps(quick: Stage) -> None:
    @hf.task
    async def keeps(run: hf.Run) -> None:
        turns = [turn async for turn in run.turns(max=2)]
        await turns[0].step(add, 1)

    await quick.open(keeps)
    handle = await quick.start(keeps())
    await quick.settle()

    assert await failure_of(handle) == "step add: turn turns:1 is over; use the turn that the loop gives now"


async def test_a_turn_waits_for_the_steps_that_are_not_awaited(quick: Stage, kept: Kept) -> None:
    async def slow(number: int) -> int:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        kept(number)
        return number

    @hf.task
    async def forgets(run: hf.Run) -> None:
        async for turn in run.turns(max=2):
            kept.run = asyncio.ensure_future(turn.step(slow, turn.number))

    await quick.open(forgets)
    await quick.run(forgets())

    assert kept.seen == [1, 2]
    assert [turn.steps[0].name for turn in quick.store.read_now(finished_turns)] == ["slow", "slow"]


def finished_turns(tx: Tx) -> list[Any]:
    (task_id,) = [task.id for task in tx.tasks.page()]
    return tx.turns.finished(task_id)


# --- outside a run


async def test_a_run_that_is_over_takes_no_more_calls(quick: Stage, kept: Kept) -> None:
    @hf.task
    async def short(run: hf.Run) -> None:
        kept.run = run

    await quick.open(short)
    await quick.run(short())

    with pytest.raises(hf.RunOver, match="has ended; do not use a run, turn or list after"):
        await kept.run.step(add, 1)
    with pytest.raises(hf.RunOver):
        kept.run.list("items")
    with pytest.raises(hf.RunOver):
        await kept.run.sleep(1)


async def test_a_call_cannot_be_awaited_and_says_what_can() -> None:
    @hf.task
    async def short(run: hf.Run) -> None: ...

    with pytest.raises(hf.NotInRun, match=r"short\(\) was called outside a run; call it with"):
        await short()  # type: ignore[misc]


def test_an_idempotency_key_is_only_there_inside_an_effect() -> None:
    with pytest.raises(hf.NotInRun, match="call it inside a tool"):
        hf.idempotency_key()


# --- results that cannot be kept


class Opened:
    """Has no JSON form."""


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (
            Opened(),
            f"{__name__}.Opened has no JSON form; return plain JSON values, a dataclass",
        ),
        (float("nan"), "result of step give"),
        ("x" * 40_000_000, "save it as a file and record an artifact that points to it"),
    ],
)
async def test_a_result_that_cannot_be_stored_names_the_step_and_the_remedy(
    quick: Stage, value: object, problem: str
) -> None:
    async def give() -> Any:
        return value

    @hf.task
    async def gives(run: hf.Run) -> None:
        await run.step(give)

    await quick.open(gives)
    handle = await quick.start(gives())
    await quick.settle()

    assert await handle.status() is TaskStatus.FAILED  # and was not tried again: it would be the same
    assert problem in await failure_of(handle)


async def test_a_result_of_a_task_that_cannot_be_stored_names_the_task(quick: Stage) -> None:
    @hf.task
    async def parent(run: hf.Run) -> Any:
        return Opened()

    await quick.open(parent)
    handle = await quick.start(parent())
    await quick.settle()

    assert (await failure_of(handle)).startswith("result of parent: ")


@pytest.mark.parametrize("budget", [5, "5m", {"steps": 5}])
def test_a_budget_that_is_none_is_refused_when_the_task_is_declared(budget: Any) -> None:
    with pytest.raises(hf.BadInput, match=r"budget: .*use hf\.budget\(steps=…, time=…, cost=…\), with any"):

        @hf.task(budget=budget)
        async def spends(run: hf.Run) -> None: ...


async def test_an_effect_whose_result_cannot_be_stored_is_done_all_the_same(quick: Stage, kept: Kept) -> None:
    @hf.opaque
    async def send() -> Any:
        kept("sent")
        return Opened()

    @hf.task
    async def sends(run: hf.Run) -> None:
        await run.step(send)

    await quick.open(sends)
    handle = await quick.start(sends())
    message = await failure_of_all(quick, handle)

    assert kept.seen == ["sent"]
    assert "result of step send" in message


# --- retries of steps


async def test_a_step_is_tried_again_after_pauses_that_survive_a_crash(stage: Stage, kept: Kept) -> None:
    @hf.step(retry=hf.retry(3, backoff="2h", most="8h"))
    async def flaky() -> str:
        kept(stage.clock.now())
        if len(kept.seen) < 4:
            raise ConnectionError("away")
        return "there"

    @hf.task
    async def retries(run: hf.Run) -> str:
        return await run.step(flaky)

    await stage.open(retries)
    handle = await stage.start(retries())
    while not (await handle.task()).has_ended:
        await stage.settle()
        await stage.open(retries)  # a new process every time
        await stage.pass_time()

    assert await stage.result(handle) == "there"
    assert len(kept.seen) == 4
    retried = await stage.events(handle, EventKind.STEP_RETRIED)
    assert [event.facts["attempt"] for event in retried] == [1, 2, 3]


async def test_a_step_that_fails_for_good_is_tried_no_more_than_it_may(stage: Stage, kept: Kept) -> None:
    @hf.step(retry=hf.retry(2, backoff="1h", most="1h"))
    async def hopeless() -> str:
        kept(1)
        raise ConnectionError("away")

    @hf.task(attempts=1)
    async def retries(run: hf.Run) -> str:
        return await run.step(hopeless)

    await stage.open(retries)
    handle = await stage.start(retries())
    while not (await handle.task()).has_ended:
        await stage.settle()
        await stage.open(retries)
        await stage.pass_time()

    assert len(kept.seen) == 3
    assert await failure_of(handle) == "away"


async def test_a_provider_that_asks_for_patience_gets_it_without_an_attempt(stage: Stage, kept: Kept) -> None:
    @hf.step(retry=hf.retry(1, backoff="1s"))
    async def limited() -> str:
        kept(stage.clock.now())
        if len(kept.seen) < 4:
            raise hf.RetryAfter(3600)
        return "there"

    @hf.task
    async def patient(run: hf.Run) -> str:
        return await run.step(limited)

    await stage.open(patient)
    handle = await stage.start(patient())
    while not (await handle.task()).has_ended:
        await stage.settle()
        await stage.open(patient)
        await stage.pass_time()

    assert await stage.result(handle) == "there"
    assert [at - kept.seen[0] for at in kept.seen] == [timedelta(hours=hours) for hours in range(4)]
    assert await stage.events(handle, EventKind.STEP_RETRIED) == []
