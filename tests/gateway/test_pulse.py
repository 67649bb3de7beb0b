"""Whether the ledger can be used: found out by a write, and answered in time whatever the ledger does."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import StoreUnavailable
from holdfast.core.hold import ACCEPT, RESUME
from holdfast.gateway import pulse
from holdfast.store import Store, Tx
from holdfast.testing import FakeClock
from tests.gateway.gateways import hosted


class Trouble:
    """What becomes of the writes of a store while it lasts."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.error: Exception | None = None
        # Cleared while the store does not answer.
        self.answers = asyncio.Event()
        self.answers.set()
        self.writes = 0
        write = store.write

        async def troubled(act: Any) -> Any:
            self.writes += 1
            await self.answers.wait()
            if self.error is not None:
                raise self.error
            return await write(act)

        monkeypatch.setattr(store, "write", troubled)


@pytest.fixture
def trouble(store: Store, monkeypatch: pytest.MonkeyPatch) -> Trouble:
    return Trouble(store, monkeypatch)


async def test_a_ledger_that_cannot_be_written_is_not_ready_and_is_again_when_it_can(
    store: Store, clock: FakeClock, tmp_path: Path, trouble: Trouble
) -> None:
    async with hosted(store, clock, tmp_path / "home") as one:
        assert (await one.gateway.look()).is_ready
        trouble.error = StoreUnavailable("SQLite: the disk is full")

        status = await one.gateway.look()
        assert (status.is_ready, status.ledger_problem) == (False, "SQLite: the disk is full")
        assert status.status == "serving"

        trouble.error = None
        for who in ("Pulse", "Conversations"):
            one.gateway.troubles.worked(who)
        status = await one.gateway.look()
        assert (status.is_ready, status.ledger_problem) == (True, None)


async def test_a_ledger_that_does_not_answer_is_away_and_no_caller_waits_for_it(
    store: Store, clock: FakeClock, tmp_path: Path, trouble: Trouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulse, "ANSWER_S", 0.05)
    async with hosted(store, clock, tmp_path / "home") as one:
        trouble.answers.clear()

        for _ in range(2):
            status = await one.gateway.look()

            assert not status.is_ready
            assert status.ledger_problem == "the ledger has not answered for 0.05 s"
        trouble.answers.set()  # so that it ends in order


async def test_an_idle_gateway_writes_nothing_and_for_a_caller_that_asks_often_few_times(
    store: Store, clock: FakeClock, tmp_path: Path, trouble: Trouble
) -> None:
    async with hosted(store, clock, tmp_path / "home") as one:
        await one.gateway.look()
        before = trouble.writes

        for _ in range(20):
            await one.gateway.look(at_most_old_s=60.0)

        assert trouble.writes == before


async def test_each_reason_why_resumes_are_held_is_told_with_what_ends_it(
    store: Store, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "held_why", lambda: "the database is older than its mark")
    async with hosted(store, clock, tmp_path / "home", why_held="it crashed 5 times") as one:
        status = await one.gateway.look()

    assert [(hold.why, hold.remedy) for hold in status.holds] == [
        ("it crashed 5 times", RESUME),
        ("the database is older than its mark", ACCEPT),
    ]
    assert (status.holds_resumes, status.why_held) == (True, "it crashed 5 times")


async def test_a_look_before_it_serves_and_after_it_ended_returns_at_once(
    store: Store, clock: FakeClock
) -> None:
    service = pulse.HealthProbe(store, clock)
    await service.look()
    running = asyncio.ensure_future(service.run())
    await asyncio.sleep(0)
    await service.look()
    seen = await store.read(lambda tx: _fact(tx))
    service.stop()
    await running
    await service.look()

    assert seen is not None
    assert await store.read(lambda tx: _fact(tx)) == seen


def _fact(tx: Tx) -> str | None:
    return tx.boots.fact(pulse.FACT)
