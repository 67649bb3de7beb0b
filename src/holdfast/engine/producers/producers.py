"""Producers: the calls of programs that execute work themselves and record it here."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from holdfast.core.clock import Clock
from holdfast.core.ids import BootId
from holdfast.core.payload import encode_payload
from holdfast.core.recorded import RecordedWork, TerminalOutcome
from holdfast.core.task import Failure, Progress
from holdfast.core.transitions import RunStatus
from holdfast.engine.ledger.ledger import DEFAULT_RETENTION, FinishOutcome, owned
from holdfast.engine.producers import writes
from holdfast.engine.producers.contract import Runtime
from holdfast.engine.producers.stopping import RecordedCancelOutcome, cancel_recorded
from holdfast.engine.producers.writes import NewRecord, NoteOutcome
from holdfast.store import Store, Tx
from holdfast.store.blobs import pack_beside


class Producers:
    """Records work that others execute. Every call is one write, named by the run id (or the task id), and
    may be repeated: after an end, the same end again answers Finished, anything else AlreadyEnded."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        runtimes: Sequence[Runtime] = (),
        retention: timedelta = DEFAULT_RETENTION,
    ) -> None:
        self.runtimes = tuple(runtimes)
        self._store = store
        self._clock = clock
        self._retention = retention

    async def create(
        self, new: NewRecord, *, is_running: bool = False, holder: BootId | None = None
    ) -> RecordedWork:
        """The record, durable when this returns: queued, or already running."""
        write = writes.recording(new, is_running=is_running, now=self._clock.now(), holder=holder)
        return await self._store.write(write)

    async def get(self, target: str, *, owner: str | None = None) -> RecordedWork:
        def read(tx: Tx) -> RecordedWork:
            work = writes.find(tx, target)
            owned(work.task, owner)
            return work

        return await self._store.read(read)

    async def start(self, target: str, *, owner: str | None = None) -> NoteOutcome:
        return await self._store.write(writes.starting(target, now=self._clock.now(), owner=owner))

    async def beat(self, target: str, *, owner: str | None = None) -> NoteOutcome:
        """A sign of life. The answer tells whether a cancel was requested, or the record has ended."""
        return await self._store.write(writes.beating(target, now=self._clock.now(), owner=owner))

    async def progress(
        self,
        target: str,
        progress: Progress | None = None,
        *,
        summary: str | None = None,
        tool: str | None = None,
        tool_uses: int = 0,
        owner: str | None = None,
    ) -> NoteOutcome:
        return await self._store.write(
            writes.progressing(
                target,
                progress=progress,
                summary=summary,
                tool=tool,
                tool_uses=tool_uses,
                now=self._clock.now(),
                owner=owner,
            )
        )

    async def finish(
        self,
        target: str,
        result: object = None,
        *,
        summary: str | None = None,
        outcome: TerminalOutcome | str = TerminalOutcome.SUCCEEDED,
        owner: str | None = None,
    ) -> FinishOutcome:
        """End the work with success, also if its start was never recorded."""
        packed = await pack_beside(encode_payload("result", result), self._store.sealing)
        return await self._store.write(
            writes.finishing(
                target,
                packed,
                summary=summary,
                outcome=outcome,
                now=self._clock.now(),
                owner=owner,
                retention=self._retention,
            )
        )

    async def fail(
        self,
        target: str,
        failure: Failure,
        *,
        summary: str | None = None,
        owner: str | None = None,
    ) -> FinishOutcome:
        return await self._fail(target, failure, RunStatus.FAILED, summary, owner)

    async def time_out(
        self, target: str, failure: Failure, *, summary: str | None = None, owner: str | None = None
    ) -> FinishOutcome:
        return await self._fail(target, failure, RunStatus.TIMED_OUT, summary, owner)

    async def stopped(self, target: str, *, reason: str, owner: str | None = None) -> FinishOutcome:
        """The producer itself stopped the work: end the record as cancelled, without asking a runtime."""
        failure = Failure(kind="cancelled", message=reason)
        return await self._fail(target, failure, RunStatus.CANCELLED, None, owner)

    async def lose(self, target: str, *, why: str) -> FinishOutcome:
        """Nothing proves that the work is alive, and nothing can find it again: end the record as lost."""
        return await self._fail(target, Failure(kind="lost", message=why), RunStatus.LOST, None, None)

    async def note_dropped(self, target: str, total: int) -> None:
        """Record that the ledger did not get some reports about this work, so that an audit finds it.
        `total` counts from the beginning."""
        await self._store.write(writes.noting_drops(target, total, now=self._clock.now()))

    async def note_unrecorded(self, name: str, run_id: str, count: int) -> None:
        """Record that some work was executed and not recorded; this run was the last of it."""
        await self._store.write(writes.noting_unrecorded(name, run_id, count, now=self._clock.now()))

    async def cancel(self, target: str, *, reason: str, owner: str | None = None) -> RecordedCancelOutcome:
        """Let the runtime that controls the work stop it, then end the record. Without such a runtime only
        the record ends, and the producer hears of it at its next call."""
        work = await self.get(target, owner=owner)
        return await cancel_recorded(self._store, self._clock, self.runtimes, work, reason=reason)

    async def _fail(
        self, target: str, failure: Failure, status: RunStatus, summary: str | None, owner: str | None
    ) -> FinishOutcome:
        return await self._store.write(
            writes.failing(
                target,
                failure,
                status=status,
                summary=summary,
                now=self._clock.now(),
                owner=owner,
                retention=self._retention,
            )
        )
