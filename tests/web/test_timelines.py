"""The picture of a timeline: what each lane says of its run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from holdfast.views.timeline import RunLaneView, SpanView, TimelineView
from holdfast.web.timelines import draw_timeline

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def later(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def a_span(name: str, began_s: float, ended_s: float | None) -> SpanView:
    return SpanView(name=name, began_at=later(began_s), ended_at=None if ended_s is None else later(ended_s))


def lane(view: TimelineView, *, turns_done: int = 0) -> str:
    (found,) = draw_timeline(view, turns_done=turns_done).lanes
    return found.text


def a_timeline(status: str, *, more: tuple[str, ...] = (), **spans: list[SpanView]) -> TimelineView:
    run = RunLaneView(
        run_id="run_1",
        number=1,
        status=status,
        queued_at=NOON,
        began_at=NOON,
        ended_at=None,
        turns=spans.get("turns", []),
        waits=spans.get("waits", []),
    )
    return TimelineView(
        task_id="task_1",
        name="count",
        status="running",
        began_at=NOON,
        ended_at=None,
        as_of=later(625),
        runs=[run],
        more=list(more),
    )


def test_a_lane_says_how_many_turns_there_are_if_only_the_newest_are_drawn() -> None:
    turns = [a_span(f"turns:{number}", number, number + 1) for number in range(925, 1225)]
    view = a_timeline("running", turns=turns)

    assert lane(view, turns_done=300) == "Run 1 · running · 10 min 25 s · 300 turns"
    view = a_timeline("running", more=("turns",), turns=turns)
    assert lane(view, turns_done=1224) == (
        "Run 1 · running · 10 min 25 s · of 1,224 turns of the task, the newest 300 drawn"
    )


def test_a_run_that_was_saved_before_its_limit_waits_for_its_wake() -> None:
    view = a_timeline("paused_for_restart", waits=[a_span("wake", 2, None)])

    drawing = draw_timeline(view, turns_done=0)

    assert drawing.lanes[0].text == "Run 1 · paused until its wake · 2 s of work"
    assert drawing.has_waits
    view = a_timeline("paused_for_restart", waits=[a_span("resume", 5, None)])
    assert lane(view) == "Run 1 · paused for restart · 5 s of work"
