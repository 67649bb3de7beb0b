"""Effects that their own program cancels: by a timeout, by a task group, by hand."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.events import EventKind
from holdfast.core.transitions import EffectStatus, TaskStatus
from holdfast.engine.client.handles import Handle
from holdfast.testing import Crashed
from tests.backends import first_on_both
from tests.engine.stage import Stage

pytestmark = pytest.mark.slow


class SlowService:
    """The outside: how often each thing was done there, and whether it answers."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        self.is_slow = True
        self.seen: list[str] = []
        # The caller that wants to cancel what has begun.
        self.when_begun: list[Callable[[], object]] = []

    def begin(self) -> None:
        while self.when_begun:
            self.when_begun.pop()()

    async def act(self, name: str) -> str:
        self.done[name] += 1
        if self.is_slow:
            self.begin()
            await asyncio.Event().wait()
        return f"did {name}"


@pytest.fixture
def service() -> SlowService:
    return SlowService()


@pytest.fixture(autouse=True)
def impatient(stage: Stage) -> None:
    stage.landing_s = 0.0


def statuses(stage: Stage, handle: Handle[Any]) -> list[EffectStatus]:
    return [effect.status for effect in stage.store.read_now(lambda tx: tx.effects.of_task(handle.id))]


# --- ways to cancel


def strike(limit: asyncio.Timeout) -> None:
    limit.reschedule(asyncio.get_running_loop().time())


async def by_timeout(service: SlowService, acting: Any) -> str:
    try:
        async with asyncio.timeout(None) as limit:
            service.when_begun = [lambda: strike(limit)]
            return str(await acting)
    except TimeoutError:
        return "late"


async def by_two_timeouts(service: SlowService, acting: Any) -> str:
    try:
        async with asyncio.timeout(None) as outer, asyncio.timeout(None) as inner:
            service.when_begun = [lambda: strike(outer), lambda: strike(inner)]
            return str(await acting)
    except TimeoutError:
        return "late"


async def by_wait_for(service: SlowService, acting: Any) -> str:
    try:
        return str(await asyncio.wait_for(acting, 0.3))
    except TimeoutError:
        return "late"


async def by_group(service: SlowService, acting: Any) -> str:
    async def fail() -> None:
        await begun.wait()
        if not child.done():
            raise ValueError("rough sea")

    begun = asyncio.Event()
    service.when_begun = [begun.set]
    try:
        async with asyncio.TaskGroup() as group:
            child = group.create_task(acting)
            child.add_done_callback(lambda _: begun.set())
            group.create_task(fail())
    except ExceptionGroup:
        return "late"
    return str(child.result())


async def by_hand(service: SlowService, acting: Any) -> str:
    child = asyncio.ensure_future(acting)
    service.when_begun = [child.cancel]
    try:
        return str(await child)
    except asyncio.CancelledError:
        return "late"


WAYS = {way.__name__: way for way in (by_timeout, by_two_timeouts, by_wait_for, by_group, by_hand)}


def acting(service: SlowService, way: Any, effect: Any, *, after: str = "step") -> Any:
    """A program that gives up on its effect, and wants to go on after that, in this way or that."""

    @hf.tool(effect=effect)
    async def act(name: str) -> str:
        return await service.act(name)

    async def note(text: str) -> str:
        service.seen.append(text)
        return text

    @hf.task(attempts=1)
    async def acts(run: hf.Run) -> str:
        if after == "turn":
            async for turn in run.turns(max=2):
                if turn.number == 1:
                    said = await WAYS[way](service, turn.step(act, "a"))
            return said
        said = await WAYS[way](service, run.step(act, "a"))
        service.seen.append(f"heard {said}")
        if after == "failure":
            raise LookupError(said)
        return said if after == "end" else await run.step(note, said)

    return acts


async def carried(stage: Stage, task: Any) -> Handle[Any]:
    await stage.open(task)
    handle = await stage.start(task())
    await stage.settle()
    return handle


