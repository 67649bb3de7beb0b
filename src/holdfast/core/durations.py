"""Durations as people write them: "90s", "2h30m", "1.5d", "90" or 90 for seconds, a timedelta."""

from __future__ import annotations

import re
from datetime import timedelta

from holdfast.core.errors import BadInput

Duration = str | float | timedelta

LONGEST = timedelta(days=3653)  # ten years: more is a mistake in the unit
_LONGEST_S = LONGEST.total_seconds()
# The largest first, which is the order in which they must be written.
_SECONDS = {"w": 604_800.0, "d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_SHOWN = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_PART = rf"({_NUMBER})(ms|[wdhms])"
_MAX_CHARS = 64
_REMEDY = 'write it like "90s", "250ms", "2h30m" or "3d", or give seconds as a number'


def parse_duration(field: str, value: Duration) -> timedelta:
    """A duration from zero to ten years. Raises BadInput, which names the field and the remedy."""
    if isinstance(value, timedelta):
        return _within(field, value.total_seconds(), value)
    if isinstance(value, str):
        return _within(field, _seconds_of(field, value))
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise BadInput(field, f"a duration is needed, not {type(value).__name__}; {_REMEDY}")
    return _within(field, value)


def parse_span(field: str, value: Duration) -> timedelta:
    """A duration longer than zero, for timeouts and windows."""
    span = parse_duration(field, value)
    if not span:
        raise BadInput(field, f"must be longer than zero; {_REMEDY}")
    return span


def in_one_unit(span: timedelta) -> str:
    """A duration for people, in its largest unit and rounded down: `3m`."""
    seconds = max(0, int(span.total_seconds()))
    return next((f"{seconds // size}{unit}" for unit, size in _SHOWN if seconds >= size), "0s")


def _seconds_of(field: str, text: str) -> float:
    if len(text) <= _MAX_CHARS and re.fullmatch(_NUMBER, text):
        return float(text)
    parts = re.findall(_PART, text) if len(text) <= _MAX_CHARS else []
    units = [unit for _, unit in parts]
    is_whole = "".join(number + unit for number, unit in parts) == text
    # Each unit once, the largest first: "1m2h" and "5s5s" are typing mistakes.
    if not parts or not is_whole or units != [unit for unit in _SECONDS if unit in units]:
        raise BadInput(field, f"{text[:_MAX_CHARS]!a} is not a duration; {_REMEDY}")
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def _within(field: str, seconds: float, exact: timedelta | None = None) -> timedelta:
    # Not shown, because the number may have any length.
    if seconds < 0:
        raise BadInput(field, f"a duration cannot be negative; {_REMEDY}")
    if not seconds <= _LONGEST_S:  # also NaN
        raise BadInput(field, f"must be a duration of at most ten years; {_REMEDY}")
    return timedelta(seconds=seconds) if exact is None else exact
