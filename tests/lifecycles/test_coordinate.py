"""Coordinate a flow: whatever process dies, and however many drive it, each node starts exactly once."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import select
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial

import psycopg
import pytest

from holdfast.core.clock import Clock, SystemClock
from holdfast.core.errors import Conflict, RevisionMismatch
from holdfast.core.events import EventKind
from holdfast.core.flow import Flow
from holdfast.core.flow_definition import FlowDefinition
from holdfast.core.transitions import FlowStatus
from holdfast.engine.client import flows as client_flows
from holdfast.engine.client.flows import Flows, state_of
from holdfast.engine.ledger import flows as ledger_flows
from holdfast.engine.ledger import ledger
from holdfast.engine.ledger.flows import NewFlow, stopping_rest
from holdfast.engine.ledger.ledger import Ledger
from holdfast.engine.producers.producers import Producers
from holdfast.store import Store
from holdfast.store.events import START
from holdfast.testing import Crashed, FailingStore, Failpoint, FakeClock
from holdfast.upkeep.sweep import Sweep
from tests.crash.invariants import assert_ledger_is_whole
from tests.crash.ledger_address import LedgerAddress
from tests.crash.processes import Barrier, Pipe, assert_ended_well, fork
from tests.engine.flows import RELEASE, FlowWorker, a_definition, a_node, nodes_of, start, tasks_of
from tests.engine.parts import Parts
from tests.lifecycles.deaths import a_record, dead_producers, killed_producers

# Short, so that the next process need not wait for the death of the last one.
LEASE = timedelta(milliseconds=50)
# So few tasks are asked to stop by one write, so that a small flow has several writes.
MOST_STOPPED = 20
# How long a paused write waits for a cancel that may wait for the write.
WAITS_FOR_LOCK_S = 0.1
TWO = a_definition(a_node("first"), a_node("second", "first"))


async def drive(store: Store, clock: Clock, key: str, *, recovers: bool = True) -> Flow:
    """Start the release, or find it, and end its tasks until it has ended: what a gateway does."""
    flows = Flows(store, clock)
    flow = await flows.create(NewFlow(definition=RELEASE, key=key))
    parts = await Parts.begin(store, clock, lease=LEASE)
    while not (flow := await flows.get(flow.id)).has_ended:
        if recovers:
            await parts.recover()
        claimed = await parts.claims.take(100)
        await asyncio.gather(*(parts.ledger.finish(one.claim, one.task.name) for one in claimed))
    return flow


async def assert_each_node_once(store: Store, flow: Flow) -> None:
    nodes = await nodes_of(store, flow.id)
    tasks = await store.read(lambda tx: tx.tasks.of_flow(flow.id, limit=1000))
    assert {node.task_id for node in nodes.values()} == {task.id for task in tasks}
    assert len(tasks) == len(nodes)
    for task in tasks:
        events = await store.read(lambda tx: tx.events.of_task(task.id, START))  # noqa: B023 - read at once
        kinds = Counter(event.kind for event in events)
        assert (kinds[EventKind.TASK_CREATED], kinds[EventKind.TASK_ENDED]) == (1, 1), task.name


# --- a process that dies


async def test_a_gateway_that_dies_anywhere_leaves_a_flow_that_the_next_one_ends(
    store: Store, clock: FakeClock
) -> None:
    whole = FailingStore(store)
    await drive(whole, clock, "whole", recovers=False)
    # Before and after every write, and after every fifth statement inside one.
    points = [
        point for number, point in enumerate(whole.failpoints()) if point.where != "inside" or number % 5 == 0
    ]
    for number, point in enumerate(points):
        dying = FailingStore(store, [point])
        with contextlib.suppress(Crashed):
            await drive(dying, clock, f"r{number}", recovers=False)
        clock.advance(hours=1)

        flow = await drive(store, clock, f"r{number}")

        assert flow.status is FlowStatus.SUCCEEDED, point
        await assert_each_node_once(store, flow)
    assert_ledger_is_whole(store)


async def control(store: Store, clock: Clock, run_id: str) -> None:
    """A controller and a producer: the controller's state says what was done, so that it can go on."""
    flows, producers = Flows(store, clock, owner="ada"), Producers(store, clock)
    flow = await flows.create(NewFlow(name="dig", controller="digger", state={"step": 0}, key=run_id))
    while not flow.has_ended:
        try:
            flow = await one_step(flows, producers, await flows.get(flow.id), run_id)
        except (RevisionMismatch, Conflict):
            continue  # the controller before it had gone on; read it again


