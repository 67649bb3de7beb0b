"""Plans that PostgreSQL makes for our queries use their indexes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from holdfast.core.ids import TaskId
from holdfast.core.recorded import RecordedDetails, ScopeKind
from holdfast.core.task import RuntimeName
from holdfast.core.transitions import RunStatus, TaskStatus, is_terminal
from holdfast.store import Tx
from holdfast.store.postgres import PostgresStore
from holdfast.store.queries import load_queries, numbered
from tests.builders import START, a_task, later, stored_checkpoint, stored_run

pytestmark = pytest.mark.slow
BY_INDEX = {
    "runs_pkey": "save_step save_steps hold_run save_progress lock_run lock_running claim_run end_run"
    " begin_effect release_run wait_run wake_run exonerate_run end_idle_run pause_runs set_runs_resuming"
    " set_runs_paused_again set_runs_resumed claim_ready_runs ready_due_runs",
    "runs_ready": "claim_ready_runs",
    "runs_later": "ready_due_runs",
    "runs_suspect": "suspects_waiting",
    "runs_alive": "live_run_of_task live_runs_of_tasks",
    "runs_recorded": "recorded_runs",
    "runs_waiting": "waits_over",
    "runs_waiting_since": "waits_ahead last_wait_written",
    "runs_later_since": "reschedule_runs_ahead last_wait_written",
    "wakes_due": "due_wakes fire_due_wakes next_wake",
    "wakes_written": "last_wake_written reschedule_wakes_ahead",
    "runs_claimed": "claims_with_token runs_of_boot boot_carries_any boots_in_flight",
    "runs_alone": "boot_carries_suspect",
    "runs_leased": "lapsed_runs",
    "run_checkpoints_resumable": "claim_checkpoints",
    "run_checkpoints_open": "open_checkpoint_of_run",
    "run_checkpoints_resuming": "resumes_with_token resuming_of_boot boots_in_flight",
    "ledger_events_feed": "feed newest_events oldest_event rebase_events",
    "ledger_events_by_task": "feed_of_task",
    "steps_pkey": "get_step steps_of_task steps_of_tasks steps_from steps_of_scope_from journal_heads"
    " last_steps delete_step"
    " delete_steps_of_scope",
    "scope_ops_pkey": "ops_of_tasks delete_scope_ops_of_scope",
    "turns_pkey": "get_turn turns_of_task turns_of_loop journal_heads last_steps"
    " page_of_turns turns_below find_turn",
    "kept_steps_pkey": "get_kept_steps",
    "loops_pkey": "loops_of_tasks delete_loops_below",
    "list_deltas_pkey": "get_delta deltas_of_tasks",
    "durable_values_pkey": "values_of_tasks",
    "mail_pkey": "next_mail_seq",
    "mail_open": "next_mail",
    "effects_doubted": "get_effect find_effects review_effect",
    "effects_pkey": "find_effect settle_effect finish_effect effects_of_task unsettled_effects"
    " done_effects_of_task done_effects_of_tasks get_done_effect close_effects_of_scope journal_heads"
    " last_steps done_effects_from done_effects_of_scope_from past_effects_of_scope",
    "effects_past": "newest_effects_of_task",
    "effects_verifiable": "settled_keys",
    "effects_unknown": "effects_to_review",
    "deliveries_due": "due_deliveries waiting_channels",
    "deliveries_open": "due_deliveries oldest_owed",
    "deliveries_attempting": "lapsed_deliveries",
    "deliveries_failed": "failed_deliveries",
    "questions_pkey": "get_question",
    "questions_by_task": "open_questions_of_task",
    "questions_open": "open_questions",
    "flow_nodes_pkey": "get_flow_nodes page_of_flow_nodes meet_flow_needs move_flow_node flow_node_by_id",
    "flow_nodes_by_task": "flow_node_of_task",
    "flow_nodes_failed": "failed_flow_nodes",
    "flows_by_owner": "page_of_flows_of_owner",
    "flows_by_owner_status": "page_of_flows_of_owner_in_status",
    "flows_by_status": "page_of_flows_in_status",
    "flows_to_clean": "flows_to_prune",
    "flows_to_stop": "flows_to_stop",
    "tasks_by_flow": "tasks_of_flow",
    "tasks_to_stop_of_flow": "lock_tasks_to_stop_of_flow tasks_to_stop_of_flow",
    "tasks_pkey": "hold_task",
    "tasks_by_status": "page_of_tasks_in_status",
    "tasks_by_owner": "page_of_tasks_of_owner",
    "tasks_by_owner_status": "page_of_tasks_of_owner_in_status",
    "tasks_by_end": "page_of_tasks_by_end",
    "tasks_by_runtime_end": "tasks_past_limit_of_runtime",
    "tasks_to_clean": "tasks_past_retention tasks_to_prune",
    "tasks_unstamped": "unstamped_tasks",
    "recorded_tasks_dropped": "recorded_tasks_with_drops",
    "recorded_tasks_late": "recorded_tasks_with_late_reports",
    "tasks_to_stop": "recorded_runs_to_stop",
    "tasks_by_parent": "children_of_task children_of_task_alive",
}


# Pages by a filter. The server may think that many tasks fit, and walk through the primary key until it has a
# page of them; if few tasks fit, that reads the whole history.
FILTERED = {
    "tasks_by_status": "page_of_tasks_in_status oldest_task_in_status",
    "tasks_by_owner": "page_of_tasks_of_owner",
    "tasks_by_owner_status": "page_of_tasks_of_owner_in_status",
    "tasks_by_name": "page_of_tasks_of_name",
    "tasks_by_runtime": "page_of_tasks_of_runtime",
    "tasks_by_key": "page_of_tasks_of_key",
    "tasks_by_session": "page_of_tasks_of_session",
    "tasks_by_agent": "page_of_tasks_of_agent",
    "recorded_tasks_by_agent": "page_of_recorded_tasks_of_agent",
    "recorded_tasks_by_child": "page_of_recorded_tasks_of_child",
    "tasks_by_end": "page_of_tasks_by_end",
}


def plan_of(store: PostgresStore, query: str) -> str:
    """The plan for any values."""
    sql, _ = numbered(load_queries("postgres")[query])

    def explain(session: Any) -> str:
        result = session._link.command(f"EXPLAIN (GENERIC_PLAN) {sql}".encode())
        return "\n".join(row[0] for row in session._link.rows(result))

    return store._writer.exclusively(explain)


def test_a_page_of_an_analyzed_ledger_uses_the_index_of_its_filter(store: PostgresStore) -> None:
    ended = [status for status in TaskStatus if is_terminal(status)]
    runtimes = list(RuntimeName)
    tasks = [
        a_task(
            id=TaskId(f"task_{number:06d}"),
            status=ended[number % 5],
            cleanup_after=later(days=30),
            ended_at=later(seconds=number),
            runtime=runtimes[number % 8],
            owner=f"owner {number % 5}",
            name=f"name {number % 5}",
            session_key=f"agent:agent {number % 5}:main",
            dedup_key=f"key {number % 5}",
        )
        for number in range(3000)
    ]

    def fill(tx: Tx) -> None:
        facts: dict[str, object] = {"scope": ScopeKind.SYSTEM}
        tx.tasks.create_many(tasks)
        for task in tasks:
            number = int(task.id[-1]) % 5
            facts |= {"agent_id": f"agent {number}", "child_session_key": f"agent:child:{number}"}
            details = facts | {"task_id": task.id, "created_at": START, "last_event_at": START}
            tx.recorded.create(msgspec.convert(details, RecordedDetails))

    store.write_now(fill)
    analyze: Callable[[Any], object] = lambda session: session._link.command(b"ANALYZE")  # noqa: E731 - its type
    store._writer.exclusively(analyze)

    plans = {
        (index, query): plan_of(store, query)
        for index, queries in FILTERED.items()
        for query in queries.split()
    }
    wrong = {
        query: plan for (index, query), plan in plans.items() if not re.search(rf"using {index}\b", plan)
    }
    assert wrong == {}


def test_plans_made_while_the_ledger_was_young_are_good_for_an_old_one(store: PostgresStore) -> None:
    """Plans are kept until the server analyzes the table: until then they must not read all there is."""
    stored_run(store, RunStatus.RUNNING)
    stored_checkpoint(store)
    plans = [
        (query, index, plan_of(store, query)) for index, names in BY_INDEX.items() for query in names.split()
    ]

    for query, index, plan in plans:
        assert re.search(rf"(?:using|Bitmap Index Scan on) {index}\b", plan), (query, plan)
        # Boots are few, however long the history: a process leaves one, and retention takes it.
        assert not re.search(r"Seq Scan on (?!boots\b)\w+", plan), (query, plan)
        assert not re.search(r"Filter: .*\bid = ", plan), (query, plan)
