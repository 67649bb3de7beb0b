"""One run while this process carries it: its claim, whether it must stop, and what is in flight."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Executor
from typing import Any, TypeVar

import msgspec

from holdfast.core.claim import Claim
from holdfast.core.clock import Clock
from holdfast.core.errors import ClaimLost, RunOver
from holdfast.core.events import EventKind
from holdfast.core.run import Run as RunRecord
from holdfast.core.task import Task
from holdfast.engine.boots import Life
from holdfast.engine.stopping import Stopping
from holdfast.store import Store, Tx, Write

T = TypeVar("T")


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where runs are carried: what all of them share in one process."""

    store: Store
    clock: Clock
    life: Life
    threads: Executor
    # For digests of inputs, so that nobody guesses a short secret from its digest.
    digest_key: bytes
    # The claim with its present lease.
    newest: Callable[[Claim], Claim]
    # Passes time as the clock does.
    sleep: Callable[[float], Awaitable[object]]


class Live:
    """Every call of a program asks here first: may it go on?"""

    def __init__(self, place: Place, claim: Claim, run: RunRecord, task: Task) -> None:
        self.place = place
        self.store = place.store
        self.clock = place.clock
        self.claim = claim
        self.run = run
        self.task = task
        # Why it must stop; sticky. None while it may go on.
        self.why: str | None = None
        # The run was given up by a write of its own: it waits, was paused, or has ended.
        self.is_given_up = False
        self.is_over = False
        # Whether it may have started other tasks: a first run knows.
        self.has_children = run.number > 1 or run.fence > 1
        self._cleaning = 0
        self._effects = 0
        self._calm = asyncio.Event()
        self._calm.set()

    def check(self) -> None:
        """Raises Stopping, again and again, once the run must stop; RunOver when it has ended."""
        if self.is_over:
            raise RunOver(self.run.id)
        if self.why is not None and (not self._cleaning or self.is_given_up):
            raise Stopping(self.why)

    def stop(self, why: str) -> None:
        """From now on every call raises Stopping. The first reason stays, but cancel beats the others."""
        if self.why is None or why == "cancelled":
            self.why = why

    def give_up(self, why: str) -> Stopping:
        """The claim is gone by our own write; whatever the program still does, it writes nothing more."""
        self.is_given_up = True
        self.stop(why)
        return Stopping(why)

    async def write(self, write: Write[T]) -> T:
        """A write of this run. A claim that was lost stops the program, too."""
        try:
            return await self.store.write(write)
        except ClaimLost:
            self.is_given_up = True
            self.stop("claim lost")
            raise

    async def call_in_thread(self, fn: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.place.threads, fn)

    # --- effects in flight

    @contextlib.contextmanager
    def effect(self) -> Iterator[None]:
        self._effects += 1
        self._calm.clear()
        try:
            yield
        finally:
            self._effects -= 1
            if not self._effects:
                self._calm.set()

    @property
    def has_effects(self) -> bool:
        return self._effects > 0

    async def until_calm(self) -> None:
        """Until no effect is in flight: to stop in the middle of one would leave it in doubt."""
        await self._calm.wait()

    @contextlib.asynccontextmanager
    async def cleanup(self) -> AsyncIterator[None]:
        """Steps are allowed here although the run is stopping."""
        self._cleaning += 1
        try:
            yield
        finally:
            self._cleaning -= 1

    # --- small facts

    async def emit(self, kind: EventKind, **facts: object) -> None:
        now = self.clock.now()
        task_id, run_id = self.claim.task_id, self.claim.run_id

        def emit(tx: Tx) -> None:
            tx.emit(kind, run_id, at=now, task_id=task_id, **facts)

        await self.store.write(emit)


async def shielded(act: Coroutine[Any, Any, T]) -> T:
    """Wait for it to the end, also when we are cancelled; then be cancelled."""
    child = asyncio.ensure_future(act)
    cancelled: asyncio.CancelledError | None = None
    while not child.done():
        try:
            await asyncio.wait([child])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    return child.result()
