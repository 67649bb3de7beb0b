"""When smart wake is on, when a run stops, and when it is woken: sums without a clock."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.core.plan import Plan, PlanItem
from holdfast.core.smart_wake import WakeOptions, estimated, is_expected

MINUTE = timedelta(minutes=1)
LIMIT = 10 * MINUTE


def plan(done: int, left: int) -> Plan:
    return Plan(
        items=tuple(
            PlanItem(id=str(number), title=str(number), is_done=number < done)
            for number in range(done + left)
        )
    )


@pytest.mark.parametrize(
    ("earlier", "known", "minutes"),
    [
        ([], plan(0, 4), None),
        ([20], None, 20),
        ([1, 20, 90], None, 20),
        ([20], plan(0, 0), 20),
        ([20], plan(0, 4), 20),
        ([20], plan(3, 1), 5),
        ([20], plan(4, 0), 0),
    ],
    ids=["nothing known", "one", "the median", "an empty plan", "all to do", "a quarter left", "all done"],
)
def test_the_estimate_is_the_history_less_what_is_done_of_the_plan(
    earlier: list[int], known: Plan | None, minutes: int | None
) -> None:
    found = estimated([number * MINUTE for number in earlier], known)

    assert found == (None if minutes is None else minutes * MINUTE)


@pytest.mark.parametrize(
    ("minutes", "is_on"), [(None, True), (6.9, False), (7, False), (7.1, True), (60, True)]
)
def test_smart_wake_is_on_above_70_percent_of_the_limit(minutes: float | None, *, is_on: bool) -> None:
    estimate = None if minutes is None else minutes * MINUTE

    assert is_expected(estimate, LIMIT, WakeOptions()) is is_on


@pytest.mark.parametrize(
    ("limit", "chunk"), [(1, 5), (10, 5), (20, 5), (40, 10), (60, 15), (8 * 60, 15)], ids=str
)
def test_a_chunk_takes_from_5_to_15_minutes(limit: int, chunk: int) -> None:
    assert WakeOptions().chunk_of(limit * MINUTE) == chunk * MINUTE
    assert WakeOptions(chunk=MINUTE).chunk_of(limit * MINUTE) == MINUTE


@pytest.mark.parametrize(("load", "minutes"), [(-1, 2), (0, 2), (50, 6), (100, 10), (100_000, 10)], ids=str)
def test_a_wake_is_due_in_2_to_10_minutes_by_load(load: int, minutes: int) -> None:
    assert WakeOptions().delay(load) == minutes * MINUTE
