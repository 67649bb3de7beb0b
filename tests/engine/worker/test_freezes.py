"""A worker that is frozen around an effect: it begins none after its lease, and settles none too early."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

import holdfast as hf
from holdfast.core.effect import Effect
from holdfast.core.events import EventKind
from holdfast.core.task import Failure
from holdfast.core.transitions import EffectStatus, TaskStatus
from holdfast.engine.client.handles import Handle
from holdfast.store import Store
from holdfast.store.effects import BeginEffect
from holdfast.testing import Crashed, FailingStore, Failpoint, FakeClock, Where
from tests.engine.stage import LEASE, Stage
from tests.engine.tables import execute
from tests.engine.workers import carrying, soon, until
from tests.engine.world import World

TIMEOUT = timedelta(minutes=10)

Freeze = Callable[[], Awaitable[object]]


LEASE_NS = LEASE // timedelta(microseconds=1) * 1000


@pytest.fixture
def other(store: Store, clock: FakeClock, tmp_path: Path) -> Iterator[Stage]:
    """A second worker on the same ledger, on the same machine."""
    other = Stage(store, clock, tmp_path / "boots")
    yield other
    other.kill()


def sending(world: World, effect: Any, *, is_async: bool = True, **options: Any) -> Any:
    async def send(text: str) -> str:
        return world.send(text)

    fn = hf.tool(effect=effect, name="send", **options)(send if is_async else world.send)

    @hf.task(attempts=1)
    async def sends(run: hf.Run) -> str:
        return f"{await run.step(fn, 'hello')}!"

    return sends


def freeze_after_intent(stage: Stage, freeze: Freeze) -> None:
    """Time passes, once, after an intent is durable and before its effect is called."""
    failing: Any = stage._failing
    write = failing.write

    async def freezing(act: Any) -> Any:
        answer = await write(act)
        if isinstance(act, BeginEffect):
            failing.write = write
            await freeze()
        return answer

    failing.write = freezing


def effects_of(stage: Stage, handle: Handle[Any]) -> list[Effect]:
    found = stage.store.read_now(lambda tx: tx.effects.of_task(handle.id))
    return sorted(found, key=lambda effect: effect.generation)


def statuses(stage: Stage, handle: Handle[Any]) -> list[EffectStatus]:
    return [effect.status for effect in effects_of(stage, handle)]


def failure_of(effect: Effect) -> Failure:
    assert effect.outcome is not None
    return msgspec.json.decode(effect.outcome, type=Failure)


# --- between the intent and the call


async def take_nothing(_limit: int) -> list[Any]:
    return []


async def test_an_effect_is_not_begun_when_another_worker_has_settled_its_intent(
    stage: Stage, other: Stage, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = sending(world, hf.verifiable(world.verify))
    await stage.open(task)
    await other.open(task)

    async def settled_elsewhere() -> None:
        monkeypatch.setattr(stage._claims, "take", take_nothing)  # who is frozen takes nothing
        stage.clock.advance(seconds=(LEASE + TIMEOUT).total_seconds())
        await other.rescue_lapsed()
        await other.settle()

    freeze_after_intent(stage, settled_elsewhere)
    handle = await stage.start(task())
    await stage.settle()

    assert world.sent == {"hello": 1}
    assert await other.result(handle) == "sent hello!"
    assert statuses(stage, handle) == [EffectStatus.FAILED, EffectStatus.DONE]


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("effect", [hf.opaque, hf.keyed("24h"), "verifiable"])
async def test_an_intent_is_taken_back_when_the_lease_lapsed_before_the_call(
    stage: Stage, world: World, effect: Any, is_async: bool
) -> None:
    effect = hf.verifiable(world.verify) if effect == "verifiable" else effect
    task = sending(world, effect, is_async=is_async)
    await stage.open(task)

    async def lapse() -> None:
        stage.clock.advance(seconds=LEASE.total_seconds())

    freeze_after_intent(stage, lapse)
    handle = await stage.start(task())
    await stage.settle()
    (before,) = effects_of(stage, handle)
    sent_before = dict(world.sent)
    await stage.rescue_lapsed()
    await stage.settle()

    assert sent_before == {}
    assert (before.status, failure_of(before).kind) == (EffectStatus.FAILED, "not_begun")
    assert await stage.result(handle) == "sent hello!"
    assert statuses(stage, handle) == [EffectStatus.FAILED, EffectStatus.DONE]


@pytest.fixture
def steady(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Lets so many nanoseconds pass for leases, and none for the wall clock."""
    now = 0

    def advance(nanos: int) -> None:
        nonlocal now
        now += nanos

    monkeypatch.setattr(stage.clock, "steady_ns", lambda: now, raising=False)
    return advance


