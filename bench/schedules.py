"""A pass over schedules costs what is due, not what is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

from bench.measure import Report, timed
from holdfast.core.clock import Clock
from holdfast.core.schedule_spec import Schedule, ScheduleSource, ScheduleSpec
from holdfast.engine.schedules.due import placed
from holdfast.schedule.cron import Cron
from holdfast.store import Store, Tx
from holdfast.testing import FakeClock

STORED = 10_000
DUE = 20
PASSES = 20


def fill(store: Store, clock: Clock, far: int) -> None:
    """Schedules that are due in a year, and a few that are due each minute."""
    now = clock.now()

    def one(name: str, spec: ScheduleSpec) -> Schedule:
        made = Schedule(
            name=name,
            source=ScheduleSource.RUNTIME,
            owner="bench",
            spec=spec,
            created_at=now,
            updated_at=now,
        )
        return placed(made, now)

    yearly = now + timedelta(days=365)
    made = [one(f"far-{number}", ScheduleSpec(at=yearly, task="bench")) for number in range(far)]
    made += [
        one(f"near-{number}", ScheduleSpec(every_s=60, anchor_at=now, task="bench")) for number in range(DUE)
    ]

    def save(tx: Tx) -> None:
        for schedule in made:
            tx.schedules.create(schedule)

    store.write_now(save)


def passes(open_store: Callable[[], Store], far: int) -> float:
    """The seconds of one pass in which a few schedules are due."""
    store, clock = open_store(), FakeClock()
    fill(store, clock, far)

    async def run() -> None:
        service = Cron(store, clock, {})
        for _ in range(PASSES):
            clock.advance(minutes=1)
            assert (await service.run_once()).fired == DUE

    try:
        return timed(lambda: asyncio.run(run())) / PASSES
    finally:
        store.close()


def bench(report: Report, opened: Callable[[str], Store], *, kind: str) -> None:
    name = f"{kind}: a pass with {DUE} schedules due: {STORED:,} stored / {DUE} stored"
    if not report.wants(name):
        return
    numbers = iter(range(1000))

    def place() -> Store:
        return opened(f"schedules-{next(numbers)}")

    report.times(name, lambda: passes(place, STORED), lambda: passes(place, 0), target=1.5, rounds=3)
