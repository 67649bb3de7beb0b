"""When a schedule is due: its cron expression, interval or moment, as pure functions of time."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from holdfast.config.wall_clock import first_match, follows_wall_clock, latest_matches
from holdfast.core.clock import to_micros
from holdfast.core.durations import Duration, in_one_unit, parse_duration
from holdfast.core.errors import BadInput
from holdfast.core.schedule_spec import (
    COMMAND_TASK,
    MAX_CATCH_UP,
    MAX_INTERVAL_S,
    MAX_JITTER_S,
    ScheduleSpec,
)
from holdfast.core.session import AGENT_PREFIX

EXAMPLE = "write minute, hour, day, month, weekday, such as 0 9 * * mon-fri"
# More than any clock is set back at the end of summer time.
_REPEATED = timedelta(hours=3)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# How many occurrences are compared to find the shortest interval of a cron expression.
_LOOKED_AT = 200


def check_cron(expression: str) -> None:
    """Raises BadInput for an expression that is wrong or never matches."""
    from cronsim import CronSim, CronSimError

    try:
        # Any time works for this check: it fails for an expression that never matches.
        next(CronSim(expression, datetime(2026, 1, 1, tzinfo=UTC)))
    except (CronSimError, StopIteration) as error:
        why = str(error) or "it never matches"
        raise BadInput("cron", f"{why[0].lower()}{why[1:]}; {EXAMPLE}") from error


def zone_of(name: str) -> ZoneInfo:
    """Raises BadInput for a zone that is not in the IANA list."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # not found; not a key; a directory
        fix = "name a time zone of the IANA list, such as Europe/Berlin or UTC"
        raise BadInput("tz", f"{fix}, not {name[:64]!a}") from None


def seconds_of(field: str, value: Duration) -> int:
    """A duration of whole seconds. Raises BadInput."""
    seconds = parse_duration(field, value).total_seconds()
    if seconds != int(seconds):
        raise BadInput(field, 'write a whole number of seconds or more, such as "30s" or "15m"')
    return int(seconds)


def moment_in(text: str, tz: str) -> datetime:
    """A moment as people write it: with its UTC offset, or as local time of the zone. Raises BadInput."""
    fix = "write it like 2030-01-31T09:00, in the schedule's time zone, or with an offset: 2030-01-31T09:00Z"
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise BadInput("at", f"{text[:64]!a} is not a date with a time; {fix}") from None
    if moment.tzinfo is None:
        local, zone = moment, zone_of(tz)
        moment = local.replace(tzinfo=zone)
        if moment.astimezone(UTC).astimezone(zone).replace(tzinfo=None) != local:
            raise BadInput("at", f"there is no {text[:64]} in {tz}: the clock is set forward then; {fix}")
    try:
        return moment.astimezone(UTC).replace(microsecond=0)
    except OverflowError:
        raise BadInput("at", f"{text[:64]!a} is out of range; {fix}") from None


def check_spec(spec: ScheduleSpec, *, now: datetime | None = None) -> ScheduleSpec:
    """Raises BadInput with the field, the reason and an example. With `now`, it must still be to come."""
    given = [one for one in ("cron", "every_s", "at") if getattr(spec, one) is not None]
    if len(given) != 1:
        why = "it has no time" if not given else f"it has {len(given)} kinds of time"
        fix = 'give exactly one of cron = "0 9 * * *", every = "15m" and at = "2030-01-31T09:00"'
        raise BadInput((given[1] if given else "cron").removesuffix("_s"), f"{why}; {fix}")
    zone_of(spec.tz)
    if spec.cron is not None:
        check_cron(spec.cron)
    if spec.every_s is not None and not 1 <= spec.every_s <= MAX_INTERVAL_S:
        fix = 'write a whole number of seconds or more, at most ten years, such as "15m" or "1h30m"'
        raise BadInput("every", f"an interval of {spec.every_s} s is too short or too long; {fix}")
    if now is not None and next_after(spec, now) is None:
        fix = "give a time that is still to come, such as 2030-01-31T09:00"
        raise BadInput("at", f"{spec.at:%Y-%m-%dT%H:%M:%SZ} has passed, so it would never fire; {fix}")
    if not 0 <= spec.jitter_s <= MAX_JITTER_S:
        raise BadInput("jitter", 'write a duration of at most a day, such as "30s"')
    if spec.jitter_s:
        _check_jitter(spec)
    if not 1 <= spec.max_missed <= MAX_CATCH_UP:
        raise BadInput("max_missed", f"write a number from 1 to {MAX_CATCH_UP}")
    _check_target(spec)
    return spec


def _check_jitter(spec: ScheduleSpec) -> None:
    """An occurrence must fire before the next one is due."""
    shortest = shortest_interval(spec, _EPOCH) if spec.cron is None else _shortest_of_cron(spec.cron, spec.tz)
    if shortest is not None and timedelta(seconds=spec.jitter_s) >= shortest:
        span, half = in_one_unit(shortest), in_one_unit(shortest / 2)
        raise BadInput(
            "jitter", f"must be shorter than the interval of {span} between its times, such as {half}"
        )


@lru_cache(maxsize=1024)
def _shortest_of_cron(expression: str, tz: str) -> timedelta | None:
    """From a fixed time on, so that what is valid once stays valid."""
    return shortest_interval(ScheduleSpec(cron=expression, tz=tz), datetime(2026, 1, 1, tzinfo=UTC))


