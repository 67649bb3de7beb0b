"""Detached work of this process: recorded while a block of code runs, and ended with it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from holdfast.core.clock import Clock
from holdfast.core.errors import TaskFailed
from holdfast.core.ids import BootId, new_run_id
from holdfast.core.task import Failure, Progress
from holdfast.core.transitions import TaskStatus
from holdfast.engine.aio.background import beside
from holdfast.engine.aio.service import Service
from holdfast.engine.ledger.ledger import AlreadyEnded, FinishOutcome
from holdfast.engine.producers.producers import Producers
from holdfast.engine.producers.writes import NewRecord
from holdfast.engine.program.live_run import shielded

log = logging.getLogger("holdfast")

# How many reports of best-effort work wait for the ledger; more are dropped.
MAX_WAITING = 100
# How long the end of best-effort work waits for the ledger before it drops what is left.
LAST_WORDS_S = 2.0

Report = Callable[[], Awaitable[object]]


class UnrecordedNotes:
    """Best-effort work of this process that the ledger did not record; told to it when it answers again."""

    def __init__(self) -> None:
        self.total = 0
        self._told = 0
        self._last = ("", "")

    def add(self, name: str, run_id: str) -> None:
        self.total += 1
        self._last = (name, run_id)

    async def tell(self, producers: Producers) -> None:
        count = self.total - self._told
        if count:
            await producers.note_unrecorded(*self._last, count)
            self._told += count


class DetachedTask:
    """One piece of work that this process executes, as the ledger records it."""

    def __init__(
        self,
        producers: Producers,
        clock: Clock,
        new: NewRecord,
        *,
        holder: BootId | None,
        is_best_effort: bool,
        unrecorded: UnrecordedNotes,
    ) -> None:
        # The id is made here, so that a repeated create finds the first record.
        self.run_id = new.run_id or new_run_id(clock.now())
        # Set with the record; None while a best-effort record could not be created.
        self.task_id: str | None = None
        # How many reports of best-effort work the ledger did not get.
        self.dropped = 0
        # Set this to what the work produced; it becomes the result of the task.
        self.result: object = None
        self.summary: str | None = None
        self.is_cancel_requested = False
        # How the record had ended when the ledger refused the end of this block; None if it did not.
        self.refused_as: str | None = None
        self.is_best_effort = is_best_effort
        self._producers = producers
        self._new = msgspec.structs.replace(new, run_id=self.run_id)
        self._holder = holder
        self._noted_drops = 0
        self._unrecorded = unrecorded
        self._reports: asyncio.Queue[Report] | None = (
            asyncio.Queue(maxsize=MAX_WAITING) if is_best_effort else None
        )

    async def progress(
        self,
        summary: str | None = None,
        *,
        done: int | None = None,
        total: int | None = None,
        failed: int = 0,
        tool: str | None = None,
        tool_uses: int = 0,
    ) -> None:
        """Record how far the work is; it counts as a sign of life."""
        counts = None
        if done is not None or total is not None or failed:
            counts = Progress(done=done or 0, total=total, failed=failed)
        await self.report(
            lambda: self._producers.progress(
                self.run_id, counts, summary=summary, tool=tool, tool_uses=tool_uses
            )
        )

    async def create(self) -> None:
        work = await self._producers.create(self._new, is_running=True, holder=self._holder)
        self.task_id = work.task.id

    async def report(self, act: Report) -> None:
        """Make the call now; for best-effort work queue it, and drop it if too many wait."""
        if self._reports is None:
            await act()
            return
        try:
            self._reports.put_nowait(act)
        except asyncio.QueueFull:
            self.dropped += 1

    async def beat(self) -> bool:
        """A sign of life. True if the work should stop: its cancel was requested, or its record has ended."""
        answer = await self._producers.beat(self.run_id)
        if isinstance(answer, AlreadyEnded):
            self.is_cancel_requested = answer.task.status is TaskStatus.CANCELLED
        else:
            self.is_cancel_requested = answer.is_cancel_requested
        return self.is_cancel_requested

    async def succeed(self) -> None:
        await self.report(
            lambda: self._end(self._producers.finish(self.run_id, self.result, summary=self.summary))
        )

    async def fail(self, error: Exception) -> None:
        failure = Failure(kind=type(error).__name__, message=str(error))
        await self.report(lambda: self._end(self._producers.fail(self.run_id, failure)))

    async def stop(self, reason: str) -> None:
        await self.report(lambda: self._end(self._producers.stopped(self.run_id, reason=reason)))

    async def _end(self, ending: Awaitable[FinishOutcome]) -> None:
        """A block that was frozen may end after its record: that end stays, and this one is kept as well."""
        outcome = await ending
        if isinstance(outcome, AlreadyEnded) and outcome.task.status is not TaskStatus.CANCELLED:
            self.refused_as = outcome.task.status.value
            log.warning(
                "the record of %s had ended as %s before this block did; its end is kept as evidence: "
                "`holdfast tasks show %s`",
                self.run_id,
                self.refused_as,
                outcome.task.id,
            )

    # --- best effort

    async def send_reports(self) -> None:
        """Send what is queued, in order, until this is cancelled. What the ledger refuses is counted."""
        assert self._reports is not None
        while True:
            act = await self._reports.get()
            try:
                await self._send(act)
            except asyncio.CancelledError:
                self.dropped += 1
                raise
            finally:
                self._reports.task_done()

    async def _send(self, act: Report) -> None:
        try:
            if self.task_id is None:
                await self.create()
            await act()
            if self.dropped > self._noted_drops:
                dropped = self.dropped
                await self._producers.note_dropped(self.run_id, dropped)
                self._noted_drops = dropped
            await self._unrecorded.tell(self._producers)
        except Exception as error:  # noqa: BLE001 - best effort: the work goes on, and the loss is counted
            self.dropped += 1
            if self.dropped == 1:
                log.warning("a report about %s was dropped, and the work goes on: %s", self.run_id, error)

    async def drop_the_rest(self, sender: asyncio.Task[None]) -> None:
        """Give the queued reports a little time, then drop them."""
        assert self._reports is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_S):
                await self._reports.join()
        sender.cancel()
        await asyncio.wait([sender])
        self.dropped += self._reports.qsize()
        if self.task_id is None:
            self._unrecorded.add(self._new.name, self.run_id)
        if self.dropped > self._noted_drops:
            log.warning("the ledger misses %d reports about %s", self.dropped, self.run_id)
            with contextlib.suppress(Exception):  # best effort: the warning has said it
                async with asyncio.timeout(LAST_WORDS_S):
                    await self._producers.note_dropped(self.run_id, self.dropped)


class DetachedBeat(Service):
    """Tells the ledger that the work goes on, and stops the work if the ledger says so."""

    def __init__(self, task: DetachedTask, body: asyncio.Task[object], *, every_s: float) -> None:
        super().__init__(every_s=every_s)
        self._task = task
        self._body = body

    async def run_once(self) -> bool:
        if self._stop.is_set() or self._task.task_id is None or not await self._task.beat():
            return False
        self.stop()
        self._body.cancel()
        return True

    def hurry(self) -> None:
        self.stop()


@contextlib.asynccontextmanager
async def recorded_while_open(task: DetachedTask, *, beat_every_s: float) -> AsyncIterator[DetachedTask]:
    """Record the work of the block: success at its end, failure if it raises, cancelled if it is cancelled.

    If the task is cancelled in the ledger, the block is cancelled, and TaskFailed is raised.
    """
    body = asyncio.current_task()
    assert body is not None
    if not task.is_best_effort:
        await task.create()
        async with _ended_with_block(task, body, beat_every_s):
            yield task
        return
    sender = asyncio.get_running_loop().create_task(task.send_reports(), name="holdfast reports")
    await task.report(_nothing)  # it creates the record
    try:
        async with _ended_with_block(task, body, beat_every_s):
            yield task
    finally:
        await shielded(task.drop_the_rest(sender))


@contextlib.asynccontextmanager
async def _ended_with_block(
    task: DetachedTask, body: asyncio.Task[object], beat_every_s: float
) -> AsyncIterator[None]:
    try:
        async with beside(DetachedBeat(task, body, every_s=beat_every_s)):
            yield
    except asyncio.CancelledError:
        if task.is_cancel_requested and body.uncancel() == 0:
            await task.stop("cancelled in the ledger")
            failure = Failure(kind="cancelled", message="it was cancelled in the ledger")
            raise TaskFailed(task.task_id or task.run_id, TaskStatus.CANCELLED.value, failure) from None
        await shielded(task.stop("the program that executes it was cancelled"))
        raise
    except Exception as error:
        await task.fail(error)
        raise
    await task.succeed()


async def _nothing() -> None:
    return None