async def test_a_clock_that_was_set_back_does_not_hide_a_freeze(
    stage: Stage, world: World, steady: Callable[[int], None]
) -> None:
    async def freeze_unseen_by_the_wall_clock() -> None:
        steady(LEASE_NS)

    task = sending(world, hf.opaque)
    await stage.open(task)
    freeze_after_intent(stage, freeze_unseen_by_the_wall_clock)
    handle = await stage.start(task())
    await stage.settle()

    assert world.sent == {}
    assert statuses(stage, handle) == [EffectStatus.FAILED]


async def test_a_clock_that_was_set_forward_does_not_settle_the_effect_of_a_frozen_worker_early(
    stage: Stage,
    other: Stage,
    world: World,
    steady: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The worker is frozen inside the call: when it wakes, it sends. No person may be asked before that."""
    at_the_freeze: list[list[EffectStatus]] = []

    @hf.tool(effect=hf.opaque, name="send")
    async def send(text: str) -> str:
        monkeypatch.setattr(stage._claims, "take", take_nothing)  # who is frozen takes nothing
        steady(LEASE_NS)
        stage.clock.jump(seconds=(LEASE + TIMEOUT).total_seconds())
        await other.rescue_lapsed()
        await other.settle()
        at_the_freeze.append(statuses(other, handle))
        return world.send(text)

    @hf.task(attempts=1)
    async def sends(run: hf.Run) -> str:
        return str(await run.step(send, "hello"))

    await stage.open(sends)
    await other.open(sends)
    handle = await stage.start(sends())
    await stage.settle()
    steady(LEASE_NS + TIMEOUT // timedelta(microseconds=1) * 1000)
    stage.clock.advance(seconds=(LEASE + TIMEOUT).total_seconds())
    await other.settle()

    assert at_the_freeze == [[EffectStatus.INTENT]]
    assert world.sent == {"hello": 1}
    assert statuses(other, handle) == [EffectStatus.UNKNOWN]


async def test_a_function_whose_thread_begins_late_is_not_called(
    stage: Stage, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = sending(world, hf.opaque, is_async=False)
    await stage.open(task)
    submit = stage._threads.submit

    def submit_late(fn: Callable[..., Any], *args: Any) -> Future[Any]:
        def late() -> Any:
            stage.clock.advance(seconds=LEASE.total_seconds())
            return fn(*args)

        return submit(late)

    monkeypatch.setattr(stage._threads, "submit", submit_late)
    handle = await stage.start(task())
    await stage.settle()

    assert world.sent == {}
    assert statuses(stage, handle) == [EffectStatus.FAILED]


async def test_a_call_with_the_same_key_is_not_repeated_after_the_lease(
    stage: Stage, world: World, steady: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    task = sending(world, hf.keyed("24h"))
    world.dies = "before"
    await stage.open(task)
    handle = await stage.start(task())
    await stage.settle()
    await stage.open(task)
    read = stage._failing.read

    async def read_then_freeze(act: Any) -> Any:
        answer = await read(act)
        steady(LEASE_NS)
        return answer

    # The last thing before the call: who began it, and is it dead?
    monkeypatch.setattr(stage._failing, "read", read_then_freeze)
    await stage.settle()

    assert world.sent == {}
    assert statuses(stage, handle) == [EffectStatus.INTENT]  # an earlier call may have happened


async def test_a_compensation_is_not_begun_after_the_lease(stage: Stage, world: World) -> None:
    undone: list[str] = []
    is_frozen = False

    async def undo(text: str) -> None:
        undone.append(text)

    @hf.tool(effect=hf.opaque, compensate=undo)
    async def send(text: str) -> str:
        return world.send(text)

    @hf.task(attempts=1)
    async def sends(run: hf.Run) -> str:
        if is_frozen:
            stage.clock.advance(seconds=LEASE.total_seconds())
        return str(await run.step(send, "hello"))

    world.dies = "before"
    await stage.open(sends)
    await stage.start(sends())
    await stage.settle()
    await stage.open(sends)
    await stage.settle()
    await stage.holdfast.resolve((await stage.review()).id, "compensate", by="ada")
    is_frozen = True
    await stage.settle()
    before = list(undone)
    is_frozen = False
    await stage.rescue_lapsed()
    await stage.settle()

    assert before == []
    assert undone == ["hello"]


async def test_no_effect_is_begun_after_the_lease_in_a_cleanup_either(stage: Stage, world: World) -> None:
    @hf.opaque
    async def send(text: str) -> str:
        return world.send(text)

    @hf.task(attempts=1)
    async def sends(run: hf.Run) -> None:
        stage.tell_to_drain()
        stage.clock.advance(seconds=LEASE.total_seconds())
        async with run.cleanup():
            await run.step(send, "goodbye")

    await stage.open(sends)
    handle = await stage.start(sends())
    await stage.settle()

    assert world.sent == {}
    assert effects_of(stage, handle) == []


# --- the timeout, counted from the intent


async def test_what_passed_since_the_intent_is_taken_from_the_timeout_of_the_call(
    stage: Stage, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[float | None] = []
    timeout = asyncio.timeout

    def noting(delay: float | None) -> asyncio.Timeout:
        limits.append(delay)
        return timeout(delay)

    task = sending(world, hf.opaque, timeout="30s")
    await stage.open(task)

    async def pass_20_s() -> None:
        stage.clock.advance(seconds=20)
        monkeypatch.setattr(asyncio, "timeout", noting)

    freeze_after_intent(stage, pass_20_s)
    handle = await stage.start(task())
    await stage.settle()
    monkeypatch.undo()

    assert limits[0] == 10.0
    assert await stage.result(handle) == "sent hello!"


async def test_an_effect_whose_timeout_was_over_before_the_call_has_failed_and_did_not_happen(
    stage: Stage, world: World
) -> None:
    task = sending(world, hf.opaque, timeout="30s")
    await stage.open(task)

    async def pass_30_s() -> None:
        stage.clock.advance(seconds=30)

    freeze_after_intent(stage, pass_30_s)
    handle = await stage.start(task())
    await stage.settle()

    assert world.sent == {}
    assert statuses(stage, handle) == [EffectStatus.FAILED]
    with pytest.raises(hf.TaskFailed, match="no time was left"):
        await stage.result(handle)


async def test_an_effect_that_began_too_late_is_tried_again_if_it_may_be(stage: Stage, world: World) -> None:
    task = sending(world, hf.opaque(did_not_happen=ValueError), timeout="30s", retry=hf.retry(1))
    await stage.open(task)

    async def pass_30_s() -> None:
        stage.clock.advance(seconds=30)

    freeze_after_intent(stage, pass_30_s)
    handle = await stage.start(task())
    await stage.settle()

    assert await stage.result(handle) == "sent hello!"
    assert statuses(stage, handle) == [EffectStatus.FAILED, EffectStatus.DONE]
    assert world.sent == {"hello": 1}


# --- in the middle of the call


async def test_a_worker_that_claims_its_own_lost_run_again_waits_for_its_own_call(
    stage: Stage, world: World
) -> None:
    door, has_begun = asyncio.Event(), asyncio.Event()
    asked: list[bool] = []

    def verify(text: str) -> hf.Happened | hf.DidNotHappen:
        asked.append(door.is_set())
        return world.verify(text)

    @hf.verifiable(verify)
    async def send(text: str) -> str:
        has_begun.set()
        await door.wait()
        return world.send(text)

    @hf.task(attempts=1)
    async def sends(run: hf.Run) -> str:
        return str(await run.step(send, "hello"))

    await stage.open(sends)
    async with stage.carrying(sends()) as handle:
        await has_begun.wait()
        stage.clock.advance(seconds=LEASE.total_seconds())
        await stage.rescue_lapsed()
        await stage.until(lambda: len(stage.executions) == 2)
        for _ in range(100):
            await asyncio.sleep(0)
        door.set()

    assert asked == [True]
    assert world.sent == {"hello": 1}
    assert await stage.result(handle) == "found hello"
    assert len(await stage.events(handle, EventKind.EFFECT_SEEN_LATE)) == 1


async def test_a_process_whose_thread_still_does_an_effect_is_not_noted_as_ended(
    store: Store, clock: FakeClock
) -> None:
    loop, has_begun, door = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    @hf.opaque
    def send() -> None:
        loop.call_soon_threadsafe(has_begun.set)
        door.wait()

    @hf.task
    async def sends(run: hf.Run) -> None:
        await run.step(send)

    async with carrying(store, clock, sends, grace=0.05, drain_timeout=0.05) as process:
        await process.holdfast.start(sends())
        await soon(has_begun.wait())
    before = store.read_now(lambda tx: tx.boots.get(process.life.id))
    door.set()
    await until(lambda: not process.life.is_at_work())
    await process.life.end()

    after = store.read_now(lambda tx: tx.boots.get(process.life.id))
    assert before is not None
    assert before.ended_at is None
    assert after is not None
    assert after.ended_at is not None


# --- who waits until a holder has surely finished


@pytest.fixture
def elsewhere(stage: Stage) -> Callable[[], None]:
    """From now on no process here can prove by a lock that the boots so far are dead."""

    def move() -> None:
        execute(stage.store, "UPDATE boots SET host = 'elsewhere/-' WHERE ended_at IS NULL")

    return move


async def waiting_for_holder(
    stage: Stage, other: Stage, world: World, elsewhere: Callable[[], None]
) -> Handle[Any]:
    """An effect was begun by the stage, which may be alive; the other one waits until it has surely ended."""
    task = sending(world, hf.verifiable(world.verify), timeout="1h")
    world.dies = "before"
    await stage.open(task)
    handle = await stage.start(task())
    life = stage._life
    await stage.settle()
    elsewhere()
    stage._life = life  # it is not dead, only frozen; its lock stays free
    stage.clock.advance(seconds=LEASE.total_seconds())
    await other.open(task)
    await other.rescue_lapsed()
    await other.settle()
    return handle


async def test_when_the_holder_ends_cleanly_its_effects_are_settled_at_once(
    stage: Stage, other: Stage, world: World, elsewhere: Callable[[], None]
) -> None:
    handle = await waiting_for_holder(stage, other, world, elsewhere)
    life = stage._life
    assert life is not None
    waits_on = (await handle.task()).waits_on
    at = stage.clock.now()
    await life.end()
    await other.settle()

    assert waits_on == f"boot:{life.id}"
    assert await other.result(handle) == "sent hello!"
    assert stage.clock.now() == at


async def test_when_the_death_of_the_holder_is_proved_elsewhere_its_effects_are_settled_at_once(
    stage: Stage, other: Stage, world: World, elsewhere: Callable[[], None]
) -> None:
    handle = await waiting_for_holder(stage, other, world, elsewhere)
    assert stage._life is not None
    dead = stage._life.boot
    witness = Stage(stage.store, stage.clock, stage._locks)
    await witness.open()
    assert witness._life is not None
    await witness._life.bury(dead)
    witness.kill()
    await other.settle()

    assert await other.result(handle) == "sent hello!"


async def test_an_end_that_was_noted_between_the_look_and_the_wait_is_not_missed(
    stage: Stage,
    other: Stage,
    world: World,
    elsewhere: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = sending(world, hf.verifiable(world.verify), timeout="1h")
    world.dies = "before"
    await stage.open(task)
    handle = await stage.start(task())
    life = stage._life
    assert life is not None
    await stage.settle()
    elsewhere()
    stage.clock.advance(seconds=LEASE.total_seconds())
    await other.open(task)
    await other.rescue_lapsed()
    read = other._failing.read

    async def read_then_end(act: Any) -> Any:
        answer = await read(act)
        await life.end()
        return answer

    monkeypatch.setattr(other._failing, "read", read_then_end)
    await other.settle()

    assert await other.result(handle) == "sent hello!"


@pytest.mark.parametrize("where", ["before", "after"])
async def test_a_holder_that_dies_while_its_end_is_noted_leaves_no_caller_waiting(
    stage: Stage, other: Stage, world: World, elsewhere: Callable[[], None], where: Where
) -> None:
    handle = await waiting_for_holder(stage, other, world, elsewhere)
    life = stage._life
    assert life is not None
    life._store = FailingStore(stage.store, [Failpoint(call=1, where=where)])
    with pytest.raises(Crashed):
        await life.end()
    await other.settle()
    before = await handle.status()
    stage.kill()
    stage._life = None
    witness = Stage(stage.store, stage.clock, stage._locks)
    await witness.open()
    assert witness._life is not None
    await witness._life.bury(life.boot)
    witness.kill()
    await other.settle()

    assert before is (TaskStatus.WAITING if where == "before" else TaskStatus.SUCCEEDED)
    assert await other.result(handle) == "sent hello!"
    assert world.sent == {"hello": 1}


async def test_an_end_wakes_no_caller_that_waits_for_something_else(
    stage: Stage, other: Stage, world: World
) -> None:
    @hf.task
    async def sleeps(run: hf.Run) -> None:
        await run.sleep("1d")

    await stage.open(sleeps)
    await other.open()
    handle = await stage.start(sleeps())
    await stage.settle()
    assert other._life is not None
    await other._life.end()
    await stage.settle()

    assert await handle.status() is TaskStatus.WAITING


async def test_a_boot_that_is_unknown_is_waited_for_like_one_that_may_be_alive(
    stage: Stage, other: Stage, world: World, elsewhere: Callable[[], None]
) -> None:
    task = sending(world, hf.verifiable(world.verify), timeout="1h")
    world.dies = "before"
    await stage.open(task)
    await other.open(task)
    started_at = stage.clock.now()
    handle = await stage.start(task())
    await stage.settle()
    execute(stage.store, "DELETE FROM boots")
    stage.clock.advance(seconds=LEASE.total_seconds())
    await other.rescue_lapsed()
    await other.settle()
    before = (await handle.task()).status
    await other.pass_time()
    await other.settle()

    assert before is TaskStatus.WAITING
    assert other.clock.now() - started_at == LEASE + timedelta(hours=1)
    assert await other.result(handle) == "sent hello!"
