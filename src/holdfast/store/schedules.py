"""Reads and writes of wakes, of schedules, and of their firings."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.clock import from_micros, to_micros
from holdfast.core.errors import IllegalMove, NotFound, RowDamaged
from holdfast.core.ids import WakeId
from holdfast.core.schedule import Firing, Wake
from holdfast.core.schedule_spec import Declaration, Schedule
from holdfast.core.transitions import FiringStatus, sources_of
from holdfast.store.contract import Row
from holdfast.store.records import Prunable, Records
from holdfast.store.rows.gateway import firing_from_row, row_from_firing, row_from_wake, wake_from_row
from holdfast.store.rows.reading import micros_of
from holdfast.store.rows.schedules import (
    declaration_from_row,
    row_from_declaration,
    row_from_schedule,
    schedule_from_row,
)
from holdfast.store.tasks import LAST, resolve

if TYPE_CHECKING:
    from holdfast.store.transaction import Tx

_LAST_MICROS = 2**62


class WakeTable(Records[Wake]):
    noun = "wake"
    from_row = staticmethod(wake_from_row)
    to_row = staticmethod(row_from_wake)

    def create(self, record: Wake) -> Wake:
        kept = super().create(record)
        self._tx.hint("wakes")
        return kept

    def find(self, wake_id: str) -> Wake | None:
        row = self._sql.one("get_wake", {"id": wake_id})
        return None if row is None else wake_from_row(row)

    def lock(self, wake_id: str) -> Wake:
        """The wake, locked until this transaction ends."""
        row = self._sql.one("lock_wake", {"id": wake_id})
        if row is None:
            raise NotFound("wake", wake_id)
        return wake_from_row(row)

    def resolve(self, prefix: str) -> WakeId:
        return WakeId(resolve(self._tx, "wake", "find_wakes", prefix))

    def fire_due(self, *, due_by: datetime, now: datetime, limit: int) -> list[Wake]:
        """Fire the wakes that are due by a moment. A process that fires at the same time gets others."""
        params = {"due_by": to_micros(due_by), "now": to_micros(now), "limit": limit}
        return [wake_from_row(row) for row in self._sql.all("fire_due_wakes", params)]

    def due(self, *, due_by: datetime, limit: int) -> list[str]:
        """The ids of the wakes that are due by a moment, the first due first."""
        params = {"due_by": to_micros(due_by), "limit": limit}
        return [row[0] for row in self._sql.all("due_wakes", params)]

    def fire(self, wake_id: str, *, now: datetime) -> Wake | None:
        """Fire one wake; None if it is not pending any more."""
        row = self._sql.one("fire_wake", {"id": wake_id, "now": to_micros(now)})
        return None if row is None else wake_from_row(row)

    def reschedule_ahead(
        self, *, now: datetime, slack: timedelta, limit: int
    ) -> list[tuple[str, str, datetime]]:
        """Count the delay of pending wakes from now, if they were written more than `slack` after now;
        returns the id, the task and the new due time of each."""
        params = {"now": to_micros(now), "moment": to_micros(now + slack), "limit": limit}
        found = self._sql.all("reschedule_wakes_ahead", params)
        return [(row[0], row[1], from_micros(row[2])) for row in found]

    def cancel_of(self, task_ids: Sequence[str], *, now: datetime) -> list[tuple[str, str]]:
        """Cancel the pending wakes of these tasks; returns the id and the task of each."""
        params = {"ids": self._sql.pack(task_ids), "now": to_micros(now)}
        return [(row[0], row[1]) for row in self._sql.all("cancel_wakes_of_tasks", params)]

    def pending(self, *, after: tuple[int, str] = (0, ""), limit: int) -> list[Wake]:
        """Wakes that have not fired, the first due first, after one that is due then."""
        params = {"due_at": after[0], "after": after[1], "limit": limit}
        return [wake_from_row(row) for row in self._sql.all("pending_wakes", params)]

    def page(self, *, task_id: str | None = None, before: str = LAST, limit: int = 50) -> list[Wake]:
        """Newest first; the last id of a page is the page token of the next."""
        params: dict[str, object] = {"before": before, "limit": limit}
        name = "page_of_wakes"
        if task_id is not None:
            name, params = f"{name}_of_task", params | {"task_id": task_id}
        return [wake_from_row(row) for row in self._sql.all(name, params)]


class FiringPlace(msgspec.Struct, frozen=True):
    """The place of a firing in the history of all schedules; times are microseconds."""

    created_at: int
    occurrence_at: int
    id: str

    @classmethod
    def of(cls, firing: Firing) -> FiringPlace:
        return cls(to_micros(firing.created_at), to_micros(firing.occurrence_at), firing.id)


class FiringTable(Prunable[Firing]):
    noun = "firing"
    nouns = "firings"
    has_key = True
    from_row = staticmethod(firing_from_row)
    to_row = staticmethod(row_from_firing)

    def find(self, firing: Firing) -> Firing | None:
        """The stored firing with the same id or the same occurrence."""
        row = self._sql.one("find_firing", row_from_firing(firing))
        return None if row is None else firing_from_row(row)

    def move(self, record_id: str, to: StrEnum, *, now: datetime, **guards: object) -> Firing:
        """As for every record; a `why` is kept with it."""
        return super().move(record_id, to, now=now, **{"why": None} | guards)

    def of_message(self, message_id: str) -> Firing | None:
        """The firing that posted this message, or None."""
        row = self._sql.one("find_firing_of_message", {"message_id": message_id})
        return None if row is None else firing_from_row(row)

    def follow(
        self, message_id: str, to: FiringStatus, *, task_id: str | None, now: datetime
    ) -> Firing | None:
        """Move the firing that posted this message along with it; None when there is none, or it has moved
        before."""
        params = {
            "message_id": message_id,
            "to": to.value,
            "task_id": task_id,
            "sources": self._sql.pack(sources_of(to)),
            "now": to_micros(now),
        }
        row = self._sql.one("move_firing_of_message", params)
        return None if row is None else firing_from_row(row)

    def repost(self, firing_id: str, message_id: str, *, now: datetime) -> Firing:
        """Record the new message of a firing that was queued again. Raises IllegalMove if it was not."""
        params = {"id": firing_id, "message_id": message_id, "now": to_micros(now)}
        row = self._sql.one("repost_firing", params)
        if row is None:
            status = self.get(firing_id).status.value
            raise IllegalMove("firing", firing_id, status, FiringStatus.REQUEUED.value)
        return firing_from_row(row)

    def last_of(
        self,
        schedule: str,
        *,
        made_at: datetime | None = None,
        until: datetime | None = None,
        slack: timedelta = timedelta(0),
    ) -> Firing | None:
        """The latest known occurrence, or the latest until a moment, inclusive; with `made_at`, only of the
        schedule that was made then.

        A missed occurrence that was recorded more than `slack` after that moment is left out: the clock of
        the gateway that recorded it was ahead, and it may still fire.
        """
        params = {
            "schedule": schedule,
            "made_at": _made_at(made_at),
            "until": _LAST_MICROS if until is None else to_micros(until),
            "missed_by": _LAST_MICROS if until is None else to_micros(until + slack),
        }
        row = self._sql.one("last_firing", params)
        return None if row is None else firing_from_row(row)

    def page(
        self,
        schedule: str,
        *,
        made_at: datetime | None = None,
        since: datetime | None = None,
        before: datetime | None = None,
        limit: int = 50,
    ) -> list[Firing]:
        """Latest first; the time of the last one is the page token of the next page. With `made_at`, only
        those of the schedule that was made then, and of no other one of its name."""
        params = {
            "schedule": schedule,
            "made_at": _made_at(made_at),
            "since": -_LAST_MICROS if since is None else to_micros(since),
            "before": _LAST_MICROS if before is None else to_micros(before),
            "limit": limit,
        }
        return [firing_from_row(row) for row in self._sql.all("page_of_firings", params)]

    def open(self, *, limit: int) -> list[Firing]:
        """Firings that are due, running or queued again, oldest first."""
        return [firing_from_row(row) for row in self._sql.all("open_firings", {"limit": limit})]

    def open_of(self, schedule: Schedule, *, limit: int) -> list[Firing]:
        """The firings of a schedule that have not ended, oldest first."""
        params = {"schedule": schedule.name, "made_at": to_micros(schedule.created_at), "limit": limit}
        return [firing_from_row(row) for row in self._sql.all("open_firings_of_schedule", params)]

    def newest_of(self, schedule: Schedule, *, until: datetime) -> Firing | None:
        """The newest firing up to a moment, also one that a person asked for."""
        params = {
            "schedule": schedule.name,
            "made_at": to_micros(schedule.created_at),
            "until": to_micros(until),
        }
        row = self._sql.one("newest_firing", params)
        return None if row is None else firing_from_row(row)

    def adopt(self, schedule: Schedule) -> None:
        """Give a schedule of the settings the firings that older releases have recorded under its name."""
        params = {"schedule": schedule.name, "made_at": to_micros(schedule.created_at)}
        self._sql.run("adopt_firings", params)

    def newest(self, *, before: FiringPlace | None = None, limit: int = 50) -> list[Firing]:
        """The firings of all schedules, those that were recorded last first."""
        place = FiringPlace(_LAST_MICROS, _LAST_MICROS, "") if before is None else before
        params = {
            "created_at": place.created_at,
            "occurrence_at": place.occurrence_at,
            "id": place.id,
            "limit": limit,
        }
        return [firing_from_row(row) for row in self._sql.all("page_of_all_firings", params)]

    def startable(self, *, after: Firing | None = None, limit: int) -> list[Firing]:
        """Firings of tasks and commands that have waited and for which no other one is in the way, oldest
        first; and those whose schedule was removed."""
        place = (-1, "") if after is None else (to_micros(after.occurrence_at), after.id)
        params = {"after_at": place[0], "after": place[1], "limit": limit}
        return [firing_from_row(row) for row in self._sql.all("startable_firings", params)]

    def to_settle(self, *, limit: int) -> list[Firing]:
        """Open firings of tasks and commands whose task has ended."""
        return [firing_from_row(row) for row in self._sql.all("firings_to_settle", {"limit": limit})]

    def has_tasks(self) -> bool:
        """Whether an open firing has a task, so that its end is to be looked for."""
        return self._sql.one("count_firings_of_tasks", {}) is not None

    def start(self, firing_id: str, task_id: str, *, now: datetime) -> Firing | None:
        """Give a firing that waited its task; None if it has one, or waits no more."""
        params = {"id": firing_id, "task_id": task_id, "now": to_micros(now)}
        row = self._sql.one("start_firing", params)
        return None if row is None else firing_from_row(row)


def _made_at(moment: datetime | None) -> int:
    return -1 if moment is None else to_micros(moment)


class DuePage(msgspec.Struct, frozen=True, kw_only=True):
    """Schedules that are due, the names of those that cannot be read, and where the next page begins."""

    schedules: list[Schedule]
    damaged: list[str]
    place: tuple[int, str] | None


class ScheduleTable:
    """Schedules by name, and which gateways declare them."""

    def __init__(self, tx: Tx) -> None:
        self._sql = tx.statements
        self._sealing = tx.sealing

    def _read(self, row: Row) -> Schedule:
        return schedule_from_row(row, self._sealing)

    def create(self, schedule: Schedule) -> bool:
        """False if there is one with this name."""
        return self._sql.one("insert_schedule", row_from_schedule(schedule, self._sealing)) is not None

    def find(self, name: str) -> Schedule | None:
        row = self._sql.one("get_schedule", {"name": name})
        return None if row is None else self._read(row)

    def get(self, name: str) -> Schedule:
        found = self.find(name)
        if found is None:
            raise NotFound("schedule", name)
        return found

    def get_many(self, names: Sequence[str]) -> dict[str, Schedule]:
        found = self._sql.all("get_schedules", {"names": self._sql.pack(names)})
        return {row[0]: self._read(row) for row in found}

    def lock(self, name: str) -> Schedule | None:
        """Let no other transaction fire or change it before this one ends."""
        row = self._sql.one("lock_schedule", {"name": name})
        return None if row is None else self._read(row)

    def edit(self, schedule: Schedule, *, expected: int) -> bool:
        """Replace its definition and its place in time; False if it is not at that revision any more."""
        params = row_from_schedule(schedule, self._sealing) | {"expected": expected}
        return self._sql.one("edit_schedule", params) is not None

    def advance(self, schedule: Schedule, *, before: datetime | None) -> bool:
        """Move its place in time on from `before`; False if another gateway or an edit came first."""
        params = {
            "name": schedule.name,
            "revision": schedule.revision,
            "before": -1 if before is None else to_micros(before),
            "since_at": micros_of(schedule.since_at),
            "next_at": micros_of(schedule.next_at),
            "due_at": micros_of(schedule.due_at),
        }
        return self._sql.one("advance_schedule", params) is not None

    def delete(self, name: str) -> bool:
        return self._sql.one("delete_schedule", {"name": name}) is not None

    def due(self, *, now: datetime, after: tuple[int, str] | None = None, limit: int) -> DuePage:
        """What is due, in order; `after` is the place where the page before ended."""
        params = {
            "now": to_micros(now),
            "after_at": -1 if after is None else after[0],
            "after": "" if after is None else after[1],
            "limit": limit,
        }
        rows = self._sql.all("due_schedules", params)
        schedules, damaged = [], []
        for row in rows:
            try:
                schedules.append(self._read(row))
            except RowDamaged:  # one damaged row must not stop the others
                damaged.append(str(row[0]))
        place = (int(rows[-1][12]), str(rows[-1][0])) if len(rows) == limit else None
        return DuePage(schedules=schedules, damaged=damaged, place=place)

    def next_due(self, *, now: datetime) -> int | None:
        """When the next one is due after now, in microseconds."""
        row = self._sql.one("next_due_schedule", {"now": to_micros(now)})
        return None if row is None else int(row[0])

    def ahead(self, *, moment: datetime, limit: int) -> list[Schedule]:
        """Those that count from a time after this moment: a clock was ahead."""
        params = {"moment": to_micros(moment), "limit": limit}
        return [self._read(row) for row in self._sql.all("schedules_ahead", params)]

    def page(self, *, after: str = "", owner: str | None = None, limit: int) -> list[Schedule]:
        """By name; `after` is the name of the last one of the page before."""
        params = {"after": after, "owner": owner, "limit": limit}
        query = "page_of_schedules" if owner is None else "page_of_schedules_of_owner"
        return [self._read(row) for row in self._sql.all(query, params)]

    def count(self) -> tuple[int, int]:
        """How many there are, and how many of them have a next occurrence."""
        row = self._sql.one("count_schedules", {})
        assert row is not None
        return int(row[0]), int(row[1])

    def stamp(self) -> str:
        """A text that changes when a schedule is added, changed or removed."""
        row = self._sql.one("newest_change_of_schedules", {})
        return f"{self.count()[0]}.{0 if row is None else row[0]}"

    def count_of(self, owner: str) -> int:
        """How many schedules of an owner, made at run time, may still fire, now or after a resume."""
        row = self._sql.one("count_schedules_of_owner", {"owner": owner})
        assert row is not None
        return int(row[0])

    def over(self, *, older_than: datetime, limit: int) -> list[str]:
        """One-shots of run time that fired before then."""
        params = {"older_than": to_micros(older_than), "limit": limit}
        return [row[0] for row in self._sql.all("schedules_over", params)]

    # --- declarations of settings

    def declare(self, declaration: Declaration) -> None:
        self._sql.run("declare_schedule", row_from_declaration(declaration))

    def declarations(self, names: Sequence[str]) -> list[Declaration]:
        found = self._sql.all("declarations_of_names", {"names": self._sql.pack(names)})
        return [declaration_from_row(row) for row in found]

    def declared_at(self, place: str) -> list[Declaration]:
        """What the settings of the gateway at that place had."""
        return [declaration_from_row(row) for row in self._sql.all("declarations_at_place", {"place": place})]

    def withdraw(self, name: str, place: str | None = None) -> None:
        """The settings at a place do not have it any more; without a place, at no place."""
        query = "withdraw_declarations" if place is None else "withdraw_declaration"
        self._sql.run(query, {"name": name, "place": place})

    def see(self, place: str, *, now: datetime) -> None:
        """The gateway at that place is still there."""
        self._sql.run("see_declarations", {"place": place, "now": to_micros(now)})
