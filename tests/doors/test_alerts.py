"""alerts list, rules, check and silence; alerts in status, config check, tasks audit and over RPC."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.store import Store
from holdfast.testing import FakeClock
from tests.alerts.watched_campaign import WatchedCampaign
from tests.config.homes import write
from tests.doors.calls import Opens, Run

OWN = {
    "alerts": [
        {"name": "failures", "condition": "failed_count / total_count > 0.05", "severity": "critical"},
        {"name": "broken", "condition": "done_count / paused_count > 1"},
        {"name": "busy", "condition": "running_tasks > 5", "raise_after": "1h"},
    ]
}


async def _raise(store: Store, clock: FakeClock) -> None:
    watched = WatchedCampaign(store, clock)
    await watched.begin()
    await watched.fail(2)
    watch = watched.watch(
        {"failures": "failed_count / total_count > 0.05", "broken": "done_count / paused_count > 1"}
    )
    await watch.run_once()


@pytest.fixture
def raised(ledger: Opens, clock: FakeClock, home: Path) -> Path:
    """A home with rules of its own and a campaign of which two alerts are raised."""
    write(home, "config/alerts.yaml", OWN)
    with ledger() as store:
        asyncio.run(_raise(store, clock))
    return home


def test_alerts_are_listed_with_their_figures_and_actions(run: Run, raised: Path) -> None:
    broken, failures = sorted(run("alerts", "list", "--json").json["alerts"], key=lambda one: one["rule"])

    assert (failures["rule"], failures["campaign"], failures["status"]) == ("failures", "rd-os", "raised")
    assert failures["figures"] == {"failed_count": 2, "total_count": 10}
    assert [(one["action"], one["status"]) for one in failures["actions"]] == [("notify_human", "done")]
    assert (broken["kind"], broken["words"]) == (
        "failure",
        "the rule cannot be evaluated: division by zero in done_count / paused_count > 1",
    )
    shown = run("alerts", "list")
    assert "failed_count / total_count > 0.05 (failed_count is 2, total_count is 10)" in shown.out
    assert "2 open alerts" in shown.err


def test_a_list_is_paged_and_filtered_by_rule(run: Run, raised: Path) -> None:
    first = run("alerts", "list", "--all", "--limit", "1", "--json").json
    second = run("alerts", "list", "--all", "--page", first["nextPageToken"], "--json").json
    one = run("alerts", "list", "--rule", "failures", "--json").json

    assert {page["alerts"][0]["rule"] for page in (first, second)} == {"failures", "broken"}
    assert second["nextPageToken"] is None
    assert [alert["rule"] for alert in one["alerts"]] == ["failures"]


def test_the_rules_are_those_of_the_settings(run: Run, raised: Path) -> None:
    rules = run("alerts", "rules", "--json").json["rules"]

    assert [(one["name"], one["scope"], one["raiseAfterS"], one["channels"]) for one in rules] == [
        ("failures", "campaign", 0.0, []),
        ("broken", "campaign", 0.0, []),
        ("busy", "ledger", 3600.0, []),
    ]
    assert "no channel leads to a person: set gateway.alert_urls" in run("alerts", "rules").err


def test_a_home_without_rules_shows_the_default_ones(run: Run, home: Path, ledger: Opens) -> None:
    with ledger():
        pass

    rules = run("alerts", "rules", "--json").json["rules"]

    assert [(one["name"], one["actions"]) for one in rules] == [
        ("high_failure_rate", ["notify_human"]),
        ("stalled_progress", ["notify_human"]),
        ("agent_down", ["notify_human", "restart_agent"]),
        ("checkpoint_age", ["force_checkpoint"]),
    ]


def test_a_check_shows_every_figure_and_changes_nothing(run: Run, raised: Path) -> None:
    before = run("alerts", "list", "--all", "--json").json
    checked = run("alerts", "check", "--json").json

    assert [(one["rule"], one["campaign"], one["isTrue"]) for one in checked["rules"]] == [
        ("failures", "rd-os", True),
        ("broken", "rd-os", None),
        ("busy", None, True),
    ]
    ledger, campaign = checked["subjects"]
    assert (ledger["campaign"], ledger["figures"]["running_tasks"]) == (None, 8)
    assert campaign["figures"]["failed_percent"] == 100.0
    assert campaign["figures"]["percent"] == 0.0
    assert run("alerts", "list", "--all", "--json").json == before
    shown = run("alerts", "check")
    assert "division by zero in done_count / paused_count > 1" in shown.out
    assert "3 rules evaluated, 2 true" in shown.err


def test_one_rule_is_checked_and_an_unknown_one_is_not_found(run: Run, raised: Path) -> None:
    assert len(run("alerts", "check", "busy", "--json").json["rules"]) == 1
    missing = run("alerts", "check", "nope")

    assert missing.status == 4
    assert "no alert rule 'nope'; run `holdfast alerts rules`" in missing.err


def test_a_rule_is_silenced_and_the_silence_ended(run: Run, raised: Path) -> None:
    silenced = run("alerts", "silence", "failures", "2h", "--reason", "we know", "--json").json
    rules = run("alerts", "rules", "--json").json["rules"]
    ended = run("alerts", "silence", "failures", "0")
    after = run("alerts", "rules", "--json").json["rules"]

    assert (silenced["rule"], silenced["reason"]) == ("failures", "we know")
    assert rules[0]["silencedUntil"] == silenced["silencedUntil"]
    assert "failures is not silenced any more" in ended.out
    assert after[0]["silencedUntil"] is None
    (entry,) = run("audit", "log", "--action", "alerts.silence", "--limit", "1", "--json").json["entries"]
    assert entry["outcome"] == "done"


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (("nope", "2h"), 4, "no alert rule 'nope'; run `holdfast alerts rules`"),
        (("failures", "2 hours"), 2, "'2 hours' is not a duration"),
        (("failures", "400d"), 2, "at most 365 days"),
        (("failures", "-1"), 2, ""),
    ],
)
def test_a_wrong_silence_is_refused(
    run: Run, raised: Path, arguments: tuple[str, ...], status: int, says: str
) -> None:
    refused = run("alerts", "silence", *arguments)

    assert (refused.status, refused.out) == (status, "")
    assert says in refused.err


def test_the_status_counts_raised_alerts(run: Run, raised: Path) -> None:
    assert run("status", "--json").json["raisedAlerts"] == 2
    assert "2 alerts: `holdfast alerts list`" in run("status").out


def test_the_audit_finds_a_rule_that_cannot_be_evaluated(run: Run, raised: Path) -> None:
    findings = run("tasks", "audit", "--json").json["findings"]
    (one,) = [one for one in findings if one["code"] == "alert_rule_failed"]

    assert one["severity"] == "warning"
    assert "the rule broken cannot be evaluated for rd-os: division by zero" in one["message"]


def test_a_check_of_the_settings_warns_of_rules_that_lead_to_no_person(run: Run, home: Path) -> None:
    default = run("config", "check", "--json").json["checks"]
    write(home, "config/alerts.yaml", OWN)
    own = run("config", "check", "--json").json["checks"]
    write(home, "holdfast.toml", {"gateway": {"alert_urls": ["json://127.0.0.1:9/x"]}})
    led = run("config", "check", "--json").json["checks"]

    found = [next(one for one in checks if one["name"] == "alerts") for checks in (default, own, led)]
    assert [one["verdict"] for one in found] == ["ok", "warn", "ok"]
    assert found[1]["remedy"] == "set gateway.alert_urls, or declare a channel of kind apprise"
    assert found[2]["message"] == "3 rules; notices go to gateway.alert_urls"


def test_wrong_rules_are_told_by_doctor_and_config_check(run: Run, home: Path) -> None:
    write(home, "config/alerts.yaml", {"alerts": [{"name": "bad", "condition": "1 / 0 > percent"}]})

    checked = run("config", "check")
    doctor = run("doctor", "--json").json

    assert checked.status == 2
    assert "alerts.bad.condition in " in checked.err
    assert "it divides by 0, which is always zero" in checked.err
    assert any(one["name"] == "settings" and one["verdict"] == "fail" for one in doctor["checks"])


def test_a_campaign_gets_its_limits_from_the_policies(run: Run, home: Path, ledger: Opens) -> None:
    with ledger():
        pass
    write(home, "config/policies.yaml", {"concurrency": {"campaign": 7, "host": 3}})
    create = ("campaign", "create", "rd-os", "--phases", "analysis", "--task", "analyse", "--json")

    made = run(*create).json
    write(home, "config/policies.yaml", {"concurrency": {"campaign": 9}})
    again = run(*create).json
    shown = run("campaign", "show", "rd-os", "--json").json

    assert (made["isNew"], again["isNew"]) == (True, False)
    assert (shown["concurrency"], shown["hostConcurrency"]) == (7, 3)


def test_a_check_without_a_campaign_says_what_the_default_rules_are_about(run: Run, ledger: Opens) -> None:
    with ledger():
        pass

    assert "the default rules are about campaigns, and no campaign runs" in run("alerts", "check").err
