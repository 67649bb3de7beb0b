"""Effects of programs: intent before, outcome after; what was left open is settled by class or by people."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.effect import Effect
from holdfast.core.events import EventKind
from holdfast.core.transitions import EffectStatus, TaskStatus
from holdfast.engine.client.handles import Handle
from holdfast.engine.program.secrets import Secrets
from holdfast.testing import Crashed
from tests.engine.stage import LEASE, Stage
from tests.engine.tables import execute
from tests.engine.world import World


def sending(world: World, effect: Any, **options: Any) -> Any:
    @hf.tool(effect=effect, **options)
    async def send(text: str) -> str:
        return world.send(text)

    @hf.task(attempts=1)
    async def sends(run: hf.Run) -> str:
        return f"{await run.step(send, 'hello')}!"

    return sends


def effects_of(stage: Stage, handle: Handle[Any]) -> list[Effect]:
    return stage.store.read_now(lambda tx: tx.effects.of_task(handle.id))


def statuses(stage: Stage, handle: Handle[Any]) -> list[EffectStatus]:
    found = sorted(effects_of(stage, handle), key=lambda effect: effect.generation)
    return [effect.status for effect in found]


async def died(stage: Stage, task: Any) -> Handle[Any]:
    """Started, killed, and opened again by a process that has come as far as it can."""
    await stage.open(task)
    handle = await stage.start(task())
    await stage.settle()
    await stage.open(task)
    await stage.settle()
    return handle


# --- by class


@pytest.mark.parametrize("dies", ["before", "after"])
@pytest.mark.parametrize("effect", [hf.read, hf.idempotent])
async def test_what_may_be_repeated_is_repeated(stage: Stage, world: World, effect: Any, dies: str) -> None:
    @hf.tool(effect=effect)
    async def fetch() -> str:
        world.sent["fetch"] += 1
        if world.dies:
            world.dies = None
            raise Crashed
        return "fetched"

    @hf.task
    async def fetches(run: hf.Run) -> str:
        return await run.step(fetch)

    world.dies = dies
    handle = await died(stage, fetches)

    assert await stage.result(handle) == "fetched"
    assert effects_of(stage, handle) == []


@pytest.mark.parametrize("dies", ["before", "after"])
async def test_an_opaque_effect_that_was_cut_short_is_never_repeated_but_put_before_a_person(
    stage: Stage, world: World, dies: str
) -> None:
    world.dies = dies
    handle = await died(stage, sending(world, hf.opaque))
    effect = await stage.review()

    assert await handle.status() is TaskStatus.NEEDS_REVIEW
    assert effect.outcome is not None
    assert b"the process died while it was being done" in effect.outcome
    assert world.sent["hello"] == (1 if dies == "after" else 0)
    (told,) = await stage.events(handle, EventKind.EFFECT_IN_DOUBT)
    assert told.facts["step"] == "send"
    task = await handle.task()
    assert task.waits_on == f"review:{effect.id}"


@pytest.mark.parametrize("dies", ["before", "after"])
async def test_a_verifiable_effect_is_done_once_whatever_happens(
    stage: Stage, world: World, dies: str
) -> None:
    def verify(text: str) -> hf.Happened | hf.DidNotHappen:
        assert hf.idempotency_key() == world.keys[-1]
        assert threading.current_thread() is not threading.main_thread()
        return hf.Happened(f"found {text}") if world.sent[text] else hf.DidNotHappen()

    world.dies = dies
    handle = await died(stage, sending(world, hf.verifiable(verify)))

    assert world.sent["hello"] == 1
    assert await stage.result(handle) == ("found hello!" if dies == "after" else "sent hello!")
    wanted = [EffectStatus.CONFIRMED] if dies == "after" else [EffectStatus.FAILED, EffectStatus.DONE]
    assert statuses(stage, handle) == wanted


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (hf.Unknown("the archive is away"), b"verify says: the archive is away"),
        (hf.Unknown("sent password=hunter2!"), b"verify says: sent password=[redacted:assignment]"),
        (ConnectionError("no route"), b"verify says: verify failed: no route"),
        ("yes", b"verify says: verify answered str, not Happened, DidNotHappen or Unknown"),
    ],
)
async def test_an_effect_that_cannot_be_verified_is_put_before_a_person(
    stage: Stage, world: World, answer: Any, why: bytes
) -> None:
    async def verify(text: str) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    world.dies = "after"
    handle = await died(stage, sending(world, hf.verifiable(verify)))
    effect = await stage.review()

    assert await handle.status() is TaskStatus.NEEDS_REVIEW
    assert effect.outcome is not None
    assert why in effect.outcome


async def test_a_keyed_effect_is_repeated_with_the_same_key_inside_its_window(
    stage: Stage, world: World
) -> None:
    world.dies = "after"
    handle = await died(stage, sending(world, hf.keyed("24h")))

    assert await stage.result(handle) == "sent hello!"
    assert len(world.keys) == 2
    assert len(set(world.keys)) == 1
    assert statuses(stage, handle) == [EffectStatus.DONE]


async def test_a_keyed_effect_whose_window_has_passed_is_put_before_a_person(
    stage: Stage, world: World
) -> None:
    world.dies = "after"
    task = sending(world, hf.keyed("24h"))
    await stage.open(task)
    handle = await stage.start(task())
    await stage.settle()
    await stage.pass_time(hours=24)
    await stage.open(task)
    await stage.settle()
    effect = await stage.review()

    assert await handle.status() is TaskStatus.NEEDS_REVIEW
    assert effect.outcome is not None
    assert b"the provider's window of 1 day, 0:00:00 has passed" in effect.outcome
    assert len(world.keys) == 1


async def test_a_keyed_effect_whose_answer_is_lost_is_asked_for_again_patiently(
    stage: Stage, world: World
) -> None:
    world.raises = [ConnectionError("reset"), TimeoutError("slow"), ConnectionError("reset")]
    task = sending(world, hf.keyed("24h"))
    await stage.open(task)
    began_at = stage.clock.now()

    assert await stage.run(task()) == "sent hello!"
    assert len(set(world.keys)) == 1
    assert timedelta(0) < stage.clock.now() - began_at < timedelta(minutes=1)


# --- failures


async def test_a_definite_failure_is_remembered_and_not_repeated(stage: Stage, world: World) -> None:
    world.raises = [ValueError("no such address")]
    task = sending(world, hf.opaque(did_not_happen=ValueError))
    await stage.open(task)
    handle = await stage.start(task())
    await stage.settle()

    assert await handle.status() is TaskStatus.FAILED
    assert statuses(stage, handle) == [EffectStatus.FAILED]
    assert len(world.keys) == 1


async def test_a_definite_failure_is_tried_again_with_a_new_key_as_often_as_it_may(
    stage: Stage, world: World
) -> None:
    world.raises = [ValueError("busy"), ValueError("busy")]
    task = sending(world, hf.opaque(did_not_happen=ValueError), retry=hf.retry(2, backoff="1h", most="1h"))
    await stage.open(task)

    assert await stage.run(task()) == "sent hello!"
    assert len(set(world.keys)) == 3


async def test_a_provider_that_limits_an_effect_is_waited_for(stage: Stage, world: World) -> None:
    world.raises = [hf.RetryAfter(3600), hf.RetryAfter(3600)]
    task = sending(world, hf.opaque)
    await stage.open(task)
    began_at = stage.clock.now()

    assert await stage.run(task()) == "sent hello!"
    assert stage.clock.now() - began_at == timedelta(hours=2)


async def test_an_effect_that_takes_too_long_is_in_doubt_and_not_failed(stage: Stage, world: World) -> None:
    @hf.tool(effect=hf.opaque, timeout="10ms")
    async def hang() -> None:
        await asyncio.Event().wait()

    @hf.task
    async def hangs(run: hf.Run) -> None:
        await run.step(hang)

    await stage.open(hangs)
    handle = await stage.start(hangs())
    await stage.settle()

    assert await handle.status() is TaskStatus.NEEDS_REVIEW
    assert statuses(stage, handle) == [EffectStatus.UNKNOWN]


async def test_a_verifiable_effect_that_timed_out_and_did_not_happen_counts_as_an_attempt(
    stage: Stage, world: World
) -> None:
    world.raises = [TimeoutError("slow")] * 3

    def verify(text: str) -> hf.DidNotHappen:
        return hf.DidNotHappen()

    task = sending(world, hf.verifiable(verify), retry=hf.retry(2, backoff=0))
    await stage.open(task)
    handle = await stage.start(task())
    await stage.settle()

    assert await handle.status() is TaskStatus.FAILED
    assert len(world.keys) == 3


def did_not_happen(text: str) -> hf.DidNotHappen:
    return hf.DidNotHappen()


async def test_attempts_that_did_not_happen_are_counted_through_every_life(
    stage: Stage, world: World
) -> None:
    world.raises = [ConnectionError("reset")] * 10
    task = sending(world, hf.verifiable(did_not_happen), retry=hf.retry(3, backoff="1h", most="1h"))
    await stage.open(task)
    handle = await stage.start(task())
    for _ in range(10):
        await stage.settle()
        if (await handle.task()).has_ended:
            break
        await stage.open(task)  # killed while it waits for its next attempt
        await stage.pass_time()

    assert await handle.status() is TaskStatus.FAILED
    assert len(world.keys) == 4
    assert len(set(world.keys)) == 4


async def test_without_a_retry_of_its_own_the_attempts_of_the_task_are_the_limit(
    stage: Stage, world: World
) -> None:
    world.raises = [TimeoutError("slow")] * 10

    @hf.tool(effect=hf.verifiable(did_not_happen))
    async def send(text: str) -> str:
        return world.send(text)

    @hf.task(attempts=3)
    async def sends(run: hf.Run) -> str:
        return await run.step(send, "hello")

    await stage.open(sends)
    with pytest.raises(hf.TaskFailed):
        await stage.run(sends())

    assert len(world.keys) == 3


async def test_an_effect_that_kills_its_process_every_time_is_given_up_although_it_never_happened(
    stage: Stage, world: World
) -> None:
    task = sending(world, hf.verifiable(did_not_happen))
    await stage.open(task)
    handle = await stage.start(task())
    for _ in range(10):
        world.dies = "before"
        await stage.settle()
        await stage.open(task)

    assert await handle.status() is TaskStatus.FAILED
    assert len(world.keys) == 3


# --- what a person decides


@pytest.mark.parametrize(
    ("decision", "result", "sent"),
    [("done", "by hand!", 0), ("retry", "sent hello!", 1), ("skip", "None!", 0)],
)
async def test_a_run_goes_on_as_a_person_decided(
    stage: Stage, world: World, decision: str, result: str, sent: int
) -> None:
    world.dies = "before"
    task = sending(world, hf.opaque)
    handle = await died(stage, task)
    effect = await stage.review()
    given = {"result": "by hand"} if decision == "done" else {}
    await stage.holdfast.resolve(effect.id, decision, **given, by="ada", note="I looked")
    await stage.open(task)
    await stage.settle()

    assert await stage.result(handle) == result
    assert world.sent["hello"] == sent
    assert await stage.holdfast.reviews() == []
    (told,) = await stage.events(handle, EventKind.EFFECT_REVIEWED)
    assert (told.facts["decision"], told.facts["by"]) == (decision, "ada")


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_person_may_have_it_undone_and_then_the_task_fails_without_another_attempt(
    stage: Stage, world: World, is_async: bool
) -> None:
    def undo(text: str) -> None:
        world.undone.append(f"{text} {hf.idempotency_key()}")

    async def undo_async(text: str) -> None:
        undo(text)

    @hf.tool(effect=hf.opaque, compensate=undo_async if is_async else undo)
    async def send(text: str) -> str:
        return world.send(text)

    @hf.task(attempts=5)
    async def sends(run: hf.Run) -> str:
        return await run.step(send, "hello")

    world.dies = "after"
    handle = await died(stage, sends)
    await stage.holdfast.resolve((await stage.review()).id, "compensate", by="ada")
    await stage.settle()
    while await stage.pass_time():
        await stage.settle()

    assert await handle.status() is TaskStatus.FAILED
    assert world.undone == [f"hello {world.keys[0]}-compensation"]
    assert world.sent["hello"] == 1


async def test_a_decision_is_made_once(stage: Stage, world: World) -> None:
    world.dies = "before"
    await died(stage, sending(world, hf.opaque))
    effect = await stage.review()
    await stage.holdfast.resolve(effect.id, "skip", by="ada")

    with pytest.raises(hf.IllegalMove):
        await stage.holdfast.resolve(effect.id, "retry", by="grace")


async def test_an_effect_that_dies_again_after_a_retry_is_put_before_a_person_again(
    stage: Stage, world: World
) -> None:
    task = sending(world, hf.opaque)
    world.dies = "before"
    handle = await died(stage, task)
    await stage.holdfast.resolve((await stage.review()).id, "retry", by="ada")
    world.dies = "before"
    await stage.settle()
    await stage.open(task)
    await stage.settle()
    await stage.holdfast.resolve((await stage.review()).id, "retry", by="ada")
    await stage.settle()

    assert await stage.result(handle) == "sent hello!"
    assert world.sent["hello"] == 1
    assert len(set(world.keys)) == 3


async def test_a_result_of_the_wrong_kind_is_put_before_the_person_again(stage: Stage, world: World) -> None:
    task = sending(world, hf.opaque)
    world.dies = "after"
    handle = await died(stage, task)
    await stage.holdfast.resolve((await stage.review()).id, "done", result=7, by="ada")
    await stage.settle()
    status, effect = await handle.status(), await stage.review()
    await stage.holdfast.resolve(effect.id, "done", result="sent hello", by="ada")
    await stage.settle()

    assert status is TaskStatus.NEEDS_REVIEW
    assert effect.outcome is not None
    assert b"its saved result is no str any more" in effect.outcome
    assert await stage.result(handle) == "sent hello!"


async def test_a_review_stays_open_when_its_task_is_cancelled(stage: Stage, world: World) -> None:
    world.dies = "before"
    handle = await died(stage, sending(world, hf.opaque))
    await handle.cancel("enough")

    assert await handle.status() is TaskStatus.CANCELLED
    assert (await stage.review()).status is EffectStatus.UNKNOWN


# --- beside each other


async def test_an_effect_that_is_parked_lets_those_beside_it_finish_first(stage: Stage, world: World) -> None:
    finished: list[str] = []
    doubt = asyncio.Event()

    @hf.opaque
    async def doubtful(name: str) -> str:
        doubt.set()
        raise TimeoutError(f"{name} is slow")

    @hf.opaque
    async def steady(name: str) -> str:
        await doubt.wait()
        for _ in range(20):
            await asyncio.sleep(0)
        finished.append(name)
        return name

    async def think(name: str) -> str:
        await doubt.wait()
        for _ in range(20):
            await asyncio.sleep(0)
        finished.append(name)
        return name

    @hf.task
    async def together(run: hf.Run) -> list[str]:
        async with asyncio.TaskGroup() as group:
            tools = [
                group.create_task(run.tool(tool, {"name": name}, id=name))
                for tool, name in ((doubtful, "a"), (steady, "b"), (steady, "c"))
            ]
            thought = await run.step(think, "d")
        return [*(tool.result() for tool in tools), thought]

    await stage.open(together)
    handle = await stage.start(together())
    await stage.settle()
    before = sorted(finished)
    await stage.holdfast.resolve((await stage.review()).id, "done", result="a", by="ada")
    await stage.settle()

    assert before == ["b", "c", "d"]
    assert await stage.result(handle) == ["a", "b", "c", "d"]
    assert sorted(finished) == ["b", "c", "d"]


async def test_an_effect_in_flight_is_finished_although_one_beside_it_fails(
    stage: Stage, world: World
) -> None:
    has_begun = asyncio.Event()

    @hf.opaque
    async def send(text: str) -> str:
        has_begun.set()
        for _ in range(20):
            await asyncio.sleep(0)
        return world.send(text)

    @hf.opaque
    async def fail() -> None:
        await has_begun.wait()
        raise hf.NotDone("rough sea")

    @hf.task(attempts=1)
    async def together(run: hf.Run) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(run.tool(send, {"text": "hello"}, id="a"))
            group.create_task(run.tool(fail, id="b"))

    await stage.open(together)
    handle = await stage.start(together())
    await stage.settle()

    assert await handle.status() is TaskStatus.FAILED
    assert world.sent["hello"] == 1
    assert sorted(statuses(stage, handle)) == [EffectStatus.DONE, EffectStatus.FAILED]


async def test_an_intent_is_durable_before_the_function_is_called(stage: Stage, world: World) -> None:
    seen: list[list[EffectStatus]] = []

    @hf.opaque
    async def look() -> None:
        seen.append(statuses(stage, handle))

    @hf.task
    async def looks(run: hf.Run) -> None:
        await run.step(look)

    await stage.open(looks)
    handle = await stage.start(looks())
    await stage.settle()

    assert seen == [[EffectStatus.INTENT]]
    assert statuses(stage, handle) == [EffectStatus.DONE]


async def test_an_effect_is_not_begun_when_the_lease_has_lapsed(stage: Stage, world: World) -> None:
    async def long() -> None:
        stage.clock.advance(days=36_500)

    @hf.opaque
    async def send(text: str) -> str:
        return world.send(text)

    @hf.task
    async def late(run: hf.Run) -> str:
        await run.step(long)
        return await run.step(send, "hello")

    await stage.open(late)
    handle = await stage.start(late())
    await stage.settle()

    assert world.sent == {}
    assert effects_of(stage, handle) == []
    assert await handle.status() is TaskStatus.RUNNING  # until a worker rescues it


async def test_an_effect_of_a_holder_that_may_be_alive_is_settled_later(stage: Stage, world: World) -> None:
    def verify(text: str) -> hf.DidNotHappen:
        return hf.DidNotHappen()

    task = sending(world, hf.verifiable(verify), timeout="1h")
    world.dies = "before"
    await stage.open(task)
    started_at = stage.clock.now()
    handle = await stage.start(task())
    await stage.settle()
    # A boot of another machine: no process here can prove that it is dead.
    execute(stage.store, "UPDATE boots SET host = 'elsewhere/-'")
    await stage.pass_time(seconds=LEASE.total_seconds())
    await stage.open(task)
    await stage.rescue_lapsed()
    await stage.settle()
    waits_on, calls = (await handle.task()).waits_on, len(world.keys)
    await stage.pass_time()
    await stage.settle()

    assert waits_on is not None
    assert (waits_on.startswith("boot:"), calls) == (True, 1)
    # The new process cannot tell whether the clock was set before it began, so it counts from then.
    assert stage.clock.now() - started_at == LEASE + LEASE + timedelta(hours=1)
    assert await stage.result(handle) == "sent hello!"


# --- hosts


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("elsewhere/-", b"it was begun on host elsewhere; only that host can tell whether it happened"),
        (None, b"the ledger no longer knows the host of"),
    ],
)
async def test_a_verify_that_looks_at_this_machine_is_not_asked_about_another(
    stage: Stage, world: World, host: str | None, why: bytes
) -> None:
    asked: list[str] = []

    def verify(text: str) -> hf.DidNotHappen:
        asked.append(text)
        return hf.DidNotHappen()

    world.dies = "after"
    task = sending(world, hf.verifiable(verify, local=True))
    await stage.open(task)
    handle = await stage.start(task())
    await stage.settle()
    # Its own process said that it ended; where it ran is known from its boot only.
    execute(stage.store, "UPDATE boots SET ended_at = 1")
    await stage.open(task)
    if host is None:
        execute(stage.store, "DELETE FROM boots WHERE ended_at IS NOT NULL")
        await stage.settle()
        await stage.pass_time()  # nothing proves its end, so it is waited for
    else:
        execute(stage.store, f"UPDATE boots SET host = '{host}' WHERE ended_at IS NOT NULL")
    await stage.settle()
    effect = await stage.review()

    assert asked == []
    assert await handle.status() is TaskStatus.NEEDS_REVIEW
    assert effect.outcome is not None
    assert why in effect.outcome
    assert world.sent["hello"] == 1


@pytest.mark.parametrize("is_local", [True, False])
async def test_on_the_same_machine_or_for_one_that_asks_the_world_verify_is_asked(
    stage: Stage, world: World, is_local: bool
) -> None:
    def verify(text: str) -> hf.Happened:
        return hf.Happened(f"found {text}")

    world.dies = "after"
    task = sending(world, hf.verifiable(verify, local=is_local))
    await stage.open(task)
    handle = await stage.start(task())
    await stage.settle()
    if not is_local:
        execute(stage.store, "UPDATE boots SET host = 'elsewhere/-', ended_at = 1")
    await stage.open(task)
    await stage.settle()

    assert await stage.result(handle) == "found hello!"


# --- an effect that is done is its own step


async def test_who_finishes_what_an_earlier_life_began_has_got_further(stage: Stage) -> None:
    tried: set[int] = set()

    @hf.keyed(window=timedelta(days=30))
    async def pay(number: int) -> str:
        if number not in tried:
            tried.add(number)
            raise Crashed
        return f"paid {number}"

    @hf.task
    async def pays(run: hf.Run) -> int:
        for number in range(5):
            await run.step(pay, number)
        return 5

    await stage.open(pays)
    handle = await stage.start(pays())
    for life in range(5):
        await stage.settle()
        await stage.open(pays)
        head = stage.store.read_now(lambda tx: tx.journal.heads([handle.id])).get(handle.id)
        assert (head.steps_saved, len(head.written_by)) == (life, life) if head else life == 0
    await stage.settle()

    assert await stage.result(handle) == 5
    runs = stage.store.read_now(lambda tx: tx.runs.of_task(handle.id))
    # The first life has only begun one.
    assert [run.idle_attempts for run in runs] == [0, 1, 0, 0, 0, 0]


async def test_a_turn_that_goes_on_in_another_life_has_its_steps_in_their_order(stage: Stage) -> None:
    lives: list[int] = []

    async def look(number: int) -> int:
        stage.clock.advance(seconds=1)
        return number

    @hf.opaque
    async def zap(number: int) -> int:
        stage.clock.advance(seconds=1)
        return number

    @hf.opaque
    async def act(number: int) -> int:
        stage.clock.advance(seconds=1)
        return number

    @hf.task
    async def agent(run: hf.Run) -> None:
        async for turn in run.turns(max=1):
            await turn.step(zap, 1)
            await turn.step(look, 1)
            await turn.step(act, 1)
            lives.append(run.number)
            if len(lives) == 1:
                raise Crashed

    await stage.open(agent)
    handle = await stage.start(agent())
    await stage.settle()
    await stage.open(agent)
    await stage.settle()

    (turn,) = stage.store.read_now(lambda tx: tx.turns.finished(handle.id))
    assert [step.name for step in turn.steps] == ["zap", "look", "act"]
    assert stage.store.read_now(lambda tx: tx.journal.heads([handle.id]))[handle.id].last_step == "act"


async def test_a_number_that_is_a_secret_is_not_shown(stage: Stage) -> None:
    stage.secrets = Secrets({"PIN": "83920174"})

    async def login(_pin: str) -> str:
        return "ok"

    @hf.opaque
    async def enter(_pin: int) -> str:
        return "in"

    @hf.task
    async def agent(run: hf.Run) -> str:
        await run.step(login, hf.secret("PIN"))
        return await run.step(enter, 83920174)

    await stage.open(agent)
    handle = await stage.start(agent())
    await stage.settle()

    assert await stage.result(handle) == "in"
    (effect,) = stage.store.read_now(lambda tx: tx.effects.of_task(handle.id))
    assert b"83920174" not in effect.request
