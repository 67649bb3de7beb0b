"""Tools with which an agent schedules prompts for its own session, within the limits of the settings."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.errors import BadInput, NameTaken, NotFound, NotInRun, Refused
from holdfast.core.session import acting_session, agent_of, is_session_key
from holdfast.core.step_declarations import idempotent, read, tool

if TYPE_CHECKING:
    from holdfast.core.schedule_spec import Schedule
    from holdfast.engine.client.schedules import Schedules
    from holdfast.engine.program.live_run import LiveRun
    from holdfast.engine.schedules.changes import ScheduleLimits

# Without a gateway: what its settings have as defaults.
DEFAULT_MOST = 20
DEFAULT_MIN_INTERVAL = timedelta(minutes=5)
MOST_SHOWN = 50

# The limits of the gateway that runs the present task; called at each use, because settings may change.
_limits: ContextVar[Callable[[], ScheduleLimits] | None] = ContextVar(
    "holdfast_schedule_limits", default=None
)


class OwnSchedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One schedule of the agent's session."""

    name: str
    # `0 9 * * *`, `every 900 s` or a moment.
    when: str
    # None if it does not fire any more, or is paused.
    next_at: str | None = None
    prompt: str | None = None


class OwnSchedules(msgspec.Struct, frozen=True, kw_only=True):
    """The schedules of the agent's session, by name."""

    schedules: tuple[OwnSchedule, ...] = ()


class ScheduleRemoved(msgspec.Struct, frozen=True, kw_only=True):
    """Whether there was such a schedule."""

    removed: bool


@contextlib.contextmanager
def scheduling_within(limits: Callable[[], ScheduleLimits]) -> Iterator[None]:
    """Runs that start inside the block schedule within these limits."""
    token = _limits.set(limits)
    try:
        yield
    finally:
        _limits.reset(token)


@tool(effect=idempotent, name="schedule_prompt", raises=(BadInput, NameTaken, NotInRun, Refused))
async def schedule_prompt(
    name: str,
    prompt: str,
    *,
    cron: str | None = None,
    every: str | None = None,
    at: str | None = None,
    tz: str = "UTC",
) -> OwnSchedule:
    """Send a prompt to this session by itself: by a cron expression, at an interval such as "2h", or once, at
    a moment such as "2030-01-31T09:00". Give exactly one of them. The same schedule again changes nothing."""
    live = _live("schedule_prompt")
    own = _own(live)
    owner = acting_session(live.task)
    agent = agent_of(owner)
    session = owner.removeprefix(f"agent:{agent}:")
    try:
        made = await own.add(
            name, cron=cron, every=every, at=at, tz=tz, agent=agent, session=session, prompt=prompt
        )
    except NameTaken:
        # The process may have died after it added it, before the step was saved.
        try:
            made = await own.get(name)
        except NotFound:
            raise NameTaken(name) from None
        if not _is_same(made, prompt, cron=cron, every=every, at=at, tz=tz):
            raise
    return _shown(made)


@tool(effect=read, name="my_schedules", raises=(NotInRun, Refused))
async def my_schedules() -> OwnSchedules:
    """The schedules that belong to this session."""
    found = await _own(_live("my_schedules")).page(limit=MOST_SHOWN)
    return OwnSchedules(schedules=tuple(map(_shown, found)))


@tool(effect=idempotent, name="remove_my_schedule", raises=(NotInRun, Refused))
async def remove_my_schedule(name: str) -> ScheduleRemoved:
    """Remove a schedule that belongs to this session; its history stays."""
    try:
        await _own(_live("remove_my_schedule")).remove(name)
    except NotFound:
        return ScheduleRemoved(removed=False)
    return ScheduleRemoved(removed=True)


def _live(name: str) -> LiveRun:
    from holdfast.engine.program.live_run import running  # heavy, and needed only inside a run

    live = running.get()
    if live is None:
        raise NotInRun(name)
    return live


def _own(live: LiveRun) -> Schedules:
    from holdfast.engine.client.schedules import Schedules
    from holdfast.engine.schedules.changes import ScheduleLimits

    owner = acting_session(live.task)
    if not is_session_key(owner):
        raise Refused(f"only an agent has schedules of its own, and this task belongs to {owner}")
    given = _limits.get()
    limits = (
        ScheduleLimits(most=DEFAULT_MOST, min_interval=DEFAULT_MIN_INTERVAL) if given is None else given()
    )
    return Schedules(live.store, live.clock, owner, only_owner=True, limits=limits)


def _is_same(
    made: Schedule, prompt: str, *, cron: str | None, every: str | None, at: str | None, tz: str
) -> bool:
    from holdfast.engine.client.schedules import times_of

    spec, asked = made.spec, times_of(cron, every, at, tz)
    times = {"cron": spec.cron, "every_s": spec.every_s, "at": spec.at}
    return (spec.prompt, spec.tz) == (prompt, tz) and all(
        asked[one] == found for one, found in times.items() if one in asked
    )


def _shown(schedule: Schedule) -> OwnSchedule:
    spec = schedule.spec
    when = spec.cron or (f"every {spec.every_s} s" if spec.at is None else spec.at.isoformat())
    return OwnSchedule(
        name=schedule.name,
        when=when,
        next_at=None if schedule.next_at is None else schedule.next_at.isoformat(),
        prompt=spec.prompt,
    )
