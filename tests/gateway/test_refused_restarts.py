"""A restart that was refused is shown at once, and in the ledger as soon as that can be written."""

from __future__ import annotations

from pathlib import Path

from holdfast.core.transitions import RestartStatus
from holdfast.store import Store
from holdfast.testing import FakeClock
from tests.gateway.broken_store import BrokenStore
from tests.gateway.gateways import hosted


async def test_what_the_ledger_could_not_note_is_shown_and_noted_later(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    broken = BrokenStore(store)
    async with hosted(broken, clock, tmp_path / "home") as one:
        broken.refuses = lambda _name: True
        answer = await one.restart("on a full disk")
        (shown,) = await one.restarts()
        assert await store.read(lambda tx: tx.restarts.page()) == []
        broken.refuses = lambda _name: False
        noted = await one.gateway._refusals.run_once()

        (kept,) = await store.read(lambda tx: tx.restarts.page())
        assert (answer.is_accepted, noted) == (False, 1)
        assert (shown.id, shown.status) == (kept.id, RestartStatus.BLOCKED) == (kept.id, kept.status)
        assert kept.outcome is not None
        assert kept.outcome.why_blocked == answer.why
        assert await one.gateway._refusals.run_once() == 0


async def test_those_before_are_noted_before_the_next_restart_begins(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    broken = BrokenStore(store)
    async with hosted(broken, clock, tmp_path / "home") as one:
        broken.refuses = lambda _name: True
        await one.restart("first")
        clock.advance(seconds=1)
        await one.restart("second")
        clock.advance(seconds=1)
        broken.refuses = lambda _name: False

        assert (await one.restart("third")).is_accepted
        assert await one.ended()
    found = await store.read(lambda tx: tx.restarts.page())
    assert [(restart.manifest.reason, restart.status) for restart in found] == [
        ("third", RestartStatus.DRAINED),
        ("second", RestartStatus.BLOCKED),
        ("first", RestartStatus.BLOCKED),
    ]
