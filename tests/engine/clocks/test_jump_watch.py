"""Which time a process believes, what the ledger remembers of it, and what a life after it makes of that."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import pytest

from holdfast.core.jumps import DELETES_AFTER, FIRES_AFTER
from holdfast.engine.clocks.jump_facts import FACT, read_kept
from holdfast.engine.clocks.jump_watch import MOST_MACHINES, ClockWatch
from holdfast.store import Store
from holdfast.testing import FakeClock, RepeatingStore
from tests.builders import START

YEAR = {"days": 365}


def life(store: Store, clock: FakeClock, machine: str = "boot 1") -> ClockWatch:
    return ClockWatch(RepeatingStore(store), clock, boottime_us=clock.boottime_us, machine=machine)


async def settle(store: Store, clock: FakeClock) -> ClockWatch:
    """A life whose clock has been right for long enough."""
    watch = life(store, clock)
    await watch.firing_time()
    clock.advance(seconds=DELETES_AFTER.total_seconds())
    return watch


async def times(watch: ClockWatch) -> tuple[datetime | None, datetime | None]:
    return await watch.firing_time(), await watch.deletion_time()


async def test_a_new_ledger_fires_at_once_and_deletes_after_a_while(store: Store, clock: FakeClock) -> None:
    watch = life(store, clock)

    assert await times(watch) == (START, None)
    now = clock.advance(seconds=DELETES_AFTER.total_seconds())
    assert await times(watch) == (now, now)


async def test_a_jump_is_told_once_and_so_is_its_end(
    store: Store, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    watch = await settle(store, clock)
    before = clock.jump(**YEAR)
    for _ in range(3):
        clock.advance(seconds=25)
        assert await times(watch) == (clock.now() - timedelta(**YEAR), None)
    clock.jump(days=-365)

    assert await times(watch) == (clock.now(), clock.now())
    assert clock.now() < before
    told = [one.getMessage() for one in caplog.records]
    assert [one.split(":")[0] for one in told] == [
        "the wall clock jumped 365 days, 0",
        "the clock is trusted again",
    ]


async def test_a_night_in_which_the_machine_slept_is_no_jump(
    store: Store, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    watch = await settle(store, clock)
    await watch.firing_time()
    now = clock.advance(hours=9)

    assert await times(watch) == (now, now)
    assert caplog.records == []


async def test_the_next_process_believes_what_the_last_one_did(store: Store, clock: FakeClock) -> None:
    await settle(store, clock)
    now = clock.advance(days=7)

    assert await times(life(store, clock)) == (now, now)


@pytest.mark.parametrize("jump", [timedelta(days=365), timedelta(hours=1)])
async def test_a_process_that_starts_while_the_clock_is_ahead_knows_it(
    store: Store, clock: FakeClock, jump: timedelta
) -> None:
    await settle(store, clock)
    clock.jump(seconds=jump.total_seconds())

    for _ in range(3):
        clock.advance(seconds=25)
        assert await times(life(store, clock)) == (clock.now() - jump, None)


async def test_after_the_machine_booted_its_clock_has_to_hold(
    store: Store, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    await settle(store, clock)
    clock.jump(**YEAR)
    watch = life(store, clock, machine="boot 2")

    assert await times(watch) == await times(watch) == (None, None)
    clock.jump(days=-365)
    clock.advance(seconds=75)
    assert await times(watch) == (None, None)
    now = clock.advance(seconds=FIRES_AFTER.total_seconds())
    assert await times(watch) == (now, None)
    now = clock.advance(seconds=DELETES_AFTER.total_seconds())
    assert await times(watch) == (now, now)
    assert [one.levelname for one in caplog.records if "is not trusted yet" in one.getMessage()] == [
        "WARNING"
    ]


async def test_a_time_that_holds_is_believed_whatever_a_wrong_clock_has_left_in_the_ledger(
    store: Store, clock: FakeClock
) -> None:
    """The machine's clock was a year ahead for so long that it was believed; then NTP corrected it."""
    clock.jump(**YEAR)
    watch = await settle(store, clock)
    await times(watch)
    clock.jump(days=-365)

    assert await times(watch) == (None, None)
    now = clock.advance(seconds=FIRES_AFTER.total_seconds())
    assert await times(watch) == (now, None)
    now = clock.advance(seconds=DELETES_AFTER.total_seconds())
    assert await times(watch) == (now, now)
    assert await times(life(store, clock)) == (now, now)


async def test_the_ledger_is_written_to_when_the_belief_changes_and_not_before(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = await settle(store, clock)
    await times(watch)
    monkeypatch.setattr(store, "write", None)

    for _ in range(100):
        clock.advance(seconds=60)
        await times(watch)


async def test_what_cannot_be_read_proves_nothing(store: Store, clock: FakeClock) -> None:
    await settle(store, clock)
    store.write_now(lambda tx: tx.boots.set_fact(FACT, "{"))

    assert await times(life(store, clock)) == (None, None)


async def test_a_boottime_before_what_was_believed_proves_nothing(store: Store, clock: FakeClock) -> None:
    """A machine was put back to a snapshot of itself."""
    watch = await settle(store, clock)
    await watch.firing_time()
    back = ClockWatch(store, clock, boottime_us=lambda: 0, machine="boot 1")

    assert await times(back) == (None, None)


async def test_many_machines_do_not_fill_the_ledger(store: Store, clock: FakeClock) -> None:
    for number in range(MOST_MACHINES + 3):
        watch = life(store, clock, machine=f"boot {number}")
        await watch.firing_time()
        clock.advance(seconds=FIRES_AFTER.total_seconds())
        await watch.firing_time()

    kept = read_kept(store.read_now(lambda tx: tx.boots.fact(FACT)))
    assert len(kept) == MOST_MACHINES
    assert f"boot {MOST_MACHINES + 2}" in kept


async def test_services_that_look_at_once_agree(store: Store, clock: FakeClock) -> None:
    watch = life(store, clock)

    found = await asyncio.gather(*(watch.firing_time() for _ in range(5)))

    assert set(found) == {START}
