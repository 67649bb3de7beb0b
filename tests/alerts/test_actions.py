"""What is done about an alert: once, tried again within a bound, held back by quiet hours, and told."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, time
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

from holdfast.alerts.acts import ACTS, pause_campaign
from holdfast.config.alerts import AlertSettings
from holdfast.core.alert import AlertActionKind, AlertSeverity
from holdfast.core.events import EventKind
from holdfast.core.quiet_hours import QuietHours
from holdfast.core.transitions import AlertActionStatus, CampaignStatus, ItemStatus
from holdfast.engine.campaigns.issues import issues_of
from holdfast.progress.saver import CampaignSaver
from tests.alerts.watched_campaign import PHONE, WatchedCampaign, failing
from tests.backends import on_sqlite

PAUSE = AlertSettings(condition="failed_count > 0", action="notify_human + pause_campaign")
NIGHT = QuietHours(start=time(22), end=time(7), zone=UTC, let_through=frozenset({AlertSeverity.CRITICAL}))


async def test_a_campaign_is_paused_once_and_says_why(watched: WatchedCampaign) -> None:
    await watched.begin()
    watch = watched.watch(stop=PAUSE)
    await watched.fail(1)
    await watch.run_once()

    campaign = await watched.campaigns.get("rd-os")
    assert campaign.status is CampaignStatus.PAUSED
    assert campaign.reason == "alert stop: failed_count > 0 (failed_count is 1)"
    (alert,) = watched.alerts()
    done = watched.actions(alert)["pause_campaign"]
    assert done.outcome == "rd-os is paused; go on: holdfast campaign resume rd-os"


async def test_a_person_may_let_a_paused_campaign_go_on_while_its_alert_is_raised(
    watched: WatchedCampaign,
) -> None:
    await watched.begin()
    watch = watched.watch(stop=PAUSE)
    await watched.fail(1)
    await watch.run_once()
    await watched.campaigns.start("rd-os")
    await watched.ticks(watch, minutes=10, every_s=60)

    assert (await watched.campaigns.get("rd-os")).status is CampaignStatus.RUNNING
    assert len(watched.alerts()) == 1


async def test_a_forced_checkpoint_is_saved_by_the_service_that_saves_campaigns(
    watched: WatchedCampaign,
) -> None:
    await watched.begin(checkpoint_every_s=7 * 24 * 3600)
    saver = CampaignSaver(watched.store, watched.clock)
    await saver.run_once()
    watch = watched.watch(
        old=AlertSettings(condition="last_checkpoint_age_minutes > 30", action="force_checkpoint")
    )
    watched.clock.advance(minutes=29)
    assert (await watch.run_once()).raised == ()

    watched.clock.advance(minutes=2)
    await watch.run_once()
    (alert,) = watched.alerts()
    done = watched.actions(alert)["force_checkpoint"]
    saved = await saver.run_once()
    after = await watched.ticks(watch, minutes=6)

    assert done.outcome == "rd-os is saved now; look: holdfast checkpoints list --campaign rd-os"
    assert [one.name for one in saved] == ["alert-old"]
    assert sum(len(one.cleared) for one in after) == 1
    assert watched.notices() == []


DOWN = AlertSettings(
    condition="agent_heartbeat_age_minutes > 10", severity="critical", action="notify_human + restart_agent"
)


async def _beat(watched: WatchedCampaign, *but: str) -> None:
    """Every agent gives a sign of life, but these items'."""
    await watched.parts.claims.renew([one.claim for item, one in watched.runs.items() if item not in but])


async def test_only_the_agents_that_are_silent_are_restarted(watched: WatchedCampaign) -> None:
    await watched.begin(4)
    watch = watched.watch(agent_down=DOWN)
    for _ in range(6):
        watched.clock.advance(minutes=2)
        await _beat(watched, "repo-002")
    await watch.run_once()

    (alert,) = watched.alerts()
    done = watched.actions(alert)["restart_agent"]
    assert (done.status, done.outcome) == (AlertActionStatus.DONE, "restarted repo-002-analyzer")
    rows = watched.store.read_now(lambda tx: tx.item_phases.page(watched.campaign.id, 0))
    assert {one.place for one in rows if one.status is not ItemStatus.RUNNING} == {1}
    assert rows[1].status is ItemStatus.PENDING


