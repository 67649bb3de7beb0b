"""AlertSettings: a rule that an operator writes down; and the rules that hold if there are none."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, Literal

import msgspec

from holdfast.core.alert import CAMPAIGN_ACTIONS, AlertActionKind, AlertRule, AlertSeverity, parse_actions
from holdfast.core.alert_condition import AlertCondition, FigureScope, check_condition
from holdfast.core.durations import parse_duration
from holdfast.core.errors import BadInput

# The figure without which restart_agent could not tell which agent to restart.
HEARTBEAT = "agent_heartbeat_age_minutes"
MAX_CAMPAIGNS = 100
_CAMPAIGN = re.compile(r"[A-Za-z0-9._*?-]{1,100}")


class AlertSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rule of the section `alerts`."""

    condition: str
    severity: Literal["info", "warning", "critical"] = "warning"
    # One or several: `notify_human + restart_agent`.
    action: str = "notify_human"
    raise_after: str | float = 0
    clear_after: str | float = "5m"
    clear_when: str | None = None
    # Names of campaigns, with * and ?.
    campaigns: list[str] = []
    channels: list[str] = []
    is_enabled: bool = True

    def rule(self, name: str) -> AlertRule:
        """The rule, checked but for a division by what is always zero. Raises BadInput with the field."""
        return self._rule(name, check_condition("condition", self.condition))

    def tried_rule(self, name: str) -> AlertRule:
        """The same, tried with sample figures."""
        from holdfast.config.conditions import tried_condition

        if self.clear_when is not None:
            tried_condition("clear_when", self.clear_when)
        return self._rule(name, tried_condition("condition", self.condition))

    def _rule(self, name: str, condition: AlertCondition) -> AlertRule:
        clear_when = None if self.clear_when is None else check_condition("clear_when", self.clear_when)
        if clear_when is not None and clear_when.scope is not condition.scope:
            raise BadInput(
                "clear_when", f"it must be about the same as the condition: {condition.scope.value}s"
            )
        for one in self.campaigns[:MAX_CAMPAIGNS]:
            if not _CAMPAIGN.fullmatch(one):
                raise BadInput("campaigns", "write names of campaigns, with * and ? for any letters")
        if len(self.campaigns) > MAX_CAMPAIGNS:
            raise BadInput("campaigns", f"name at most {MAX_CAMPAIGNS}; * stands for any letters")
        return AlertRule(
            name=name,
            condition=condition,
            severity=AlertSeverity(self.severity),
            actions=self._actions(condition),
            raise_after=_span("raise_after", self.raise_after),
            clear_after=_span("clear_after", self.clear_after),
            clear_when=clear_when,
            campaigns=tuple(self.campaigns),
            channels=tuple(self.channels),
        )

    def _actions(self, condition: AlertCondition) -> tuple[AlertActionKind, ...]:
        actions = parse_actions("action", self.action)
        if condition.scope is FigureScope.LEDGER:
            for one in actions:
                if one in CAMPAIGN_ACTIONS:
                    raise BadInput(
                        "action",
                        f"{one.value} acts on a campaign, and the condition names no figure of one; "
                        "use notify_human, or name one such as failed_count",
                    )
        if AlertActionKind.RESTART_AGENT in actions and HEARTBEAT not in condition.names:
            raise BadInput(
                "action",
                f"restart_agent restarts the agents that are silent for too long, so the condition must name "
                f'{HEARTBEAT}, such as "{HEARTBEAT} > 10"',
            )
        return actions


def default_alerts() -> dict[str, AlertSettings]:
    """The rules of a home that has none of its own."""
    return {
        "high_failure_rate": AlertSettings(condition="failed_count / total_count > 0.05"),
        "stalled_progress": AlertSettings(condition="no_progress_for_minutes > 60"),
        "agent_down": AlertSettings(
            condition=f"{HEARTBEAT} > 10", severity="critical", action="notify_human + restart_agent"
        ),
        "checkpoint_age": AlertSettings(
            condition="last_checkpoint_age_minutes > 30", action="force_checkpoint"
        ),
    }


def named_rules(value: object) -> object:
    """A list of rules, each with its `name`, as a table of rules by their names; anything else unchanged.

    Raises BadInput for a rule without a name, or with the name of another one.
    """
    if not isinstance(value, list):
        return _with_one_spelling(value)
    found: dict[str, Any] = {}
    for number, entry in enumerate(value, 1):
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise BadInput(f"rule {number}", "write a table with a name, such as name: high_failure_rate")
        name = entry["name"]
        if name in found:
            raise BadInput(f"rule {number}", f"two rules have the name {name[:64]!a}; rename one")
        found[name] = {key: one for key, one in entry.items() if key != "name"}
    return _with_one_spelling(found)


def _with_one_spelling(value: object) -> object:
    """`for`, as Prometheus spells it, is `raise_after`."""
    if not isinstance(value, dict):
        return value
    found = {}
    for name, entry in value.items():
        if isinstance(entry, dict) and "for" in entry:
            if "raise_after" in entry or "raiseAfter" in entry:
                raise BadInput(f"{name}.for", "it is another word for raise_after; write one of them")
            entry = {"raise_after" if key == "for" else key: one for key, one in entry.items()}
        found[name] = entry
    return found


def _span(field: str, value: str | float) -> timedelta:
    return parse_duration(field, value)
