"""The helper with which users kill their tasks: it finds what is wrong, and says where."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.transitions import TaskStatus
from holdfast.engine.program.effect_settling import Again, EffectSettler
from holdfast.engine.program.steps import StepRunner
from holdfast.store import Store
from holdfast.store.sqlite import SqliteStore
from holdfast.testing import FakeClock, crash_everywhere

pytestmark = pytest.mark.slow


async def add(one: int, other: int = 0) -> int:
    return one + other


@hf.opaque
async def send(text: str) -> str:
    return f"sent {text}"


@hf.task
async def agent(run: hf.Run, topic: str, turns: int = 2) -> list[str]:
    """A plain step, and in each turn a step, an effect and an append."""
    notes = run.list("notes", [topic])
    await run.step(add, len(notes))
    async for turn in run.turns(max=turns):
        number = await turn.step(add, turn.number, 10)
        notes.append(await turn.tool(send, {"text": f"{topic} {number}"}, id="a"))
    return list(notes)


# --- what it does


async def test_one_line_kills_a_task_everywhere_and_tells_what_came_of_it() -> None:
    report = await crash_everywhere(agent, "tides")

    assert report.status is TaskStatus.SUCCEEDED
    assert report.result == ["tides", "sent tides 11", "sent tides 12"]
    # A step is one write, an effect two, a turn one, and the end: before and after each.
    assert len(report.points) == 2 * (1 + 2 * (1 + 2 + 1) + 1)
    assert Counter(name for point in report.points for name in point.reviews) == {"send": 4}
    assert Counter(name for point in report.points for name in point.repeated) == {
        "step add (1)": 1,
        "step add (1 in turns:1)": 1,
        "step add (1 in turns:2)": 1,
    }
    in_review = [point.where for point in report.points if point.reviews]
    assert in_review[:2] == [
        "crashed after write 3 (begin effect of send)",
        "crashed before write 4 (note outcome of send)",
    ]


async def test_it_takes_a_task_with_its_arguments_or_a_call() -> None:
    one = await crash_everywhere(agent, "tides", turns=1)
    other = await crash_everywhere(agent("tides", turns=1))

    assert one == other


async def test_a_call_has_its_arguments_already() -> None:
    with pytest.raises(hf.BadInput, match="it has its arguments already"):
        await crash_everywhere(agent("tides"), 2)
    with pytest.raises(hf.BadInput, match="a task, a call of one or a flow is needed, not int"):
        await crash_everywhere(7)  # type: ignore[arg-type]


async def test_the_next_life_may_be_killed_too() -> None:
    @hf.task
    async def short(run: hf.Run) -> str:
        return await run.step(send, f"{await run.step(add, 1)}")

    single = await crash_everywhere(short)
    pairs = await crash_everywhere(short, pairs=True)

    assert pairs.result == single.result
    assert len(pairs.points) > 4 * len(single.points)
    assert any("and its next process before write 1" in point.where for point in pairs.points)


async def test_a_task_that_fails_must_fail_the_same_way_every_time() -> None:
    @hf.task(attempts=2)
    async def fails(run: hf.Run) -> None:
        await run.step(add, 1)
        raise ValueError("rough sea")

    report = await crash_everywhere(fails)

    assert report.status is TaskStatus.FAILED
    assert report.result is None


async def test_it_kills_tasks_on_a_ledger_on_disk(quick_path: Path) -> None:
    clock = FakeClock()
    made: list[Path] = []

    @contextlib.contextmanager
    def fresh() -> Iterator[Store]:
        path = quick_path / f"{len(made)}" / "ledger.db"
        made.append(path)
        with contextlib.closing(SqliteStore(path, clock=clock)) as store:
            yield store

    report = await crash_everywhere(agent, "tides", turns=1, store=fresh, clock=clock)

    assert report.result == ["tides", "sent tides 11"]
    assert len(made) == 1 + len(report.points)


async def test_years_pass_in_no_time() -> None:
    @hf.task
    async def sleeps(run: hf.Run) -> None:
        await run.sleep("20s")
        for _ in range(3):
            await run.sleep("1000d")

    report = await crash_everywhere(sleeps)

    assert report.status is TaskStatus.SUCCEEDED


@pytest.mark.parametrize("options", [{}, {"drain": True}, {"twice": True}])
async def test_a_task_that_asks_for_a_restart_gets_one_wherever_it_is_killed(options: dict[str, Any]) -> None:
    @hf.task
    async def upgrades(run: hf.Run) -> list[str]:
        notes = [await run.step(send, "before")]
        await run.requires_restart("a new driver")
        return [*notes, await run.step(send, "after")]

    report = await crash_everywhere(upgrades(), **options)

    assert report.result == ["sent before", "sent after"]
    if not options:
        # Two effects of two writes, the request, the drain's pause, what came of it, a look for children, and
        # the end.
        assert len(report.points) == 2 * (2 * 2 + 1 + 1 + 1 + 1 + 1)


# --- what it finds


async def test_a_program_that_is_not_the_same_each_time_is_found() -> None:
    lives = Counter[str]()

    @hf.task
    async def fickle(run: hf.Run) -> int:
        lives["begun"] += 1
        begun = lives["begun"]
        await run.step(add, 1)
        return begun

    with pytest.raises(AssertionError, match="what differs each time"):
        await crash_everywhere(fickle)


async def test_a_verify_that_does_not_see_what_happened_is_found() -> None:
    def blind(text: str) -> hf.DidNotHappen:
        return hf.DidNotHappen()

    @hf.verifiable(blind)
    async def publish(text: str) -> str:
        return f"published {text}"

    @hf.task
    async def publishes(run: hf.Run) -> str:
        return await run.step(publish, "tides")

    with pytest.raises(
        AssertionError, match=r"step publish \(1\) runs again: it had happened, but `verify` says"
    ):
        await crash_everywhere(publishes)


async def test_a_verify_that_sees_is_enough() -> None:
    published: set[str] = set()

    def look(text: str) -> hf.Happened | hf.DidNotHappen:
        return hf.Happened(f"published {text}") if hf.idempotency_key() in published else hf.DidNotHappen()

    @hf.verifiable(look)
    async def publish(text: str) -> str:
        published.add(hf.idempotency_key())
        return f"published {text}"

    @hf.task
    async def publishes(run: hf.Run) -> str:
        return await run.step(publish, "tides")

    report = await crash_everywhere(publishes)

    assert report.reviews == 0
    assert report.result == "published tides"


async def test_a_keyed_effect_may_be_repeated_with_its_key() -> None:
    @hf.keyed("24h")
    async def charge(amount: int) -> int:
        return amount

    @hf.task
    async def charges(run: hf.Run) -> int:
        return await run.step(charge, 5)

    report = await crash_everywhere(charges)

    assert report.reviews == 0
    assert report.repeated == 1


async def test_an_engine_that_forgets_a_saved_step_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StepRunner, "remembered", lambda *_: (False, None))

    with pytest.raises(AssertionError, match=r"step add \(1\) runs again, although its result was saved"):
        await crash_everywhere(agent, "tides", turns=1)


async def test_an_engine_that_does_an_opaque_effect_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def again(*_: Any) -> Again:
        return Again(is_same_key=True)

    monkeypatch.setattr(EffectSettler, "ask_world", again)

    with pytest.raises(
        AssertionError, match="whether send happened is unknown, but it is done, not in review"
    ):
        await crash_everywhere(agent, "tides", turns=1)


# --- what it needs


async def test_it_says_which_answer_mail_or_task_is_missing() -> None:
    @hf.task
    async def child(run: hf.Run) -> None: ...

    @hf.task
    async def asks(run: hf.Run, what: str) -> None:
        match what:
            case "ask":
                await run.ask("Release 1.2?")
            case "receive":
                await run.receive("news")
            case "spawn":
                await (await run.spawn(child()))

    with pytest.raises(AssertionError, match=r"asks asks 'Release 1.2\?'; give answers="):
        await crash_everywhere(asks, "ask")
    with pytest.raises(AssertionError, match=r"asks waits for mail on 'news'; give mail=\[\('news', …\)\]"):
        await crash_everywhere(asks, "receive")
    with pytest.raises(
        AssertionError, match=r"child was started, but is not among the tasks; give tasks=\[child\]"
    ):
        await crash_everywhere(asks, "spawn")


async def test_a_program_that_swallows_the_crash_does_not_survive_it() -> None:
    @hf.task
    async def stubborn(run: hf.Run) -> int:
        total = 0
        for number in range(3):
            with contextlib.suppress(BaseException):
                total += await run.step(add, number)
        return total

    report = await crash_everywhere(stubborn)

    assert report.result == 3


async def test_what_a_program_leaves_running_dies_with_its_process() -> None:
    alive: set[asyncio.Task[Any]] = set()

    async def forever() -> None:
        await asyncio.Event().wait()

    @hf.task
    async def leaves(run: hf.Run) -> int:
        child = asyncio.ensure_future(forever())
        alive.add(child)
        found = await run.step(add, 1)
        await run.step(add, 2)
        child.cancel()
        return found

    await crash_everywhere(leaves)

    assert all(child.done() for child in alive)


# --- the clock


async def test_who_sleeps_by_a_fake_clock_moves_it() -> None:
    clock = FakeClock()
    start = clock.now()

    await asyncio.gather(clock.sleep(10), clock.sleep(30), clock.sleep(20))

    assert clock.now() - start == timedelta(seconds=30)
