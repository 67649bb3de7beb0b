"""CalendarView: the past and the coming firings of schedules in a span of time."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.core.schedule import Firing
from holdfast.core.schedule_spec import Schedule
from holdfast.core.task import Task
from holdfast.views.schedules import outcome_of
from holdfast.views.text import one_line

# The status of a firing that is still to come.
COMING = "coming"
# How a firing ended, if its task has ended before the service has noted it.
_ENDED = {"ok": "done", "error": "failed", "skipped": "missed"}


class CalendarEntryView(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One firing of a schedule: it was, it runs, or it is to come."""

    schedule: str
    at: datetime
    # coming, due, running, done, failed, missed or requeued.
    status: str
    firing_id: str | None = None
    task_id: str | None = None
    # Whether it was interrupted by a restart and queued again.
    is_retry: bool = False
    # `planned`, or `requested` by a person or a program.
    cause: str | None = None
    why: str | None = None

    @classmethod
    def of(cls, firing: Firing, task: Task | None) -> CalendarEntryView:
        outcome, why = outcome_of(firing, task)
        return cls(
            schedule=one_line(firing.schedule),
            at=firing.occurrence_at,
            status=firing.status.value if outcome is None else _ENDED[outcome],
            firing_id=firing.id,
            task_id=firing.task_id,
            is_retry=firing.is_retry,
            cause=firing.cause.value,
            why=why,
        )

    @classmethod
    def coming(cls, name: str, at: datetime) -> CalendarEntryView:
        return cls(schedule=one_line(name), at=at, status=COMING)


class CalendarLineView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One schedule of a calendar."""

    schedule: str
    title: str
    is_on: bool
    tz: str
    # Whether it fires more often in this span than the calendar shows.
    is_cut: bool

    @classmethod
    def of(cls, schedule: Schedule, *, is_cut: bool) -> CalendarLineView:
        return cls(
            schedule=one_line(schedule.name),
            title=one_line(schedule.spec.title or schedule.name),
            is_on=schedule.is_on,
            tz=one_line(schedule.spec.tz),
            is_cut=is_cut,
        )


class CalendarView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The firings of a span, in order of time, and the schedules that they belong to, by name."""

    begins_at: datetime
    ends_at: datetime
    schedules: list[CalendarLineView]
    entries: list[CalendarEntryView]
    # For `pageToken`: the next schedules; null at the end.
    next_page_token: str | None = None
