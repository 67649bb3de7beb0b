"""The methods of alerts: what is raised, the rules, a check of them, and silence."""

from __future__ import annotations

from holdfast.api import alerts
from holdfast.api.contract import READ, Caller, GatewayDoor
from holdfast.api.method_kinds import Method, audited, calls, reads, run_write
from holdfast.api.params import Nothing
from holdfast.views.alerts import AlertCheckView, AlertPageView, AlertRulesView, SilencedView


async def _rules(gateway: GatewayDoor, asked: Nothing, caller: Caller) -> AlertRulesView:  # noqa: ARG001 - a method
    config, now = gateway.config, gateway.clock.now()
    return await gateway.store.read(
        lambda tx: alerts.list_rules(tx, config.alert_rules, channels=config.alert_channels, now=now)
    )


async def _check(gateway: GatewayDoor, asked: alerts.AlertCheckAsked, caller: Caller) -> AlertCheckView:  # noqa: ARG001 - a method
    rules, now = gateway.config.alert_rules, gateway.clock.now()
    return await gateway.store.read(lambda tx: alerts.check(tx, asked, rules, now=now))


async def _silence(gateway: GatewayDoor, asked: alerts.AlertSilenceAsked, caller: Caller) -> SilencedView:
    write, rules = alerts.silencing_rule, gateway.config.alert_rules
    return await run_write(gateway, "alerts.silence", write, asked, caller, by=caller.who, rules=rules)


ALERT_METHODS: list[Method] = [
    reads(
        "alerts.list",
        alerts.AlertsAsked,
        AlertPageView,
        alerts.list_alerts,
        "Alerts that are not cleared, or all, newest first.",
    ),
    calls("alerts.rules", READ, Nothing, AlertRulesView, _rules, "The rules that the gateway evaluates."),
    calls(
        "alerts.check",
        READ,
        alerts.AlertCheckAsked,
        AlertCheckView,
        _check,
        "Evaluate rules against the live figures; nothing is raised, and nothing is done.",
    ),
    audited(
        "alerts.silence",
        alerts.AlertSilenceAsked,
        SilencedView,
        _silence,
        "Silence a rule for a time: its alerts are recorded, and nothing else happens.",
    ),
]
