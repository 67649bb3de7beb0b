"""The gateway's own entries: of refusals a bounded number, and none is lost while the ledger is away."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from holdfast.core.audit import Actor, AuditOutcome, Door
from holdfast.core.errors import StoreUnavailable
from holdfast.gateway.audit import MOST, AuditRecorder
from holdfast.testing import FakeClock, WrappingStore, memory_store


async def test_a_flood_of_refusals_leaves_a_bounded_number_of_entries_and_their_number() -> None:
    with contextlib.closing(memory_store()) as store:
        trail = AuditRecorder(store, FakeClock())
        for number in range(5000):
            address = f"10.0.{number // 250}.{number % 250}"
            trail.refuse(Actor(who="stranger", door=Door.HTTP, address=address), "token.wrong", "no")

        assert await trail.run_once() == MOST + 1
        found = store.read_now(lambda tx: tx.audit.page(100))

    assert sum(one.times for one in found) == 5000
    assert [one.action for one in found].count("refusals.dropped") == 1


async def test_while_the_ledger_is_away_entries_wait_and_the_last_ones_are_written_at_the_end() -> None:
    class Away(WrappingStore):
        is_away = True

        async def write(self, write: Any) -> Any:
            if self.is_away:
                raise StoreUnavailable("it is away, says the test")
            return await self.inner.write(write)

    with contextlib.closing(memory_store()) as inner:
        store: Any = Away(inner)
        trail = AuditRecorder(store, FakeClock())
        trail.note("settings.applied", why="log.level")
        with pytest.raises(StoreUnavailable):
            await trail.run_once()
        trail.note("gateway.stop", outcome=AuditOutcome.ASKED, why="SIGTERM")
        store.is_away = False
        trail.stop()

        await trail.run()
        found = inner.read_now(lambda tx: tx.audit.page())

    assert sorted(one.action for one in found) == ["gateway.stop", "settings.applied"]
