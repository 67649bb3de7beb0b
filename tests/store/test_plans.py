"""Large histories cost nothing: how SQLite runs each query at 10,000 finished tasks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import apsw
import pytest

from holdfast.core.events import EventKind
from holdfast.core.ids import RunId, TaskId
from holdfast.core.run import Queue
from holdfast.core.task import Origin, RuntimeName
from holdfast.core.task_filter import TaskFilter
from holdfast.core.transitions import (
    CheckpointStatus,
    DeliveryStatus,
    FiringStatus,
    MessageStatus,
    RunStatus,
    SessionStatus,
    TaskStatus,
)
from holdfast.engine.ledger.retention import RetentionPosition, pruning_conversations
from holdfast.store import Tx
from holdfast.store.queries import load_queries
from holdfast.store.records import PrunePosition
from holdfast.store.rows.work import row_from_task
from holdfast.store.sealing import CLOSED
from holdfast.store.sqlite import SqliteStore
from holdfast.store.tasks import LAST
from holdfast.testing import memory_store
from tests.builders import (
    BOOT,
    LEASE,
    START,
    a_checkpoint,
    a_delivery,
    a_firing,
    a_message,
    a_run,
    a_session,
    a_task,
    later,
    stored_checkpoint,
    stored_run,
    unique,
)

pytestmark = pytest.mark.slow

MANY, FEW = 10_000, 1_000
IN_FLIGHT = 20
PEER = Origin(channel="hook", peer="ada")

QUERIES = load_queries("sqlite")

# To be scanned on purpose: they read everything back, or check the file.
VERIFICATION = re.compile(
    r"scan_\w+|count_(tasks|runtimes|runs|checkpoints|flows)|integrity_check|applied_migrations|schema_\w+"
)

# These hold only what is in flight or ready, so that walking through them does not depend on history.
PARTIAL = {
    "boots_alive",
    "deliveries_attempting",
    "deliveries_due",
    "firings_open",
    "flows_unstamped",
    # Reports of producers that went wrong, newest first and limited.
    "recorded_tasks_dropped",
    "recorded_tasks_late",
    "restarts_open",
    "run_checkpoints_resumable",
    "run_checkpoints_resuming",
    "runs_alone",
    "runs_claimed",
    "runs_later",
    "runs_leased",
    "runs_ready",
    "runs_suspect",
    "runs_waiting",
    "sessions_busy",
    "sessions_ready",
    "tasks_to_stop",
}
# From one end, and no further than the limit.
FROM_ONE_END = {"newest_change_of_schedules", "newest_events", "oldest_event"}
# Few rows, however long the history: a process leaves one or one for its start, and retention takes them; a
# schedule that is over is removed; an operator or a rule makes one, and it goes with its time; the catalog.
SMALL = {
    "alert_silences",
    "alert_verdicts",
    "boots",
    "paused_agents",
    "schedules",
    "sqlite_schema",
    "starts",
}

# What a query has gathered itself, from searches that are looked at like any others.
GATHERED = re.compile(r"all_parts|first_due|owed|past|present|tree|waiting|CONSTANT|\(subquery-\d+\)")

# What is sorted is small: all that one boot carries or resumes, what is ready or paused of one task and those
# that it started, steps or effects of a task, open firings, one or two rows; or it is asked for once, when a
# process starts: the names of what is ready. Of campaigns: what carries one now, which its limit bounds,
# the items of given ids or tasks, and the failures of a phase by day. Rows of one moment, in total order.
MAY_SORT = {
    "batches_done_since",
    "begun_phases_of_items",
    "carriers_of_campaign",
    "count_interruptions",
    "effects_of_tasks",
    "failures_between",
    "failures_by_day",
    "item_phases_of_tasks",
    "items_by_ids",
    "last_actions_of_items",
    "last_change_of_campaign",
    "look_at_item_phases_of_tasks",
    "oldest_heartbeat_of_campaign",
    "reschedule_runs_ahead",
    "reschedule_wakes_ahead",
    "slots_of_tasks",
    "unheard_runs_of_campaign",
    "waits_ahead",
    "boots_in_flight",
    "claims_with_token",
    "done_effects_from",
    "done_effects_of_scope_from",
    "done_effects_of_task",
    "effects_of_task",
    "effects_to_stop",
    "find_delivery",
    "find_firing",
    "find_message",
    "find_session",
    "firings_to_settle",
    "journal_heads",
    "lapsed_resumes",
    "last_steps",
    "names_of_ready_runs",
    "newest_done_effects_of_task",
    "newest_effects_of_task",
    "newest_steps_of_task",
    "paused_checkpoints_of_tree",
    "ready_runs_of_tree",
    "resumes_with_token",
    "resuming_of_boot",
    "runs_of_boot",
    "startable_firings",
    "steps_from",
    "steps_of_scope_from",
    "steps_of_task",
    "steps_of_tasks",
}


def fill(store: SqliteStore, finished: int) -> None:
    """So many finished tasks with a run, a checkpoint and an event each, and a few that are in flight."""

    def write(tx: Tx) -> None:
        tasks = [
            a_task(
                id=TaskId(f"task_{number:06d}"),
                status=TaskStatus.SUCCEEDED,
                owner=f"owner {number % 10}",
                cleanup_after=later(days=30),
                dedup_key=str(number),
            )
            for number in range(finished)
        ]
        runs = [
            a_run(task, id=RunId(f"run_{task.id[5:]}"), status=RunStatus.RESUMED, claimed_by=BOOT)
            for task in tasks
        ]
        tx.statements.many("insert_task", [row_from_task(task, CLOSED) for task in tasks])
        tx.runs.create_many(runs)
        tx.checkpoints.create_many(
            [a_checkpoint(run, status=CheckpointStatus.RESUMED, token="past") for run in runs]
        )
        for run in runs:
            tx.emit(EventKind.RUN_ENDED, run.id, at=START, task_id=run.task_id)
        for number in range(finished):
            tell_old_story(tx, number)

    store.write_now(write)
    store.write_now(begin_conversations)
    for _ in range(IN_FLIGHT):
        stored_run(store)
        stored_run(store, RunStatus.RUNNING)
        stored_run(store, queue=Queue.LATER)
        stored_run(store, RunStatus.WAITING)
        stored_checkpoint(store)
        stored_checkpoint(store, CheckpointStatus.RESUMING)


def tell_old_story(tx: Tx, number: int) -> None:
    """A session in which a person was answered, a schedule that fired, and nothing that is owed any more."""
    key = f"agent:scholar:{number % 100}" if number % 10 else f"agent:scholar:old {number}"
    tx.sessions.create(a_session(key=key, last_position=1))
    tx.messages.create(
        a_message(session_key=key, status=MessageStatus.ANSWERED, task_id=f"task_{number:06d}")
    )
    tx.firings.create(
        a_firing(schedule="nightly", occurrence_at=later(minutes=number), status=FiringStatus.DONE)
    )
    tx.deliveries.create(a_delivery(origin=PEER, status=DeliveryStatus.DELIVERED))


def begin_conversations(tx: Tx) -> None:
    for number in range(IN_FLIGHT):
        key = f"agent:scholar:ready {number}"
        tx.sessions.create(a_session(key=key, queued=1, last_position=1, ready_at=START))
        tx.messages.create(a_message(session_key=key))
        busy = a_session(status=SessionStatus.PROCESSING, task_id=f"task_{number:06d}")
        tx.sessions.create(busy)
        tx.firings.create(a_firing(status=FiringStatus.RUNNING))
        tx.deliveries.create(a_delivery(origin=PEER))
        tx.deliveries.create(a_delivery(status=DeliveryStatus.ATTEMPTING))


@pytest.fixture(scope="module")
def many() -> Iterator[SqliteStore]:
    store = memory_store()
    fill(store, MANY)
    yield store
    store.close()


@pytest.fixture(scope="module")
def few() -> Iterator[SqliteStore]:
    store = memory_store()
    fill(store, FEW)
    yield store
    store.close()


def connection_of(store: SqliteStore) -> apsw.Connection:
    connection: apsw.Connection = store._writer.exclusively(lambda session: session.connection)  # type: ignore[attr-defined]
    return connection


def plan_of(store: SqliteStore, name: str) -> list[str]:
    sql = QUERIES[name]
    params = dict.fromkeys(re.findall(r":(\w+)", sql)) or (None,) * sql.count("?")
    return [str(row[3]) for row in connection_of(store).execute(f"EXPLAIN QUERY PLAN {sql}", params)]


HOT = sorted(name for name in QUERIES.names if not VERIFICATION.fullmatch(name))


def test_a_plan_depends_on_the_schema_alone(few: SqliteStore, many: SqliteStore) -> None:
    """So the other tests of plans look at the smaller ledger."""
    plans = {name: plan_of(many, name) for name in HOT}

    assert len(plans) > 400
    assert plans == {name: plan_of(few, name) for name in HOT}


def test_no_query_walks_through_the_history(few: SqliteStore) -> None:
    walking = []
    for name in HOT:
        for scan in (line for line in plan_of(few, name) if line.startswith("SCAN ")):
            table, _, index = re.fullmatch(r"SCAN (\S+)( USING (?:COVERING )?INDEX (\w+))?.*", scan).groups()  # type: ignore[union-attr]
            is_bounded = index in PARTIAL or table in SMALL or name in FROM_ONE_END
            if not (table == "json_each" or is_bounded or GATHERED.fullmatch(table)):
                walking.append((name, scan))

    assert walking == []


def test_no_query_sorts_what_an_index_could_give_in_order(few: SqliteStore) -> None:
    sorting = {name for name in HOT if any("TEMP B-TREE" in line for line in plan_of(few, name))}

    assert sorting == MAY_SORT


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("page_of_tasks", "sqlite_autoindex_tasks_1"),
        ("page_of_tasks_in_status", "tasks_by_status"),
        ("page_of_tasks_by_end", "tasks_by_end"),
        ("tasks_past_limit_of_runtime", "tasks_by_runtime_end"),
        ("tasks_past_limit_lost", "tasks_by_status"),
        ("page_of_tasks_of_owner", "tasks_by_owner"),
        ("page_of_tasks_of_owner_in_status", "tasks_by_owner_status"),
        ("claim_ready_runs", "runs_ready"),
        ("claim_named_runs", "runs_ready"),
        ("suspects_waiting", "runs_suspect"),
        ("ready_due_runs", "runs_later"),
        ("waits_over", "runs_waiting"),
        ("lapsed_runs", "runs_leased"),
        ("runs_of_boot", "runs_claimed"),
        ("claims_with_token", "runs_claimed"),
        ("boots_in_flight", "runs_claimed"),
        ("claim_checkpoints", "run_checkpoints_resumable"),
        ("tasks_to_prune", "tasks_to_clean"),
        ("tasks_past_retention", "tasks_to_clean"),
        ("unstamped_tasks", "tasks_unstamped"),
        ("recorded_runs", "runs_recorded"),
        ("live_runs_of_tasks", "runs_alive"),
        ("prune_events", "ledger_events_by_time"),
        ("feed_of_task", "ledger_events_by_task"),
        ("page_of_checkpoints_of_task_in_status", "run_checkpoints_by_task"),
        ("effects_to_review", "effects_unknown"),
        ("settled_keys", "effects_verifiable"),
        ("open_questions", "questions_open"),
        ("open_questions_of_task", "questions_by_task"),
        ("next_mail", "mail_open"),
        ("children_of_task", "tasks_by_parent"),
        ("children_of_task_alive", "tasks_by_parent"),
        ("newest_children_of_task", "tasks_by_parent"),
        ("families_of_tasks", "tasks_by_parent"),
        ("newest_effects_of_task", "effects_past"),
        ("ready_sessions", "sessions_ready"),
        ("ended_sessions", "sessions_busy"),
        ("busy_sessions", "sessions_busy"),
        ("page_of_sessions", "sessions_by_time"),
        ("page_of_sessions_of_agent", "sessions_by_agent"),
        ("next_message", "messages_queued"),
        ("message_of_task", "messages_taken"),
        ("open_firings", "firings_open"),
        ("due_deliveries", "deliveries_due"),
        ("due_deliveries", "deliveries_open"),
        ("oldest_owed", "deliveries_open"),
        ("failed_deliveries", "deliveries_failed"),
        ("waiting_channels", "deliveries_due"),
        ("lapsed_deliveries", "deliveries_attempting"),
        ("messages_to_prune", "messages_settled"),
        ("messages_to_prune", "messages_queued"),
        ("messages_to_prune", "messages_taken"),
        ("sessions_to_prune", "sessions_by_time"),
        ("firings_to_prune", "firings_settled"),
        ("deliveries_to_prune", "deliveries_settled"),
        ("restarts_to_prune", "restarts_settled"),
    ],
)
def test_a_hot_query_has_its_index(few: SqliteStore, name: str, index: str) -> None:
    assert any(f"INDEX {index}" in line for line in plan_of(few, name)), plan_of(few, name)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("delete_steps_of_scope", "task_id=? AND scope>? AND scope<?"),
        ("delete_scope_ops_of_scope", "task_id=? AND scope>? AND scope<?"),
        ("delete_loops_below", "task_id=? AND loop>? AND loop<?"),
        ("get_kept_steps", "task_id=? AND loop=? AND seq=?"),
        ("page_of_turns", "task_id=? AND (loop,seq)>(?,?)"),
        ("past_effects_of_scope", "task_id=? AND in_journal=? AND scope=?"),
        ("turns_of_loop", "task_id=? AND loop=? AND seq>?"),
    ],
)
def test_what_an_agent_does_in_every_turn_touches_only_that_turn(
    few: SqliteStore, name: str, key: str
) -> None:
    assert any(f"USING PRIMARY KEY ({key})" in line for line in plan_of(few, name)), plan_of(few, name)


# --- what it costs

ACTS: dict[str, Callable[[Tx], object]] = {
    "a page of tasks": lambda tx: tx.tasks.page(limit=20),
    "a later page of tasks": lambda tx: tx.tasks.page(before="task_000500", limit=20),
    "a page in two statuses": lambda tx: tx.tasks.page(
        statuses=[TaskStatus.RUNNING, TaskStatus.QUEUED], limit=20
    ),
    "a page of an owner": lambda tx: tx.tasks.page(owner="owner 3", limit=20),
    "a page of checkpoints": lambda tx: tx.checkpoints.page(status=CheckpointStatus.FAILED_RESUME),
    "a page of a name": lambda tx: tx.tasks.find(TaskFilter(names=frozenset({"research"})), limit=20),
    "a page of a runtime": lambda tx: tx.tasks.find(TaskFilter(runtime=RuntimeName.PYTHON), limit=20),
    "a page of an agent": lambda tx: tx.tasks.find(TaskFilter(agent="scholar"), limit=20),
    "a page of a session": lambda tx: tx.tasks.find(TaskFilter(session_key="agent:scholar:7"), limit=20),
    "a page of a key": lambda tx: tx.tasks.find(TaskFilter(key="7"), limit=20),
    "a page of the last hour": lambda tx: tx.tasks.find(TaskFilter(created_after=START), limit=20),
    "counts": lambda tx: tx.events.counts("task"),
    "a prefix": lambda tx: tx.tasks.resolve("task_000500"),
    "the end of the feed": lambda tx: tx.events.newest(limit=20),
    "a claim": lambda tx: tx.runs.claim_ready(
        boot_id=BOOT, token=unique(), names=None, limit=5, now=START, lease=LEASE
    ),
    "a claim by name": lambda tx: tx.runs.claim_ready(
        boot_id=BOOT, token=unique(), names=["research"], limit=5, now=START, lease=LEASE
    ),
    "a claim of checkpoints": lambda tx: tx.checkpoints.claim(
        boot_id=BOOT, token=unique(), limit=5, now=START, lease=LEASE
    ),
    "what a boot carries": lambda tx: tx.runs.of_boot(BOOT, limit=1000),
    "what a boot resumes": lambda tx: tx.checkpoints.resuming_of_boot(BOOT, limit=1000),
    "boots in flight": lambda tx: tx.boots.in_flight(),
    "lapsed runs": lambda tx: tx.runs.lapsed(now=later(days=1), limit=1000),
    "lapsed resumes": lambda tx: tx.checkpoints.lapsed(now=later(days=1), limit=1000),
    "the mover": lambda tx: tx.runs.ready_due(now=START, limit=5),
    "waits that are over": lambda tx: tx.runs.waits_over(now=START, limit=100),
    "sessions that are ready": lambda tx: tx.sessions.ready(["scholar"], limit=100),
    "sessions whose task has ended": lambda tx: tx.sessions.ended(limit=100),
    "sessions in flight": lambda tx: tx.sessions.busy(limit=100),
    "a page of sessions": lambda tx: tx.sessions.page(agent="scholar", limit=20),
    "the next message": lambda tx: tx.messages.next_of("agent:scholar:ready 1"),
    "the end of a transcript": lambda tx: tx.messages.before("agent:scholar:7", limit=5),
    "the last firing": lambda tx: tx.firings.last_of("nightly"),
    "the history of all schedules": lambda tx: tx.firings.newest(limit=20),
    "firings in flight": lambda tx: tx.firings.open(limit=100),
    "deliveries that are due": lambda tx: tx.deliveries.due("hook", now=START, limit=100),
    "channels that wait": lambda tx: tx.deliveries.waiting_channels(),
    "deliveries in doubt": lambda tx: tx.deliveries.lapsed(["hook"], now=later(days=1)),
    "nothing to prune": lambda tx: tx.tasks.to_prune(now=later(days=1), limit=100),
    "no conversation to prune": lambda tx: pruning_conversations(now=later(days=1), walk=RetentionPosition())(
        tx
    ),
    "old messages that must stay": lambda tx: tx.messages.old(
        older_than=later(days=1), kept=1_000_000, after=PrunePosition(), limit=100
    ),
}


class Undone(Exception):
    """Leaves the ledger as it was for the next measurement."""


def cost_of(store: SqliteStore, act: Callable[[Tx], object]) -> int:
    """How many steps SQLite's machine took."""
    steps = 0

    def profile(trace: dict[str, object]) -> None:
        nonlocal steps
        status = trace["stmt_status"]
        assert isinstance(status, dict)
        steps += status["SQLITE_STMTSTATUS_VM_STEP"]

    def run(tx: Tx) -> None:
        connection = connection_in(store)
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, profile)
        try:
            act(tx)
        finally:
            connection.trace_v2(0, None)
        raise Undone

    with pytest.raises(Undone):
        store.write_now(run)
    return steps


