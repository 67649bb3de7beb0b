"""Writes that share a transaction change one flow: each sees what the others did, and undoes only its own."""

from __future__ import annotations

import pytest

from holdfast.core.errors import Conflict
from holdfast.core.transitions import FlowStatus
from holdfast.engine.ledger.flows import (
    FlowChange,
    NewFlow,
    cancelling_flow,
    creating_flow,
    linking,
    updating_flow,
)
from holdfast.engine.ledger.ledger import NewTask, cancelling, creating
from holdfast.engine.recovery.flow_retry import _start_again
from holdfast.store import Store, Tx
from holdfast.testing import FakeClock
from tests.engine.flows import FlowWorker, a_definition, a_node, flow_of, nodes_of, start, taking, tasks_of
from tests.engine.parts import Parts
from tests.engine.tables import execute


@pytest.fixture
def worker(parts: Parts) -> FlowWorker:
    return FlowWorker(parts)


async def test_a_flow_whose_task_joined_in_the_same_transaction_cannot_be_finished(
    store: Store, clock: FakeClock
) -> None:
    now = clock.now()
    flow = await store.write(creating_flow(NewFlow(name="c", owner="ada", controller="me"), now=now))
    change = FlowChange(to=FlowStatus.RUNNING)
    flow = await store.write(updating_flow(flow.id, change, revision=flow.revision, now=now))
    join = creating([NewTask(name="one", goal="g", owner="ada", flow_id=flow.id)], now=now)
    change = FlowChange(to=FlowStatus.SUCCEEDED)
    finish = updating_flow(flow.id, change, revision=flow.revision, now=now)

    def both(tx: Tx) -> None:
        join(tx)
        with pytest.raises(Conflict):
            finish(tx)

    await store.write(both)

    after = await flow_of(store, flow.id)
    assert (after.live, after.has_ended) == (1, False)


async def test_a_write_that_is_undone_leaves_what_another_one_put_off(store: Store, clock: FakeClock) -> None:
    flow = await start(store, clock)
    build = (await tasks_of(store, flow.id))["build"]
    end = cancelling(build.id, reason="x", owner=None, now=clock.now())

    def both(tx: Tx) -> None:
        end(tx)
        mark = tx.mark()
        tx.flows.lock(flow.id)
        deferred = list(tx._deferred)
        tx._deferred.clear()  # as a write does that acts on the flow at once, and then fails
        tx.forget(mark)
        assert tx._deferred == deferred

    await store.write(both)

    after = await flow_of(store, flow.id)
    assert (after.live, after.cancelled, after.status) == (0, 1, FlowStatus.BLOCKED)


async def test_a_retry_that_meets_a_cancel_starts_nothing(
    store: Store, clock: FakeClock, worker: FlowWorker
) -> None:
    nodes = (a_node("a"), a_node("long"), a_node("b", "a", results=(taking("a", "x"),)))
    flow = await start(store, clock, a_definition(*nodes))
    await worker.take()
    await worker.finish("a", {"y": 1})  # b cannot start: the result has no x
    place = (await nodes_of(store, flow.id))["b"].place
    now = clock.now()
    await store.write(cancelling_flow(flow.id, reason="stop", now=now))

    with pytest.raises(Conflict, match="was cancelled"):
        await store.write(lambda tx: _start_again(tx, [place], flow.id, "token", now))


async def test_a_damaged_plan_of_a_later_node_does_not_keep_a_task_from_ending(
    store: Store, clock: FakeClock, worker: FlowWorker
) -> None:
    large = "".join(f"{number:x}" for number in range(80_000))
    flow = await start(store, clock, a_definition(a_node("a"), a_node("b", "a", arguments={"text": large})))
    await worker.take()
    execute(store, "UPDATE blobs SET body = substr(body, 1, 20)")

    await worker.finish("a")

    assert (await flow_of(store, flow.id)).status is FlowStatus.BLOCKED


async def test_a_task_that_a_worker_executes_is_not_linked_afterwards(
    store: Store, clock: FakeClock, parts: Parts, worker: FlowWorker
) -> None:
    await parts.create(name="one")
    await worker.take()
    task = worker.held["one"].task
    flow = await store.write(
        creating_flow(NewFlow(name="m", owner=task.owner, mode="task_mirrored"), now=clock.now())
    )

    with pytest.raises(Conflict, match="name the flow when you create"):
        await store.write(linking(flow.id, [task.id], now=clock.now()))
