"""Programs made by chance, each killed at every point: what a person would not think of writing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import Iterator
from typing import Any

import pytest

import holdfast as hf
from holdfast.store import Store
from holdfast.testing import FakeClock, crash_everywhere, memory_store
from tests.crash.invariants import assert_ledger_is_whole

# More of them for one run: HOLDFAST_PROGRAMS=1000 pytest -m slow tests/engine/program/test_program_random.py
PROGRAMS = int(os.environ.get("HOLDFAST_PROGRAMS", "3"))
SEED = int(os.environ.get("HOLDFAST_SEED", "0")) or random.randrange(1, 10**6)

Body = list[Any]


# --- the program: a task that does what its argument says


async def add(one: int, other: int) -> int:
    return one + other


def add_in_thread(one: int, other: int) -> int:
    return one + other


async def measure(items: list[Any], value: int) -> int:
    return len(items) * 100 + value


@hf.opaque
async def send(number: int) -> int:
    return number + 1000


@hf.keyed("1d")
async def charge(number: int) -> int:
    return number + 2000


async def fail(number: int) -> int:
    raise LookupError(f"{number}")


class Leave(Exception):
    """Raised by the program itself, not by a step."""


@hf.task(attempts=1)
async def interpreter(run: hf.Run, body: Body) -> list[Any]:
    await Interpreter(run).do(body, None)
    seen: hf.DurableList[Any] = run.list("seen")
    return [*seen, list(run.list("other")), run.value("total", 0).get()]


class Interpreter:
    """Every act leaves what it saw in a durable list, so that two lives can be compared."""

    def __init__(self, run: hf.Run) -> None:
        self.run = run
        self.seen: hf.DurableList[Any] = run.list("seen")

    async def do(self, body: Body, turn: Any) -> None:
        for act, *given in body:
            await getattr(self, f"do_{act}")(turn, *given)

    async def do_step(self, turn: Any, number: int) -> None:
        self.seen.append(await (turn or self.run).step(add, number, len(self.seen)))

    async def do_thread(self, _turn: Any, number: int) -> None:
        self.seen.append(await self.run.step(add_in_thread, number, 1))

    async def do_measure(self, _turn: Any) -> None:
        """A step whose arguments are what crosses turns: in a replay they must be what they were."""
        total = self.run.value("total", 0)
        self.seen.append(await self.run.step(measure, self.run.list("other"), total.get()))

    async def do_send(self, turn: Any, number: int) -> None:
        self.seen.append(await (turn or self.run).tool(send, {"number": number}))

    async def do_charge(self, _turn: Any, number: int) -> None:
        self.seen.append(await self.run.step(charge, number))

    async def do_append(self, _turn: Any, number: int) -> None:
        self.run.list("other", [0]).append(number)

    async def do_add(self, _turn: Any, number: int) -> None:
        total = self.run.value("total", 0)
        total.set(total.get() + number)

    async def do_if(self, turn: Any, body: Body) -> None:
        """It depends on what is there whether it is done."""
        if (len(self.run.list("other")) + self.run.value("total", 0).get()) % 2:
            await self.do(body, turn)

    async def do_sleep(self, _turn: Any, seconds: int) -> None:
        await self.run.sleep(seconds)

    async def do_group(self, turn: Any, count: int) -> None:
        async with asyncio.TaskGroup() as group:
            made = [
                group.create_task((turn or self.run).tool(send, {"number": n}, id=f"{len(self.seen)}-{n}"))
                for n in range(count)
            ]
        for one in made:
            self.seen.append(one.result())

    async def do_try(self, turn: Any, body: Body, handler: Body) -> None:
        try:
            await self.do(body, turn)
        except (LookupError, Leave) as error:
            self.seen.append(type(error).__name__)
            await self.do(handler, turn)

    async def do_fail(self, turn: Any, number: int) -> None:
        await (turn or self.run).step(fail, number)

    async def do_leave(self, _turn: Any) -> None:
        raise Leave

    async def do_loop(self, _turn: Any, most: int, body: Body, leaves_at: int) -> None:
        last = -1
        async for turn in self.run.turns(max=most):
            await self.do(body, turn)
            last = turn.number
            if turn.number == leaves_at:
                break
        if leaves_at <= most:
            self.seen.append(last)  # a local variable of the turn in which the loop was left

    async def do_plan(self, _turn: Any, body: Body, leaves_at: int) -> None:
        place = 0
        async for item in self.run.plan(["a", "b", "c"]):
            self.seen.append(item.id)
            await self.do(body, item)
            place += 1
            if place == leaves_at and item.id == "a":
                break


# --- made by chance


def a_body(chance: random.Random, depth: int, *, has_plan: bool = False) -> Body:
    acts: list[str] = ["step", "thread", "measure", "send", "charge", "append", "append", "add", "add"]
    if depth:
        acts += ["if", "sleep", "try", "try", "loop", "loop", "loop", "group"]
    body: Body = []
    for _ in range(chance.randint(1, 3)):
        match chance.choice(acts):
            case "loop":
                most = chance.randint(1, 3)
                body.append(["loop", most, a_body(chance, depth - 1), chance.randint(1, most + 2)])
            case "try":
                inner = a_body(chance, depth - 1)
                if chance.random() < 0.7:
                    inner.insert(chance.randint(0, len(inner)), chance.choice([["fail", 1], ["leave"]]))
                if chance.random() < 0.5:
                    inner = [["loop", 3, inner, 5]]
                body.append(["try", inner, a_body(chance, 0)])
            case "if":
                body.append(["if", a_body(chance, depth - 1)])
            case "sleep":
                body.append(["sleep", chance.choice([5, 3600])])
            case "group":
                body.append(["group", 2])
            case "measure":
                body.append(["measure"])
            case act:
                body.append([act, chance.randint(1, 9)])
    if has_plan:
        body.insert(
            chance.randint(0, len(body)), ["plan", a_body(chance, max(0, depth - 1)), chance.choice([1, 9])]
        )
    return body


@pytest.mark.slow
@pytest.mark.parametrize("number", range(PROGRAMS))
async def test_a_program_made_by_chance_survives_every_crash(number: int) -> None:
    print(f"HOLDFAST_SEED={SEED}, program {number}")
    chance = random.Random(f"{SEED} {number}")
    body = a_body(chance, 2, has_plan=chance.random() < 0.3)
    clock = FakeClock()

    @contextlib.contextmanager
    def fresh() -> Iterator[Store]:
        with contextlib.closing(memory_store(clock)) as store:
            yield store
            assert_ledger_is_whole(store)

    print(body)
    crashed = await crash_everywhere(interpreter(body), store=fresh, clock=clock, twice=True)
    restarted = await crash_everywhere(interpreter(body), store=fresh, clock=clock, drain=True)

    assert crashed.result == restarted.result
    assert (restarted.reviews, restarted.repeated) == (0, 0)
