"""Service: sends deliveries through their channels, in order for each target, never silently twice."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from holdfast.channels.contract import CannotTell, Channel, ChannelSender, Closing, PlainSender, Undeliverable
from holdfast.core.clock import Clock
from holdfast.core.delivery import IN_DOUBT, Delivery
from holdfast.core.errors import HoldfastError, NotDone, RetryAfter
from holdfast.core.events import EventKind
from holdfast.core.payload import clean_text
from holdfast.core.task import Failure
from holdfast.core.transitions import DeliveryStatus
from holdfast.engine.aio.polling import PollingService
from holdfast.engine.ledger.session_queue import queue_update, session_behind
from holdfast.store import Store, Tx
from holdfast.store.deliveries import PAGE, Due

log = logging.getLogger("holdfast")

EVERY_S = 1.0
# Sends at once through each channel; a slow channel does not slow down others.
CONCURRENCY = 8
# How long one send may take; the claim lasts longer, so that no other gateway sends meanwhile.
SEND_TIMEOUT_S = 30.0
LEASE = timedelta(seconds=90)
# About an hour and a half, with the backoff between them.
MAX_ATTEMPTS = 20
MAX_PAUSE_S = 300.0
# Limits for Retry-After: the longest single wait, and the age up to which waits do not count as attempts.
MAX_PATIENCE_S = 3600.0
PATIENT_FOR = timedelta(hours=24)
_MAX_WHY_CHARS = 500


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """What one pass began to send."""

    begun: int = 0


class Outbox(PollingService):
    """Sends what is owed. Several may run on one ledger: a claim lets one attempt a delivery at a time."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        channels: Mapping[str, ChannelSender | Channel],
        *,
        boot_id: str,
        every_s: float = EVERY_S,
        concurrency: int = CONCURRENCY,
        send_timeout_s: float = SEND_TIMEOUT_S,
        max_attempts: int = MAX_ATTEMPTS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`channels` by name; it may be replaced while the service runs.

        Deliveries for other channels wait for a gateway that has them. `concurrency` is per channel.
        """
        super().__init__(store, "deliveries", every_s=every_s)
        self.channels = channels
        self._clock = clock
        self._boot_id = boot_id
        self._concurrency = concurrency
        self._send_timeout_s = send_timeout_s
        self._lease = max(LEASE, timedelta(seconds=3 * send_timeout_s))
        self._max_attempts = max_attempts
        self._monotonic = monotonic
        # The channel of each delivery in flight, by delivery id.
        self._in_flight: dict[str, str] = {}
        # For each channel, the target after which the next look begins.
        self._places: dict[str, str] = {}
        self._missing: frozenset[str] = frozenset()
        self._damaged: frozenset[str] = frozenset()
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Run until stopped; then finish sends in progress, and close the channels."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                try:
                    await super().run()
                finally:
                    self._group = None
        finally:
            for channel in self.channels.values():
                if isinstance(channel, Closing):
                    channel.close()

    async def run_once(self) -> Sent:
        """Begin to send what is due. Inside `run`, a pass does not wait for the sends it began."""
        if self._group is not None:
            return Sent(begun=await self._begin(self._group))
        begun = 0
        while True:
            async with asyncio.TaskGroup() as group:
                count = await self._begin(group)
            begun += count
            if count == 0:
                return Sent(begun=begun)

    # --- taking

    async def _begin(self, group: asyncio.TaskGroup) -> int:
        # A delivery without a channel may be failed by any outbox.
        names = ["", *self.channels]
        busy = Counter(self._in_flight.values())
        room = {name: self._concurrency - busy[name] for name in names if busy[name] < self._concurrency}
        if not room:
            return 0
        now, places = self._clock.now(), dict(self._places)

        def look(tx: Tx) -> _Look:
            waiting = tx.deliveries.waiting_channels()
            # If the page is full, a channel that is not on it may have deliveries, too.
            wanted = [name for name in room if name in waiting or len(waiting) >= PAGE]
            due = {
                name: tx.deliveries.due(name, now=now, limit=room[name], after=places.get(name, ""))
                for name in wanted
            }
            return _Look(lapsed=tx.deliveries.lapsed(room, now=now), due=due, waiting=waiting)

        seen = await self._store.read(look)
        self._places |= {name: one.after for name, one in seen.due.items()}
        self._warn_of_missing(frozenset(seen.waiting).difference(names))
        self._warn_of_damaged(seen.damaged)
        wanted = []
        for delivery, was_attempted in seen.found:
            if delivery.id not in self._in_flight and room[delivery.channel] > 0:
                room[delivery.channel] -= 1
                wanted.append((delivery, was_attempted))
        return await self._take_all(group, wanted)

    async def _take_all(self, group: asyncio.TaskGroup, wanted: Sequence[tuple[Delivery, bool]]) -> int:
        # Concurrently, so that the claims share a commit.
        taken = await asyncio.gather(*(self._take(*one) for one in wanted), return_exceptions=True)
        begun, errors = 0, []
        for claimed, (_, was_attempted) in zip(taken, wanted, strict=True):
            if isinstance(claimed, BaseException):
                errors.append(claimed)
            elif claimed is not None:
                delivery = claimed.delivery
                self._in_flight[delivery.id] = delivery.channel
                group.create_task(self._carry(claimed, was_attempted), name=f"holdfast {delivery.id}")
                begun += 1
        if errors:
            # Raise only after the claimed ones were started: without a sender they would be in doubt.
            raise errors[0]
        return begun

    def _warn_of_missing(self, channels: frozenset[str]) -> None:
        if channels - self._missing:
            log.warning(
                "deliveries wait for %s, and no channel of that name is declared here; "
                "they wait for a gateway that has it",
                ", ".join(sorted(channels)),
            )
        self._missing = channels

    def _warn_of_damaged(self, ids: frozenset[str]) -> None:
        for delivery_id in sorted(ids - self._damaged):
            log.error(
                "%s is damaged and is not sent, nor what follows to its target; see store verify", delivery_id
            )
        self._damaged |= ids

    async def _take(self, delivery: Delivery, was_attempted: bool) -> _Claimed | None:
        now, claimed_at_s = self._clock.now(), self._monotonic()
        until, boot_id = now + self._lease, self._boot_id

        def take(tx: Tx) -> Delivery | None:
            if was_attempted:
                taken = tx.deliveries.reclaim(delivery, boot_id=boot_id, lease_until=until, now=now)
            else:
                taken = tx.deliveries.attempt(delivery.id, boot_id=boot_id, lease_until=until, now=now)
            if taken is not None:
                return taken
            # If it was claimed at exactly this time, our own commit did it and its answer was lost.
            found = tx.deliveries.get(delivery.id)
            is_ours = found.status is DeliveryStatus.ATTEMPTING and found.updated_at == now
            return found if is_ours and found.claimed_by == boot_id else None

        taken = await self._store.write(take)
        if taken is None:
            return None
        return _Claimed(taken, claimed_at_s + self._lease.total_seconds())

    def _has_lease(self, claimed: _Claimed) -> bool:
        """Whether the claim still covers a whole send: after a suspend, another gateway may have taken it.

        Checks two clocks: one may stop while the machine sleeps, and the other may be set back.
        """
        left_s = claimed.until_s - self._monotonic()
        left = claimed.delivery.due_at - self._clock.now()
        return min(left_s, left.total_seconds()) >= self._send_timeout_s

    # --- sending

    async def _carry(self, claimed: _Claimed, was_attempted: bool) -> None:
        """One attempt, from its claim to its end in the ledger. An error here does not affect others."""
        delivery = claimed.delivery
        try:
            await self._attempt(claimed, was_attempted)
        except HoldfastError as error:
            # The ledger did not answer: the claim lapses, and then an outbox settles the delivery.
            log.warning("%s is left for later: %s", delivery.id, error)
        except Exception:  # an unexpected error must not end the service; this claim lapses, too
            log.exception("%s is left for later", delivery.id)
        finally:
            del self._in_flight[delivery.id]
            self.look()  # the next delivery for the same target may be sent now

    async def _attempt(self, claimed: _Claimed, was_attempted: bool) -> None:
        delivery = claimed.delivery
        mouth = self._mouth_of(delivery)
        if mouth is None:
            await self._without_channel(delivery, was_attempted)
            return
        if was_attempted:
            found = await self._settle_doubt(delivery, mouth, "its sender died")
            if found is _Doubt.SETTLED:
                return
            delivery = _with_doubt(delivery, found, "its sender died")
        if not self._has_lease(claimed):
            # Nothing was sent. If another gateway has claimed it, this changes nothing.
            await self._put_back(delivery, "the lease was nearly over before it could be sent")
            return
        try:
            given = await self._deliver(delivery, mouth)
        except RetryAfter as error:
            await self._again(delivery, error, after_s=error.seconds)
        except Undeliverable as error:
            await self._give_up(delivery, "undeliverable", str(error))
        except NotDone as error:
            await self._again(delivery, error)
        except Exception as error:  # noqa: BLE001 - a channel may raise anything, also after it sent the message
            why = _words_of(error)
            found = await self._settle_doubt(delivery, mouth, why)
            if found is not _Doubt.SETTLED:
                await self._again(_with_doubt(delivery, found, why), error)
        else:
            await self._sent(delivery, given)

    async def _without_channel(self, delivery: Delivery, was_attempted: bool) -> None:
        if delivery.origin is None:
            await self._give_up(delivery, "no_channel", "it names no channel through which it could go")
        elif not was_attempted:
            await self._put_back(delivery, "its channel was removed here before it could be sent")
        # One that may have gone out is left to a gateway that has the channel and can ask it.

    def _mouth_of(self, delivery: Delivery) -> ChannelSender | None:
        found = None if delivery.origin is None else self.channels.get(delivery.origin.channel)
        return found if found is None or isinstance(found, ChannelSender) else PlainSender(found)

    async def _deliver(self, delivery: Delivery, mouth: ChannelSender) -> str:
        assert delivery.origin is not None
        async with asyncio.timeout(self._send_timeout_s):
            return await mouth.deliver(delivery.origin, delivery.letter, key=delivery.idempotency_key)

    async def _settle_doubt(self, delivery: Delivery, mouth: ChannelSender, why: str) -> _Doubt:
        """Ask the channel whether the message went out. If it is not settled, it is safe to send it again."""
        try:
            async with asyncio.timeout(self._send_timeout_s):
                found = await mouth.find_sent(delivery.idempotency_key)
        except Exception as error:  # noqa: BLE001 - a channel may raise anything; ask again later
            found = CannotTell(_words_of(error))
        if isinstance(found, str):
            await self._sent(delivery, found)
            return _Doubt.SETTLED
        if found is None:
            return _Doubt.NOT_SENT
        if mouth.is_keyed:
            return _Doubt.MAY_BE_SENT
        await self._fail(delivery, IN_DOUBT, f"it may have gone out ({why}), and {found.why}")
        return _Doubt.SETTLED

    # --- ends

    async def _sent(self, delivery: Delivery, found: str) -> None:
        now, given = self._clock.now(), clean_text(str(found), max_chars=200)

        def settle(tx: Tx) -> None:
            if tx.deliveries.settle(delivery, DeliveryStatus.DELIVERED, now=now) is not None:
                tx.emit(
                    EventKind.DELIVERY_SENT,
                    delivery.id,
                    at=now,
                    task_id=delivery.task_id or None,
                    channel=delivery.channel,
                    attempts=delivery.attempts,
                    found=given,
                )

        await self._store.write(settle)

    async def _give_up(self, delivery: Delivery, kind: str, why: str) -> None:
        """It will not be sent. If no attempt can have arrived, the session behind it is told instead."""
        if delivery.is_in_doubt:
            assert delivery.failure is not None
            why = f"an earlier attempt may have arrived ({delivery.failure.message}); then: {why}"
            await self._fail(delivery, IN_DOUBT, why)
        else:
            await self._fail(delivery, kind, why, may_queue=True)

    async def _fail(self, delivery: Delivery, kind: str, why: str, *, may_queue: bool = False) -> None:
        now = self._clock.now()
        failure = Failure(kind=kind, message=clean_text(why, max_chars=_MAX_WHY_CHARS))
        log.warning("%s to %s was given up: %s", delivery.id, delivery.channel, failure.message)

        def settle(tx: Tx) -> None:
            session = session_behind(tx, delivery) if may_queue else None
            to = DeliveryStatus.FAILED if session is None else DeliveryStatus.SESSION_QUEUED
            settled = tx.deliveries.settle(delivery, to, failure=failure, now=now)
            if settled is not None and session is not None:
                queue_update(tx, session, settled, failure.message, now=now)
            elif settled is not None:
                tx.emit(
                    EventKind.DELIVERY_FAILED,
                    delivery.id,
                    at=now,
                    task_id=delivery.task_id or None,
                    channel=delivery.channel,
                    attempts=delivery.attempts,
                    why=failure.message,
                )

        await self._store.write(settle)

    async def _again(self, delivery: Delivery, error: BaseException, after_s: float | None = None) -> None:
        """Send again later, with the same key; other deliveries for the same target wait for it.

        `after_s` is the receiver's Retry-After. While the delivery is young, such a wait is not an attempt.
        """
        now = self._clock.now()
        is_patient = after_s is not None and now - delivery.created_at < PATIENT_FOR
        if not is_patient and delivery.attempts >= self._max_attempts:
            await self._give_up(delivery, "gave_up", f"{delivery.attempts} attempts: {_words_of(error)}")
            return
        # Bound the exponent: 2.0 to a large power overflows a float.
        doubled_s = 2.0 ** min(delivery.attempts - 1, 30)
        pause_s = min(doubled_s, MAX_PAUSE_S) * random.uniform(0.8, 1.2)  # noqa: S311 - jitter
        # Not sooner than our own backoff: "Retry-After: 0" would make a busy loop.
        wait_s = max(pause_s, min(after_s or 0.0, MAX_PATIENCE_S))
        await self._settle_pending(delivery, _words_of(error), now, now + timedelta(seconds=wait_s))

    async def _put_back(self, delivery: Delivery, why: str) -> None:
        """Release a delivery that was not sent; it is due at once."""
        now = self._clock.now()
        await self._settle_pending(delivery, why, now, now)

    async def _settle_pending(self, delivery: Delivery, why: str, now: datetime, due_at: datetime) -> None:
        if delivery.is_in_doubt:
            # What may have arrived stays so, whatever later attempts say.
            failure = delivery.failure
        else:
            failure = Failure(kind="not_sent", message=clean_text(why, max_chars=_MAX_WHY_CHARS))

        def settle(tx: Tx) -> None:
            tx.deliveries.settle(delivery, DeliveryStatus.PENDING, failure=failure, due_at=due_at, now=now)

        await self._store.write(settle)


class _Doubt(StrEnum):
    """What became of an attempt that may have gone out."""

    # Its end is in the ledger.
    SETTLED = "settled"
    # The channel knows that it did not go out.
    NOT_SENT = "not_sent"
    # The channel cannot tell; the receiver's keys make another attempt safe.
    MAY_BE_SENT = "may_be_sent"


def _with_doubt(delivery: Delivery, found: _Doubt, why: str) -> Delivery:
    """The delivery with what is known now of all attempts with its key."""
    if found is _Doubt.NOT_SENT:
        return msgspec.structs.replace(delivery, failure=None)
    if delivery.is_in_doubt:
        return delivery
    failure = Failure(kind=IN_DOUBT, message=clean_text(why, max_chars=_MAX_WHY_CHARS))
    return msgspec.structs.replace(delivery, failure=failure)


class _Claimed(msgspec.Struct, frozen=True):
    """A claimed delivery, and when its claim lapses by the monotonic clock, counted from before the claim."""

    delivery: Delivery
    until_s: float


class _Look(msgspec.Struct, frozen=True, kw_only=True):
    """What one look at the ledger found."""

    lapsed: Due
    due: dict[str, Due]
    waiting: list[str]

    @property
    def found(self) -> list[tuple[Delivery, bool]]:
        """What may be claimed, and whether it was attempted before."""
        due = [(one, False) for look in self.due.values() for one in look.deliveries]
        return [*((one, True) for one in self.lapsed.deliveries), *due]

    @property
    def damaged(self) -> frozenset[str]:
        return self.lapsed.damaged.union(*(look.damaged for look in self.due.values()))


def _words_of(error: BaseException) -> str:
    said = str(error)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
