"""The picture of a timeline: where each bar, band and tick stands, in percent of the width. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from holdfast.views.timeline import RunLaneView, SpanView, TimelineView
from holdfast.web.words import duration, label, plural, tone

# Heights in pixels; widths are percents, so that text keeps its size on a phone.
TOP, LANE = 24, 52
# No bar is narrower than this, so that it can be seen.
NARROWEST = 0.35
# Two labels of bands that are nearer to each other would overlap on a phone.
LABEL_WIDE = 20.0
MAX_TICKS = 5


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """One bar, band or tick: from x, so wide, with the text that explains it."""

    x: str
    width: str
    tone: str
    title: str
    text: str = ""
    # Where its text begins, or ends: `start`, `middle` or `end`.
    anchor: str = "start"


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """One run: its line of text, its bar, and what stands in it."""

    y: int
    text: str
    status: str
    number: int
    bars: list[Mark]
    turns: list[Mark]
    steps: list[Mark]
    waits: list[Mark]


class Drawing(msgspec.Struct, frozen=True, kw_only=True):
    """A timeline as it is drawn."""

    height: int
    lanes: list[Lane]
    bands: list[Mark]
    ticks: list[Mark]
    summary: str
    has_turns: bool
    has_waits: bool
    has_steps: bool


class _Scale(msgspec.Struct, frozen=True):
    began: datetime
    ended: datetime

    def at(self, moment: datetime) -> float:
        whole = (self.ended - self.began) / timedelta(microseconds=1)
        passed = (moment - self.began) / timedelta(microseconds=1)
        return min(100.0, max(0.0, 100.0 * passed / whole))

    def shows(self, began: datetime, ended: datetime) -> bool:
        return ended >= self.began and began <= self.ended

    def mark(
        self,
        began: datetime,
        ended: datetime,
        kind: str,
        title: str,
        *,
        text: str = "",
        least: float = NARROWEST,
    ) -> Mark:
        low, high = self.at(began), self.at(ended)
        wide = min(100.0, max(high - low, least))
        low = min(low, 100.0 - wide)
        return Mark(x=_percent(low), width=_percent(wide), tone=kind, title=title, text=text)


def draw_timeline(view: TimelineView, *, run: int | None = None, turns_done: int) -> Drawing:
    """The whole task, or one of its runs. `turns_done` counts all finished turns of its outermost loops."""
    runs = [one for one in view.runs if run in (None, one.number)] or view.runs
    scale = _scale_of(view, runs, is_one=run is not None and len(runs) == 1)
    bands = _bands(view, scale)
    # The names of the bands stand above the lanes.
    top = TOP if bands else 0
    missing = turns_done if "turns" in view.more else None
    lanes = [_lane(one, scale, top + LANE * place, view.as_of, missing) for place, one in enumerate(runs)]
    return Drawing(
        height=top + LANE * len(lanes) + 22,
        lanes=lanes,
        bands=bands,
        ticks=_ticks(view, scale),
        summary=_summary(view, runs),
        has_turns=any(one.turns for one in lanes),
        has_waits=any(one.waits for one in lanes),
        has_steps=any(one.steps for one in lanes),
    )


def _scale_of(view: TimelineView, runs: Sequence[RunLaneView], *, is_one: bool) -> _Scale:
    began, ended = view.began_at, view.ended_at or view.as_of
    if is_one:
        began, ended = runs[0].queued_at, runs[0].ended_at or view.as_of
    return _Scale(began, max(ended, began + timedelta(milliseconds=1)))


def _lane(run: RunLaneView, scale: _Scale, y: int, now: datetime, turns_done: int | None) -> Lane:
    ended = run.ended_at or now
    began = run.began_at or ended
    name = f"run {run.number}"
    bars = [
        scale.mark(run.queued_at, began, "track", f"{name} was queued for {duration(began - run.queued_at)}")
    ]
    if run.began_at is not None:
        took = duration(max(ended - began, timedelta(0)))
        bars.append(scale.mark(began, ended, tone(run.status), f"{name}: {_status(run)}, {took}"))
    return Lane(
        y=y,
        text=_lane_text(run, now, turns_done),
        status=run.status,
        number=run.number,
        bars=bars,
        turns=_marks(run.turns, scale, "turn", now, LABELS["turn"]),
        steps=_marks(run.steps, scale, "step", now, LABELS["step"]),
        waits=_marks(run.waits, scale, "wait", now, LABELS["wait"]),
    )


LABELS = {"turn": "turn ", "step": "step ", "wait": "waited for "}


def _lane_text(run: RunLaneView, now: datetime, turns_done: int | None) -> str:
    """`turns_done` is given if not all turns are drawn: how many the task has."""
    parts = [f"Run {run.number}", _status(run)]
    if run.began_at is not None:
        waited = sum(((one.ended_at or now) - one.began_at for one in run.waits), timedelta(0))
        worked = duration(max((run.ended_at or now) - run.began_at - waited, timedelta(0)))
        parts.append(f"{worked} of work" if run.waits else worked)
    if run.turns:
        drawn = plural(len(run.turns), "turn")
        if turns_done is not None:
            drawn = f"of {turns_done:,} turns of the task, the newest {len(run.turns):,} drawn"
        parts.append(drawn)
    return " · ".join(parts)


def _status(run: RunLaneView) -> str:
    """A run that was saved before its time limit waits for its wake, not for a restart."""
    is_woken = bool(run.waits) and run.waits[-1].name == "wake" and run.waits[-1].ended_at is None
    return "paused until its wake" if is_woken else label(run.status)


def _marks(spans: Iterable[SpanView], scale: _Scale, kind: str, now: datetime, words: str) -> list[Mark]:
    found = []
    for span in spans:
        ended = span.ended_at or now
        if not scale.shows(span.began_at, ended):
            continue
        took = "" if span.ended_at is None else f", {duration(max(ended - span.began_at, timedelta(0)))}"
        steps = "" if kind != "turn" else f", {plural(span.steps, 'step')}"
        after = duration(max(span.began_at - scale.began, timedelta(0)))
        failed = ", failed" if span.is_failed else ""
        title = f"{words}{span.name}{failed}, after {after}{took}{steps}"
        found.append(scale.mark(span.began_at, ended, f"{kind} bad" if span.is_failed else kind, title))
    return found


def _bands(view: TimelineView, scale: _Scale) -> list[Mark]:
    bands: list[Mark] = []
    free_at = -1.0
    for band in view.restarts:
        ended = band.ended_at or view.as_of
        if not scale.shows(band.began_at, ended):
            continue
        took = duration(max(ended - max(band.began_at, scale.began), timedelta(0)))
        title = f"gateway: {band.kind} ({band.reason}), {took}"
        low = scale.at(band.began_at)
        anchor, text = ("end", band.kind) if low > 100 - LABEL_WIDE else ("start", band.kind)
        if low < free_at:
            text = ""
        else:
            free_at = low + LABEL_WIDE
        mark = scale.mark(band.began_at, ended, "band", title, text=text)
        bands.append(msgspec.structs.replace(mark, anchor=anchor))
    return bands


def _ticks(view: TimelineView, scale: _Scale) -> list[Mark]:
    """From the beginning of the picture: so they need no time zone."""
    whole = scale.ended - scale.began
    ticks = []
    for number in range(MAX_TICKS):
        share = number / (MAX_TICKS - 1)
        anchor = "start" if number == 0 else "end" if number == MAX_TICKS - 1 else "middle"
        text = "start" if number == 0 else f"+{duration(whole * share)}"
        if number == MAX_TICKS - 1 and view.ended_at is None:
            text = f"now, {text}"
        x = _percent(100 * share)
        # On a phone only the first and the last are shown.
        kind = "tick" if anchor != "middle" else "tick between"
        ticks.append(Mark(x=x, width="0", tone=kind, title="", text=text, anchor=anchor))
    return ticks


def _summary(view: TimelineView, runs: Sequence[RunLaneView]) -> str:
    parts = [f"run {one.number} {label(one.status)}" for one in runs]
    restarts = len(view.restarts)
    between = f"; {plural(restarts, 'restart')} of the gateway" if restarts else ""
    return f"Timeline of {view.name}: {', '.join(parts) or 'no run yet'}{between}"


def _percent(number: float) -> str:
    return f"{number:.3f}%"
