"""Service: fires each due occurrence of each schedule once, and records those that were missed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from holdfast.config.sections import ScheduleSettings
from holdfast.core.clock import Clock, from_micros
from holdfast.core.errors import HoldfastError, StoreUnavailable
from holdfast.core.ids import check_id, new_message_id
from holdfast.core.jumps import TOLERANCE
from holdfast.core.schedule import Firing, occurrence_id
from holdfast.core.schedule_spec import Schedule, ScheduleSource, ScheduleSpec
from holdfast.core.transitions import FiringStatus, MessageStatus
from holdfast.engine.aio.polling import PollingService
from holdfast.engine.clocks.jump_watch import ClockWatch
from holdfast.engine.conversation.transcripts import post, tell_fired
from holdfast.engine.schedules.declarations import RELEASE_AFTER, declaring
from holdfast.engine.schedules.due import DueOccurrences, look_at, placed
from holdfast.engine.schedules.firing import Fired, firing_due, settling, starting
from holdfast.engine.schedules.targets import without_target
from holdfast.store import Store, Tx, Write
from holdfast.store.schedules import DuePage

log = logging.getLogger("holdfast")

# The longest pause between two passes, and the pause while the end of a task is waited for.
EVERY_S = 30.0
WATCHING_S = 1.0
BATCH = 200
# So many schedules are written at once, so that they share commits.
_TOGETHER = 20
# How often a gateway tells the ledger that its declarations still hold.
_SEEN_EVERY = timedelta(minutes=10)
# One-shots of run time are kept for so long after they fired.
_KEEP_OVER = timedelta(days=7)

_FIRED_SOON_S = 0.05


class Cron(PollingService):
    """Several gateways may run this service on one ledger: each occurrence fires once."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        schedules: Mapping[str, ScheduleSettings],
        *,
        place: str = "",
        owner: str = "system",
        names: Collection[str] | None = None,
        specs_of: Callable[[Mapping[str, ScheduleSettings]], dict[str, ScheduleSpec]] | None = None,
        watch: ClockWatch | None = None,
        every_s: float = EVERY_S,
        release_after: timedelta = RELEASE_AFTER,
    ) -> None:
        """`schedules` of the settings by name; they may be replaced while the service runs. `place` names the
        gateway that has these settings, and `names` the tasks that it can run; None for any. Without a watch,
        jumps of the clock are not noticed."""
        super().__init__(store, "schedules", every_s=every_s)
        self.schedules = schedules
        self.release_after = release_after
        self._clock = clock
        self._place = place
        self._owner = owner
        self._names = None if names is None else frozenset(names)
        self._specs_of = _specs if specs_of is None else specs_of
        self._watch = watch
        # How far the time that schedules follow was behind the clock at the last look.
        self._lag = timedelta(0)
        self._is_held = False
        # The settings that the ledger has from this gateway, and when it was told so last.
        self._declared: Mapping[str, ScheduleSettings] | None = None
        self._seen_at: datetime | None = None
        self._next_due: datetime | None = None
        self._has_open = False
        # The schedules about which it was logged that no gateway has their target.
        self._told: frozenset[str] = frozenset()

    def hold(self) -> None:
        """Fire nothing from now on; what becomes due meanwhile is caught up later. Safe to call twice."""
        self._is_held = True

    def go_on(self) -> None:
        self._is_held = False
        self.look()

    def hurry(self) -> None:
        self.stop()

    async def declare(self, schedules: Mapping[str, ScheduleSettings] | None = None) -> None:
        """Bring the schedules of the settings into the ledger. Raises SettingsError, and changes nothing, if
        one of the names is in use for another target."""
        wanted = self.schedules if schedules is None else schedules
        now = self._clock.now()
        write = declaring(
            self._place, self._specs_of(wanted), owner=self._owner, now=now, release_after=self.release_after
        )
        await self._store.write(write)
        self.schedules = self._declared = wanted
        self._seen_at = now

    async def run_once(self) -> Fired:
        """Fire what is due, by the policy of each schedule; start what has waited; end what has ended.

        An error of one schedule is logged, and the others go on. Raises StoreUnavailable.
        """
        if self._declared is not self.schedules and (self._place or self.schedules or self._declared):
            await self.declare()
        now = await self._present()
        if now is None or self._is_held:
            return Fired()
        await self._stay(now)
        await self._rewind(now)
        fired = missed = 0
        left: list[Schedule] = []
        after: tuple[int, str] | None = None
        while not self._is_held:
            page = await self._due(now, after)
            for name in page.damaged:
                log.error(
                    "schedule %s could not be read, so it does not fire: run `holdfast store verify`", name
                )
            ours = [one for one in page.schedules if self._is_ours(one)]
            left += [one for one in page.schedules if not self._is_ours(one)]
            for some in _chunks(ours, _TOGETHER):
                did = await asyncio.gather(*(self._guarded(one, now) for one in some))
                fired += sum(one.fired for one in did)
                missed += sum(one.missed for one in did)
            if (after := page.place) is None:
                break
        await self._tell_without_target(left, now)
        await self._follow(now)
        next_due, self._has_open = await self._store.read(
            lambda tx: (tx.schedules.next_due(now=now), tx.firings.has_tasks())
        )
        self._next_due = None if next_due is None else from_micros(next_due)
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

    async def _stay(self, now: datetime) -> None:
        """Tell the ledger now and then that this gateway is there; forget one-shots that are long over."""
        if self._seen_at is not None and abs(now - self._seen_at) < _SEEN_EVERY:
            return
        self._seen_at = now

        def stay(tx: Tx) -> None:
            tx.schedules.see(self._place, now=now)
            for name in tx.schedules.over(older_than=now - _KEEP_OVER, limit=BATCH):
                tx.schedules.delete(name)

        await self._store.write(stay)

    async def _rewind(self, now: datetime) -> None:
        """Take back what a clock that was ahead has moved into the future; what has fired does not fire
        again."""
        moment = now + TOLERANCE
        for schedule in await self._store.read(lambda tx: tx.schedules.ahead(moment=moment, limit=BATCH)):
            log.warning(
                "schedule %s was settled up to a time in the future; it goes on from now", schedule.name
            )

            def rewind(tx: Tx, schedule: Schedule = schedule) -> None:
                last = tx.firings.last_of(
                    schedule.name, made_at=schedule.created_at, until=now, slack=TOLERANCE
                )
                since = min(schedule.updated_at, now) if last is None else last.occurrence_at
                if schedule.updated_at > moment:
                    since = now  # it was made or changed while the clock was ahead
                tx.schedules.advance(placed(schedule, since), before=schedule.since_at)

            await self._store.write(rewind)

    async def _due(self, now: datetime, after: tuple[int, str] | None) -> DuePage:
        return await self._store.read(lambda tx: tx.schedules.due(now=now, after=after, limit=BATCH))

    def _is_ours(self, schedule: Schedule) -> bool:
        """Whether this gateway fires it: one of other settings, or for a task that is not known here, is left
        to the gateway that has it."""
        if schedule.source is ScheduleSource.SETTINGS and schedule.name not in self.schedules:
            return False
        return self._names is None or schedule.spec.task_name in self._names

    async def _tell_without_target(self, left: Sequence[Schedule], now: datetime) -> None:
        """Log each schedule once that no gateway fires."""
        found = await self._store.read(lambda tx: without_target(tx, left, now)) if left else {}
        for name, why in found.items():
            if name not in self._told:
                log.warning("schedule %s: %s; see `holdfast cron show %s`", name, why, name)
        self._told = frozenset(found)

    def next_due_at(self) -> datetime | None:
        """When the next schedule is due, as of the last look."""
        return self._next_due

    async def _pause(self) -> None:
        """Sleep until the next schedule is due or something has changed, but not longer than EVERY_S."""
        due_at, delay_s = self.next_due_at(), WATCHING_S if self._has_open else self.every_s
        if due_at is not None:
            until_s = (due_at - self._clock.now() + self._lag).total_seconds()
            delay_s = min(delay_s, max(until_s, 0.0) + _FIRED_SOON_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self._news.wait()
        self._news.clear()

    # --- what

    async def _guarded(self, schedule: Schedule, now: datetime) -> Fired:
        try:
            return await self._look_at(schedule, now)
        except StoreUnavailable:
            raise  # the other schedules need the ledger, too
        except Exception:  # a damaged record, or an unexpected error
            log.exception("schedule %s could not be checked; the others go on", schedule.name)
            return Fired()

    async def _look_at(self, schedule: Schedule, now: datetime) -> Fired:
        """Fire and record the occurrences of one schedule up to now."""
        # One of the settings begins at the first look, at a time that this gateway trusts.
        is_new = schedule.since_at is None
        due = DueOccurrences(schedule=placed(schedule, now)) if is_new else look_at(schedule, now)
        return await self._store.write(firing_due(schedule, due, now=now))

    async def _follow(self, now: datetime) -> None:
        """End firings whose task has ended, and start those that waited for them."""
        while ended := await self._store.read(lambda tx: tx.firings.to_settle(limit=BATCH)):
            await self._store.write(settling([one.id for one in ended], now=now))
            if len(ended) < BATCH:
                break
        after: Firing | None = None
        while not self._is_held:
            waiting = await self._store.read(
                lambda tx, after=after: tx.firings.startable(after=after, limit=BATCH)  # type: ignore[misc]
            )
            await self._start(waiting, now)
            if len(waiting) < BATCH:
                return
            after = waiting[-1]

    async def _start(self, waiting: Sequence[Firing], now: datetime) -> None:
        names = sorted({one.schedule for one in waiting})
        known = await self._store.read(lambda tx: tx.schedules.get_many(names)) if names else {}
        for one in waiting:
            schedule = known.get(one.schedule)
            if schedule is not None and one.is_of(schedule) and not self._is_ours(schedule):
                continue
            try:
                await self._store.write(starting(one, schedule, now=now))
            except StoreUnavailable:
                raise
            except HoldfastError:
                log.exception("firing %s could not be started; the others go on", one.id)


def _specs(schedules: Mapping[str, ScheduleSettings]) -> dict[str, ScheduleSpec]:
    return {name: one.spec for name, one in schedules.items()}


def _chunks(several: Sequence[Schedule], size: int) -> list[Sequence[Schedule]]:
    return [several[place : place + size] for place in range(0, len(several), size)]


def requeuing(firing_id: str, *, now: datetime) -> Write[Firing]:
    """The write that queues a firing again, with its flag. One that is due, done or missed stays as it is.

    If its task goes on after the interruption, that task answers; if there is none, the prompt is posted
    again.
    """
    check_id("firing", firing_id)
    message_id = new_message_id(now)

    def requeue(tx: Tx) -> Firing:
        # Lock the session first, as every other write does, to avoid a deadlock.
        key = tx.firings.get(firing_id).session_key
        if key:
            tx.sessions.hold(key)
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
