"""What an audit finds in flows, and what a sweep does about it, on both databases."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from holdfast.core.finding import Finding, FindingCode
from holdfast.core.flow import Flow
from holdfast.core.transitions import FlowStatus
from holdfast.engine.client.flows import Flows
from holdfast.engine.ledger.flows import NewFlow, cancelling_flow
from holdfast.engine.ledger.new_tasks import NewTask
from holdfast.engine.ledger.retention import Pruner
from holdfast.store import Store, Tx
from holdfast.testing import FakeClock
from holdfast.testing.stores import RepeatingStore
from holdfast.upkeep.audit import Audit
from holdfast.upkeep.flow_sweep import FlowChangeKind
from holdfast.upkeep.sweep import Sweep
from tests.builders import a_flow
from tests.engine.flows import FlowWorker, flow_of, start, statuses, tasks_of
from tests.engine.parts import Parts


async def found(store: Store, clock: FakeClock) -> list[Finding]:
    report = await store.read(lambda tx: Audit(tx, now=clock.now()).report())
    return [one for one in report.findings if one.noun == "flow"]


async def codes(store: Store, clock: FakeClock) -> list[FindingCode]:
    return [one.code for one in await found(store, clock)]


async def forget_task(store: Store, task_id: str) -> None:
    """Damage: a task is gone with everything of it."""

    def delete(tx: Tx) -> None:
        task = tx.tasks.get_many([task_id])[task_id]
        tx.runs.delete_of_tasks([task_id])
        tx.tasks.delete([(task.id, task.status, task.runtime.value)], keys_expire_at=task.created_at)

    await store.write(delete)


async def test_a_fresh_or_busy_flow_is_no_finding(store: Store, clock: FakeClock) -> None:
    await start(store, clock)
    await Flows(store, clock).create(NewFlow(name="trip", controller="c"))
    clock.advance(minutes=29)

    assert await codes(store, clock) == []


async def test_stale_flows_are_found_by_their_status(store: Store, clock: FakeClock) -> None:
    flows = Flows(store, clock)
    running = await flows.create(NewFlow(name="running", controller="c"))
    await flows.resume(running.id, revision=1)
    waiting = await flows.create(NewFlow(name="waiting", controller="c"))
    await flows.wait(waiting.id, "visa", revision=1)
    blocked = await start(store, clock)
    worker = FlowWorker(await Parts.begin(store, clock))
    await worker.fail("build")
    empty = await flows.create(NewFlow(name="empty", mode="task_mirrored"))
    clock.advance(minutes=31)

    by_flow = {one.record_ids[0]: (one.code, one.repair) for one in await found(store, clock)}

    assert by_flow == {
        running.id: (FindingCode.STALE_RUNNING, f"holdfast tasks flow cancel {running.id}"),
        waiting.id: (FindingCode.STALE_WAITING, f"holdfast tasks flow show {waiting.id}"),
        blocked.id: (FindingCode.STALE_BLOCKED, f"holdfast tasks flow retry {blocked.id}"),
        empty.id: (FindingCode.MISSING_LINKED_TASKS, f"holdfast tasks flow cancel {empty.id}"),
    }


async def test_a_cancelled_flow_whose_tasks_do_not_stop_is_shown_with_them(
    store: Store, clock: FakeClock
) -> None:
    flow = await start(store, clock)
    await FlowWorker(await Parts.begin(store, clock)).take()
    await Flows(store, clock).cancel(flow.id, reason="enough")
    clock.advance(minutes=4)
    early = await codes(store, clock)
    clock.advance(minutes=2)

    (stuck,) = await found(store, clock)

    assert early == []
    assert (stuck.code, stuck.evidence["live_tasks"]) == (FindingCode.CANCEL_STUCK, 1)
    assert "1 task is alive, and did not stop" in stuck.message
    assert stuck.repair == f"holdfast tasks flow show {flow.id}"
    assert (await Sweep(store, clock).plan()).flows == []


@pytest.mark.parametrize("wrong", ["updated_at", "cancel_requested_at", "ended_at"])
async def test_times_that_cannot_be_are_a_finding(store: Store, clock: FakeClock, wrong: str) -> None:
    before = clock.now() - timedelta(minutes=1)
    status = FlowStatus.CANCELLED if wrong == "ended_at" else FlowStatus.RUNNING
    facts = {"created_at": clock.now(), "updated_at": clock.now(), "ended_at": None, "status": status}
    await store.write(lambda tx: tx.flows.create(a_flow(**facts | {wrong: before})))

    (one,) = await found(store, clock)

    assert one.code is FindingCode.INCONSISTENT_TIMESTAMPS
    assert "before it was created" in one.message


async def unasked_cancel(store: Store, clock: FakeClock) -> Flow:
    """A cancel whose process died before it had asked a task that was just starting."""
    flow = await start(store, clock)

    def request(tx: Tx) -> None:
        before = tx.flows.lock(flow.id)
        after = msgspec.structs.replace(
            before, cancel_requested_at=clock.now(), cancel_reason="enough", revision=before.revision + 1
        )
        tx.flows.save(before, after)

    await store.write(request)
    return await flow_of(store, flow.id)


async def test_a_sweep_stops_what_a_cancelled_flow_has_left(store: Store, clock: FakeClock) -> None:
    flow = await unasked_cancel(store, clock)
    clock.advance(minutes=6)
    sweep = Sweep(store, clock)
    before = await codes(store, clock)

    plan = await sweep.plan()
    swept = await sweep.apply(plan)
    again = await sweep.apply(plan)

    assert before == [FindingCode.CANCEL_STUCK]
    assert [(one.kind, one.flow_id) for one in plan.flows] == [(FlowChangeKind.STOP, flow.id)]
    assert (swept.flows.reconciled, again.flows.reconciled) == (1, 0)
    assert (await flow_of(store, flow.id)).status is FlowStatus.CANCELLED
    assert await codes(store, clock) == []


async def test_a_flow_whose_task_is_gone_is_blocked_by_its_node(store: Store, clock: FakeClock) -> None:
    flow = await start(store, clock)
    await forget_task(store, (await tasks_of(store, flow.id))["build"].id)
    clock.advance(minutes=1)
    sweep = Sweep(RepeatingStore(store), clock)
    before = await codes(store, clock)

    swept = await sweep.apply(await sweep.plan())

    after = await flow_of(store, flow.id)
    assert before == [FindingCode.MISSING_LINKED_TASKS]
    assert swept.flows.reconciled == 1
    assert (after.status, after.live, after.lost) == (FlowStatus.BLOCKED, 0, 1)
    assert (await statuses(store, flow.id))["build"] == "failed"
    assert await codes(store, clock) == [FindingCode.BLOCKED_TASK_MISSING]
    assert (await sweep.plan()).flows == []


async def test_a_mirrored_flow_whose_task_is_gone_is_lost(store: Store, clock: FakeClock) -> None:
    ledger = (await Parts.begin(store, clock)).ledger
    flow = await Flows(store, clock, owner="ada").create(NewFlow(name="mirror", mode="task_mirrored"))
    mirrored = await ledger.create(NewTask(name="solo", goal="solo", owner="ada", flow_id=flow.id))
    await forget_task(store, mirrored.id)
    clock.advance(minutes=1)
    sweep = Sweep(store, clock)

    await sweep.apply(await sweep.plan())

    assert (await flow_of(store, flow.id)).status is FlowStatus.LOST


async def test_an_ended_flow_is_deleted_with_its_nodes_after_its_retention(
    store: Store, clock: FakeClock
) -> None:
    flow, live = await start(store, clock), await start(store, clock)
    await store.write(cancelling_flow(flow.id, reason="enough", now=clock.now()))
    sweep = Sweep(store, clock)
    early = await sweep.plan()
    clock.advance(days=31)

    plan = await sweep.plan()
    swept = await sweep.apply(plan)

    assert early.flows == []
    assert [(one.kind, one.flow_id) for one in plan.flows] == [(FlowChangeKind.PRUNE, flow.id)]
    assert swept.flows.pruned == 1
    assert await store.read(lambda tx: tx.flows.find(flow.id)) is None
    assert await statuses(store, flow.id) == {}
    assert (await flow_of(store, live.id)).status is FlowStatus.RUNNING


async def test_the_pruner_deletes_ended_flows(store: Store, clock: FakeClock) -> None:
    flow = await start(store, clock)
    await store.write(cancelling_flow(flow.id, reason="enough", now=clock.now()))
    clock.advance(days=31)

    assert (await Pruner(store, clock).run_once()).flows == 1
    assert (await Pruner(store, clock).run_once()).flows == 0


async def test_an_ended_flow_without_a_stamp_gets_one(store: Store, clock: FakeClock) -> None:
    flow = await Flows(store, clock).create(NewFlow(name="old", mode="task_mirrored"))
    # As an earlier release ended it.
    await store.write(lambda tx: tx.flows.move(flow.id, FlowStatus.SUCCEEDED, now=clock.now()))
    sweep = Sweep(store, clock)

    swept = await sweep.apply(await sweep.plan())

    after = await flow_of(store, flow.id)
    assert swept.flows.stamped == 1
    assert after.cleanup_after == clock.now() + timedelta(days=30)
