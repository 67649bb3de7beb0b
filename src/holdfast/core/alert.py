"""AlertRule, Alert, WatchedVerdict and Silence: when an alert is raised, and when it is over; pure."""

from __future__ import annotations

import difflib
import fnmatch
import hashlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from holdfast.core.alert_condition import AlertCondition
from holdfast.core.errors import BadInput, NotFound
from holdfast.core.ids import AlertId
from holdfast.core.jumps import TOLERANCE
from holdfast.core.transitions import AlertActionStatus, AlertStatus

# Sets in a fixed order, so that every process makes the same text of the same rule.
_encode = msgspec.json.Encoder(order="deterministic").encode
# The subject of a rule over the whole ledger.
LEDGER = "ledger"
# After this many attempts an action is given up, and a person is told.
MAX_ATTEMPTS = 5
FIRST_PAUSE = timedelta(minutes=1)
MAX_OUTCOME_CHARS = 300
# A gateway tells the ledger this often that it still watches a verdict; after the second span without a word
# from it, another gateway may take the verdict over.
SEEN_EVERY = timedelta(minutes=5)
ABANDONED_AFTER = timedelta(minutes=15)


class AlertSeverity(StrEnum):
    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class AlertActionKind(StrEnum):
    """What is done when an alert is raised."""

    NOTIFY_HUMAN = "notify_human"
    RESTART_AGENT = "restart_agent"
    FORCE_CHECKPOINT = "force_checkpoint"
    PAUSE_CAMPAIGN = "pause_campaign"
    # Not for rules: tells that the alert is over, or that an action was given up.
    NOTIFY_CLEARED = "notify_cleared"
    NOTIFY_FAILED = "notify_failed"


RULE_ACTIONS = (
    AlertActionKind.NOTIFY_HUMAN,
    AlertActionKind.RESTART_AGENT,
    AlertActionKind.FORCE_CHECKPOINT,
    AlertActionKind.PAUSE_CAMPAIGN,
)
# They act on a campaign, so a rule over the whole ledger cannot have them.
CAMPAIGN_ACTIONS = RULE_ACTIONS[1:]
NOTICES = (AlertActionKind.NOTIFY_HUMAN, AlertActionKind.NOTIFY_CLEARED, AlertActionKind.NOTIFY_FAILED)


class VerdictKind(StrEnum):
    """What about a rule is watched: its condition, or that it cannot be evaluated."""

    CONDITION = "condition"
    FAILURE = "failure"


class AlertRule(msgspec.Struct, frozen=True, kw_only=True):
    """A condition over figures, and what to do while it is true."""

    name: str
    condition: AlertCondition
    severity: AlertSeverity
    actions: tuple[AlertActionKind, ...]
    # How long the condition is true before the alert is raised, and false before it is cleared.
    raise_after: timedelta
    clear_after: timedelta
    # Another condition that must be true before the alert is cleared; None for the opposite of the first.
    clear_when: AlertCondition | None = None
    # Names of campaigns, with * and ?; empty for all.
    campaigns: tuple[str, ...] = ()
    # Names of channels for notify_human; empty for those that all rules use.
    channels: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """The same for the same rule: two gateways watch the same verdict only with the same rule."""
        return hashlib.blake2b(_encode(self), digest_size=12).hexdigest()

    def is_about(self, campaign: str) -> bool:
        return not self.campaigns or any(fnmatch.fnmatchcase(campaign, one) for one in self.campaigns)


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """One time that a rule was true, from its raise to its clear."""

    id: AlertId
    rule: str
    kind: VerdictKind
    # The id of a campaign, or `ledger`.
    subject: str
    # The name of that campaign.
    subject_name: str
    severity: AlertSeverity
    condition: str
    # The figures of the condition when it was raised; or why it could not be evaluated.
    figures: dict[str, float]
    problem: str | None = None
    raised_at: datetime
    status: AlertStatus = AlertStatus.RAISED
    # Why it was cleared.
    why_cleared: str | None = None
    updated_at: datetime
    cleared_at: datetime | None = None

    @property
    def words(self) -> str:
        """What is wrong, in one line."""
        if self.problem is not None:
            return f"the rule cannot be evaluated: {self.problem}"
        shown = ", ".join(f"{name} is {in_short(value)}" for name, value in sorted(self.figures.items()))
        return f"{self.condition} ({shown})"


