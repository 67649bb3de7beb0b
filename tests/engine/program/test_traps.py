"""Small programs in which durable code goes wrong easily, each killed at every point.

`crash_everywhere` says whether every life ended as the first one did, and whether anything was done twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import msgspec
import pytest

import holdfast as hf
from holdfast.store import Store
from holdfast.testing import FakeClock, crash_everywhere
from tests.conftest import Ledger
from tests.crash.invariants import assert_ledger_is_whole

pytestmark = pytest.mark.slow

Everywhere = Callable[..., Any]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A trap is one of the program's own, whatever the database; only who writes side by side, or is woken by
    what the database says is due, may tell."""
    if "everywhere" in metafunc.fixturenames:
        is_parallel = any(word in metafunc.function.__name__ for word in ("parallel", "woken"))
        backends = ["memory", "postgres"] if is_parallel else ["memory"]
        metafunc.parametrize("ledger", backends, indirect=True)


@pytest.fixture
def ledger(request: pytest.FixtureRequest) -> Iterator[Ledger]:
    ledger: Ledger = request.getfixturevalue(f"{request.param}_ledger")
    ledger.begin()
    yield ledger
    ledger.end()


@pytest.fixture
def everywhere(ledger: Ledger, store: Store, clock: FakeClock) -> Everywhere:
    """`crash_everywhere` on each backend; a ledger in memory of its own is quicker than to empty one."""

    @contextlib.contextmanager
    def fresh() -> Iterator[Store]:
        ledger.empty(store)
        yield store
        assert_ledger_is_whole(store)

    def factory() -> AbstractContextManager[Store]:
        return fresh()

    return functools.partial(crash_everywhere, store=factory, clock=clock)


# --- steps


async def add(one: int, other: int) -> int:
    return one + other


async def fail(what: str) -> str:
    raise ValueError(what)


@hf.opaque
async def post(text: str) -> str:
    return f"posted {text}"


def size_of(items: list[Any]) -> int:
    return len(items)


# --- leaving loops


@hf.task
async def leaves_by_break(run: hf.Run) -> str:
    notes = run.list("notes")
    async for turn in run.turns():
        number = await turn.step(add, turn.number, 0)
        notes.append(number)
        if number == 3:
            break
    # What the last turn left in a local variable is there after a restart, too.
    total = await run.step(add, number, len(notes))
    await run.step(post, f"{total}")
    return f"{total} {list(notes)}"


async def test_a_loop_may_be_left_by_break(everywhere: Everywhere) -> None:
    report = await everywhere(leaves_by_break, twice=True)

    assert report.result == "6 [1, 2, 3]"


@hf.task
async def leaves_by_return(run: hf.Run) -> int:
    notes = run.list("notes")

    async def inner() -> int:
        async for turn in run.turns("inner"):
            notes.append(await turn.step(add, turn.number, 10))
            if turn.number == 2:
                return len(notes)
        raise AssertionError

    found = await inner()
    async for turn in run.turns("outer", max=2):
        notes.append(await turn.step(add, turn.number, found))
    return await run.step(size_of, notes)


async def test_a_loop_may_be_left_by_return_from_a_function(everywhere: Everywhere) -> None:
    report = await everywhere(leaves_by_return, twice=True)

    assert report.result == 4


@hf.task(attempts=1)
async def leaves_by_exception(run: hf.Run) -> str:
    notes = run.list("notes")
    try:
        async for turn in run.turns():
            notes.append(await turn.step(add, turn.number, 0))
            if turn.number == 2:
                await turn.step(fail, "rough sea")
    except ValueError as error:
        caught = str(error)
    else:
        caught = "nothing"
    # A replay must come by the `except` again.
    number = await run.step(add, len(notes), 1)
    async for turn in run.turns(max=2):
        notes.append(await turn.step(add, turn.number, number))
    return f"{caught} {list(notes)}"