async def test_an_agent_that_falls_silent_while_the_alert_is_raised_is_restarted_too(
    watched: WatchedCampaign,
) -> None:
    await watched.begin(4)
    watch = watched.watch(agent_down=DOWN)
    for _ in range(6):
        watched.clock.advance(minutes=2)
        await _beat(watched, "repo-002")
    await watch.run_once()
    assert _not_running(watched) == {1}
    # Before the alert is over, another one falls silent.
    for _ in range(6):
        watched.clock.advance(minutes=2)
        await _beat(watched, "repo-002", "repo-003")
        await watch.run_once()
    for _ in range(3):
        await watch.run_once()

    assert _not_running(watched) == {1, 2}
    assert len(watched.alerts()) == len(watched.notices()) == 1
    told = watched.store.read_now(lambda tx: tx.events.newest(limit=50))
    ended = [str(one.facts["outcome"]) for one in told if one.kind is EventKind.ALERT_ACTION_ENDED]
    assert [one for one in ended if one.startswith("restarted")] == [
        "restarted repo-002-analyzer",
        "restarted repo-003-analyzer",
    ]


def _not_running(watched: WatchedCampaign) -> set[int]:
    rows = watched.store.read_now(lambda tx: tx.item_phases.page(watched.campaign.id, 0))
    return {one.place for one in rows if one.status is not ItemStatus.RUNNING}


async def test_an_agent_that_ends_before_it_is_restarted_is_left_alone(watched: WatchedCampaign) -> None:
    await watched.begin(3)
    acts = dict(ACTS)
    restart = acts[AlertActionKind.RESTART_AGENT]
    acts[AlertActionKind.RESTART_AGENT] = failing(1)
    watch = watched.watch(acts=acts, agent_down=DOWN)
    watched.clock.advance(minutes=11)
    await _beat(watched, "repo-001")
    await watch.run_once()
    await watched.parts.ledger.finish(watched.runs.pop("repo-001").claim, {})
    acts[AlertActionKind.RESTART_AGENT] = restart
    await watched.ticks(watch, minutes=2)

    (alert,) = watched.alerts()
    done = watched.actions(alert)["restart_agent"]
    rows = watched.store.read_now(lambda tx: tx.item_phases.page(watched.campaign.id, 0))
    assert (done.status, done.outcome) == (AlertActionStatus.DONE, "no running agent is silent any more")
    assert rows[0].status is ItemStatus.DONE
    assert [one.attempt for one in rows] == [1, 1, 1]


async def test_two_gateways_restart_an_agent_once(watched: WatchedCampaign) -> None:
    await watched.begin(2)
    one, other = (watched.watch(place=place, agent_down=DOWN) for place in ("one", "other"))
    watched.clock.advance(minutes=11)
    await asyncio.gather(one.run_once(), other.run_once())
    await asyncio.gather(one.run_once(), other.run_once())

    (alert,) = watched.alerts()
    done = watched.actions(alert)["restart_agent"]
    assert (done.status, done.attempts) == (AlertActionStatus.DONE, 1)
    restarted = (done.outcome or "").removeprefix("restarted ").split(", ")
    assert sorted(restarted) == ["repo-001-analyzer", "repo-002-analyzer"]


