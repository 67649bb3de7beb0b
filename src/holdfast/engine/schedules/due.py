"""Which occurrences of a schedule fire now, which are missed, and when it is due next."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from holdfast.config.timetable import due_between, jitter_of, next_after
from holdfast.core.schedule_spec import MissedPolicy, Schedule

# Older occurrences are not caught up, unless all are: the answer would be out of date.
CATCH_UP = timedelta(hours=24)
# With `skip`, an occurrence is missed if no gateway fires it within this time.
ON_TIME = timedelta(seconds=60)
# How many missed occurrences of one schedule are recorded: the latest ones.
MAX_MISSED = 100


class DueOccurrences(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of the occurrences up to now, in order."""

    fires: list[datetime] = []
    # Each with the reason.
    misses: list[tuple[datetime, str]] = []
    # The schedule as it is afterwards.
    schedule: Schedule


def placed(schedule: Schedule, since: datetime | None) -> Schedule:
    """The schedule, settled up to a moment, with its next occurrence."""
    if not schedule.is_on or since is None:
        return msgspec.structs.replace(schedule, since_at=since, next_at=None, due_at=None)
    next_at = next_after(schedule.spec, since)
    due_at = None
    if next_at is not None:
        due_at = next_at + jitter_of(schedule.name, next_at, schedule.spec.jitter_s)
    return msgspec.structs.replace(schedule, since_at=since, next_at=next_at, due_at=due_at)


def look_at(schedule: Schedule, now: datetime) -> DueOccurrences:
    """What is due of a schedule that has begun and is on."""
    spec, since = schedule.spec, schedule.since_at
    assert since is not None
    found: list[datetime] = []
    for one in due_between(spec, since, now, limit=MAX_MISSED + 1):
        if one + jitter_of(schedule.name, one, spec.jitter_s) > now:
            break  # it and those after it come later
        found.append(one)
    if not found:
        return DueOccurrences(schedule=placed(schedule, since))
    fires = _to_fire(schedule, found, now)
    misses = [(one, _why(schedule, one, now)) for one in found if one not in fires]
    return DueOccurrences(fires=fires, misses=misses, schedule=placed(schedule, found[-1]))


def _to_fire(schedule: Schedule, found: list[datetime], now: datetime) -> list[datetime]:
    spec, latest = schedule.spec, found[-1]
    late = now - latest - jitter_of(schedule.name, latest, spec.jitter_s)
    match spec.missed:
        case MissedPolicy.SKIP:
            return [latest] if late <= ON_TIME else []
        case MissedPolicy.LATEST:
            # A moment that was named is never out of date: it is all that this schedule is for.
            return [latest] if late <= CATCH_UP or spec.at is not None else []
        case MissedPolicy.ALL:
            return found[-spec.max_missed :]


def _why(schedule: Schedule, one: datetime, now: datetime) -> str:
    if schedule.spec.missed is MissedPolicy.LATEST and now - one <= CATCH_UP:
        return "a later occurrence fired instead: missed = latest"
    return f"no gateway fired it in time: missed = {schedule.spec.missed.value}"
