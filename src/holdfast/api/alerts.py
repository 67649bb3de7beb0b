"""Alerts for the API and the CLI: list, rules, check and silence."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import msgspec

from holdfast.api.pages import bad_token, place_of
from holdfast.api.params import NameText, PageSize, PageToken, Params, ShortText
from holdfast.core.durations import parse_duration
from holdfast.core.errors import BadInput
from holdfast.core.transitions import AlertStatus
from holdfast.store.tasks import LAST
from holdfast.views.alerts import (
    AlertCheckView,
    AlertPageView,
    AlertRulesView,
    AlertRuleView,
    SilencedView,
    alert_views,
)
from holdfast.views.text import maybe_line, one_line

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from holdfast.core.alert import AlertRule
    from holdfast.store.contract import Write
    from holdfast.store.transaction import Tx

# Longer is a rule that should be changed, or switched off.
LONGEST_SILENCE = timedelta(days=365)


class AlertsAsked(Params, frozen=True, kw_only=True):
    """Alerts that are not cleared, or all of them, newest first."""

    # Only those of this rule.
    rule: NameText | None = None
    # Also those that are cleared.
    has_cleared: bool = False
    limit: PageSize = 50
    # The `nextPageToken` of the previous page.
    page_token: PageToken | None = None


class AlertCheckAsked(Params, frozen=True, kw_only=True):
    """Evaluate all rules, or one, against the live figures."""

    rule: NameText | None = None


class AlertSilenceAsked(Params, frozen=True, kw_only=True):
    """Silence a rule for so long, such as `2h`; `0` ends a silence."""

    rule: NameText
    duration: Annotated[str, msgspec.Meta(max_length=40)]
    reason: ShortText | None = None


def list_alerts(tx: Tx, asked: AlertsAsked) -> AlertPageView:
    before = LAST
    if asked.page_token is not None:
        if not asked.page_token.startswith("alert_"):
            raise bad_token(asked.page_token)
        before = place_of("alert", asked.page_token, tx.alerts.resolve)
    if asked.has_cleared:
        found = tx.alerts.page(rule=asked.rule, before=before, limit=asked.limit + 1)
    else:
        live = sorted(tx.alerts.live(), key=lambda one: one.id, reverse=True)
        found = [one for one in live if one.id < before and asked.rule in (None, one.rule)]
    shown = found[: asked.limit]
    return AlertPageView(
        alerts=alert_views(shown, tx.alerts.actions_of([one.id for one in shown])),
        next_page_token=shown[-1].id if len(found) > asked.limit else None,
    )


def list_rules(
    tx: Tx, rules: Sequence[AlertRule], *, channels: Sequence[str], now: datetime
) -> AlertRulesView:
    silences = {name: one for name, one in tx.alerts.silences().items() if now < one.until}
    return AlertRulesView(
        rules=[AlertRuleView.of(rule, channels=channels, silence=silences.get(rule.name)) for rule in rules]
    )


def check(tx: Tx, asked: AlertCheckAsked, rules: Sequence[AlertRule], *, now: datetime) -> AlertCheckView:
    """Raises NotFound if there is no such rule."""
    from holdfast.alerts.checking import check_rules
    from holdfast.core.alert import find_rule

    wanted = rules if asked.rule is None else [find_rule(rules, asked.rule)]
    return AlertCheckView.of(check_rules(tx, wanted, now=now))


def silencing_rule(
    asked: AlertSilenceAsked, *, by: str, rules: Sequence[AlertRule], now: datetime
) -> Write[SilencedView]:
    """The write that silences a rule. A rule that the settings do not have may have alerts of another
    gateway. Raises NotFound otherwise."""
    from holdfast.alerts.raising import silencing
    from holdfast.core.alert import Silence, find_rule
    from holdfast.core.payload import check_text

    lasts = _duration(asked.duration)
    silence = Silence(
        rule=asked.rule,
        until=now + lasts,
        silenced_by=by,
        reason=None if asked.reason is None else check_text("reason", asked.reason, may_be_empty=True)[:500],
        created_at=now,
    )
    write = silencing(silence)

    def silence_it(tx: Tx) -> SilencedView:
        if not any(one.rule == asked.rule for one in tx.alerts.live()):
            find_rule(rules, asked.rule)
        done = write(tx)
        return SilencedView(
            rule=one_line(done.rule),
            silenced_until=done.until if lasts else None,
            reason=maybe_line(done.reason),
        )

    return silence_it


def count_raised(tx: Tx) -> int:
    """How many alerts are raised now, from a kept count."""
    return tx.events.counts("alert").get(AlertStatus.RAISED.value, 0)


def _duration(text: str) -> timedelta:
    lasts = parse_duration("duration", text.strip())
    if lasts > LONGEST_SILENCE:
        raise BadInput("duration", "at most 365 days; to switch a rule off, set is_enabled = false in it")
    return lasts
