"""PolicySettings: what holds for all work: retention, concurrency, retries, quiet hours and approval."""

from __future__ import annotations

import re
from datetime import time
from typing import Annotated, Literal

import msgspec

from holdfast.core.alert import AlertSeverity
from holdfast.core.campaign import MAX_CONCURRENCY
from holdfast.core.effect import EffectClass
from holdfast.core.errors import BadInput
from holdfast.core.quiet_hours import QuietHours

MAX_ATTEMPTS = 1000
# Up to ten years.
MIN_KEEP_DAYS, MAX_KEEP_DAYS = 1, 3653
_TIME = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])")


class ConcurrencyPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much runs at a time; what a campaign or gateway.capacity says itself goes first."""

    # Runs of one gateway, and item-phases of one campaign: in all, and on one host.
    gateway: Annotated[int, msgspec.Meta(ge=1, le=10**9)] | None = None
    campaign: Annotated[int, msgspec.Meta(ge=1, le=MAX_CONCURRENCY)] | None = None
    host: Annotated[int, msgspec.Meta(ge=1, le=MAX_CONCURRENCY)] | None = None


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often a task is tried that does not say it itself."""

    attempts: Annotated[int, msgspec.Meta(ge=1, le=MAX_ATTEMPTS)] | None = None


class QuietHoursPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When notices of alerts are held back; without a start there are no quiet hours."""

    start: str | None = None
    end: str = "07:00"
    tz: str = "UTC"
    # Severities of which a person is told at once all the same.
    let_through: list[Literal["info", "warning", "critical"]] = msgspec.field(
        default_factory=lambda: ["critical"]
    )

    @property
    def hours(self) -> QuietHours | None:
        """Raises BadInput with the field and the fix."""
        end = _time("end", self.end)
        if self.start is None and self.tz == "UTC":
            return None  # nothing is declared, so the time zones need not be loaded
        from holdfast.config.timetable import zone_of

        zone = zone_of(self.tz)
        if self.start is None:
            return None
        start = _time("start", self.start)
        if start == end:
            raise BadInput("end", "quiet hours that begin and end at the same time would never end")
        passing = frozenset(AlertSeverity(one) for one in self.let_through)
        return QuietHours(start=start, end=end, zone=zone, let_through=passing)


class ApprovalPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which effects a person approves before they are performed."""

    effects: list[Literal["keyed", "opaque", "verifiable"]] = []

    @property
    def classes(self) -> frozenset[EffectClass]:
        return frozenset(map(EffectClass, self.effects))


class PolicySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The section `policies`."""

    # For how many days ended tasks are kept, as in upkeep.keep_days, which goes first.
    retention: dict[str, Annotated[float, msgspec.Meta(ge=MIN_KEEP_DAYS, le=MAX_KEEP_DAYS)]] = {}
    concurrency: ConcurrencyPolicy = ConcurrencyPolicy()
    retry: RetryPolicy = RetryPolicy()
    quiet_hours: QuietHoursPolicy = QuietHoursPolicy()
    approval: ApprovalPolicy = ApprovalPolicy()


def _time(field: str, text: str) -> time:
    found = _TIME.fullmatch(text)
    if found is None:
        what = f"{text[:20]!a} is no time of day"
        raise BadInput(field, f'{what}; write hours and minutes in quotes, such as "22:00"')
    return time(int(found[1]), int(found[2]))
