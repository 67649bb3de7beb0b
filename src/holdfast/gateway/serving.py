"""Runs a worker until a signal or a run asks the process to end; a watchdog thread ends a stuck drain."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Iterator

from holdfast.core.checkpoint import ResumeReason
from holdfast.core.clock import Clock
from holdfast.core.errors import HoldfastError
from holdfast.engine.aio.background import beside
from holdfast.engine.recovery.checkpoints import pausing
from holdfast.engine.worker.worker import Worker
from holdfast.gateway.signals import StopRequest
from holdfast.store import Store

log = logging.getLogger("holdfast")

# How much longer than its own limits a drain may take before it counts as stuck.
SLACK_S = 5.0
# The exit status of a process that had to be ended by force.
STUCK = 70
# How long the interpreter may take to exit after everything is saved and closed.
END_WITHIN_S = 2.0


class Requests:
    """A queue of stop and restart requests, in order of arrival."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[StopRequest] = asyncio.Queue()

    def put(self, request: StopRequest) -> None:
        self._queue.put_nowait(request)

    def want_restart(self, why: str) -> None:
        self.put(StopRequest(why=why, wants_restart=True))

    async def next(self, unless: asyncio.Event | None = None) -> StopRequest | None:
        """The next request; None when the event comes first."""
        if unless is None:
            return await self._queue.get()
        waits = [asyncio.ensure_future(self._queue.get()), asyncio.ensure_future(unless.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
            answers = await asyncio.gather(*waits, return_exceptions=True)
        return answers[0] if isinstance(answers[0], StopRequest) else None


async def serve(worker: Worker, requests: Requests, store: Store, clock: Clock) -> StopRequest:
    """Run until the first request, then drain until everything is paused. A second stop ends at once.

    Returns the request. Raises CheckpointNotSaved when a run in flight could not be paused.
    """
    async with beside(worker):
        request = await requests.next()
        assert request is not None
        log.info("stopping: %s", request.why)
        worker.stop(ResumeReason.EXPLICIT_RESTART if request.wants_restart else ResumeReason.SIGNAL)
        with ended_by_force(worker, store, clock):
            while (again := await requests.next(worker.has_ended)) is not None:
                if not again.wants_restart:
                    request = again
                    worker.hurry()
    return request


@contextlib.contextmanager
def ended_by_force(worker: Worker, store: Store, clock: Clock) -> Iterator[None]:
    """End the process from another thread if a program blocks the event loop; that thread first pauses
    what is in flight."""

    def end() -> None:
        claims = worker.claims_in_flight()
        log.critical("the drain is stuck: pausing %d runs and ending the process", len(claims))
        with contextlib.suppress(HoldfastError):
            store.write_now(pausing(claims, ResumeReason.SIGNAL, now=clock.now()))
        os._exit(STUCK)

    watch = threading.Timer(worker.longest_stop_s + SLACK_S, end)
    watch.daemon = True
    watch.start()
    try:
        yield
    finally:
        watch.cancel()


def end_soon(status: int) -> None:
    """End the process now, when everything is saved and closed, whatever programs left running in it.

    Otherwise asyncio would wait for children that ignore every cancel, Python would wait for threads that
    never return, and the next gateway would wait for both.
    """

    def end() -> None:
        log.warning("a thread or child of a program does not end; the process exits without it")
        os._exit(status)

    watch = threading.Timer(END_WITHIN_S, end)
    watch.daemon = True
    watch.start()
