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
# Between two words about what is waited for, and how many are named.
_SAY_EVERY_S = 5.0
_NAMED = 3


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long a stop waits, in seconds, and for what."""

    # For effects in flight, and for functions in threads, which nobody can interrupt.
    effects_s: float
    # For other steps: what was not saved is done again.
    steps_s: float
    # For a program that was told to end by itself, because its task is cancelled.
    grace_s: float
    # For programs that were interrupted at the deadline: everything is saved, and only they are in the way.
    unwind_s: float


class Drain:
    """Stops everything that a process carries."""

    def __init__(
        self,
        hands: RunsInFlight,
        ledger: Ledger,
        checkpoints: Checkpoints,
        threads: StepThreads,
        patience: Patience,
    ) -> None:
        self._in_flight = hands
        self._ledger = ledger
        self._checkpoints = checkpoints
        self._threads = threads
        self.patience = patience
        self._is_hurried = False
        # A child has ended, or somebody is in a hurry.
        self.news = asyncio.Event()
        self.reason = ResumeReason.EXPLICIT_RESTART

    def hurry(self) -> None:
        """Wait for nothing any more."""
        self._is_hurried = True
        self.news.set()

    def tell(self) -> None:
        """From now on the next call of every run raises Stopping."""
        for one in self._in_flight.carried.values():
            one.tell(StopReason.DRAINING)

    async def run(self, *, may_go_on: bool = False) -> None:
        """Every run stops at its next call. Effects in flight are waited for before anything else.

        At the deadline a checkpoint of each is saved and its fence raised, in one write; only then are they
        interrupted, so that whatever a program does while it unwinds is not written. Raises
        CheckpointNotSaved when one could not be saved; everything has stopped all the same, unless we may
        go on: then nothing is interrupted that was not paused.
        """
        self.tell()
        began_at = said_at = _now()
        problem = await self._pause_left_over()
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
                # Nothing can be paused in a ledger that cannot be written: to wait for it would be in vain.
                problem = problem or self._why_unwritten(began_at)
                if problem is not None:
                    raise problem
        if may_go_on:
            problem = await self._pause(self._in_flight.everyone())
            if problem is not None:
                raise problem
        problem = await self.stop_now() or problem
        if problem is not None:
            raise problem

    def _why_unwritten(self, since: float) -> CheckpointNotSaved | None:
        """Why one of them cannot even write what came of an effect that is done. What was so before the drain
        began may be over."""
        for one in self._in_flight.carried.values():
            if one.live.unwritten is not None and one.live.unwritten_at >= since:
                return CheckpointNotSaved(one.claim.run_id, one.live.unwritten)
        return None

    def _is_worth_waiting(self) -> bool:
        """Whether a run still works. One that has asked for this restart waits for us, and is paused last:
        so it goes on where it is if the drain is taken back."""
        return any(not one.live.is_ready_to_pause for one in self._in_flight.carried.values())

    def _time_left(self, began_at: float) -> float:
        if self._is_hurried:
            return 0.0
        # A function in a thread that was left alone would go on beside whoever repeats it.
        is_busy = self._threads.busy or any(one.live.must_land for one in self._in_flight.carried.values())
        return began_at + (self.patience.effects_s if is_busy else self.patience.steps_s) - _now()

    def _waited_for(self) -> str:
        """For whoever wonders why it takes so long."""
        carried = sorted(self._in_flight.carried.values(), key=lambda one: not one.live.must_land)
        named = ", ".join(
            f"{one.live.task.name} ({one.claim.task_id}) {_what_keeps(one)}" for one in carried[:_NAMED]
        )
        return named if len(carried) <= _NAMED else f"{named}, and {len(carried) - _NAMED} more"

    async def stop_now(self) -> CheckpointNotSaved | None:
        """Pause everything where it is, then interrupt it. What could not be paused is rescued by others."""
        left = self._in_flight.everyone()
        try:
            problem = await self._pause(left)
        finally:
            for one in left:
                one.give_up(StopReason.DRAINING)
            unwind_s = self.patience.unwind_s
            await interrupt(left, within_s=min(1.0, unwind_s) if self._is_hurried else unwind_s)
            self._in_flight.let_go(left)
        return problem

    async def _pause_left_over(self) -> CheckpointNotSaved | None:
        """Those that have stopped already need not wait for the others."""
        some = list(self._in_flight.left_over.values())
        problem = await self._pause(some)
        if problem is None:
            self._in_flight.let_go(some)
        return problem

    async def _pause(self, some: Sequence[RunInFlight]) -> CheckpointNotSaved | None:
        """Checkpoint and fence in one write. Cancel beats pause: who was to end, ends."""
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
        """Raises CheckpointNotSaved, which names this very run."""
        try:
            await self.end_cancelled(one)
        except StoreUnavailable as error:
            raise CheckpointNotSaved(one.claim.run_id, str(error)) from error

    async def end_cancelled(self, one: RunInFlight) -> None:
        """The ledger does not wait for a program: its task ends, and its later writes are refused."""
        if one.live.is_given_up:
            return
        failure = Failure(kind="cancelled", message=one.live.task.cancel_reason or "cancelled")
        with contextlib.suppress(ClaimLost):
            await self._ledger.fail(one.claim, failure, status=RunStatus.CANCELLED)
        one.give_up(StopReason.CANCELLED)

    async def pause_troubled(self, one: RunInFlight) -> None:
        """Something went wrong that nobody foresaw: bounded, as a crash is, by attempts without progress."""
        assert one.trouble is not None
        failure = failure_of(one.trouble)
        note = f"{failure.kind}: {failure.message}"[:2000]
        await self._checkpoints.pause([one.claim], ResumeReason.CRASH, kind=CheckpointKind.CRASH, note=note)
        one.give_up(StopReason.CRASHED)


def _what_keeps(one: RunInFlight) -> str:
    if one.live.unwritten is not None:
        return "knows what came of an effect and cannot write it"
    if one.live.effects:
        return "has an effect in flight"
    return "has a function in a thread" if one.live.must_land else "is in a step"


def _now() -> float:
    return asyncio.get_running_loop().time()
