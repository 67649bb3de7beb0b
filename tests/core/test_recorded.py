"""What a producer left out of a valid record."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.recorded import RecordedDetails, RecordedWork, ScopeKind, weak_points
from holdfast.core.task import NotifyPolicy, Origin, RuntimeName
from tests.builders import START, a_run, a_task


def some_work(runtime: RuntimeName, facts: dict[str, Any] | None, **task: Any) -> RecordedWork:
    found = a_task(**{"runtime": runtime, "notify": NotifyPolicy.SILENT} | task)
    details = None
    if facts is not None:
        details = RecordedDetails(
            task_id=found.id, scope=ScopeKind.SYSTEM, created_at=START, last_event_at=START, **facts
        )
    return RecordedWork(task=found, run=a_run(found), details=details)


@pytest.mark.parametrize(
    ("runtime", "facts", "words"),
    [
        (RuntimeName.SUBAGENT, {}, "no child session"),
        (RuntimeName.ACP, {}, "no child session"),
        (RuntimeName.ACP, None, "no child session"),
        (RuntimeName.CLI, {"source_id": "job-7"}, "refers to no process"),
        (RuntimeName.CRON, {}, "no source id"),
    ],
)
def test_a_record_that_its_runtime_cannot_use_is_weak(
    runtime: RuntimeName, facts: dict[str, Any] | None, words: str
) -> None:
    (found,) = weak_points(some_work(runtime, facts))

    assert words in found


@pytest.mark.parametrize(
    ("runtime", "facts"),
    [
        (RuntimeName.SUBAGENT, {"child_session_key": "agent:painter:sub"}),
        (RuntimeName.ACP, {"reference": "acp:sess-7"}),
        (RuntimeName.CLI, {"reference": "pid:1:1@0"}),
        (RuntimeName.CRON, {"source_id": "job-7"}),
        (RuntimeName.MEDIA, {}),
    ],
)
def test_a_record_with_what_its_runtime_needs_is_not(runtime: RuntimeName, facts: dict[str, Any]) -> None:
    assert weak_points(some_work(runtime, facts)) == []


def test_updates_that_can_reach_no_channel_are_a_weak_point() -> None:
    told = some_work(RuntimeName.MEDIA, {}, notify=NotifyPolicy.DONE_ONLY)
    reached = some_work(
        RuntimeName.MEDIA, {}, notify=NotifyPolicy.DONE_ONLY, origin=Origin(channel="console")
    )

    assert weak_points(told) == ["it has no origin, so its updates reach no channel"]
    assert weak_points(reached) == []
