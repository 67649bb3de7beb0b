"""Notices when the wall clock jumps, and gives the time that schedules and deletions may trust."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime, timedelta

import msgspec

from holdfast.core.clock import Clock, from_micros, to_micros
from holdfast.core.jumps import DELETES_AFTER, FIRES_AFTER, TOLERANCE, Belief
from holdfast.engine.clocks.jump_facts import (
    FACT,
    StoredBelief,
    boottime_us,
    in_words,
    machine_boot,
    read_kept,
)
from holdfast.store import Store, Tx

log = logging.getLogger("holdfast")

# For how many machines the ledger keeps what is believed about their clocks.
MOST_MACHINES = 64

# How far the wall clock may drift from the stored offset before the offset is written again.
_DRIFT_US = TOLERANCE // timedelta(microseconds=2)


class ClockWatch:
    """Shared by all services of a process. It stores the offset that it believes in the ledger, for each boot
    of a machine, so that a process that starts while the clock is wrong knows it.

    The newest time in the ledger would not do: a process with a wrong clock may have written it.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        boottime_us: Callable[[], int] = boottime_us,
        machine: str | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._boottime_us = boottime_us
        self._machine = machine_boot() if machine is None else machine
        self._lock = asyncio.Lock()
        self._belief: Belief | None = None
        self._kept: StoredBelief | None = None

    async def firing_time(self) -> datetime | None:
        """The present time for schedules; None while no time is trusted."""
        belief, passed = await self._look()
        return _moment(belief.firing_time(passed))

    async def deletion_time(self) -> datetime | None:
        """The present time for deletions; None while nothing may be deleted."""
        belief, passed = await self._look()
        return _moment(belief.deletion_time(passed))

    async def _look(self) -> tuple[Belief, int]:
        async with self._lock:
            before, is_new = self._belief, False
            if before is None:
                before, is_new = await self._remembered()
            # Read the wall clock first: if the process freezes in between, the time is early, never late.
            wall, passed = to_micros(self._clock.now()), self._boottime_us()
            if before is None:
                belief = Belief.first(wall, passed, is_believed=is_new)
            else:
                belief = before.after(wall, passed)
            await self._keep(belief)
            _tell(before, belief)
            self._belief = belief
            return belief, passed

    async def _remembered(self) -> tuple[Belief | None, bool]:
        """What is stored for this boot of the machine, and whether the ledger is new. In a new ledger nothing
        is old and no schedule has fired, so its first time is trusted at once."""
        text = await self._store.read(lambda tx: tx.boots.fact(FACT))
        kept = read_kept(text).get(self._machine)
        if kept is None or kept.since > self._boottime_us():
            return None, text is None
        self._kept = kept
        return Belief(offset=kept.offset, since=kept.since, seen=kept.offset, seen_since=kept.since), False

    async def _keep(self, belief: Belief) -> None:
        """Store the belief if it has changed, which is rare."""
        if belief.offset is None or not self._machine:
            return
        kept, was = StoredBelief(offset=belief.offset, since=belief.since), self._kept
        if was is not None and was.since == kept.since and abs(was.offset - kept.offset) <= _DRIFT_US:
            return

        def keep(tx: Tx) -> None:
            found = read_kept(tx.boots.fact(FACT))
            found.pop(self._machine, None)
            # If two machines write at once, one entry may be lost; that machine waits after its next start.
            latest = [*found.items(), (self._machine, kept)][-MOST_MACHINES:]
            tx.boots.set_fact(FACT, msgspec.json.encode(dict(latest)).decode())

        await self._store.write(keep)
        self._kept = kept


def _moment(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


def _tell(before: Belief | None, belief: Belief) -> None:
    """Log each change once, so that operators know why no schedule fires."""
    was_away = before is not None and before.is_away
    if belief.offset is None:
        if before is None:
            log.warning(
                "this machine's boot is new to the ledger, so its clock is not trusted yet:"
                " schedules start after %s without a jump, deletions after %s; nothing to do",
                FIRES_AFTER,
                DELETES_AFTER,
            )
    elif belief.is_away and not was_away:
        log.warning(
            "the wall clock jumped %s: nothing is deleted, and schedules do not follow, until its new time"
            " has held for %s (deletions: %s); if it is wrong, have NTP set it",
            in_words(timedelta(microseconds=belief.seen - belief.offset)),
            FIRES_AFTER,
            DELETES_AFTER,
        )
    elif was_away and not belief.is_away:
        log.warning("the clock is trusted again: schedules follow it")
