"""Which rung handles which failure, how long to wait, and what a budget may say."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import MAX_RETRY_AFTER_S, BadInput, RetryAfter
from holdfast.core.ladder import (
    MAX_RUNGS,
    Ask,
    Budget,
    Decompose,
    Replan,
    Retry,
    ask,
    budget,
    check_budget,
    check_ladder,
    decompose,
    delay,
    next_rung,
    replan,
    retry,
)


def plan_anew() -> None: ...


def cut() -> None: ...


FULL = (retry(3), replan(plan_anew), decompose(cut), ask())


def test_each_rung_says_what_it_does() -> None:
    assert retry(2, "1s", "1m") == Retry(2, timedelta(seconds=1), timedelta(minutes=1))
    assert replan(plan_anew) == Replan(plan_anew)
    assert decompose(cut) == Decompose(cut)
    assert ask() == Ask()


def test_a_retry_waits_from_one_second_to_five_minutes_unless_told() -> None:
    assert retry(1) == Retry(1, timedelta(seconds=1), timedelta(minutes=5))


@pytest.mark.parametrize(
    ("failures", "rung"),
    [
        (1, retry(3)),
        (2, retry(3)),
        (3, retry(3)),
        (4, replan(plan_anew)),
        (5, decompose(cut)),
        (6, ask()),
        (7, None),
        (1_000_000, None),
    ],
)
def test_the_ladder_is_climbed_one_failure_at_a_time(failures: int, rung: object) -> None:
    assert next_rung(FULL, failures) == rung


def test_an_empty_ladder_has_no_rung() -> None:
    assert next_rung((), 1) is None


def test_two_retries_follow_each_other() -> None:
    quick, slow = retry(1, "1s"), retry(2, "1m")

    assert [next_rung((quick, slow), failures) for failures in range(1, 5)] == [quick, slow, slow, None]


# --- waiting


@pytest.mark.parametrize(("attempt", "seconds"), [(1, 1), (2, 2), (3, 4), (9, 256), (10, 300), (10_000, 300)])
def test_the_longest_wait_doubles_up_to_the_most(attempt: int, seconds: int) -> None:
    longest = delay(retry(1000, "1s", "5m"), attempt, chance=1.0)

    assert longest == timedelta(seconds=seconds)


@given(st.integers(1, 10**9), st.floats(0, 1, exclude_max=True))
def test_a_wait_is_anywhere_from_nothing_to_the_most(attempt: int, chance: float) -> None:
    waits = delay(retry(5, "2s", "1m"), attempt, chance=chance)

    assert timedelta(0) <= waits <= timedelta(minutes=1)


def test_the_same_chance_gives_the_same_wait() -> None:
    assert delay(retry(5), 3, chance=0.5) == delay(retry(5), 3, chance=0.5) == timedelta(seconds=2)


def test_the_longest_of_all_backoffs_does_not_overflow() -> None:
    assert delay(retry(9, "10w", "500w"), 1000, chance=1.0) == timedelta(weeks=500)


def test_no_backoff_is_no_wait() -> None:
    assert delay(retry(9, 0, 0), 5, chance=0.9) == timedelta(0)


# --- what is refused


@pytest.mark.parametrize(
    ("n", "backoff", "most", "field"),
    [
        (0, "1s", "5m", "n"),
        (-1, "1s", "5m", "n"),
        (True, "1s", "5m", "n"),
        (1.0, "1s", "5m", "n"),
        ("3", "1s", "5m", "n"),
        (10**5000, "1s", "5m", "n"),
        (1, "soon", "5m", "backoff"),
        (1, -1, "5m", "backoff"),
        (1, None, "5m", "backoff"),
        (1, "1s", "later", "most"),
        (1, "10m", "5m", "most"),
    ],
    ids=lambda value: f"{value!r:.10}" if not isinstance(value, int) else "n",
)
def test_a_wrong_retry_is_refused_by_its_parameter(n: Any, backoff: Any, most: Any, field: str) -> None:
    with pytest.raises(BadInput) as refusal:
        retry(n, backoff, most)

    assert refusal.value.field == field


@pytest.mark.parametrize("value", [None, "fn", 3])
def test_a_rung_that_needs_a_function_refuses_anything_else(value: Any) -> None:
    with pytest.raises(BadInput, match="replan: a function is needed"):
        replan(value)
    with pytest.raises(BadInput, match="decompose: a function is needed"):
        decompose(value)


def test_a_ladder_may_be_a_list_a_tuple_or_one_rung() -> None:
    assert check_ladder(list(FULL)) == FULL
    assert check_ladder(retry(3)) == (retry(3),)
    assert check_ladder([]) == ()


@pytest.mark.parametrize(
    "value",
    [None, "retry", 3, {retry(1)}, [3], [retry(1), None], [retry], [ask], [ask()] * (MAX_RUNGS + 1)],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_ladder_is_refused(value: object) -> None:
    with pytest.raises(BadInput) as refusal:
        check_ladder(value)

    assert refusal.value.field == "ladder"


# --- when the provider says how long


def test_a_provider_that_asks_for_patience_says_how_long() -> None:
    assert RetryAfter(30).seconds == 30.0
    assert "30 s" in str(RetryAfter(30, "429"))


@pytest.mark.parametrize(
    "seconds", [-1, float("nan"), float("inf"), MAX_RETRY_AFTER_S + 1, 10**400, "30", None, True], ids=str
)
def test_a_wait_that_is_no_number_of_seconds_is_refused(seconds: Any) -> None:
    with pytest.raises(BadInput, match="seconds"):
        RetryAfter(seconds)


# --- budgets


def test_a_budget_limits_only_what_it_names() -> None:
    assert budget() == Budget()
    assert budget(steps=10, time="2h", cost=1) == Budget(10, timedelta(hours=2), 1.0)


@pytest.mark.parametrize(
    ("limits", "field"),
    [
        ({"steps": 0}, "steps"),
        ({"steps": 1.5}, "steps"),
        ({"steps": True}, "steps"),
        ({"time": 0}, "time"),
        ({"time": "2 hours"}, "time"),
        ({"cost": 0}, "cost"),
        ({"cost": -1.0}, "cost"),
        ({"cost": float("nan")}, "cost"),
        ({"cost": float("inf")}, "cost"),
        ({"cost": 10**400}, "cost"),
        ({"cost": "5"}, "cost"),
        ({"cost": True}, "cost"),
    ],
    ids=lambda value: f"{value!r:.30}",
)
def test_a_wrong_limit_is_refused_by_its_name(limits: dict[str, Any], field: str) -> None:
    with pytest.raises(BadInput) as refusal:
        budget(**limits)

    assert refusal.value.field == field


def test_a_budget_made_by_hand_is_checked_like_any_other() -> None:
    assert check_budget(Budget(steps=3)) == Budget(steps=3)
    with pytest.raises(BadInput, match="steps"):
        check_budget(Budget(steps=-3))
    with pytest.raises(BadInput, match="budget"):
        check_budget({"steps": 3})
