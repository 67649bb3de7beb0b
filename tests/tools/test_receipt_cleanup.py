"""Receipts are removed when they are old and their effects are settled, and never before."""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import datetime, timedelta
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.core.effect import Effect, EffectClass
from holdfast.core.transitions import EffectStatus
from holdfast.engine.clocks.jump_watch import ClockWatch
from holdfast.store import Store
from holdfast.testing import FakeClock
from holdfast.tools.receipt_cleanup import BATCH, ReceiptPruner
from holdfast.tools.receipts import Receipt
from tests.builders import an_effect, stored_run

OLD = timedelta(days=8)


def leave_receipt(directory: Path, key: str, at: datetime, *, done: bool = True) -> None:
    receipt = Receipt(directory, key)
    receipt.started.write_text("{}")
    if done:
        receipt.done.write_text("{}")
    os.utime(receipt.started, (at.timestamp(), at.timestamp()))


def left_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def noted(store: Store, status: EffectStatus, key: str) -> Effect:
    run = stored_run(store)
    effect = an_effect(
        task_id=run.task_id,
        run_id=run.id,
        effect_class=EffectClass.VERIFIABLE,
        status=status,
        idempotency_key=key,
    )
    store.write_now(lambda tx: tx.effects.create(effect))
    return effect


@pytest.mark.parametrize(
    ("status", "is_pruned"),
    [
        (EffectStatus.INTENT, False),
        (EffectStatus.UNKNOWN, False),
        (EffectStatus.DONE, True),
        (EffectStatus.FAILED, True),
        (EffectStatus.CONFIRMED, True),
    ],
)
async def test_only_the_receipt_of_a_settled_effect_is_removed(
    store: Store, clock: FakeClock, quick_path: Path, status: EffectStatus, is_pruned: bool
) -> None:
    noted(store, status, "key")
    leave_receipt(quick_path, "key", clock.now() - OLD)

    pruned = await ReceiptPruner(store, clock, [quick_path]).run_once()

    assert pruned == int(is_pruned)
    assert left_in(quick_path) == ([] if is_pruned else ["key.done", "key.started"])


async def test_a_receipt_that_is_young_or_of_an_unknown_ledger_stays(
    store: Store, clock: FakeClock, quick_path: Path
) -> None:
    noted(store, EffectStatus.DONE, "young")
    leave_receipt(quick_path, "young", clock.now() - timedelta(days=1))
    leave_receipt(quick_path, "stranger", clock.now() - OLD)
    (quick_path / "not a key.started").write_text("")

    assert await ReceiptPruner(store, clock, [quick_path]).run_once() == 0
    assert len(left_in(quick_path)) == 5


async def test_one_that_a_process_is_at_stays_until_it_has_gone(
    store: Store, clock: FakeClock, quick_path: Path
) -> None:
    noted(store, EffectStatus.DONE, "key")
    leave_receipt(quick_path, "key", clock.now() - OLD)
    pruner = ReceiptPruner(store, clock, [quick_path, quick_path / "nowhere"])
    with Receipt(quick_path, "key").held():
        meanwhile = await pruner.run_once()

    assert (meanwhile, await pruner.run_once()) == (0, 1)


async def test_who_was_killed_while_he_removed_one_leaves_the_rest_to_the_next(
    store: Store, clock: FakeClock, quick_path: Path
) -> None:
    noted(store, EffectStatus.DONE, "key")
    leave_receipt(quick_path, "key", clock.now() - OLD, done=False)

    assert await ReceiptPruner(store, clock, [quick_path]).run_once() == 1
    assert left_in(quick_path) == []


async def test_a_clock_that_is_a_month_ahead_for_a_moment_removes_none(
    store: Store, clock: FakeClock, quick_path: Path
) -> None:
    watch = ClockWatch(store, clock, boottime_us=clock.boottime_us, machine="boot 1")
    pruner = ReceiptPruner(store, clock, [quick_path], watch=watch)
    await pruner.run_once()
    clock.advance(hours=1)
    noted(store, EffectStatus.DONE, "key")
    leave_receipt(quick_path, "key", clock.now())
    clock.jump(days=30)

    assert await pruner.run_once() == 0
    clock.jump(days=-30)
    clock.advance(days=8)
    assert await pruner.run_once() == 1


async def test_it_stops_between_two_batches(store: Store, clock: FakeClock, quick_path: Path) -> None:
    for number in range(BATCH + 1):
        leave_receipt(quick_path, f"key{number}", clock.now() - OLD, done=False)
    pruner = ReceiptPruner(store, clock, [quick_path])
    pruner.hurry()

    async with asyncio.timeout(10):
        await pruner.run()

    assert len(left_in(quick_path)) == BATCH + 1


async def test_a_process_that_serves_removes_them(quick_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[tuple[list[Path], bool]] = []

    async def look(pruner: ReceiptPruner) -> int:
        looked.append((pruner._directories, pruner._watch is not None))
        os.kill(os.getpid(), signal.SIGTERM)
        return 0

    @hf.task
    async def nothing(run: hf.Run) -> None: ...

    monkeypatch.setenv("HOLDFAST_HOME", str(quick_path))
    monkeypatch.setattr(ReceiptPruner, "run_once", look)

    async with asyncio.timeout(20):
        await hf.serve("memory:", tasks=[nothing])

    assert looked == [([quick_path / "receipts"], True)]
