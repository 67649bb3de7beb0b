"""alerts list, rules, check, silence."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

import click

from holdfast.api.alerts import (
    AlertCheckAsked,
    AlertsAsked,
    AlertSilenceAsked,
    check,
    list_alerts,
    list_rules,
    silencing_rule,
)
from holdfast.api.params import Nothing
from holdfast.cli.groups import ListGroup
from holdfast.cli.invocation import Invocation, page_option, shared_options, user_name
from holdfast.cli.output import Output, ago, clock_time, counted
from holdfast.core.alert import in_short
from holdfast.core.durations import in_one_unit
from holdfast.views.alerts import (
    AlertCheckView,
    AlertPageView,
    AlertRulesView,
    AlertView,
    CheckedRuleView,
    SilencedView,
)

if TYPE_CHECKING:
    from holdfast.config.sections import Config


@click.group("alerts", cls=ListGroup)
@shared_options
def alerts() -> None:
    """Alerts: what is raised, and the rules."""


def _config(call: Invocation) -> Config:
    from holdfast.config.files import load

    return load(call.settings.home, os.environ, {"store": call.store}).config


# --- list


@alerts.command("list", short_help="Alerts that are not cleared, newest first.")
@click.option("--all", "has_cleared", is_flag=True, help="Also those that are cleared: the history.")
@click.option("--rule", metavar="NAME", help="Only alerts of this rule.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Maximum number to show."
)
@page_option
@shared_options
@click.pass_obj
def show_alerts(call: Invocation, has_cleared: bool, rule: str | None, limit: int, page: str | None) -> None:
    """Alerts that are raised or silenced, newest first; with --all also those of the past."""
    asked = AlertsAsked(rule=rule or None, has_cleared=has_cleared, limit=limit, page_token=page)
    view = call.look_at_list("alerts.list", asked, lambda tx: list_alerts(tx, asked), AlertPageView())
    call.output.show(view, lambda: _print_page(call.output, view, call.clock.now(), has_cleared))


def _print_page(output: Output, view: AlertPageView, now: datetime, has_cleared: bool) -> None:
    if view.alerts:
        rows = [
            (
                one.id,
                one.rule,
                one.severity.value,
                one.status.value,
                one.campaign or "-",
                ago(one.raised_at, now),
                _actions(one),
                one.words,
            )
            for one in view.alerts
        ]
        headers = ("ID", "RULE", "SEVERITY", "STATUS", "CAMPAIGN", "RAISED", "ACTIONS", "WHAT")
        output.table(headers, rows, leave=("ID", "ACTIONS", "SEVERITY", "RAISED", "CAMPAIGN"))
    what = "alert" if has_cleared else "open alert"
    output.say(counted(len(view.alerts), what))
    if view.next_page_token is not None:
        output.say_next(view.next_page_token)


def _actions(alert: AlertView) -> str:
    return ", ".join(f"{one.action.value} {one.status.value}" for one in alert.actions) or "-"


# --- rules


@alerts.command("rules", short_help="The rules, and until when each is silenced.")
@shared_options
@click.pass_obj
def show_rules(call: Invocation) -> None:
    """The rules of the settings: config/alerts.yaml, or the default ones."""
    if call.gateway_url is not None:
        view = call.ask("alerts.rules", Nothing(), AlertRulesView)
    else:
        config, now = _config(call), call.clock.now()
        read = partial(list_rules, rules=config.alert_rules, channels=config.alert_channels, now=now)
        view = call.look_at_list("alerts.rules", Nothing(), read, AlertRulesView())
    call.output.show(view, lambda: _print_rules(call.output, view))


def _print_rules(output: Output, view: AlertRulesView) -> None:
    rows = [
        (
            one.name,
            one.severity.value,
            " + ".join(action.value for action in one.actions),
            one.scope,
            _span(one.raise_after_s),
            _span(one.clear_after_s),
            "-" if one.silenced_until is None else clock_time(one.silenced_until) or "-",
            one.condition,
        )
        for one in view.rules
    ]
    if rows:
        headers = ("RULE", "SEVERITY", "ACTIONS", "ABOUT", "AFTER", "CLEAR", "SILENT TILL", "CONDITION")
        output.table(headers, rows, leave=("CLEAR", "AFTER", "ABOUT", "SILENT TILL", "SEVERITY"))
    if any(not one.channels for one in view.rules if "notify_human" in one.actions):
        output.say(
            "no channel leads to a person: set gateway.alert_urls, or declare a channel of kind apprise"
        )
    output.say(counted(len(rows), "rule"))


def _span(seconds: float) -> str:
    return in_one_unit(timedelta(seconds=seconds))


# --- check


@alerts.command("check", short_help="Evaluate the rules once, and show their figures.")
@click.argument("rule", metavar="[NAME]", required=False)
@shared_options
@click.pass_obj
def check_rules(call: Invocation, rule: str | None) -> None:
    """Evaluate all rules, or the rule NAME, against the live figures; nothing is raised or done."""
    asked = AlertCheckAsked(rule=rule or None)
    if call.gateway_url is not None:
        view = call.ask("alerts.check", asked, AlertCheckView)
    else:
        rules, now = _config(call).alert_rules, call.clock.now()
        view = call.look_at_list(
            "alerts.check", asked, lambda tx: check(tx, asked, rules, now=now), AlertCheckView()
        )
    call.output.show(view, lambda: _print_checked(call.output, view))


def _print_checked(output: Output, view: AlertCheckView) -> None:
    rows = [(one.rule, one.campaign or "-", _answer(one), _figures(one)) for one in view.rules]
    if rows:
        output.table(("RULE", "CAMPAIGN", "TRUE", "FIGURES"), rows, leave=("CAMPAIGN",))
    for subject in view.subjects:
        output.heading("the ledger" if subject.campaign is None else f"campaign {subject.campaign}")
        output.fields([(name, in_short(value)) for name, value in subject.figures.items()])
        if subject.problem is not None:
            output.say(subject.problem)
    if view.has_more:
        output.say("more campaigns run than are shown here")
    if not rows:
        output.say(
            "no rule was evaluated: the default rules are about campaigns, and no campaign runs; to see all "
            "rules: `holdfast alerts rules`"
        )
        return
    is_true = sum(one.is_true is True for one in view.rules)
    output.say(f"{counted(len(rows), 'rule')} evaluated, {is_true} true")


def _answer(checked: CheckedRuleView) -> str:
    return "?" if checked.is_true is None else "yes" if checked.is_true else "no"


def _figures(checked: CheckedRuleView) -> str:
    if checked.problem is not None:
        return checked.problem
    return ", ".join(f"{name} {in_short(value)}" for name, value in checked.figures.items())


# --- silence


@alerts.command("silence", short_help="Silence a rule for a time.")
@click.argument("rule", metavar="NAME")
@click.argument("duration", metavar="DURATION")
@click.option("--reason", help="Why.")
@shared_options
@click.pass_obj
def silence(call: Invocation, rule: str, duration: str, reason: str | None) -> None:
    """Silence the rule NAME for DURATION, such as 2h; 0 ends a silence.

    Its alerts are recorded, but no person is notified and no action is done until the silence is over.
    """
    asked = AlertSilenceAsked(rule=rule, duration=duration, reason=reason)
    rules = () if call.gateway_url is not None else _config(call).alert_rules
    writing = partial(silencing_rule, by=user_name(None), rules=rules)
    view = call.change("alerts.silence", asked, writing, SilencedView)
    call.output.show(view, lambda: _print_silenced(call.output, view))


def _print_silenced(output: Output, view: SilencedView) -> None:
    if view.silenced_until is None:
        output.line(f"{view.rule} is not silenced any more")
        return
    output.line(f"{view.rule} is silenced until {clock_time(view.silenced_until)}")
    output.say(f"to end it: holdfast alerts silence {view.rule} 0")
