"""Commands that a dead process left running end with their cancelled tasks, and leave no review."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

import holdfast as hf
from holdfast.core.effect import Effect, EffectClass, EffectRequest
from holdfast.core.run import RunOutcome
from holdfast.core.transitions import EffectStatus, RunStatus, TaskStatus
from holdfast.engine.claims.boots import Life
from holdfast.engine.ledger.ledger import cancelling, doubt_effects, end_task
from holdfast.store import Store
from holdfast.testing import FakeClock
from holdfast.tools import shell
from holdfast.tools.command_cancel import CommandEnder
from holdfast.tools.command_end import end_command
from holdfast.tools.errors import CommandCutShort
from tests.builders import FAILURE, a_run, a_task, an_effect, put
from tests.engine.workers import carrying, soon, until
from tests.tools.keyed_calls import KEY, call


@contextlib.asynccontextmanager
async def running(receipts: Path) -> AsyncIterator[asyncio.Task[object]]:
    """A command under KEY that does not end by itself."""
    begun = receipts.parent / "begun"
    command = f"touch {begun}; exec sleep 60"
    async with asyncio.TaskGroup() as group:
        child = group.create_task(_cut_short(command, receipts))
        await until(lambda: begun.exists() and b"command" in (receipts / f"{KEY}.started").read_bytes())
        yield child
        child.cancel()


async def _cut_short(command: str, receipts: Path) -> object:
    try:
        return await call(shell, KEY, command, receipts=str(receipts))
    except CommandCutShort as error:
        return error


def noted(store: Store, life: Life, task_status: TaskStatus, status: EffectStatus) -> Effect:
    task = a_task(status=task_status)
    run = a_run(task, status=RunStatus.CANCELLED if task.has_ended else RunStatus.PAUSED_FOR_RESTART)
    request = msgspec.json.encode(EffectRequest(boot=life.id, input_digest="", shown="", returns=""))
    effect = an_effect(
        task_id=task.id,
        run_id=run.id,
        effect_class=EffectClass.VERIFIABLE,
        status=status,
        idempotency_key=KEY,
        request=request,
    )
    store.write_now(lambda tx: put(tx, task, run))
    store.write_now(lambda tx: tx.effects.create(effect))
    return effect


@pytest.fixture
def place(quick_path: Path) -> Path:
    (quick_path / "home").mkdir()
    return quick_path / "home" / "receipts"


async def lives(store: Store, clock: FakeClock, place: Path) -> tuple[Life, Life]:
    """One that is over, and one that came after it."""
    locks = place.parent / "boots"
    before = await Life.begin(store, clock, locks=locks)
    await before.end()
    return before, await Life.begin(store, clock, locks=locks)


async def test_the_command_of_a_cancelled_task_is_ended_and_its_review_is_gone(
    store: Store, clock: FakeClock, place: Path
) -> None:
    dead, life = await lives(store, clock, place)
    effect = noted(store, dead, TaskStatus.NEEDS_REVIEW, EffectStatus.UNKNOWN)
    ender = CommandEnder(store, clock, life, [place])
    async with running(place) as child:
        assert await ender.run_once() == 0  # no caller has cancelled it
        store.write_now(cancelling(effect.task_id, owner=None, reason="enough", now=clock.now()))
        assert len(store.read_now(lambda tx: tx.effects.reviews())) == 1

        assert await ender.run_once() == 1

        assert isinstance(await soon(child), CommandCutShort)
    found = store.read_now(lambda tx: tx.effects.get(effect.id))
    assert (found.status, store.read_now(lambda tx: tx.effects.reviews())) == (EffectStatus.FAILED, [])
    assert b"its task was cancelled" in (found.outcome or b"")
    assert await ender.run_once() == 0


async def test_a_life_that_died_after_it_ended_a_command_leaves_the_rest_to_the_next(
    store: Store, clock: FakeClock, place: Path
) -> None:
    dead, life = await lives(store, clock, place)
    effect = noted(store, dead, TaskStatus.NEEDS_REVIEW, EffectStatus.UNKNOWN)
    store.write_now(cancelling(effect.task_id, owner=None, reason="enough", now=clock.now()))
    async with running(place):
        assert await asyncio.to_thread(end_command, place, KEY)
    assert len(store.read_now(lambda tx: tx.effects.reviews())) == 1

    await CommandEnder(store, clock, life, [place]).run_once()

    assert store.read_now(lambda tx: tx.effects.reviews()) == []


async def test_a_living_process_ends_its_own_commands(store: Store, clock: FakeClock, place: Path) -> None:
    _, life = await lives(store, clock, place)
    other = await Life.begin(store, clock, locks=place.parent / "boots")
    effect = noted(store, other, TaskStatus.NEEDS_REVIEW, EffectStatus.UNKNOWN)
    store.write_now(cancelling(effect.task_id, owner=None, reason="enough", now=clock.now()))
    async with running(place) as child:
        assert await CommandEnder(store, clock, life, [place]).run_once() == 0
        assert not child.done()
    await other.end()


async def test_a_task_that_is_still_carried_settles_its_effect_itself(
    store: Store, clock: FakeClock, place: Path
) -> None:
    dead, life = await lives(store, clock, place)
    effect = noted(store, dead, TaskStatus.RUNNING, EffectStatus.INTENT)
    now = clock.now()
    store.write_now(lambda tx: tx.tasks.request_cancel(effect.task_id, "enough", now=now))
    ender = CommandEnder(store, clock, life, [place])
    async with running(place):
        assert await ender.run_once() == 1
    assert store.read_now(lambda tx: tx.effects.again(effect)).status is EffectStatus.INTENT
    # Its run ended without it, and left it in doubt.
    run = store.read_now(lambda tx: tx.runs.get(effect.run_id))
    outcome = RunOutcome(status=RunStatus.CANCELLED, failure=FAILURE)
    store.write_now(lambda tx: end_task(tx, run, outcome, now=now, retention=timedelta(days=1)))
    store.write_now(lambda tx: doubt_effects(tx, effect.task_id, now=now))
    assert len(store.read_now(lambda tx: tx.effects.reviews())) == 1

    await ender.run_once()

    assert store.read_now(lambda tx: tx.effects.again(effect)).status is EffectStatus.FAILED


async def test_a_command_that_is_ended_with_its_cancelled_task_leaves_no_review(
    store: Store, clock: FakeClock, place: Path
) -> None:
    begun = place.parent / "begun"

    @hf.task(name="runs")
    async def runs(run: hf.Run) -> None:
        await run.step(shell, f"touch {begun}; exec sleep 60", receipts=str(place))

    async with carrying(store, clock, runs, grace=0.1, drain_timeout=0.1) as process:
        handle = await process.holdfast.start(runs())
        await until(begun.exists)
        await handle.cancel("enough")
        await until(lambda: store.read_now(lambda tx: tx.tasks.look(handle.id)).has_ended)

    (effect,) = store.read_now(lambda tx: tx.effects.newest_of_task(handle.id, limit=9))
    assert (await handle.status(), effect.status) == (TaskStatus.CANCELLED, EffectStatus.FAILED)
    assert store.read_now(lambda tx: tx.effects.reviews()) == []