async def test_an_exception_that_is_caught_outside_the_loop_is_raised_again(everywhere: Everywhere) -> None:
    report = await everywhere(leaves_by_exception, twice=True)

    assert report.result == "step fail failed: ValueError: rough sea [1, 2, 4, 5]"


@hf.task
async def nested_loops(run: hf.Run) -> list[int]:
    seen = run.list("seen")
    async for outer in run.turns("outer", max=2):
        before = await outer.step(size_of, seen)
        seen.append(100 + before)
        async for inner in run.turns("inner"):
            seen.append(await inner.step(add, 10 * outer.number, inner.number))
            if inner.number == 2:
                break
        after = await run.step(size_of, seen)
        seen.append(200 + after)
    return list(seen)


async def test_a_loop_in_a_loop_sees_what_was_there_at_its_place(everywhere: Everywhere) -> None:
    report = await everywhere(nested_loops, twice=True)

    assert report.result == [100, 11, 12, 203, 104, 21, 22, 207]


@hf.task
async def holds_the_iterator(run: hf.Run) -> str:
    notes = run.list("notes")
    turns = aiter(run.turns("held"))
    while True:
        turn = await anext(turns)
        notes.append(await turn.step(add, turn.number, 1))
        if turn.number == 2:
            break
    # The program is inside the loop for as long as it holds the iterator; nothing is lost by that.
    last = await run.step(size_of, notes)
    async for turn in run.turns("after", max=1):
        notes.append(await turn.step(add, last, 0))
    return f"{list(notes)}"


async def test_an_iterator_may_be_held_under_a_name() -> None:
    report = await crash_everywhere(holds_the_iterator, twice=True)

    assert report.result == "[2, 3, 2]"


@hf.task
async def closes_a_generator_early(run: hf.Run) -> str:
    notes = run.list("notes")

    async def rounds() -> AsyncIterator[int]:
        async for turn in run.turns("rounds"):
            yield await turn.step(add, turn.number, 0)

    async for number in rounds():
        notes.append(number)
        if number == 2:
            break
    # When Python ends the generator, it is not known when: now, or at some later await.
    one = await run.step(add, len(notes), 0)
    two = await run.step(add, one, 1)
    await asyncio.sleep(0)
    three = await run.step(add, two, 1)
    return f"{list(notes)} {one} {two} {three}"


async def test_a_generator_around_a_loop_may_be_closed_early() -> None:
    report = await crash_everywhere(closes_a_generator_early, twice=True)

    assert report.result == "[1, 2] 2 3 4"


# --- what crosses turns


@hf.task
async def carries_a_local(run: hf.Run) -> int:
    total = 0
    async for turn in run.turns(max=3):
        total += await turn.step(add, turn.number, 0)
    return total


async def test_a_local_variable_that_crosses_turns_is_found() -> None:
    with pytest.raises(AssertionError) as wrong:
        await crash_everywhere(carries_a_local)

    assert "crashed after write 2 (commit turn)" in str(wrong.value)
    assert "it ended succeeded with 5; without a crash it ends succeeded with 6" in str(wrong.value)
    assert "keep what crosses turns in run.list(…) or run.value(…)" in str(wrong.value)


@hf.task
async def carries_a_value(run: hf.Run) -> str:
    total = run.value("total", 0)
    began_with = await run.step(add, total.get(), 0)
    total.set(total.get() + 10)
    async for turn in run.turns("first", max=2):
        total.set(total.get() + await turn.step(add, turn.number, 0))
    middle = await run.step(add, total.get(), 0)
    total.update(lambda value: value * 2)
    async for turn in run.turns("second", max=2):
        total.value += await turn.step(add, turn.number, 0)
    return f"{began_with} {middle} {total.get()}"


async def test_a_value_is_at_every_place_what_it_was_there(everywhere: Everywhere) -> None:
    report = await everywhere(carries_a_value, twice=True)

    assert report.result == "0 13 29"


