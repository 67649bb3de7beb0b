"""Conditions: what is allowed, and that everything else is refused when the file is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.config.alerts import AlertSettings
from holdfast.config.conditions import ConditionFailed, evaluate, tried_condition
from holdfast.config.files import load
from holdfast.core.alert_condition import FIGURES, FigureScope
from holdfast.core.errors import BadInput, SettingsError
from tests.config.homes import write

# A figure for each place, so that a condition is either true or false of them.
SAMPLE = {figure.name: float(place) for place, figure in enumerate(FIGURES, 1)}

HOSTILE = [
    # Ways out of the expression.
    "__import__('os').system('id')",
    "__import__",
    "().__class__.__bases__[0].__subclasses__()",
    "percent.__class__",
    "percent.real > 1",
    "percent.as_integer_ratio() > (1, 2)",
    "(lambda: 1)() > percent",
    "[x for x in (1,)] > percent",
    "{percent: 1} > 1",
    "{percent} > 1",
    "[percent] > 1",
    "(percent, 1) > 1",
    "percent[0] > 1",
    "percent[0:1] > 1",
    "f'{percent}' > 1",
    "'a' * percent > 1",
    '"a" < percent',
    "b'a' < percent",
    "`id` > percent",
    "$(id) > percent",
    "percent > 1; import os",
    "import os",
    "percent := 3",
    "(percent := 3) > 1",
    "percent = 3",
    "percent > 1 if percent else 2",
    "exec(percent) > 1",
    "eval(percent) > 1",
    "open(percent) > 1",
    "getattr(percent) > 1",
    "sum(percent) > 1",
    "pow(percent, 2) > 1",
    "int(percent) > 1",
    "str(percent) > 1",
    "rand() > percent",
    "randint(percent) > 1",
    "abs.__self__ > percent",
    "abs > percent",
    "(abs)(percent).real > 1",
    "max(percent, key=abs) > 1",
    "max(*percent, 1) > 1",
    "round(percent, 2) > 1",
    "min() > percent",
    "percent is 1",
    "percent is not 1",
    "percent in (1, 2)",
    "percent not in (1, 2)",
    "await percent > 1",
    "yield percent",
    "not percent",
    "percent and failed_count",
    "percent or 1 > 2",
    "(percent > 1) + 1 > 0",
    "(percent > 1) > 0",
    "-(percent > 1) > 0",
    "abs(percent > 1) > 0",
    "... > percent",
    "None > percent",
    "True",
    "percent > True",
    "percent > 1j",
    # Bombs.
    "9 ** 9 ** 9 > percent",
    "percent ** 2 > 1",
    "1 << percent > 1",
    "percent >> 1 > 1",
    "percent | 1 > 1",
    "percent & 1 > 1",
    "percent ^ 1 > 1",
    "~percent > 1",
    "percent @ percent > 1",
    "percent > 1e999",
    "percent > 99999999999999999999999999",
    f"percent > {'9' * 400}",
    "percent > 0" + " + 0" * 120,
    "round(" + " * ".join([f"({' * '.join(['1e12'] * 10)})"] * 4) + ") > percent",
    "(" * 100 + "percent" + ")" * 100 + " > 1" + " and (" * 60,
    "-" * 450 + "percent > 1",
    "not " * 50 + "percent > 1",
    "(" * 210 + "percent > 1" + ")" * 210,
    "percent > 1 " + " " * 600 + "x" * 600,
    # Nothing, and what is never anything else.
    "",
    "   ",
    "1",
    "1 > 2",
    "percent",
    "percent +",
    "> 1",
    "percent > ",
    "percent > 1)",
    "percent percent > 1",
    "percent\x00 > 1",
    "percent\u00a0> 1",
    "perce\u0274t > 1",
    "\u202epercent > 1",
    "nope > 1",
    "Percent > 1",
    "percent > 1 # always",
    # Divisions by what is always zero.
    "1 / 0 > percent",
    "percent / 0 > 1",
    "percent // 0 > 1",
    "percent % 0 > 1",
    "percent > 1 or 1 / 0 > 1",
    "percent > 1e9 and percent / (1 - 1) > 1",
    "percent / (failed_count - failed_count) > 1",
    "percent / (failed_count * 0) > 1",
    "1 / abs(0) > percent",
    "percent % min(0, 0) > 1",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_condition_is_refused_when_it_is_read(text: str) -> None:
    with pytest.raises(BadInput) as refused:
        tried_condition("condition", text)

    assert str(refused.value).startswith("condition: ")
    assert len(str(refused.value)) < 800


@pytest.mark.parametrize("text", ["1 / 0 > percent", "nope > 1", "percent ** 9 > 1", "percent.real > 1"])
def test_the_error_names_the_rule_the_file_and_the_fix(tmp_path: Path, text: str) -> None:
    write(tmp_path, "config/alerts.yaml", {"alerts": [{"name": "my_rule", "condition": text}]})

    with pytest.raises(SettingsError) as refused:
        load(tmp_path, {})

    assert str(refused.value).startswith(f"alerts.my_rule.condition in {tmp_path}/config/alerts.yaml is ")


def test_an_unknown_figure_is_named_with_the_nearest_one() -> None:
    with pytest.raises(BadInput, match="there is no figure faild_count: did you mean failed_count"):
        tried_condition("condition", "faild_count > 1")


@pytest.mark.parametrize(
    ("text", "is_true"),
    [
        ("failed_count / total_count > 0.05", True),
        ("total_count == 1", True),
        ("total_count != 1", False),
        ("0 < total_count <= 1", True),
        ("0 < total_count < 1", False),
        ("not (total_count > 1 or done_count < 2)", True),
        ("round(percent / 3) == 2 and abs(-done_count) == 2", True),
        ("min(done_count, failed_count, 9) == 2 and max(1, done_count) == 2", True),
        ("done_count % 2 == 0 and failed_count // 2 == 1", True),
        ("- done_count < 0 and + done_count > 0", True),
        ("percent > 0x10", False),
        ("percent > 1e3", False),
        ("percent\n >\n 1", True),
    ],
)
def test_a_condition_says_what_python_says(text: str, is_true: bool) -> None:
    condition = tried_condition("condition", text)

    assert evaluate(condition, SAMPLE) is is_true


def test_a_division_by_a_figure_that_is_zero_now_fails_only_then() -> None:
    condition = tried_condition("condition", "failed_count / total_count > 0.05")

    with pytest.raises(ConditionFailed, match="division by zero in failed_count"):
        evaluate(condition, SAMPLE | {"total_count": 0})


def test_a_condition_over_figures_of_the_ledger_alone_is_about_the_ledger() -> None:
    assert tried_condition("condition", "queued_tasks > 3").scope is FigureScope.LEDGER
    assert tried_condition("condition", "queued_tasks > percent").scope is FigureScope.CAMPAIGN


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"action": "notify_humn"}, "action: there is no action 'notify_humn': did you mean notify_human?"),
        ({"action": "notify_human + "}, "there is no action ''"),
        ({"action": "notify_human + notify_human"}, "notify_human is given twice"),
        ({"action": "notify_cleared"}, "there is no action 'notify_cleared'"),
        ({"action": "restart_agent"}, "the condition must name agent_heartbeat_age_minutes"),
        (
            {"action": "pause_campaign", "condition": "queued_tasks > 1"},
            "pause_campaign acts on a campaign, and the condition names no figure of one",
        ),
        ({"raise_after": "5 minutes"}, "raise_after: '5 minutes' is not a duration"),
        ({"clear_after": -1}, "clear_after: a duration cannot be negative"),
        ({"clear_when": "1 / 0 > percent"}, "clear_when: it divides by 0"),
        ({"clear_when": "queued_tasks > 1"}, "clear_when: it must be about the same"),
        ({"campaigns": ["a b"]}, "campaigns: write names of campaigns"),
    ],
)
def test_a_wrong_rule_is_refused_with_its_key_and_the_fix(changes: dict[str, object], says: str) -> None:
    rule = AlertSettings(**{"condition": "percent > 1"} | changes)  # type: ignore[arg-type]

    with pytest.raises(BadInput) as refused:
        rule.tried_rule("my_rule")

    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"alerts": [{"condition": "percent > 1"}]}, "rule 1: write a table with a name"),
        (
            {"alerts": [{"name": "a", "condition": "percent > 1"}] * 2},
            "rule 2: two rules have the name 'a'; rename one",
        ),
        ({"alerts": [{"name": "a b", "condition": "percent > 1"}]}, "use 1 to 64 letters"),
        ({"alerts": [{"name": "a"}]}, "alerts.a.condition is missing"),
        ({"alerts": [{"name": "a", "conditon": "x"}]}, "did you mean alerts.a.condition?"),
        ({"alerts": [{"name": "a", "condition": 3}]}, "a string in quotes is needed"),
        ({"alerts": {"a": {"condition": "percent > 1", "severity": "bad"}}}, "alerts.a.severity"),
        ({"alerts": {"a": {"condition": "percent > 1", "for": "1m", "raise_after": 1}}}, "another word"),
        ({"alerts": [{"name": "a", "condition": "percent > 1", "channels": ["x"]}]}, "no channel 'x'"),
        ({"alerts": "no"}, "write a table with a name for each entry"),
        ({"alerts": ["no"]}, "rule 1: write a table with a name"),
    ],
)
def test_a_wrong_file_of_alerts_is_refused(tmp_path: Path, content: dict[str, object], says: str) -> None:
    write(tmp_path, "config/alerts.yaml", content)

    with pytest.raises(SettingsError) as refused:
        load(tmp_path, {})

    assert says in str(refused.value)


@pytest.mark.parametrize("text", ["", "# alerts:\n", "\n\n"], ids=["empty", "comments", "lines"])
def test_an_empty_file_of_alerts_switches_no_rule_off(tmp_path: Path, text: str) -> None:
    write(tmp_path, "config/alerts.yaml", text)

    with pytest.raises(SettingsError, match=r"alerts: \[\]"):
        load(tmp_path, {})


def test_an_empty_list_switches_the_default_rules_off(tmp_path: Path) -> None:
    write(tmp_path, "config/alerts.yaml", "alerts: []\n")

    assert load(tmp_path, {}).config.alert_rules == ()


def test_rules_may_be_a_list_of_tables_in_the_main_document(tmp_path: Path) -> None:
    text = '[[alerts]]\nname = "slow"\ncondition = "rate_per_hour < 3"\nfor = "10m"\n'
    write(tmp_path, "holdfast.toml", text)

    (rule,) = load(tmp_path, {}).config.alert_rules

    assert (rule.name, rule.raise_after.total_seconds()) == ("slow", 600)


def test_a_rule_in_two_files_is_refused(tmp_path: Path) -> None:
    rule = {"alerts": {"slow": {"condition": "rate_per_hour < 3"}}}
    write(tmp_path, "holdfast.toml", rule)
    write(tmp_path, "config/alerts.yaml", rule)

    with pytest.raises(SettingsError, match=r"alerts\.slow is in two files"):
        load(tmp_path, {})


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("quiet_hour: {}", "policies.quiet_hour in HOME/config/policies.yaml, line 1, is not a setting: did"),
        (
            "retry:\n  attempts: 3\n  atempts: 3\n",
            "policies.retry.atempts in HOME/config/policies.yaml, line 3, is not a setting: did you mean pol",
        ),
        ("retry: {attempts: 0}", "policies.retry.attempts"),
        ("retention: {pyton: 3}", "policies.retention in HOME/config/policies.yaml is {'pyton': 3.0}: name"),
        (
            "retention: {python: 0}",
            "policies.retention in HOME/config/policies.yaml is {'python': 0}: a number of at",
        ),
        ("quiet_hours: {start: '24:00'}", "'24:00' is no time of day"),
        ("quiet_hours: {start: '07:00'}", "would never end"),
        ("quiet_hours: {start: '22:00', tz: Mars}", "name a time zone of the IANA list"),
        ("quiet_hours: {let_through: [bad]}", "policies.quiet_hours.let_through"),
        ("approval: {effects: [opaqe]}", "policies.approval.effects in HOME/config/policies.yaml is"),
        ("approval: {effects: [read]}", "policies.approval.effects in HOME/config/policies.yaml is"),
        ("approval: {effect: [opaque]}", "did you mean policies.approval.effects"),
        ("concurrency: {gateway: 0}", "policies.concurrency.gateway"),
    ],
)
def test_a_wrong_policy_is_refused_with_its_place_and_the_fix(
    tmp_path: Path, content: str, says: str
) -> None:
    write(tmp_path, "config/policies.yaml", content)

    with pytest.raises(SettingsError) as refused:
        load(tmp_path, {})

    assert says in str(refused.value).replace(str(tmp_path), "HOME")


def test_policies_in_two_files_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "holdfast.toml", "[policies.retry]\nattempts = 3\n")
    write(tmp_path, "config/policies.yaml", "retry: {attempts: 3}")

    with pytest.raises(SettingsError, match="policies is in two files"):
        load(tmp_path, {})


def test_what_a_setting_says_itself_goes_before_the_policy(tmp_path: Path) -> None:
    write(tmp_path, "holdfast.toml", "[gateway]\ncapacity = 3\n[upkeep.keep_days]\npython = 2.0\n")
    write(tmp_path, "config/policies.yaml", "concurrency: {gateway: 9}\nretention: {python: 5, cron: 6}\n")

    config = load(tmp_path, {}).config

    assert config.gateway.capacity == 3
    assert config.upkeep.keep_days == {"python": 2.0, "cron": 6.0}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("release:\n  nodes:\n    a:\n      taks: x\n", "a"),
        ("release:\n  gaol: x\n  nodes: {}\n", "workflows.release.gaol"),
    ],
)
def test_a_file_of_workflows_refuses_unknown_keys(tmp_path: Path, content: str, says: str) -> None:
    write(tmp_path, "config/workflows.yaml", content)

    with pytest.raises(SettingsError) as refused:
        load(tmp_path, {})

    assert says in str(refused.value)
