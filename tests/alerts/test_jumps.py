"""A clock that jumps raises nothing by itself, and a start is given time."""

from __future__ import annotations

from holdfast.config.alerts import AlertSettings
from tests.alerts.field import Field

AGES = {
    "stalled": "no_progress_for_minutes > 60",
    "down": "agent_heartbeat_age_minutes > 10",
    "old": "last_checkpoint_age_minutes > 30",
    "long": "running_for_minutes > 600",
}


async def test_a_clock_that_jumps_a_year_ahead_raises_nothing(field: Field) -> None:
    await field.begin()
    watch = field.watch(AGES, is_wary=True)
    await field.ticks(watch, minutes=1)
    field.clock.jump(days=365)

    # Long enough for the new time to be believed.
    await field.ticks(watch, minutes=9)

    assert field.alerts() == []


async def test_ages_count_again_after_a_jump(field: Field) -> None:
    await field.begin()
    watch = field.watch(AGES, is_wary=True)
    await field.ticks(watch, minutes=1)
    field.clock.jump(days=365)
    await field.ticks(watch, minutes=20, every_s=30)

    assert [one.rule for one in field.alerts()] == ["down"]


async def test_ages_count_again_after_a_clock_that_was_ahead_is_right_again(field: Field) -> None:
    await field.begin()
    watch = field.watch(AGES, is_wary=True)
    await field.ticks(watch, minutes=1)
    field.clock.jump(days=1)
    await field.ticks(watch, minutes=9)
    field.clock.jump(days=-1)

    await field.ticks(watch, minutes=30, every_s=30)

    assert [one.rule for one in field.alerts()] == ["down"]


async def test_a_wait_that_began_while_the_clock_was_ahead_begins_anew(field: Field) -> None:
    await field.begin()
    rule = AlertSettings(condition="failed_count > 0", raise_after="5m")
    watch = field.watch(some=rule)
    field.clock.jump(days=1)
    await field.fail(1)
    await field.ticks(watch, minutes=1)
    field.clock.jump(days=-1)

    early = await field.ticks(watch, minutes=4)
    late = await field.ticks(watch, minutes=2)

    assert [one.raised for one in early if one.raised] == []
    assert sum(len(one.raised) for one in late) == 1


async def test_a_restart_after_a_jump_still_knows_of_it(field: Field) -> None:
    await field.begin()
    first = field.watch(AGES, is_wary=True)
    await field.ticks(first, minutes=1)
    field.clock.jump(days=365)
    await field.ticks(first, minutes=7)

    await field.ticks(field.watch(AGES, is_wary=True), minutes=2)

    assert field.alerts() == []


async def test_a_clock_that_is_set_back_raises_nothing(field: Field) -> None:
    await field.begin()
    watch = field.watch(AGES, is_wary=True)
    await field.ticks(watch, minutes=1)
    field.clock.jump(days=-365)
    await field.ticks(watch, minutes=9)

    assert field.alerts() == []


async def test_a_machine_that_slept_gives_its_agents_time(field: Field) -> None:
    """While it sleeps, no process gives a sign of life."""
    await field.begin()
    slept = [0.0]
    watch = field.watch(AGES)
    watch._monotonic = lambda: field.seconds() - slept[0]
    await field.ticks(watch, minutes=1)
    field.clock.advance(hours=8)
    slept[0] = 8 * 3600.0

    await field.ticks(watch, minutes=5)

    assert field.alerts() == []


async def test_an_age_is_not_believed_just_after_a_start(field: Field) -> None:
    await field.begin()
    field.clock.advance(hours=2)
    watch = field.watch(AGES, grace_s=60.0, many="running_count > 3")

    await watch.run_once()
    at_once = sorted(one.rule for one in field.alerts())
    await field.ticks(watch, minutes=1.5)

    assert at_once == ["many"]
    assert {one.rule for one in field.alerts()} == {"many", "stalled", "down", "old"}