# --- by class


@first_on_both("way", list(WAYS))
@pytest.mark.parametrize("effect", [hf.opaque, hf.keyed("24h")])
async def test_an_effect_that_its_program_cancels_is_in_doubt_and_the_program_goes_no_further(
    stage: Stage, service: SlowService, way: str, effect: Any
) -> None:
    task = acting(service, way, effect)
    handle = await carried(stage, task)
    before = list(service.seen)
    found = await stage.review()
    await stage.holdfast.resolve(found.id, "done", result="by hand", by="ada")
    service.is_slow = False
    await stage.settle()

    assert before == ["heard late"]
    assert found.outcome is not None
    assert b"the program cancelled it while it was being done" in found.outcome
    assert len(await stage.events(handle, EventKind.EFFECT_IN_DOUBT)) == 1
    assert await stage.result(handle) == "by hand"
    assert service.done == {"a": 1}


@pytest.mark.parametrize("after", ["step", "turn", "end", "failure"])
async def test_however_the_program_goes_on_its_task_needs_review_first(
    stage: Stage, service: SlowService, after: str
) -> None:
    handle = await carried(stage, acting(service, "by_timeout", hf.opaque, after=after))
    task = await handle.task()

    assert task.status is TaskStatus.NEEDS_REVIEW
    assert task.waits_on == f"review:{(await stage.review()).id}"
    assert statuses(stage, handle) == [EffectStatus.UNKNOWN]


@first_on_both("way", list(WAYS))
@pytest.mark.parametrize("after", ["step", "turn", "end"])
async def test_what_the_world_can_tell_needs_no_person(
    stage: Stage, service: SlowService, way: str, after: str
) -> None:
    def verify(name: str) -> hf.Happened | hf.DidNotHappen:
        return hf.Happened(f"found {name}") if service.done[name] else hf.DidNotHappen()

    handle = await carried(stage, acting(service, way, hf.verifiable(verify), after=after))

    assert await stage.result(handle) == "late"
    assert statuses(stage, handle) == [EffectStatus.CONFIRMED]
    assert await stage.holdfast.reviews() == []


async def test_what_did_not_happen_is_known_to_have_failed(stage: Stage, service: SlowService) -> None:
    def verify(name: str) -> hf.DidNotHappen:
        return hf.DidNotHappen()

    handle = await carried(stage, acting(service, "by_timeout", hf.verifiable(verify)))

    assert await stage.result(handle) == "late"
    assert statuses(stage, handle) == [EffectStatus.FAILED]


async def test_what_even_the_world_cannot_tell_is_put_before_a_person(
    stage: Stage, service: SlowService
) -> None:
    def verify(name: str) -> hf.Unknown:
        return hf.Unknown("the archive is away")

    handle = await carried(stage, acting(service, "by_timeout", hf.verifiable(verify)))
    found = await stage.review()

    assert await handle.status() is TaskStatus.NEEDS_REVIEW
    assert found.outcome is not None
    assert b"verify says: the archive is away" in found.outcome


@first_on_both("way", list(WAYS))
@pytest.mark.parametrize("effect", [hf.read, hf.idempotent])
async def test_what_may_be_repeated_leaves_nothing_behind(
    stage: Stage, service: SlowService, way: str, effect: Any
) -> None:
    handle = await carried(stage, acting(service, way, effect))

    assert await stage.result(handle) == "late"
    assert statuses(stage, handle) == []


# --- how it is cancelled


@pytest.mark.parametrize("way", ["by_timeout", "by_group", "by_hand"])
async def test_an_effect_that_ends_soon_enough_is_done_although_its_program_cancelled_it(
    stage: Stage, service: SlowService, way: str
) -> None:
    @hf.opaque
    async def act(name: str) -> str:
        service.begin()
        await asyncio.get_running_loop().run_in_executor(None, heard.wait)
        return name

    heard = threading.Event()

    @hf.task(attempts=1)
    async def acts(run: hf.Run) -> str:
        asyncio.get_running_loop().call_later(0.05, heard.set)
        return await WAYS[way](service, run.step(act, "a"))

    stage.landing_s = 30.0
    handle = await carried(stage, acts)

    assert await stage.result(handle) == "late"
    assert statuses(stage, handle) == [EffectStatus.DONE]


