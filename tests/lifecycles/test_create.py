"""Create a background task: a producer records work that it executes, queued or running, exactly once."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.core.clock import Clock, SystemClock
from holdfast.core.errors import HoldfastError, NotFound, NotYours, OwnerMissing, ParentMissing, RunIdTaken
from holdfast.core.recorded import ScopeKind
from holdfast.core.task import NotifyPolicy, Origin, RuntimeName
from holdfast.core.transitions import TaskStatus
from holdfast.engine.producers.producers import Producers
from holdfast.store import Store
from holdfast.testing import FakeClock
from tests.crash.invariants import assert_ledger_is_whole
from tests.crash.ledger_address import LedgerAddress
from tests.lifecycles.deaths import a_record, dead_producers, killed_producers


async def create_queued(store: Store, clock: Clock, run_id: str) -> None:
    await Producers(store, clock).create(a_record(run_id))


async def create_running(store: Store, clock: Clock, run_id: str) -> None:
    await Producers(store, clock).create(a_record(run_id), is_running=True)


def how_many(store: Store) -> int:
    return sum(store.read_now(lambda tx: tx.events.counts("task")).values())


async def test_a_producer_starts_work_and_the_record_has_all_that_it_said(
    store: Store, clock: FakeClock
) -> None:
    producers = Producers(store, clock)
    parent = await producers.create(a_record("parent", runtime="acp"), is_running=True)
    origin = Origin(channel="console", peer="ada")

    work = await producers.create(
        a_record(
            "render-1",
            runtime="subagent",
            scope="session",
            source_id="job-7",
            agent_id="painter",
            session_key="agent:ada:main",
            child_session_key="agent:painter:sub",
            parent_task_id=parent.task.id,
            origin=origin,
            notify="state_changes",
            key="title",
        )
    )

    task, details = work.task, work.details
    assert (task.status, task.runtime, task.notify) == (
        TaskStatus.QUEUED,
        RuntimeName.SUBAGENT,
        NotifyPolicy.STATE_CHANGES,
    )
    assert (task.owner, task.session_key, task.parent_task_id) == ("ada", "agent:ada:main", parent.task.id)
    assert (task.origin, task.goal, task.dedup_key) == (origin, "render the title", "title")
    assert (task.created_at, task.started_at) == (clock.now(), None)
    assert details is not None
    assert (details.scope, details.source_id, details.agent_id) == (ScopeKind.SESSION, "job-7", "painter")
    assert details.child_session_key == "agent:painter:sub"


async def test_work_may_be_recorded_when_it_runs_already(store: Store, clock: FakeClock) -> None:
    await create_running(store, clock, "render-1")

    work = await Producers(store, clock).get("render-1")
    assert (work.task.status, work.task.started_at) == (TaskStatus.RUNNING, clock.now())


async def test_a_record_that_breaks_a_rule_is_refused_by_its_name_and_nothing_is_written(
    store: Store, clock: FakeClock
) -> None:
    producers = Producers(store, clock)
    theirs = await producers.create(a_record("theirs", owner="eve"))
    refused: list[tuple[type[HoldfastError], dict[str, object]]] = [
        (OwnerMissing, {"owner": None}),
        (ParentMissing, {"child_session_key": "agent:painter:sub"}),
        (ParentMissing, {"scope": "session"}),
        (RunIdTaken, {"run_id": "theirs", "owner": "eve", "goal": "another"}),
        (NotYours, {"run_id": "theirs"}),
        (NotFound, {"flow_id": "flow_unknown"}),
        (NotFound, {"parent_task_id": "task_unknown"}),
        (NotYours, {"parent_task_id": theirs.task.id}),
    ]

    for error, changes in refused:
        with pytest.raises(error):
            await producers.create(a_record("render-1", **changes))

    assert how_many(store) == 1


@pytest.mark.slow
@pytest.mark.parametrize("scenario", [create_queued, create_running])
async def test_a_producer_that_died_anywhere_repeats_its_call_and_finds_one_record(
    store: Store, clock: FakeClock, scenario: object
) -> None:
    assert callable(scenario)
    points = 0
    async for run_id, point in dead_producers(store, clock, scenario):
        points += 1
        is_there = run_id in store.read_now(lambda tx, run_id=run_id: tx.runs.get_many([run_id]))  # type: ignore[misc]
        assert is_there is (point.where == "after"), f"half a record at {point}"

        await scenario(store, clock, run_id)

        assert how_many(store) == points + 1, f"at {point}"
    assert points > 5
    assert_ledger_is_whole(store)


@pytest.mark.slow
def test_a_producer_that_was_killed_repeats_its_call_and_finds_one_record(place: LedgerAddress) -> None:
    run_ids = killed_producers(place, create_running)
    store = place.open()

    for run_id in run_ids:
        asyncio.run(create_running(store, SystemClock(), run_id))

    assert how_many(store) == len(run_ids) + 1
    assert_ledger_is_whole(store)
    store.close()
