"""When to speak again of what goes on."""

from __future__ import annotations

import pytest

from holdfast.core.spacing import LONGEST_S, Spacing, in_words


def test_it_is_said_at_once_and_then_less_and_less_often() -> None:
    spacing = Spacing(100.0)

    said = [second for second in range(3600) if spacing.is_due(100.0 + second)]

    assert said == [0, 10, 30, 70, 150, 310, 630, 1230, 1830, 2430, 3030]
    assert said[-1] - said[-2] == LONGEST_S


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (119, "119 s"), (120, "2 min"), (7100, "118 min"), (7200, "2 h")]
)
def test_how_long_it_lasted_is_said_in_words(seconds: float, words: str) -> None:
    assert in_words(seconds) == words
