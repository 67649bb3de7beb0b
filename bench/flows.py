"""What a flow costs: the same tasks as nodes of flows, and alone."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import holdfast as hf
from bench.measure import Report
from holdfast.core.clock import SystemClock
from holdfast.engine.client.handles import Holdfast
from holdfast.store import Store
from tests.engine.workers import carrying

WIDTH = 20
ROUNDS = 3
_BATCH = 500
_names = itertools.count()


@hf.task(name="bench")
async def work(run: hf.Run, number: int) -> int:  # noqa: ARG001 - the least that a task can do
    return number


def large_flow(nodes: int) -> hf.FlowBuilder:
    """Layers of nodes; each needs two of the layer before, and takes the result of one."""
    flow = hf.flow("large")
    before: list[hf.PlannedNode[int]] = []
    layer: list[hf.PlannedNode[int]] = []
    for number in range(nodes):
        place = number % WIDTH
        if place == 0:
            before, layer = layer, []
        if before:
            other = before[(place + 1) % WIDTH]
            layer.append(flow.node(f"n{number}", work(before[place].result), after=[other]))
        else:
            layer.append(flow.node(f"n{number}", work(number)))
    return flow


def small_flow() -> hf.FlowBuilder:
    """One node, two that need it, and one that joins them."""
    flow = hf.flow("small")
    first = flow.node("first", work(1))
    left, right = flow.node("left", work(first.result)), flow.node("right", work(2), after=[first])
    flow.node("last", work(left.result), after=[right])
    return flow


async def _run_flows(holdfast: Holdfast, definition: hf.FlowBuilder, count: int) -> None:
    store = holdfast.store
    before = await _succeeded(store, "flow")
    for first in range(0, count, _BATCH):
        await asyncio.gather(*(holdfast.start_flow(definition) for _ in range(min(_BATCH, count - first))))
    while await _succeeded(store, "flow") < before + count:
        await store.wait_for("flows", 0.02)


async def _run_alone(holdfast: Holdfast, count: int) -> None:
    store = holdfast.store
    before = await _succeeded(store, "task")
    for first in range(0, count, _BATCH):
        calls = [work(number) for number in range(min(_BATCH, count - first))]
        await holdfast.start_many(calls)
    while await _succeeded(store, "task") < before + count:
        await store.wait_for("events", 0.02)


async def _succeeded(store: Store, noun: str) -> int:
    return (await store.read(lambda tx: tx.events.counts(noun))).get("succeeded", 0)


def rate(open_store: Callable[[], Store], tasks: int, run: Callable[[Holdfast], object]) -> float:
    """Tasks per second, from the first write to the last end."""

    async def measured() -> float:
        with contextlib.closing(open_store()) as store:
            async with carrying(store, SystemClock(), work) as process:
                started = time.perf_counter()
                await run(process.holdfast)  # type: ignore[misc]
                return tasks / (time.perf_counter() - started)

    return asyncio.run(measured())


def _bench(report: Report, database: str, open_store: Callable[[], Store], *, nodes: int, flows: int) -> None:
    large, small = large_flow(nodes), small_flow()
    report.rates(
        f"{database}: a flow of {nodes:,} nodes, beside the same tasks alone",
        partial(rate, open_store, nodes, lambda holdfast: _run_flows(holdfast, large, 1)),
        partial(rate, open_store, nodes, lambda holdfast: _run_alone(holdfast, nodes)),
        target=None,
        rounds=ROUNDS,
    )
    tasks = flows * 4
    report.rates(
        f"{database}: {flows:,} flows of 4 nodes, beside the same tasks alone",
        partial(rate, open_store, tasks, lambda holdfast: _run_flows(holdfast, small, flows)),
        partial(rate, open_store, tasks, lambda holdfast: _run_alone(holdfast, tasks)),
        target=None,
        rounds=ROUNDS if flows < 1000 else 1,
    )


def bench_sqlite(
    report: Report, directory: Path, open_store: Callable[[Path], Store], *, nodes: int, flows: int
) -> None:
    def fresh() -> Store:
        return open_store(directory / f"flows-{next(_names)}" / "ledger.db")

    _bench(report, "SQLite", fresh, nodes=nodes, flows=flows)


def bench_postgres(
    report: Report,
    create_database: Callable[[], str],
    open_store: Callable[[str], Store],
    *,
    nodes: int,
    flows: int,
) -> None:
    _bench(report, "PostgreSQL", lambda: open_store(create_database()), nodes=nodes, flows=flows)
