"""Runs in flight in this process: each with the child that executes it; stopped, interrupted, released."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from holdfast.core.claim import Claim
from holdfast.engine.claims.heartbeat import Heartbeat
from holdfast.engine.program.live_run import LiveRun
from holdfast.engine.program.run_phase import StopReason
from holdfast.engine.worker.execution import Execution

log = logging.getLogger("holdfast")

# Between two interrupts of a program that does not want to stop.
FORCE_EVERY_S = 1.0


class RunInFlight:
    """One run that this process executes."""

    child: asyncio.Task[None]

    def __init__(self, execution: Execution, sleep: Sleep) -> None:
        self.execution = execution
        # An unexpected error that kept it from ending properly; not one of the database.
        self.trouble: Exception | None = None
        self._sleep = sleep

    @property
    def live(self) -> LiveRun:
        return self.execution.live

    @property
    def claim(self) -> Claim:
        return self.execution.claimed.claim

    def tell(self, why: StopReason) -> None:
        """The next call of the program raises Stopping; a short sleep in memory ends now."""
        self.live.stop(why)
        self._sleep.end()

    def give_up(self, why: StopReason) -> None:
        """Its claim is gone, so nothing that the program still does is written."""
        self.live.give_up(why)
        self._sleep.end()

    async def ends_within(self, seconds: float) -> bool:
        await asyncio.wait([self.child], timeout=seconds)
        return self.child.done()

    def abandon(self) -> None:
        """Close a program that swallows every interrupt, as a generator is closed.

        If it swallows even that, it goes on, and nothing that it does is written.
        """
        log.error("%s does not stop; nothing that it still does is written", self.claim.run_id)
        self.live.abandon()
        coroutine: Any = self.child.get_coro()
        with contextlib.suppress(Exception):
            coroutine.close()
        self.child.cancel()  # so that its child notices


class RunsInFlight:
    """All runs of a process: those with a child, and those whose child left them unfinished."""

    def __init__(self, heartbeat: Heartbeat) -> None:
        self._heartbeat = heartbeat
        self.carried: dict[str, RunInFlight] = {}
        # Their children ended and left no record in the ledger: the database was away, or we drain.
        self.left_over: dict[str, RunInFlight] = {}

    def __len__(self) -> int:
        return len(self.carried)

    def task_ids(self) -> list[str]:
        return [one.claim.task_id for one in self.carried.values()]

    def all_runs(self) -> list[RunInFlight]:
        return [*self.carried.values(), *self.left_over.values()]

    def take(self, one: RunInFlight) -> None:
        self.carried[one.claim.run_id] = one

    def put_down(self, one: RunInFlight) -> None:
        """Its child has ended. A claim that is still held is renewed until it is released."""
        if self.carried.pop(one.claim.run_id, None) is None:
            return
        if one.live.is_given_up:
            self._heartbeat.let_go(one.claim)
        else:
            self.left_over[one.claim.run_id] = one

    def let_go(self, some: Iterable[RunInFlight]) -> None:
        for one in some:
            self.carried.pop(one.claim.run_id, None)
            self.left_over.pop(one.claim.run_id, None)
            self._heartbeat.let_go(one.claim)


async def interrupt(some: Sequence[RunInFlight], *, within_s: float) -> None:
    """Cancel the children until they have ended; abandon those that do not end."""
    until = _now() + within_s
    # Even if the time is short, interrupt a program that swallows one more than once.
    every_s = min(FORCE_EVERY_S, within_s / 4)
    while (alive := [one.child for one in some if not one.child.done()]) and _now() < until:
        for child in alive:
            child.cancel()
        await asyncio.wait(alive, timeout=min(every_s, until - _now()))
    stubborn = [one for one in some if not one.child.done()]
    for one in stubborn:
        one.abandon()
    if stubborn:
        await asyncio.wait([one.child for one in stubborn], timeout=every_s)


class Sleep:
    """Sleeps as the clock does, until the run is told to stop: then its next call raises Stopping."""

    def __init__(self, sleep: Callable[[float], Awaitable[object]]) -> None:
        self._sleep = sleep
        self._is_over = False
        self._told: asyncio.Event | None = None

    def end(self) -> None:
        """End every sleep of this run, from now on."""
        self._is_over = True
        if self._told is not None:
            self._told.set()

    async def __call__(self, seconds: float) -> None:
        if self._is_over:
            await asyncio.sleep(0)  # a program that calls again at once must not block the loop
            return
        self._told = self._told or asyncio.Event()
        waits = [asyncio.ensure_future(self._sleep(seconds)), asyncio.ensure_future(self._told.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
            await asyncio.gather(*waits, return_exceptions=True)


def _now() -> float:
    return asyncio.get_running_loop().time()
