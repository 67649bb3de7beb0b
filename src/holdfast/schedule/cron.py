"""Service: posts the prompt of each schedule once per occurrence, and catches up on missed ones."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim

from holdfast.config.sections import ScheduleSettings
from holdfast.core.clock import Clock, from_micros, to_micros
from holdfast.core.errors import StoreUnavailable
from holdfast.core.events import EventKind
from holdfast.core.ids import check_id, new_firing_id, new_message_id
from holdfast.core.jumps import TOLERANCE
from holdfast.core.message import CRON_CHANNEL
from holdfast.core.schedule import Firing, occurrence_id
from holdfast.core.session import session_key
from holdfast.core.task import Origin
from holdfast.core.transitions import FiringStatus, MessageStatus
from holdfast.engine.aio.service import Service
from holdfast.engine.clocks.jump_watch import ClockWatch
from holdfast.engine.conversation.transcripts import new_message, post, tell_fired
from holdfast.store import Store, Tx, Write

log = logging.getLogger("holdfast")

# The longest pause between two passes.
EVERY_S = 30.0
# Older occurrences are not caught up: the answer would be out of date.
CATCH_UP = timedelta(hours=24)
# How many missed occurrences of one schedule are recorded: the latest ones.
MAX_MISSED = 100

_FIRED_SOON_S = 0.05


class ScheduleStart(msgspec.Struct, frozen=True, kw_only=True):
    """From when on a schedule counts with its present settings; earlier occurrences do not exist for it."""

    cron: str
    tz: str
    is_enabled: bool
    since: int

    def is_as(self, settings: ScheduleSettings) -> bool:
        return (self.cron, self.tz, self.is_enabled) == (settings.cron, settings.tz, settings.is_enabled)


class Fired(msgspec.Struct, frozen=True, kw_only=True):
    """What one pass did."""

    fired: int = 0
    missed: int = 0


class Cron(Service):
    """Several gateways may run this service on one ledger: each occurrence fires once."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        schedules: Mapping[str, ScheduleSettings],
        *,
        watch: ClockWatch | None = None,
        every_s: float = EVERY_S,
    ) -> None:
        """`schedules` by name; it may be replaced while the service runs. Without a watch, jumps of the clock
        are not noticed."""
        super().__init__(every_s=every_s)
        self.schedules = schedules
        self._store = store
        self._clock = clock
        self._watch = watch
        # How far the time that schedules follow was behind the clock at the last look.
        self._lag = timedelta(0)
        self._is_held = False
        # As this process has it: another gateway may have another schedule with that name.
        self._known: dict[str, ScheduleStart] = {}
        # The session of each schedule, and until when no other gateway was seen to fire it into another one.
        self._targets: dict[str, tuple[str, datetime]] = {}

    def hold(self) -> None:
        """Fire nothing from now on; what becomes due meanwhile is caught up later. Safe to call twice."""
        self._is_held = True

    def go_on(self) -> None:
        self._is_held = False

    async def run_once(self) -> Fired:
        """Fire the latest due occurrence of each schedule, and record earlier ones as missed.

        An error of one schedule is logged, and the others go on. Raises StoreUnavailable.
        """
        fired = missed = 0
        now = await self._present()
        if now is None:
            return Fired()
        for name, settings in sorted(self.schedules.items()):
            if self._is_held:
                break
            try:
                did = await self._look_at(name, settings, now)
            except StoreUnavailable:
                raise  # the other schedules need the ledger, too
            except Exception:  # a damaged record, or an unexpected error
                log.exception("schedule %s could not be checked; the others go on", name)
            else:
                fired += did.fired
                missed += did.missed
        return Fired(fired=fired, missed=missed)

    async def _look_at(self, name: str, settings: ScheduleSettings, now: datetime) -> Fired:
        """Fire and record the occurrences of one schedule up to now."""
        fired = missed = 0
        since = await self._since(name, settings, now)
        due = due_between(settings, since, now) if settings.is_enabled else []
        for place, occurrence_at in enumerate(due):
            is_late = now - occurrence_at > CATCH_UP
            if place < len(due) - 1 or is_late:
                missed += await self._miss(name, settings, occurrence_at, now)
            else:
                fired += await self._fire(name, settings, occurrence_at, now)
        return Fired(fired=fired, missed=missed)

    async def requeue(self, firing_id: str) -> Firing:
        """Queue an interrupted or failed firing again, with its flag; see `requeuing`."""
        return await self._store.write(requeuing(firing_id, now=self._clock.now()))

    # --- when

    async def _present(self) -> datetime | None:
        """The time that schedules follow; None while the clock is not trusted."""
        present = self._clock.now() if self._watch is None else await self._watch.firing_time()
        self._lag = timedelta(0) if present is None else self._clock.now() - present
        return present

    async def _since(self, name: str, settings: ScheduleSettings, now: datetime) -> datetime:
        """The last recorded occurrence; or now, for a schedule that is new or was changed."""
        since = from_micros((await self._as_set(name, settings, now)).since)
        # Ignore firings in the future, from a clock that was ahead; each occurrence fires once in any case.
        last = await self._store.read(lambda tx: tx.firings.last_of(name, until=now, slack=TOLERANCE))
        self._check_target(name, session_key(settings.agent, settings.session), last, now)
        return since if last is None else max(since, last.occurrence_at)

    async def _as_set(self, name: str, settings: ScheduleSettings, now: datetime) -> ScheduleStart:
        """Read and written only at the start and when settings change: gateways whose settings differ must
        not overwrite each other's again and again."""
        fact, known = f"schedule {name}", self._known.get(name)
        if known is None or not known.is_as(settings):
            known = _read_since(await self._store.read(lambda tx: tx.boots.fact(fact)))
        is_ahead = known is not None and known.since > to_micros(now)
        if known is None or is_ahead or not known.is_as(settings):
            if is_ahead:
                log.warning("schedule %s was recorded as starting in the future; it starts now instead", name)
            elif known is not None:
                log.info("schedule %s was changed (it was %s); it counts from now on", name, known.cron)
            known = ScheduleStart(
                cron=settings.cron, tz=settings.tz, is_enabled=settings.is_enabled, since=to_micros(now)
            )
            encoded = msgspec.json.encode(known).decode()
            await self._store.write(lambda tx: tx.boots.set_fact(fact, encoded))
        self._known[name] = known
        return known

    def _check_target(self, name: str, key: str, last: Firing | None, now: datetime) -> None:
        """Warn when another gateway fires a schedule of this name into another session: only one fires."""
        known, known_at = self._targets.get(name, ("", now))
        if known != key:
            known_at = now
        if last is not None and last.session_key != key and last.created_at > known_at:
            log.error(
                "schedule %s fired for %s at another gateway, so not for %s here; rename one of them",
                name,
                last.session_key,
                key,
            )
            known_at = last.created_at
        self._targets[name] = (key, known_at)

    def next_due_at(self) -> datetime | None:
        """When the next schedule is due, by the settings."""
        now = self._clock.now() - self._lag
        return min((next_after(one, now) for one in self.schedules.values() if one.is_enabled), default=None)

    async def _pause(self) -> None:
        """Sleep until the next schedule is due, but not longer than EVERY_S."""
        due_at, delay_s = self.next_due_at(), self.every_s
        if due_at is not None:
            until_s = (due_at - self._clock.now() + self._lag).total_seconds()
            delay_s = min(delay_s, max(until_s, 0.0) + _FIRED_SOON_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self._stop.wait()

    # --- what

    async def _fire(
        self, name: str, settings: ScheduleSettings, occurrence_at: datetime, now: datetime
    ) -> bool:
        message = new_message(
            session_key(settings.agent, settings.session),
            settings.prompt,
            Origin(channel=CRON_CHANNEL, peer=name),
            channel_message_id=occurrence_id(name, occurrence_at),
            now=now,
        )
        firing = Firing(
            id=new_firing_id(now),
            schedule=name,
            occurrence_at=occurrence_at,
            session_key=message.session_key,
            message_id=message.id,
            created_at=now,
            updated_at=now,
        )

        def fire(tx: Tx) -> bool:
            before = tx.firings.find(firing)
            if before is not None and _is_premature(before, now):
                tx.firings.delete([before.id])
            elif before is not None:
                return before.id == firing.id
            if tx.firings.create(firing).id != firing.id:
                return False  # another gateway was quicker
            post(tx, message)
            tell_fired(tx, firing, now)
            return True

        return await self._store.write(fire)

    async def _miss(
        self, name: str, settings: ScheduleSettings, occurrence_at: datetime, now: datetime
    ) -> bool:
        firing = Firing(
            id=new_firing_id(now),
            schedule=name,
            occurrence_at=occurrence_at,
            session_key=session_key(settings.agent, settings.session),
            created_at=now,
            status=FiringStatus.MISSED,
            updated_at=now,
        )

        def miss(tx: Tx) -> bool:
            before = tx.firings.find(firing)
            if before is not None:
                return before.id == firing.id
            if tx.firings.create(firing).id != firing.id:
                return False
            tx.emit(
                EventKind.SCHEDULE_MISSED,
                firing.id,
                at=now,
                schedule=name,
                occurrence_at=occurrence_at.isoformat(),
            )
            return True

        return await self._store.write(miss)


def requeuing(firing_id: str, *, now: datetime) -> Write[Firing]:
    """The write that queues a firing again, with its flag. One that is due, done or missed stays as it is.

    If its task goes on after the interruption, that task answers; if there is none, the prompt is posted
    again.
    """
    check_id("firing", firing_id)
    message_id = new_message_id(now)

    def requeue(tx: Tx) -> Firing:
        # Lock the session first, as every other write does, to avoid a deadlock.
        tx.sessions.hold(tx.firings.get(firing_id).session_key)
        firing = tx.firings.get(firing_id)
        if firing.status not in (FiringStatus.RUNNING, FiringStatus.FAILED) or firing.message_id is None:
            return firing
        asked = tx.messages.get(firing.message_id)
        firing = tx.firings.move(firing_id, FiringStatus.REQUEUED, now=now)
        if asked.status in (MessageStatus.FAILED, MessageStatus.NOTED):
            name = occurrence_id(firing.schedule, firing.occurrence_at)
            again = msgspec.structs.replace(
                asked,
                id=message_id,
                position=0,
                channel_message_id=f"{name}#{message_id}",
                status=MessageStatus.QUEUED,
                task_id=None,
                created_at=now,
                updated_at=now,
            )
            post(tx, again)
            firing = tx.firings.repost(firing_id, message_id, now=now)
        tell_fired(tx, firing, now)
        return firing

    return requeue


def _is_premature(firing: Firing, now: datetime) -> bool:
    """Whether a clock that was ahead recorded it as missed before its time."""
    return firing.status is FiringStatus.MISSED and firing.created_at > now + TOLERANCE


def _read_since(text: str | None) -> ScheduleStart | None:
    """None also for a value that cannot be read: then the schedule counts as new."""
    try:
        return None if text is None else msgspec.json.decode(text, type=ScheduleStart)
    except msgspec.DecodeError:
        return None


# --- occurrences


def next_after(settings: ScheduleSettings, moment: datetime) -> datetime:
    """The first occurrence after a moment, in the schedule's own time zone, given in UTC."""
    return next(CronSim(settings.cron, moment.astimezone(ZoneInfo(settings.tz)))).astimezone(UTC)


def due_between(settings: ScheduleSettings, after: datetime, until: datetime) -> list[datetime]:
    """The occurrences after one moment, up to and including another; only the latest if there are many."""
    latest = itertools.islice(_backwards(settings, until), MAX_MISSED + 1)
    return list(itertools.takewhile(lambda one: one > after, latest))[::-1]


# More than any clock is set back at the end of summer time.
_REPEATED = timedelta(hours=3)


def _backwards(settings: ScheduleSettings, until: datetime) -> Iterator[datetime]:
    # Start at the next whole second, so that an occurrence at `until` itself is found.
    zone, start = ZoneInfo(settings.tz), until.replace(microsecond=0) + timedelta(seconds=1)
    if start.astimezone(zone).utcoffset() != (start - _REPEATED).astimezone(zone).utcoffset():
        # In an hour that repeats at the end of summer time, a search by local time skips the first pass.
        start += _REPEATED
    for occurrence in CronSim(settings.cron, start.astimezone(zone), reverse=True):
        if (moment := occurrence.astimezone(UTC)) <= until:
            yield moment
