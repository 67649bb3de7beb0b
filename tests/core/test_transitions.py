"""Every pair of statuses of every noun: the table's moves succeed, all others raise."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import pytest

from holdfast.core.errors import Conflict, IllegalMove
from holdfast.core.run import TASK_STATUS_OF
from holdfast.core.transitions import (
    MOVES,
    TASK_REOPENS,
    AlertActionStatus,
    AlertStatus,
    CampaignStatus,
    CheckpointStatus,
    DeliveryStatus,
    EffectStatus,
    FiringStatus,
    FlowNodeStatus,
    FlowStatus,
    ItemStatus,
    MessageStatus,
    RestartStatus,
    RunStatus,
    SessionStatus,
    TaskStatus,
    WakeStatus,
    is_terminal,
    move,
    sources_of,
)

STATUSES: dict[str, type[StrEnum]] = {
    "task": TaskStatus,
    "run": RunStatus,
    "checkpoint": CheckpointStatus,
    "effect": EffectStatus,
    "delivery": DeliveryStatus,
    "flow": FlowStatus,
    "node": FlowNodeStatus,
    "campaign": CampaignStatus,
    "item": ItemStatus,
    "alert": AlertStatus,
    "action": AlertActionStatus,
    "session": SessionStatus,
    "message": MessageStatus,
    "firing": FiringStatus,
    "wake": WakeStatus,
    "restart": RestartStatus,
}

# Written out once more, by hand: a slip in the tables must not go unnoticed.
TERMINAL = {
    "task": {"succeeded", "failed", "timed_out", "cancelled", "lost"},
    "run": {"resumed", "failed_resume", "succeeded", "failed", "timed_out", "cancelled", "lost"},
    "checkpoint": {"resumed", "failed_resume"},
    "effect": {"done", "confirmed"},
    "delivery": {"delivered", "not_applicable", "dismissed"},
    "flow": {"succeeded", "failed", "cancelled", "lost"},
    "node": {"succeeded"},
    "campaign": set[str](),
    "item": set[str](),
    "alert": {"cleared"},
    "action": {"done", "failed", "skipped"},
    "session": set[str](),
    "message": {"answered", "noted"},
    "firing": {"done", "missed"},
    "wake": {"fired", "cancelled", "expired"},
    "restart": {"blocked", "recovered"},
}


def pairs() -> Iterator[tuple[str, StrEnum, StrEnum]]:
    for noun, statuses in STATUSES.items():
        for status in statuses:
            for to in statuses:
                yield noun, status, to


ALLOWED = [pair for pair in pairs() if pair[2] in MOVES[pair[0]][pair[1]]]
FORBIDDEN = [pair for pair in pairs() if pair[2] not in MOVES[pair[0]][pair[1]]]


@pytest.mark.parametrize("noun", STATUSES)
def test_a_move_in_the_table_succeeds(noun: str) -> None:
    for _, status, to in (pair for pair in ALLOWED if pair[0] == noun):
        assert move(noun, "id_1", status, to) is to, f"{status} to {to}"


@pytest.mark.parametrize("noun", STATUSES)
def test_a_move_that_is_not_in_the_table_is_refused_with_the_facts(noun: str) -> None:
    for _, status, to in (pair for pair in FORBIDDEN if pair[0] == noun):
        with pytest.raises(IllegalMove) as refusal:
            move(noun, "id_1", status, to)

        assert isinstance(refusal.value, Conflict)
        assert (refusal.value.noun, refusal.value.record_id) == (noun, "id_1")
        assert (refusal.value.status, refusal.value.to) == (status, to)
        assert str(refusal.value).startswith(f"{noun} id_1 ")
        if status == to:
            assert str(refusal.value) == f"{noun} id_1 is {status} already"
        elif to in {"answered", "cancelled", "confirmed", "dismissed"}:
            assert str(refusal.value).endswith(f" and cannot be {to}")
        else:
            assert str(refusal.value) == f"{noun} id_1 is {status} and cannot become {to}"


@pytest.mark.parametrize(
    ("status", "to", "words"),
    [
        ("succeeded", "retried", "has succeeded and cannot be retried: there is nothing to retry"),
        ("succeeded", "retried: it answers", "has succeeded and cannot be retried: it answers"),
        ("dismissed", "dismissed", "is dismissed already"),
        ("pending", "confirmed", "is pending and cannot be confirmed"),
        ("cancelled", "started again", "is cancelled and cannot be started again"),
        ("running", "queued", "is running and cannot become queued"),
    ],
)
def test_a_refused_move_is_told_in_plain_words(status: str, to: str, words: str) -> None:
    assert str(IllegalMove("task", "id_1", status, to)) == f"task id_1 {words}"


def test_every_noun_with_a_status_has_a_table() -> None:
    assert set(MOVES) == set(STATUSES)


@pytest.mark.parametrize("noun", STATUSES)
def test_a_table_has_one_row_for_each_status_and_names_no_other(noun: str) -> None:
    table = MOVES[noun]

    assert set(table) == set(STATUSES[noun])
    assert {type(to) for ways in table.values() for to in ways} == {STATUSES[noun]}


@pytest.mark.parametrize("noun", STATUSES)
def test_no_status_moves_to_itself(noun: str) -> None:
    assert [status for status, ways in MOVES[noun].items() if status in ways] == []


@pytest.mark.parametrize("noun", STATUSES)
def test_every_status_can_be_reached_from_the_first(noun: str) -> None:
    table = MOVES[noun]
    first = next(iter(STATUSES[noun]))
    reached, ahead = set[StrEnum](), {first}
    while ahead:
        reached |= ahead
        ahead = {to for status in ahead for to in table[status]} - reached

    assert reached == set(STATUSES[noun])


@pytest.mark.parametrize("noun", STATUSES)
def test_terminal_means_that_no_way_leads_out(noun: str) -> None:
    ended = {status for status in STATUSES[noun] if is_terminal(status)}

    assert ended == {status for status, ways in MOVES[noun].items() if not ways}
    assert ended == TERMINAL[noun]


@pytest.mark.parametrize("noun", STATUSES)
def test_the_sources_of_a_status_are_exactly_the_statuses_that_may_become_it(noun: str) -> None:
    for to in STATUSES[noun]:
        sources = sources_of(to)

        assert set(sources) == {status.value for status in STATUSES[noun] if to in MOVES[noun][status]}
        assert list(sources) == sorted(sources)


def test_equal_words_of_two_nouns_are_looked_up_in_their_own_tables() -> None:
    assert is_terminal(DeliveryStatus.FAILED) is False
    assert is_terminal(TaskStatus.FAILED) is True
    assert sources_of(WakeStatus.CANCELLED) == ("pending",)
    assert "running" in sources_of(TaskStatus.CANCELLED)


def test_work_that_ended_has_no_way_back_but_those_that_a_person_or_a_parent_opens() -> None:
    assert {status: set(ways) for status, ways in TASK_REOPENS.items()} == {
        TaskStatus.FAILED: {TaskStatus.PAUSED, TaskStatus.QUEUED},
        TaskStatus.TIMED_OUT: {TaskStatus.QUEUED},
        TaskStatus.CANCELLED: {TaskStatus.QUEUED},
        TaskStatus.LOST: {TaskStatus.QUEUED},
    }
    for status, ways in TASK_REOPENS.items():
        for to in ways:
            with pytest.raises(IllegalMove):
                move("task", "task_1", status, to)


def test_a_task_may_follow_every_move_of_its_run() -> None:
    """A run that moves must never leave its task in a status from which it cannot follow."""
    missing = [
        (status, to)
        for status, ways in MOVES["run"].items()
        for to in ways
        if RunStatus(status) in TASK_STATUS_OF and RunStatus(to) in TASK_STATUS_OF
        if TASK_STATUS_OF[RunStatus(status)] is not TASK_STATUS_OF[RunStatus(to)]
        if TASK_STATUS_OF[RunStatus(to)] not in MOVES["task"][TASK_STATUS_OF[RunStatus(status)]]
    ]

    assert missing == []


def test_a_run_that_was_resumed_leaves_its_task_to_the_follow_up_run() -> None:
    assert set(RunStatus) - set(TASK_STATUS_OF) == {RunStatus.RESUMED}
