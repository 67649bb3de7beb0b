"""Runs waiting writes in groups that share one commit.

Callers queue a write and wait. The thread of a session takes everything that waits, runs it as one group
(write_groups.py), and answers only after the commit. A caller that is alone writes on its own thread instead
(inline_write.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from holdfast.core.errors import StoreUnavailable
from holdfast.store.contract import Busy, Write
from holdfast.store.inline_write import InlineWrites
from holdfast.store.write_groups import GroupRunner, Pending, in_words, may_retry
from holdfast.store.write_session import WriteSession

T = TypeVar("T")

MAX_GROUP = 512
# Closing waits for queued writes, but no longer than this for a server that is gone.
CLOSE_WITHIN_S = 5.0


class Writer:
    """The queue of writes, the threads that serve it, and the short cut for a caller that is alone."""

    def __init__(
        self,
        sessions: Sequence[WriteSession],
        *,
        on_commit: Callable[[set[str]], None] = lambda _topics: None,
        max_transaction: int = MAX_GROUP,
        may_run_inline: bool = True,
        name: str = "holdfast-writer",
    ) -> None:
        """Without `may_run_inline` every write of a coroutine goes to a writer's thread."""
        self._sessions = list(sessions)
        self._max_transaction = max_transaction
        self._waiting: deque[Pending[Any]] = deque()
        self._wake = threading.Condition(threading.Lock())
        self._locks = [threading.Lock() for _ in sessions]
        self._is_closed = False
        self._sleepers = 0
        self._inline = InlineWrites(is_allowed=may_run_inline)
        self._groups = GroupRunner(on_commit=on_commit, on_timed=self._inline.note_commit)
        self._threads = [
            threading.Thread(target=self._serve, args=(index,), name=f"{name}-{index}", daemon=True)
            for index in range(len(self._sessions))
        ]
        for thread in self._threads:
            thread.start()

    async def write(self, write: Write[T]) -> T:
        loop = asyncio.get_running_loop()
        pending = Pending.of(write)
        if not self._waiting and self._inline.is_quiet:
            caller = asyncio.current_task(loop)
            free = self._free_session() if self._inline.admits(loop, caller) else None
            if free is not None:
                session, lock = free
                try:
                    self._run_inline(session, pending)
                finally:
                    lock.release()
                    if self._inline.must_yield(caller):
                        await asyncio.sleep(0)
                if pending.is_settled:
                    return pending.result()
        pending.loop, pending.future = loop, loop.create_future()
        self._enqueue(pending)
        return await pending.future

    def write_now(self, write: Write[T]) -> T:
        pending = Pending.of(write)
        if self._waiting or not self._run_here(pending):
            ready = pending.on_thread()
            self._enqueue(pending)
            ready.wait()
        return pending.result()

    def close(self) -> None:
        """Run what waits, then stop. Safe twice."""
        with self._wake:
            self._is_closed = True
            self._groups.give_up_by = min(self._groups.give_up_by, time.monotonic() + CLOSE_WITHIN_S)
            self._wake.notify_all()
        for thread in self._threads:
            thread.join()
        self._refuse_latecomers()
        for session, lock in zip(self._sessions, self._locks, strict=True):
            with lock:
                session.close()

    def _refuse_latecomers(self) -> None:
        """Fail the writes that were queued while the last thread was ending."""
        late = []
        with contextlib.suppress(IndexError):
            while True:
                late.append(self._waiting.popleft())
        for member in late:
            member.error = StoreUnavailable("the store is closed")
        _settle(late)

    def exclusively(self, act: Callable[[WriteSession], T]) -> T:
        """Use the first session between groups."""
        with self._locks[0]:
            return act(self._sessions[0])

    # --- on the caller's thread

    def _free_session(self) -> tuple[WriteSession, threading.Lock] | None:
        """A session that no thread uses, and its lock, which the caller must release; or None."""
        for session, lock in zip(self._sessions, self._locks, strict=True):
            if lock.acquire(blocking=False):
                return session, lock
        return None

    def _run_inline(self, session: WriteSession, pending: Pending[Any]) -> None:
        """Settles it, unless a writer's thread must take it: waiting for a server, or for another process,
        would block the event loop. Raises what will not pass."""
        self._refuse_when_closed()
        started = time.perf_counter()
        session.tx.is_inline = True
        try:
            self._groups.run_together(session, [pending], may_wait=False)
        except Busy:
            return
        except Exception as error:
            session.tx.forget()
            if not may_retry(session, error):
                explained = in_words(session, error)
                if explained is error:
                    raise
                raise explained from error
            pending.cause = error
            return
        finally:
            session.tx.is_inline = False
        pending.is_settled = True
        self._inline.note_commit(time.perf_counter() - started)

    def _run_here(self, pending: Pending[Any]) -> bool:
        """True when it has its answer; False when no session was free."""
        free = self._free_session()
        if free is None:
            return False
        session, lock = free
        try:
            self._refuse_when_closed()
            self._run(session, [pending])
        finally:
            lock.release()
        return True

    def _refuse_when_closed(self) -> None:
        if self._is_closed:
            raise StoreUnavailable("the store is closed")

    # --- the writer's thread

    def _enqueue(self, pending: Pending[Any]) -> None:
        self._refuse_when_closed()
        self._waiting.append(pending)
        # The lock is only for a thread that sleeps. A thread counts itself as a sleeper before it looks at
        # the queue for the last time: so it sees this member, or we see that it sleeps.
        if self._sleepers:
            with self._wake:
                self._wake.notify()
        if self._is_closed and not any(thread.is_alive() for thread in self._threads):
            self._refuse_latecomers()  # the store was closed since we looked

    def _serve(self, index: int) -> None:
        session, lock = self._sessions[index], self._locks[index]
        while True:
            with self._wake:
                self._sleepers += 1
                while not self._waiting and not self._is_closed:
                    self._wake.wait()
                self._sleepers -= 1
                if not self._waiting:
                    return
            with lock:
                group = self._take_group()
                try:
                    self._run(session, group)
                except BaseException as error:  # noqa: BLE001 - whatever it is, no caller may wait for ever
                    for member in group:
                        if not member.is_settled:
                            member.error = error
            _settle(group)

    def _take_group(self) -> list[Pending[Any]]:
        with self._wake:
            # Sessions share what waits, so that all of them commit at the same time.
            share = min(MAX_GROUP, -(-len(self._waiting) // len(self._sessions)))
            group: list[Pending[Any]] = []
            singles = 0
            while len(group) < share:
                singles += not self._waiting[0].is_crowd
                if singles > self._max_transaction:
                    break
                group.append(self._waiting.popleft())
            return group

    def _run(self, session: WriteSession, group: list[Pending[Any]]) -> None:
        self._inline.note_group(len(group))
        self._groups.run(session, group)


def _settle(group: list[Pending[Any]]) -> None:
    """Answer every member; one wake-up per event loop."""
    loops: dict[asyncio.AbstractEventLoop, list[Pending[Any]]] = {}
    for member in group:
        if member.ready is not None:
            member.ready.set()
        elif member.loop is not None:
            loops.setdefault(member.loop, []).append(member)
    for loop, members in loops.items():
        # No caller waits in a loop that was closed meanwhile.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle_on_loop, members)


def _settle_on_loop(members: list[Pending[Any]]) -> None:
    for member in members:
        future = member.future
        if future is None or future.done():  # its caller was cancelled
            continue
        if member.error is None:
            future.set_result(member.answer)
        elif isinstance(member.error, StopIteration):  # no future accepts that
            future.set_exception(RuntimeError("a write raised StopIteration"))
        else:
            future.set_exception(member.error)
