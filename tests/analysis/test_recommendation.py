"""What is recommended, by the rules in their order."""

from __future__ import annotations

import pytest

from holdfast.analysis.recommendation import recommend


@pytest.mark.parametrize(
    ("lines", "tests", "has_ci", "days", "expected"),
    [
        (0, 5, True, 1, "P3-archive"),
        (10, 5, True, 1096, "P3-archive"),
        (10, 5, True, 1095, "P2-migrate"),
        (10, 5, True, None, "keep"),
        (50_000, 0, True, 1, "keep"),
        (49_999, 0, True, 1, "P2-migrate"),
        (10, 5, True, 90, "P0-migrate"),
        (10, 5, False, 90, "P1-migrate"),
        (10, 5, True, 91, "P1-migrate"),
        (10, 5, True, 366, "P2-migrate"),
        (10, 0, True, 1, "P2-migrate"),
    ],
)
def test_the_first_rule_that_fits_decides(
    lines: int, tests: int, has_ci: bool, days: int | None, expected: str
) -> None:
    found, reason = recommend(lines_of_code=lines, tests=tests, has_ci=has_ci, days_since_change=days)

    assert found.value == expected
    assert reason
