"""A worker over a store of a test: one process that carries tasks, as `open` and `serve` have it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, TypeVar

import holdfast as hf
from holdfast.core.clock import Clock
from holdfast.core.errors import StoreUnavailable
from holdfast.core.run import RunRecord
from holdfast.core.transitions import RunStatus
from holdfast.engine.aio.background import beside
from holdfast.engine.claims.boots import Life
from holdfast.engine.client.handles import Holdfast
from holdfast.engine.program.definitions import TaskDefinition, by_name
from holdfast.engine.worker.worker import Worker
from holdfast.store import Store, Tx, Write
from holdfast.testing import WrappingStore, name_of

T = TypeVar("T")

# Long enough for a slow machine; no test waits for it unless something is wrong.
PATIENCE_S = 20.0


class Process:
    """One life on a ledger, with what it carries."""

    def __init__(self, life: Life, holdfast: Holdfast, worker: Worker) -> None:
        self.life = life
        self.holdfast = holdfast
        self.worker = worker

    async def runs(self, task_id: str) -> list[RunRecord]:
        return await self.holdfast.store.read(lambda tx: tx.runs.of_task(task_id))


@asynccontextmanager
async def carrying(
    store: Store, clock: Clock, *tasks: TaskDefinition[..., Any], **options: Any
) -> AsyncIterator[Process]:
    """Works while the block runs; what it carries then is paused, and its life is over."""
    life = await Life.begin(store, clock, locks=None)
    known = by_name(tasks)
    holdfast = Holdfast(store, clock, known)
    seconds = {"grace": 5.0, "drain_timeout": 10.0} | options
    for name in ("grace", "drain_timeout", "step_patience", "lease"):
        if name in seconds:
            seconds[name] = timedelta(seconds=seconds[name])
    worker = Worker(store, clock, life, known, on_let_go=holdfast.endings.tell, **seconds)
    await worker.take_over()
    async with beside(worker):
        yield Process(life, holdfast, worker)
    await life.end()


async def soon(awaited: Awaitable[T]) -> T:
    """What must come; a test that hangs says so."""
    async with asyncio.timeout(PATIENCE_S):
        return await awaited


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for a fact that no hint tells."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.005)


async def until_run(store: Store, task_id: str, *statuses: RunStatus) -> None:
    """Wait until the first run of a task is in one of these statuses."""
    await until(lambda: store.read_now(lambda tx: tx.runs.of_task(task_id))[0].status in statuses)


class GateAndNotes:
    """What the programs of one test share with it: a gate that they wait at, and notes of what was done."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.open = asyncio.Event()
        self.thread_open = threading.Event()
        self.notes: list[str] = []

    def count(self, note: str) -> int:
        return self.notes.count(note)


class WatchedStore(WrappingStore):
    """A store that can be away, and that tells what is written."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.is_away = False
        self.refusals = 0
        self.writes: list[str] = []
        self.reads = 0
        self.after_write: Callable[[str], Awaitable[None]] | None = None

    async def write(self, write: Write[T]) -> T:
        self._refuse()
        self.writes.append(name_of(write))
        answer = await self.inner.write(write)
        if self.after_write is not None:
            await self.after_write(name_of(write))
        return answer

    async def read(self, read: Callable[[Tx], T]) -> T:
        self._refuse()
        self.reads += 1
        return await self.inner.read(read)

    def _refuse(self) -> None:
        if self.is_away:
            self.refusals += 1
            raise StoreUnavailable("it is away, says the test")


def note_step(gate: GateAndNotes) -> Callable[[str], Any]:
    async def note(text: str) -> str:
        gate.notes.append(text)
        return text

    return note


def waiting_task(gate: GateAndNotes) -> hf.TaskDefinition[[], str]:
    """Does one step, waits for the door in a second one, and does a third."""
    note = note_step(gate)

    async def wait() -> None:
        gate.entered.set()
        await gate.open.wait()

    @hf.task(name="waiting")
    async def waiting(run: hf.Run) -> str:
        await run.step(hf.step(note, id="before"), "before")
        await run.step(wait)
        return await run.step(hf.step(note, id="after"), "after")

    return waiting


async def runs_of(store: Store, task_id: str) -> list[RunStatus]:
    return [run.status for run in await store.read(lambda tx: tx.runs.of_task(task_id))]
