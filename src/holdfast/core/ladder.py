"""The retry ladder and the budget: what to try after each failure, and when to stop trying."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from holdfast.core.durations import Duration, parse_duration, parse_span
from holdfast.core.errors import BadInput
from holdfast.core.payload import check_number

MAX_ATTEMPTS = 1_000
MAX_RUNGS = 20
MAX_STEPS = 1_000_000_000
# More doublings exceed every cap and the exact range of a float.
_MAX_DOUBLINGS = 40


class Retry(msgspec.Struct, frozen=True):
    """Retry up to n more times, with waits that double up to the longest one."""

    attempts: int
    backoff: timedelta
    most: timedelta


class Replan(msgspec.Struct, frozen=True):
    """Let the function rewrite the rest of the plan."""

    fn: Callable[..., Any]


class Decompose(msgspec.Struct, frozen=True):
    """Let the function split the item that failed into smaller items."""

    fn: Callable[..., Any]


class Ask(msgspec.Struct, frozen=True):
    """Let a person decide."""


Rung = Retry | Replan | Decompose | Ask


class Budget(msgspec.Struct, frozen=True):
    """How much a task may use; None means no limit."""

    steps: int | None = None
    time: timedelta | None = None
    cost: float | None = None


def retry(n: int, backoff: Duration = "1s", most: Duration = "5m") -> Retry:
    """Up to n more attempts after the first one failed."""
    attempts = check_number("n", n, low=1, high=MAX_ATTEMPTS)
    first, longest = parse_duration("backoff", backoff), parse_duration("most", most)
    if longest < first:
        raise BadInput("most", "is shorter than the backoff that it limits; raise it or lower the backoff")
    return Retry(attempts, first, longest)


def replan(fn: Callable[..., Any]) -> Replan:
    return Replan(_checked_function("replan", fn))


def decompose(fn: Callable[..., Any]) -> Decompose:
    return Decompose(_checked_function("decompose", fn))


def ask() -> Ask:
    return Ask()


def budget(steps: int | None = None, time: Duration | None = None, cost: float | None = None) -> Budget:
    """A limit on the steps, the time, the cost, or any of them together."""
    return Budget(
        steps=None if steps is None else check_number("steps", steps, low=1, high=MAX_STEPS),
        time=None if time is None else parse_span("time", time),
        cost=None if cost is None else _checked_cost(cost),
    )


def check_budget(value: object) -> Budget:
    if not isinstance(value, Budget):
        made_by = "use hf.budget(steps=…, time=…, cost=…), with any of the three"
        raise BadInput("budget", f"a budget is needed, not {type(value).__name__}; {made_by}")
    return budget(value.steps, value.time, value.cost)


def check_ladder(value: object) -> tuple[Rung, ...]:
    """A ladder is a list of rungs; one rung alone is a ladder of one."""
    rungs = (value,) if isinstance(value, Rung) else value
    if not isinstance(rungs, Sequence) or isinstance(rungs, (str, bytes)):
        raise BadInput("ladder", f"a list of rungs is needed, not {type(value).__name__}")
    if len(rungs) > MAX_RUNGS:
        raise BadInput("ladder", f"{len(rungs)} rungs, more than {MAX_RUNGS}; use a larger n in retry(n)")
    return tuple(_checked_rung(rung) for rung in rungs)


def delay(retry: Retry, attempt: int, *, chance: float) -> timedelta:
    """How long to wait after the attempt of this number has failed; the first is 1.

    Full jitter: `chance`, from 0 to 1, picks a part of the doubled backoff, so that steps that failed at the
    same moment are not retried at the same moment.
    """
    doublings = min(max(attempt - 1, 0), _MAX_DOUBLINGS)
    ceiling = min(retry.backoff.total_seconds() * 2.0**doublings, retry.most.total_seconds())
    return timedelta(seconds=ceiling * chance)


def next_rung(ladder: Sequence[Rung], failures: int) -> Rung | None:
    """The rung for that many failures in a row; None when the ladder is at its end."""
    covered = 0
    for rung in ladder:
        covered += rung.attempts if isinstance(rung, Retry) else 1
        if failures <= covered:
            return rung
    return None


def _checked_rung(rung: object) -> Rung:
    if not isinstance(rung, Rung):
        raise BadInput(
            "ladder",
            f"a rung is needed, not {type(rung).__name__}; use retry(n), replan(fn), decompose(fn), ask()",
        )
    return rung


def _checked_function(field: str, fn: object) -> Callable[..., Any]:
    if not callable(fn):
        raise BadInput(field, f"a function is needed, not {type(fn).__name__}")
    return fn


def _checked_cost(cost: object) -> float:
    if isinstance(cost, bool) or not isinstance(cost, (int, float)):
        raise BadInput("cost", f"a number is needed, not {type(cost).__name__}")
    if not (cost > 0 and cost < math.inf):
        raise BadInput("cost", "a number above zero is needed; leave it out for no limit")
    try:
        return float(cost)
    except OverflowError:
        raise BadInput("cost", "is too large; leave it out for no limit") from None
