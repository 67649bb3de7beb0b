"""status: one screen says what the ledger says, about questions, failures and the last restart."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.cli.gateway import last_restart
from holdfast.cli.invocation import Invocation
from holdfast.core.checkpoint import ResumeReason
from holdfast.core.clock import SystemClock
from holdfast.core.ids import new_checkpoint_id
from holdfast.core.manifest import (
    Interruption,
    InterruptionKind,
    InterruptionOutcome,
    Recovered,
    Restart,
    RestartOutcome,
    Trigger,
)
from holdfast.core.transitions import CheckpointStatus, RestartStatus, RunStatus, SessionStatus, TaskStatus
from holdfast.views.gateway import GatewayView, HoldView, RestartView
from tests.builders import (
    START,
    a_checkpoint,
    a_restart,
    a_run,
    a_session,
    a_task,
    later,
    put,
    stored_checkpoint,
    stored_run,
)
from tests.doors.calls import Opens, Run
from tests.doors.test_questions import asked
from tests.doors.test_store import an_older_database

FAILED_RESUME = CheckpointStatus.FAILED_RESUME


# --- what waits for a person


def test_a_question_of_a_task_that_was_cancelled_is_not_counted(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        question, _other = asked(store), asked(store)
    run("tasks", "cancel", question.task_id)

    view = run("status", "--json").json
    listed = run("questions", "list", "--json").json

    assert view["openQuestions"] == len(listed["questions"]) == 1


@pytest.mark.parametrize(
    ("waits_on", "shown"),
    [
        ("answer:ques_1", "0 waiting for the gateway to start, 1 waiting for a person"),
        ("review:eff_1", "0 waiting for the gateway to start, 1 waiting for a person"),
        ("sleep", "1 waiting for the gateway to start"),
    ],
)
def test_a_session_that_waits_for_a_person_is_told_from_a_busy_one(
    run: Run, ledger: Opens, waits_on: str, shown: str
) -> None:
    with ledger() as store:
        task_id = stored_run(store, RunStatus.WAITING, task={"waits_on": waits_on}, waits_on=waits_on).task_id
        session = a_session(status=SessionStatus.PROCESSING, task_id=task_id)
        store.write_now(lambda tx: tx.sessions.create(session))

    assert run("status", "--json").json["busySessions"] == 1
    assert ["sessions", *shown.split()] in [line.split() for line in run("status").out.splitlines()]


# --- what failed


@pytest.mark.parametrize("command", ["status", "doctor"])
@pytest.mark.parametrize("end", [TaskStatus.SUCCEEDED, TaskStatus.CANCELLED])
def test_a_failed_resume_of_a_task_that_is_over_is_not_counted(
    run: Run, ledger: Opens, command: str, end: TaskStatus
) -> None:
    with ledger() as store:
        task = a_task(status=end, ended_at=START)
        run_ = a_run(task, status=RunStatus(FAILED_RESUME))
        checkpoint = a_checkpoint(run_, status=FAILED_RESUME)
        store.write_now(lambda tx: put(tx, task, run_, checkpoints=(checkpoint,)))

    assert "--status failed_resume" not in run(command).out


@pytest.mark.parametrize(
    ("command", "words"), [("status", "1 resume:"), ("doctor", "1 checkpoint could not be resumed")]
)
def test_a_failed_resume_that_was_retried_is_not_counted(
    run: Run, ledger: Opens, command: str, words: str
) -> None:
    with ledger() as store:
        failed = stored_checkpoint(store, FAILED_RESUME)
        again = msgspec.structs.replace(failed, id=new_checkpoint_id(later(seconds=1)), retry_of=failed.id)
        store.write_now(lambda tx: tx.checkpoints.create_many([again]))

    # The one that retries it has failed as well.
    assert words in run(command).out


def test_tasks_that_failed_within_a_day_are_counted_with_where_to_look(run: Run, ledger: Opens) -> None:
    now = SystemClock().now()
    tasks = [
        a_task(status=TaskStatus.FAILED, ended_at=now - ago)
        for ago in (timedelta(minutes=5), timedelta(hours=23), timedelta(hours=25))
    ]
    with ledger() as store:
        store.write_now(lambda tx: [tx.tasks.create(task) for task in tasks])

    shown = run("status")

    assert run("status", "--json").json["tasksFailedInLastDay"] == 2
    assert "2 tasks in the last day: `holdfast tasks list --status failed`" in shown.out


# --- the last restart


def a_view(status: RestartStatus, *reasons: ResumeReason, why: str = "update", **changes: Any) -> RestartView:
    triggers = tuple(
        Trigger(reason=why, triggered_by="ada", at=START, resume_reason=reason) for reason in reasons
    )
    return RestartView.of(a_restart(status=status, triggers=triggers, **changes))


def interrupting(restart: Restart, number: int) -> Any:
    interruptions = tuple(
        Interruption(kind=InterruptionKind.RUN, task_id=f"task_{one}", title="tides", status="running")
        for one in range(number)
    )
    return msgspec.structs.replace(restart.manifest, interruptions=interruptions)


CUT = interrupting(a_restart(), 3)
RESTART, STOP, CRASH = ResumeReason.EXPLICIT_RESTART, ResumeReason.SIGNAL, ResumeReason.CRASH


@pytest.mark.parametrize(
    ("view", "gateway", "name", "words"),
    [
        (
            a_view(RestartStatus.DRAINING, RESTART, manifest=CUT),
            "draining",
            "restarting",
            "(config-change), draining (3 runs being saved)",
        ),
        (
            a_view(RestartStatus.DRAINED, RESTART, manifest=CUT),
            "recovering",
            "restarted",
            "(config-change), being recovered (3 runs being recovered)",
        ),
        (
            a_view(RestartStatus.DRAINED, STOP, manifest=CUT),
            None,
            "stopped",
            "(config-change), drained (3 runs to resume at the next start)",
        ),
        (
            a_view(RestartStatus.DRAINED, RESTART, STOP),
            None,
            "stopped",
            "(config-change), drained (nothing interrupted)",
        ),
        (
            a_view(RestartStatus.DRAINING, STOP),
            "draining",
            "stopping",
            "(config-change), draining (nothing interrupted)",
        ),
        (
            a_view(RestartStatus.DRAINING, CRASH, manifest=CUT),
            "recovering",
            "crashed",
            "(config-change), being recovered (3 runs being recovered)",
        ),
        (
            a_view(RestartStatus.DRAINING, CRASH, manifest=CUT),
            None,
            "crashed",
            "(config-change), not recovered yet (3 runs to resume at the next start)",
        ),
        (
            a_view(
                RestartStatus.RECOVERED,
                CRASH,
                manifest=CUT,
                outcome=RestartOutcome(
                    recovered=(Recovered(task_id="task_0", fate=InterruptionOutcome.RESUMED),)
                ),
            ),
            "serving",
            "crashed",
            "(config-change), recovered (1 resumed)",
        ),
        (
            a_view(RestartStatus.BLOCKED, RESTART, manifest=CUT, outcome=RestartOutcome(why_blocked="disk")),
            "serving",
            "not restarted",
            "(config-change): disk",
        ),
        (
            a_view(RestartStatus.BLOCKED, STOP, manifest=CUT, outcome=RestartOutcome(why_blocked="disk")),
            "serving",
            "not stopped",
            "(config-change): disk",
        ),
        (
            a_view(RestartStatus.RECOVERED, STOP, why="SIGUSR1"),
            "serving",
            "restarted",
            "(config-change), recovered (nothing interrupted)",
        ),
    ],
)
def test_the_last_restart_is_called_what_it_was_and_how_far_it_is(
    view: RestartView, gateway: str | None, name: str, words: str
) -> None:
    when = "3m ago " if words.startswith("(") else "3m ago, "
    assert last_restart(view, later(minutes=3), gateway=gateway) == (name, f"{when}{words}")


def test_a_crash_without_a_drain_is_not_listed_as_draining(run: Run, ledger: Opens) -> None:
    trigger = Trigger(reason="crash", triggered_by="crash", at=START, resume_reason=CRASH)
    with ledger() as store:
        store.write_now(lambda tx: tx.restarts.create(a_restart(triggers=(trigger,))))

    called = run("gateway", "restarts")

    assert "being recovered" in called.out
    assert "draining" not in called.out
    assert run("gateway", "restarts", "--json").json["restarts"][0]["kind"] == "crash"


# --- the ledger itself


def test_a_ledger_that_cannot_be_read_is_said_on_the_screen_and_nothing_is_counted(
    run: Run, ledger: Opens, home: Path
) -> None:
    with ledger() as store:
        stored_run(store)
    (home / "ledger.db").write_bytes(b"\xff" * 8192)

    view, shown = run("status", "--json"), run("status")

    assert (view.status, shown.status) == (1, 1)
    assert "not a Holdfast database" in view.json["ledgerProblem"]
    assert not view.json["isCounted"]
    assert "not a Holdfast database" in shown.out
    assert "not running; start it with `holdfast up`" in shown.out
    assert "tasks" not in shown.out


def test_an_older_database_is_shown_as_held_with_the_command_that_helps(
    run: Run, ledger: Opens, home: Path
) -> None:
    an_older_database(ledger, home)

    shown = run("status")
    (hold,) = run("status", "--json").json["holds"]
    run("store", "accept")

    assert "older than its mark" in shown.out
    assert "then release it (`holdfast store accept`)" in shown.out
    assert hold["remedy"] == "holdfast store accept"
    assert run("status", "--json").json["holds"] == []


def a_gateway_view(**changes: Any) -> GatewayView:
    return GatewayView(
        status="serving",
        is_ready=True,
        boot_id="boot_1",
        pid=7,
        started_at=START,
        holds_resumes=False,
        why_held=None,
        in_flight=0,
        last_restart=None,
        **changes,
    )


@pytest.mark.parametrize("command", [("status",), ("gateway", "status")], ids=" ".join)
def test_what_the_gateway_holds_or_refused_is_shown_with_the_command_that_helps(
    run: Run, ledger: Opens, home: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    view = a_gateway_view(
        holds=[HoldView(why="the gateway crashed 5 times in a row", remedy="holdfast gateway resume")],
        settings_refused="the settings are not applied: No module named 'garden'",
        ledger_problem="SQLite: the disk is full",
    )
    with ledger():
        pass
    (home / "gateway.sock").touch()
    monkeypatch.setattr(Invocation, "ask", lambda *_args, **_options: view)

    shown = run(*command)

    assert "crashed 5 times in a row" in shown.out
    assert "then release it (`holdfast gateway resume`)" in shown.out
    assert "No module named 'garden'; check them with `holdfast config check`" in shown.out
    assert "the disk is full" in shown.out


# --- one line


def test_one_line_says_what_tasks_do_and_which_ended_last(run: Run, ledger: Opens) -> None:
    now = SystemClock().now()
    owner = "agent:scholar:main"
    with ledger() as store:
        store.write_now(lambda tx: tx.sessions.create(a_session(key=owner, agent="scholar")))
        for task in (
            a_task(owner=owner, status=TaskStatus.RUNNING),
            a_task(owner=owner, status=TaskStatus.QUEUED),
            a_task(
                owner=owner,
                goal="render <b>the title</b>",
                status=TaskStatus.FAILED,
                ended_at=now - timedelta(minutes=3),
            ),
        ):
            store.write_now(partial(put, task=task))

    screen, session = run("status", "--json").json, run("sessions", "show", owner, "--json").json

    shown = "1 running · 1 queued · last: “render ‹b›the title‹/b›” failed 3m ago"  # noqa: RUF001 - no tags
    assert screen["line"] == session["line"] == shown
    assert shown in run("status").out
    assert shown in run("sessions", "show", owner).out


def test_invalid_settings_are_told_where_the_gateway_would_refuse_to_start(run: Run, home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "holdfast.toml").write_text("[gateway]\nport = 'x'")

    found = run("status")

    assert found.status == 0
    assert "not running, and its settings are invalid: gateway.port in" in found.out
    assert "holdfast up" not in found.out
