"""The guide to alerts says what the code does: its figures, its default rules, its policies."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast.config.alerts import AlertSettings, default_alerts
from holdfast.config.files import load
from holdfast.core.alert import RULE_ACTIONS
from holdfast.core.alert_condition import FIGURES
from holdfast.core.effect import EffectClass
from tests.config.homes import write

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "alerts.md"


def blocks() -> list[str]:
    return re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)


def rows_below(heading: str) -> list[list[str]]:
    _, _, text = GUIDE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")
    lines = [line for line in text.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def test_the_table_of_figures_is_that_of_the_code() -> None:
    assert rows_below("Figures") == [
        [f"`{figure.name}`", figure.scope.value, figure.meaning] for figure in FIGURES
    ]


def test_the_table_of_keys_has_every_key_of_a_rule() -> None:
    named = {re.findall(r"`(\w+)`", row[0])[0] for row in rows_below("The rules")}

    assert named == set(AlertSettings.__struct_fields__)


def test_the_table_of_actions_has_every_action() -> None:
    assert [row[0] for row in rows_below("Actions")] == [f"`{one.value}`" for one in RULE_ACTIONS]


def test_the_file_of_the_seed_is_read_verbatim_and_is_the_default(tmp_path: Path) -> None:
    """The seed's file, whose indentation was lost there."""
    write(tmp_path, "config/alerts.yaml", blocks()[0])

    assert load(tmp_path, {}).config.alerts == default_alerts()


def test_the_policies_of_the_guide_do_what_it_says(tmp_path: Path) -> None:
    write(tmp_path, "config/policies.yaml", blocks()[1])

    loaded = load(tmp_path, {})

    config = loaded.config
    assert (config.gateway.capacity, config.upkeep.keep_days) == (200, {"python": 14.0})
    assert loaded.source_of("gateway.capacity") == str(tmp_path / "config" / "policies.yaml")
    assert config.policies.quiet_hours.hours is not None
    assert config.policies.approval.classes == {EffectClass.OPAQUE}


def test_a_home_without_rules_has_those_of_the_seed(tmp_path: Path) -> None:
    assert [rule.name for rule in load(tmp_path, {}).config.alert_rules] == [
        "high_failure_rate",
        "stalled_progress",
        "agent_down",
        "checkpoint_age",
    ]


@pytest.mark.parametrize("name", default_alerts())
def test_a_default_rule_passes_every_check(name: str) -> None:
    assert default_alerts()[name].tried_rule(name).name == name
