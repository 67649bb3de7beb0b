"""Plans: the cursor follows what is done, and a wrong item is refused by name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import BadInput
from holdfast.core.plan import Cursor, Plan, PlanItem
from tests.builders import plan_of

TITLES = st.lists(st.text(min_size=1, max_size=10), unique=True, max_size=12)


def test_a_new_plan_has_nothing_done_and_its_first_item_next() -> None:
    assert plan_of("read", "sum", "write").cursor == Cursor(last_completed=None, next_step="read")


def test_the_cursor_names_the_last_item_done_and_the_next_to_do() -> None:
    plan = plan_of("read", "sum", "write").complete("read").complete("sum")

    assert plan.cursor == Cursor(last_completed="sum", next_step="write")


def test_a_finished_plan_has_nothing_next() -> None:
    plan = plan_of("read", "write").complete("read").complete("write")

    assert plan.cursor == Cursor(last_completed="write", next_step=None)


def test_an_empty_plan_has_no_place() -> None:
    assert plan_of().cursor == Cursor()


def test_items_done_out_of_order_leave_the_first_open_one_next() -> None:
    plan = plan_of("a", "b", "c").complete("c")

    assert plan.cursor == Cursor(last_completed="c", next_step="a")


def test_completing_an_item_twice_changes_nothing() -> None:
    once = plan_of("a", "b").complete("a")

    assert once.complete("a") == once


def test_completing_leaves_the_first_plan_as_it_was() -> None:
    plan = plan_of("a", "b")
    plan.complete("a")

    assert plan == plan_of("a", "b")


@pytest.mark.parametrize("item_id", ["", "c", "A", "a ", "\x00"])
def test_an_item_that_is_not_in_the_plan_is_refused_by_name(item_id: str) -> None:
    with pytest.raises(BadInput) as refusal:
        plan_of("a", "b").complete(item_id)

    assert refusal.value.field == "item"
    assert repr(item_id) in str(refusal.value)


def test_nothing_can_be_completed_in_an_empty_plan() -> None:
    with pytest.raises(BadInput):
        plan_of().complete("a")


def test_items_keep_their_order() -> None:
    assert [item.title for item in plan_of("c", "a", "b").items] == ["c", "a", "b"]


def test_an_item_may_have_an_id_of_its_own() -> None:
    plan = Plan(items=(PlanItem(id="1", title="read"), PlanItem(id="2", title="read")))

    assert plan.complete("1").cursor == Cursor(last_completed="1", next_step="2")


@given(TITLES)
def test_working_through_a_plan_visits_each_item_once_in_order(titles: list[str]) -> None:
    plan = plan_of(*titles)
    visited = []
    while (next_step := plan.cursor.next_step) is not None:
        plan = plan.complete(next_step)
        visited.append(next_step)

    assert visited == titles
    assert plan.cursor.last_completed == (titles[-1] if titles else None)
