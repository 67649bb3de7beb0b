"""The words of the contract for long tasks: statuses, the resume packet and the report."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.core.plan import Cursor, Plan, PlanItem
from holdfast.core.task import Progress
from holdfast.core.transitions import TaskStatus, is_terminal
from holdfast.core.wake_contract import (
    REPORT_STATUS,
    CycleReport,
    ResumePacket,
    ResumeStep,
    TaskDocument,
    completed,
    current_step,
    document_status,
    next_actions,
    percent_done,
)

T = TaskStatus
PLAN = Plan(
    items=(
        PlanItem(id="a", title="step_a", is_done=True),
        PlanItem(id="b", title="step_b", is_done=True),
        PlanItem(id="c", title="action_1"),
    )
)


@pytest.mark.parametrize("status", list(TaskStatus))
def test_each_status_has_a_word_of_the_contract(status: TaskStatus) -> None:
    word = document_status(status, None)

    assert word in {"running", "waiting", "blocked", "done", "failed"}
    assert (word in {"done", "failed"}) is is_terminal(status)
    assert (word == "done") is (status is T.SUCCEEDED)
    assert REPORT_STATUS[status] in {"running", "waiting", "done", "failed"}


@pytest.mark.parametrize(
    ("status", "waits_on", "word"),
    [
        (T.QUEUED, None, "running"),
        (T.RUNNING, None, "running"),
        (T.WAITING, "wake:wake_1", "waiting"),
        (T.WAITING, "sleep:", "waiting"),
        (T.PAUSED, "resume", "waiting"),
        (T.WAITING, "answer:ques_1", "blocked"),
        (T.NEEDS_REVIEW, "review:eff_1", "blocked"),
        (T.TIMED_OUT, None, "failed"),
    ],
)
def test_a_task_that_waits_for_a_person_is_blocked(
    status: TaskStatus, waits_on: str | None, word: str
) -> None:
    assert document_status(status, waits_on) == word


def test_progress_is_what_the_task_reports_else_its_plan() -> None:
    assert percent_done(T.RUNNING, None, PLAN) == 66
    assert percent_done(T.RUNNING, Progress(done=12, total=30), PLAN) == 40
    assert percent_done(T.RUNNING, Progress(done=40, total=30), None) == 100
    assert percent_done(T.RUNNING, None, None) == 0
    assert percent_done(T.SUCCEEDED, None, PLAN) == 100


def test_steps_and_actions_are_those_of_the_plan_else_the_last_step() -> None:
    at = Cursor(last_completed="step_b", next_step="action_1")
    assert (completed(PLAN, at), next_actions(PLAN, at)) == (["step_a", "step_b"], ["action_1"])
    assert current_step(at) == "action_1"

    unplanned = Cursor(last_completed="step_b", next_step=None)
    assert (completed(None, unplanned), next_actions(None, unplanned)) == (["step_b"], ["go on after step_b"])
    assert current_step(unplanned, Progress(done=1, total=2, subtask="page 6")) == "page 6"
    assert (completed(None, Cursor()), next_actions(None, Cursor())) == ([], [])


def test_the_documents_have_the_fields_of_the_contract() -> None:
    assert list(TaskDocument.__struct_encode_fields__) == [
        *("task_id", "goal", "status", "current_step", "progress_pct", "last_completed"),
        *("next_actions", "artifacts", "errors", "retry_count", "updated_at"),
    ]
    assert list(CycleReport.__struct_encode_fields__) == [
        *("task_id", "status", "progress_pct", "current_step", "resumed_from_checkpoint"),
        *("next_wake_scheduled", "next_wake_at", "notes"),
    ]
    packet = ResumePacket(task_id="smartwake_x", resume=ResumeStep(), objective="", checkpoint="", reason="")
    shown = msgspec.to_builtins(packet)
    assert {"task", "task_id", "wakeMode", "resume", "done_criteria", "objective", "checkpoint"} <= set(shown)
    assert (shown["wakeMode"], list(shown["resume"])) == ("cron", ["from", "current_step", "next_actions"])
    assert shown["resume"]["from"] == "latest_checkpoint"