def connection_in(store: SqliteStore) -> apsw.Connection:
    """The same connection, inside a write that holds it."""
    connection: apsw.Connection = store._writer._sessions[0].connection  # type: ignore[attr-defined]
    return connection


def test_ten_times_the_history_costs_the_same(few: SqliteStore, many: SqliteStore) -> None:
    costs = {name: (cost_of(few, act), cost_of(many, act)) for name, act in ACTS.items()}

    assert {name: cost for name, cost in costs.items() if not 0 < cost[1] <= cost[0] * 1.05 + 10} == {}


@pytest.mark.parametrize("is_first_late", [False, True])
def test_a_look_costs_the_same_however_much_one_target_is_owed(is_first_late: bool) -> None:
    def cost(owed: int) -> int:
        store = memory_store()

        def fill_up(tx: Tx) -> None:
            for number in range(owed):
                due_at = later(days=1) if is_first_late and number == 0 else START
                at = later(microseconds=number)
                tx.deliveries.create(a_delivery(origin=PEER, created_at=at, due_at=due_at))

        store.write_now(fill_up)
        found = cost_of(store, lambda tx: tx.deliveries.due("hook", now=later(minutes=1), limit=16))
        store.close()
        return found

    assert 0 < cost(5000) <= cost(500) * 1.05 + 10


def test_the_measurement_sees_a_scan(few: SqliteStore, many: SqliteStore) -> None:
    def scan(tx: Tx) -> object:
        return tx.statements.all("count_runs", {})

    assert cost_of(many, scan) > 5 * cost_of(few, scan)


def test_a_page_token_leads_through_the_whole_history(many: SqliteStore) -> None:
    def walk(tx: Tx) -> int:
        seen, before = 0, LAST
        while page := tx.tasks.page(before=before, limit=1000):
            seen, before = seen + len(page), page[-1].id
        return seen

    assert many.read_now(walk) == MANY + 6 * IN_FLIGHT
