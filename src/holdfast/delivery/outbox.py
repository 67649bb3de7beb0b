"""Service: what is owed goes out through its channel, in order for each target, never silently twice."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping
from datetime import timedelta

import msgspec

from holdfast.channels.contract import CannotTell, Channel, Mouth, MouthOf, Undeliverable
from holdfast.core.clock import Clock
from holdfast.core.delivery import Delivery
from holdfast.core.errors import HoldfastError, RetryAfter
from holdfast.core.events import EventKind
from holdfast.core.payload import clean_text
from holdfast.core.task import Failure
from holdfast.core.transitions import DeliveryStatus
from holdfast.engine.hinted import HintedService
from holdfast.store import Store, Tx

log = logging.getLogger("holdfast")

EVERY_S = 1.0
CONCURRENCY = 16
# How long one send may take; its claim lasts longer, so that nobody else begins meanwhile.
SEND_TIMEOUT_S = 30.0
LEASE = timedelta(seconds=90)
# With the pauses between them, about an hour and a half.
MAX_ATTEMPTS = 20
MAX_PAUSE_S = 300.0
# What says that a message may have gone out all the same.
_IN_DOUBT = (TimeoutError, ConnectionError, EOFError)
_MAX_WHY_CHARS = 500


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """What one pass began to send."""

    begun: int = 0


class Outbox(HintedService):
    """Sends what is owed. Any number of them may work on one ledger: one attempts each delivery at a time."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        channels: Mapping[str, Mouth | Channel],
        *,
        boot_id: str,
        every_s: float = EVERY_S,
        concurrency: int = CONCURRENCY,
        send_timeout_s: float = SEND_TIMEOUT_S,
        max_attempts: int = MAX_ATTEMPTS,
    ) -> None:
        """`channels` by the name that an origin gives them; it may be replaced while the service runs."""
        super().__init__(store, "deliveries", every_s=every_s)
        self.channels = channels
        self._clock = clock
        self._boot_id = boot_id
        self._concurrency = concurrency
        self._send_timeout_s = send_timeout_s
        self._lease = max(LEASE, timedelta(seconds=3 * send_timeout_s))
        self._max_attempts = max_attempts
        self._in_flight: set[str] = set()
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Until stopped; what is being sent then is finished first."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                await super().run()
            finally:
                self._group = None

    async def run_once(self) -> Sent:
        """Begin what is due. A service does not wait for its end: one slow channel holds up no other."""
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
        room = self._concurrency - len(self._in_flight)
        if room <= 0:
            return 0
        now = self._clock.now()
        lapsed, due = await self._store.read(
            lambda tx: (tx.deliveries.lapsed(now=now, limit=room), tx.deliveries.due(now=now, limit=room))
        )
        found = [*((one, True) for one in lapsed), *((one, False) for one in due)]
        wanted = [(one, was) for one, was in found if one.id not in self._in_flight][:room]
        # Together, so that they share a commit.
        taken = await asyncio.gather(*(self._take(*one) for one in wanted))
        begun = 0
        for delivery, (_, was_attempted) in zip(taken, wanted, strict=True):
            if delivery is not None:
                self._in_flight.add(delivery.id)
                group.create_task(self._carry(delivery, was_attempted), name=f"holdfast {delivery.id}")
                begun += 1
        return begun

    async def _take(self, delivery: Delivery, was_attempted: bool) -> Delivery | None:
        now = self._clock.now()
        until, boot_id = now + self._lease, self._boot_id

        def take(tx: Tx) -> Delivery | None:
            if was_attempted:
                taken = tx.deliveries.reclaim(delivery, boot_id=boot_id, lease_until=until, now=now)
            else:
                taken = tx.deliveries.attempt(delivery.id, boot_id=boot_id, lease_until=until, now=now)
            if taken is not None:
                return taken
            # Ours, in a commit whose answer was lost, if at this very moment.
            found = tx.deliveries.get(delivery.id)
            is_ours = found.status is DeliveryStatus.ATTEMPTING and found.updated_at == now
            return found if is_ours and found.claimed_by == boot_id else None

        return await self._store.write(take)

    # --- sending

    async def _carry(self, delivery: Delivery, was_attempted: bool) -> None:
        """One attempt from its claim to its end in the ledger. What goes wrong here harms no other."""
        try:
            await self._attempt(delivery, was_attempted)
        except HoldfastError as error:
            # The ledger did not answer: the claim lapses, and then somebody finds out.
            log.warning("%s is left for later: %s", delivery.id, error)
        finally:
            self._in_flight.discard(delivery.id)
            self.look()  # the next one for the same target may go

    async def _attempt(self, delivery: Delivery, was_attempted: bool) -> None:
        mouth = self._mouth_of(delivery)
        if mouth is None:
            await self._fail(delivery, "no_channel", "there is no channel of that name any more; declare it")
            return
        if was_attempted and await self._settle_doubt(delivery, mouth, "its sender died"):
            return
        try:
            found = await self._deliver(delivery, mouth)
        except RetryAfter as error:
            await self._again(delivery, error, after_s=error.seconds)
        except Undeliverable as error:
            await self._fail(delivery, "undeliverable", str(error))
        except _IN_DOUBT as error:
            if not await self._settle_doubt(delivery, mouth, _words_of(error)):
                await self._again(delivery, error)
        except Exception as error:  # noqa: BLE001 - whatever a channel raises; it did not go out
            await self._again(delivery, error)
        else:
            await self._sent(delivery, found)

    def _mouth_of(self, delivery: Delivery) -> Mouth | None:
        found = None if delivery.origin is None else self.channels.get(delivery.origin.channel)
        return found if found is None or isinstance(found, Mouth) else MouthOf(found)

    async def _deliver(self, delivery: Delivery, mouth: Mouth) -> str:
        assert delivery.origin is not None
        async with asyncio.timeout(self._send_timeout_s):
            return await mouth.deliver(delivery.origin, delivery.letter, key=delivery.idempotency_key)

    async def _settle_doubt(self, delivery: Delivery, mouth: Mouth, why: str) -> bool:
        """The message may have gone out: ask. False when it may be sent (again) without harm."""
        try:
            async with asyncio.timeout(self._send_timeout_s):
                found = await mouth.find_sent(delivery.idempotency_key)
        except Exception as error:  # noqa: BLE001 - whatever a channel raises; it cannot be asked now
            found = CannotTell(_words_of(error))
        if isinstance(found, str):
            await self._sent(delivery, found)
            return True
        if found is None or mouth.is_keyed:
            return False
        why = f"it may have gone out ({why}), and {found.why}"
        await self._fail(delivery, "in_doubt", why)
        return True

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
                    channel=_channel_of(delivery),
                    attempts=delivery.attempts,
                    found=given,
                )

        await self._store.write(settle)

    async def _fail(self, delivery: Delivery, kind: str, why: str) -> None:
        now = self._clock.now()
        failure = Failure(kind=kind, message=clean_text(why, max_chars=_MAX_WHY_CHARS))
        log.warning("%s to %s was given up: %s", delivery.id, _channel_of(delivery), failure.message)

        def settle(tx: Tx) -> None:
            settled = tx.deliveries.settle(delivery, DeliveryStatus.FAILED, failure=failure, now=now)
            if settled is not None:
                tx.emit(
                    EventKind.DELIVERY_FAILED,
                    delivery.id,
                    at=now,
                    task_id=delivery.task_id or None,
                    channel=_channel_of(delivery),
                    attempts=delivery.attempts,
                    why=failure.message,
                )

        await self._store.write(settle)

    async def _again(self, delivery: Delivery, error: BaseException, after_s: float | None = None) -> None:
        """Later, with the same key; what is owed to the same target waits for it."""
        if after_s is None and delivery.attempts >= self._max_attempts:
            await self._fail(delivery, "gave_up", f"{delivery.attempts} attempts: {_words_of(error)}")
            return
        now = self._clock.now()
        pause_s = min(2.0 ** (delivery.attempts - 1), MAX_PAUSE_S) * random.uniform(0.8, 1.2)  # noqa: S311 - jitter
        due_at = now + timedelta(seconds=pause_s if after_s is None else after_s)
        failure = Failure(kind="not_sent", message=clean_text(_words_of(error), max_chars=_MAX_WHY_CHARS))

        def settle(tx: Tx) -> None:
            tx.deliveries.settle(delivery, DeliveryStatus.PENDING, failure=failure, due_at=due_at, now=now)

        await self._store.write(settle)


def _channel_of(delivery: Delivery) -> str:
    return "" if delivery.origin is None else delivery.origin.channel


def _words_of(error: BaseException) -> str:
    said = str(error)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
