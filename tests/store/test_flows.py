"""Flows and their nodes: saved by revision, moved by their tables, paged, pruned; and what is done last."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from holdfast.core.errors import BadInput, IllegalMove, KeyConflict, NotFound, RowDamaged
from holdfast.core.flow import FlowMode, NodePlan
from holdfast.core.ids import FlowId
from holdfast.core.task import Failure
from holdfast.core.transitions import FlowNodeStatus, FlowStatus, TaskStatus
from holdfast.store import Store, Tx
from tests.builders import START, a_flow, a_flow_node, a_task, later
from tests.engine.tables import execute

LATER = later(minutes=5)


def named(**changes: Any) -> Any:
    return a_flow(**{"name": "release", "controller": "planner"} | changes)


# --- flows


def test_a_flow_keeps_all_that_it_was_created_and_saved_with(store: Store) -> None:
    flow = named(dedup_key="k", contents=b'{"a": 1}', waits_on="controller:planner")
    after = msgspec.structs.replace(
        flow,
        status=FlowStatus.WAITING,
        revision=2,
        current_step="visa",
        contents=b'{"a":  2}',
        wait=b"[1, 2]",
        blocked_by_task_id="task_1",
        failure=Failure(kind="visa", message="refused"),
        change_token="t1",
        live=3,
        succeeded=2,
        failed=1,
        cancelled=4,
        lost=5,
        updated_at=LATER,
    )

    def save(tx: Tx) -> None:
        tx.flows.create(flow)
        tx.flows.save(tx.flows.lock(flow.id), after)

    store.write_now(save)

    assert store.read_now(lambda tx: tx.flows.get(flow.id)) == after
    assert store.read_now(lambda tx: tx.events.counts("flow")) == {"waiting": 1}


def test_a_flow_is_saved_only_from_the_revision_and_by_the_moves_of_its_table(store: Store) -> None:
    flow = named(status=FlowStatus.RUNNING)
    ended = msgspec.structs.replace(flow, status=FlowStatus.SUCCEEDED, ended_at=LATER, revision=2)
    store.write_now(lambda tx: tx.flows.create(flow))
    store.write_now(lambda tx: tx.flows.save(flow, ended))

    with pytest.raises(IllegalMove):
        store.write_now(lambda tx: tx.flows.save(flow, ended))
    with pytest.raises(IllegalMove):
        store.write_now(lambda tx: tx.flows.save(ended, msgspec.structs.replace(ended, status=flow.status)))
    with pytest.raises(IllegalMove):
        store.write_now(lambda tx: tx.flows.reopen(ended, now=LATER))

    assert store.read_now(lambda tx: tx.flows.get(flow.id)) == ended


def test_a_flow_whose_fixed_columns_or_documents_were_changed_is_damaged(store: Store) -> None:
    flows = [named(contents=b"1"), named(contents=b"1"), named(contents=b"1")]
    store.write_now(lambda tx: [tx.flows.create(flow) for flow in flows])
    execute(store, f"UPDATE flows SET controller = 'other' WHERE id = '{flows[0].id}'")
    execute(store, f"UPDATE flows SET contents = wait, wait = contents WHERE id = '{flows[1].id}'")

    for flow in flows[:2]:
        with pytest.raises(RowDamaged):
            store.read_now(lambda tx: tx.flows.get(flow.id))  # noqa: B023 - read at once
    assert store.read_now(lambda tx: tx.flows.get(flows[2].id)) == flows[2]


def test_a_flow_of_the_schema_before_has_no_name_and_is_read(store: Store) -> None:
    flow = a_flow(contents=b"1")
    store.write_now(lambda tx: tx.flows.create(flow))
    execute(store, "UPDATE flows SET documents_digest = NULL")

    assert store.read_now(lambda tx: tx.flows.get(flow.id)) == flow


def test_a_key_belongs_to_one_owner_and_one_definition(store: Store) -> None:
    first, again, other = named(dedup_key="k"), named(dedup_key="k"), named(dedup_key="k", owner="bob")

    def take(flow: Any, digest: bytes) -> Any:
        return store.write_now(lambda tx: _taken(tx, flow, digest))

    assert take(first, b"12345678") is None
    assert take(first, b"12345678") is None, "it runs again after its own commit"
    assert take(again, b"12345678") == first
    assert take(other, b"12345678") is None
    with pytest.raises(KeyConflict):
        take(again, b"87654321")


def _taken(tx: Tx, flow: Any, digest: bytes) -> Any:
    found = tx.flows.take_key(flow, digest, holds_secret=False)
    if found is None:
        tx.flows.create(flow)
    return found


def test_ended_flows_are_pruned_with_their_nodes_and_live_ones_stay(store: Store) -> None:
    ended = named(status=FlowStatus.FAILED, cleanup_after=LATER, mode=FlowMode.MANAGED)
    live = named()
    large = msgspec.json.encode(NodePlan(task="build", arguments={"text": "tide " * 10_000}))

    def create(tx: Tx) -> None:
        for flow in (ended, live):
            tx.flows.create(flow)
            tx.flow_nodes.create_many([a_flow_node(flow_id=flow.id, plan=large)])

    store.write_now(create)
    assert store.read_now(lambda tx: tx.flow_nodes.get(live.id, "build")).plan == large
    due = store.write_now(lambda tx: tx.flows.to_prune(now=LATER, limit=10))

    deleted = store.write_now(lambda tx: tx.flows.delete([*due, live.id], keys_expire_at=LATER))

    assert (due, deleted) == ([ended.id], [ended.id])
    assert store.read_now(lambda tx: tx.flow_nodes.page(ended.id)) == []
    assert store.read_now(lambda tx: tx.flow_nodes.page(live.id))[0].plan == large
    assert store.read_now(lambda tx: tx.events.counts("flow")) == {"queued": 1}
    assert store.verify() == []


def test_flows_that_are_to_stop_and_their_tasks_are_found_page_by_page(store: Store) -> None:
    flows = sorted(
        (named(cancel_requested_at=START, cancel_reason="no") for _ in range(3)), key=lambda one: one.id
    )
    tasks = [a_task(flow_id=flows[0].id) for _ in range(3)]
    asked = a_task(flow_id=flows[0].id, cancel_requested_at=START)
    done = a_task(flow_id=flows[0].id, status=TaskStatus.SUCCEEDED)
    store.write_now(lambda tx: [tx.flows.create(one) for one in (*flows, named())])
    store.write_now(lambda tx: [tx.tasks.create(one) for one in (*tasks, asked, done, a_task())])
    ids = sorted(task.id for task in tasks)

    def read(tx: Tx) -> Any:
        first = tx.flows.to_stop(limit=2)
        return (
            [flow.id for flow in (*first, *tx.flows.to_stop(after=first[-1].id, limit=2))],
            tx.tasks.to_stop(flows[0].id, limit=2),
            tx.tasks.to_stop(flows[0].id, after=ids[1], limit=2),
            [task.id for task in tx.tasks.of_flow(flows[0].id)],
        )

    found, page, rest, all_of_it = store.read_now(read)

    assert found == [flow.id for flow in flows]
    assert (page, rest) == (ids[:2], ids[2:])
    assert all_of_it == sorted([*ids, asked.id, done.id])
    assert store.write_now(lambda tx: tx.tasks.lock_to_stop(flows[0].id, limit=10)) == ids


def test_an_existing_task_joins_one_flow_and_stays_whole(store: Store) -> None:
    task, damaged = a_task(), a_task()
    store.write_now(lambda tx: [tx.tasks.create(task), tx.tasks.create(damaged)])
    execute(store, f"UPDATE tasks SET goal = 'other' WHERE id = '{damaged.id}'")

    assert store.write_now(lambda tx: tx.tasks.link(task.id, "flow_1", now=LATER))
    assert not store.write_now(lambda tx: tx.tasks.link(task.id, "flow_2", now=LATER))

    assert store.read_now(lambda tx: tx.tasks.get(task.id)).flow_id == "flow_1"
    with pytest.raises(RowDamaged):
        store.write_now(lambda tx: tx.tasks.link(damaged.id, "flow_1", now=LATER))
    with pytest.raises(NotFound):
        store.write_now(lambda tx: tx.tasks.link("task_none", "flow_1", now=LATER))


# --- nodes


def test_nodes_are_paged_in_the_order_of_the_definition_and_found_by_id_and_by_task(store: Store) -> None:
    flow_id = FlowId("flow_1")
    nodes = [a_flow_node(flow_id=flow_id, place=f"{place:05d}", id=f"n{place}") for place in range(5)]
    store.write_now(lambda tx: tx.flow_nodes.create_many(nodes[::-1]))
    store.write_now(lambda tx: tx.flow_nodes.create_many(nodes))

    moved = store.write_now(
        lambda tx: tx.flow_nodes.move(nodes[2], FlowNodeStatus.RUNNING, now=LATER, task_id="task_1")
    )

    def read(tx: Tx) -> Any:
        first = tx.flow_nodes.page(flow_id, limit=3)
        rest = tx.flow_nodes.page(flow_id, after=first[-1].place, limit=3)
        return [node.id for node in first], [node.id for node in rest], tx.flow_nodes.of_task("task_1")

    assert store.read_now(read) == (["n0", "n1", "n2"], ["n3", "n4"], moved)
    assert store.read_now(lambda tx: tx.flow_nodes.get(flow_id, "n4")) == nodes[4]
    with pytest.raises(NotFound):
        store.read_now(lambda tx: tx.flow_nodes.get(flow_id, "n9"))


def test_a_node_moves_once_and_only_as_its_table_allows(store: Store) -> None:
    node = a_flow_node()
    store.write_now(lambda tx: tx.flow_nodes.create_many([node]))

    def move(one: Any, to: FlowNodeStatus) -> Any:
        return store.write_now(lambda tx: tx.flow_nodes.move(one, to, now=LATER, task_id="task_1"))

    running = move(node, FlowNodeStatus.RUNNING)
    assert move(node, FlowNodeStatus.RUNNING) is None, "it was read before it moved"
    failed = move(running, FlowNodeStatus.FAILED)
    assert [one.id for one in store.read_now(lambda tx: tx.flow_nodes.failed(node.flow_id))] == [node.id]
    assert move(failed, FlowNodeStatus.SUCCEEDED) is None
    done = move(move(failed, FlowNodeStatus.RUNNING), FlowNodeStatus.SUCCEEDED)
    assert done.status is FlowNodeStatus.SUCCEEDED
    assert move(done, FlowNodeStatus.RUNNING) is None


def test_a_node_is_ready_when_its_last_need_is_met(store: Store) -> None:
    nodes = [a_flow_node(flow_id="flow_1", place=f"0000{place}", unmet=place) for place in range(3)]
    store.write_now(lambda tx: tx.flow_nodes.create_many(nodes))

    def meet() -> list[str]:
        places = [node.place for node in nodes]
        return [
            node.place
            for node in store.write_now(lambda tx: tx.flow_nodes.meet_needs("flow_1", places, now=LATER))
        ]

    assert [meet(), meet(), meet()] == [["00001"], ["00002"], []]
    assert store.write_now(lambda tx: tx.flow_nodes.meet_needs("flow_1", [], now=LATER)) == []


# --- what is done just before the commit


def test_deferred_work_is_done_once_for_each_key_in_the_order_of_keys(store: Store) -> None:
    done: list[tuple[str, list[int]]] = []

    def act(_tx: Tx, key: str, items: list[int]) -> None:
        done.append((key, items))

    def write(tx: Tx) -> str:
        for key, item in (("b", 1), ("a", 2), ("b", 3)):
            tx.before_commit(key, act, item)
        return "answered before it"

    assert store.write_now(write) == "answered before it"
    assert done == [("a", [2]), ("b", [1, 3])]


def test_deferred_work_may_write_and_defer_more_and_its_error_is_the_writes_own(store: Store) -> None:
    first, second = a_task(), a_task()

    def act(tx: Tx, key: str, items: list[Any]) -> None:
        tx.tasks.create(items[0])
        if key == "a":
            tx.before_commit("b", act, second)

    store.write_now(lambda tx: tx.before_commit("a", act, first))
    assert set(store.read_now(lambda tx: tx.tasks.get_many([first.id, second.id]))) == {first.id, second.id}

    def fail(_tx: Tx, _key: str, _items: list[Any]) -> None:
        raise BadInput("flow", "no")

    other = a_task()

    def create_and_fail(tx: Tx) -> None:
        tx.tasks.create(other)
        tx.before_commit("a", fail, 1)

    with pytest.raises(BadInput):
        store.write_now(create_and_fail)
    assert store.read_now(lambda tx: tx.tasks.get_many([other.id])) == {}


def test_of_writes_in_one_group_only_the_one_whose_deferred_work_fails_is_lost(store: Store) -> None:
    tasks = [a_task() for _ in range(20)]

    def refuse(tx: Tx, key: str, _items: list[Any]) -> None:
        if key == tasks[7].id:
            raise BadInput("flow", "no")
        tx.tasks.request_cancel(key, "deferred", now=START + timedelta(seconds=1))

    def creating(task: Any) -> Any:
        def create(tx: Tx) -> str:
            tx.tasks.create(task)
            tx.before_commit(task.id, refuse, 1)
            return str(task.id)

        return create

    async def all_at_once() -> list[Any]:
        return await asyncio.gather(*(store.write(creating(task)) for task in tasks), return_exceptions=True)

    answers = asyncio.run(all_at_once())

    kept = store.read_now(lambda tx: tx.tasks.get_many([task.id for task in tasks]))
    assert isinstance(answers.pop(7), BadInput)
    assert answers == [task.id for task in tasks if task is not tasks[7]]
    assert set(kept) == {task.id for task in tasks} - {tasks[7].id}
    assert all(task.cancel_requested_at is not None for task in kept.values())