async def test_an_action_that_fails_is_tried_again_and_works(watched: WatchedCampaign) -> None:
    await watched.begin()
    acts = dict(ACTS) | {AlertActionKind.PAUSE_CAMPAIGN: failing(2, lambda: "paused at last")}
    watch = watched.watch(acts=acts, stop=PAUSE)
    await watched.fail(1)
    await watch.run_once()
    (alert,) = watched.alerts()
    first = watched.actions(alert)["pause_campaign"]
    await watched.ticks(watch, minutes=4)

    last = watched.actions(alert)["pause_campaign"]
    assert (first.status, first.attempts, first.outcome) == (
        AlertActionStatus.PENDING,
        1,
        "it cannot be done now",
    )
    assert (last.status, last.attempts, last.outcome) == (AlertActionStatus.DONE, 3, "paused at last")
    assert len(watched.texts()) == 1


@on_sqlite
async def test_an_action_that_fails_for_good_is_given_up_and_told_once(watched: WatchedCampaign) -> None:
    await watched.begin()
    acts = dict(ACTS) | {AlertActionKind.PAUSE_CAMPAIGN: failing(100)}
    watch = watched.watch(acts=acts, stop=PAUSE)
    await watched.fail(1)
    await watched.ticks(watch, minutes=60, every_s=30)

    (alert,) = watched.alerts()
    given_up = watched.actions(alert)["pause_campaign"]
    assert (given_up.status, given_up.attempts) == (AlertActionStatus.FAILED, 6)
    raised, told = watched.texts()
    assert raised.startswith("[warning] stop of rd-os")
    assert "pause_campaign was given up: it cannot be done now (after 5 attempts)" in told


@on_sqlite
async def test_an_action_that_fails_does_not_keep_the_others_from_being_done(
    watched: WatchedCampaign,
) -> None:
    await watched.begin()
    acts = dict(ACTS) | {AlertActionKind.FORCE_CHECKPOINT: failing(100)}
    rule = AlertSettings(
        condition="failed_count > 0", action="force_checkpoint + pause_campaign + notify_human"
    )
    watch = watched.watch(acts=acts, stop=rule)
    await watched.fail(1)
    await watch.run_once()

    (alert,) = watched.alerts()
    assert {name: one.status.value for name, one in watched.actions(alert).items()} == {
        "force_checkpoint": "pending",
        "notify_human": "done",
        "pause_campaign": "done",
    }


async def test_a_failed_action_leaves_nothing_of_itself_behind(watched: WatchedCampaign) -> None:
    await watched.begin()

    def half(tx: Any, alert: Any, rule: Any, now: datetime) -> str:
        ACTS[AlertActionKind.PAUSE_CAMPAIGN](tx, alert, rule, now)
        raise ValueError("it broke after half of it")

    watch = watched.watch(acts=dict(ACTS) | {AlertActionKind.PAUSE_CAMPAIGN: half}, stop=PAUSE)
    await watched.fail(1)
    await watch.run_once()

    assert (await watched.campaigns.get("rd-os")).status is CampaignStatus.RUNNING


async def test_an_action_whose_alert_is_cleared_before_it_worked_is_skipped(watched: WatchedCampaign) -> None:
    await watched.begin()
    acts = dict(ACTS) | {AlertActionKind.PAUSE_CAMPAIGN: failing(1)}
    rule = AlertSettings(condition="running_count < 10", action="pause_campaign", clear_after=0)
    watch = watched.watch(acts=acts, stop=rule)
    await watched.fail(1)
    await watch.run_once()
    await watched.campaigns.retry("rd-os")
    await watched.fill()
    await watched.ticks(watch, minutes=2)

    (alert,) = watched.alerts()
    skipped = watched.actions(alert)["pause_campaign"]
    assert (skipped.status, skipped.outcome) == (AlertActionStatus.SKIPPED, "the alert was cleared before")


@on_sqlite
async def test_without_a_channel_the_outcome_says_what_to_set_and_the_notice_waits_for_one(
    watched: WatchedCampaign,
) -> None:
    await watched.begin()
    watch = watched.watch(channels=(), some="failed_count > 0")
    await watched.fail(1)
    await watch.run_once()

    (alert,) = watched.alerts()
    told = watched.actions(alert)["notify_human"]
    assert told.status is AlertActionStatus.PENDING
    assert "set gateway.alert_urls" in (told.outcome or "")
    assert watched.notices() == []

    watch.options = msgspec.structs.replace(watch.options, channels=(PHONE,))
    await watched.ticks(watch, minutes=20)
    assert len(watched.notices()) == 1