async def one_step(flows: Flows, producers: Producers, flow: Flow, run_id: str) -> Flow:
    match state_of(flow):
        case {"step": 0}:
            return await flows.wait(flow.id, {"for": "a permit"}, revision=flow.revision, state={"step": 1})
        case {"step": 1}:
            return await flows.resume(flow.id, revision=flow.revision, state={"step": 2})
        case {"step": 2}:
            await producers.create(a_record(run_id, flow_id=flow.id, runtime="acp"), is_running=True)
            await producers.finish(run_id, 7)
            return await flows.resume(flow.id, revision=flow.revision, state={"step": 3})
        case _:
            return await flows.finish(flow.id, revision=flow.revision, state={"step": 4})


async def test_a_controller_that_dies_anywhere_is_followed_by_one_that_goes_on(
    store: Store, clock: FakeClock
) -> None:
    async for run_id, point in dead_producers(store, clock, control):
        await control(store, clock, run_id)

        (flow,) = await flows_with(store, run_id)
        assert (flow.status, state_of(flow), flow.succeeded) == (FlowStatus.SUCCEEDED, {"step": 4}, 1), point
    assert_ledger_is_whole(store)


async def flows_with(store: Store, key: str) -> list[Flow]:
    flows = await store.read(lambda tx: tx.flows.page(limit=1000))
    return [flow for flow in flows if flow.dedup_key == key]


