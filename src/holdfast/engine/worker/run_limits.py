"""Watches the time limits of runs: asks each to stop in time, and ends the ones that do not."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from holdfast.core.checkpoint import CheckpointKind
from holdfast.core.clock import Clock
from holdfast.core.errors import ClaimLost, HoldfastError, StoreUnavailable
from holdfast.core.transitions import RunStatus
from holdfast.engine.ledger.ledger import Ledger
from holdfast.engine.program.run_limit import RunLimit
from holdfast.engine.program.run_phase import StopReason
from holdfast.engine.recovery.checkpoints import Checkpoints
from holdfast.engine.recovery.wakes import pausing_until_wake, wake_time
from holdfast.engine.worker.drain import DrainTimeouts
from holdfast.engine.worker.execution import run_timed_out
from holdfast.engine.worker.in_flight import RunInFlight, RunsInFlight, interrupt
from holdfast.store import Store

log = logging.getLogger("holdfast")

# How long a program whose effect has landed may take to its next call, where it stops.
LANDED_S = 1.0
# Between two attempts to save a run while the ledger is away.
AGAIN_S = 0.5


class RunLimits:
    """One child for each run that has a limit, while it is in flight here."""

    def __init__(
        self, store: Store, clock: Clock, ledger: Ledger, in_flight: RunsInFlight, patience: DrainTimeouts
    ) -> None:
        self._store = store
        self._clock = clock
        self._ledger = ledger
        self._in_flight = in_flight
        self._patience = patience
        self._checkpoints = Checkpoints(store, clock)

    async def watch(self, one: RunInFlight, limit: RunLimit) -> None:
        """From the claim to the end of the run, or to its limit."""
        if await self._work_in_chunks(one, limit):
            return
        if limit.is_smart and one.live.why is None:
            one.tell(StopReason.RUN_TIMEOUT)
        if await one.ends_within(limit.over_in_s(one.live.place.steady())) or not self._is_ours(one):
            return
        one.tell(StopReason.RUN_TIMEOUT)
        if not await self._lands(one) and self._is_ours(one):
            await self._end(one, limit)

    async def _lands(self, one: RunInFlight) -> bool:
        """Wait for effects in flight, whose outcome would be unknown otherwise, and for functions in threads,
        which cannot be interrupted; whether the run has ended after that."""
        if not one.live.must_land:
            return one.child.done()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience.effects_s):
                while one.live.must_land:
                    await one.live.until_change()
        return await one.ends_within(LANDED_S)

    async def _work_in_chunks(self, one: RunInFlight, limit: RunLimit) -> bool:
        """Record a checkpoint after each chunk, until the run is asked to stop; whether it has ended."""
        chunk_s = limit.options.chunk_of(limit.length).total_seconds()
        steps, chunks = 0, 0
        while (left_s := limit.stop_in_s(one.live.place.steady())) > 0:
            if await one.ends_within(min(left_s, chunk_s)):
                return True
            saved = one.execution.program.stepper.saved
            if left_s > chunk_s and limit.is_smart and saved > steps and self._is_ours(one):
                steps, chunks = saved, chunks + 1
                with contextlib.suppress(
                    HoldfastError
                ):  # each step is saved already; the next chunk tries again
                    await self._checkpoints.record(one.claim, CheckpointKind.PERIODIC, f"chunk {chunks}")
        return one.child.done()

    def _is_ours(self, one: RunInFlight) -> bool:
        """Whether no cancel, drain or lost claim has come first."""
        return not one.live.is_given_up and one.live.why in (None, StopReason.RUN_TIMEOUT)

    async def _end(self, one: RunInFlight, limit: RunLimit) -> None:
        """Save the run or end it, and raise its fence, in one write; only then interrupt its program, so that
        nothing it does while it unwinds is written."""
        log.warning(
            "%s (%s) made no call within its run_timeout of %s; its program is interrupted",
            one.claim.run_id,
            one.live.task.name,
            limit.length,
        )
        while True:
            try:
                await self._save_or_end(one, limit)
                break
            except StoreUnavailable as error:
                # Its claim is still renewed; its program is left to itself until the ledger works again.
                log.warning("%s cannot be saved at its limit: %s; trying again", one.claim.run_id, error)
            if await one.ends_within(AGAIN_S) or not self._is_ours(one):
                return
        one.give_up(StopReason.RUN_TIMEOUT)
        await interrupt([one], within_s=self._patience.unwind_s)
        self._in_flight.let_go([one])

    async def _save_or_end(self, one: RunInFlight, limit: RunLimit) -> None:
        try:
            if limit.is_smart:
                now = self._clock.now()
                due_at = await wake_time(self._store, limit.options, now=now, after=limit.wake_after)
                note = f"it made no call within its run_timeout of {limit.length}"
                criteria = one.execution.done_criteria
                write = pausing_until_wake(
                    one.claim,
                    due_at=due_at,
                    now=now,
                    note=note,
                    done_criteria=criteria,
                    max_idle_attempts=one.live.place.max_idle_attempts,
                )
                await self._store.write(write)
            else:
                await self._ledger.fail(one.claim, run_timed_out(limit), status=RunStatus.TIMED_OUT)
        except ClaimLost:
            pass  # its own program was faster
