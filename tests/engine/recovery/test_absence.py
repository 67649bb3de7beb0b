"""What a resume does not find it does not believe to be absent: a flipped bit makes nothing happen again."""

from __future__ import annotations

import random
import shutil
from contextlib import closing
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.core.errors import PageDamaged, RowDamaged
from holdfast.store.sqlite import SqliteStore
from holdfast.testing import FakeClock
from tests.engine.bit_flips import Shop, die_with, flip, flip_in, go_on, result_of
from tests.engine.workers import carrying

NAMES = ["anchor", "buoy", "cleat"]
MANY = [f"item-{number:02}" for number in range(16)]
FLIPS = 40


async def test_without_a_flip_every_order_goes_on_and_none_is_charged_twice(quick_path: Path) -> None:
    shop, clock, path = Shop(), FakeClock(), quick_path / "ledger.db"
    tasks = await die_with(shop, path, clock, NAMES)

    outcomes = await go_on(shop, path, clock, tasks)

    assert outcomes == {name: result_of(name) for name in NAMES}
    assert sorted(shop.charges) == NAMES


# Trees whose key holds the id of a task: a bit that flips there hides a row from the query that looks for it.
TREES = ["steps", "effects", "tasks", "runs", "sqlite_autoindex_runs_3", "runs_alive", "dedup_keys_by_task"]


@pytest.mark.parametrize("tree", TREES)
async def test_a_flipped_bit_in_a_key_is_named_and_charges_no_customer_twice(
    quick_path: Path, tree: str
) -> None:
    shop, clock, path = Shop(), FakeClock(), quick_path / "ledger.db"
    tasks = await die_with(shop, path, clock, NAMES)
    flip_in(path, tree, *tasks.values())

    outcomes = await go_on(shop, path, clock, tasks)

    assert sorted(shop.charges) == NAMES
    for name, outcome in outcomes.items():
        assert outcome == result_of(name) or "damaged" in str(outcome)
    with closing(SqliteStore(path, clock=clock)) as store:
        assert any("does not match its checksum" in problem for problem in store.verify())


async def test_a_damaged_page_of_one_journal_stops_no_task_that_is_not_on_it(quick_path: Path) -> None:
    shop, clock, path = Shop(), FakeClock(), quick_path / "ledger.db"
    tasks = await die_with(shop, path, clock, MANY)
    flipped = flip_in(path, "steps", *(f"{name} is in stock" for name in MANY))

    outcomes = await go_on(shop, path, clock, tasks, all_end=True)

    well = {name for name, outcome in outcomes.items() if outcome == result_of(name)}
    assert sorted(shop.charges) == MANY
    assert len(well) >= len(MANY) // 2
    assert all("damaged" in str(outcomes[name]) for name in set(MANY) - well)
    assert flipped.split()[0] not in well


async def test_a_damaged_dedup_key_makes_no_second_task(quick_path: Path) -> None:
    shop, clock, path = Shop(), FakeClock(), quick_path / "ledger.db"
    await die_with(shop, path, clock, NAMES)
    name, order = flip_in(path, "dedup_keys", *NAMES), shop.order()

    with closing(SqliteStore(path, clock=clock)) as store:
        async with carrying(store, clock, order) as process:
            with pytest.raises(PageDamaged, match="holdfast store verify"):
                await process.holdfast.start(order(name), key=name)

    assert sorted(shop.charges) == NAMES


async def test_any_flipped_bit_is_named_or_harmless(quick_path: Path, seed: int) -> None:
    shop, clock, whole = Shop(), FakeClock(), quick_path / "whole.db"
    tasks = await die_with(shop, whole, clock, NAMES)
    chance, size, now = random.Random(seed), whole.stat().st_size, clock.now()

    for number in range(FLIPS):
        path = quick_path / f"{number}.db"
        shutil.copy(whole, path)
        place, bit = chance.randrange(size), chance.randrange(8)
        flip(path, place, bit)
        clock.set(now)
        outcomes = await go_on(shop, path, clock, tasks)

        assert sorted(shop.charges) == NAMES, f"byte {place}, bit {bit}: charged again"
        for name, outcome in outcomes.items():
            is_named = any(word in str(outcome) for word in ("damaged", "not a database", "SQLite"))
            assert outcome == result_of(name) or is_named, f"byte {place}, bit {bit}: {name}: {outcome}"


async def test_a_step_that_meets_a_damaged_page_ends_its_task_and_says_so(quick_path: Path) -> None:
    """Also while it runs: to replay it would find the same page, and the program must not go another way."""
    shop, clock, path = Shop(), FakeClock(), quick_path / "ledger.db"
    await die_with(shop, path, clock, NAMES)
    flip_in(path, "steps", *(f"{name} is in stock" for name in NAMES))
    order = shop.order()

    with closing(SqliteStore(path, clock=clock)) as store:
        async with carrying(store, clock, order) as process:
            handle = await process.holdfast.start(order("dinghy"), key="dinghy")
            with pytest.raises(hf.TaskFailed, match="damaged") as failed:
                await handle.result()

    assert failed.value.failure is not None
    assert failed.value.failure.kind == RowDamaged.code
    assert "dinghy" not in shop.charges


def test_a_damaged_page_is_never_taken_for_a_database_that_is_away() -> None:
    assert issubclass(PageDamaged, RowDamaged)
    assert PageDamaged("x").code == RowDamaged.code
