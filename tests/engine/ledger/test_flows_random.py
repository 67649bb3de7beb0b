"""Any graph, any order of ends, any failures: each node starts once, after what it needs."""

from __future__ import annotations

import asyncio
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.flow_definition import FlowDefinition
from holdfast.core.transitions import FlowStatus
from holdfast.engine.client.flows import Flows
from holdfast.testing import FakeClock, memory_store
from tests.crash.invariants import assert_ledger_is_whole
from tests.engine.flows import FlowWorker, a_definition, a_node, flow_of, nodes_of, start, tasks_of
from tests.engine.parts import Parts


@settings(max_examples=12)
@given(size=st.integers(1, 12), seed=st.integers(0, 2**32))
def test_a_random_flow_with_random_failures_ends_when_all_was_retried(size: int, seed: int) -> None:
    chance = random.Random(seed)
    nodes = [
        a_node(f"n{place}", *(f"n{need}" for need in range(place) if chance.random() < 0.3))
        for place in range(size)
    ]
    chance.shuffle(nodes)

    asyncio.run(play(a_definition(*nodes), chance))


async def play(definition: FlowDefinition, chance: random.Random) -> None:
    clock = FakeClock()
    store = memory_store(clock)
    worker, flows = FlowWorker(await Parts.begin(store, clock)), Flows(store, clock)
    flow = await start(store, clock, definition)
    needs = {node.id: set(node.needs) for node in definition.nodes}
    done: set[str] = set()
    while len(done) < len(needs):
        clock.advance(seconds=1)
        held = await worker.take()
        assert held == {name for name in held if needs[name] <= done}, "it started before what it needs"
        if not held:
            assert (await flow_of(store, flow.id)).status is FlowStatus.BLOCKED
            await flows.retry(flow.id)
        elif chance.random() < 0.3:
            await worker.fail(chance.choice(sorted(held)))
        else:
            name = chance.choice(sorted(held))
            await worker.finish(name)
            done.add(name)
    assert (await flow_of(store, flow.id)).status is FlowStatus.SUCCEEDED
    assert len(await tasks_of(store, flow.id)) == len(await nodes_of(store, flow.id)) == len(needs)
    assert_ledger_is_whole(store)
    store.close()
