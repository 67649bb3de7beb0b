"""Ended tasks of some kinds are kept for a shorter or a longer time than others."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.config.sections import InvalidField, UpkeepSettings
from holdfast.core.events import EventKind
from holdfast.core.retention import RetentionLimits
from holdfast.core.task import RuntimeName, Task
from holdfast.core.transitions import DeliveryStatus, TaskStatus
from holdfast.engine.ledger.retention import Pruner, pruning_tasks
from holdfast.store import Store
from holdfast.testing import FakeClock
from holdfast.upkeep.sweep import ChangeKind, Sweep
from tests.builders import a_delivery, a_task, later, write

LIMITS = RetentionLimits(
    kinds={"cron": timedelta(days=7), "agent": timedelta(days=365), "lost": timedelta(days=1)}
)


def ended(store: Store, runtime: RuntimeName, status: TaskStatus = TaskStatus.SUCCEEDED) -> Task:
    """A task that ended at the start, with the stamp that every end gives."""
    task = a_task(runtime=runtime, status=status, cleanup_after=later(days=30))
    write(store, lambda tx: tx.tasks.create(task))
    return task


def left(store: Store, *tasks: Task) -> list[bool]:
    found = store.read_now(lambda tx: tx.tasks.get_many([task.id for task in tasks]))
    return [task.id in found for task in tasks]


async def test_each_kind_is_kept_as_long_as_its_limit_says(store: Store, clock: FakeClock) -> None:
    tasks = [
        ended(store, RuntimeName.PYTHON),
        ended(store, RuntimeName.CRON),
        ended(store, RuntimeName.AGENT),
        ended(store, RuntimeName.CRON, TaskStatus.LOST),
    ]
    pruner = Pruner(store, clock, limits=LIMITS)
    kept: dict[int, list[bool]] = {}

    for day in (0, 1, 6, 7, 29, 30, 364, 365):
        clock.set(later(days=day))
        await pruner.run_once()
        kept[day] = left(store, *tasks)

    assert kept == {
        0: [True, True, True, True],
        1: [True, True, True, False],
        6: [True, True, True, False],
        7: [True, False, True, False],
        29: [True, False, True, False],
        30: [False, False, True, False],
        364: [False, False, True, False],
        365: [False, False, False, False],
    }


async def test_a_preview_says_which_limit_keeps_or_deletes_a_task_and_an_apply_does_so(
    store: Store, clock: FakeClock
) -> None:
    python, cron, agent, lost = (
        ended(store, RuntimeName.PYTHON),
        ended(store, RuntimeName.CRON),
        ended(store, RuntimeName.AGENT),
        ended(store, RuntimeName.ACP, TaskStatus.LOST),
    )
    sweep = Sweep(store, clock, limits=LIMITS)
    clock.set(later(days=20))
    early = await sweep.plan()
    clock.set(later(days=30))
    plan = await sweep.plan()

    swept = await sweep.apply(plan)

    assert {(one.kind, one.task_id, one.reason) for one in early.changes} == {
        (ChangeKind.PRUNE, cron.id, "cron tasks are kept for 7 days"),
        (ChangeKind.PRUNE, lost.id, "lost tasks are kept for 1 day"),
    }
    assert (ChangeKind.STAMP, agent.id, "agent tasks are kept for 365 days") in {
        (one.kind, one.task_id, one.reason) for one in plan.changes
    }
    assert (swept.stamped, swept.pruned) == (1, 3)
    assert left(store, python, cron, agent, lost) == [False, False, True, False]
    assert store.read_now(lambda tx: tx.tasks.look(agent.id)).cleanup_after == later(days=365)
    events = store.read_now(lambda tx: [one.kind for one in tx.events.of_task(agent.id)])
    assert events == [EventKind.TASK_SWEPT]


async def test_a_missing_stamp_follows_the_limit_of_its_kind(store: Store, clock: FakeClock) -> None:
    task = a_task(runtime=RuntimeName.CRON, status=TaskStatus.FAILED)
    write(store, lambda tx: tx.tasks.create(task))
    clock.advance(days=1)

    await Sweep(store, clock, limits=LIMITS).run_once()

    assert store.read_now(lambda tx: tx.tasks.look(task.id)).cleanup_after == later(days=7)


def test_no_limit_deletes_a_task_while_its_delivery_is_open_or_after_it_was_reopened(store: Store) -> None:
    owing, reopened = ended(store, RuntimeName.CRON), ended(store, RuntimeName.CRON, TaskStatus.FAILED)
    delivery = a_delivery(task_id=owing.id, status=DeliveryStatus.PENDING)
    write(store, lambda tx: tx.deliveries.create(delivery))
    write(store, lambda tx: tx.tasks.go_on(reopened, now=later(days=1)))

    pruned = store.write_now(pruning_tasks(now=later(days=8), limits=LIMITS))

    assert pruned == []
    assert left(store, owing, reopened) == [True, True]


@pytest.mark.parametrize(
    ("keep_days", "fix"),
    [
        ({"crons": 7}, "name one of python, command, agent"),
        ({"cron": 0.5}, "write a number from 1 to 3653"),
        ({"cron": float("nan")}, "write a number from 1 to 3653"),
    ],
)
def test_a_limit_that_cannot_be_is_refused_with_the_fix(keep_days: dict[str, float], fix: str) -> None:
    with pytest.raises(InvalidField, match=fix):
        UpkeepSettings(keep_days=keep_days)
