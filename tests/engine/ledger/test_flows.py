"""Flows: nodes start in order and once, failures block, cancels stick, mirrors follow, revisions guard."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from holdfast.core.errors import (
    BadInput,
    ClaimLost,
    Conflict,
    FlowsBlended,
    HoldfastError,
    IllegalMove,
    KeyConflict,
    NotFound,
    NotYours,
    Refused,
    RevisionMismatch,
)
from holdfast.core.events import EventKind
from holdfast.core.flow import Flow, FlowMode, NeededResult
from holdfast.core.task import Failure, NotifyPolicy
from holdfast.core.transitions import FlowStatus, TaskStatus
from holdfast.engine.ledger.batched_ends import GoodEnd, ending
from holdfast.engine.ledger.flows import (
    FlowAlreadyEnded,
    FlowCancelled,
    FlowCancelRequested,
    FlowChange,
    NewFlow,
    cancelling_flow,
    creating_flow,
    linking,
    stopping_rest,
    updating_flow,
)
from holdfast.engine.ledger.ledger import cancelling
from holdfast.engine.ledger.retention import pruning_tasks
from holdfast.engine.producers.producers import Producers
from holdfast.engine.producers.writes import NewRecord
from holdfast.engine.recovery.flow_retry import retrying_flow
from holdfast.engine.recovery.operator_retry import retrying_task
from holdfast.store import Store, Tx
from holdfast.testing import FakeClock, RepeatingStore
from tests.builders import later
from tests.crash.invariants import assert_ledger_is_whole
from tests.engine.flows import (
    BROKEN,
    RELEASE,
    FlowWorker,
    a_definition,
    a_node,
    flow_of,
    nodes_of,
    start,
    statuses,
    taking,
    tasks_of,
)
from tests.engine.parts import Parts
from tests.engine.tables import execute

SECRET = "sk-ant-api03-" + "A1b2C3d4" * 10


@pytest.fixture
def worker(parts: Parts) -> FlowWorker:
    return FlowWorker(parts)


# --- nodes in order


async def test_a_node_starts_when_all_that_it_needs_has_succeeded_and_the_flow_ends_with_the_last(
    store: Store, clock: FakeClock, worker: FlowWorker
) -> None:
    flow = await start(store, clock)
    assert (flow.status, flow.live, flow.waits_on) == (FlowStatus.RUNNING, 1, "tasks")
    assert await worker.take() == {"build"}

    await worker.finish("build")
    assert await worker.take() == {"test", "lint"}
    await worker.finish("test")
    assert await worker.take() == {"lint"}, "publish needs both"
    await worker.finish("lint")
    await worker.finish("publish")

    ended = await flow_of(store, flow.id)
    assert (ended.status, ended.succeeded, ended.live) == (FlowStatus.SUCCEEDED, 4, 0)
    assert ended.ended_at is not None
    assert ended.cleanup_after is not None
    tasks = await tasks_of(store, flow.id)
    assert {task.dedup_key for task in tasks.values()} == {f"{flow.id}:{name}" for name in tasks}
    assert_ledger_is_whole(store)


async def test_a_node_takes_results_of_its_needs_as_arguments(
    store: Store, clock: FakeClock, worker: FlowWorker
) -> None:
    definition = a_definition(
        a_node("build"),
        a_node(
            "check",
            arguments={"text": None, "deep": [None, "kept"]},
            results=(taking("build"), taking("build", "parts", 1, to="part")),
        ),
    )
    flow = await start(store, clock, definition)

    await worker.finish("build", {"parts": ["a", SECRET]})

    task_id = (await nodes_of(store, flow.id))["check"].task_id
    task = await store.read(lambda tx: tx.tasks.get(str(task_id)))
    assert msgspec.json.decode(task.arguments) == {
        "text": {"parts": ["a", SECRET]},
        "deep": [None, "kept"],
        "part": SECRET,
    }


async def test_several_nodes_that_end_in_one_write_start_what_follows_once(
    store: Store, clock: FakeClock, worker: FlowWorker
) -> None:
    flow = await start(store, clock)
    other = await start(store, clock, a_definition(a_node("alone")))
    await worker.finish("build")
    await worker.take()
    ends = [
        GoodEnd(claim=held.claim, task=held.task, result=b"1", alone=lambda _now: lambda _tx: True)
        for held in worker.held.values()
    ]

    await store.write(ending(ends, now=clock.now()))

    assert await statuses(store, flow.id) == {
        "build": "succeeded",
        "test": "succeeded",
        "lint": "succeeded",
        "publish": "running",
    }
    assert (await flow_of(store, other.id)).status is FlowStatus.SUCCEEDED
    assert_ledger_is_whole(store)


async def test_every_write_of_a_flow_may_run_again_after_its_own_commit(
    store: Store, clock: FakeClock
) -> None:
    again = RepeatingStore(store)
    worker = FlowWorker(await Parts.begin(again, clock))
    flow = await start(again, clock, key="r1")
    await worker.finish("build")
    await worker.fail("test")
    await again.write(retrying_flow(flow.id, now=clock.now()))
    await worker.finish("lint")
    clock.advance(seconds=1)

    await again.write(cancelling_flow(flow.id, reason="enough", now=clock.now()))
    await worker.fail("test")

    assert (await flow_of(store, flow.id)).status is FlowStatus.CANCELLED
    assert_ledger_is_whole(store)


# --- failures


async def test_a_failed_node_blocks_the_flow_its_siblings_go_on_and_a_retry_repeats_only_that_node(
    store: Store, clock: FakeClock, worker: FlowWorker
) -> None:
    flow = await start(store, clock)
    await worker.finish("build")
    await worker.fail("test")

    blocked = await flow_of(store, flow.id)
    tasks = await tasks_of(store, flow.id)
    assert blocked.status is FlowStatus.BLOCKED
    assert blocked.blocked_by_task_id == tasks["test"].id
    assert blocked.waits_on == f"task:{tasks['test'].id}"
    await worker.finish("lint")
    assert await worker.take() == set(), "what needs the failed node waits"

    retried = await store.write(retrying_flow(flow.id, now=clock.now()))

    assert (retried.status, retried.blocked_by_task_id) == (FlowStatus.RUNNING, None)
    assert await worker.take() == {"test"}
    await worker.finish("test")
    await worker.finish("publish")
    assert (await flow_of(store, flow.id)).status is FlowStatus.SUCCEEDED
    assert len(await tasks_of(store, flow.id)) == 4
    assert_ledger_is_whole(store)


async def test_a_flow_with_several_failed_nodes_is_blocked_until_each_was_retried(
    store: Store, clock: FakeClock, worker: FlowWorker
) -> None:
    flow = await start(store, clock)
    await worker.finish("build")
    await worker.fail("lint")
    await worker.fail("test")
    tasks = await tasks_of(store, flow.id)
    assert (await flow_of(store, flow.id)).blocked_by_task_id == tasks["lint"].id, "the first stays"

    # A person may retry the task itself just as well.
    await store.write(retrying_task(tasks["lint"].id, now=clock.now()))
    half = await flow_of(store, flow.id)
    with pytest.raises(BadInput, match=r"lint of .* is running"):
        await store.write(retrying_flow(flow.id, node_id="lint", now=clock.now()))
    whole = await store.write(retrying_flow(flow.id, node_id="test", now=clock.now()))

    assert (half.status, half.blocked_by_task_id) == (FlowStatus.BLOCKED, tasks["test"].id)
    assert (whole.status, whole.blocked_by_task_id) == (FlowStatus.RUNNING, None)
    with pytest.raises(IllegalMove, match="nothing blocks it"):
        await store.write(retrying_flow(flow.id, now=clock.now()))


async def test_a_cancelled_node_blocks_its_flow_and_a_retry_of_the_flow_goes_on_with_it(
    store: Store, clock: FakeClock, worker: FlowWorker
) -> None:
    flow = await start(store, clock)
    task_id = (await tasks_of(store, flow.id))["build"].id

    await store.write(cancelling(task_id, reason="not now", owner=None, now=clock.now()))

    assert (await flow_of(store, flow.id)).blocked_by_task_id == task_id
    await store.write(retrying_flow(flow.id, now=clock.now()))
    await worker.finish("build")
    assert await worker.take() == {"test", "lint"}


async def test_a_node_whose_argument_is_gone_fails_and_starts_when_it_is_retried(
    store: Store, clock: FakeClock, worker: FlowWorker
) -> None:
    definition = a_definition(
        a_node("build"),
        a_node("wait"),
        a_node("check", "wait", arguments={"text": None}, results=(taking("build", "part"),)),
        name="missing",
    )
    flow = await start(store, clock, definition)
    await worker.finish("build", {})

    await worker.finish("wait")

    blocked = await flow_of(store, flow.id)
    node = (await nodes_of(store, flow.id))["check"]
    assert (blocked.status, blocked.waits_on, blocked.live) == (FlowStatus.BLOCKED, "node:check", 0)
    assert node.failure is not None
    assert "takes 'part' of the result of build" in node.failure.message
    again = await store.write(retrying_flow(flow.id, now=clock.now()))
    assert (again.status, again.failed) == (FlowStatus.BLOCKED, 1)
    await store.write(cancelling_flow(flow.id, reason="give up", now=clock.now()))
    assert (await flow_of(store, flow.id)).status is FlowStatus.CANCELLED


async def test_a_task_of_a_live_flow_is_not_pruned_and_a_missing_one_blocks_what_takes_its_result(
    store: Store, clock: FakeClock, worker: FlowWorker
) -> None:
    definition = a_definition(
        a_node("build"),
        a_node("wait"),
        a_node("check", "wait", arguments={"text": None}, results=(taking("build"),)),
    )
    flow = await start(store, clock, definition)
    await worker.finish("build")
    build = (await tasks_of(store, flow.id))["build"]
    clock.advance(days=100)

    assert await store.write(pruning_tasks(now=clock.now())) == []

    ended = [(build.id, TaskStatus.SUCCEEDED, "ada")]

    def prune(tx: Tx) -> None:
        tx.runs.delete_of_tasks([build.id])
        tx.tasks.delete(ended, keys_expire_at=later(days=200))

    await store.write(prune)
    await worker.finish("wait")
    node = (await nodes_of(store, flow.id))["check"]
    assert node.failure is not None
    assert "whose task is gone" in node.failure.message
    assert (await flow_of(store, flow.id)).status is FlowStatus.BLOCKED


async def test_a_node_that_could_not_start_starts_when_what_it_lacked_is_there_again(
    store: Store, clock: FakeClock, worker: FlowWorker
) -> None:
    definition = a_definition(
        a_node("build"),
        a_node("wait"),
        a_node("check", "wait", arguments={"text": None}, results=(taking("build"),)),
    )
    flow = await start(store, clock, definition)
    await worker.finish("build", 7)
    build = (await tasks_of(store, flow.id))["build"]
    execute(store, f"UPDATE tasks SET goal = 'other' WHERE id = '{build.id}'")
    await worker.finish("wait")
    damaged = await flow_of(store, flow.id)
    execute(store, f"UPDATE tasks SET goal = '{build.goal}' WHERE id = '{build.id}'")

    answers = await asyncio.gather(
        *(store.write(retrying_flow(flow.id, now=clock.now())) for _ in range(3)), return_exceptions=True
    )

    assert sum(isinstance(answer, Flow) for answer in answers) == 1, "the others are told that it goes on"
    retried = await flow_of(store, flow.id)
    assert damaged.failure is not None
    assert damaged.failure.kind == "row_damaged"
    assert (retried.status, retried.failure, retried.live) == (FlowStatus.RUNNING, None, 1)
    await worker.finish("check")
    assert (await flow_of(store, flow.id)).status is FlowStatus.SUCCEEDED


async def test_a_damaged_node_keeps_no_task_from_ending_and_blocks_its_flow(
    store: Store, clock: FakeClock, worker: FlowWorker
) -> None:
    flow = await start(store, clock)
    execute(store, f"UPDATE flow_nodes SET node_id = 'bilge' WHERE flow_id = '{flow.id}' AND place = '00000'")

    await worker.finish("build")

    blocked = await flow_of(store, flow.id)
    assert (await tasks_of(store, flow.id))["build"].status is TaskStatus.SUCCEEDED
    assert (blocked.status, blocked.waits_on) == (FlowStatus.BLOCKED, "operator")
    assert blocked.failure is not None
    assert blocked.failure.kind == "damaged_node"
    with pytest.raises(IllegalMove, match="nothing of it can be retried"):
        await store.write(retrying_flow(flow.id, now=clock.now()))
    assert any("flow node" in problem or "flow_node" in problem for problem in store.verify())
    outcome = await store.write(cancelling_flow(flow.id, reason="damaged", now=clock.now()))
    assert isinstance(outcome, FlowCancelled)


async def test_a_missing_node_is_found_by_the_check_that_the_flow_advises(
    store: Store, clock: FakeClock, worker: FlowWorker
) -> None:
    flow = await start(store, clock)
    await start(store, clock, a_definition(a_node("other")))
    execute(store, f"DELETE FROM flow_nodes WHERE flow_id = '{flow.id}' AND place = '00000'")
    await worker.finish("build")

    blocked = await flow_of(store, flow.id)

    assert blocked.failure is not None
    assert "holdfast store verify" in blocked.failure.message
    assert store.verify() == [f"flow {flow.id} is damaged: it has 3 of its 4 nodes"]


async def test_a_damaged_or_missing_flow_keeps_no_task_from_ending(
    store: Store, clock: FakeClock, worker: FlowWorker
) -> None:
    damaged = await start(store, clock, a_definition(a_node("one")))
    gone = await start(store, clock, a_definition(a_node("two")))
    execute(store, f"UPDATE flows SET goal = 'another' WHERE id = '{damaged.id}'")
    execute(store, f"DELETE FROM flows WHERE id = '{gone.id}'")

    await worker.finish("one")
    await worker.finish("two")

    assert (await tasks_of(store, damaged.id))["one"].status is TaskStatus.SUCCEEDED
    assert (await tasks_of(store, gone.id))["two"].status is TaskStatus.SUCCEEDED


async def test_a_process_that_lost_its_claim_does_not_advance_the_flow(
    store: Store, clock: FakeClock, worker: FlowWorker, others: Parts
) -> None:
    flow = await start(store, clock)
    await worker.take()
    clock.advance(hours=1)
    await others.recover()

    with pytest.raises(ClaimLost):
        await worker.parts.ledger.finish(worker.held["build"].claim)

    assert (await statuses(store, flow.id))["test"] == "pending"
    other = FlowWorker(others)
    await other.finish("build")
    assert await other.take() == {"test", "lint"}


# --- cancel


async def test_a_cancel_is_sticky_stops_what_runs_and_ends_the_flow_with_its_last_task(
    store: Store, clock: FakeClock, worker: FlowWorker
) -> None:
    flow = await start(store, clock)
    await worker.finish("build")
    await worker.take()

    outcome = await store.write(cancelling_flow(flow.id, reason="a freeze", now=clock.now()))

    assert isinstance(outcome, FlowCancelRequested)
    tasks = await tasks_of(store, flow.id)
    assert all(tasks[name].cancel_requested_at is not None for name in ("test", "lint"))
    await worker.finish("test")
    await worker.finish("lint")
    ended = await flow_of(store, flow.id)
    assert (ended.status, ended.cancel_reason) == (FlowStatus.CANCELLED, "a freeze")
    assert (await statuses(store, flow.id))["publish"] == "pending", "nothing starts any more"
    with pytest.raises(Refused, match="which is cancelled"):
        await _retry_after_cancel(store, clock, worker)
    stopped = await start(store, clock, a_definition(a_node("queued")), key="queued")
    await store.write(cancelling_flow(stopped.id, reason="a freeze", now=clock.now()))
    task = (await tasks_of(store, stopped.id))["queued"]
    with pytest.raises(Refused, match="which is cancelled"):  # not the advice to add --cancelled
        await store.write(retrying_task(task.id, now=clock.now()))
    again = await store.write(cancelling_flow(flow.id, reason="again", now=later(hours=2)))
    assert isinstance(again, FlowAlreadyEnded)


async def _retry_after_cancel(store: Store, clock: FakeClock, worker: FlowWorker) -> None:
    flow = await start(store, clock, a_definition(a_node("late")), key="late")
    await worker.fail("late")
    await store.write(cancelling_flow(flow.id, reason="a freeze", now=clock.now()))
    await store.write(retrying_task((await tasks_of(store, flow.id))["late"].id, now=clock.now()))


async def test_the_tasks_of_a_large_cancelled_flow_are_stopped_in_pages(
    store: Store, clock: FakeClock, worker: FlowWorker
) -> None:
    flow = await start(store, clock, a_definition(*(a_node(f"n{number}") for number in range(230))))
    await worker.take()

    await store.write(cancelling_flow(flow.id, reason="too much", now=clock.now()))
    left = await store.read(lambda tx: tx.tasks.to_stop(flow.id, limit=1000))
    # The end of any of its tasks stops more of them, so that no sweep is needed.
    await worker.finish("n0")
    rest = await store.write(stopping_rest(flow.id, now=clock.now()))

    assert len(left) == 130
    assert rest in (29, 30), "the ended task was in either page"
    assert await store.write(stopping_rest(flow.id, now=clock.now())) == 0


# --- keys, owners, bad definitions


async def test_the_same_key_finds_the_first_flow_and_another_definition_is_a_conflict(
    store: Store, clock: FakeClock
) -> None:
    first = await start(store, clock, key="r1")
    clock.advance(seconds=1)

    assert (await start(store, clock, key="r1")).id == first.id
    assert (await start(store, clock, key="r1", owner="bob")).id != first.id
    with pytest.raises(KeyConflict, match="another definition"):
        await start(store, clock, a_definition(a_node("build")), key="r1")


async def test_a_key_outlives_its_flow_and_tells_how_it_ended(
    store: Store, clock: FakeClock, worker: FlowWorker
) -> None:
    definition = a_definition(a_node("build", arguments={"token": SECRET}))
    flow = await start(store, clock, definition, key="r1")
    await worker.finish("build")
    clock.advance(days=31)

    due = await store.write(lambda tx: tx.flows.to_prune(now=clock.now(), limit=10))
    await store.write(lambda tx: tx.flows.delete(due, keys_expire_at=later(days=100)))

    found = await start(store, clock, definition, key="r1")
    assert (found.id, found.status) == (flow.id, FlowStatus.SUCCEEDED)
    assert found.failure is not None
    assert found.failure.kind == "pruned"
    await store.write(lambda tx: tx.flows.forget_keys(now=later(days=101)))
    assert (await start(store, clock, definition, key="r1")).id != flow.id


async def test_a_task_may_not_join_a_flow_that_starts_its_own_nor_one_of_another_owner(
    store: Store, clock: FakeClock, parts: Parts
) -> None:
    defined = await start(store, clock)
    controlled = await store.write(
        creating_flow(NewFlow(name="trip", owner="bob", controller="planner"), now=clock.now())
    )

    with pytest.raises(FlowsBlended, match="starts the tasks of its own definition"):
        await parts.create(flow_id=defined.id)
    with pytest.raises(NotYours):
        await parts.create(flow_id=controlled.id)
    with pytest.raises(NotFound):
        await parts.create(flow_id="flow_none")
    with pytest.raises(FlowsBlended, match="is managed"):
        await store.write(linking(defined.id, [(await parts.create()).id], now=clock.now()))
    with pytest.raises(FlowsBlended, match="follows its definition"):
        await store.write(
            updating_flow(defined.id, FlowChange(to="waiting"), revision=defined.revision, now=clock.now())
        )


def a_result_in(**use: Any) -> NewFlow:
    """A flow whose second node takes the result of the first one."""
    takes = NeededResult(node="a", **use)
    arguments = {"x": None, "rows": [1]}
    return NewFlow(definition=a_definition(a_node("a"), a_node("b", arguments=arguments, results=(takes,))))


def test_a_result_may_fill_a_place_of_the_arguments_or_a_new_name() -> None:
    for to in (("x",), ("new",), ("rows", 0)):
        creating_flow(a_result_in(to=to), now=later())


@pytest.mark.parametrize(
    ("new", "why"),
    [
        (NewFlow(name="x"), "either a definition or a controller"),
        (NewFlow(definition=RELEASE, controller="c"), "either a definition or a controller"),
        (NewFlow(definition=RELEASE, mode="task_mirrored"), "neither a definition nor a controller"),
        (NewFlow(definition=RELEASE, state={}), "only a flow with a controller"),
        (NewFlow(definition=RELEASE, mode="other"), "one of managed, task_mirrored"),
        (NewFlow(controller="c"), "text is needed"),
        (NewFlow(name="x", controller="c", state={1: 2}), "JSON keys must be text"),
        (NewFlow(definition=a_definition()), "has no nodes"),
        (NewFlow(definition=a_definition(a_node("a"), a_node("a"))), "two nodes are called 'a'"),
        (NewFlow(definition=a_definition(a_node("a", "a"))), "it needs itself"),
        (NewFlow(definition=a_definition(a_node("build"), a_node("a", "buidl"))), "did you mean 'build'"),
        (
            NewFlow(definition=a_definition(a_node("a", "c"), a_node("b", "a"), a_node("c", "b"))),
            "in a circle: a → c → b → a",
        ),
        (NewFlow(definition=a_definition(a_node("a", arguments=[1]))), "an object of names and values"),
        (a_result_in(to=()), "to is empty"),
        (a_result_in(to=("x", "y")), r"no place for 'y' of to \['x', 'y'\]"),
        (a_result_in(to=("rows", 1)), "no place for 1"),
        (a_result_in(to=("rows", "0")), "no place for '0'"),
        (a_result_in(to=(0,)), "no place for 0"),
        (a_result_in(to="x"), "to is a list of names"),
        (a_result_in(to=(True,)), "to is a list of names"),
        (a_result_in(to=("x",), path=(None,)), "path is a list of names"),
        (NewFlow(definition=a_definition(a_node("a", runtime="acp"))), "only a producer runs acp"),
        (NewFlow(definition=a_definition(a_node("a", priority=99))), "priority of node a"),
    ],
    ids=str,
)
def test_a_flow_that_cannot_work_is_refused_with_the_reason(new: NewFlow, why: str) -> None:
    with pytest.raises(HoldfastError, match=why):
        creating_flow(new, now=later())


# --- controllers


async def controlled_flow(store: Store, clock: FakeClock, **changes: Any) -> Flow:
    new = NewFlow(**{"name": "trip", "owner": "ada", "controller": "planner"} | changes)
    return await store.write(creating_flow(new, now=clock.now()))


async def test_a_controller_updates_its_flow_by_revisions_and_a_conflict_is_explained(
    store: Store, clock: FakeClock
) -> None:
    flow = await controlled_flow(store, clock, state={"city": "Oslo", "token": SECRET})
    assert (flow.status, flow.waits_on) == (FlowStatus.QUEUED, "controller:planner")

    def update(revision: int, **changes: Any) -> Any:
        return store.write(updating_flow(flow.id, FlowChange(**changes), revision=revision, now=clock.now()))

    running = await update(1, to="running", current_step="book")
    waiting = await update(2, to="waiting", wait={"for": "the visa"})
    with pytest.raises(RevisionMismatch) as conflict:
        await update(2, to="running")
    resumed = await update(3, to="running", state={"city": "Bergen"})
    blocked = await update(4, to="blocked", failure=Failure(kind="visa", message="refused"))
    failed = await update(5, to="failed", failure=Failure(kind="visa", message="refused"))

    assert (running.current_step, running.contents) == ("book", flow.contents)
    assert (waiting.status, waiting.wait) == (FlowStatus.WAITING, b'{"for":"the visa"}')
    assert (conflict.value.expected, conflict.value.found) == (2, 3)
    assert "another change came first" in str(conflict.value)
    assert "with revision 3" in str(conflict.value)
    assert (resumed.wait, resumed.contents) == (None, b'{"city":"Bergen"}')
    assert blocked.status is FlowStatus.BLOCKED
    assert failed.failure == Failure(kind="visa", message="refused")
    with pytest.raises(Conflict, match="it can no longer be changed"):
        await update(6, state={})


async def test_of_two_controllers_with_one_revision_one_wins(store: Store, clock: FakeClock) -> None:
    flow = await controlled_flow(store, clock)

    answers = await asyncio.gather(
        *(
            store.write(updating_flow(flow.id, FlowChange(state=number), revision=1, now=clock.now()))
            for number in range(5)
        ),
        return_exceptions=True,
    )

    won = [answer for answer in answers if isinstance(answer, Flow)]
    assert len(won) == 1
    assert sum(isinstance(answer, RevisionMismatch) for answer in answers) == 4
    assert (await flow_of(store, flow.id)).contents == won[0].contents


async def test_tasks_of_a_controllers_flow_are_counted_without_a_new_revision_and_cancelled_with_it(
    store: Store, clock: FakeClock, parts: Parts, worker: FlowWorker
) -> None:
    flow = await controlled_flow(store, clock)
    await parts.create(flow_id=flow.id, name="one")
    await parts.create(flow_id=flow.id, name="two")
    await worker.finish("one")

    counted = await flow_of(store, flow.id)
    assert (counted.revision, counted.live, counted.succeeded) == (1, 1, 1)
    with pytest.raises(Conflict, match="has 1 live tasks"):
        await store.write(updating_flow(flow.id, FlowChange(to="succeeded"), revision=1, now=clock.now()))
    with pytest.raises(RevisionMismatch):
        await store.write(cancelling_flow(flow.id, reason="no", revision=9, now=clock.now()))
    await store.write(cancelling_flow(flow.id, reason="no", revision=1, now=clock.now()))
    with pytest.raises(Conflict, match="is to be cancelled"):
        await parts.create(flow_id=flow.id, name="three")
    await worker.fail("two")

    assert (await flow_of(store, flow.id)).status is FlowStatus.CANCELLED


async def test_a_controllers_flow_that_a_task_blocks_goes_on_when_the_flow_is_retried(
    store: Store, clock: FakeClock, parts: Parts, worker: FlowWorker
) -> None:
    flow = await controlled_flow(store, clock)
    task = await parts.create(flow_id=flow.id, name="one")
    await worker.fail("one")
    change = FlowChange(to="blocked", blocked_by_task_id=task.id)
    await store.write(updating_flow(flow.id, change, revision=1, now=clock.now()))

    retried = await store.write(retrying_flow(flow.id, now=clock.now()))

    assert (retried.status, retried.waits_on) == (FlowStatus.RUNNING, "controller:planner")
    assert await worker.take() == {"one"}


@pytest.mark.parametrize("how", ["finished", "cancelled"])
async def test_a_parent_is_retried_without_a_child_whose_flow_has_ended_meanwhile(
    store: Store, clock: FakeClock, parts: Parts, worker: FlowWorker, how: str
) -> None:
    flow = await controlled_flow(store, clock)
    parent = await parts.create(name="parent", owner="ada")
    await worker.take()
    child = await parts.create(name="child", flow_id=flow.id, parent_task_id=parent.id)
    await parts.ledger.fail(worker.held.pop("parent").claim, BROKEN)
    flow = await flow_of(store, flow.id)
    if how == "finished":
        change = FlowChange(to=FlowStatus.SUCCEEDED)
        await store.write(updating_flow(flow.id, change, revision=flow.revision, now=clock.now()))
    else:
        await store.write(cancelling_flow(flow.id, reason="enough", now=clock.now()))

    retried = await store.write(retrying_task(parent.id, now=clock.now()))

    left = await store.read(lambda tx: tx.tasks.get(child.id))
    assert (retried.task.status, left.status) == (TaskStatus.QUEUED, TaskStatus.CANCELLED)
    assert (await flow_of(store, flow.id)).live == 0
    assert_ledger_is_whole(store)


# --- mirrors


def a_record(run_id: str, **changes: Any) -> NewRecord:
    facts = {"name": "dig", "goal": "dig it up", "owner": "ada", "runtime": "acp", "run_id": run_id}
    return NewRecord(**facts | changes)


@pytest.fixture
def producers(store: Store, clock: FakeClock) -> Producers:
    return Producers(store, clock)


async def test_recorded_work_of_a_session_gets_a_flow_that_follows_it_to_its_end(
    store: Store, producers: Producers
) -> None:
    work = await producers.create(a_record("r1", scope="session", session_key="agent:a:main"))
    assert work.task.flow_id is not None
    queued = await flow_of(store, work.task.flow_id)
    await producers.start("r1")
    running = await flow_of(store, queued.id)
    await producers.lose("r1", why="no sign of life")

    ended = await flow_of(store, queued.id)

    assert (queued.mode, queued.status) == (FlowMode.TASK_MIRRORED, FlowStatus.QUEUED)
    assert (running.status, running.waits_on) == (FlowStatus.RUNNING, "tasks")
    assert (ended.status, ended.lost) == (FlowStatus.LOST, 1)
    assert_ledger_is_whole(store)


@pytest.mark.parametrize(
    "changes",
    [
        {"runtime": "media", "scope": "session", "session_key": "agent:a:main"},
        {"scope": "system"},
        {"scope": "session", "session_key": "agent:a:main", "notify": NotifyPolicy.SILENT},
    ],
    ids=str,
)
async def test_other_recorded_work_gets_no_flow(producers: Producers, changes: dict[str, Any]) -> None:
    assert (await producers.create(a_record("r1", **changes))).task.flow_id is None


async def test_a_mirrored_flow_that_its_producer_calls_blocked_goes_on_with_the_next_task(
    store: Store, clock: FakeClock, producers: Producers
) -> None:
    flow = await store.write(
        creating_flow(NewFlow(name="dig", owner="ada", mode="task_mirrored"), now=clock.now())
    )
    await producers.create(a_record("r1", flow_id=flow.id), is_running=True)
    await producers.finish("r1", outcome="blocked", summary="needs a permit")
    blocked = await flow_of(store, flow.id)
    with pytest.raises(FlowsBlended, match="mirrors its tasks"):
        await store.write(retrying_flow(flow.id, now=clock.now()))

    await producers.create(a_record("r2", flow_id=flow.id))
    queued = await flow_of(store, flow.id)
    await producers.finish("r2")

    assert blocked.status is FlowStatus.BLOCKED
    assert queued.status is FlowStatus.QUEUED
    assert (await flow_of(store, flow.id)).status is FlowStatus.SUCCEEDED


async def test_existing_tasks_are_mirrored_and_a_retry_of_one_opens_the_flow_again(
    store: Store, clock: FakeClock, parts: Parts, worker: FlowWorker, producers: Producers
) -> None:
    await parts.create(name="one")
    await worker.fail("one")
    done = (await store.read(lambda tx: tx.tasks.page()))[0]
    work = await producers.create(a_record("r1"), is_running=True)
    new = NewFlow(name="both", owner="ada", mode="task_mirrored", task_ids=(done.id, work.task.id))
    again = RepeatingStore(store)

    flow = await again.write(creating_flow(new, now=clock.now()))
    assert (flow.status, flow.live, flow.failed) == (FlowStatus.RUNNING, 1, 1)
    await producers.finish("r1")
    failed = await flow_of(store, flow.id)
    await store.write(retrying_task(done.id, now=clock.now()))
    reopened = await flow_of(store, flow.id)
    await worker.finish("one")

    assert failed.status is FlowStatus.FAILED
    assert (reopened.status, reopened.ended_at, reopened.live) == (FlowStatus.RUNNING, None, 1)
    assert (await flow_of(store, flow.id)).status is FlowStatus.SUCCEEDED
    other = NewFlow(name="other", owner="ada", mode="task_mirrored", task_ids=(done.id,))
    with pytest.raises(Conflict, match="a task belongs to one flow"):
        await store.write(creating_flow(other, now=clock.now()))
    assert_ledger_is_whole(store)


async def test_a_late_report_to_an_ended_mirrored_flow_is_ignored_and_told(
    store: Store, producers: Producers
) -> None:
    work = await producers.create(a_record("r1", scope="session", session_key="agent:a:main"))
    await producers.lose("r1", why="no sign of life")
    await producers.finish("r1", "late")

    assert (await flow_of(store, str(work.task.flow_id))).status is FlowStatus.LOST
    events = await store.read(lambda tx: tx.events.newest(limit=50))
    assert EventKind.UPDATE_IGNORED in {event.kind for event in events}


# --- lists


async def test_flows_are_listed_by_owner_and_status_newest_first_and_found_by_a_prefix(
    store: Store, clock: FakeClock
) -> None:
    flows = []
    for number in range(5):
        clock.advance(seconds=1)
        flows.append(await start(store, clock, owner="ada" if number % 2 == 0 else "bob"))
    await store.write(cancelling_flow(flows[0].id, reason="no", now=clock.now()))
    running, cancelled = FlowStatus.RUNNING, FlowStatus.CANCELLED

    def page(**filters: Any) -> Any:
        return store.read(lambda tx: [flow.id for flow in tx.flows.page(**filters)])

    assert await page() == [flow.id for flow in reversed(flows)]
    assert await page(limit=2, before=flows[3].id) == [flows[2].id, flows[1].id]
    assert await page(owner="ada") == [flows[4].id, flows[2].id, flows[0].id]
    assert await page(statuses=[running, cancelled], limit=2) == [flows[4].id, flows[3].id]
    assert await page(statuses=[cancelled], owner="ada") == [flows[0].id]
    assert await page(statuses=[cancelled], owner="bob") == []
    assert await store.read(lambda tx: tx.flows.resolve(flows[1].id[:20])) == flows[1].id
    with pytest.raises(NotFound):
        await store.read(lambda tx: tx.flows.resolve(flows[1].id, owner="ada"))
