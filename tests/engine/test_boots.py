"""Boots: one life of one process, which nobody takes for another."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.core.errors import StoreUnavailable
from holdfast.engine.boots import Life
from holdfast.store import Store
from holdfast.testing import Crashed, FailingStore, Failpoint, FakeClock
from tests.crash.invariants import contents_of
from tests.engine.tables import dump


async def test_a_life_is_registered_and_holds_its_lock(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    one = await Life.begin(store, clock, locks=tmp_path, role="gateway")
    two = await Life.begin(store, clock, locks=tmp_path)

    assert one.id != two.id
    assert contents_of(store).living_boots == {one.id, two.id}
    assert not one.has_died(two.boot)
    for life in (one, two):
        await life.end()


async def test_a_life_that_ended_is_dead_for_everyone(store: Store, clock: FakeClock, tmp_path: Path) -> None:
    one = await Life.begin(store, clock, locks=tmp_path)
    two = await Life.begin(store, clock, locks=tmp_path)

    await one.end()

    boot = await store.read(lambda tx: tx.boots.get(one.id))
    assert two.has_died(boot)
    assert two.has_died(one.boot), "its lock is free, whatever we knew before"
    await two.end()


async def test_ending_twice_ends_once(store: Store, clock: FakeClock, tmp_path: Path) -> None:
    life = await Life.begin(store, clock, locks=tmp_path)
    await life.end()
    before = dump(store)
    clock.advance(seconds=1)

    await life.end()

    assert dump(store) == before


async def test_a_boot_that_could_not_be_registered_holds_no_lock(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    failing = FailingStore(store, [Failpoint(call=1, where="before")])
    before = dump(store)

    with pytest.raises(Crashed):
        await Life.begin(failing, clock, locks=tmp_path)

    assert not list_of(tmp_path)
    assert dump(store) == before


def list_of(directory: Path) -> list[Path]:
    return list(directory.iterdir())


async def test_without_a_place_for_locks_only_leases_tell(store: Store, clock: FakeClock) -> None:
    one, two = await Life.begin(store, clock, locks=None), await Life.begin(store, clock, locks=None)

    assert not two.has_died(one.boot)

    await one.end()
    assert two.has_died(await store.read(lambda tx: tx.boots.get(one.id)))


async def test_a_boot_that_nobody_knows_is_not_called_dead(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    life = await Life.begin(store, clock, locks=tmp_path)

    assert not life.has_died(None)
    await life.end()


async def test_a_living_boot_cannot_be_buried(store: Store, clock: FakeClock, tmp_path: Path) -> None:
    one, two = await Life.begin(store, clock, locks=tmp_path), await Life.begin(store, clock, locks=tmp_path)
    before = dump(store)

    with pytest.raises(StoreUnavailable):
        await two.bury(one.boot)

    assert dump(store) == before
    for life in (one, two):
        await life.end()
