"""Service: ends commands that a dead process left running, once their tasks are cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

import msgspec

from holdfast.core.clock import Clock
from holdfast.core.effect import Effect, decode_request
from holdfast.core.errors import HoldfastError
from holdfast.core.events import EventKind
from holdfast.core.task import Failure
from holdfast.core.transitions import EffectStatus
from holdfast.engine.aio.service import Service
from holdfast.engine.claims.boots import Life
from holdfast.store import Store, Tx, Write
from holdfast.tools.command_end import end_command
from holdfast.tools.receipts import receipts, unfinished_receipts

log = logging.getLogger("holdfast")

EVERY_S = 1.0
BATCH = 500
WHY = "the command was ended midway, because its task was cancelled"
_OPEN = frozenset({EffectStatus.INTENT, EffectStatus.UNKNOWN})


class CommandEnder(Service):
    """A command survives the process that started it. If its task is then cancelled, this service ends the
    command, and its effect needs no review.

    A living process ends its own commands.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        life: Life,
        directories: Iterable[Path],
        *,
        every_s: float = EVERY_S,
    ) -> None:
        super().__init__(every_s=every_s)
        self._store = store
        self._clock = clock
        self._life = life
        self._directories = sorted(set(directories))
        # Effects whose command was ended and whose task has not ended yet.
        self._ended: dict[str, Effect] = {}
        self._has_looked = False

    async def run_once(self) -> int:
        """End the commands of cancelled tasks; returns how many."""
        ended = 0
        for directory in self._directories:
            # At first look at all receipts: an earlier process may have ended a command and died before it
            # settled the effect.
            keys = await asyncio.to_thread(unfinished_receipts if self._has_looked else receipts, directory)
            for first in range(0, len(keys), BATCH):
                some = keys[first : first + BATCH]
                for effect in await self._store.read(lambda tx, some=some: tx.effects.to_stop(some)):  # type: ignore[misc]
                    ended += await self._end(directory, effect)
        self._has_looked = True
        for effect in list(self._ended.values()):
            if await self._store.write(settling(effect, now=self._clock.now())):
                del self._ended[effect.id]
        return ended

    def hurry(self) -> None:
        self.stop()

    async def _end(self, directory: Path, effect: Effect) -> bool:
        boot_id = decode_request(effect.request).boot
        boot = await self._store.read(lambda tx: tx.boots.get(boot_id))
        if boot is not None and not self._life.has_died(boot):
            return False
        if not await asyncio.to_thread(self._end_here, directory, effect.idempotency_key):
            return False
        log.warning("ended the command of %s, because its task was cancelled", effect.task_id)
        self._ended[effect.id] = effect
        return True

    def _end_here(self, directory: Path, key: str) -> bool:
        seal_key = None
        with contextlib.suppress(HoldfastError):  # the command can be ended without the key
            seal_key = self._store.sealing.key_of_file("receipt", key)
        return end_command(directory, key, seal_key)


def settling(effect: Effect, *, now: datetime) -> Write[bool]:
    """The write that settles the effect of an ended command without a review. True when nothing is left to
    do; False while its task goes on: then its run settles it."""
    outcome = msgspec.json.encode(Failure(kind="stopped", message=WHY))

    def settle_stopped(tx: Tx) -> bool:
        found = tx.effects.again(effect)
        task = tx.tasks.get_many([effect.task_id]).get(effect.task_id)
        if task is None or task.cancel_requested_at is None:  # an operator has retried the task
            return True
        if found.status not in _OPEN or found.review is not None:
            return True
        if not task.has_ended:
            return False
        tx.effects.settle(effect, EffectStatus.FAILED, outcome=outcome, now=now)
        tx.emit(
            EventKind.EFFECT_REVIEWED,
            effect.id,
            at=now,
            task_id=effect.task_id,
            decision="stopped",
            by="gateway",
            step=effect.name,
        )
        return True

    return settle_stopped
