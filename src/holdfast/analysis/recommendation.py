"""What to do with an item, by rules that people can check; pure.

The first rule that fits decides:

1. no code at all: `P3-archive`
2. the last change is more than three years ago: `P3-archive`
3. the time of its last change is unknown: `keep`, and ask its owner
4. 50,000 lines of code or more, and no tests: `keep`, until it has some
5. changed within 90 days, with tests and CI: `P0-migrate`
6. changed within a year, with tests: `P1-migrate`
7. everything else: `P2-migrate`, once it has tests
"""

from __future__ import annotations

from enum import StrEnum

ACTIVE_DAYS = 90
RECENT_DAYS = 365
STALE_DAYS = 3 * 365
MANY_LINES = 50_000


class Recommendation(StrEnum):
    """What to do with an item."""

    P0 = "P0-migrate"
    P1 = "P1-migrate"
    P2 = "P2-migrate"
    P3 = "P3-archive"
    KEEP = "keep"


def recommend(
    *, lines_of_code: int, tests: int, has_ci: bool, days_since_change: int | None
) -> tuple[Recommendation, str]:
    """The recommendation, and the rule that led to it."""
    days = days_since_change
    if not lines_of_code:
        return Recommendation.P3, "it has no code"
    if days is None:
        return Recommendation.KEEP, "the time of its last change is unknown"
    if days > STALE_DAYS:
        return Recommendation.P3, f"its last change is {days:,} days ago"
    if lines_of_code >= MANY_LINES and not tests:
        return Recommendation.KEEP, f"it has {lines_of_code:,} lines of code and no tests"
    if days <= ACTIVE_DAYS and tests and has_ci:
        return Recommendation.P0, "it is active, and has tests and CI"
    if days <= RECENT_DAYS and tests:
        return Recommendation.P1, "it changed within a year, and has tests"
    return Recommendation.P2, "it has no tests" if not tests else f"its last change is {days:,} days ago"
