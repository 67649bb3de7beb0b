"""A clock that jumps raises nothing by itself, and a start is given time."""

from __future__ import annotations

from holdfast.config.alerts import AlertSettings
from tests.alerts.watched_campaign import WatchedCampaign

AGES = {
    "stalled": "no_progress_for_minutes > 60",
    "down": "agent_heartbeat_age_minutes > 10",
    "old": "last_checkpoint_age_minutes > 30",
    "long": "running_for_minutes > 600",
}


async def test_a_clock_that_jumps_a_year_ahead_raises_nothing(watched: WatchedCampaign) -> None:
    await watched.begin()
    watch = watched.watch(AGES, is_wary=True)
    await watched.ticks(watch, minutes=1)
    watched.clock.jump(days=365)

    # Long enough for the new time to be believed.
    await watched.ticks(watch, minutes=9)

    assert watched.alerts() == []


async def test_ages_count_again_after_a_jump(watched: WatchedCampaign) -> None:
    await watched.begin()
    watch = watched.watch(AGES, is_wary=True)
    await watched.ticks(watch, minutes=1)
    watched.clock.jump(days=365)
    await watched.ticks(watch, minutes=20, every_s=30)

    assert [one.rule for one in watched.alerts()] == ["down"]


async def test_ages_count_again_after_a_clock_that_was_ahead_is_right_again(watched: WatchedCampaign) -> None:
    await watched.begin()
    watch = watched.watch(AGES, is_wary=True)
    await watched.ticks(watch, minutes=1)
    watched.clock.jump(days=1)
    await watched.ticks(watch, minutes=9)
    watched.clock.jump(days=-1)

    await watched.ticks(watch, minutes=30, every_s=30)

    assert [one.rule for one in watched.alerts()] == ["down"]


async def test_a_wait_that_began_while_the_clock_was_ahead_begins_anew(watched: WatchedCampaign) -> None:
    await watched.begin()
    rule = AlertSettings(condition="failed_count > 0", raise_after="5m")
    watch = watched.watch(some=rule)
    watched.clock.jump(days=1)
    await watched.fail(1)
    await watched.ticks(watch, minutes=1)
    watched.clock.jump(days=-1)

    early = await watched.ticks(watch, minutes=4)
    late = await watched.ticks(watch, minutes=2)

    assert [one.raised for one in early if one.raised] == []
    assert sum(len(one.raised) for one in late) == 1


async def test_a_restart_after_a_jump_still_knows_of_it(watched: WatchedCampaign) -> None:
    await watched.begin()
    first = watched.watch(AGES, is_wary=True)
    await watched.ticks(first, minutes=1)
    watched.clock.jump(days=365)
    await watched.ticks(first, minutes=7)

    await watched.ticks(watched.watch(AGES, is_wary=True), minutes=2)

    assert watched.alerts() == []


async def test_a_clock_that_is_set_back_raises_nothing(watched: WatchedCampaign) -> None:
    await watched.begin()
    watch = watched.watch(AGES, is_wary=True)
    await watched.ticks(watch, minutes=1)
    watched.clock.jump(days=-365)
    await watched.ticks(watch, minutes=9)

    assert watched.alerts() == []


async def test_a_machine_that_slept_gives_its_agents_time(watched: WatchedCampaign) -> None:
    """While it sleeps, no process gives a sign of life."""
    await watched.begin()
    slept = [0.0]
    watch = watched.watch(AGES)
    watch._monotonic = lambda: watched.seconds() - slept[0]
    await watched.ticks(watch, minutes=1)
    watched.clock.advance(hours=8)
    slept[0] = 8 * 3600.0

    await watched.ticks(watch, minutes=5)

    assert watched.alerts() == []


async def test_an_age_is_not_believed_just_after_a_start(watched: WatchedCampaign) -> None:
    await watched.begin()
    watched.clock.advance(hours=2)
    watch = watched.watch(AGES, grace_s=60.0, many="running_count > 3")

    await watch.run_once()
    at_once = sorted(one.rule for one in watched.alerts())
    await watched.ticks(watch, minutes=1.5)

    assert at_once == ["many"]
    assert {one.rule for one in watched.alerts()} == {"many", "stalled", "down", "old"}