@on_sqlite
async def test_a_notice_without_a_channel_is_given_up_when_its_alert_is_over(
    watched: WatchedCampaign,
) -> None:
    await watched.begin()
    watch = watched.watch(channels=(), some=AlertSettings(condition="failed_count > 0", clear_after=0))
    await watched.fail(1)
    await watch.run_once()
    await watched.campaigns.retry("rd-os")
    await watched.fill()
    await watched.ticks(watch, minutes=20)

    (alert,) = watched.alerts()
    assert watched.actions(alert)["notify_human"].status is AlertActionStatus.FAILED


async def test_a_campaign_whose_condition_is_over_is_not_paused_by_a_late_attempt(
    watched: WatchedCampaign,
) -> None:
    await watched.begin()
    attempts = list[int]()

    def pause(tx: Any, alert: Any, rule: Any, now: Any) -> str:
        attempts.append(len(attempts))
        if len(attempts) == 1:
            raise ValueError("it cannot be done now")
        return pause_campaign(tx, alert, rule, now)

    rule = AlertSettings(condition="failed_count > 0", action="pause_campaign", clear_after="1h")
    watch = watched.watch(acts=ACTS | {AlertActionKind.PAUSE_CAMPAIGN: pause}, some=rule)
    await watched.fail(1)
    await watch.run_once()
    await watched.campaigns.retry("rd-os")
    await watched.fill()

    await watched.ticks(watch, minutes=3)

    (alert,) = watched.alerts()
    assert watched.actions(alert)["pause_campaign"].outcome == (
        "rd-os goes on: the condition is not true any more"
    )
    assert (await watched.campaigns.get("rd-os")).status is CampaignStatus.RUNNING


@on_sqlite
async def test_a_rule_with_channels_of_its_own_notifies_each_once(watched: WatchedCampaign) -> None:
    await watched.begin()
    watch = watched.watch(some=AlertSettings(condition="failed_count > 0", channels=["a", "b"]))
    await watched.fail(1)
    for _ in range(3):
        await watch.run_once()

    assert sorted(one.channel for one in watched.notices()) == ["a", "b"]


@on_sqlite
async def test_quiet_hours_hold_the_notice_back_and_say_so_later(watched: WatchedCampaign) -> None:
    await watched.begin()
    watched.clock.set(datetime(2026, 1, 5, 23, 30, tzinfo=UTC))
    watch = watched.watch(quiet_hours=NIGHT, some="failed_count > 0")
    await watched.fail(1)

    await watched.ticks(watch, minutes=7 * 60, every_s=300)  # until 6:30
    held, (alert,) = watched.texts(), watched.alerts()
    action = watched.actions(alert)["notify_human"]
    await watched.ticks(watch, minutes=35, every_s=60)

    assert held == []
    assert (action.status, action.attempts) == (AlertActionStatus.PENDING, 0)
    assert action.outcome == "held back by quiet hours until 2026-01-06 07:00 UTC"
    (text,) = watched.texts()
    assert "since 2026-01-05 23:35 UTC" in text
    assert "this notice was held back by quiet hours" in text


@on_sqlite
async def test_an_alert_that_came_and_went_in_quiet_hours_is_told_in_one_notice(
    watched: WatchedCampaign,
) -> None:
    await watched.begin()
    watched.clock.set(datetime(2026, 1, 5, 23, 30, tzinfo=UTC))
    rule = AlertSettings(condition="running_count < 10", clear_after=0)
    watch = watched.watch(quiet_hours=NIGHT, some=rule)
    await watched.fail(1)
    await watch.run_once()
    await watched.campaigns.retry("rd-os")
    await watched.fill()

    await watched.ticks(watch, minutes=8 * 60, every_s=300)

    (text,) = watched.texts()
    assert "over since 2026-01-05 23:35 UTC" in text


