"""import openclaw: every fact is kept, an import may be repeated, and no requester is told because of it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast.api.contract import EVERYTHING
from holdfast.api.targets import find_target
from holdfast.core.errors import AmbiguousId, BadInput, NotFound
from holdfast.core.import_report import ImportReport
from holdfast.core.imported import ActivePolicy, ImportChange, ImportOutcome, ImportSource
from holdfast.core.payload import decode_payload
from holdfast.core.recorded import RecordedDetails, TerminalOutcome
from holdfast.core.task import Origin, RuntimeName, Task
from holdfast.core.transitions import RunStatus, TaskStatus
from holdfast.engine.ledger.retention import pruning
from holdfast.engine.producers.imports import PreparedTask, taking_over
from holdfast.store import Store
from holdfast.testing import FakeClock
from holdfast.upkeep.sweep import Sweep
from tests.conftest import Ledger
from tests.engine.tables import dump, query
from tests.fake_secrets import SHAPES
from tests.integrations.import_doors import PreviewDoor, StoreDoor, import_from, run_import
from tests.integrations.openclaw_databases import (
    ORIGIN,
    RELEASES,
    OpenClawHome,
    active_row,
    flow_row,
    task_row,
)


def counts(report: ImportReport) -> dict[str, int]:
    found = {change.value: number for change, number in report.tasks.changes.items()}
    return found | ({"left_out": report.tasks.left_out} if report.tasks.left_out else {})


def task_of(store: Store, row: dict[str, Any]) -> Task:
    return store.read_now(lambda tx: tx.tasks.get(find_target(tx, row["task_id"], EVERYTHING)))


def details_of(store: Store, task: Task) -> RecordedDetails:
    found = store.read_now(lambda tx: tx.recorded.get(task.id))
    assert found is not None
    return found


def deliveries(store: Store) -> list[tuple[str, ...]]:
    return query(store, "SELECT status, channel FROM deliveries ORDER BY status")


@pytest.fixture
def state(tmp_path: Path) -> OpenClawHome:
    return OpenClawHome(tmp_path / "openclaw")


# --- every fact is kept


def test_a_task_keeps_its_ids_its_owner_its_times_and_its_words(
    state: OpenClawHome, store: Store, clock: FakeClock
) -> None:
    parent = task_row(1)
    row = task_row(
        2,
        parent_task_id=parent["task_id"],
        tool_use_count=3,
        last_tool_name="bash",
        terminal_outcome="blocked",
        detail_json='{"kind": "cron", "n": 1}',
        requester_agent_id="scout",
        execution_owner_pid=42,
    )
    state.add(row, parent)

    report = import_from(state, store, clock)

    task, details = task_of(store, row), details_of(store, task_of(store, row))
    assert counts(report) == {"created": 2}
    assert (task.status, task.runtime, task.owner) == (
        TaskStatus.SUCCEEDED,
        RuntimeName.SUBAGENT,
        "agent:main:main",
    )
    assert (task.goal, task.notify.value) == (row["task"], "done_only")
    assert task.origin == Origin(channel="telegram", peer="chat-7", account_id="bot1", thread="12")
    assert task.parent_task_id == task_of(store, parent).id
    assert task.session_key == "agent:main:main"
    times = [task.created_at, task.started_at, task.ended_at]
    assert [moment.timestamp() * 1000 for moment in times if moment] == [
        row["created_at"],
        row["started_at"],
        row["ended_at"],
    ]
    assert (details.source_id, details.agent_id, details.child_session_key) == (
        "job-1",
        "main",
        "agent:main:subagent:2",
    )
    assert (details.progress_summary, details.terminal_summary) == ("half way", "40 beds")
    assert (details.terminal_outcome, details.tool_use_count) == (TerminalOutcome.BLOCKED, 3)
    rest = decode_payload(task.arguments)["openclaw"]  # type: ignore[index]
    assert (rest["detail_json"], rest["label"]) == ({"kind": "cron", "n": 1}, "tides")
    assert (rest["requester_agent_id"], rest["execution_owner_pid"]) == ("scout", 42)
    assert rest["requester_origin"] == ORIGIN


def test_a_task_is_found_by_its_id_and_by_its_run_id_there(
    state: OpenClawHome, store: Store, clock: FakeClock
) -> None:
    row, twin, other = task_row(1), task_row(2, run_id="run:A"), task_row(3, run_id="run:A")
    state.add(row, twin, other)
    import_from(state, store, clock)
    task = task_of(store, row)

    found = store.read_now(lambda tx: find_target(tx, row["run_id"], EVERYTHING))

    assert found == task.id
    with pytest.raises(AmbiguousId):
        store.read_now(lambda tx: find_target(tx, "run:A", EVERYTHING))
    with pytest.raises(NotFound):
        store.read_now(lambda tx: find_target(tx, "run:B", EVERYTHING))


@pytest.mark.parametrize("release", RELEASES)
def test_the_tables_of_every_release_are_read(
    release: str, tmp_path: Path, store: Store, clock: FakeClock
) -> None:
    state = OpenClawHome(tmp_path / "old", release)
    columns = {str(row[1]) for row in state.execute("PRAGMA table_info(task_runs)")}
    row = {name: value for name, value in task_row().items() if name in columns}
    state.add(row)

    report = import_from(state, store, clock)

    assert (counts(report), report.unknown_columns) == ({"created": 1}, set())
    assert task_of(store, row).session_key == "agent:main:main"


def test_a_database_without_owners_gets_them_from_the_requester(
    tmp_path: Path, store: Store, clock: FakeClock
) -> None:
    state = OpenClawHome(tmp_path / "first")
    state.execute("DROP TABLE task_runs")
    state.execute(
        "CREATE TABLE task_runs "
        "(task_id, runtime, requester_session_key, source_id, task, status, created_at)"
    )
    of_session: dict[str, Any] = {
        "requester_session_key": "agent:ada:main",
        "runtime": "acp",
        "source_id": None,
    }
    of_system: dict[str, Any] = {"requester_session_key": "", "runtime": "cron", "source_id": "job-9"}
    rows: list[dict[str, Any]] = [
        {"task_id": f"t-{number}", "task": "x", "status": "lost", "created_at": 1_700_000_000_000} | of
        for number, of in enumerate((of_session, of_system))
    ]
    state.add(*rows)

    import_from(state, store, clock)

    first, second = (task_of(store, row) for row in rows)
    assert (first.owner, first.session_key) == ("agent:ada:main", "agent:ada:main")
    assert (second.owner, second.session_key) == ("system:cron:job-9", None)
    assert first.ended_at == first.created_at


# --- nobody is told


def test_an_import_owes_no_message_to_anybody(state: OpenClawHome, store: Store, clock: FakeClock) -> None:
    said = (
        "pending",
        "delivered",
        "session_queued",
        "failed",
        "parent_missing",
        "not_applicable",
        "dismissed",
    )
    state.add(*(task_row(number, delivery_status=status) for number, status in enumerate(said)))
    state.add(active_row(20), active_row(21, "queued"))

    report = import_from(state, store, clock)

    assert report.owed == 1
    assert [status for status, _ in deliveries(store)] == [
        "delivered",
        "dismissed",
        "dismissed",
        "failed",
        "parent_missing",
        "session_queued",
    ]
    assert store.read_now(lambda tx: tx.deliveries.owed()) == []
    evidence = query(
        store, "SELECT failure FROM deliveries WHERE status = 'dismissed' AND failure IS NOT NULL"
    )
    assert b"had not told its requester" in bytes(evidence[0][0])


async def test_running_work_is_lost_after_a_day_and_no_requester_is_told(
    state: OpenClawHome, store: Store, clock: FakeClock
) -> None:
    row = active_row()
    state.add(row)
    import_from(state, store, clock)
    sweep = Sweep(store, clock)

    clock.advance(hours=20)
    await sweep.run_once()
    before = task_of(store, row).status
    clock.advance(hours=5)
    for _ in range(3):
        await sweep.run_once()
        clock.advance(minutes=1)
        await sweep.run_once()
        clock.advance(minutes=2)

    assert (before, task_of(store, row).status) == (TaskStatus.RUNNING, TaskStatus.LOST)
    assert deliveries(store) == []


# --- again, and after the source moved on


def test_a_second_import_changes_nothing(state: OpenClawHome, store: Store, clock: FakeClock) -> None:
    state.add(*(task_row(number) for number in range(5)), active_row(7), active_row(8, "queued"))
    import_from(state, store, clock)
    before = dump(store)
    clock.advance(days=2)

    again = import_from(state, store, clock)

    assert counts(again) == {"unchanged": 7}
    assert dump(store) == before


def test_an_import_takes_over_how_running_work_ended(
    state: OpenClawHome, store: Store, clock: FakeClock
) -> None:
    row, queued = active_row(1, notify_policy="state_changes"), active_row(2, "queued")
    state.add(row, queued)
    import_from(state, store, clock)
    state.change(task_row(1, notify_policy="state_changes"))
    state.change(
        task_row(2, status="failed", error="no tide", delivery_status="failed", terminal_outcome=None)
    )
    clock.advance(minutes=10)

    report = import_from(state, store, clock)

    done, failed = task_of(store, row), task_of(store, queued)
    assert counts(report) == {"advanced": 2}
    assert (done.status, failed.status) == (TaskStatus.SUCCEEDED, TaskStatus.FAILED)
    assert done.ended_at is not None
    assert done.ended_at.timestamp() * 1000 == task_row(1)["ended_at"]
    assert done.notify.value == "state_changes"
    assert failed.failure is not None
    assert failed.failure.message == "no tide"
    assert details_of(store, done).terminal_summary == "40 beds"
    assert [status for status, _ in deliveries(store)] == ["delivered", "failed"]
    assert counts(import_from(state, store, clock)) == {"unchanged": 2}
    assert store.read_now(lambda tx: tx.events.counts("task")) == {"succeeded": 1, "failed": 1}


def test_progress_of_running_work_counts_as_a_sign_of_life(
    state: OpenClawHome, store: Store, clock: FakeClock
) -> None:
    row = active_row()
    state.add(row)
    import_from(state, store, clock)
    first = details_of(store, task_of(store, row)).alive_until
    clock.advance(hours=1)
    state.change(row | {"last_event_at": row["last_event_at"] + 60_000, "progress_summary": "nearly done"})

    report = import_from(state, store, clock)

    details = details_of(store, task_of(store, row))
    assert counts(report) == {"advanced": 1}
    assert details.progress_summary == "nearly done"
    assert (details.alive_until, first) == (
        clock.now() + timedelta(days=1),
        clock.now() + timedelta(hours=23),
    )


def test_an_end_here_is_never_changed_and_what_the_other_gateway_says_is_kept(
    state: OpenClawHome, store: Store, clock: FakeClock
) -> None:
    row = active_row()
    state.add(row, task_row(2))
    import_from(state, store, clock, active=ActivePolicy.LOST)
    state.change(task_row(1))
    state.change(active_row(2))

    report, again = import_from(state, store, clock), import_from(state, store, clock)

    task = task_of(store, row)
    assert counts(report) == counts(again) == {"ignored": 2}
    assert task.status is TaskStatus.LOST
    late = details_of(store, task).late_report
    assert late is not None
    assert (late.status, late.summary) == (RunStatus.SUCCEEDED, "40 beds")
    assert "it has ended here as lost, and is succeeded there" in [one.why for one in report.ignored]


def test_work_in_flight_can_be_left_to_openclaw(state: OpenClawHome, store: Store, clock: FakeClock) -> None:
    state.add(active_row(1), task_row(2))

    report = import_from(state, store, clock, active=ActivePolicy.SKIP)

    assert (counts(report), report.tasks.skipped) == ({"created": 1}, 1)
    assert report.is_complete


def test_what_retention_deleted_is_not_imported_again(
    state: OpenClawHome, store: Store, clock: FakeClock
) -> None:
    row = task_row()
    state.add(row)
    import_from(state, store, clock)
    clock.advance(days=31)
    store.write_now(pruning(now=clock.now()))
    state.change(row | {"label": "other"})

    report = import_from(state, store, clock)

    assert counts(report) == {"unchanged": 1}
    with pytest.raises(NotFound):
        task_of(store, row)
    clock.advance(days=91)
    store.write_now(pruning(now=clock.now()))
    assert query(store, "SELECT COUNT(*) FROM imported_records") == [(0,)]


def test_old_work_is_kept_for_a_whole_retention_after_the_import(
    state: OpenClawHome, store: Store, clock: FakeClock
) -> None:
    row = task_row(created_at=1_600_000_000_000, cleanup_after=1_600_604_800_000)
    state.add(row)
    import_from(state, store, clock)
    clock.advance(days=29)

    store.write_now(pruning(now=clock.now()))

    assert task_of(store, row).status is TaskStatus.SUCCEEDED


def test_the_newer_database_tells_how_work_of_the_older_one_ended(
    tmp_path: Path, store: Store, clock: FakeClock
) -> None:
    old = OpenClawHome(tmp_path / "openclaw", "2026.5.28")
    old.add(active_row(1))
    new = OpenClawHome(tmp_path / "openclaw", "2026.9.6")
    new.add(task_row(1))

    report = import_from(new, store, clock)

    assert counts(report) == {"created": 1, "advanced": 1}
    assert task_of(store, task_row(1)).status is TaskStatus.SUCCEEDED


# --- twice, and two at once


def test_a_batch_that_runs_again_after_its_own_commit_gives_the_same_answer(
    state: OpenClawHome, store: Store, clock: FakeClock
) -> None:
    state.add(task_row(1), active_row(2))
    import_from(state, store, clock)
    state.change(task_row(2))
    state.add(task_row(3))
    taken: list[tuple[str, Sequence[PreparedTask]]] = []

    class Keeping(StoreDoor):
        def take(self, batch_id: str, tasks: Sequence[PreparedTask]) -> list[ImportOutcome]:
            taken.append((batch_id, tasks))
            return super().take(batch_id, tasks)

    import_from(state, store, clock, batch_size=9, door=Keeping(store, clock))
    before = dump(store)
    batch_id, tasks = taken[0]
    write = taking_over(tasks, source=ImportSource.OPENCLAW, batch_id=batch_id, now=clock.now())

    answer = store.write_now(write)

    assert {one.change for one in answer} == set(ImportChange) - {ImportChange.IGNORED}
    after = dump(store)
    assert after["tasks"] == before["tasks"]
    assert after["counters"] == before["counters"]


def test_two_imports_at_once_import_each_task_once(
    state: OpenClawHome, store: Store, ledger: Ledger, clock: FakeClock
) -> None:
    flows = [flow_row(number, sync_mode="task_mirrored", controller_id=None) for number in range(5)]
    state.add_flows(*flows)
    state.add(*(task_row(number, parent_flow_id=flows[number % 5]["flow_id"]) for number in range(40)))
    stores, reports = [store, ledger.open()], list[ImportReport]()
    barrier = threading.Barrier(2)

    def work(mine: Store) -> None:
        barrier.wait()
        reports.append(import_from(state, mine, clock, batch_size=3))

    threads = [threading.Thread(target=work, args=(one,)) for one in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    total = [sum(report.tasks.changes[change] for report in reports) for change in ImportChange]
    assert total == [40, 0, 40, 0]
    assert query(store, "SELECT COUNT(*) FROM tasks") == [(40,)]
    assert query(store, "SELECT DISTINCT live, succeeded FROM flows") == [(0, 8)]
    assert store.read_now(lambda tx: tx.events.counts("task")) == {"succeeded": 40}


def test_a_preview_says_what_an_import_would_do_and_writes_nothing(
    state: OpenClawHome, store: Store, clock: FakeClock
) -> None:
    state.add(task_row(1), active_row(2), active_row(3))
    import_from(state, store, clock, active=ActivePolicy.LOST)
    state.change(task_row(2))
    state.change(active_row(3))
    state.add(task_row(4))
    before = dump(store)

    preview = import_from(state, store, clock, door=PreviewDoor(store, clock))

    assert dump(store) == before
    assert counts(preview) == counts(import_from(state, store, clock))
    assert counts(preview) == {"unchanged": 1, "ignored": 2, "created": 1}


# --- one event for a batch


def test_followers_hear_of_a_batch_and_not_of_every_task(
    state: OpenClawHome, store: Store, clock: FakeClock
) -> None:
    state.add(*(task_row(number) for number in range(4)))

    import_from(state, store, clock)

    events = store.read_now(lambda tx: tx.events.newest(limit=50))
    assert [event.kind.value for event in events] == ["records_imported"] * 2
    assert events[0].facts == {"source": "openclaw", "noun": "task", "created": 2, "advanced": 0}


# --- damaged and hostile rows


def test_a_row_that_cannot_be_imported_is_named_and_the_others_are_imported(
    state: OpenClawHome, store: Store, clock: FakeClock
) -> None:
    state.execute("DROP TABLE task_runs")
    names = ", ".join((*task_row(), "mood"))
    state.execute(f"CREATE TABLE task_runs ({names})")
    bad: dict[str, dict[str, Any]] = {
        "status": {"status": "daydreaming"},
        "created_at": {"created_at": "yesterday"},
        "created_at: -5": {"created_at": -5},
        "created_at: is missing": {"created_at": None},
        "started_at": {"started_at": 9_999_999_999_999},
        "ended_at": {"ended_at": "soon"},
        "task_id": {"task_id": None},
        "task_id: an id has": {"task_id": "x\x1b[2J"},
        "another row": {"task_id": task_row(50)["task_id"]},
    }
    state.add(task_row(50, mood="calm"))
    state.add(*(task_row(number) | change for number, change in enumerate(bad.values(), 1)))
    state.add(task_row(60))

    report = import_from(state, store, clock, batch_size=4)

    assert counts(report) == {"created": 2, "left_out": len(bad)}
    assert not report.is_complete
    assert report.unknown_columns == {"mood"}
    for why in bad:
        assert any(named.why.startswith(why) for named in report.left_out)
    rest = decode_payload(task_of(store, task_row(50)).arguments)
    assert rest["openclaw"]["mood"] == "calm"  # type: ignore[index]


def test_values_that_do_not_fit_are_changed_and_the_report_says_so(
    state: OpenClawHome, store: Store, clock: FakeClock
) -> None:
    state.execute("DROP TABLE task_runs")
    also = ("tool_use_count", "detail_json", "parent_task_id", "error")
    state.execute(f"CREATE TABLE task_runs ({', '.join((*task_row(), *also))})")
    row = task_row(
        runtime="quantum",
        delivery_status="pigeon",
        notify_policy="loudly",
        terminal_outcome="meh",
        task="tides\x1b[31m\x00 \u202e" + "x" * 300_000,
        terminal_summary=b"\xff\x00",
        label="y" * 1_500_000,
        owner_key="agent:main:main\nand more",
        cleanup_after="never",
        last_event_at=-1,
        tool_use_count="many",
        detail_json="{not json",
        parent_task_id="gone",
    )
    state.add(row, origin="[1, 2")
    state.execute("UPDATE task_runs SET error = CAST(x'ff61' AS TEXT)")

    report = import_from(state, store, clock)

    task = task_of(store, row)
    assert counts(report) == {"created": 1}
    assert report.is_complete
    changed = {remark.partition(":")[0] for remark in report.remarks}
    assert changed == {
        "runtime",
        "delivery_status",
        "notify_policy",
        "terminal_outcome",
        "task",
        "terminal_summary",
        "label",
        "owner_key",
        "cleanup_after",
        "last_event_at",
        "tool_use_count",
        "parent_task_id",
        "requester_origin_json",
    }
    assert (task.runtime, task.notify.value, task.owner) == (
        RuntimeName.CLI,
        "silent",
        "agent:main:main and more",
    )
    assert "\x1b" not in task.goal
    rest = decode_payload(store.read_now(lambda tx: tx.blobs.open(task.arguments)))
    assert rest["openclaw"]["detail_json"] == "{not json"  # type: ignore[index]
    assert deliveries(store) == []


def test_what_a_long_row_keeps_is_bounded_and_its_short_values_are_whole(
    state: OpenClawHome, store: Store, clock: FakeClock
) -> None:
    long = [f"note{number}" for number in range(8)]
    state.execute("DROP TABLE task_runs")
    state.execute(f"CREATE TABLE task_runs ({', '.join((*task_row(), *long, 'detail_json', 'mood'))})")
    deep = "[" * 100 + "]" * 100
    row = task_row(1, mood="calm", detail_json=deep) | dict.fromkeys(long, "\x01潮" * 50_000)
    state.add(row)

    report = import_from(state, store, clock)

    assert counts(report) == {"created": 1}
    arguments = store.read_now(lambda tx: tx.blobs.open(task_of(store, row).arguments))
    assert 200_000 < len(arguments) < 256 * 1024
    rest = decode_payload(arguments)["openclaw"]  # type: ignore[index]
    assert (rest["mood"], rest["label"], rest["detail_json"]) == ("calm", "tides", deep)
    assert all(row[name].startswith(rest[name]) for name in long)
    cut = [remark for remark in report.remarks if "only its beginning is kept" in remark]
    assert len(cut) == len(long)


def test_a_secret_in_a_row_is_sealed_or_redacted(state: OpenClawHome, store: Store, clock: FakeClock) -> None:
    secret = SHAPES["github"][0]
    row = task_row(task=f"push with {secret}", label=secret, error=secret, status="failed")
    state.add(row)

    import_from(state, store, clock)

    stored = str(
        [
            [bytes(cell) if isinstance(cell, memoryview) else cell for cell in one]
            for rows in dump(store).values()
            for one in rows
        ]
    )
    assert secret not in stored
    assert decode_payload(task_of(store, row).arguments)["openclaw"]["label"] == secret  # type: ignore[index]


def test_what_is_no_database_of_openclaw_is_refused(tmp_path: Path, store: Store, clock: FakeClock) -> None:
    text, empty, other = tmp_path / "notes.txt", tmp_path / "empty", tmp_path / "other.db"
    text.write_text("SQLite is a database", encoding="utf-8")
    empty.mkdir()
    apsw.Connection(str(other)).execute("CREATE TABLE fish (name)").connection.close()

    for path, why in (
        (text, "is not a SQLite database"),
        (empty, "is not a state directory of OpenClaw"),
        (tmp_path / "gone", "there is no"),
        (other, "has no table task_runs or flow_runs"),
    ):
        with pytest.raises(BadInput, match=why):
            run_import(path, StoreDoor(store, clock))
