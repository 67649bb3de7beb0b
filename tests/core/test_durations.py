"""Durations as people write them, and what is refused with the field and the remedy."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.durations import LONGEST, parse_duration, parse_span
from holdfast.core.errors import BadInput


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("90s", timedelta(seconds=90)),
        ("250ms", timedelta(milliseconds=250)),
        ("5m", timedelta(minutes=5)),
        ("6h", timedelta(hours=6)),
        ("1.5h", timedelta(minutes=90)),
        ("2h30m", timedelta(hours=2, minutes=30)),
        ("1d2h3m4s5ms", timedelta(days=1, hours=2, minutes=3, seconds=4, milliseconds=5)),
        ("3d", timedelta(days=3)),
        ("1w", timedelta(weeks=1)),
        ("0s", timedelta(0)),
        ("01s", timedelta(seconds=1)),
        ("90", timedelta(seconds=90)),
        ("1.5", timedelta(milliseconds=1500)),
        (0, timedelta(0)),
        (90, timedelta(seconds=90)),
        (0.25, timedelta(milliseconds=250)),
        (timedelta(hours=1, microseconds=1), timedelta(hours=1, microseconds=1)),
        (LONGEST, LONGEST),
        ("520w", timedelta(weeks=520)),
    ],
    ids=str,
)
def test_a_duration_means_what_it_says(written: str | float | timedelta, meant: timedelta) -> None:
    assert parse_duration("timeout", written) == meant


@pytest.mark.parametrize(
    "value",
    [
        "",
        " ",
        "s",
        "-5s",
        "+5s",
        "5 s",
        " 5s",
        "5s ",
        "5s\n",
        "5S",
        "5H",
        "5min",
        "5 minutes",
        "5y",
        "5M",
        "5µs",
        "1,5h",
        "1.h",
        ".5h",
        "1e3s",
        "٣s",
        "30m2h",
        "5s5s",
        "1h1h",
        "nans",
        "infs",
        "5sx",
        "x5s",
        "9" * 60 + "s",
        "9" * 100_000 + "s",
        "0s" * 100_000,
        "\ud800s",
        -1,
        -0.001,
        float("nan"),
        float("inf"),
        -float("inf"),
        10**400,
        -(10**400),
        1e300,
        3653 * 86_400 + 1,
        timedelta(seconds=-1),
        timedelta(days=3654),
        timedelta.max,
        timedelta.min,
        True,
        False,
        None,
        b"5s",
        ["5s"],
        object(),
        print,
    ],
    ids=lambda value: f"{type(value).__name__}-{value!a:.12}" if not isinstance(value, int) else "int",
)
def test_what_is_no_duration_is_refused_with_the_field_and_the_remedy(value: Any) -> None:
    with pytest.raises(BadInput) as refusal:
        parse_duration("timeout", value)

    assert refusal.value.field == "timeout"
    assert '"2h30m"' in refusal.value.problem
    assert len(str(refusal.value)) < 300
    assert str(refusal.value).encode()


@pytest.mark.parametrize("nothing", ["0s", 0, 0.0, timedelta(0), "0h0m"])
def test_a_span_is_more_than_nothing(nothing: str | float | timedelta) -> None:
    with pytest.raises(BadInput, match="must be longer than zero"):
        parse_span("window", nothing)


def test_a_span_is_a_duration() -> None:
    assert parse_span("window", "24h") == timedelta(days=1)


@given(st.integers(0, 500), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59), st.integers(0, 999))
def test_the_parts_of_a_duration_add_up(days: int, hours: int, minutes: int, seconds: int, ms: int) -> None:
    written = f"{days}d{hours}h{minutes}m{seconds}s{ms}ms"

    parsed = parse_duration("timeout", written)

    assert parsed == timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=ms)


@given(st.text(max_size=12))
def test_any_text_is_a_duration_or_bad_input(text: str) -> None:
    try:
        parsed = parse_duration("timeout", text)
    except BadInput:
        return

    assert timedelta(0) <= parsed <= LONGEST
