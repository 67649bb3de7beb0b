"""How long the supervisor waits after a crash, and when it holds resumes; time is an argument."""

from __future__ import annotations

import pytest

from holdfast.gateway.crashes import Crashes, SupervisorTimeouts

WHOLE, HALF = 1.0, 0.0


def crash(
    crashes: Crashes, *, lived_s: float = 1.0, was_healthy: bool = False, jitter: float = WHOLE
) -> float:
    return crashes.wait_after_crash(lived_s=lived_s, was_healthy=was_healthy, jitter=jitter)


def test_each_wait_is_twice_the_one_before_up_to_the_longest() -> None:
    crashes = Crashes(SupervisorTimeouts())

    waits = [crash(crashes) for _ in range(10)]

    assert waits == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0])


def test_jitter_takes_half_of_a_wait_at_most() -> None:
    crashes = Crashes(SupervisorTimeouts())

    waits = [crash(crashes, jitter=HALF) for _ in range(3)]

    assert waits == pytest.approx([0.1, 0.2, 0.4])


def test_a_thousand_crashes_still_have_a_wait() -> None:
    crashes = Crashes(SupervisorTimeouts())

    waits = [crash(crashes) for _ in range(1000)]

    assert waits[-1] == 30.0


def test_five_early_crashes_are_a_loop_and_four_are_not() -> None:
    crashes = Crashes(SupervisorTimeouts())

    loop = []
    for _ in range(6):
        crash(crashes, lived_s=299.9)
        loop.append(crashes.are_a_loop)

    assert loop == [False, False, False, False, True, True]


@pytest.mark.parametrize(
    ("lived_s", "was_healthy"), [(300.0, False), (1.0, True)], ids=["a long life", "a healthy life"]
)
def test_the_crash_of_such_a_life_is_not_counted_and_the_waits_begin_anew(
    lived_s: float, *, was_healthy: bool
) -> None:
    crashes = Crashes(SupervisorTimeouts())
    for _ in range(4):
        crash(crashes)

    wait_s = crash(crashes, lived_s=lived_s, was_healthy=was_healthy)

    assert crashes.count == 4
    assert wait_s == pytest.approx(0.2)


def test_a_healthy_life_ends_the_loop() -> None:
    crashes = Crashes(SupervisorTimeouts())
    for _ in range(5):
        crash(crashes)

    crashes.forget()

    assert (crashes.are_a_loop, crashes.count) == (False, 0)
    assert crash(crashes) == pytest.approx(0.2)


def test_crashes_that_a_run_was_found_to_blame_for_do_not_count_but_the_waits_grow() -> None:
    crashes = Crashes(SupervisorTimeouts())
    for _ in range(4):
        crash(crashes)

    crashes.explain()

    assert crash(crashes) == pytest.approx(3.2)
    assert (crashes.are_a_loop, crashes.count) == (False, 1)