class AlertAction(msgspec.Struct, frozen=True, kw_only=True):
    """One action of an alert, with its outcome."""

    alert_id: AlertId
    action: AlertActionKind
    status: AlertActionStatus = AlertActionStatus.PENDING
    attempts: int = 0
    due_at: datetime
    # What it did, or why it failed last.
    outcome: str | None = None
    updated_at: datetime


class WatchedVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the ledger remembers of one rule and one subject: it is kept only while there is something to
    remember. Every change raises its revision, so that of two gateways only one makes it."""

    rule: str
    kind: VerdictKind
    subject: str
    digest: str
    # The gateway that has this rule.
    place: str
    is_true: bool
    since: datetime
    revision: int = 1
    seen_at: datetime

    @property
    def key(self) -> VerdictKey:
        return self.rule, self.kind, self.subject


VerdictKey = tuple[str, VerdictKind, str]


class Silence(msgspec.Struct, frozen=True, kw_only=True):
    """Until then a rule notifies no person and does nothing; its alerts are recorded all the same."""

    rule: str
    until: datetime
    silenced_by: str
    reason: str | None = None
    created_at: datetime


class VerdictStep(StrEnum):
    """What the next look at a verdict changes."""

    NOTHING = "nothing"
    # Remember that it is true, or false, from now on.
    TURN = "turn"
    # Forget it: it is false, and there is no alert.
    FORGET = "forget"
    RAISE = "raise"
    CLEAR = "clear"


def step_of(
    verdict: WatchedVerdict | None,
    *,
    is_true: bool,
    has_alert: bool,
    raise_after: timedelta,
    clear_after: timedelta,
    now: datetime,
    ages_from: datetime | None = None,
) -> VerdictStep:
    """What to do about a verdict that is true or false now.

    It is raised after it was true for `raise_after`, and cleared after it was false for `clear_after`.
    Time before `ages_from`, when the clock jumped, does not count. A verdict of the future was noted by a
    clock that was ahead: its time begins anew.
    """
    is_ahead = verdict is not None and verdict.since > now + TOLERANCE
    if is_ahead and is_true is not has_alert:
        return VerdictStep.TURN
    if verdict is None or verdict.is_true is not is_true:
        if is_true and not has_alert:
            return VerdictStep.TURN if raise_after else VerdictStep.RAISE
        if not is_true and has_alert and not clear_after:
            return VerdictStep.CLEAR
        if is_true or has_alert:
            return VerdictStep.TURN
        return VerdictStep.NOTHING if verdict is None else VerdictStep.FORGET
    lasted = now - (verdict.since if ages_from is None else max(verdict.since, ages_from))
    if is_true:
        return VerdictStep.RAISE if not has_alert and lasted >= raise_after else VerdictStep.NOTHING
    if not has_alert:
        return VerdictStep.FORGET
    return VerdictStep.CLEAR if lasted >= clear_after else VerdictStep.NOTHING


def pause_after(attempts: int) -> timedelta:
    """How long to wait after so many failed attempts of an action: 1, 2, 4, 8 minutes."""
    return FIRST_PAUSE * (1 << min(max(attempts, 1) - 1, 10))


def parse_actions(field: str, text: str) -> tuple[AlertActionKind, ...]:
    """`notify_human + restart_agent` as actions, in this order. Raises BadInput."""
    known = [one.value for one in RULE_ACTIONS]
    found: list[AlertActionKind] = []
    for word in text.split("+"):
        name = word.strip()
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            fix = f"did you mean {near[0]}?" if near else f"the actions are {', '.join(known)}"
            raise BadInput(field, f"there is no action {name[:40]!a}: {fix} Join several with +")
        action = AlertActionKind(name)
        if action in found:
            raise BadInput(field, f"{name} is given twice; write it once")
        found.append(action)
    return tuple(found)


def find_rule(rules: Sequence[AlertRule], name: str) -> AlertRule:
    """The rule with this name. Raises NotFound, which names the nearest one."""
    for rule in rules:
        if rule.name == name:
            return rule
    raise NotFound("alert rule", name)


def in_short(value: float) -> str:
    """A figure for people: at most two digits behind the point."""
    return f"{value:,.2f}".rstrip("0").rstrip(".")