@pytest.mark.slow
async def test_a_cancel_that_dies_anywhere_is_repeated_or_finished_by_a_sweep(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (ledger, ledger_flows):
        monkeypatch.setattr(module, "MOST_STOPPED", MOST_STOPPED)
    monkeypatch.setattr(client_flows, "stopping_rest", partial(stopping_rest, limit=MOST_STOPPED))
    # More running tasks than one write asks to stop.
    running = [f"n{number}" for number in range(MOST_STOPPED + 5)]
    wide = a_definition(*map(a_node, running), a_node("last", "n0"))
    worker, flows = FlowWorker(await Parts.begin(store, clock)), Flows(store, clock)
    points = await points_of_cancel(store, clock, worker, wide)
    recorded = 0
    for point in points:
        flow = await start(store, clock, wide)
        await worker.take()
        await die_at(point, store, lambda dying: Flows(dying, clock).cancel(flow.id, reason="enough"))  # noqa: B023 - called at once

        if (await flows.get(flow.id)).cancel_requested_at is None:
            await flows.cancel(flow.id, reason="enough")
        else:
            recorded += 1
            sweep = Sweep(store, clock)
            await sweep.apply(await sweep.plan())

        assert await store.read(lambda tx: tx.tasks.to_stop(flow.id, limit=1)) == [], point  # noqa: B023
        await asyncio.gather(*map(worker.finish, running))
        assert (await flows.get(flow.id)).status is FlowStatus.CANCELLED, point
    assert 0 < recorded < len(points)
    assert_ledger_is_whole(store)


async def points_of_cancel(
    store: Store, clock: FakeClock, worker: FlowWorker, definition: FlowDefinition
) -> list[Failpoint]:
    """Before and after each write of a cancel, and after every twentieth statement inside one."""
    flow = await start(store, clock, definition)
    await worker.take()
    whole = FailingStore(store)
    await Flows(whole, clock).cancel(flow.id, reason="enough")
    await asyncio.gather(*map(worker.finish, worker.held.copy()))
    assert len(whole.calls) > 1
    return [point for point in whole.failpoints() if point.where != "inside" or point.statement % 20 == 1]


async def die_at(point: Failpoint, store: Store, act: Callable[[Store], Awaitable[object]]) -> None:
    dying = FailingStore(store, [point])
    with contextlib.suppress(Crashed):
        await act(dying)
    assert dying.is_dead, f"{point} was not reached"


async def test_a_retry_that_dies_anywhere_is_repeated_and_runs_only_what_failed(
    store: Store, clock: FakeClock
) -> None:
    worker, flows = FlowWorker(await Parts.begin(store, clock)), Flows(store, clock)
    whole = FailingStore(store)
    await Flows(whole, clock).retry(await blocked(store, clock, worker))
    await worker.finish("test")
    await worker.finish("publish")
    for point in whole.failpoints():
        flow_id = await blocked(store, clock, worker)
        await die_at(point, store, lambda dying: Flows(dying, clock).retry(flow_id))  # noqa: B023 - called at once

        if (await flows.get(flow_id)).status is FlowStatus.BLOCKED:
            await flows.retry(flow_id)
        assert await worker.take() == {"test"}, point
        await worker.finish("test")
        await worker.finish("publish")

        assert (await flows.get(flow_id)).status is FlowStatus.SUCCEEDED, point
        ends = {
            name: await ends_of(store, task.id) for name, task in (await tasks_of(store, flow_id)).items()
        }
        assert ends == {"build": 1, "test": 2, "lint": 1, "publish": 1}, point
    assert_ledger_is_whole(store)


async def blocked(store: Store, clock: FakeClock, worker: FlowWorker) -> str:
    flow = await start(store, clock)
    await worker.finish("build")
    await worker.fail("test")
    await worker.finish("lint")
    return flow.id


async def ends_of(store: Store, task_id: str) -> int:
    events = await store.read(lambda tx: tx.events.of_task(task_id, START))
    return sum(event.kind is EventKind.TASK_ENDED for event in events)


async def mirror(store: Store, clock: Clock, run_id: str) -> None:
    producers = Producers(store, clock)
    work = await producers.create(
        a_record(run_id, runtime="subagent", scope="session", session_key="agent:a:main")
    )
    await producers.start(work.run.id)
    await producers.lose(work.run.id, why="its machine is gone")


async def test_a_mirrored_flow_is_lost_with_its_task_wherever_its_producer_dies(
    store: Store, clock: FakeClock
) -> None:
    async for run_id, point in dead_producers(store, clock, mirror):
        await mirror(store, clock, run_id)

        work = await Producers(store, clock).get(run_id)
        flow = await store.read(lambda tx: tx.flows.get(str(work.task.flow_id)))  # noqa: B023 - read at once
        assert (flow.status, flow.lost, flow.live) == (FlowStatus.LOST, 1, 0), point
    assert_ledger_is_whole(store)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", [control, mirror])
def test_processes_killed_with_sigkill_leave_flows_that_others_end(
    place: LedgerAddress, scenario: object
) -> None:
    run_ids = killed_producers(place, scenario)  # type: ignore[arg-type]

    store = place.open()
    for run_id in run_ids:
        asyncio.run(scenario(store, SystemClock(), run_id))  # type: ignore[operator]
    flows = store.read_now(lambda tx: tx.flows.page(limit=1000))
    ends = {flow.status for flow in flows}
    assert ends == {FlowStatus.LOST if scenario is mirror else FlowStatus.SUCCEEDED}
    assert len(flows) == len(run_ids) + 1
    assert_ledger_is_whole(store)
    store.close()


@pytest.mark.slow
def test_gateways_killed_with_sigkill_leave_nodes_that_start_exactly_once(place: LedgerAddress) -> None:
    store = FailingStore(place.open())
    asyncio.run(drive(store, SystemClock(), "whole", recovers=False))
    points = store.failpoints()
    store.close()
    # Each ninth point, of another flow; tasks that a dead gateway left are ended by a later one.
    killed = [
        fork_and_wait(partial(die, place, f"r{number}", point)) for number, point in enumerate(points[::9])
    ]

    whole = place.open()
    for number in range(len(killed)):
        flow = asyncio.run(drive(whole, SystemClock(), f"r{number}"))
        assert flow.status is FlowStatus.SUCCEEDED
        asyncio.run(assert_each_node_once(whole, flow))
    assert killed.count(-signal.SIGKILL) > len(killed) // 2
    assert_ledger_is_whole(whole)
    whole.close()


def fork_and_wait(work: Callable[[], object]) -> int:
    _, status = os.waitpid(fork(work), 0)
    return os.waitstatus_to_exitcode(status)


def die(place: LedgerAddress, key: str, point: Failpoint) -> None:
    store = FailingStore(place.open(), [point], act=lambda: os.kill(os.getpid(), signal.SIGKILL))

    async def live() -> None:
        async with asyncio.timeout(5):
            await drive(store, SystemClock(), key)

    asyncio.run(live())


# --- several processes at once


def layered(width: int, depth: int) -> FlowDefinition:
    """Each node of a layer needs every node of the layer before: joins that race."""
    layers = [[f"n{layer}-{place}" for place in range(width)] for layer in range(depth)]
    nodes = [a_node(one) for one in layers[0]]
    for before, layer in itertools.pairwise(layers):
        nodes += [a_node(one, *before) for one in layer]
    return a_definition(*nodes, name="layers")


FLOWS, WIDTH, DEPTH = 6, 3, 3


@pytest.mark.slow
def test_two_gateways_that_advance_the_same_flows_start_each_node_once(place: LedgerAddress) -> None:
    assert_ended_well(fork(partial(start_flows, place, FLOWS, layered(WIDTH, DEPTH))))
    barrier = Barrier()
    racers = [fork(partial(end_tasks, place, barrier)) for _ in range(2)]
    barrier.open(len(racers))
    for racer in racers:
        assert_ended_well(racer)

    store = place.open()
    for flow in store.read_now(lambda tx: tx.flows.page(limit=100)):
        assert (flow.status, flow.succeeded) == (FlowStatus.SUCCEEDED, WIDTH * DEPTH)
        asyncio.run(assert_each_node_once(store, flow))
    assert_ledger_is_whole(store)
    store.close()


def start_flows(place: LedgerAddress, count: int, definition: FlowDefinition) -> None:
    async def start_all() -> None:
        flows = Flows(store, store.clock)
        for number in range(count):
            await flows.create(NewFlow(definition=definition, key=f"k{number}"))

    store = place.open()
    asyncio.run(start_all())
    store.close()


def end_tasks(place: LedgerAddress, barrier: Barrier) -> None:
    async def end_all() -> None:
        parts = await Parts.begin(store, store.clock)
        while any(not flow.has_ended for flow in await store.read(lambda tx: tx.flows.page(limit=100))):
            claimed = await parts.claims.take(5)
            await asyncio.gather(*(parts.ledger.finish(one.claim, 1) for one in claimed))

    store = place.open()
    barrier.arrive()
    asyncio.run(end_all())
    store.close()


@pytest.mark.slow
def test_a_cancel_at_any_statement_of_a_starting_node_stops_it_or_keeps_it_from_starting(
    place: LedgerAddress,
) -> None:
    """The end of `first` starts `second`. It pauses at one of its statements, and another process cancels."""
    paused, cancelled = Pipe(), Pipe()
    racers = [
        fork(partial(pause_at_each_point, place, paused, cancelled)),
        fork(partial(cancel_when_paused, place, paused, cancelled)),
    ]
    paused.close()
    cancelled.close()
    for racer in racers:
        assert_ended_well(racer)

    store = place.open()
    met = Counter[str]()
    for flow in store.read_now(lambda tx: tx.flows.page(limit=500)):
        tasks = {task.name: task for task in store.read_now(lambda tx: tx.tasks.of_flow(flow.id))}  # noqa: B023
        met[tasks["second"].status.value if "second" in tasks else "kept"] += 1
        assert (flow.status, flow.live) == (FlowStatus.CANCELLED, 0), flow.dedup_key
    assert met.keys() == {"kept", "cancelled"}
    assert_ledger_is_whole(store)
    store.close()
    assert deadlocks(place) == 0, "a cancel and an end lock tasks before flows"


def deadlocks(place: LedgerAddress) -> int:
    """How many the server has resolved; a store runs such a write again, and tells no caller."""
    if place.is_file:
        return 0
    with psycopg.connect(place.url) as connection:
        found = connection.execute(
            "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
    assert found is not None
    return int(found[0])


def pause_at_each_point(place: LedgerAddress, paused: Pipe, cancelled: Pipe) -> None:
    """End the first task of one flow after another, each time with a pause at the next point of the write."""

    async def end_first(store: FailingStore, key: str) -> None:
        flow = await Flows(inner, inner.clock).create(NewFlow(definition=TWO, key=key))
        (claimed,) = await parts.claims.take()
        flow_ids.append(flow.id)
        await Ledger(store, store.clock).finish(claimed.claim, 1)

    def meet(point: Failpoint) -> None:
        paused.say(flow_ids[-1])
        # The cancel may need a lock that this write holds: then the write has to go on first.
        patience = WAITS_FOR_LOCK_S if point.where == "inside" else None
        select.select([cancelled.reading], [], [], patience)

    cancelled.only_hear()
    inner = place.open()
    flow_ids: list[str] = []
    parts = asyncio.run(Parts.begin(inner, inner.clock))
    recorded = FailingStore(inner)
    asyncio.run(end_first(recorded, "recorded"))
    paused.say(flow_ids[-1])
    assert cancelled.hear() == flow_ids[-1]
    for point in recorded.failpoints():
        asyncio.run(end_first(FailingStore(inner, [point], act=partial(meet, point)), str(point)))
        assert cancelled.hear() == flow_ids[-1], point
    inner.close()


def cancel_when_paused(place: LedgerAddress, paused: Pipe, cancelled: Pipe) -> None:
    paused.only_hear()
    store = place.open()
    flows = Flows(store, store.clock)
    while flow_id := paused.hear():
        asyncio.run(flows.cancel(flow_id, reason="a freeze"))
        cancelled.say(flow_id)
    store.close()


async def test_a_frozen_gateway_that_wakes_up_late_does_not_advance_the_flow(
    store: Store, clock: FakeClock
) -> None:
    flow = await Flows(store, clock).create(NewFlow(definition=RELEASE))
    frozen = await Parts.begin(store, clock)
    (held,) = await frozen.claims.take()
    clock.advance(hours=1)
    other = await Parts.begin(store, clock)
    await other.recover()

    with pytest.raises(Conflict):
        await frozen.ledger.finish(held.claim, "late")

    assert [node.status.value for node in (await nodes_of(store, flow.id)).values()][1:] == ["pending"] * 3
