"""TaskSummary and the OpenAPI document: every status has a word, every reference leads somewhere."""

from __future__ import annotations

import re

import msgspec
import pytest

from holdfast.api import openapi
from holdfast.core.task import RuntimeName
from holdfast.core.transitions import DeliveryStatus, TaskStatus, is_terminal
from holdfast.views.wire import WIRE_STATUS, TaskSummary, WireDetails
from tests.builders import FAILURE, START, a_task
from tests.doors.calls import CANARIES, HOSTILE, UNFIT

pytestmark = pytest.mark.slow

WIRE = {"queued", "running", "completed", "failed", "cancelled", "timed_out"}


def test_every_status_has_a_word_of_the_protocol() -> None:
    assert set(WIRE_STATUS) == set(TaskStatus)
    assert set(WIRE_STATUS.values()) == WIRE


@pytest.mark.parametrize("status", TaskStatus)
def test_a_summary_says_how_the_task_is_carried(status: TaskStatus) -> None:
    waits = "answer:ques_1" if status is TaskStatus.WAITING else None
    summary = TaskSummary.of(a_task(status=status, waits_on=waits))

    assert summary.execution is not None
    assert (summary.execution.state == "finished") is is_terminal(status)
    if status is TaskStatus.WAITING:
        assert summary.execution.wait is not None
        assert summary.execution.wait.kind == "user_input"


@pytest.mark.parametrize("runtime", RuntimeName)
def test_a_runtime_is_one_of_the_protocol(runtime: RuntimeName) -> None:
    assert TaskSummary.of(a_task(runtime=runtime)).runtime in {"subagent", "acp", "cron", "cli"}


@pytest.mark.parametrize("status", DeliveryStatus)
def test_a_delivery_status_is_one_of_the_protocol(status: DeliveryStatus) -> None:
    shown = TaskSummary.of(a_task(), WireDetails(delivery_status=status.value)).delivery_status

    assert shown == ("pending" if status is DeliveryStatus.ATTEMPTING else status.value)


def test_what_is_not_known_is_left_out_and_times_are_milliseconds() -> None:
    wire = msgspec.to_builtins(TaskSummary.of(a_task()))

    assert wire["createdAt"] == int(START.timestamp() * 1000)
    assert "endedAt" not in wire
    assert "error" not in wire


def test_a_summary_is_fit_to_be_shown() -> None:
    words = HOSTILE + CANARIES[0]
    task = a_task(goal=words, name=words, owner=words, status=TaskStatus.FAILED, failure=FAILURE)
    shown = msgspec.json.encode(TaskSummary.of(task)).decode()

    assert not UNFIT.search(shown)
    assert CANARIES[0] not in shown


def test_every_reference_of_the_openapi_document_leads_somewhere() -> None:
    document = openapi.document()
    text = msgspec.json.encode(document).decode()
    named = set(re.findall(r'"#/components/schemas/([^"]+)"', text))

    assert named <= set(document["components"]["schemas"])
