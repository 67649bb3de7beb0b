"""Every action of the dashboard is pressed, and confirmed, in a real browser."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from holdfast.web.tables import ACTIONS

HERE = Path(__file__).parent
# For each action: a test that presses its button, and the words with which it does so or confirms.
PRESSED: dict[str, tuple[str, str]] = {
    "gateway.restart": (
        "test_live.a_restart_is_asked_once_shows_who_is_interrupted_and_is_audited",
        "Restart",
    ),
    "gateway.resume": (
        "test_interrupted.work_that_is_held_after_a_crash_loop_is_released_by_a_person",
        "Release",
    ),
    "tasks.cancel": ("test_tasks.a_task_is_cancelled_retried_and_forked", "Cancel the task"),
    "tasks.retry": ("test_tasks.a_task_is_cancelled_retried_and_forked", "Retry the task"),
    "tasks.fork": ("test_tasks.a_task_is_cancelled_retried_and_forked", "Fork"),
    "failures.retry": (
        "test_failures.failures_with_one_cause_are_one_group_and_are_retried_together",
        "Retry 2 tasks",
    ),
    "checkpoints.retry": (
        "test_interrupted.a_resume_that_failed_is_retried_when_a_person_has_mended_its_cause",
        "Retry the resume",
    ),
    "reviews.resolve": ("test_reviews.each_decision_about_an_effect_has_its_consequence", "Decide"),
    "questions.answer": ("test_questions.a_question_is_answered_once_and_its_task_goes_on", "Answer"),
    "campaigns.start": (
        "test_campaigns.a_person_starts_pauses_resumes_retries_and_saves_a_campaign",
        "Start",
    ),
    "campaigns.pause": (
        "test_campaigns.a_person_starts_pauses_resumes_retries_and_saves_a_campaign",
        "Pause",
    ),
    "campaigns.resume": (
        "test_campaigns.a_person_starts_pauses_resumes_retries_and_saves_a_campaign",
        "Resume",
    ),
    "campaigns.retry": (
        "test_campaigns.a_person_starts_pauses_resumes_retries_and_saves_a_campaign",
        "Retry",
    ),
    "campaigns.milestone": (
        "test_campaigns.a_person_starts_pauses_resumes_retries_and_saves_a_campaign",
        "Save",
    ),
    "agents.pause": ("test_agents.a_person_pauses_resumes_and_restarts_an_agent", "Pause"),
    "agents.resume": ("test_agents.a_person_pauses_resumes_and_restarts_an_agent", "Resume"),
    "agents.restart": ("test_agents.a_person_pauses_resumes_and_restarts_an_agent", "Restart"),
    "flows.start": ("test_flows.a_person_starts_retries_and_cancels_a_flow", "Start"),
    "flows.cancel": ("test_flows.a_person_starts_retries_and_cancels_a_flow", "Cancel the flow"),
    "flows.retry": ("test_flows.a_person_starts_retries_and_cancels_a_flow", "Retry"),
    "chat.send": ("test_sessions.a_chat_sends_once_and_shows_the_answer", "Send"),
    "sessions.begin": ("test_sessions.sessions_show_their_last_message_and_lead_to_a_chat", "Send"),
    "sessions.abort": ("test_sessions.a_chat_works_while_the_gateway_restarts_and_is_killed", "Stop"),
    "deliveries.retry": ("test_sessions.failed_deliveries_are_sent_again_confirmed_or_dropped", "Send again"),
    "deliveries.confirm": (
        "test_sessions.failed_deliveries_are_sent_again_confirmed_or_dropped",
        "It arrived",
    ),
    "deliveries.dismiss": ("test_sessions.failed_deliveries_are_sent_again_confirmed_or_dropped", "Drop"),
    "schedules.run": ("test_schedules.a_person_runs_pauses_resumes_and_removes_a_schedule", "Run now"),
    "schedules.pause": ("test_schedules.a_person_runs_pauses_resumes_and_removes_a_schedule", "Pause"),
    "schedules.resume": ("test_schedules.a_person_runs_pauses_resumes_and_removes_a_schedule", "Resume"),
    "schedules.remove": ("test_schedules.a_person_runs_pauses_resumes_and_removes_a_schedule", "Remove"),
    "wakes.cancel": ("test_restarts.a_wake_is_shown_with_its_task_and_can_be_cancelled", "Cancel the wake"),
    "alerts.silence": ("test_alerts.a_person_silences_a_rule_for_a_time_and_ends_it", "Silence"),
    "alerts.unsilence": ("test_alerts.a_person_silences_a_rule_for_a_time_and_ends_it", "End the silence"),
}


def test_every_action_has_a_test_in_a_browser() -> None:
    assert sorted(PRESSED) == sorted(action.name for action in ACTIONS)


@pytest.mark.parametrize("name", PRESSED)
def test_the_test_of_an_action_presses_its_button_in_a_browser(name: str) -> None:
    place, words = PRESSED[name]
    module, _, sentence = place.partition(".")
    tree = ast.parse((HERE / f"{module}.py").read_text(encoding="utf-8"))
    found = [one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == f"test_{sentence}"]

    assert found, f"{module}.py has no test_{sentence}"
    assert "visits" in {one.arg for one in found[0].args.args}
    texts = {one.value for one in ast.walk(found[0]) if isinstance(one, ast.Constant)}
    assert words in texts
