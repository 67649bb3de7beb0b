"""Alerts: those that are raised first, the rules with their live figures, and the history."""

from __future__ import annotations

from typing import Any

from holdfast.views.browser import Visitor
from holdfast.web.page_kinds import Action, Confirmation, Field, Page, Query
from holdfast.web.queries import given

RAISED = 50
HISTORY = 25
DURATIONS = (("1h", "1 hour"), ("8h", "8 hours"), ("1d", "1 day"), ("7d", "7 days"))


async def load(visitor: Visitor, query: Query) -> dict[str, Any]:
    raised = await visitor.ask("alerts.list", limit=RAISED, **given(query, "rule"))
    history = await visitor.ask(
        "alerts.list", hasCleared=True, limit=HISTORY, **given(query, "rule", page="pageToken")
    )
    rules = (await visitor.ask("alerts.rules")).rules
    checked = await visitor.ask("alerts.check")
    by_rule: dict[str, list[Any]] = {}
    for one in checked.rules:
        by_rule.setdefault(one.rule, []).append(one)
    # Those that are raised before those that are only recorded.
    live = sorted(raised.alerts, key=lambda one: (one.status != "raised", one.severity != "critical"))
    return {
        "live": live,
        "has_more_live": raised.next_page_token is not None,
        "history": history,
        "rules": rules,
        "by_rule": by_rule,
        "checked": checked,
        "names": {one.name for one in rules},
    }


async def ask_silence(visitor: Visitor, query: Query) -> Confirmation:
    rules = {one.name: one for one in (await visitor.ask("alerts.rules")).rules}
    rule = rules.get(query["rule"])
    lines = [] if rule is None else [rule.condition, *(f"action: {one}" for one in rule.actions)]
    return Confirmation(
        title=f"Silence {query['rule']}?",
        says=("Its alerts are still recorded; until then they send no notices and take no actions.",),
        lines=tuple(lines),
        fields=(
            Field(
                name="duration",
                label="For how long",
                kind="choice",
                choices=DURATIONS,
                value="8h",
                is_required=True,
            ),
            Field(name="reason", label="Reason"),
        ),
        confirm="Silence",
    )


async def silence(visitor: Visitor, form: Query) -> str:
    done = await visitor.ask(
        "alerts.silence", rule=form["rule"], duration=form.get("duration", ""), **given(form, "reason")
    )
    return f"{done.rule} is silent for {dict(DURATIONS).get(form.get('duration', ''), form.get('duration'))}."


async def ask_unsilence(visitor: Visitor, query: Query) -> Confirmation:
    rules = {one.name: one for one in (await visitor.ask("alerts.rules")).rules}
    rule = rules.get(query["rule"])
    is_silent = rule is not None and rule.silenced_until is not None
    return Confirmation(
        title=f"End the silence of {query['rule']}?",
        says=("If its condition is true, it notifies and acts from the next evaluation on.",),
        confirm="End the silence",
        refused=None if is_silent else "it is not silenced",
    )


async def unsilence(visitor: Visitor, form: Query) -> str:
    done = await visitor.ask("alerts.silence", rule=form["rule"], duration="0")
    return f"{done.rule} is no longer silent."


PAGES = [
    Page(
        path="/alerts",
        title="Alerts",
        template="alerts.html",
        load=load,
        section="alerts",
        follows="alert",
    )
]
ACTIONS = [
    Action(name="alerts.silence", ask=ask_silence, act=silence),
    Action(name="alerts.unsilence", ask=ask_unsilence, act=unsilence),
]