def _check_target(spec: ScheduleSpec) -> None:
    given = [one for one in ("agent", "task", "command") if getattr(spec, one)]
    if len(given) != 1:
        why = "it has no target" if not given else f"it has {len(given)} targets"
        fix = 'give exactly one of agent (with prompt), task = "module:task" and command = ["program"]'
        raise BadInput(given[1] if given else "agent", f"{why}; {fix}")
    if spec.agent is not None and not (spec.prompt or "").strip():
        raise BadInput("prompt", "write what the agent should do")
    if spec.agent is None and spec.prompt is not None:
        raise BadInput("prompt", "only an agent gets a prompt; name the agent, or leave the prompt out")
    if spec.task is None and spec.arguments:
        raise BadInput("arguments", "only a task has arguments; name the task, or leave them out")
    if spec.task == COMMAND_TASK:
        raise BadInput("task", f'{COMMAND_TASK} runs the commands of schedules; write command = ["program"]')
    if spec.task is not None and spec.task.startswith(AGENT_PREFIX):
        agent = spec.task.removeprefix(AGENT_PREFIX)
        raise BadInput("task", f'an agent gets a prompt, not a task; write agent = "{agent}" with a prompt')
    if not spec.command and (spec.directory is not None or spec.timeout_s is not None):
        field = "directory" if spec.directory is not None else "timeout_s"
        raise BadInput(field, "only a command has it; leave it out")
    if spec.command and (not spec.command[0].strip() or any("\0" in word for word in spec.command)):
        raise BadInput("command", "start with the program, then one string for each argument")
    if spec.timeout_s is not None and not 0 < spec.timeout_s <= MAX_INTERVAL_S:
        raise BadInput("timeout_s", "write a number of seconds, more than 0 and at most ten years")


def next_after(spec: ScheduleSpec, moment: datetime) -> datetime | None:
    """The first occurrence after a moment, in UTC; None if there is none."""
    if spec.at is not None:
        return spec.at if spec.at > moment else None
    if spec.every_s is not None:
        anchor, every = spec.anchor_at or _EPOCH, timedelta(seconds=spec.every_s)
        passed = (moment - anchor) // every
        return anchor + every * max(passed + 1, 0)
    assert spec.cron is not None
    if follows_wall_clock(spec.cron):
        return first_match(spec.cron, ZoneInfo(spec.tz), moment)
    from cronsim import CronSim

    for occurrence in CronSim(spec.cron, moment.astimezone(ZoneInfo(spec.tz))):
        # In an hour that repeats, a search by local time may begin before the moment.
        if (found := occurrence.astimezone(UTC)) > moment:
            return found
    return None


def due_between(spec: ScheduleSpec, after: datetime, until: datetime, *, limit: int) -> list[datetime]:
    """The occurrences after one moment, up to and including another; of many, only the latest `limit`."""
    latest = itertools.islice(_backwards(spec, until), limit)
    return list(itertools.takewhile(lambda one: one > after, latest))[::-1]


def _backwards(spec: ScheduleSpec, until: datetime) -> Iterator[datetime]:
    if spec.at is not None:
        if spec.at <= until:
            yield spec.at
    elif spec.every_s is not None:
        anchor, every = spec.anchor_at or _EPOCH, timedelta(seconds=spec.every_s)
        for count in range((until - anchor) // every, -1, -1):
            yield anchor + every * count
    else:
        yield from _cron_backwards(spec, until)


def _cron_backwards(spec: ScheduleSpec, until: datetime) -> Iterator[datetime]:
    assert spec.cron is not None
    if follows_wall_clock(spec.cron):
        yield from latest_matches(spec.cron, ZoneInfo(spec.tz), until)
        return
    from cronsim import CronSim

    # Start at the next whole second, so that an occurrence at `until` itself is found.
    zone, start = ZoneInfo(spec.tz), until.replace(microsecond=0) + timedelta(seconds=1)
    if start.astimezone(zone).utcoffset() != (start - _REPEATED).astimezone(zone).utcoffset():
        # In an hour that repeats at the end of summer time, a search by local time skips the first pass.
        start += _REPEATED
    last: datetime | None = None
    for occurrence in CronSim(spec.cron, start.astimezone(zone), reverse=True):
        moment = occurrence.astimezone(UTC)
        if moment <= until and (last is None or moment < last):
            last = moment
            yield moment


def shortest_interval(spec: ScheduleSpec, now: datetime) -> timedelta | None:
    """The shortest time between two of its next occurrences; None for a schedule that fires once."""
    if spec.every_s is not None:
        return timedelta(seconds=spec.every_s)
    gaps: list[timedelta] = []
    before = next_after(spec, now)
    while before is not None and len(gaps) < _LOOKED_AT:
        after = next_after(spec, before)
        if after is None:
            break
        gaps.append(after - before)
        before = after
    return min(gaps, default=None)


def jitter_of(name: str, occurrence_at: datetime, jitter_s: int) -> timedelta:
    """How much later than planned an occurrence fires: the same for every gateway that computes it."""
    if jitter_s == 0:
        return timedelta(0)
    text = f"{name}@{to_micros(occurrence_at)}".encode()
    chance = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest())
    return timedelta(milliseconds=chance % (jitter_s * 1000))
