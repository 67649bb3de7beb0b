"""What operators ask of a ledger scans neither its tasks nor its runs, on either database."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from holdfast.api.flows import FlowPartsAsked, FlowsAsked, read_flow, read_flows
from holdfast.api.openclaw import GetAsked, ListAsked, get_task, list_tasks
from holdfast.api.overview import read_overview
from holdfast.api.task_lists import TasksAsked, read_page
from holdfast.api.tasks import read_detail
from holdfast.core.clock import SystemClock
from holdfast.core.retention import KINDS, RetentionLimits
from holdfast.core.task import RuntimeName
from holdfast.core.transitions import FlowStatus, RunStatus, TaskStatus
from holdfast.engine.ledger.flows import NewFlow, cancelling_flow, creating_flow
from holdfast.store import Store, Tx
from holdfast.store.boot_proofs import BootProofs
from holdfast.store.queries import load_queries, numbered
from holdfast.upkeep.audit import Audit, TaskCounts
from holdfast.upkeep.projection import Projection
from holdfast.upkeep.sweep import find_candidates
from tests.builders import START, a_task, later, stored_checkpoint, stored_run, write
from tests.engine.flows import RELEASE
from tests.upkeep.recorded import recorded_run

PROJECTION = Projection(BootProofs(None, ""), START)
LIMITS = RetentionLimits(kinds=dict.fromkeys(KINDS, later(days=7) - START))
# Of each operation, everything that it reads.
ASKED: dict[str, Callable[[Tx, str], object]] = {
    "pages by every filter": lambda tx, _: [
        read_page(tx, asked, now=START, projection=PROJECTION)
        for asked in (
            TasksAsked(),
            TasksAsked(status=(TaskStatus.RUNNING, TaskStatus.FAILED)),
            TasksAsked(owner="ada"),
            TasksAsked(owner="ada", status=(TaskStatus.RUNNING,)),
            TasksAsked(runtime=RuntimeName.CRON),
            TasksAsked(name="research"),
            TasksAsked(agent_id="main"),
            TasksAsked(session_key="agent:main:main"),
            TasksAsked(key="tides"),
            TasksAsked(older_than_s=60),
            TasksAsked(newer_than_s=60),
            TasksAsked(text="tides"),
        )
    ],
    "pages in OpenClaw's orders": lambda tx, _: (
        [
            list_tasks(tx, ListAsked(sort_by=order), projection=PROJECTION)
            for order in (None, "updatedAt", "endedAt")
        ]
        + [
            list_tasks(tx, asked)
            for asked in (ListAsked(agent_id="main"), ListAsked(session_key="agent:main:main"))
        ]
    ),
    "show": lambda tx, task_id: (
        read_detail(tx, task_id, START, projection=PROJECTION),
        get_task(tx, GetAsked(task_id=task_id), projection=PROJECTION),
    ),
    "flows": lambda tx, _: (
        [
            read_flows(tx, asked)
            for asked in (
                FlowsAsked(),
                FlowsAsked(status=(FlowStatus.BLOCKED, FlowStatus.RUNNING)),
                FlowsAsked(owner="ada"),
                FlowsAsked(owner="ada", status=(FlowStatus.BLOCKED,)),
            )
        ],
        [read_flow(tx, FlowPartsAsked(flow_id=flow.id), projection=PROJECTION) for flow in tx.flows.page()],
        read_overview(tx, SystemClock(), PROJECTION),
    ),
    "counts": lambda tx, _: TaskCounts.of(tx),
    "audit": lambda tx, _: Audit(tx, now=later(days=1)).report(),
    "sweep": lambda tx, _: find_candidates(tx, now=later(days=1), prune_at=later(days=90), limits=LIMITS),
}
# Few rows, however long the history: a process leaves one, and retention takes it; `tree` is what a query has
# gathered itself, from searches that are looked at like any others.
SMALL = {"boots", "ledger_facts", "counters", "counter_deltas", "tree"}
# These indexes hold only what is looked for, so walking through one does not depend on the history.
PARTIAL = {
    "boots_alive",
    "deliveries_failed",
    "flows_unstamped",
    "recorded_tasks_dropped",
    "recorded_tasks_late",
    "runs_recorded",
    "tasks_unstamped",
}


@contextmanager
def watched(tx: Tx) -> Iterator[dict[str, Any]]:
    """The queries that are asked meanwhile, each with its parameters."""
    asked: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        for way in ("one", "all"):
            ask = getattr(tx.statements, way)

            def note(query: str, params: Any, ask: Callable[..., Any] = ask) -> Any:
                asked.setdefault(query, params)
                return ask(query, params)

            patch.setattr(tx.statements, way, note)
        yield asked


def queries_of(store: Store, operation: str) -> dict[str, Any]:
    """What an operation asks of a ledger in which it finds something of each kind."""
    task_id = stored_run(store, RunStatus.RUNNING).task_id
    stored_run(store, RunStatus.WAITING)
    stored_checkpoint(store)
    recorded_run(store, details={})
    for status in (TaskStatus.FAILED, TaskStatus.LOST):
        task = a_task(status=status, cleanup_after=later(days=30))
        write(store, lambda tx, task=task: tx.tasks.create(task))  # type: ignore[misc]

    for new in (NewFlow(definition=RELEASE, owner="ada"), NewFlow(name="m", mode="task_mirrored")):
        flow_id = store.write_now(creating_flow(new, now=START)).id
    store.write_now(cancelling_flow(flow_id, reason="enough", now=START))

    def read(tx: Tx) -> dict[str, Any]:
        with watched(tx) as asked:
            ASKED[operation](tx, task_id)
        return asked

    return store.read_now(read)


def sqlite_plan(store: Any, query: str, params: Any) -> list[str]:
    connection = store._writer.exclusively(lambda session: session.connection)
    sql = f"EXPLAIN QUERY PLAN {load_queries('sqlite')[query]}"
    return [str(row[3]) for row in connection.execute(sql, params)]


def postgres_plan(store: Any, query: str) -> list[str]:
    """The plan that is kept for every value; without a scan, if any index serves."""
    sql, _ = numbered(load_queries("postgres")[query])

    def explain(session: Any) -> list[str]:
        result = session._link.command(f"EXPLAIN (GENERIC_PLAN) {sql}".encode())
        return [row[0] for row in session._link.rows(result)]

    found: list[str] = store._writer.exclusively(explain)
    return found


@pytest.mark.parametrize("operation", ASKED)
def test_no_operation_of_an_operator_scans_a_table(store: Store, operation: str) -> None:
    queries = queries_of(store, operation)

    for query, params in queries.items():
        if type(store).__name__ == "PostgresStore":
            plan = postgres_plan(store, query)
            scans = [found[1] for line in plan if (found := re.search(r"Seq Scan on (\w+)", line))]
        else:
            plan = sqlite_plan(store, query, params)
            scans = [
                found[1]
                for line in plan
                if (found := re.match(r"SCAN ([a-z]\w+)(?: USING (?:COVERING )?INDEX (\w+))?", line))
                and found[2] not in PARTIAL
                and found[1] not in {"json_each", "all_parts", "past", "present"}
            ]
        assert set(scans) <= SMALL, (query, plan)
    assert queries
