"""A ledger that is away when an effect is done: the living process keeps what it knows, and writes it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast import app
from holdfast.core.checkpoint import ResumeReason
from holdfast.core.clock import SystemClock
from holdfast.core.effect import Effect
from holdfast.core.errors import CheckpointNotSaved
from holdfast.core.events import Event, EventKind
from holdfast.core.transitions import EffectStatus, TaskStatus
from holdfast.engine.program import live_run
from holdfast.engine.recovery.checkpoints import Checkpoints
from holdfast.store import Store, write_groups
from holdfast.testing import FakeClock
from tests.engine.workers import Process, WatchedStore, carrying, soon, until
from tests.servers import PostgresServer


@pytest.fixture(autouse=True)
def _soon_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_run, "KEEP_EVERY_S", 0.02)


class OutageOnSend:
    """What was sent to it, and a ledger that goes away at the moment in which something is."""

    def __init__(self, store: Store) -> None:
        self.ledger = WatchedStore(store)
        self.sent: list[str] = []
        self.raises: Exception | None = None

    async def send(self, text: str) -> str:
        self.sent.append(text)
        self.ledger.is_away = True
        if self.raises is not None:
            raise self.raises
        return f"sent {text}"

    def task(self, effect: Any) -> hf.TaskDefinition[..., str]:
        tool = effect(self.send)

        @hf.task(name="sends", attempts=1)
        async def sends(run: hf.Run) -> str:
            try:
                return await run.step(tool, "hello")
            except hf.StepFailed as failed:
                return f"failed: {failed.message}"

        return sends

    async def until_kept(self) -> None:
        """The worker has tried to write it, and could not."""
        before = self.ledger.refusals
        await until(lambda: self.ledger.refusals > before + 3)

    @property
    def effects(self) -> list[Effect]:
        (task,) = self.ledger.inner.read_now(lambda tx: tx.tasks.page())
        return self.ledger.inner.read_now(lambda tx: tx.effects.newest_of_task(task.id, limit=9))


def _verify(text: str) -> hf.Unknown:
    return hf.Unknown(f"no service can tell about {text}")


KINDS = {"opaque": hf.opaque, "keyed": hf.keyed("1h"), "verifiable": hf.verifiable(_verify)}


@pytest.mark.parametrize("kind", KINDS)
async def test_what_came_of_an_effect_is_written_when_the_ledger_is_back(
    store: Store, clock: FakeClock, kind: str
) -> None:
    outage = OutageOnSend(store)
    task = outage.task(KINDS[kind])
    async with carrying(outage.ledger, clock, task) as process:
        handle = await process.holdfast.start(task())
        await until(lambda: bool(outage.sent))
        await outage.until_kept()
        (effect,) = outage.effects
        assert effect.status is EffectStatus.INTENT
        outage.ledger.is_away = False

        assert await soon(handle.result()) == "sent hello"
        runs = await process.runs(handle.id)
    assert (outage.sent, len(runs)) == (["hello"], 1)
    assert store.read_now(lambda tx: tx.effects.reviews()) == []


async def test_what_an_effect_raised_is_written_when_the_ledger_is_back(
    store: Store, clock: FakeClock
) -> None:
    outage = OutageOnSend(store)
    outage.raises = ValueError("no such address")
    task = outage.task(hf.opaque)
    async with carrying(outage.ledger, clock, task) as process:
        handle = await process.holdfast.start(task())
        await until(lambda: bool(outage.sent))
        await outage.until_kept()
        outage.ledger.is_away = False

        assert await soon(handle.result()) == "failed: no such address"
    assert outage.sent == ["hello"]


async def test_what_is_known_when_the_claim_is_lost_meanwhile_is_kept_as_evidence(
    store: Store, clock: FakeClock
) -> None:
    outage = OutageOnSend(store)
    task = outage.task(hf.opaque)
    async with carrying(outage.ledger, clock, task) as process:
        handle = await process.holdfast.start(task())
        await until(lambda: bool(outage.sent))
        await outage.until_kept()
        # As another worker does that takes the run over.
        claims = process.worker.claims_in_flight()
        await Checkpoints(store, clock).pause(claims, ResumeReason.CRASH)
        outage.ledger.is_away = False

        await until(lambda: bool(seen_late(store)))
    (seen,) = seen_late(store)
    assert (seen.task_id, seen.facts["outcome"], outage.sent) == (handle.id, "done", ["hello"])


async def test_a_drain_does_not_wait_for_what_cannot_be_written_and_says_so(
    store: Store, clock: FakeClock
) -> None:
    outage = OutageOnSend(store)
    task = outage.task(hf.opaque)
    # Longer than the test has patience.
    async with carrying(outage.ledger, clock, task, drain_timeout=600.0) as process:
        handle = await process.holdfast.start(task())
        await until(lambda: bool(outage.sent))
        await outage.until_kept()
        process.worker.stop(may_go_on=True)

        problem = await soon(process.worker.until_decided())

        assert isinstance(problem, CheckpointNotSaved)
        assert "it is away, says the test" in str(problem)
        outage.ledger.is_away = False
        assert await soon(handle.result()) == "sent hello"
    assert outage.sent == ["hello"]


async def test_what_cannot_be_written_for_too_long_is_settled_as_after_a_crash(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_run, "KEPT_FOR_S", 0.05)
    outage = OutageOnSend(store)
    task = outage.task(hf.opaque)
    async with carrying(outage.ledger, clock, task) as process:
        handle = await process.holdfast.start(task())
        await until(lambda: bool(outage.sent) and bool(process.worker._in_flight.left_over))
        outage.ledger.is_away = False

        await until(lambda: status_of(store, handle.id) is TaskStatus.NEEDS_REVIEW)
    assert outage.sent == ["hello"]


async def test_a_process_that_ends_while_it_keeps_something_leaves_it_to_a_review(
    store: Store, clock: FakeClock
) -> None:
    outage = OutageOnSend(store)
    task = outage.task(hf.opaque)
    lives: list[Process] = []

    async def end_while_it_is_kept() -> None:
        async with carrying(outage.ledger, clock, task) as process:
            lives.append(process)
            await process.holdfast.start(task())
            await until(lambda: bool(outage.sent))
            await outage.until_kept()
            process.worker.hurry()
            await soon(process.worker.has_ended.wait())

    with pytest.raises(CheckpointNotSaved):
        await end_while_it_is_kept()
    outage.ledger.is_away = False
    await lives[0].life.end()

    async with carrying(store, clock, task):
        await until(lambda: bool(store.read_now(lambda tx: tx.effects.reviews())))
    assert outage.sent == ["hello"]


@pytest.mark.slow
async def test_what_came_of_an_effect_outlasts_a_server_that_is_stopped_and_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        write_groups, "RETRY_FOR_S", 0.1
    )  # how long the store itself tries before it gives up
    clock, sent = SystemClock(), []
    with PostgresServer.start(tmp_path) as server:
        store = app.open_store(server.create_database(), clock=clock)

        @hf.opaque
        async def send(text: str) -> str:
            sent.append(text)
            await asyncio.to_thread(server.stop)
            return f"sent {text}"

        @hf.task(name="sends")
        async def sends(run: hf.Run) -> str:
            return await run.step(send, "hello")

        try:
            async with carrying(store, clock, sends) as process:
                handle = await process.holdfast.start(sends())
                await until(lambda: any(one.live.unwritten for one in process.worker._in_flight.all_runs()))
                server.start_again()

                assert await soon(handle.result()) == "sent hello"
            assert (sent, store.read_now(lambda tx: tx.effects.reviews())) == (["hello"], [])
        finally:
            store.close()


async def test_a_step_that_its_program_no_longer_waits_for_is_kept_all_the_same(
    store: Store, clock: FakeClock
) -> None:
    outage = OutageOnSend(store)
    tool = hf.opaque(outage.send)

    is_kept, is_cancelled = asyncio.Event(), asyncio.Event()

    @hf.task(name="hurries")
    async def hurries(run: hf.Run) -> str:
        sending = asyncio.ensure_future(run.step(tool, "hello"))
        await is_kept.wait()
        sending.cancel()
        is_cancelled.set()
        await asyncio.gather(sending, return_exceptions=True)
        return "went on"

    async with carrying(outage.ledger, clock, hurries) as process:
        handle = await process.holdfast.start(hurries())
        await until(lambda: bool(outage.sent))
        await outage.until_kept()
        is_kept.set()
        await soon(is_cancelled.wait())
        await outage.until_kept()
        outage.ledger.is_away = False

        assert await soon(handle.result()) == "went on"
    (effect,) = outage.effects
    assert (effect.status, outage.sent) == (EffectStatus.DONE, ["hello"])


def seen_late(store: Store) -> list[Event]:
    events = store.read_now(lambda tx: tx.events.newest(limit=100))
    return [event for event in events if event.kind is EventKind.EFFECT_SEEN_LATE]


def status_of(store: Store, task_id: str) -> TaskStatus:
    return store.read_now(lambda tx: tx.tasks.look(task_id)).status