async def test_a_function_in_a_thread_is_left_alone(stage: Stage, service: SlowService) -> None:
    stuck, loop = threading.Event(), asyncio.get_running_loop()

    @hf.opaque
    def act() -> None:
        loop.call_soon_threadsafe(service.begin)
        stuck.wait(30)

    @hf.task(attempts=1)
    async def acts(run: hf.Run) -> str:
        return await by_timeout(service, run.step(act))

    handle = await carried(stage, acts)
    status = await handle.status()
    stuck.set()

    assert status is TaskStatus.NEEDS_REVIEW


async def test_a_task_that_takes_too_long_ends_although_its_effect_does_not(
    stage: Stage, service: SlowService
) -> None:
    @hf.opaque
    async def act() -> str:
        return await service.act("a")

    @hf.task(timeout="50ms", attempts=1)
    async def acts(run: hf.Run) -> str:
        return await run.step(act)

    handle = await carried(stage, acts)

    assert await handle.status() is TaskStatus.TIMED_OUT
    assert statuses(stage, handle) == [EffectStatus.UNKNOWN]


async def test_one_that_swallows_the_cancel_and_returns_is_done(stage: Stage, service: SlowService) -> None:
    @hf.opaque
    async def act() -> str:
        try:
            return await service.act("a")
        except asyncio.CancelledError:
            return "just so"

    @hf.task(attempts=1)
    async def acts(run: hf.Run) -> str:
        return await by_timeout(service, run.step(act))

    handle = await carried(stage, acts)

    assert await stage.result(handle) == "late"
    assert statuses(stage, handle) == [EffectStatus.DONE]


async def test_a_timeout_of_the_step_that_meets_one_of_the_program_is_not_forgotten(
    stage: Stage, service: SlowService
) -> None:
    @hf.tool(effect=hf.opaque, timeout="30ms")
    async def act() -> str:
        return await service.act("a")

    @hf.task(attempts=1)
    async def acts(run: hf.Run) -> str:
        return await by_timeout(service, run.step(act))

    stage.landing_s = 30.0
    handle = await carried(stage, acts)

    assert await handle.status() is TaskStatus.NEEDS_REVIEW
    assert statuses(stage, handle) == [EffectStatus.UNKNOWN]


async def test_a_verify_that_its_program_cancels_is_asked_again_before_it_goes_on(
    stage: Stage, service: SlowService
) -> None:
    asked: list[str] = []

    async def verify() -> hf.Happened:
        asked.append("asked")
        if len(asked) == 1:
            service.begin()
            await asyncio.Event().wait()
        return hf.Happened("found")

    @hf.verifiable(verify)
    async def act() -> str:
        raise ConnectionError("reset")

    async def note() -> None: ...

    @hf.task(attempts=1)
    async def acts(run: hf.Run) -> str:
        said = await by_timeout(service, run.step(act))
        await run.step(note)
        return said

    handle = await carried(stage, acts)

    assert await stage.result(handle) == "late"
    assert len(asked) == 2
    assert statuses(stage, handle) == [EffectStatus.CONFIRMED]


async def test_an_intent_that_was_cancelled_on_its_way_is_taken_back_and_may_be_tried_again(
    stage: Stage, service: SlowService
) -> None:
    service.is_slow = False

    @hf.opaque
    async def act(name: str) -> str:
        return await service.act(name)

    @hf.task(attempts=1)
    async def acts(run: hf.Run) -> str:
        first = asyncio.ensure_future(run.tool(act, {"name": "a"}, id="a"))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        return await run.tool(act, {"name": "a"}, id="a")

    handle = await carried(stage, acts)

    assert await stage.result(handle) == "did a"
    assert service.done == {"a": 1}


