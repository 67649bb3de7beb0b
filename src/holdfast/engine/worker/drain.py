"""From "no new work" to "safe to stop": runs stop at their next call, are paused, and interrupted last."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence

import msgspec

from holdfast.core.checkpoint import CheckpointKind, ResumeReason
from holdfast.core.errors import CheckpointNotSaved, ClaimLost, StoreUnavailable
from holdfast.core.task import Failure
from holdfast.core.transitions import RunStatus
from holdfast.engine.aio.threads import StepThreads
from holdfast.engine.journal.codec import failure_of
from holdfast.engine.ledger.ledger import Ledger
from holdfast.engine.program.run_phase import StopReason
from holdfast.engine.recovery.checkpoints import Checkpoints
from holdfast.engine.worker.in_flight import RunInFlight, RunsInFlight, interrupt

log = logging.getLogger("holdfast")

# Between two looks at what is still in flight.
_LOOK_EVERY_S = 0.05
# Between two log lines about what the drain waits for, and how many runs a line names.
_SAY_EVERY_S = 5.0
_NAMED = 3


class DrainTimeouts(msgspec.Struct, frozen=True, kw_only=True):
    """How long a stop waits, in seconds, and for what."""

    # For effects in flight, and for functions in threads, which cannot be interrupted.
    effects_s: float
    # For other steps: they are done again if they were not saved.
    steps_s: float
    # For a program whose task is cancelled, until it is interrupted.
    grace_s: float
    # For programs that were interrupted at the deadline, when everything is saved.
    unwind_s: float


class Drain:
    """Stops every run of a process."""

    def __init__(
        self,
        hands: RunsInFlight,
        ledger: Ledger,
        checkpoints: Checkpoints,
        threads: StepThreads,
        patience: DrainTimeouts,
    ) -> None:
        self._in_flight = hands
        self._ledger = ledger
        self._checkpoints = checkpoints
        self._threads = threads
        self.patience = patience
        self._is_hurried = False
        # A child has ended, or the drain must hurry.
        self.news = asyncio.Event()
        self.reason = ResumeReason.EXPLICIT_RESTART

    def hurry(self) -> None:
        """Wait no longer."""
        self._is_hurried = True
        self.news.set()

    def tell(self) -> None:
        """From now on the next call of every run raises Stopping."""
        for one in self._in_flight.carried.values():
            one.tell(StopReason.DRAINING)

    async def run(self, *, may_go_on: bool = False) -> None:
        """Stop every run at its next call, and wait for effects in flight.

        At the deadline, save a checkpoint of each run and raise its fence, in one write. Only then interrupt
        the programs, so that nothing they do while they unwind is written. Raises CheckpointNotSaved if a
        checkpoint could not be saved. Every run has stopped then, too; with `may_go_on` no run is interrupted
        that was not paused, and the runs that asked for the restart are paused last.
        """
        self.tell()
        began_at = said_at = _now()
        problem = await self._pause_left_over()
        if may_go_on and problem is not None:
            raise problem
        while self._is_worth_waiting() and (left_s := self._time_left(began_at)) > 0:
            if _now() >= said_at + _SAY_EVERY_S:
                said_at = _now()
                log.warning("still draining, for at most %.0f s more: %s", left_s, self._waited_for())
            self.news.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left_s, _LOOK_EVERY_S)):
                    await self.news.wait()
            problem = await self._pause_left_over() or problem
            if may_go_on:
                # The ledger cannot be written, so no run can be paused: do not wait.
                problem = problem or self._why_unwritten(began_at)
                if problem is not None:
                    raise problem
        if may_go_on:
            await self._stop_in_turn()
        problem = await self.stop_now() or problem
        if problem is not None:
            raise problem

    async def _stop_in_turn(self) -> None:
        """Stop the runs that work, then those that asked for this restart: these only wait, so they go on
        where they are if another run cannot be paused. Raises CheckpointNotSaved."""
        left = self._in_flight.all_runs()
        working = [one for one in left if one.live.restart_why is None]
        asking = [one for one in left if one.live.restart_why is not None]
        for some in (working, asking):
            problem = await self._pause(some)
            if problem is not None:
                raise problem
            await self._interrupt(some)

    def _why_unwritten(self, since: float) -> CheckpointNotSaved | None:
        """Why a run cannot write the outcome of an effect. Only if it failed since the drain began: an
        earlier problem may be over."""
        for one in self._in_flight.carried.values():
            if one.live.unwritten is not None and one.live.unwritten_at >= since:
                return CheckpointNotSaved(one.claim.run_id, one.live.unwritten)
        return None

    def _is_worth_waiting(self) -> bool:
        """Whether a run still works. A run that asked for this restart only waits for it. It is paused last,
        so that it goes on where it is if the drain is taken back."""
        return any(not one.live.is_ready_to_pause for one in self._in_flight.carried.values())

    def _time_left(self, began_at: float) -> float:
        if self._is_hurried:
            return 0.0
        # A function that is left in its thread would go on while the next process repeats it.
        is_busy = self._threads.busy or any(one.live.must_land for one in self._in_flight.carried.values())
        return began_at + (self.patience.effects_s if is_busy else self.patience.steps_s) - _now()

    def _waited_for(self) -> str:
        """The runs that the drain waits for, and why, for the log."""
        carried = sorted(self._in_flight.carried.values(), key=lambda one: not one.live.must_land)
        named = ", ".join(
            f"{one.live.task.name} ({one.claim.task_id}) {_what_keeps(one)}" for one in carried[:_NAMED]
        )
        return named if len(carried) <= _NAMED else f"{named}, and {len(carried) - _NAMED} more"

    async def stop_now(self) -> CheckpointNotSaved | None:
        """Pause every run where it is, then interrupt it. Other processes rescue what was not paused."""
        left = self._in_flight.all_runs()
        try:
            problem = await self._pause(left)
        finally:
            for one in left:
                one.give_up(StopReason.DRAINING)
            await self._interrupt(left)
        return problem

    async def _interrupt(self, some: Sequence[RunInFlight]) -> None:
        """Interrupt programs whose runs are no longer ours, and forget them."""
        unwind_s = self.patience.unwind_s
        await interrupt(some, within_s=min(1.0, unwind_s) if self._is_hurried else unwind_s)
        self._in_flight.let_go(some)

    async def _pause_left_over(self) -> CheckpointNotSaved | None:
        """Pause the runs that have stopped already; they need not wait for the others."""
        some = list(self._in_flight.left_over.values())
        problem = await self._pause(some)
        if problem is None:
            self._in_flight.let_go(some)
        return problem

    async def _pause(self, some: Sequence[RunInFlight]) -> CheckpointNotSaved | None:
        """Checkpoint and fence in one write. Cancel beats pause: a run of a cancelled task ends."""
        try:
            for one in some:
                if one.live.why is StopReason.CANCELLED:
                    await self._end_or_say(one)
                elif one.trouble is not None:
                    await self.pause_troubled(one)
            paused = [one for one in some if not one.live.is_given_up]
            if paused:
                asking: dict[str, str] = {
                    one.claim.run_id: why for one in paused if (why := one.live.restart_why) is not None
                }
                await self._checkpoints.pause([one.claim for one in paused], self.reason, asking=asking)
        except CheckpointNotSaved as error:
            return error
        for one in paused:
            one.give_up(StopReason.DRAINING)
        return None

    async def _end_or_say(self, one: RunInFlight) -> None:
        """Raises CheckpointNotSaved, which names this run."""
        try:
            await self.end_cancelled(one)
        except StoreUnavailable as error:
            raise CheckpointNotSaved(one.claim.run_id, str(error)) from error

    async def end_cancelled(self, one: RunInFlight) -> None:
        """End a cancelled task without waiting for its program, whose later writes are refused."""
        if one.live.is_given_up:
            return
        failure = Failure(kind="cancelled", message=one.live.task.cancel_reason or "cancelled")
        with contextlib.suppress(ClaimLost):
            await self._ledger.fail(one.claim, failure, status=RunStatus.CANCELLED)
        one.give_up(StopReason.CANCELLED)

    async def pause_troubled(self, one: RunInFlight) -> None:
        """Pause a run after an unexpected error; like crashes, attempts without progress are limited."""
        assert one.trouble is not None
        failure = failure_of(one.trouble)
        note = f"{failure.kind}: {failure.message}"[:2000]
        await self._checkpoints.pause([one.claim], ResumeReason.CRASH, kind=CheckpointKind.CRASH, note=note)
        one.give_up(StopReason.CRASHED)


def _what_keeps(one: RunInFlight) -> str:
    if one.live.unwritten is not None:
        return "cannot write the outcome of an effect"
    if one.live.effects:
        return "has an effect in flight"
    return "has a function in a thread" if one.live.must_land else "is in a step"


def _now() -> float:
    return asyncio.get_running_loop().time()
