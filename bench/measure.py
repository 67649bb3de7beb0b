"""Two ways to do the same work, taken in turns, so that a busy minute on the machine hits both."""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable, Sequence

import msgspec

# What is measured: its name, the rate or the time of ours, and its target.
Measured = tuple[str, Callable[[], float], float | None]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the report: a rate or a time of ours beside the raw one."""

    name: str
    ours: float
    raw: float
    unit: str
    # Ours over raw for rates (at least the target), or for times (at most the target).
    ratio: float
    target: float | None
    is_time: bool

    @property
    def is_met(self) -> bool:
        if self.target is None:
            return True
        return self.ratio <= self.target if self.is_time else self.ratio >= self.target


class Report:
    """Collects rows, says each as soon as it is known."""

    def __init__(self, *, only: str | None) -> None:
        self.rows: list[Row] = []
        self._only = only

    def wants(self, name: str) -> bool:
        """Whether this row is asked for; or, of the beginning that several rows share, one of them."""
        return self._only is None or self._only in name or name in self._only

    def rates(
        self,
        name: str,
        ours: Callable[[], float],
        raw: Callable[[], float],
        *,
        target: float | None,
        rounds: int,
    ) -> None:
        """Both return operations per second; the ratio is the median over rounds taken in turns."""
        self.rates_in_turns([(name, ours, target)], raw, rounds=rounds)

    def rates_in_turns(self, rows: Sequence[Measured], raw: Callable[[], float], *, rounds: int) -> None:
        """Several rows beside one raw rate, in turns as well: a bad moment of the machine, which may last for
        seconds, is then a small part of each and not the whole of one."""
        wanted = [row for row in rows if self.wants(row[0])]
        if not wanted:
            return
        for (name, _, target), pairs in zip(wanted, _take_turns(wanted, raw, rounds), strict=True):
            self._add(name, pairs, unit="/s", target=target, is_time=False)

    def times(
        self,
        name: str,
        ours: Callable[[], float],
        raw: Callable[[], float],
        *,
        target: float | None,
        rounds: int,
        unit: str = "s",
    ) -> None:
        """Both return seconds, or what the unit says."""
        if self.wants(name):
            [pairs] = _take_turns([(name, ours, target)], raw, rounds)
            self._add(name, pairs, unit=unit, target=target, is_time=True)

    def _add(
        self, name: str, pairs: list[tuple[float, float]], *, unit: str, target: float | None, is_time: bool
    ) -> None:
        row = Row(
            name=name,
            ours=statistics.median(ours for ours, _ in pairs),
            raw=statistics.median(raw for _, raw in pairs),
            unit=unit,
            ratio=statistics.median(ours / raw for ours, raw in pairs),
            target=target,
            is_time=is_time,
        )
        self.rows.append(row)
        print(render(row), flush=True)


def render(row: Row) -> str:
    shown = "{:,.0f}" if row.unit == "/s" else "{:,.4f}"
    if row.target is None:
        verdict = ""
    else:
        sign = "≤" if row.is_time else "≥"
        verdict = f"  target {sign} {row.target:g}  {'met' if row.is_met else 'MISSED'}"
    ours, raw = shown.format(row.ours), shown.format(row.raw)
    return (
        f"{row.name:<62} {ours:>12} {row.unit:<2} raw {raw:>12} {row.unit:<2} ratio {row.ratio:6.2f}{verdict}"
    )


def timed(act: Callable[[], object]) -> float:
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


def _take_turns(
    rows: Sequence[Measured], raw: Callable[[], float], rounds: int
) -> list[list[tuple[float, float]]]:
    """Of each row, ours and raw of each round."""
    # What earlier rows have left behind is nothing that the collector of garbage should look at in these.
    gc.collect()
    gc.freeze()
    found: list[list[tuple[float, float]]] = [[] for _ in rows]
    for number in range(rounds):
        for (name, ours, _), pairs in zip(rows, found, strict=True):
            if sys.stderr.isatty():
                print(f"\r\033[K{name}: round {number + 1} of {rounds} ", end="", file=sys.stderr, flush=True)
            if number % 2:
                one = raw()
                pairs.append((ours(), one))
            else:
                mine = ours()
                pairs.append((mine, raw()))
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    return found
