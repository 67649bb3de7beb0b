"""Programs: keys of steps, lists, turns, plans, and what a program must not do, said with its remedy."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
import types
from collections.abc import Coroutine, Generator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

import holdfast as hf
from holdfast.core.events import EventKind
from holdfast.core.run import Queue, RunRecord
from holdfast.core.step import Step
from holdfast.core.transitions import RunStatus, TaskStatus
from holdfast.engine.client.handles import Handle
from holdfast.store import Tx
from holdfast.testing import Crashed, crash_everywhere
from holdfast.tools import write_file
from tests.engine.stage import Stage

# --- steps


async def add(one: int, other: int = 0) -> int:
    return one + other


async def fail(what: str) -> str:
    raise ValueError(what)


class Kept:
    """What a program leaves for a test to look at."""

    def __init__(self) -> None:
        self.run: Any = None
        self.seen: list[Any] = []

    def __call__(self, what: Any) -> None:
        self.seen.append(what)


@pytest.fixture
def kept() -> Kept:
    return Kept()


async def failure_of(handle: Handle[Any]) -> str:
    task = await handle.task()
    assert task.failure is not None
    return task.failure.message


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


async def failure_of_all(stage: Stage, handle: Handle[Any]) -> str:
    while not (await handle.task()).has_ended:
        await stage.settle()
        await stage.pass_time()
    return await failure_of(handle)


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


async def test_a_turn_waits_for_the_steps_that_nobody_waits_for(quick: Stage, kept: Kept) -> None:
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


class Handler:
    """Has no JSON form."""


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (
            Handler(),
            f"{__name__}.Handler has no JSON form; return plain JSON values, a dataclass",
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
        return Handler()

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
        return Handler()

    @hf.task
    async def sends(run: hf.Run) -> None:
        await run.step(send)

    await quick.open(sends)
    handle = await quick.start(sends())
    message = await failure_of_all(quick, handle)

    assert kept.seen == ["sent"]
    assert "result of step send" in message


# --- lists


async def test_an_item_that_was_changed_after_it_was_appended_is_found(quick: Stage) -> None:
    @hf.task
    async def changes(run: hf.Run) -> None:
        notes = run.list("notes")
        async for _ in run.turns(max=3):
            notes.append({"text": "calm"})
            notes[-1]["text"] = "storm"

    await quick.open(changes)
    handle = await quick.start(changes())
    await quick.settle()

    assert await failure_of(handle) == (
        "list notes: item 0 was changed after it was appended; append a new item instead, "
        "or keep what changes in run.value(…)"
    )


async def test_an_item_that_is_changed_in_the_next_turn_is_found(quick: Stage) -> None:
    @hf.task
    async def changes(run: hf.Run) -> None:
        notes = run.list("notes", [{"text": "calm"}])
        async for turn in run.turns(max=3):
            if turn.number == 2:
                notes[0]["text"] = "storm"

    await quick.open(changes)
    handle = await quick.start(changes())
    await quick.settle()

    assert "list notes: item 0 was changed after it was appended" in await failure_of(handle)


@pytest.mark.parametrize(
    "change",
    [
        lambda items: items.insert(0, 1),
        lambda items: items.pop(),
        lambda items: items.remove(1),
        lambda items: items.clear(),
        lambda items: items.sort(),
        lambda items: items.reverse(),
        lambda items: items.__setitem__(0, 5),
        lambda items: items.__setitem__(slice(0, 1), [5]),
        lambda items: items.__delitem__(0),
        lambda items: items.__imul__(2),
    ],
)
async def test_a_durable_list_only_grows(quick: Stage, change: Any) -> None:
    @hf.task
    async def changes(run: hf.Run) -> None:
        change(run.list("notes", [1, 2]))

    await quick.open(changes)
    handle = await quick.start(changes())
    await quick.settle()

    message = await failure_of(handle)
    assert message.startswith("list notes: a durable list only grows")
    assert message.endswith("append, or keep what changes in run.value(…), or work on a copy: list(…)")


async def test_a_copy_of_a_durable_list_is_a_plain_list(quick: Stage, kept: Kept) -> None:
    @hf.task
    async def copies(run: hf.Run) -> list[int]:
        items = run.list("items", [1, 2])
        items += [3]
        items.extend(items)
        for made in (copy.copy(items), copy.deepcopy(items), items.copy(), items[:], items * 1):
            kept(type(made))
            made.append(9)
        return list(items)

    await quick.open(copies)

    assert await quick.run(copies()) == [1, 2, 3, 1, 2, 3]
    assert set(kept.seen) == {list}


class Message(msgspec.Struct):
    role: str
    text: str = ""


async def test_items_of_a_list_come_back_as_what_they_are_said_to_be(quick: Stage) -> None:
    @hf.task(attempts=1)
    async def typed(run: hf.Run) -> None:
        messages = run.list("messages", of=Message)
        messages.append(Message("user", "hello"))
        messages.append({"text": "in another order", "role": "user", "more": 1})  # type: ignore[arg-type]
        assert messages[1] == Message("user", "in another order")
        async for _ in run.turns(max=1):
            messages.append(7)  # type: ignore[arg-type]

    await quick.open(typed)
    handle = await quick.start(typed())
    await quick.settle()

    assert "item 2 of list messages" in await failure_of(handle)


async def test_a_value_that_is_got_is_a_copy(quick: Stage) -> None:
    @hf.task
    async def copies(run: hf.Run) -> list[Any]:
        value: hf.DurableValue[dict[str, Any]] = run.value("value", {"a": [1]})
        value.get()["a"].append(2)
        value.update(lambda found: found | {"b": 1})
        return [value.get(), repr(value)]

    await quick.open(copies)

    assert await quick.run(copies()) == [{"a": [1], "b": 1}, "<value value: {'a': [1], 'b': 1}>"]


# --- loops


async def test_a_loop_ends_after_its_most_turns_and_stays_over_when_the_program_allows_more(
    stage: Stage, kept: Kept
) -> None:
    def loops(most: int, dies: bool) -> Any:
        @hf.task
        async def loop(run: hf.Run) -> None:
            async for turn in run.turns(max=most):
                kept(turn.number)
            if dies:
                await run.step(die)

        return loop

    async def die() -> None:
        raise Crashed

    loop = loops(2, dies=True)
    await stage.open(loop)
    handle = await stage.start(loop())
    await stage.settle()
    await stage.open(loops(5, dies=False))
    await stage.settle()

    assert await handle.status() is TaskStatus.SUCCEEDED
    assert kept.seen == [1, 2]


async def yielding() -> None:
    await asyncio.sleep(0)


async def test_two_loops_in_two_asyncio_tasks_are_refused(quick: Stage) -> None:
    @hf.task
    async def both(run: hf.Run) -> None:
        async def loop(name: str) -> None:
            async for turn in run.turns(name, max=2):
                await turn.step(yielding)

        async with asyncio.TaskGroup() as group:
            group.create_task(loop("a"))
            group.create_task(loop("b"))

    await quick.open(both)
    handle = await quick.start(both())
    message = await failure_of_all(quick, handle)

    assert "loop: a runs in another asyncio task; a run has one loop at a time" in message + str(
        (await handle.task()).failure
    )


async def test_a_loop_over_the_plan_inside_a_loop_over_the_plan_is_refused(quick: Stage) -> None:
    @hf.task
    async def both(run: hf.Run) -> None:
        plan = run.plan(["a", "b"])
        async for _ in plan:
            async for _ in plan:
                pass

    await quick.open(both)
    handle = await quick.start(both())
    await quick.settle()

    assert await failure_of(handle) == "plan: this loop is inside a loop over the same plan"


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda run: run.turns("a:b"), "loop: 'a:b': such a name has no ':' and no '/'"),
        (lambda run: run.turns(max=0), "max: a whole number of turns is needed, at least 1"),
        (lambda run: run.plan("abc"), "plan: a list of items is needed"),
        (lambda run: run.plan(["a", "a"]), "plan: two items are called 'a'; give each its own id"),
        (lambda run: run.plan([7]), "plan item: a text or a PlanItem is needed, not int"),
        (lambda run: run.turns(timeout="never"), "timeout"),
        (lambda run: run.tool(add, [1]), "arguments: a tool's arguments have names; list has none"),
        (lambda run: run.tool(add, {}, id="a\0b"), "id: control character U+0000 at 1; remove it"),
        (lambda run: run.tool(add, {}, id="a\ud800"), "id: half of a surrogate pair at 1"),
        (lambda run: run.tool(add, {}, id="a\nb"), "id: a name is one line of at most 200 characters"),
        (lambda run: run.tool(add, {}, id="x" * 201), "id: a name is one line of at most 200 characters"),
        (lambda run: run.tool(add, {}, id="  "), "id: is empty"),
        (lambda run: run.tool(add, {}, id=7), "id: "),
        (lambda run: run.step(lambda: 1), "a lambda has no name for the journal"),
        (lambda run: run.step(7), "step: a function is needed, not int"),
    ],
)
async def test_what_a_program_cannot_mean_is_said(quick: Stage, call: Any, problem: str) -> None:
    @hf.task
    async def misuse(run: hf.Run) -> None:
        call(run)

    await quick.open(misuse)
    handle = await quick.start(misuse())
    await quick.settle()

    assert problem in await failure_of(handle)


@pytest.mark.parametrize("how", ["tool", "step"])
async def test_ids_of_calls_that_look_like_secrets_are_told_apart_and_not_stored(
    quick: Stage, how: str
) -> None:
    async def call(run: hf.Run, number: int, own: str) -> int:
        if how == "tool":
            return await run.tool(add, {"one": number}, id=own)
        return await run.step(hf.step(add, id=own), one=number)

    @hf.task
    async def three_calls(run: hf.Run) -> list[int]:
        return [await call(run, number, f"ghp_{letter * 36}") for number, letter in enumerate("abc")]

    await quick.open(three_calls)
    handle = await quick.start(three_calls())
    await quick.settle()

    assert await handle.result() == [0, 1, 2]
    steps = await quick.store.read(lambda tx: tx.journal.steps(handle.id))
    assert len({step.occurrence for step in steps}) == 3
    assert all(step.occurrence.startswith("id:[redacted:") for step in steps)


@pytest.mark.parametrize("item", ["set password=hunter2!", hf.PlanItem(id="token=abc12345", title="log in")])
async def test_a_plan_item_comes_back_as_it_was_and_its_id_is_stored_as_a_name(
    quick: Stage, item: str | hf.PlanItem
) -> None:
    @hf.task
    async def planned(run: hf.Run) -> list[str]:
        return [turn.title async for turn in run.plan([item, "then rest"])]

    await quick.open(planned)
    handle = await quick.start(planned())
    await quick.settle()

    title = item if isinstance(item, str) else item.title
    assert await handle.result() == [title, "then rest"]
    plan = await quick.store.read(lambda tx: tx.journal.plans([handle.id])[handle.id][1])
    assert [one.title for one in plan.items] == [title, "then rest"]
    assert "hunter2" not in plan.items[0].id
    assert "abc12345" not in plan.items[0].id


async def test_a_checkpoint_shows_a_plan_redacted_and_the_program_is_told_its_own(stage: Stage) -> None:
    @hf.task
    async def planned(run: hf.Run) -> list[str]:
        titles = run.list("titles", of=str)
        async for turn in run.plan([hf.PlanItem(id="a", title="password: hunter2!"), "rest"]):
            titles.append(turn.title)
            if turn.id == "rest":
                await run.requires_restart("a new driver was installed")
        return list(titles)

    await stage.open(planned)
    handle = await stage.start(planned())
    await stage.settle()
    await stage.open(planned)
    await stage.settle()

    assert await stage.result(handle) == ["password: hunter2!", "rest"]
    (checkpoint,) = stage.store.read_now(lambda tx: tx.checkpoints.page())
    assert b'"title":"password: [redacted:assignment]"' in checkpoint.document
    resumed = stage.executions[-1].run.resumed
    assert resumed is not None
    assert resumed.plan is not None
    assert [item.title for item in resumed.plan.items] == ["password: hunter2!", "rest"]


async def test_a_file_with_a_password_is_written_right_by_an_agent_that_was_interrupted(
    stage: Stage, tmp_path: Path
) -> None:
    settings = f"user: ada\npassword: hunter2\ntoken: ghp_{'a1' * 18}\nurl: https://ada:pw9@host/\n"
    path = tmp_path / "settings.yaml"
    calls: list[int] = []

    async def think() -> dict[str, str]:
        """What a model wants to be done."""
        return {"path": str(path), "content": settings}

    async def die_once() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise Crashed

    @hf.task
    async def coding(run: hf.Run) -> str:
        wanted: hf.DurableValue[dict[str, str]] = run.value("wanted", {}, of=dict[str, str])
        async for turn in run.turns(max=2):
            if turn.number == 1:
                wanted.set(await turn.step(think))
                continue
            await turn.step(die_once)
            await turn.tool(write_file, wanted.get())
        return wanted.get()["content"]

    await stage.open(coding)
    handle = await stage.start(coding())
    await stage.settle()
    await stage.open(coding)
    await stage.settle()

    assert await stage.result(handle) == settings
    assert path.read_text() == settings
    assert len(calls) == 2


async def test_who_was_shown_a_choice_redacted_may_say_it_so(quick: Stage) -> None:
    @hf.task
    async def asking(run: hf.Run) -> str:
        return str(
            await run.ask("which?", ["password=abc123!", "none", "password=xyz789!", "ghp_" + "a1" * 18])
        )

    await quick.open(asking)
    handle = await quick.start(asking())
    await quick.settle()
    (question,) = await quick.holdfast.questions()
    with pytest.raises(hf.BadInput):  # it could be either
        await quick.holdfast.answer(question.id, "password=[redacted:assignment]")
    await quick.holdfast.answer(question.id, "[redacted:github]")
    await quick.settle()

    assert await handle.result() == "ghp_" + "a1" * 18


async def test_an_answer_may_be_a_choice_that_looks_like_a_secret(quick: Stage) -> None:
    @hf.task
    async def asking(run: hf.Run) -> str:
        return str(await run.ask("which? password=hunter2!", ["password=abc123!", "none"]))

    await quick.open(asking)
    handle = await quick.start(asking())
    await quick.settle()
    (question,) = await quick.holdfast.questions()
    with pytest.raises(hf.BadInput) as refused:
        await quick.holdfast.answer(question.id, "other")
    await quick.holdfast.answer(question.id, "password=abc123!")
    await quick.settle()

    assert await handle.result() == "password=abc123!"
    assert "hunter2" not in question.question
    assert "abc123" not in str(refused.value)


async def test_what_is_left_of_a_step_of_a_finished_turn_is_redacted_before_it_is_cut(quick: Stage) -> None:
    @hf.task
    async def turning(run: hf.Run) -> None:
        async for turn in run.turns(max=1):
            await turn.step(say_a_secret)

    def say_a_secret() -> list[str]:
        return ["x" * 90, "--api-key", "hunter2", f"ghp_{'0aZ9' * 9}"]

    await quick.open(turning)
    handle = await quick.start(turning())
    await quick.settle()

    turns = await quick.store.read(lambda tx: tx.turns.finished(handle.id))
    (preview,) = [step.preview for turn in turns for step in turn.steps]
    assert "hunter2" not in preview
    assert "ghp_" not in preview


async def test_many_steps_outside_turns_are_warned_of_once(
    quick: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    @hf.task
    async def many(run: hf.Run) -> None:
        for number in range(1001):
            await run.step(hf.step(add, pure=True), number)

    await quick.open(many)
    with caplog.at_level(logging.WARNING):
        await quick.run(many())

    (warning,) = [record for record in caplog.records if "outside turns" in record.message]
    assert "put them into a loop: async for turn in run.turns()" in warning.message


async def test_steps_of_finished_turns_and_of_turns_inside_them_are_counted(stage: Stage) -> None:
    @hf.task
    async def nested(run: hf.Run) -> None:
        await run.step(add, 1)
        async for outer in run.turns("outer", max=2):
            await outer.step(add, 1)
            async for inner in run.turns("inner", max=3):
                await inner.step(add, 1)

    await stage.open(nested)
    handle = await stage.start(nested())
    await stage.settle()

    heads = stage.store.read_now(lambda tx: tx.journal.heads([handle.id]))
    assert heads[handle.id].steps_saved == 1 + 2 * (1 + 3)


# --- the database


async def test_a_task_cannot_have_two_live_runs(stage: Stage, refusal: type[Exception]) -> None:
    @hf.task
    async def short(run: hf.Run) -> None: ...

    await stage.open(short)
    handle = await stage.start(short())
    now = stage.clock.now()
    second = RunRecord(
        id="run_second",  # type: ignore[arg-type]
        task_id=handle.id,  # type: ignore[arg-type]
        task_name="short",
        number=2,
        priority=100,
        created_at=now,
        due_at=now,
        queue=Queue.READY,
        updated_at=now,
    )

    with pytest.raises(refusal):
        await stage.store.write(lambda tx: tx.runs.create(second))

    runs = await stage.store.read(lambda tx: tx.runs.of_task(handle.id))
    assert [run.status for run in runs] == [RunStatus.QUEUED]


async def test_a_task_that_nobody_knows_here_waits_for_somebody_who_does(stage: Stage) -> None:
    @hf.task
    async def known(run: hf.Run) -> str:
        return "carried"

    @hf.task
    async def other(run: hf.Run) -> str:
        return "other"

    await stage.open(other)
    handle = await stage.start(known())
    await stage.settle()
    before = await handle.status()
    await stage.open(known)
    await stage.settle()

    assert before is TaskStatus.QUEUED
    assert await stage.result(handle) == "carried"


# --- small calls


async def test_progress_events_decisions_and_artifacts_are_told_once(stage: Stage, tmp_path: Path) -> None:
    report = tmp_path / "report.txt"
    deaths = 1

    async def write() -> str:
        report.write_text("calm")
        return "written"

    async def die_once() -> None:
        nonlocal deaths
        deaths -= 1
        if deaths >= 0:
            raise Crashed

    @hf.task
    async def tells(run: hf.Run) -> list[Any]:
        await run.progress(done=1, total=3)
        await run.emit("began", why="test")
        await run.decide("use the tables")
        await run.step(write)
        artifact = await run.artifact(report)
        output = await run.output("summary", "all is calm")
        await run.checkpoint("half-way")
        async for turn in run.turns(max=1):
            await run.progress(done=2, total=3, subtask="turn")
            await turn.step(die_once)
        return [artifact.sha256[:6], output.content, run.number]

    await stage.open(tells)
    handle = await stage.start(tells())
    await stage.settle()
    between = (await handle.task()).progress
    await stage.open(tells)
    await stage.settle()

    assert await stage.result(handle) == ["2b4b2e", "all is calm", 2]
    assert between is not None
    assert (between.done, between.subtask) == (1, None)
    task = await handle.task()
    assert task.progress is not None
    assert (task.progress.done, task.progress.subtask) == (2, "turn")
    told = await stage.events(handle, EventKind.PROGRAM_TOLD, EventKind.CHECKPOINT_SAVED)
    assert [event.facts.get("name") for event in told] == ["began", None]
    notes = stage.store.read_now(lambda tx: tx.journal.notes([handle.id]))
    assert [note.text for note in notes[handle.id]] == ["use the tables"]
    resumed = stage.executions[-1].run.resumed
    assert resumed is not None
    assert resumed.reason == "crash"
    assert [decision.text for decision in resumed.decisions] == ["use the tables"]
    assert {one.name: one.state.value for one in resumed.artifacts} == {
        "report.txt": "same",
        "summary": "same",
    }


async def test_what_a_tool_keeps_is_named_once_in_every_later_checkpoint(stage: Stage) -> None:
    @hf.task
    async def browses(run: hf.Run) -> list[str]:
        await run.refer("browser", "profile 7, tab 3")
        async for turn in run.turns(max=2):
            await run.refer("git", f"branch fix-{turn.number}")
            await turn.step(add, turn.number)
            if turn.number == 2:
                await run.requires_restart("a new driver was installed")
        assert run.resumed is not None
        return [note.text for note in run.resumed.tool_context]

    await stage.open(browses)
    handle = await stage.start(browses())
    await stage.settle()
    (checkpoint,) = stage.store.read_now(lambda tx: tx.checkpoints.page())
    await stage.open(browses)
    await stage.settle()

    told = ["browser: profile 7, tab 3", "git: branch fix-1", "git: branch fix-2"]
    assert await stage.result(handle) == told
    notes = stage.store.read_now(lambda tx: tx.journal.notes([handle.id])[handle.id])
    assert [note.text for note in notes] == told
    assert [note.text for note in checkpoint.read_document().tool_context] == told


async def test_a_reference_that_is_none_is_refused_and_a_secret_in_one_is_hidden(stage: Stage) -> None:
    @hf.task
    async def browses(run: hf.Run) -> str:
        for tool, ref, field in [("", "x", "tool"), ("a\nb", "x", "tool"), ("a", " ", "reference")]:
            with pytest.raises(hf.BadInput, match=field):
                await run.refer(tool, ref)
        with pytest.raises(hf.BadInput, match="reference"):
            await run.refer("browser", 7)  # type: ignore[arg-type]
        await run.refer("db", "https://ada:hunter2@host/")
        return "done"

    await stage.open(browses)
    handle = await stage.start(browses())
    await stage.settle()

    assert await stage.result(handle) == "done"
    (note,) = stage.store.read_now(lambda tx: tx.journal.notes([handle.id])[handle.id])
    assert note.text.startswith("db: https://")
    assert "hunter2" not in note.text


async def test_a_task_that_names_what_its_tools_keep_survives_every_crash() -> None:
    @hf.task
    async def browses(run: hf.Run) -> list[int]:
        seen = run.list("seen", of=int)
        async for turn in run.turns(max=2):
            await run.refer("browser", f"tab {turn.number}")
            seen.append(await turn.step(add, turn.number))
        return list(seen)

    await crash_everywhere(browses)
    await crash_everywhere(browses, twice=True)


async def test_a_program_that_wants_a_restart_goes_on_after_it_once(stage: Stage, kept: Kept) -> None:
    @hf.task
    async def upgrades(run: hf.Run) -> int:
        kept(await run.step(add, 1))
        await run.requires_restart("a new driver was installed")
        kept(await run.step(add, 2))
        return run.number

    await stage.open(upgrades)
    handle = await stage.start(upgrades())
    await stage.settle()
    paused = await handle.status()
    await stage.open(upgrades)
    await stage.settle()

    assert (paused, stage.restarts) == (TaskStatus.PAUSED, ["a new driver was installed"])
    assert await stage.result(handle) == 2
    assert kept.seen == [1, 1, 2]
    resumed = stage.executions[-1].run.resumed
    assert resumed is not None
    assert resumed.reason == "requires_restart"


async def test_a_refused_restart_is_the_same_refusal_in_every_later_life(stage: Stage, kept: Kept) -> None:
    @hf.task
    async def upgrades(run: hf.Run) -> str:
        async for turn in run.turns(max=2):
            try:
                await run.requires_restart(f"driver {turn.number}")
            except hf.RestartRefused as refused:
                kept((refused.why, str(refused), refused.code))
            await run.sleep("1h")
        return "went on"

    stage.refusal = "not before noon"
    await stage.open(upgrades)
    handle = await stage.start(upgrades())
    await stage.settle()
    # What another life would say does not count any more.
    stage.refusal = None
    await stage.open(upgrades)
    await stage.settle()
    assert stage.restarts == ["driver 1"]
    await stage.pass_time()
    await stage.settle()
    await stage.open(upgrades)
    await stage.settle()
    await stage.pass_time()
    await stage.settle()

    assert await stage.result(handle) == "went on"
    assert stage.restarts == ["driver 1", "driver 2"]
    refusal = ("not before noon", "the restart was refused: not before noon", "restart_refused")
    assert set(kept.seen) == {refusal}


async def test_a_journal_from_before_there_were_refusals_says_that_the_restart_was_done(stage: Stage) -> None:
    @hf.task
    async def upgrades(run: hf.Run) -> str:
        await run.sleep("1h")
        await run.requires_restart("a new driver")
        return "upgraded"

    await stage.open(upgrades)
    handle = await stage.start(upgrades())
    await stage.settle()
    (run,) = await stage.runs(handle)
    # The reason stood under the key of the call, and nothing beside it.
    old = Step(
        task_id=run.task_id,
        name="requires restart",
        occurrence="1",
        run_id=run.id,
        seq=1,
        result=b'"a new driver"',
        started_us=1,
        ended_us=1,
    )
    await stage.store.write(lambda tx: tx.journal.put_step(old))
    await stage.pass_time()
    await stage.settle()

    assert await stage.result(handle) == "upgraded"
    assert stage.restarts == []


async def test_a_restart_needs_a_reason(quick: Stage) -> None:
    @hf.task
    async def upgrades(run: hf.Run, why: Any) -> None:
        await run.requires_restart(why)

    await quick.open(upgrades)
    for why in ("", 7):
        with pytest.raises(hf.TaskFailed, match="why: "):
            await quick.run(upgrades(why))
    assert quick.restarts == []


# --- versions


async def test_arguments_of_an_older_version_are_migrated_and_told_once(stage: Stage) -> None:
    @hf.task(name="survey")
    async def old(run: hf.Run, city: str) -> str:
        await run.sleep("1h")
        return city

    def migrate(arguments: dict[str, Any], version: int) -> dict[str, Any]:
        return {"cities": [arguments["city"]], "from_version": version}

    @hf.task(name="survey", version=2, migrate=migrate)
    async def new(run: hf.Run, cities: list[str], from_version: int) -> str:
        await run.sleep("1h")
        await run.sleep("1h")
        return f"{cities} from {from_version}"

    await stage.open(old)
    handle = await stage.start(old("Brest"))
    await stage.settle()
    await stage.open(new)
    for _ in range(3):
        await stage.pass_time()
        await stage.settle()

    assert await stage.result(handle) == "['Brest'] from 1"
    (told,) = await stage.events(handle, EventKind.TASK_MIGRATED)
    assert told.facts == {"version": 2, "migrated": 1}


async def test_arguments_that_no_longer_fit_fail_the_task_and_say_why(quick: Stage) -> None:
    @hf.task(name="survey")
    async def old(run: hf.Run, city: str) -> str:
        return city

    @hf.task(name="survey")
    async def new(run: hf.Run, number: int) -> int:
        return number

    await quick.open(new)
    handle = await quick.start(old("Brest"))
    await quick.settle()

    assert await failure_of(handle) == "arguments of survey: Object missing required field `number`"


# --- time


async def test_a_step_that_takes_too_long_fails(quick: Stage) -> None:
    @hf.step(timeout="10ms")
    async def hang() -> None:
        await asyncio.Event().wait()

    @hf.task
    async def waits(run: hf.Run) -> str:
        try:
            await run.step(hang)
        except TimeoutError as error:
            return type(error).__name__
        return "nothing"

    await quick.open(waits)

    assert await quick.run(waits()) == "StepFailed[TimeoutError]"


async def test_a_turn_that_takes_too_long_begins_no_more_steps(quick: Stage) -> None:
    async def takes(minutes: int) -> None:
        quick.clock.advance(minutes=minutes)

    @hf.task(attempts=1)
    async def slow(run: hf.Run) -> str:
        try:
            async for turn in run.turns(timeout="10m"):
                await turn.step(takes, 4)
                await turn.step(takes, 4 * turn.number)
                await turn.step(add, 1)
        except TimeoutError as error:
            return str(error)
        return "never"

    await quick.open(slow)

    assert await quick.run(slow()) == "turn turns:2 took longer than it may; step add was not begun"


async def test_a_step_has_no_more_time_than_its_turn(quick: Stage) -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    @hf.task(attempts=1)
    async def slow(run: hf.Run) -> None:
        async for turn in run.turns(timeout="10ms"):
            await turn.step(hang)

    await quick.open(slow)
    handle = await quick.start(slow())
    await quick.settle()

    task = await handle.task()
    assert task.failure is not None
    assert task.failure.kind == "TimeoutError"


async def test_a_task_that_takes_too_long_is_timed_out(quick: Stage) -> None:
    @hf.task(timeout="10ms")
    async def hangs(run: hf.Run) -> None:
        await asyncio.Event().wait()

    await quick.open(hangs)
    handle = await quick.start(hangs())
    await quick.settle()

    assert await handle.status() is TaskStatus.TIMED_OUT


@pytest.mark.parametrize("wait", ["sleep", "ask", "receive", "child"])
async def test_a_task_that_waits_too_long_is_timed_out(stage: Stage, wait: str) -> None:
    @hf.task
    async def child(run: hf.Run) -> None:
        await run.sleep("30d")

    @hf.task(timeout="1h")
    async def waits(run: hf.Run) -> None:
        match wait:
            case "sleep":
                await run.sleep("2h")
            case "ask":
                await run.ask("why?")
            case "receive":
                await run.receive("news")
            case "child":
                await (await run.spawn(child()))

    await stage.open(waits, child)
    handle = await stage.start(waits())
    await stage.settle()
    before = await handle.status()
    await stage.pass_time(hours=1)
    await stage.settle()

    assert before is TaskStatus.WAITING
    assert await handle.status() is TaskStatus.TIMED_OUT
    assert await failure_of(handle) == "it took longer than 1:00:00"


async def test_a_short_sleep_beyond_the_limit_of_a_task_ends_it(quick: Stage) -> None:
    @hf.task(timeout="10s")
    async def sleeps(run: hf.Run) -> None:
        await run.sleep("20s")

    await quick.open(sleeps)
    handle = await quick.start(sleeps())
    await quick.settle()

    assert await handle.status() is TaskStatus.TIMED_OUT


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


# --- how a loop is left


@types.coroutine
def pauses() -> Generator[str, None, None]:
    yield "paused"


@types.coroutine
def paused(body: Coroutine[Any, Any, int]) -> Generator[Any, Any, Any]:
    """That coroutine, gone on until it pauses itself. Nothing here holds it afterwards."""
    heard = None
    while (asked := body.send(heard)) != "paused":
        heard = yield asked
    return body


@pytest.mark.parametrize(
    ("way", "is_done"),
    [
        ("break", True),
        ("break in with", True),
        ("break in finally", True),
        ("break in a nested loop's else", True),
        ("return", True),
        ("return a value in finally", True),
        ("continue", True),
        ("raise", False),
        ("raise in with", False),
        ("raise in finally", False),
        ("a step that fails", False),
        ("a step that fails in with", False),
        ("another asyncio task", False),
        ("the coroutine is closed", False),
        ("the coroutine is dropped", False),
    ],
)
async def test_an_item_is_done_when_its_loop_is_left_unless_an_exception_left_it(
    quick: Stage, way: str, is_done: bool
) -> None:
    @hf.task(attempts=1)
    async def leaves(run: hf.Run) -> list[bool]:
        plan = run.plan(["a"])

        async def loop() -> int:
            async for item in plan:
                await item.step(add, 1)
                match way:
                    case "break":
                        break
                    case "break in with":
                        with contextlib.suppress(KeyError):
                            async with run.cleanup():
                                break
                    case "break in finally":
                        try:
                            await item.step(add, 2)
                        finally:
                            break  # noqa: B012 - what is tried here
                    case "break in a nested loop's else":
                        for _ in range(2):
                            pass
                        else:
                            break
                    case "return":
                        return 1
                    case "return a value in finally":
                        try:
                            return await item.step(add, 2)
                        finally:
                            await item.step(add, 3)
                    case "continue":
                        continue
                    case "raise":
                        raise KeyError(way)
                    case "raise in with":
                        with contextlib.suppress(TypeError):
                            raise KeyError(way)
                    case "raise in finally":
                        try:
                            await item.step(add, 2)
                        finally:
                            raise KeyError(way)
                    case "a step that fails":
                        await item.step(fail, way)
                    case "a step that fails in with":
                        async with run.cleanup():
                            await item.step(fail, way)
                    case "another asyncio task":
                        await asyncio.wait_for(asyncio.Event().wait(), 0.001)
                    case "the coroutine is closed" | "the coroutine is dropped":
                        await pauses()
            return 0

        with contextlib.suppress(KeyError, ValueError, TimeoutError):
            if way == "the coroutine is closed":
                (await paused(loop())).close()
            elif way == "the coroutine is dropped":
                # An expression statement: the instruction that drops it is the one that `break` has, too.
                await paused(loop())
            else:
                await loop()
        await run.step(add, 9)
        return [item.is_done for item in plan.items]

    await quick.open(leaves)

    assert await quick.run(leaves()) == [is_done]


async def test_what_a_program_had_appended_is_kept_when_it_fails(stage: Stage) -> None:
    @hf.task(attempts=1)
    async def fails(run: hf.Run) -> None:
        notes: hf.DurableList[Any] = run.list("notes", ["first"])
        async for turn in run.turns():
            notes.append(turn.number)
            if turn.number == 2:
                raise ValueError("rough sea")

    await stage.open(fails)
    handle = await stage.start(fails())
    await stage.settle()

    deltas = stage.store.read_now(lambda tx: tx.lists.deltas([handle.id]))[handle.id]
    assert await handle.status() is TaskStatus.FAILED
    assert b"".join(delta.items for delta in deltas) == b'["first",1][2]'