@on_sqlite
async def test_a_severity_that_quiet_hours_let_through_is_told_at_once(watched: WatchedCampaign) -> None:
    await watched.begin()
    watched.clock.set(datetime(2026, 1, 5, 23, 30, tzinfo=UTC))
    watch = watched.watch(
        quiet_hours=NIGHT, some=AlertSettings(condition="failed_count > 0", severity="critical")
    )
    await watched.fail(1)
    await watch.run_once()

    assert len(watched.texts()) == 1


@on_sqlite
async def test_quiet_hours_hold_no_action_back(watched: WatchedCampaign) -> None:
    await watched.begin()
    watched.clock.set(datetime(2026, 1, 5, 23, 30, tzinfo=UTC))
    watch = watched.watch(quiet_hours=NIGHT, stop=PAUSE)
    await watched.fail(1)
    await watch.run_once()

    assert (await watched.campaigns.get("rd-os")).status is CampaignStatus.PAUSED


async def test_the_issues_of_a_campaign_are_its_raised_alerts_the_most_severe_first(
    watched: WatchedCampaign,
) -> None:
    await watched.begin()
    rules: dict[str, AlertSettings | str] = {
        f"rule_{number}": AlertSettings(
            condition=f"running_count > {number}", severity="critical" if number == 4 else "warning"
        )
        for number in range(7)
    }
    watch = watched.watch(rules)
    await watched.silence("rule_0", minutes=60)
    await watch.run_once()

    issues = watched.store.read_now(lambda tx: issues_of(tx, watched.campaign.id))

    assert len(issues) == 5
    assert issues[0] == "critical: rule_4 (running_count 10)"
    assert not any("rule_0" in one for one in issues)
    assert max(map(len, issues)) <= 100


@pytest.mark.parametrize(
    ("moment", "is_quiet"),
    [
        ((2026, 1, 5, 21, 59), False),
        ((2026, 1, 5, 22, 0), True),
        ((2026, 1, 6, 0, 0), True),
        ((2026, 1, 6, 6, 59), True),
        ((2026, 1, 6, 7, 0), False),
    ],
)
def test_quiet_hours_span_midnight(moment: tuple[int, ...], is_quiet: bool) -> None:
    assert NIGHT.is_quiet(datetime(*moment, tzinfo=UTC)) is is_quiet  # type: ignore[arg-type,misc]


def _at(*month_day_hour_minute: int) -> datetime:
    month, day, hour, minute = month_day_hour_minute
    return datetime(2026, month, day, hour, minute, tzinfo=UTC)


@pytest.mark.parametrize(
    ("start", "end", "now", "ends"),
    [
        # Berlin's clock goes from 2:00 to 3:00 on 29 March 2026: the night is an hour shorter.
        (time(22), time(7), _at(3, 28, 21, 30), _at(3, 29, 5, 0)),
        # An end that the clock skips is over when the clock is set.
        (time(22), time(2, 30), _at(3, 28, 21, 30), _at(3, 29, 1, 0)),
        # From 3:00 back to 2:00 on 25 October 2026: the hour is quiet twice.
        (time(22), time(7), _at(10, 24, 20, 30), _at(10, 25, 6, 0)),
        (time(22), time(2, 30), _at(10, 24, 20, 30), _at(10, 25, 0, 30)),
        # By day.
        (time(12), time(13), _at(6, 1, 10, 20), _at(6, 1, 11, 0)),
    ],
)
def test_quiet_hours_follow_the_clock_on_the_wall(
    start: time, end: time, now: datetime, ends: datetime
) -> None:
    hours = QuietHours(start=start, end=end, zone=ZoneInfo("Europe/Berlin"), let_through=frozenset())

    assert hours.is_quiet(now)
    assert hours.ends_at(now) == ends
    assert not hours.is_quiet(ends)