# --- crashes


@pytest.mark.parametrize("effect", ["opaque", "keyed", "verifiable"])
@pytest.mark.parametrize("dies", ["in the cancel", "after it"])
async def test_killed_between_the_cancel_and_the_next_call_it_is_settled_by_the_run_that_goes_on(
    stage: Stage, service: SlowService, effect: str, dies: str
) -> None:
    def verify(name: str) -> hf.Happened:
        return hf.Happened(f"found {name}")

    specs = {"opaque": hf.opaque, "keyed": hf.keyed("24h"), "verifiable": hf.verifiable(verify)}
    lives: list[str] = []

    @hf.tool(effect=specs[effect])
    async def act(name: str) -> str:
        try:
            return await service.act(name)
        except asyncio.CancelledError:
            if dies == "in the cancel":
                stage.lose_store()
            raise

    @hf.task(attempts=1)
    async def acts(run: hf.Run) -> str:
        said = await by_timeout(service, run.step(act, "a"))
        lives.append(said)
        if len(lives) == 1 and dies == "after it":
            raise Crashed
        return said

    handle = await carried(stage, acts)
    service.is_slow = False
    await stage.open(acts)
    await stage.settle()

    if effect == "verifiable":
        assert await stage.result(handle) == "found a"
    elif effect == "keyed" and dies == "in the cancel":
        assert await stage.result(handle) == "did a"
    else:
        assert await handle.status() is TaskStatus.NEEDS_REVIEW
    assert service.done["a"] == (2 if effect == "keyed" and dies == "in the cancel" else 1)


# --- effects that fail while they are cancelled


def failing_beside(service: SlowService, stage: Stage, *, goes_on: bool = False, dies: bool = False) -> Any:
    """A program whose effect is performed and raises while it is being cancelled; and which does not come to
    call it again in its next run, because the step beside it fails first."""
    stage.landing_s = 30.0
    lives: list[int] = []

    @hf.tool(effect=hf.opaque)
    async def act(name: str) -> str:
        service.done[name] += 1
        service.begin()
        is_cancelled.set()
        await asyncio.sleep(0)
        raise LookupError("500, after all")

    async def fail() -> None:
        if lives == [1]:
            await is_cancelled.wait()
        raise ValueError("rough sea")

    @hf.task(attempts=2, backoff=0)
    async def acts(run: hf.Run) -> str:
        lives.append(len(lives) + 1)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(run.step(fail))
                group.create_task(call(run))
        except* (ValueError, hf.StepFailed):
            if dies and lives == [1]:
                raise Crashed from None
            if not goes_on:
                raise
        return str(await run.step(note))

    async def call(run: hf.Run) -> None:
        if lives != [1]:
            await asyncio.Event().wait()
        await run.tool(act, {"name": "a"}, id="a")

    async def note() -> str:
        service.seen.append("went on")
        return "went on"

    is_cancelled = asyncio.Event()
    return acts


@pytest.mark.parametrize("goes_on", [True, False])
async def test_a_failure_that_the_program_did_not_come_to_see_is_put_before_a_person(
    stage: Stage, service: SlowService, goes_on: bool
) -> None:
    handle = await carried(stage, failing_beside(service, stage, goes_on=goes_on))

    assert await handle.status() is TaskStatus.NEEDS_REVIEW
    assert statuses(stage, handle) == [EffectStatus.UNKNOWN]
    assert (service.done, service.seen) == ({"a": 1}, [])


async def test_killed_before_that_the_next_life_puts_it_before_a_person(
    stage: Stage, service: SlowService
) -> None:
    task = failing_beside(service, stage, dies=True)
    handle = await carried(stage, task)
    await stage.open(task)
    await stage.settle()

    assert await handle.status() is TaskStatus.NEEDS_REVIEW
    assert statuses(stage, handle) == [EffectStatus.UNKNOWN]
    assert service.done == {"a": 1}
