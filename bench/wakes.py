"""What a look for due wakes costs, while very many are stored and few are due."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from datetime import timedelta

from bench.measure import Report
from holdfast.core.clock import SystemClock
from holdfast.core.ids import TaskId, new_wake_id
from holdfast.core.schedule import Wake, WakeReason
from holdfast.engine.claims.boots import Life
from holdfast.engine.recovery.resume import Resumer
from holdfast.engine.recovery.wakes import WakeTimer
from holdfast.store import Store, Tx

# In a write, so that no write becomes too large.
_BATCH = 10_000
DUE = 10


def bench(report: Report, opened: Callable[[str], Store], *, kind: str, stored: int) -> None:
    name = f"{kind}: a tick that fires {DUE} wakes of {stored:,} / of {DUE}"
    if not report.wants(name):
        return
    with (
        contextlib.closing(opened("many-wakes")) as many,
        contextlib.closing(opened("few-wakes")) as few,
    ):
        put(many, stored, later=timedelta(days=1))
        # The cost of a tick grows with what is due, not with what is stored.
        report.times(name, lambda: tick(many), lambda: tick(few), target=1.5, rounds=15)


def put(store: Store, number: int, *, later: timedelta) -> None:
    """Store wakes that are due then."""
    now = SystemClock().now()
    for first in range(0, number, _BATCH):
        wakes = [
            Wake(
                id=new_wake_id(now),
                task_id=TaskId("task_bench"),
                reason=WakeReason.TIMEOUT_RECOVERY,
                created_at=now,
                due_at=now + later,
                updated_at=now,
            )
            for _ in range(min(_BATCH, number - first))
        ]

        def create(tx: Tx) -> None:
            for wake in wakes:  # noqa: B023 - written at once
                tx.wakes.create(wake)

        store.write_now(create)


def tick(store: Store) -> float:
    put(store, DUE, later=timedelta(0))

    async def fire() -> float:
        life = await Life.begin(store, SystemClock(), locks=None)
        timer = WakeTimer(store, SystemClock(), Resumer(store, SystemClock(), life.id))
        started = time.perf_counter()
        assert await timer.fire() == DUE
        seconds = time.perf_counter() - started
        await life.end()
        return seconds

    return asyncio.run(fire())
