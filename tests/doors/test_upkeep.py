"""tasks audit and tasks maintenance: what is wrong, the command that helps, and one plan for both modes."""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.core.clock import SystemClock
from holdfast.core.finding import FindingCode
from holdfast.core.run import RunRecord
from holdfast.core.task import RuntimeName
from holdfast.core.transitions import RunStatus, TaskStatus
from holdfast.store import Store
from tests.builders import a_task, stored_run, write
from tests.doors.calls import CANARIES, HOSTILE, UNFIT, Opens, Run
from tests.upkeep.recorded import recorded_run, status_of


def minutes_ago(minutes: float) -> datetime:
    return SystemClock().now() - timedelta(minutes=minutes)


def silent_run(
    store: Store, runtime: RuntimeName = RuntimeName.MEDIA, reference: str | None = None, **task: object
) -> RunRecord:
    """Recorded work that began an hour ago, and has been silent since."""
    hour_ago = minutes_ago(60)
    return recorded_run(
        store,
        runtime=runtime,
        details={"created_at": hour_ago, "last_event_at": hour_ago, "reference": reference},
        task={"created_at": hour_ago, "updated_at": hour_ago} | task,
        created_at=hour_ago,
        due_at=hour_ago,
        updated_at=hour_ago,
    )


def test_a_ledger_that_does_not_exist_yet_has_no_problems(run: Run) -> None:
    called = run("tasks", "audit")

    assert (called.status, called.out) == (0, "")
    assert "no problems found" in called.err


def test_an_audit_shows_each_finding_with_the_command_that_helps(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        lost = silent_run(store)

    called = run("tasks", "audit")

    assert called.status == 1
    assert f"error  stale_running  {lost.task_id}" in called.out
    assert "fix: holdfast tasks maintenance --apply" in called.out
    assert "1 error, 0 warnings" in called.err


def test_warnings_alone_do_not_fail_an_audit(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        write(store, lambda tx: tx.tasks.create(a_task(status=TaskStatus.FAILED)))

    called = run("tasks", "audit", "--json")

    assert called.status == 0
    assert called.json["summary"]["byCode"]["missing_cleanup"] == 1


def test_an_audit_as_json_counts_all_and_shows_what_was_asked_for(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        silent_run(store)
        write(store, lambda tx: [tx.tasks.create(a_task(status=TaskStatus.FAILED)) for _ in range(3)])

    answer = run("tasks", "audit", "--severity", "warning", "--limit", "2", "--json").json

    assert (answer["count"], answer["filteredCount"], answer["displayed"]) == (4, 3, 2)
    assert answer["filters"] == {"code": None, "severity": "warning", "limit": 2}
    assert (answer["summary"]["total"], answer["summary"]["errors"], answer["summary"]["warnings"]) == (
        4,
        1,
        3,
    )
    assert [one["code"] for one in answer["findings"]] == ["missing_cleanup"] * 2
    assert set(answer["summary"]["byCode"]) == {code.value for code in FindingCode}


def test_a_preview_changes_nothing_and_an_apply_makes_its_changes(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        silent = silent_run(store)
        write(store, lambda tx: tx.tasks.create(a_task(status=TaskStatus.FAILED)))

    preview = run("tasks", "maintenance", "--json").json
    with ledger() as store:
        untouched = status_of(store, silent)
    applied = run("tasks", "maintenance", "--apply", "--json").json

    assert untouched is TaskStatus.RUNNING
    assert (preview["mode"], applied["mode"]) == ("preview", "apply")
    assert preview["maintenance"] == applied["maintenance"]
    assert applied["maintenance"]["tasks"] == {
        "reconciled": 1,
        "recovered": 0,
        "cleanupStamped": 1,
        "pruned": 0,
    }
    assert (preview["auditBefore"]["errors"], preview["auditAfter"]) == (1, None)
    assert applied["auditAfter"]["errors"] == 0
    assert (applied["tasks"]["terminal"], applied["tasks"]["byStatus"]["lost"]) == (2, 1)
    assert {runtime: count for runtime, count in applied["tasks"]["byRuntime"].items() if count} == {
        "media": 1,
        "python": 1,
    }
    assert run("audit", "log", "--json").json["entries"][0]["action"] == "upkeep.maintenance"


def test_a_preview_says_how_to_make_its_changes(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        silent = silent_run(store)

    called = run("tasks", "maintenance")

    assert f"reconcile  {silent.task_id}" in called.out
    assert "add --apply" in called.err
    assert "1 task would be lost, 0 would be recovered" in called.err
    done = run("tasks", "maintenance", "--apply").err
    assert "1 task was lost, 0 were recovered, 0 were stamped, 0 were deleted" in done


def test_what_a_stranger_wrote_reaches_no_terminal_and_no_secret_is_shown(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        silent_run(store, name=f"{HOSTILE} {CANARIES[0]}")
        stored_run(
            store, RunStatus.WAITING, waits_on=f"child:{HOSTILE} {CANARIES[1]}", due_at=minutes_ago(60)
        )

    called = run("tasks", "audit")
    as_json = run("tasks", "audit", "--json")

    assert not UNFIT.search(called.out)
    assert not UNFIT.search(as_json.out)
    assert not any(canary in one.out for one in (called, as_json) for canary in CANARIES)