@hf.task
async def decides_by_what_is_there(run: hf.Run) -> str:
    messages = run.list("messages")
    stage = run.value("stage", "new")
    if not messages:
        messages.append(await run.step(add, 1, 1))
    if stage.get() == "new":
        await run.step(post, "prepared")
        stage.set("prepared")
    async for turn in run.turns(max=2):
        messages.append(await turn.step(add, turn.number, len(messages)))
        if stage.get() == "prepared":
            stage.set("worked")
    messages.append(99)
    stage.set(f"{stage.get()} and done")
    await run.step(size_of, messages)
    return f"{list(messages)} {stage.get()}"


async def test_a_program_may_decide_by_what_a_list_or_a_value_holds(everywhere: Everywhere) -> None:
    report = await everywhere(decides_by_what_is_there, twice=True)

    assert report.result == "[2, 2, 4, 99] worked and done"


@hf.task
async def creates_inside_turns(run: hf.Run) -> str:
    async for turn in run.turns(max=3):
        notes: hf.DurableList[Any] = run.list("notes", ["first"])
        count = run.value("count", 5)
        notes.append(await turn.step(add, count.get(), turn.number))
        count.set(count.get() + 1)
    late = run.list("late", [1])
    late.append(len(run.list("notes")))
    return f"{run.list('notes')[:]} {run.value('count', 0).get()} {late[:]}"


async def test_lists_and_values_may_be_made_where_they_are_needed(everywhere: Everywhere) -> None:
    report = await everywhere(creates_inside_turns, twice=True)

    assert report.result == "['first', 6, 8, 10] 8 [1, 4]"


# --- values that change on their way


class Spot(msgspec.Struct):
    at: tuple[int, int]
    names: dict[int, str]


async def give_plain(_: int) -> Any:
    return {"at": (1, 2), "names": {1: "one"}}


async def give_typed(_: int) -> Spot:
    return Spot(at=(1, 2), names={1: "one"})


@hf.task
async def odd_types(run: hf.Run) -> str:
    plain = await run.step(give_plain, 1)
    typed = await run.step(give_typed, 1)
    kept = run.list("kept")
    kept.append((1, 2))
    kept.append({3: (4,)})
    points = run.list("points", [typed], of=Spot)
    async for turn in run.turns(max=1):
        points.append(await turn.step(give_typed, 2))
    return f"{plain} {typed} {kept[:]} {points[1].at}"


async def test_tuples_and_whole_numbers_as_keys_are_the_same_before_and_after(everywhere: Everywhere) -> None:
    report = await everywhere(odd_types, twice=True)

    assert report.result == (
        "{'at': [1, 2], 'names': {'1': 'one'}} Spot(at=(1, 2), names={1: 'one'}) [[1, 2], {'3': [4]}] (1, 2)"
    )


