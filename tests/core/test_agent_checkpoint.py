"""The checkpoint document of a command agent: found, validated, or refused with the field and the reason."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.agent_checkpoint import (
    MAX_DOCUMENT_BYTES,
    find_checkpoint,
    has_progressed,
    plan_of,
    read_document,
    split_output,
)
from holdfast.core.errors import BadInput

GOOD: dict[str, Any] = {
    "task_id": "task_1",
    "goal": "tides",
    "status": "waiting",
    "current_step": "think",
    "progress_pct": 40,
    "last_completed": ["read"],
    "next_actions": ["think", "write"],
    "artifacts": ["report.md"],
    "errors": [],
    "retry_count": 0,
    "updated_at": "2026-03-01T12:00:00Z",
}
IDS = ["task_1", "smartwake_tides"]


def text(**changes: Any) -> str:
    return msgspec.json.encode(GOOD | changes).decode()


@pytest.mark.parametrize("name", sorted(GOOD))
def test_a_document_without_one_of_the_eleven_fields_is_refused(name: str) -> None:
    lacking = {key: value for key, value in GOOD.items() if key != name}

    with pytest.raises(BadInput, match=name):
        read_document(msgspec.json.encode(lacking).decode(), IDS)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"status": "almost"}, r"\$\.status"),
        ({"progress_pct": 101}, "progress_pct"),
        ({"progress_pct": "40"}, "progress_pct"),
        ({"task_id": "task_2"}, "not about this task"),
        ({"updated_at": "2026-03-01T12:00:00"}, "time zone"),
        ({"updated_at": "yesterday"}, "updated_at"),
        ({"next_actions": []}, "nothing is left to do"),
        ({"next_actions": ["x"] * 201}, "next_actions"),
        ({"next_actions": ["x" * 3000]}, "next_actions"),
        ({"last_completed": ["a\x00b"]}, "control character"),
        ({"current_step": "two\nlines"}, "one line"),
        ({"retry_count": -1}, "retry_count"),
        ({"goal": "x" * MAX_DOCUMENT_BYTES}, "256 KiB"),
    ],
)
def test_a_wrong_document_is_refused_with_its_field(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(BadInput, match=match):
        read_document(text(**changes), IDS)


def test_further_fields_and_the_key_of_the_task_are_accepted() -> None:
    document = read_document(text(task_id="smartwake_tides", mood="good", progress_pct=66.6), IDS)

    assert (document.progress_pct, document.task_id) == (66, "smartwake_tides")


def test_marked_lines_are_no_part_of_the_answer() -> None:
    answer, documents = split_output(f"one\nHOLDFAST_CHECKPOINT {text()}\nHOLDFAST_CHECKPOINTS are nice\ntwo")

    assert answer == "one\nHOLDFAST_CHECKPOINTS are nice\ntwo"
    assert [read_document(one, IDS).status for one in documents] == ["waiting"]


def test_the_newest_valid_document_counts_and_the_others_are_named() -> None:
    later = text(updated_at="2026-03-01T13:00:00Z", current_step="write")

    found = find_checkpoint(marked=[text(), "{"], files=[None, later], ids=IDS)

    assert found.document is not None
    assert found.document.current_step == "write"
    assert len(found.problems) == 1
    assert "stdout" in found.problems[0]


def test_of_a_file_with_a_document_in_each_line_the_last_whole_one_counts() -> None:
    lines = f"{text(current_step='one')}\n{text(current_step='two')}\n{text()[:50]}"

    found = find_checkpoint(marked=[], files=[lines], ids=IDS)

    assert found.document is not None
    assert found.document.current_step == "two"
    assert found.problems == ()


def test_progress_is_a_change_of_place_and_not_of_time() -> None:
    first = read_document(text(), IDS)
    same = read_document(text(updated_at="2026-03-02T12:00:00Z", retry_count=3, errors=["x"]), IDS)
    further = read_document(text(last_completed=["read", "think"]), IDS)

    assert has_progressed(first, None)
    assert not has_progressed(same, first)
    assert has_progressed(further, first)
    assert not has_progressed(read_document(text(last_completed=[], progress_pct=0), IDS), None)


def test_the_plan_has_each_action_once_also_if_two_are_called_the_same() -> None:
    plan = plan_of(read_document(text(last_completed=["a", "a"], next_actions=["a", "b"]), IDS))

    assert [(item.id, item.is_done) for item in plan.items] == [
        ("a", True),
        ("a (2)", True),
        ("a (3)", False),
        ("b", False),
    ]
    assert plan.cursor.next_step == "a (3)"


@given(st.text(), st.integers(min_value=0, max_value=400))
def test_nothing_that_an_agent_writes_raises_anything_else(garbage: str, cut: int) -> None:
    for one in (garbage, text()[:cut], f"{garbage}\n{text()}"):
        found = find_checkpoint(marked=[one], files=[one], ids=IDS)

        assert found.document is None or found.document.task_id == "task_1"
