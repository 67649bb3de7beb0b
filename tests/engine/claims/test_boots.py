"""Boots: one life of one process, which no process takes for another."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from holdfast.core.errors import StoreUnavailable
from holdfast.core.events import EventKind
from holdfast.engine.claims.boots import Life
from holdfast.store import Store, boot_proofs
from holdfast.testing import Crashed, FailingStore, Failpoint, FakeClock, Where
from tests.crash.invariants import contents_of
from tests.engine.tables import dump
from tests.engine.workers import WatchedStore


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
    assert not two.has_died(one.boot), "who does not know of its end finds no lock, and that proves nothing"
    await two.end()


async def test_a_lock_file_that_was_removed_proves_nothing(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    one, two = (
        await Life.begin(store, clock, locks=tmp_path),
        await Life.begin(store, clock, locks=tmp_path),
    )
    for path in list_of(tmp_path):
        path.unlink()

    assert not two.has_died(one.boot)
    for life in (one, two):
        await life.end()


@pytest.mark.parametrize("where", ["before", "after"])
async def test_a_process_that_dies_while_it_ends_is_dead_for_everyone(
    store: Store, clock: FakeClock, tmp_path: Path, where: Where
) -> None:
    failing = FailingStore(store, [Failpoint(call=2, where=where)])
    one = await Life.begin(failing, clock, locks=tmp_path)
    two = await Life.begin(store, clock, locks=tmp_path)

    with pytest.raises(Crashed):
        await one.end()
    lose_lock(one)

    boot = await store.read(lambda tx: tx.boots.get(one.id))
    assert boot is not None
    assert two.has_died(boot)
    await two.bury(boot)
    assert contents_of(store).living_boots == {two.id}
    assert [path.stem for path in list_of(tmp_path)] == [two.id]
    await two.end()


def lose_lock(life: Life) -> None:
    """What the kernel does for a process that is gone: its lock is free, its file stays."""
    assert life._lock is not None
    assert life._lock._descriptor is not None
    os.close(life._lock._descriptor)
    life._lock = None


async def test_two_who_find_the_same_boot_dead_may_both_bury_it(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    dead, *others = [await Life.begin(store, clock, locks=tmp_path) for _ in range(3)]
    lose_lock(dead)
    assert all(one.has_died(dead.boot) for one in others)

    for one in others:
        await one.bury(dead.boot)

    events = store.read_now(lambda tx: tx.events.newest(limit=100))
    assert [event.facts["how"] for event in events if event.kind is EventKind.BOOT_ENDED] == ["died"]
    for one in others:
        await one.end()


async def test_a_boot_that_ends_while_another_buries_it_keeps_its_file_to_itself(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    """Its end is noted, and its process has not let go of its lock yet."""
    one, two = (
        await Life.begin(store, clock, locks=tmp_path),
        await Life.begin(store, clock, locks=tmp_path),
    )
    await store.write(lambda tx: tx.boots.end(one.id, now=clock.now()))
    ended = await store.read(lambda tx: tx.boots.get(one.id))
    assert ended is not None

    await two.bury(ended)

    assert {path.stem for path in list_of(tmp_path)} == {one.id, two.id}
    for life in (one, two):
        await life.end()
    assert not list_of(tmp_path)


# --- machines that look alike


@pytest.fixture
def clone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], None]:
    """From now on this is another machine, or this one after a reboot: with the same name and inodes."""

    def change_kernel() -> None:
        kernel = tmp_path.with_name("boot_id")
        kernel.write_text("another-kernel\n")
        monkeypatch.setattr(boot_proofs, "_KERNEL", kernel)

    return change_kernel


async def test_on_a_clone_of_its_machine_no_process_proves_the_death_of_a_boot(
    store: Store, clock: FakeClock, tmp_path: Path, clone: Callable[[], None]
) -> None:
    there = await Life.begin(store, clock, locks=tmp_path)
    lose_lock(there)  # on the clone it was never held
    clone()
    here = await Life.begin(store, clock, locks=tmp_path)

    assert (here.boot.node, here.directory) == (there.boot.node, there.directory)
    assert not here.has_died(there.boot)
    await here.end()


async def test_after_a_reboot_the_locks_beside_a_file_prove_every_death(
    store: Store, clock: FakeClock, tmp_path: Path, clone: Callable[[], None]
) -> None:
    before = await Life.begin(store, clock, locks=tmp_path, is_shared=False)
    lose_lock(before)
    clone()
    after = await Life.begin(store, clock, locks=tmp_path, is_shared=False)

    assert after.has_died(before.boot)
    await after.end()


async def test_a_boot_of_an_earlier_version_is_judged_by_its_leases(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    old = await Life.begin(store, clock, locks=tmp_path, is_shared=False)  # its host names no kernel
    lose_lock(old)
    new = await Life.begin(store, clock, locks=tmp_path)

    assert not new.has_died(old.boot)
    await new.end()


async def test_where_kernels_cannot_be_told_apart_a_shared_ledger_has_no_locks(
    store: Store, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boot_proofs, "_KERNEL", tmp_path / "nothing")
    shared = await Life.begin(store, clock, locks=tmp_path)
    alone = await Life.begin(store, clock, locks=tmp_path, is_shared=False)

    assert shared.boot.host.endswith("/-")
    assert [path.stem for path in list_of(tmp_path)] == [alone.id]
    for life in (shared, alone):
        await life.end()


def test_every_kernel_says_which_one_it_is() -> None:
    assert (boot_proofs.kernel() is None) == (not Path("/proc/sys/kernel/random/boot_id").exists())
    assert boot_proofs.kernel() == boot_proofs.kernel()


async def test_ending_twice_ends_once(store: Store, clock: FakeClock, tmp_path: Path) -> None:
    life = await Life.begin(store, clock, locks=tmp_path)
    await life.end()
    before = dump(store)
    clock.advance(seconds=1)

    await life.end()

    assert dump(store) == before


async def test_a_boot_that_could_not_be_registered_leaves_no_lock(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    away = WatchedStore(store)
    away.is_away = True
    before = dump(store)

    with pytest.raises(StoreUnavailable):
        await Life.begin(cast(Store, away), clock, locks=tmp_path)

    assert not list_of(tmp_path)
    assert dump(store) == before


@pytest.mark.parametrize("where", ["before", "after"])
async def test_a_boot_that_may_have_been_registered_is_dead_for_everyone(
    store: Store, clock: FakeClock, tmp_path: Path, where: Where
) -> None:
    """Its process was killed, or the answer of the database was lost, at the very beginning."""
    with pytest.raises(Crashed):
        await Life.begin(FailingStore(store, [Failpoint(call=1, where=where)]), clock, locks=tmp_path)
    two = await Life.begin(store, clock, locks=tmp_path)

    left = [boot for boot in store.read_now(lambda tx: tx.boots.alive()) if boot.id != two.id]
    assert len(left) == (where == "after")
    assert all(two.has_died(boot) for boot in left)
    await two.end()


def list_of(directory: Path) -> list[Path]:
    return list(directory.iterdir())


async def test_without_a_place_for_locks_only_leases_tell(store: Store, clock: FakeClock) -> None:
    one, two = (
        await Life.begin(store, clock, locks=None),
        await Life.begin(store, clock, locks=None),
    )

    assert not two.has_died(one.boot)

    await one.end()
    assert two.has_died(await store.read(lambda tx: tx.boots.get(one.id)))


async def test_a_boot_that_is_unknown_is_not_called_dead(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    life = await Life.begin(store, clock, locks=tmp_path)

    assert not life.has_died(None)
    await life.end()


async def test_a_living_boot_cannot_be_buried(store: Store, clock: FakeClock, tmp_path: Path) -> None:
    one, two = (
        await Life.begin(store, clock, locks=tmp_path),
        await Life.begin(store, clock, locks=tmp_path),
    )
    before = dump(store)

    with pytest.raises(StoreUnavailable):
        await two.bury(one.boot)

    assert dump(store) == before
    for life in (one, two):
        await life.end()
