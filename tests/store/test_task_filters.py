"""Tasks by every filter: what a page holds, and that each filter has its index."""

from __future__ import annotations

import re
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.ids import id_bound, new_task_id
from holdfast.core.recorded import RecordedDetails, ScopeKind
from holdfast.core.task import Failure, RuntimeName, Task
from holdfast.core.task_filter import TaskFilter
from holdfast.core.transitions import TaskStatus
from holdfast.store import Store, Tx, task_pages
from holdfast.store.queries import load_queries
from holdfast.store.sqlite import SqliteStore
from holdfast.store.tasks import LAST
from holdfast.testing import FakeClock
from tests.builders import START, a_task, later


def stored(store: Store, *tasks: Task, details: dict[str, dict[str, Any]] | None = None) -> list[str]:
    """The ids of these tasks, oldest first; each is created a minute after the one before it."""

    def write(tx: Tx) -> None:
        for task in tasks:
            tx.tasks.create(task)
        for task_id, facts in (details or {}).items():
            tx.recorded.create(
                RecordedDetails(
                    task_id=task_id,  # type: ignore[arg-type]
                    scope=ScopeKind.SYSTEM,
                    created_at=START,
                    last_event_at=START,
                    **facts,
                )
            )

    store.write_now(write)
    return [task.id for task in tasks]


def at(minute: int, **changes: Any) -> Task:
    return a_task(created_at=later(minutes=minute), **changes)


def found(store: Store, reach: TaskFilter | None = None, **wanted: Any) -> list[str]:
    page = store.read_now(lambda tx: tx.tasks.find(TaskFilter(**wanted), reach=reach))
    assert page.next_before is None
    return [task.id for task in page.tasks]


def test_tasks_are_found_by_name_runtime_key_status_and_owner(store: Store) -> None:
    ids = stored(
        store,
        at(0, name="report", dedup_key="monday", owner="ada"),
        at(1, name="report", runtime=RuntimeName.CLI, status=TaskStatus.RUNNING),
        at(2, name="render", runtime=RuntimeName.MEDIA, dedup_key="monday", owner="bob"),
        at(3, name="render", runtime=RuntimeName.CLI, status=TaskStatus.FAILED),
    )

    assert found(store) == ids[::-1]
    assert found(store, names=frozenset({"report"})) == [ids[1], ids[0]]
    assert found(store, runtime=RuntimeName.CLI) == [ids[3], ids[1]]
    assert found(store, key="monday") == [ids[2], ids[0]]
    assert found(store, key="monday", owner="bob") == [ids[2]]
    assert found(store, statuses=(TaskStatus.RUNNING, TaskStatus.FAILED)) == [ids[3], ids[1]]
    assert found(store, statuses=(TaskStatus.QUEUED,), owner="bob") == [ids[2]]
    assert found(store, runtime=RuntimeName.CLI, names=frozenset({"render"})) == [ids[3]]
    assert found(store, names=frozenset({"render"}), statuses=(TaskStatus.QUEUED,)) == [ids[2]]
    assert found(store, key="tuesday") == found(store, names=frozenset()) == []


def test_the_tasks_of_a_session_are_those_asked_for_in_it_and_those_done_in_it(store: Store) -> None:
    asked, done, other = (
        at(0, session_key="agent:main:one"),
        at(1, session_key="agent:main:two"),
        at(2, session_key="agent:main:three"),
    )
    stored(store, asked, done, other, details={done.id: {"child_session_key": "agent:main:one"}})

    assert found(store, session_key="agent:main:one") == [done.id, asked.id]
    assert found(store, session_key="agent:main:one", runtime=RuntimeName.PYTHON) == [done.id, asked.id]
    assert found(store, session_key="agent:main") == []


def test_the_tasks_of_an_agent_are_those_of_its_sessions_of_its_name_and_of_its_records(store: Store) -> None:
    tasks = [
        at(0, session_key="agent:scholar:main"),
        at(1, name="agent.scholar", session_key="agent:scholar:main"),
        at(2, runtime=RuntimeName.ACP),
        at(3, session_key="agent:scholarly:main"),
        at(4, session_key="agent:scholar"),
        at(5, session_key="hook:scholar:main"),
    ]
    stored(store, *tasks, details={tasks[2].id: {"agent_id": "scholar"}})
    mine = [task.id for task in tasks[2::-1]]

    assert found(store, agent="scholar") == mine
    assert found(store, agent="scholar", key=None, statuses=(TaskStatus.QUEUED,)) == mine
    assert found(store, agent="scholar", runtime=RuntimeName.ACP) == [tasks[2].id]


def test_an_age_is_a_range_of_ids(store: Store) -> None:
    ids = stored(store, *(at(minute) for minute in range(5)))

    assert found(store, created_before=later(minutes=2)) == [ids[1], ids[0]]
    assert found(store, created_after=later(minutes=2)) == [ids[4], ids[3], ids[2]]
    assert found(store, created_after=later(minutes=1), created_before=later(minutes=3)) == [ids[2], ids[1]]
    assert found(store, created_after=later(minutes=3), owner="ada") == [ids[4], ids[3]]


