"""Draws the progress of a campaign as lines of styled text that fit a width."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import TypeAlias

import msgspec

from holdfast.cli.output import Output, clock_time, counted, percent
from holdfast.cli.tables import cut, pad, width_of, wrapped
from holdfast.core.durations import in_one_unit
from holdfast.core.transitions import CampaignStatus
from holdfast.views.progress import (
    CampaignProgressView,
    GroupView,
    ItemCountsView,
    PhaseProgressView,
    RateView,
)

# Parts of a line, each with a style that Output.paint knows; '' for none.
Part: TypeAlias = "tuple[str, str]"
Line: TypeAlias = "list[Part]"

# What is drawn where no terminal tells its width.
WIDTH = 80
_MOST_WIDTH = 120
_LEAST_BAR, _MOST_BAR = 10, 50
_PERCENT = 6
_GAP = "  "
_STATUS_STYLES = {"running": "cyan", "paused": "yellow", "done": "green", "failed": "red", "draft": "dim"}


class _Signs(msgspec.Struct, frozen=True, kw_only=True):
    """How a bar shows what is done, in progress, failed and pending; also without colours."""

    done: str = "█"
    active: str = "▒"
    failed: str = "✗"
    pending: str = "·"


class _Detail(Enum):
    """How much is shown, from everything to what is never left out."""

    ALL = auto()
    # Priorities and facts only of the current phase.
    CURRENT = auto()
    # No priorities.
    PHASES = auto()
    # Only the issues and a bar for each phase.
    LEAST = auto()


_ASCII = _Signs(done="#", active="+", failed="x", pending=".")


def signs_for(encoding: str | None) -> _Signs:
    """Those that this encoding can write."""
    try:
        "█▒✗·".encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return _ASCII
    return _Signs()


def draw(
    view: CampaignProgressView, *, width: int = WIDTH, height: int | None = None, signs: _Signs | None = None
) -> list[Line]:
    """The whole screen: what needs attention, then all phases; those that have begun show their priorities.
    If that is higher than `height`, it leaves out what matters least."""
    signs = signs_for(sys.stdout.encoding) if signs is None else signs
    lines: list[Line] = []
    for detail in _Detail:
        lines = _draw(view, min(width, _MOST_WIDTH), signs, detail)
        if height is None or len(lines) <= height:
            return lines
    assert height is not None
    return [*lines[: max(0, height - 1)], [(cut("… the terminal is too low for the rest", width), "dim")]]


def _draw(view: CampaignProgressView, width: int, signs: _Signs, detail: _Detail) -> list[Line]:
    assert view.campaign is not None
    assert view.counts is not None
    # Of which phases priorities and facts are shown.
    open_phases = [phase.name for phase in view.phases if _is_open(phase)]
    current = [name for name in open_phases if name == view.current_phase]
    with_priorities = {_Detail.ALL: open_phases, _Detail.CURRENT: current}.get(detail, [])
    with_facts = {_Detail.ALL: open_phases, _Detail.LEAST: []}.get(detail, current)
    bars = [("overall", view.counts)] if len(view.phases) > 1 else []
    bars += [(phase.name, phase.counts) for phase in view.phases]
    bars += [(f"  {group.name}", group.counts) for phase in view.phases for group in phase.by_priority]
    layout = _Layout.of([name for name, _ in bars], [_amount(counts) for _, counts in bars], width)
    lines: list[Line] = [*_title(view, width)]
    if view.issues:
        lines += [[], [("needs attention", "bold")], *_issues(view.issues, width)]
    lines.append([])
    if len(view.phases) > 1:
        lines.append(layout.row("overall", view.counts, signs, style="bold"))
    for phase in view.phases:
        lines.append(layout.row(phase.name, phase.counts, signs, style="bold"))
        if phase.name in with_priorities:
            lines += [layout.row(f"  {one.name}", one.counts, signs) for one in phase.by_priority]
        if phase.name in with_facts:
            lines += _facts(phase, view, width)
    return lines


def draw_groups(groups: Sequence[GroupView], *, width: int, signs: _Signs | None = None) -> list[Line]:
    """One bar for each group."""
    signs = signs_for(sys.stdout.encoding) if signs is None else signs
    names = [group.name or "(none)" for group in groups]
    layout = _Layout.of(names, [_amount(group.counts) for group in groups], min(width, _MOST_WIDTH))
    return [layout.row(name, group.counts, signs) for name, group in zip(names, groups, strict=True)]


def print_lines(output: Output, lines: Sequence[Line]) -> None:
    for line in lines:
        output.line("".join(output.paint(text, style) for text, style in line).rstrip())


# --- the parts of a screen


class _Layout(msgspec.Struct, frozen=True, kw_only=True):
    """How wide the label, the bar and the amount of each row are."""

    label: int
    bar: int
    amount: int

    @classmethod
    def of(cls, labels: Sequence[str], amounts: Sequence[str], width: int) -> _Layout:
        label = min(max(map(width_of, labels), default=0), width // 4)
        amount = max(map(width_of, amounts), default=0)
        rest = width - label - _PERCENT - len(_GAP) * 3
        bar = max(_LEAST_BAR, min(_MOST_BAR, rest - amount))
        return cls(label=label, bar=bar, amount=max(0, min(amount, rest - bar)))

    def row(self, label: str, counts: ItemCountsView, signs: _Signs, *, style: str = "") -> Line:
        return [
            (pad(label, self.label), style),
            (_GAP, ""),
            *_bar(counts, self.bar, signs),
            (_GAP, ""),
            (percent(counts.percent).rjust(_PERCENT), style),
            (_GAP, ""),
            (cut(_amount(counts), self.amount), ""),
        ]


def _title(view: CampaignProgressView, width: int) -> Iterator[Line]:
    """In one line, or in two if the width is short."""
    one = view.campaign
    assert one is not None
    since = ""
    if one.ended_at is not None:
        since = f"at {clock_time(one.ended_at)} · "
    elif one.started_at is not None and view.at is not None:
        since = f"for {in_one_unit(view.at - one.started_at)} · "
    batches = "1 batch" if one.batches == 1 else f"{one.batches:,} batches"
    facts = f"{since}{counted(one.items, 'item')} in {batches}"
    status = (one.status, _STATUS_STYLES.get(one.status, ""))
    name = cut(one.name, width - width_of(one.status) - len(_GAP))
    if width_of(name) + len(_GAP) + width_of(one.status) + 1 + width_of(facts) <= width:
        yield [(name, "bold"), (_GAP, ""), status, (f" {facts}", "")]
    else:
        yield [(name, "bold"), (_GAP, ""), status]
        yield [(cut(facts, width), "")]


def _bar(counts: ItemCountsView, width: int, signs: _Signs) -> Iterator[Part]:
    """A share that is not nothing has at least one sign, and only what is all done is full."""
    parts = _shares([counts.done, counts.running + counts.paused, counts.failed, counts.pending], width)
    styles = ("green", "cyan", "red", "dim")
    for number, sign, style in zip(
        parts, (signs.done, signs.active, signs.failed, signs.pending), styles, strict=True
    ):
        if number:
            yield sign * number, style


def _shares(amounts: Sequence[int], width: int) -> list[int]:
    total = sum(amounts)
    if not total:
        return [*([0] * (len(amounts) - 1)), width]
    parts = [max(1, amount * width // total) if amount else 0 for amount in amounts]
    # What rounding left over goes to, or comes from, the largest part.
    largest = max(range(len(parts)), key=lambda place: amounts[place])
    parts[largest] += width - sum(parts)
    return parts


def _amount(counts: ItemCountsView) -> str:
    parts = [f"{counts.done:,} of {counts.total:,}"]
    parts += [
        f"{number:,} {word}"
        for number, word in (
            (counts.running, "running"),
            (counts.paused, "paused"),
            (counts.failed, "failed"),
        )
        if number
    ]
    return " · ".join(parts)


def _is_open(phase: PhaseProgressView) -> bool:
    """Whether it has begun and is not over."""
    counts = phase.counts
    has_begun = counts.done or counts.running or counts.paused or counts.failed
    return bool(has_begun) and bool(counts.running or counts.paused or counts.pending)


def _facts(phase: PhaseProgressView, view: CampaignProgressView, width: int) -> Iterator[Line]:
    assert view.campaign is not None
    parts = []
    if phase.current_batch is not None:
        one = phase.current_batch
        parts.append(f"now {one.priority} {one.id} ({one.counts.done}/{one.counts.total} done)")
    if phase.next_batch is not None:
        one = phase.next_batch
        parts.append(f"next {one.priority} {one.id} ({one.counts.pending} waiting)")
    goes_on = view.campaign.status == CampaignStatus.RUNNING and phase.rate.left
    for text in (" · ".join(parts), _rate(phase.rate, view.at) if goes_on else ""):
        for line in wrapped(text, width - 2) if text else ():
            yield [(f"  {line}", "dim")]


def _rate(rate: RateView, now: datetime | None) -> str:
    """`300 an hour, done in about 50m (42m to 1h): 2026-03-01 08:00 UTC`."""
    if not rate.per_hour:
        return "none done in the last hour, so there is no estimate"
    speed = f"{rate.per_hour:,.0f} an hour" if rate.per_hour >= 10 else f"{rate.per_hour:.1f} an hour"
    if rate.eta is None or now is None:
        return speed
    band = ""
    if rate.eta_low is not None:
        most = "unknown" if rate.eta_high is None else _span(rate.eta_high - now)
        band = f" ({_span(rate.eta_low - now)} to {most})"
    return f"{speed} · done in about {_span(rate.eta - now)}{band}, {rate.eta:%Y-%m-%d %H:%M} UTC"


def _span(span: timedelta) -> str:
    """In its two largest units: `2h 5m`."""
    minutes = max(0, round(span.total_seconds() / 60))
    if minutes < 1:
        return f"{max(0, int(span.total_seconds()))}s"
    days, hours, minutes = minutes // 1440, minutes // 60 % 24, minutes % 60
    named = [(days, "d"), (hours, "h"), (minutes, "m")]
    first = next(place for place, (number, _) in enumerate(named) if number)
    return " ".join(f"{number}{unit}" for number, unit in named[first : first + 2] if number)


def _issues(issues: Sequence[str], width: int) -> Iterator[Line]:
    for issue in issues:
        # A command stays in one line, to be copied.
        words, colon, command = issue.rpartition(": holdfast ")
        if width_of(issue) + 4 <= width or not colon:
            words, command = issue, ""
        for number, line in enumerate(wrapped(words + (":" if command else ""), width - 4)):
            yield [("    " if number else "  ! ", "yellow"), (line, "")]
        if command:
            yield [(f"    holdfast {command}", "")]
