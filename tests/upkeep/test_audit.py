"""What an audit finds: each code in the situation that it is for, and nothing in a ledger that is well."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.checkpoint import CheckpointKind
from holdfast.core.clock import SystemClock, to_micros
from holdfast.core.finding import Finding, FindingCode, Severity
from holdfast.core.ids import new_wake_id
from holdfast.core.program_records import Question
from holdfast.core.run import Queue
from holdfast.core.schedule import Wake, WakeReason
from holdfast.core.task import NotifyPolicy, RuntimeName
from holdfast.core.transitions import DeliveryStatus, RunStatus, TaskStatus, WakeStatus
from holdfast.engine.claims.claims import NEVER
from holdfast.engine.clocks.jump_watch import ClockWatch
from holdfast.engine.producers.writes import failing, noting_drops, noting_unrecorded
from holdfast.store import Store, Tx
from holdfast.store.clock import LedgerClock
from holdfast.testing import FakeClock
from holdfast.upkeep import audit as audit_module
from holdfast.upkeep.audit import Audit
from tests.builders import (
    BOOT,
    FAILURE,
    OTHER_BOOT,
    START,
    a_boot,
    a_delivery,
    a_step,
    a_task,
    later,
    stored_checkpoint,
    stored_run,
    write,
)
from tests.upkeep.recorded import recorded_run

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "operate.md"
MINUTE = timedelta(minutes=1)
# What a producer of an ACP session should tell.
KNOWN = {"child_session_key": "agent:main:child"}


def findings(store: Store, now: datetime = START, **given: Any) -> list[Finding]:
    return store.read_now(lambda tx: Audit(tx, now=now, **given).report().findings)


def found(store: Store, now: datetime = START, **given: Any) -> list[tuple[FindingCode, Severity, str]]:
    return [(one.code, one.severity, one.record_ids[0]) for one in findings(store, now, **given)]


def test_a_ledger_whose_work_goes_on_has_no_findings(store: Store) -> None:
    write(store, lambda tx: tx.boots.begin(a_boot()))
    stored_run(store)
    stored_run(store, queue=Queue.LATER, due_at=later(days=3))
    stored_run(store, RunStatus.RUNNING)
    stored_run(store, RunStatus.WAITING, waits_on="sleep", due_at=later(days=1))
    stored_run(store, RunStatus.WAITING, waits_on="mail:tides", due_at=NEVER)
    stored_checkpoint(store)
    stored_run(store, RunStatus.SUCCEEDED, task={"cleanup_after": later(days=30)})

    assert findings(store) == []


def test_a_queued_task_that_no_worker_takes_is_stale_after_ten_minutes(store: Store) -> None:
    run = stored_run(store)

    before, after = (found(store, later(minutes=minutes)) for minutes in (9, 10))

    assert before == []
    assert after == [(FindingCode.STALE_QUEUED, Severity.WARNING, run.task_id)]


def test_a_stale_task_says_which_command_starts_a_worker_for_it(store: Store) -> None:
    run = stored_run(store)

    (one,) = findings(store, later(minutes=11))

    assert one.repair == f"holdfast run --resume {run.task_id} MODULE:research"
    assert one.evidence["living_boots"] == 0


def test_a_paused_task_that_no_worker_resumes_is_stale_too(store: Store) -> None:
    checkpoint = stored_checkpoint(store)

    (one,) = findings(store, later(minutes=10))

    assert (one.code, one.record_ids[2]) == (FindingCode.STALE_QUEUED, checkpoint.id)


def test_running_work_without_a_sign_of_life_is_stale_after_half_an_hour(store: Store) -> None:
    run = recorded_run(store, details=KNOWN)

    before, after = (found(store, later(minutes=minutes)) for minutes in (29, 30))

    assert before == []
    assert after == [(FindingCode.STALE_RUNNING, Severity.ERROR, run.task_id)]


def test_recorded_work_may_be_silent_for_as_long_as_its_producer_said(store: Store) -> None:
    run = recorded_run(store, details=KNOWN | {"alive_until": later(minutes=60)})

    before, after = (found(store, later(minutes=minutes)) for minutes in (59, 60))

    assert before == []
    assert after == [(FindingCode.STALE_RUNNING, Severity.ERROR, run.task_id)]


def test_a_run_that_has_saved_nothing_for_half_an_hour_would_lose_its_work(store: Store) -> None:
    now = later(minutes=40)
    write(store, lambda tx: tx.boots.begin(a_boot()))
    alive: dict[str, Any] = {"started_at": START, "beat_at": now, "lease_until": now}
    run = stored_run(store, RunStatus.RUNNING, **alive)
    saving = stored_run(store, RunStatus.RUNNING, **alive)
    step = a_step(saving, seq=1, ended_us=to_micros(later(minutes=30)))
    write(store, lambda tx: tx.journal.put_step(step))

    assert found(store, now) == [
        (FindingCode.LONG_RUN_WITHOUT_CHECKPOINT, Severity.WARNING, run.task_id),
    ]


def test_a_task_whose_wake_is_late_or_gone_is_a_finding(store: Store) -> None:
    wake = Wake(
        id=new_wake_id(START),
        task_id=a_task().id,
        reason=WakeReason.TIMEOUT_RECOVERY,
        created_at=START,
        due_at=later(minutes=5),
        updated_at=START,
    )
    checkpoint = stored_checkpoint(store, kind=CheckpointKind.TIMEOUT, wake_id=wake.id)
    write(store, lambda tx: tx.wakes.create(wake))

    assert found(store, later(minutes=14)) == []
    late = [(FindingCode.NO_WAKER, Severity.ERROR, checkpoint.task_id)]
    assert found(store, later(minutes=16)) == late
    write(store, lambda tx: tx.wakes.move(wake.id, WakeStatus.CANCELLED, now=START))
    assert found(store) == late


def test_a_beat_is_a_sign_of_life(store: Store) -> None:
    recorded_run(store, beat_at=later(minutes=20), details=KNOWN)

    assert found(store, later(minutes=40)) == []


# --- nothing is running without a process that runs it


def test_a_running_task_of_a_process_that_has_ended_has_no_owner(store: Store) -> None:
    write(store, lambda tx: (tx.boots.begin(a_boot()), tx.boots.end(BOOT, now=START)))
    run = stored_run(store, RunStatus.RUNNING)

    assert found(store) == [(FindingCode.NO_OWNER, Severity.ERROR, run.task_id)]


def test_a_running_task_has_no_owner_if_the_lock_of_its_process_is_free(store: Store) -> None:
    write(store, lambda tx: tx.boots.begin(a_boot()))
    run = stored_run(store, RunStatus.RUNNING)

    assert found(store, has_died=lambda _boot: True) == [(FindingCode.NO_OWNER, Severity.ERROR, run.task_id)]


def test_a_running_task_whose_lease_lapsed_a_minute_ago_has_no_owner(store: Store) -> None:
    write(store, lambda tx: tx.boots.begin(a_boot()))
    run = stored_run(store, RunStatus.RUNNING, lease_until=START)

    assert found(store, START + MINUTE) == [(FindingCode.NO_OWNER, Severity.ERROR, run.task_id)]


def test_a_task_without_a_live_run_has_no_owner(store: Store) -> None:
    task = a_task()
    write(store, lambda tx: tx.tasks.create(task))

    assert found(store) == [(FindingCode.NO_OWNER, Severity.ERROR, task.id)]


def test_recorded_work_whose_process_died_has_no_owner_and_a_sweep_ends_it(store: Store) -> None:
    write(store, lambda tx: tx.boots.begin(a_boot()))
    run = recorded_run(store, details=KNOWN)

    (one,) = findings(store, has_died=lambda _boot: True)

    assert (one.code, one.record_ids[0]) == (FindingCode.NO_OWNER, run.task_id)
    assert one.repair == "holdfast tasks maintenance --apply"


# --- what no worker can run


@pytest.mark.parametrize("paused", [False, True])
def test_a_task_that_no_living_worker_knows_is_a_finding_after_a_minute(store: Store, paused: bool) -> None:
    write(store, lambda tx: tx.boots.begin(a_boot(task_names=("translate", "render"))))
    task_id = stored_checkpoint(store).task_id if paused else stored_run(store).task_id

    before, after = found(store), findings(store, later(minutes=1))

    assert before == []
    assert [(one.code, one.severity, one.record_ids[0]) for one in after] == [
        (FindingCode.UNKNOWN_TASK, Severity.WARNING, task_id)
    ]
    assert after[0].evidence["known"] == "render, translate"
    assert after[0].repair == f"holdfast run --resume {task_id} MODULE:research"


@pytest.mark.parametrize(
    "boots",
    [
        # Without a worker the task is only queued; with one that can run any task, or did not tell, too.
        [],
        [{"task_names": ()}],
        [{"task_names": ("translate",)}, {"id": OTHER_BOOT, "task_names": None}],
        [{"task_names": ("translate",)}, {"id": OTHER_BOOT, "task_names": ("research",)}],
    ],
)
def test_a_task_that_a_worker_may_know_is_no_finding(store: Store, boots: list[dict[str, Any]]) -> None:
    write(store, lambda tx: [tx.boots.begin(a_boot(**one)) for one in boots])
    stored_run(store)

    assert findings(store, later(minutes=9)) == []


# --- what producers tell


@pytest.mark.parametrize(
    ("runtime", "details", "lacks"),
    [
        (RuntimeName.ACP, None, "producer.create"),
        (RuntimeName.ACP, {}, "childSessionKey"),
        (RuntimeName.SUBAGENT, {}, "childSessionKey"),
        (RuntimeName.CLI, {}, "reference"),
        (RuntimeName.CRON, {}, "sourceId"),
        (RuntimeName.ACP, KNOWN, None),
        (RuntimeName.CLI, {"reference": "pid:1:2@3"}, None),
        (RuntimeName.ACP, {"reference": "acp:sess-7"}, None),
        (RuntimeName.CRON, {"source_id": "nightly"}, None),
        (RuntimeName.CRON, {"reference": "pid:1:2@3"}, None),
        (RuntimeName.MEDIA, {}, None),
    ],
)
def test_recorded_work_that_cannot_be_found_again_is_a_finding(
    store: Store, runtime: RuntimeName, details: dict[str, Any] | None, lacks: str | None
) -> None:
    run = recorded_run(store, runtime=runtime, details=details, task={"session_key": "agent:main:main"})

    found = findings(store)

    assert [(one.code, one.record_ids[0], one.evidence["lacks"]) for one in found] == (
        [] if lacks is None else [(FindingCode.WEAK_METADATA, run.task_id, lacks)]
    )


def test_updates_that_are_promised_without_a_place_for_them_are_a_finding(store: Store) -> None:
    promised = {"session_key": None, "notify": NotifyPolicy.DONE_ONLY}
    recorded_run(store, details=KNOWN, task=promised)
    recorded_run(store, details=KNOWN, task=promised | {"notify": NotifyPolicy.SILENT})

    (one,) = findings(store)

    assert (one.code, one.evidence["lacks"]) == (FindingCode.WEAK_METADATA, "origin")


def test_dropped_reports_are_a_finding_for_a_week(store: Store) -> None:
    run = recorded_run(store, details=KNOWN, beat_at=later(days=6))
    for total in (2, 5):
        store.write_now(noting_drops(run.id, total, now=START))

    (one,), after = findings(store, later(days=6)), found(store, later(days=7))

    assert (one.code, one.severity, one.evidence["total"]) == (
        FindingCode.RECORDS_DROPPED,
        Severity.WARNING,
        5,
    )
    assert one.record_ids == (run.task_id,)
    assert FindingCode.RECORDS_DROPPED not in {code for code, _, _ in after}


def test_work_that_was_never_recorded_is_a_finding_for_a_week(store: Store) -> None:
    for number in (1, 2):
        store.write_now(noting_unrecorded("render", f"r-{number}", 2, now=START))

    (one,), after = findings(store, later(days=6)), found(store, later(days=7))

    assert (one.code, one.evidence["total"]) == (FindingCode.RECORDS_DROPPED, 4)
    assert "render (run r-2)" in one.message
    assert after == []


def test_an_end_that_was_reported_after_another_end_is_a_finding(store: Store) -> None:
    run = recorded_run(store, details=KNOWN)
    store.write_now(failing(run.id, FAILURE, now=later(minutes=1)))
    store.write_now(failing(run.id, FAILURE, status=RunStatus.TIMED_OUT, now=later(minutes=2)))

    (one,) = findings(store, later(minutes=3))

    assert (one.code, one.severity, one.record_ids) == (
        FindingCode.LATE_REPORT,
        Severity.WARNING,
        (run.task_id, run.id),
    )
    assert (one.evidence["status"], one.evidence["reported"]) == ("failed", "timed_out")


# --- clocks


def test_a_clock_that_differs_from_the_clock_of_the_database_is_a_finding(store: Store) -> None:
    passed = [0]
    clock = LedgerClock(passed=lambda: passed[0])
    clock.learn(0, to_micros(SystemClock().now() + timedelta(minutes=10)))

    (one,) = findings(store, clock=clock)

    assert (one.code, one.severity) == (FindingCode.CLOCK_SKEW, Severity.WARNING)
    assert abs(float(one.evidence["seconds"] or 0)) == pytest.approx(600, abs=60)
    assert "NTP" in (one.repair or "")


async def test_a_clock_that_jumped_is_a_finding_until_the_new_time_is_trusted(
    store: Store, clock: FakeClock
) -> None:
    await ClockWatch(store, clock).deletion_time()
    before = findings(store, clock=clock)

    clock.advance(days=1)
    (one,) = findings(store, clock=clock)

    assert before == []
    assert one.code is FindingCode.CLOCK_SKEW
    assert "jumped 1 day, 0:00:00 ahead" in one.message


# --- nothing waits for what can never come


def a_question(**changes: Any) -> Question:
    question: dict[str, Any] = {
        "id": "ques_one",
        "task_id": "task_x",
        "run_id": "run_x",
        "question": "go on?",
        "asked_at": START,
    }
    return Question(**question | changes)


def answer(tx: Tx) -> None:
    tx.questions.create(a_question())
    tx.questions.answer("ques_one", b'"yes"', by="ada", now=START)


@pytest.mark.parametrize(
    ("waits_on", "prepare"),
    [
        ("answer:ques_one", answer),
        ("answer:ques_gone", lambda _tx: None),
        ("review:eff_gone", lambda _tx: None),
        ("child:task_gone", lambda _tx: None),
        ("children", lambda _tx: None),
        ("boot:boot_gone", lambda _tx: None),
    ],
)
def test_a_wait_that_nothing_can_end_has_no_waker(
    store: Store, waits_on: str, prepare: Callable[[Tx], None]
) -> None:
    write(store, prepare)
    run = stored_run(store, RunStatus.WAITING, waits_on=waits_on, due_at=NEVER)

    assert found(store) == [(FindingCode.NO_WAKER, Severity.ERROR, run.task_id)]


def test_a_wait_for_an_open_question_and_for_a_living_child_is_no_finding(store: Store) -> None:
    write(store, lambda tx: tx.questions.create(a_question()))
    stored_run(store, RunStatus.WAITING, waits_on="answer:ques_one", due_at=NEVER)
    child = stored_run(store)
    stored_run(store, RunStatus.WAITING, waits_on=f"child:{child.task_id}", due_at=NEVER)

    assert findings(store) == []


def test_a_wait_whose_time_has_passed_without_a_worker_has_no_waker(store: Store) -> None:
    run = stored_run(store, RunStatus.WAITING, waits_on="sleep", due_at=START)

    assert found(store, later(minutes=10)) == [(FindingCode.NO_WAKER, Severity.ERROR, run.task_id)]


def test_a_paused_run_without_an_open_checkpoint_has_no_waker(store: Store) -> None:
    run = stored_run(store, RunStatus.PAUSED_FOR_RESTART)

    assert found(store) == [(FindingCode.NO_WAKER, Severity.ERROR, run.task_id)]


# --- what has ended


def test_a_lost_task_is_a_warning_until_its_retention_is_over(store: Store) -> None:
    task = a_task(status=TaskStatus.LOST, cleanup_after=later(days=1), failure=FAILURE)
    write(store, lambda tx: tx.tasks.create(task))

    during, after = found(store), found(store, later(days=1))

    assert during == [(FindingCode.LOST, Severity.WARNING, task.id)]
    assert after == [(FindingCode.LOST, Severity.ERROR, task.id)]


def test_a_delivery_that_was_given_up_is_a_finding(store: Store) -> None:
    delivery = a_delivery(status=DeliveryStatus.FAILED, failure=FAILURE, attempts=20)
    write(store, lambda tx: tx.deliveries.create(delivery))

    (one,) = findings(store)

    assert (one.code, one.severity) == (FindingCode.DELIVERY_FAILED, Severity.WARNING)
    assert one.repair == f"holdfast deliveries retry {delivery.id}"


def test_an_ended_task_without_a_time_to_clean_it_up_is_a_finding(store: Store) -> None:
    task = a_task(status=TaskStatus.FAILED)
    write(store, lambda tx: tx.tasks.create(task))

    assert found(store) == [(FindingCode.MISSING_CLEANUP, Severity.WARNING, task.id)]


@pytest.mark.parametrize("status", [TaskStatus.QUEUED, TaskStatus.SUCCEEDED])
def test_times_that_cannot_be_are_a_finding(store: Store, status: TaskStatus) -> None:
    times = {"started_at": later(hours=-1)}
    if status is TaskStatus.QUEUED:
        stored_run(store, task=times)
    else:
        task = a_task(status=status, cleanup_after=later(days=1), **times)
        write(store, lambda tx: tx.tasks.create(task))

    (one,) = findings(store)

    assert (one.code, one.severity) == (FindingCode.INCONSISTENT_TIMESTAMPS, Severity.WARNING)
    assert "before it was created" in one.message


# --- the report


def test_errors_come_before_warnings(store: Store) -> None:
    stored_run(store)
    stored_run(store, RunStatus.PAUSED_FOR_RESTART)

    severities = [one.severity for one in findings(store, later(minutes=30))]

    assert severities == [Severity.ERROR, Severity.WARNING]


def test_an_audit_says_when_there_is_more_than_it_looks_at(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_module, "PAGE", 2)
    monkeypatch.setattr(audit_module, "MOST_LIVE", 4)
    for _ in range(5):
        stored_run(store)

    report = store.read_now(lambda tx: Audit(tx, now=later(minutes=10)).report())

    assert len(report.findings) == 4
    assert not report.is_complete


@pytest.mark.parametrize("code", list(FindingCode))
def test_the_guide_says_what_to_do_about_each_code(code: FindingCode) -> None:
    rows = [
        line for line in GUIDE.read_text(encoding="utf-8").splitlines() if line.startswith(f"| `{code}` |")
    ]

    assert len(rows) == 1
