"""Waits of programs: sleep, questions, mail and children; short in memory, long without a process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.events import EventKind
from holdfast.core.transitions import RunStatus, TaskStatus
from holdfast.engine.client.handles import Handle
from holdfast.testing import Crashed, crash_everywhere
from tests.engine.stage import Stage


async def add(one: int, other: int = 0) -> int:
    return one + other


async def runs_of(stage: Stage, handle: Handle[Any]) -> list[RunStatus]:
    return [run.status for run in await stage.store.read(lambda tx: tx.runs.of_task(handle.id))]


async def in_new_processes(stage: Stage, handle: Handle[Any], *tasks: Any) -> None:
    """To the end, with a new process for every wait."""
    while not (await handle.task()).has_ended:
        await stage.settle()
        await stage.open(*tasks)
        if not (await handle.task()).has_ended:
            assert await stage.pass_time(), (await handle.task()).waits_on


# --- sleep


async def test_a_short_sleep_stays_in_memory(stage: Stage) -> None:
    @hf.task
    async def naps(run: hf.Run) -> None:
        await run.sleep("30s")

    await stage.open(naps)
    began_at = stage.clock.now()
    handle = await stage.start(naps())
    await stage.settle()

    await stage.result(handle)
    assert stage.clock.now() - began_at == timedelta(seconds=30)
    assert await stage.events(handle, EventKind.RUN_WAITED) == []


async def slept(run: hf.Run) -> object:
    await run.sleep("1h")
    return None


async def asked(run: hf.Run) -> object:
    return await run.ask("Go on?", timeout="1h", default=None)


async def received(run: hf.Run) -> object:
    return await run.receive("tides", timeout="1h", default=None)


@pytest.mark.parametrize("wait", [slept, asked, received])
async def test_a_wait_that_began_while_the_clock_was_a_year_ahead_ends_after_its_length(
    stage: Stage, wait: Callable[[hf.Run], Awaitable[object]]
) -> None:
    @hf.task
    async def waits(run: hf.Run) -> None:
        await wait(run)

    await stage.open(waits)
    stage.clock.jump(days=365)
    handle = await stage.start(waits())
    await stage.settle()
    stage.clock.jump(days=-365)
    await stage.open(waits)

    # The time that was set has to hold for 5 minutes, and the wait counts from then.
    stage.clock.advance(minutes=5)
    await stage.settle()
    await stage.open(waits)  # a restart does not begin it anew
    stage.clock.advance(minutes=59)
    await stage.settle()
    assert await handle.status() is TaskStatus.WAITING
    stage.clock.advance(minutes=1)
    await stage.settle()

    assert await handle.status() is TaskStatus.SUCCEEDED
    assert len(await stage.events(handle, EventKind.RUN_WAITED)) == 2


async def test_a_wait_is_not_counted_anew_before_the_time_that_was_set_has_held(stage: Stage) -> None:
    @hf.task
    async def waits(run: hf.Run) -> None:
        await run.sleep("1h")

    await stage.open(waits)
    handle = await stage.start(waits())
    await stage.settle()
    stage.clock.jump(days=-365)  # a machine that lost its clock, until NTP sets it
    await stage.open(waits)
    stage.clock.advance(minutes=4)
    await stage.settle()
    stage.clock.jump(days=365)
    stage.clock.advance(minutes=55)
    await stage.settle()

    assert await handle.status() is TaskStatus.WAITING
    assert len(await stage.events(handle, EventKind.RUN_WAITED)) == 1
    stage.clock.advance(minutes=1)
    await stage.settle()
    assert await handle.status() is TaskStatus.SUCCEEDED


async def test_a_retry_that_was_queued_while_the_clock_was_ahead_is_due_after_its_delay(stage: Stage) -> None:
    @hf.task(attempts=2, backoff="1h")
    async def fails(run: hf.Run) -> None:
        raise ValueError

    await stage.open(fails)
    stage.clock.jump(days=365)
    due_at = stage.clock.now() + timedelta(days=1)
    planned, failed = await stage.start(fails(), due_at=due_at), await stage.start(fails())
    await stage.settle()
    delay = (await stage.runs(failed))[-1].due_at - stage.clock.now()
    stage.clock.jump(days=-365)
    await stage.open(fails)
    stage.clock.advance(minutes=5)
    await stage.settle()

    assert (await stage.runs(failed))[-1].due_at == stage.clock.now() + delay
    # Its requester named that time.
    assert (await stage.runs(planned))[-1].due_at == due_at


async def test_a_long_sleep_needs_no_process_and_is_counted_from_its_begin(stage: Stage) -> None:
    @hf.task
    async def sleeps(run: hf.Run) -> int:
        await run.sleep("8h")
        await run.sleep("31s")
        return run.number

    await stage.open(sleeps)
    began_at = stage.clock.now()
    handle = await stage.start(sleeps())
    await stage.settle()
    task = await handle.task()
    status, waits_on = task.status, task.waits_on
    await stage.pass_time(hours=5)
    await stage.open(sleeps)
    await stage.settle()
    await in_new_processes(stage, handle, sleeps)

    assert (status, waits_on) == (TaskStatus.WAITING, "sleep")
    assert stage.clock.now() - began_at == timedelta(hours=8, seconds=31)
    assert await stage.result(handle) == 1  # it is the same run: a wait is no interruption
    assert await runs_of(stage, handle) == [RunStatus.SUCCEEDED]


async def test_a_sleep_says_what_it_is_woken_for(stage: Stage) -> None:
    @hf.task
    async def polls(run: hf.Run) -> int:
        await run.sleep("8h", reason="poll the build")
        return run.number

    await stage.open(polls)
    handle = await stage.start(polls())
    await stage.settle()
    waits_on = (await handle.task()).waits_on
    await in_new_processes(stage, handle, polls)

    assert waits_on == "sleep:poll the build"
    assert await stage.result(handle) == 1


@pytest.mark.parametrize("reason", ["", " ", "x" * 101, "two\nlines", 7])
async def test_a_reason_is_a_few_words(quick: Stage, reason: object) -> None:
    @hf.task(attempts=1)
    async def polls(run: hf.Run) -> None:
        await run.sleep("8h", reason=reason)  # type: ignore[arg-type]

    await quick.open(polls)
    handle = await quick.start(polls())
    await quick.settle()

    failure = (await handle.task()).failure
    assert failure is not None
    assert "reason" in failure.message


async def test_what_was_done_before_a_wait_is_not_done_again(stage: Stage) -> None:
    done: list[str] = []

    async def do(what: str) -> str:
        done.append(what)
        return what

    @hf.task
    async def polls(run: hf.Run) -> list[str]:
        notes = run.list("notes", [await run.step(do, "begin")])
        async for turn in run.turns(max=3):
            notes.append(await turn.step(do, f"look {turn.number}"))
            await run.sleep("1h")
            notes.append(await turn.step(do, f"after {turn.number}"))
        return list(notes)

    await stage.open(polls)
    handle = await stage.start(polls())
    await in_new_processes(stage, handle, polls)

    wanted = ["begin", *(f"{what} {number}" for number in (1, 2, 3) for what in ("look", "after"))]
    assert await stage.result(handle) == wanted
    assert done == wanted


# --- questions


async def test_a_person_is_asked_once_and_the_first_answer_stays(stage: Stage) -> None:
    @hf.task
    async def asks(run: hf.Run) -> str:
        answer = await run.ask("Release?", ["yes", "no"])
        return f"{answer} {await run.ask('Really?')}"

    await stage.open(asks)
    handle = await stage.start(asks())
    await stage.settle()
    (question,) = await stage.holdfast.questions()
    with pytest.raises(hf.BadInput, match="choose one of: yes, no"):
        await stage.holdfast.answer(question.id, "perhaps", by="ada")
    await stage.holdfast.answer(question.id, "yes", by="ada")
    await stage.holdfast.answer(question.id, "yes", by="ada")  # the answer was lost on its way
    with pytest.raises(hf.IllegalMove):
        await stage.holdfast.answer(question.id, "no", by="grace")
    await stage.open(asks)
    await stage.settle()
    await stage.open(asks)
    await stage.holdfast.answer(await stage.question(), {"by": "all", "of": ["us"]}, by="ada")
    await stage.settle()

    assert await stage.result(handle) == "yes {'by': 'all', 'of': ['us']}"
    assert len(await stage.events(handle, EventKind.QUESTION_ASKED)) == 2


async def test_without_an_answer_in_time_the_default_holds_and_no_person_is_asked_any_more(
    stage: Stage,
) -> None:
    @hf.task
    async def asks(run: hf.Run) -> Any:
        return await run.ask("Release?", ["yes", "no"], timeout="2d", default="no")

    await stage.open(asks)
    handle = await stage.start(asks())
    await stage.settle()
    asked = await stage.holdfast.questions()
    await stage.pass_time(days=2)
    await stage.open(asks)
    await stage.settle()

    assert len(asked) == 1
    assert await stage.result(handle) == "no"
    assert await stage.holdfast.questions() == []


async def test_an_answer_that_comes_late_but_before_a_worker_looked_counts(stage: Stage) -> None:
    @hf.task
    async def asks(run: hf.Run) -> Any:
        return await run.ask("Release?", timeout="1h", default="no")

    await stage.open(asks)
    handle = await stage.start(asks())
    await stage.settle()
    await stage.pass_time(hours=3)
    await stage.holdfast.answer(await stage.question(), "yes", by="ada")
    await stage.settle()

    assert await stage.result(handle) == "yes"


async def test_a_question_without_a_default_that_no_person_answers_fails_as_a_timeout(stage: Stage) -> None:
    @hf.task
    async def asks(run: hf.Run) -> str:
        try:
            await run.ask("Release?", timeout="1h")
        except TimeoutError as error:
            return str(error)
        return "answered"

    await stage.open(asks)
    message = await stage.run(asks())

    assert message == "step ask failed: TimeoutError: an answer to 'Release?' did not come in time"


async def test_a_task_that_is_tried_again_asks_again(stage: Stage) -> None:
    @hf.task(attempts=2, backoff="1s")
    async def asks(run: hf.Run) -> Any:
        return await run.ask("Release?", timeout="1h")

    await stage.open(asks)
    handle = await stage.start(asks())
    await stage.settle()
    for _ in range(2):
        await stage.pass_time()
        await stage.settle()
    await stage.holdfast.answer(await stage.question(), "yes", by="ada")
    await stage.settle()

    assert await stage.result(handle) == "yes"


async def test_two_questions_at_once_are_both_asked_and_both_answered(stage: Stage) -> None:
    @hf.task
    async def asks(run: hf.Run) -> list[Any]:
        return [*await asyncio.gather(run.ask("One?", id="one"), run.ask("Two?", id="two"))]

    await stage.open(asks)
    handle = await stage.start(asks())
    await stage.settle()
    while open_ones := await stage.holdfast.questions():
        for question in open_ones:
            await stage.holdfast.answer(question.id, question.question.lower(), by="ada")
        await stage.settle()

    assert await stage.result(handle) == ["one?", "two?"]


# --- mail


async def test_messages_are_received_once_and_in_order(stage: Stage) -> None:
    @hf.task
    async def receives(run: hf.Run) -> list[Any]:
        got = run.list("got")
        async for _ in run.turns(max=3):
            got.append(await run.receive("news"))
        return list(got)

    await stage.open(receives)
    handle = await stage.start(receives())
    await handle.send("news", 1)
    await handle.send("other", "not this")
    await stage.settle()
    await handle.send("news", {"two": 2}, key="second")
    again = await handle.send("news", {"two": 2}, key="second")
    await stage.open(receives)
    await stage.settle()
    await handle.send("news", [3] * 10_000)
    await stage.settle()

    assert not again
    assert await stage.result(handle) == [1, {"two": 2}, [3] * 10_000]


async def test_a_message_that_does_not_come_in_time_is_its_default(stage: Stage) -> None:
    @hf.task
    async def receives(run: hf.Run) -> list[Any]:
        first = await run.receive("news", timeout="1h", default="none")
        try:
            await run.receive("news", timeout="1h")
        except TimeoutError as error:
            return [first, str(error)]
        return [first]

    await stage.open(receives)

    assert await stage.run(receives()) == [
        "none",
        "step receive failed: TimeoutError: mail on 'news' did not come in time",
    ]


async def test_tasks_send_each_other_messages_once(stage: Stage) -> None:
    deaths = [1]

    async def die_once() -> None:
        if deaths:
            deaths.pop()
            raise Crashed

    @hf.task
    async def answers(run: hf.Run) -> str:
        question = await run.receive("question")
        await run.send(question["from"], "answer", f"{question['text']}!")
        return "answered"

    @hf.task
    async def asks(run: hf.Run) -> str:
        child = await run.spawn(answers())
        await run.send(child, "question", {"from": run.task_id, "text": "tides"})
        await run.step(die_once)
        answer = await run.receive("answer")
        return f"{answer} {await child}"

    await stage.open(asks, answers)
    handle = await stage.start(asks())
    await stage.settle()
    await stage.open(asks, answers)
    await stage.settle()

    assert await stage.result(handle) == "tides! answered"
    assert len(stage.rows("mail")) == 2


# --- children


@hf.task
async def double(run: hf.Run, number: int) -> int:
    return await run.step(add, number, number)


@hf.task(attempts=1)
async def sink(run: hf.Run, why: str) -> None:
    raise ConnectionError(why)


async def test_a_parent_waits_for_its_children_and_gets_what_they_return(stage: Stage) -> None:
    @hf.task
    async def parent(run: hf.Run) -> list[int]:
        children = [await run.spawn(double(number), id=f"{number}") for number in (1, 2, 3)]
        return [await children[2], *await asyncio.gather(*(child.result() for child in children))]

    await stage.open(parent, double)
    handle = await stage.start(parent())
    await stage.settle()

    assert await stage.result(handle) == [6, 2, 4, 6]


async def test_a_child_that_fails_raises_what_it_raised(stage: Stage) -> None:
    @hf.task
    async def parent(run: hf.Run) -> list[str]:
        child = await run.spawn(sink("a leak"))
        try:
            await child
        except ConnectionError as error:
            return [type(error).__name__, str(error), str(error.facts["status"])]  # type: ignore[attr-defined]
        return []

    await stage.open(parent, sink)
    kind, message, status = await stage.run(parent())

    assert (kind, status) == ("StepFailed[ConnectionError]", "failed")
    assert message.endswith("ConnectionError: a leak")


async def test_a_parent_that_is_tried_again_goes_on_with_a_child_that_failed(stage: Stage) -> None:
    tries: list[int] = []

    async def flaky() -> str:
        tries.append(1)
        if len(tries) < 2:
            raise ConnectionError("away")
        return "there"

    @hf.task(attempts=1)
    async def child(run: hf.Run) -> str:
        return await run.step(flaky)

    @hf.task(attempts=2)
    async def parent(run: hf.Run) -> list[Any]:
        steady = await run.spawn(double(1))
        fragile = await run.spawn(child())
        return [await steady, await fragile]

    await stage.open(parent, child, double)
    result = await stage.run(parent())

    assert result == [2, "there"]
    assert len(stage.rows("tasks")) == 1 + 1 + 1


async def test_an_attached_child_is_waited_for_although_the_program_does_not_await_it(stage: Stage) -> None:
    @hf.task
    async def slow(run: hf.Run) -> None:
        await run.sleep("1h")

    @hf.task
    async def parent(run: hf.Run) -> str:
        await run.spawn(slow())
        await run.spawn(slow(), attached=False, id="detached")
        return "done"

    await stage.open(parent, slow)
    handle = await stage.start(parent())
    await stage.settle()
    task = await handle.task()
    await stage.pass_time()
    await stage.settle()

    assert (task.status, task.waits_on) == (TaskStatus.WAITING, "children")
    assert await stage.result(handle) == "done"


async def test_a_parent_that_fails_takes_its_children_along(stage: Stage) -> None:
    @hf.task
    async def slow(run: hf.Run) -> None:
        await run.sleep("1h")

    @hf.task(attempts=1)
    async def parent(run: hf.Run) -> None:
        for name in ("a", "b"):
            await run.spawn(slow(), id=name)
        await run.spawn(slow(), attached=False, id="detached")
        await run.sleep("1m")
        raise ValueError("rough sea")

    await stage.open(parent, slow)
    handle = await stage.start(parent())
    await stage.settle()
    await stage.pass_time()
    await stage.settle()

    assert await handle.status() is TaskStatus.FAILED
    tasks = await stage.store.read(lambda tx: tx.tasks.page())
    assert sorted(task.status.value for task in tasks if task.name == "slow") == [
        "cancelled",
        "cancelled",
        "waiting",
    ]


# --- killed everywhere


@hf.task
async def doubles_what_it_is_sent(run: hf.Run) -> int:
    return await run.step(add, await run.receive("hint"), 4)


@hf.task
async def waits_for_everything(run: hf.Run) -> list[Any]:
    got = run.list("got")
    got.append(await run.ask("Begin?", ["yes", "no"]))
    await run.sleep("10s")
    await run.sleep("2h")
    got.append(await run.ask("Anybody?", timeout="1h", default="nobody"))
    async for turn in run.turns(max=2):
        got.append(await run.receive("news"))
        await turn.step(add, turn.number)
        await run.sleep("1h")
    child = await run.spawn(doubles_what_it_is_sent())
    await run.send(child, "hint", 4)
    got.append(await child)
    got.append(await run.receive("more", timeout="1h", default="no more"))
    await run.emit("finished")
    return list(got)


@pytest.mark.slow
async def test_every_wait_survives_a_crash_at_every_point() -> None:
    report = await crash_everywhere(
        waits_for_everything,
        tasks=[doubles_what_it_is_sent],
        answers={"Begin?": "yes"},
        mail=[("news", 1), ("news", "two")],
        twice=True,
    )

    assert report.result == ["yes", "nobody", 1, "two", 8, "no more"]
    assert len(report.points) > 50