class Refused(Exception):
    """Its constructor wants more than one text, and it cannot be made again from its message."""

    def __init__(self, code: int, *, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.status = code
        self.reason = reason


@hf.step(raises=Refused)
async def refuse(code: int) -> str:
    raise Refused(code, reason="no")


async def stop_iterating(_: int) -> int:
    return next(iter(()))


def stop_iterating_in_a_thread(_: int) -> int:
    return next(iter(()))


@hf.task(attempts=1)
async def odd_errors(run: hf.Run) -> list[str]:
    seen = []
    steps: list[Any] = [refuse, fail, stop_iterating, stop_iterating_in_a_thread]
    for step in steps:
        try:
            await run.step(step, 404)
        except Refused as error:
            seen.append(f"Refused {error.status} {error.reason} {isinstance(error, hf.StepFailed)}")
        except RuntimeError as error:
            seen.append(f"RuntimeError {isinstance(error, hf.StepFailed)}")
        except ValueError as error:
            seen.append(f"ValueError {error}")
    return seen


async def test_an_exception_is_the_same_whatever_its_constructor_wants(everywhere: Everywhere) -> None:
    report = await everywhere(odd_errors, twice=True)

    assert report.result == [
        "Refused 404 no True",
        "ValueError step fail failed: ValueError: 404",
        "RuntimeError True",
        "RuntimeError True",
    ]


# --- threads and tasks

tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")


def who_asks(name: str) -> str:
    before = tenant.get()
    tenant.set(f"{name}, in the thread")
    return f"{name} asks for {before}"


@hf.task
async def context_in_threads(run: hf.Run) -> list[str]:
    tenant.set("ada")
    one = await run.step(who_asks, "one")
    return [one, tenant.get(), await run.step(who_asks, "two")]


async def test_a_function_in_a_thread_sees_the_context_and_keeps_its_own_changes() -> None:
    report = await crash_everywhere(context_in_threads, twice=True)

    assert report.result == ["one asks for ada", "ada", "two asks for ada"]


def slow_add(one: int, other: int) -> int:
    return one + other


@hf.task
async def parallel_tools(run: hf.Run) -> list[Any]:
    found = run.list("found")
    async for turn in run.turns(max=2):
        async with asyncio.TaskGroup() as group:
            calls = [
                group.create_task(turn.tool(post, {"text": f"{turn.number}.{n}"}, id=f"call-{n}"))
                for n in range(2)
            ]
            sums = asyncio.gather(turn.step(add, 1, 1), turn.step(slow_add, 2, 2))
            found.extend(await sums)
        found.extend(call.result() for call in calls)
    return list(found)


async def test_parallel_tools_are_told_apart_by_their_ids(everywhere: Everywhere) -> None:
    report = await everywhere(parallel_tools)

    assert report.result == [
        *[2, 4, "posted 1.0", "posted 1.1"],
        *[2, 4, "posted 2.0", "posted 2.1"],
    ]


# --- the plan


@hf.task
async def plans_anew(run: hf.Run) -> list[str]:
    done = run.list("done")
    plan = run.plan(["prep", "transfer", "validate"])
    async for item in plan:
        done.append(await item.step(post, item.id))
        if item.id == "prep":
            item.decompose(["prep-a", "prep-b"])
        if item.id == "prep-b":
            plan.replan(["copy", "check"])
    plan.replan(["again"])
    async for item in plan:
        done.append(await item.step(post, item.title))
    return [*done, *(f"{item.id}:{item.is_done}" for item in plan.items)]


async def test_a_plan_may_be_changed_while_it_is_carried(everywhere: Everywhere) -> None:
    report = await everywhere(plans_anew, twice=True)

    assert report.result == [
        *("posted prep", "posted prep-a", "posted prep-b", "posted copy", "posted check", "posted again"),
        *("prep:True", "prep-a:True", "prep-b:True", "copy:True", "check:True", "again:True"),
    ]


@hf.task(attempts=1)
async def leaves_the_plan(run: hf.Run) -> list[str]:
    done = run.list("done")
    plan = run.plan(["a", "b", "c", "d"])
    async for item in plan:
        done.append(await item.step(post, f"{item.id} 1"))
        if item.id == "b":
            break
    await run.step(add, 1, 1)
    try:
        async for item in plan:
            done.append(await item.step(post, f"{item.id} 2"))
            await item.step(fail, item.id)
    except ValueError:
        await run.step(add, 2, 2)
    async for item in plan:
        done.append(await item.step(post, f"{item.id} 3"))
    return [text.removeprefix("posted ") for text in done]


async def test_an_item_is_done_when_its_loop_is_left_by_break_and_not_when_it_raised(
    everywhere: Everywhere,
) -> None:
    report = await everywhere(leaves_the_plan, twice=True)

    assert report.result == ["a 1", "b 1", "c 2", "c 3", "d 3"]


@hf.task
async def creates_in_a_turn_that_is_left(run: hf.Run) -> str:
    async for outer in run.turns("outer", max=3):
        async for inner in run.turns("inner"):
            notes = run.list("notes")
            count = run.value("count", 10)
            notes.append(await inner.step(add, count.get(), outer.number))
            break
        count.set(count.get() + 1)
        await outer.step(size_of, notes)
    return f"{run.list('notes')[:]} {run.value('count', 0).get()}"


async def test_what_was_made_in_a_turn_that_was_left_is_there_in_the_next(everywhere: Everywhere) -> None:
    report = await everywhere(creates_in_a_turn_that_is_left, twice=True)

    assert report.result == "[11, 13, 15] 13"


async def slowly(number: int) -> int:
    for _ in range(number % 4):
        await asyncio.sleep(0)
    return number


@hf.task
async def steps_beside_a_loop(run: hf.Run) -> list[Any]:
    async def loop(name: str) -> int:
        total = 0
        async for turn in run.turns(name):
            total = await run.step(slowly, turn.number)
            await asyncio.gather(run.step(add, total, 1), run.step(size_of, [1]))
            if turn.number == 2:
                break
        return total

    async def beside() -> int:
        # In no turn, whichever of the two comes first.
        return sum([await run.step(slowly, number) for number in (3, 2)])

    async with asyncio.TaskGroup() as group:
        looping, other = group.create_task(loop("a")), group.create_task(beside())
    nested = []
    async for turn in run.turns("outer", max=1):
        nested.append(await turn.step(add, turn.number, 0))
        inner = await asyncio.wait_for(loop("inner"), 60)  # in an asyncio task of its own
        await run.step(add, inner, 1)
    return [looping.result(), other.result(), await run.step(add, 1, 1)]


async def test_a_step_belongs_to_the_turn_that_its_own_asyncio_task_is_in(everywhere: Everywhere) -> None:
    report = await everywhere(steps_beside_a_loop)

    assert report.result == [2, 5, 2]


# --- restarted everywhere

# One of each kind: what is left, what is kept, what is raised, what works side by side, and a plan.
DRAINED_TRAPS = (
    *(leaves_by_exception, closes_a_generator_early, nested_loops, decides_by_what_is_there),
    *(creates_in_a_turn_that_is_left, odd_errors, context_in_threads, parallel_tools, plans_anew),
)


@pytest.mark.parametrize("trap", [pytest.param(trap, id=trap.name) for trap in DRAINED_TRAPS])
async def test_a_restart_at_any_point_repeats_nothing_and_leaves_nothing_in_doubt(
    trap: hf.TaskDefinition[..., Any],
) -> None:
    report = await crash_everywhere(trap, drain=True)

    assert (report.reviews, report.repeated) == (0, 0)


@hf.task(attempts=1)
async def leaves_at_once_by_exception(run: hf.Run) -> str:
    notes: hf.DurableList[Any] = run.list("notes", [0])
    try:
        async for turn in run.turns():
            await turn.step(fail, "rough sea")
    except ValueError as error:
        notes.append(str(error))
    return await run.step(post, f"{list(notes)}")


async def test_the_second_life_may_be_killed_at_every_point_too() -> None:
    report = await crash_everywhere(leaves_at_once_by_exception, pairs=True)

    assert len(report.points) > 40


async def test_a_task_that_is_saved_and_woken_survives_a_death_at_every_write(
    everywhere: Everywhere, clock: FakeClock
) -> None:
    async def work(number: int) -> int:
        clock.advance(minutes=4)
        return number

    @hf.task(run_timeout="10m", smart_wake="always", wake_after="2m")
    async def long(run: hf.Run) -> int:
        plan = run.plan([f"part-{number}" for number in range(4)])
        async for item in plan:
            await item.step(work, item.number)
        return len(plan.items)

    report = await everywhere(long())

    names = " ".join(point.where for point in report.points)
    assert "pause" in names
    assert "fire" in names
    assert "follow up" in names
