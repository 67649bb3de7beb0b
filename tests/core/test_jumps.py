"""Which time is believed when the wall clock may have jumped: pure rules over pairs of clocks."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.jumps import DELETES_AFTER, FIRES_AFTER, TOLERANCE, Belief

SECOND = 1_000_000
NOON = 1_800_000_000 * SECOND
YEAR, HOUR, MINUTE = 365 * 24 * 3600, 3600, 60


def us(span: timedelta) -> int:
    return span // timedelta(microseconds=1)


def believed(at_s: int = 0) -> Belief:
    """A belief that has held for long enough to delete by."""
    since = at_s * SECOND - us(DELETES_AFTER)
    return Belief(offset=NOON, since=since, seen=NOON, seen_since=since)


def look(belief: Belief, at_s: float, *, ahead_s: float = 0) -> Belief:
    """At a time since boot, by a wall clock that is so far ahead of the truth."""
    passed = int(at_s * SECOND)
    return belief.after(NOON + passed + int(ahead_s * SECOND), passed)


def firing_s(belief: Belief, at_s: float) -> float | None:
    """The time of schedules, in seconds after noon."""
    found = belief.firing_time(int(at_s * SECOND))
    return None if found is None else (found - NOON) / SECOND


def may_delete(belief: Belief, at_s: float) -> bool:
    return belief.deletion_time(int(at_s * SECOND)) is not None


@pytest.mark.parametrize("ahead_s", [HOUR, YEAR])
def test_while_the_clock_is_ahead_time_goes_on_as_before_and_nothing_may_be_deleted(ahead_s: int) -> None:
    jumped = look(believed(), 20, ahead_s=ahead_s)

    assert firing_s(jumped, 20) == 20
    assert not may_delete(jumped, 20)


def test_a_clock_that_is_back_where_it_was_is_believed_at_once() -> None:
    back = look(look(believed(), 1, ahead_s=YEAR), 76)

    assert firing_s(back, 76) == 76
    assert may_delete(back, 76)


def test_while_the_clock_is_behind_nothing_fires_and_nothing_may_be_deleted() -> None:
    jumped = look(believed(), 20, ahead_s=-HOUR)

    assert firing_s(jumped, 20) is None
    assert not may_delete(jumped, 20)


@pytest.mark.parametrize("ahead_s", [YEAR, HOUR, -HOUR, -YEAR])
def test_a_new_time_is_believed_when_it_has_held_and_deleted_by_much_later(ahead_s: int) -> None:
    jumped = look(believed(), 1, ahead_s=ahead_s)
    almost = look(jumped, FIRES_AFTER.total_seconds(), ahead_s=ahead_s)
    held_s = 1 + FIRES_AFTER.total_seconds()
    held = look(almost, held_s, ahead_s=ahead_s)
    long_s = 1 + DELETES_AFTER.total_seconds()
    long = look(held, long_s, ahead_s=ahead_s)

    assert almost.is_away
    assert firing_s(held, held_s) == held_s + ahead_s
    assert not may_delete(held, long_s - 1)
    assert may_delete(long, long_s)


def test_a_clock_that_jumps_again_has_to_hold_again() -> None:
    belief = believed()
    for minute in range(60):
        belief = look(belief, minute * MINUTE, ahead_s=HOUR if minute % 2 else YEAR)

        assert firing_s(belief, minute * MINUTE) == minute * MINUTE
        assert not may_delete(belief, minute * MINUTE)


def test_small_steps_are_followed() -> None:
    belief = look(believed(), 1, ahead_s=TOLERANCE.total_seconds())

    assert firing_s(belief, 1) == 1 + TOLERANCE.total_seconds()
    assert may_delete(belief, 1)


def test_the_first_time_on_a_boot_has_to_hold_unless_nothing_speaks_against_it() -> None:
    unproved = Belief.first(NOON, 0, is_believed=False)
    new = Belief.first(NOON, 0, is_believed=True)

    assert (firing_s(unproved, 0), firing_s(new, 0)) == (None, 0)
    assert not may_delete(unproved, 0)
    assert not may_delete(new, 0)
    assert firing_s(look(unproved, FIRES_AFTER.total_seconds()), 300) == 300


# A look every half minute; in between the wall clock is set to any time for less than it has to hold.
JUMPS = st.lists(
    st.tuples(st.integers(1, 9), st.integers(-3 * YEAR, 3 * YEAR), st.integers(0, 9)), max_size=10
)


@given(jumps=JUMPS)
def test_no_clock_that_is_wrong_for_a_short_while_makes_a_time_that_has_not_come(
    jumps: list[tuple[int, int, int]],
) -> None:
    belief, at_s = believed(), 0
    for looks, ahead_s, calm in jumps:
        for ahead in [ahead_s] * looks + [0] * (calm + 1):
            at_s += 30
            belief = look(belief, at_s, ahead_s=ahead)
            firing, deletion = firing_s(belief, at_s), belief.deletion_time(at_s * SECOND)

            assert firing is None or firing <= at_s + TOLERANCE.total_seconds()
            assert deletion is None or deletion <= NOON + at_s * SECOND + us(TOLERANCE)