def test_the_bound_of_a_moment_separates_the_ids_made_before_it_from_the_others() -> None:
    moment = datetime.fromisoformat("2026-03-01T12:00:00.005+00:00")

    assert new_task_id(later()) < id_bound("task", moment) < new_task_id(moment)


def test_a_text_is_found_in_goal_name_key_session_and_failure_in_upper_and_lower_case(store: Store) -> None:
    ids = stored(
        store,
        at(0, goal="buy a LOBSTER"),
        at(1, name="lobster"),
        at(2, dedup_key="Lobster 7"),
        at(3, session_key="agent:lobster:main"),
        at(4, status=TaskStatus.FAILED, failure=Failure(kind="claws", message="the lobster pinched")),
        at(5, goal="a shrimp"),
    )

    assert found(store, text="lobSTER") == ids[4::-1]
    assert found(store, text="lobster", names=frozenset({"research"})) == [ids[4], ids[3], ids[2], ids[0]]


def test_a_page_by_filter_leads_to_the_next(store: Store) -> None:
    ids = stored(store, *(at(minute, name="a" if minute % 2 else "b") for minute in range(7)))
    seen, before = [], LAST
    for _ in range(3):
        page = store.read_now(
            lambda tx, before=before: tx.tasks.find(  # type: ignore[misc]
                TaskFilter(names=frozenset({"b"})), before=before, limit=2
            )
        )
        seen += [task.id for task in page.tasks]
        before = page.next_before or ""

    assert seen == ids[6::-2]
    assert before == ""


def test_a_search_reads_a_bounded_number_of_tasks_and_tells_where_to_go_on(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_pages, "LOOKED_AT", 3)
    ids = stored(store, at(0, goal="the needle"), *(at(minute) for minute in range(1, 7)))
    wanted = TaskFilter(text="needle")

    first = store.read_now(lambda tx: tx.tasks.find(wanted))
    second = store.read_now(lambda tx: tx.tasks.find(wanted, before=first.next_before or ""))
    third = store.read_now(lambda tx: tx.tasks.find(wanted, before=second.next_before or ""))

    assert (first.tasks, first.next_before) == ([], ids[4])
    assert (second.tasks, second.next_before) == ([], ids[1])
    assert ([task.id for task in third.tasks], third.next_before) == ([ids[0]], None)


def test_the_next_page_of_a_limited_caller_never_begins_at_a_task_outside_its_reach(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_pages, "LOOKED_AT", 2)
    mine = [at(0, owner="ada", session_key="s", goal="x"), at(6, owner="ada", session_key="s")]
    others = [at(minute, owner="bob", session_key="s") for minute in range(1, 6)]
    stored(store, *mine, *others)
    reach = TaskFilter(owner="ada", names=frozenset({"research"}))
    wanted = TaskFilter(session_key="s", text="x")

    first = store.read_now(lambda tx: tx.tasks.find(wanted, reach=reach))

    assert first.next_before in (mine[1].id, None)
    assert found(store, reach=reach, owner="bob") == []


INDEX_OF = {
    "page_of_tasks_in_status": "tasks_by_status",
    "page_of_tasks_of_owner": "tasks_by_owner",
    "page_of_tasks_of_owner_in_status": "tasks_by_owner_status",
    "page_of_tasks_of_name": "tasks_by_name",
    "page_of_tasks_of_runtime": "tasks_by_runtime",
    "page_of_tasks_of_key": "tasks_by_key",
    "page_of_tasks_of_session": "tasks_by_session",
    "page_of_tasks_of_agent": "tasks_by_agent",
    "page_of_recorded_tasks_of_agent": "recorded_tasks_by_agent",
    "page_of_recorded_tasks_of_child": "recorded_tasks_by_child",
}


def plan_of(store: SqliteStore, query: str) -> str:
    sql = load_queries("sqlite")[query]
    params = dict.fromkeys(re.findall(r":(\w+)", sql))

    def ask(session: Any) -> str:
        rows = session.connection.execute(f"EXPLAIN QUERY PLAN {sql}", params)
        return "\n".join(str(row[3]) for row in rows)

    return store._writer.exclusively(ask)


@pytest.mark.parametrize("query", INDEX_OF)
def test_a_page_by_any_filter_comes_from_its_index_in_order(tmp_path: Path, query: str) -> None:
    """On PostgreSQL statistics decide, and for one task all indexes cost the same: the analyzed ledger in
    tests/store/postgres/test_query_plans.py shows it there."""
    with closing(SqliteStore(tmp_path / "ledger.db", clock=FakeClock())) as store:
        plan = plan_of(store, query)

    assert re.search(rf"INDEX {INDEX_OF[query]}\b", plan), plan
    assert not re.search(r"^SCAN|TEMP B-TREE", plan, re.MULTILINE), plan
