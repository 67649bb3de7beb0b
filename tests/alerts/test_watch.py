"""Alerts are raised once, cleared when they are over, silenced and told, on both databases."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.alerts.figures import Figures, campaign_figures
from holdfast.config.alerts import AlertSettings
from holdfast.core.campaign import Campaign
from holdfast.core.errors import RowDamaged
from holdfast.core.transitions import AlertStatus, CampaignStatus
from holdfast.engine.campaigns.starting import ending_campaign
from holdfast.store import Tx
from tests.alerts.watched_campaign import PHONE, WatchedCampaign

FAILURES = "failed_count / total_count > 0.05"


async def test_a_rule_that_is_true_raises_one_alert_and_one_notice(watched: WatchedCampaign) -> None:
    await watched.begin()
    watch = watched.watch(high_failure_rate=FAILURES)

    assert (await watch.run_once()).raised == ()
    await watched.fail(2)
    for _ in range(5):
        await watch.run_once()

    (alert,) = watched.alerts()
    assert (alert.rule, alert.subject, alert.subject_name) == (
        "high_failure_rate",
        watched.campaign.id,
        "rd-os",
    )
    assert alert.figures == {"failed_count": 2, "total_count": 10}
    (notice,) = watched.notices()
    assert notice.origin is not None
    assert notice.origin.channel == PHONE
    assert notice.letter.text.splitlines()[:2] == [
        "[warning] high_failure_rate of rd-os",
        "failed_count / total_count > 0.05 (failed_count is 2, total_count is 10)",
    ]
    assert watched.counts() == {"raised": 1}


async def test_an_alert_is_cleared_after_its_condition_was_over_for_long_enough(
    watched: WatchedCampaign,
) -> None:
    await watched.begin()
    watch = watched.watch(few=AlertSettings(condition="running_count < 9", clear_after="2m"))
    await watched.fail(2)
    await watch.run_once()
    await watched.campaigns.retry("rd-os")
    await watched.fill()

    early = await watched.ticks(watch, minutes=1.75)
    late = await watched.ticks(watch, minutes=0.75)

    assert [one.cleared for one in early if one.cleared] == []
    assert sum(len(one.cleared) for one in late) == 1
    assert [one.status for one in watched.alerts()] == [AlertStatus.CLEARED]
    assert watched.texts()[-1].startswith("[over] few of rd-os")


async def test_a_condition_that_comes_and_goes_is_one_alert_and_one_notice(watched: WatchedCampaign) -> None:
    await watched.begin()
    watch = watched.watch(few=AlertSettings(condition="running_count < 10", clear_after="5m"))
    for _ in range(6):
        await watched.fail(1)
        await watched.ticks(watch, minutes=1)
        await watched.campaigns.retry("rd-os")
        await watched.fill()
        await watched.ticks(watch, minutes=1)

    assert len(watched.alerts()) == len(watched.notices()) == 1


async def test_a_condition_must_be_true_for_its_time_before_it_is_raised(watched: WatchedCampaign) -> None:
    await watched.begin()
    watch = watched.watch(few=AlertSettings(condition="running_count < 10", raise_after="3m"))
    await watched.fail(1)

    early = await watched.ticks(watch, minutes=3)
    late = await watched.ticks(watch, minutes=1)

    assert [one.raised for one in early if one.raised] == []
    assert sum(len(one.raised) for one in late) == 1


async def test_the_time_before_a_raise_begins_anew_after_each_interruption(watched: WatchedCampaign) -> None:
    await watched.begin()
    watch = watched.watch(few=AlertSettings(condition="running_count < 10", raise_after="3m"))
    for _ in range(3):
        await watched.fail(1)
        await watched.ticks(watch, minutes=2)
        await watched.campaigns.retry("rd-os")
        await watched.fill()
        await watched.ticks(watch, minutes=1)

    assert watched.alerts() == []


async def test_the_time_before_a_raise_goes_on_across_a_restart_of_the_gateway(
    watched: WatchedCampaign,
) -> None:
    await watched.begin()
    rule = AlertSettings(condition="running_count < 10", raise_after="3m")
    await watched.fail(1)
    await watched.ticks(watched.watch(few=rule), minutes=2)

    await watched.ticks(watched.watch(few=rule), minutes=1.25)

    assert len(watched.alerts()) == 1


async def test_an_alert_with_its_own_end_stays_until_that(watched: WatchedCampaign) -> None:
    await watched.begin()
    rule = AlertSettings(condition="running_count < 5", clear_when="running_count >= 9", clear_after=0)
    watch = watched.watch(few=rule)
    await watched.fail(6)
    await watch.run_once()
    await watched.campaigns.retry("rd-os", items=["repo-001", "repo-002"])
    await watched.fill()
    between = await watched.ticks(watch, minutes=5)
    await watched.campaigns.retry("rd-os")
    await watched.fill()
    after = await watched.ticks(watch, minutes=0.25)

    assert [one.cleared for one in between if one.cleared] == []
    assert len(after[0].cleared) == 1


async def test_a_rule_that_fails_is_told_once_and_the_rule_beside_it_works(watched: WatchedCampaign) -> None:
    await watched.begin()
    watch = watched.watch(
        broken="done_count / failed_count > 3", fine="running_count > 0", other="percent / done_count > 0"
    )

    for _ in range(4):
        await watch.run_once()

    found = {(one.rule, one.kind.value): one for one in watched.alerts()}
    assert sorted(found) == [("broken", "failure"), ("fine", "condition"), ("other", "failure")]
    assert found["broken", "failure"].problem == "division by zero in done_count / failed_count > 3"
    assert len(watched.notices()) == 3


async def test_a_failing_rule_is_over_when_it_can_be_evaluated_again(watched: WatchedCampaign) -> None:
    await watched.begin()
    watch = watched.watch(broken="done_count / failed_count > 3")
    await watch.run_once()
    await watched.fail(1)
    await watched.ticks(watch, minutes=6)

    assert [one.status for one in watched.alerts()] == [AlertStatus.CLEARED]


async def test_alerts_of_a_campaign_that_ended_are_cleared(watched: WatchedCampaign) -> None:
    await watched.begin(2)
    watch = watched.watch(some="failed_count > 0")
    await watched.fail(1)
    await watch.run_once()
    await watched.fail(1)
    await watched.store.write(ending_campaign(watched.campaign.id, now=watched.clock.now()))
    (cleared,) = (await watch.run_once()).cleared

    assert cleared.why_cleared == "the campaign is failed"
    assert watched.store.read_now(lambda tx: tx.alerts.verdicts()) == {}


async def test_alerts_of_a_paused_campaign_stay_and_none_is_raised(watched: WatchedCampaign) -> None:
    await watched.begin()
    watch = watched.watch(some="failed_count > 0", more="failed_count > 1")
    await watched.fail(1)
    await watch.run_once()
    await watched.campaigns.pause("rd-os")
    await watched.fail(1)
    await watched.ticks(watch, minutes=30, every_s=60)

    assert [(one.rule, one.status.value) for one in watched.alerts()] == [("some", "raised")]


async def test_two_gateways_raise_one_alert_and_do_each_action_once(watched: WatchedCampaign) -> None:
    await watched.begin()
    rule = AlertSettings(condition="failed_count > 0", action="notify_human + pause_campaign", clear_after=0)
    one, other = watched.watch(place="one", some=rule), watched.watch(place="other", some=rule)
    await watched.fail(1)

    for _ in range(3):
        await asyncio.gather(one.run_once(), other.run_once())

    (alert,) = watched.alerts()
    assert len(watched.notices()) == 1
    assert {name: (one.status.value, one.attempts) for name, one in watched.actions(alert).items()} == {
        "notify_human": ("done", 1),
        "pause_campaign": ("done", 1),
    }
    assert (await watched.campaigns.get("rd-os")).status is CampaignStatus.PAUSED
    assert watched.counts() == {"raised": 1}


async def test_a_gateway_that_was_frozen_after_its_look_raises_nothing_that_is_over(
    watched: WatchedCampaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    await watched.begin()
    rule = AlertSettings(condition="failed_count > 0", action="pause_campaign", clear_after=0)
    frozen, other = watched.watch(place="one", some=rule), watched.watch(place="other", some=rule)
    look = frozen._look

    async def freeze_after_look(board: Any, now: Any) -> Any:
        found = await look(board, now)
        await other.run_once()
        await watched.campaigns.start("rd-os")
        await watched.campaigns.retry("rd-os")
        await watched.fill()
        await watched.ticks(other, minutes=1)
        return found

    monkeypatch.setattr(frozen, "_look", freeze_after_look)
    await watched.fail(1)

    assert (await frozen.run_once()).raised == ()

    assert [one.status for one in watched.alerts()] == [AlertStatus.CLEARED]
    assert (await watched.campaigns.get("rd-os")).status is CampaignStatus.RUNNING


async def test_a_silenced_rule_records_its_alert_and_does_nothing_until_the_silence_is_over(
    watched: WatchedCampaign,
) -> None:
    await watched.begin()
    watch = watched.watch(some=AlertSettings(condition="failed_count > 0", action="notify_human"))
    await watched.silence("some", minutes=120)
    await watched.fail(1)

    await watched.ticks(watch, minutes=119, every_s=60)
    (quiet,) = watched.alerts()
    silent = watched.texts()
    await watched.ticks(watch, minutes=2, every_s=60)

    assert quiet.status is AlertStatus.SILENCED
    assert silent == []
    assert [one.status for one in watched.alerts()] == [AlertStatus.RAISED]
    assert len(watched.texts()) == 1
    assert watched.counts() == {"raised": 1}


async def test_an_alert_that_was_told_is_not_told_again_after_a_silence(watched: WatchedCampaign) -> None:
    await watched.begin()
    watch = watched.watch(some="failed_count > 0")
    await watched.fail(1)
    await watch.run_once()
    await watched.silence("some", minutes=10)
    await watched.ticks(watch, minutes=5, every_s=60)
    (quiet,) = watched.alerts()
    await watched.ticks(watch, minutes=10, every_s=60)

    assert quiet.status is AlertStatus.SILENCED
    assert [one.status for one in watched.alerts()] == [AlertStatus.RAISED]
    assert len(watched.texts()) == 1


async def test_a_rule_is_only_about_the_campaigns_that_it_names(watched: WatchedCampaign) -> None:
    await watched.begin()
    watch = watched.watch(
        mine=AlertSettings(condition="running_count > 0", campaigns=["rd-*"]),
        theirs=AlertSettings(condition="running_count > 0", campaigns=["nightly-*"]),
    )
    await watch.run_once()

    assert [one.rule for one in watched.alerts()] == ["mine"]


async def test_a_rule_over_the_ledger_is_evaluated_once(watched: WatchedCampaign) -> None:
    await watched.begin()
    watch = watched.watch(busy="running_tasks >= 10 and running_campaigns == 1")
    await watch.run_once()

    (alert,) = watched.alerts()
    assert (alert.subject, alert.figures) == ("ledger", {"running_tasks": 10, "running_campaigns": 1})


async def test_an_alert_whose_rule_is_removed_is_cleared(watched: WatchedCampaign) -> None:
    await watched.begin()
    await watched.watch(some="running_count > 0").run_once()

    (cleared,) = (await watched.watch().run_once()).cleared

    assert cleared.why_cleared == "the rule was changed or removed"


async def test_the_alert_of_another_gateways_rule_is_left_alone_while_that_gateway_lives(
    watched: WatchedCampaign,
) -> None:
    await watched.begin()
    theirs, mine = watched.watch(place="there", some="running_count > 0"), watched.watch(place="here")
    await theirs.run_once()

    for _ in range(30):
        await watched.ticks(mine, minutes=1, every_s=60)
        await theirs.run_once()
    alive = [one.status for one in watched.alerts()]
    await watched.ticks(mine, minutes=20, every_s=60)

    assert alive == [AlertStatus.RAISED]
    assert [one.status for one in watched.alerts()] == [AlertStatus.CLEARED]


async def test_a_gateway_leaves_a_verdict_alone_that_another_one_watches_with_another_rule(
    watched: WatchedCampaign,
) -> None:
    await watched.begin()
    theirs = watched.watch(place="there", some=AlertSettings(condition="running_count > 0", clear_after=0))
    mine = watched.watch(place="here", some=AlertSettings(condition="running_count > 100", clear_after=0))
    await theirs.run_once()

    for _ in range(5):
        await watched.ticks(mine, minutes=1)
        await watched.ticks(theirs, minutes=1)

    assert [one.status for one in watched.alerts()] == [AlertStatus.RAISED]


async def test_a_changed_rule_of_the_same_gateway_takes_its_alert_over(watched: WatchedCampaign) -> None:
    await watched.begin()
    await watched.watch(some="running_count > 0").run_once()
    changed = watched.watch(some=AlertSettings(condition="running_count > 100", clear_after="1m"))

    await watched.ticks(changed, minutes=2)

    assert [one.status for one in watched.alerts()] == [AlertStatus.CLEARED]


async def test_a_campaign_whose_figures_cannot_be_read_does_not_stop_the_rules_of_the_others(
    watched: WatchedCampaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    await watched.begin(name="other")
    await watched.begin(name="broken")

    def read(tx: Tx, campaign: Campaign, **times: Any) -> Figures:
        if campaign.name == "broken":
            raise RowDamaged("campaign", campaign.id)
        return campaign_figures(tx, campaign, **times)

    monkeypatch.setattr("holdfast.alerts.watch.campaign_figures", read)
    watch = watched.watch(some="running_count > 0", busy="running_tasks > 0")

    await watch.run_once()

    assert sorted((one.rule, one.subject_name) for one in watched.alerts()) == [
        ("busy", "ledger"),
        ("some", "other"),
    ]
