"""Runs waiting writes in groups that share one commit.

Callers hand over a write and wait. Whoever holds a session takes everything that waits, runs each write
inside one transaction (a savepoint each, so that a bad one harms no other), commits once, and only then
answers. An error that ended the transaction acknowledges nobody: each member is run again, alone.
A crowd of writes of one kind becomes one statement instead (see JoinedWrite).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar, cast

import msgspec

from holdfast.core.errors import CannotSeal, KeyProblem, OutcomeUnknown, StoreUnavailable
from holdfast.store.contract import Busy, JoinedWrite, Write
from holdfast.store.running_loop import running
from holdfast.store.sealing import KeyNeeded
from holdfast.store.transaction import Tx

T = TypeVar("T")

log = logging.getLogger("holdfast")

MAX_GROUP = 512
# A loop thread may run a write itself while commits are quicker than this; a slow disk must not block it.
INLINE_COMMIT_S = 0.003
# How long one caller may write inline before the others of its loop have a turn, which costs it a fifth of a
# commit.
INLINE_PASS_S = 0.01
_LONELY_GROUPS = 2
# How long a write is run again after errors that may pass: a deadlock, a server that is starting.
RETRY_FOR_S = 30.0
# Closing waits for what was handed over, but not that long for a server that is gone.
CLOSE_WITHIN_S = 5.0
_MAX_PAUSE_S = 1.0


class Session(Protocol):
    """One connection that can run transactions."""

    tx: Tx

    def begin(self, *, may_wait: bool) -> None:
        """Raises Busy when it may not wait: for another process's transaction, for a server to answer."""
        ...

    def commit(self) -> None:
        """Durable when it returns. Raises CommitUnknown when the answer was lost."""
        ...

    def rollback(self) -> None:
        """Safe when no transaction is open."""
        ...

    def savepoint(self) -> None: ...

    def release(self) -> None: ...

    def rollback_to(self) -> None: ...

    def is_open(self) -> bool:
        """Whether the transaction still exists after an error."""
        ...

    def explain(self, error: Exception) -> Exception | None:
        """StoreUnavailable (or a finer error) for a failure of the database; None for the write's own."""
        ...

    def may_retry(self, error: Exception) -> bool:
        """Whether running the same write again at once may go better: a deadlock, a lost connection."""
        ...

    def alone(self, write: JoinedWrite[T], *, may_wait: bool) -> T:
        """Run a write of one statement without a transaction around it; durable when it returns."""
        ...

    def crowd(self, write: Write[T], *, may_wait: bool) -> T:
        """The same for a crowd of writes of one kind: all of them, or none."""
        ...

    def close(self) -> None: ...


class CommitUnknown(Exception):
    """The answer to a commit was lost. Any session can ask later whether it happened."""

    def __init__(self, ask: Callable[[Any], bool]) -> None:
        super().__init__("the answer to a commit was lost")
        self.ask = ask
        self.topics: set[str] = set()


class Pending(msgspec.Struct, Generic[T], eq=False):
    """One write that waits, and where its answer goes."""

    write: Write[T]
    is_crowd: bool
    loop: asyncio.AbstractEventLoop | None = None
    future: asyncio.Future[T] | None = None
    ready: threading.Event | None = None
    answer: T | None = None
    error: BaseException | None = None
    is_settled: bool = False
    # Why a first attempt on the caller's own thread did not settle it.
    cause: Exception | None = None

    @property
    def is_joined(self) -> bool:
        return getattr(self.write, "is_joined", False)

    @property
    def is_inline(self) -> bool:
        """Whether its caller is running it now, instead of waiting for a writer's thread."""
        return self.future is None and self.ready is None

    def on_thread(self) -> threading.Event:
        self.ready = threading.Event()
        return self.ready

    def result(self) -> T:
        if self.error is not None:
            raise self.error
        return cast(T, self.answer)


class Writer:
    """The queue, the threads that serve it, and the short cut for a caller that is alone."""

    def __init__(
        self,
        sessions: Sequence[Session],
        *,
        on_commit: Callable[[set[str]], None] = lambda _topics: None,
        max_transaction: int = MAX_GROUP,
        may_run_inline: bool = True,
        name: str = "holdfast-writer",
    ) -> None:
        """Without `may_run_inline` every write of a coroutine goes to a writer's thread."""
        self._sessions = list(sessions)
        self._on_commit = on_commit
        self._max_transaction = max_transaction
        self._waiting: deque[Pending[Any]] = deque()
        self._wake = threading.Condition(threading.Lock())
        self._locks = [threading.Lock() for _ in sessions]
        self._pairs = list(zip(self._sessions, self._locks, strict=True))
        self._close_by = math.inf
        self._is_closed = False
        self._sleepers = 0
        self._lonely = 0
        # From so many lonely groups on a caller may write inline.
        self._lonely_enough = _LONELY_GROUPS if may_run_inline else math.inf
        self._commit_s = 0.0
        # Who writes inline in the present pass of its loop, and until when it may.
        self._served: asyncio.Task[Any] | None = None
        self._pass_until = math.inf
        self._threads = [
            threading.Thread(target=self._serve, args=(index,), name=f"{name}-{index}", daemon=True)
            for index in range(len(self._sessions))
        ]
        for thread in self._threads:
            thread.start()

    async def write(self, write: Write[T]) -> T:
        loop, caller = running()
        cause: Exception | None = None
        if self._lonely >= self._lonely_enough and not self._waiting and self._commit_s < INLINE_COMMIT_S:
            whose = caller
            # A child whose parent does nothing but wait for it says who that is.
            if caller is not self._served and caller is not None:
                whose = getattr(caller.get_coro(), "parent", caller)
            if self._served is None:
                self._served, self._pass_until = whose, time.perf_counter() + INLINE_PASS_S
                loop.call_soon(self._end_pass)
            # Alone: nobody waits, and nobody else wrote in this pass of the loop.
            if self._served is whose:
                for session, lock in self._pairs:
                    if not lock.acquire(False):
                        continue
                    ended = started = time.perf_counter()
                    try:
                        if self._is_closed:
                            self._refuse_when_closed()
                        if getattr(write, "is_joined", False):
                            answer: T = session.alone(write, may_wait=False)  # type: ignore[arg-type]
                        else:
                            answer = self._run_inline(session, write)
                    except Exception as error:  # noqa: BLE001 - raised again, unless it may pass
                        cause = self._passing(session, error)
                    else:
                        ended = time.perf_counter()
                        self._commit_s = 0.8 * self._commit_s + 0.2 * (ended - started)
                        return answer
                    finally:
                        lock.release()
                        late_s = ended - self._pass_until
                        # The others of this loop have their turn, as with a hop to the writer's thread.
                        # A child that writes once leaves that to its parent: it costs two hops more.
                        if late_s > 0 and (caller is whose or late_s > INLINE_PASS_S):
                            await asyncio.sleep(0)
                    break
        future: asyncio.Future[T] = loop.create_future()
        self._enqueue(Pending(write, getattr(write, "is_crowd", False), loop, future, cause=cause))
        return await future

    def write_now(self, write: Write[T]) -> T:
        pending = Pending(write, getattr(write, "is_crowd", False))
        if self._waiting or not self._run_here(pending):
            ready = pending.on_thread()
            self._enqueue(pending)
            ready.wait()
        return pending.result()

    def close(self) -> None:
        """Run what waits, then stop. Safe twice."""
        with self._wake:
            self._is_closed = True
            self._close_by = min(self._close_by, time.monotonic() + CLOSE_WITHIN_S)
            self._wake.notify_all()
        for thread in self._threads:
            thread.join()
        self._refuse_latecomers()
        for session, lock in zip(self._sessions, self._locks, strict=True):
            with lock:
                session.close()

    def _refuse_latecomers(self) -> None:
        """Whoever joined the queue while the last thread was leaving it."""
        late = []
        with contextlib.suppress(IndexError):
            while True:
                late.append(self._waiting.popleft())
        for member in late:
            member.error = StoreUnavailable("the store is closed")
        _settle(late)

    def exclusively(self, act: Callable[[Session], T]) -> T:
        """Use the first session between groups."""
        with self._locks[0]:
            return act(self._sessions[0])

    # --- the short cut

    def _end_pass(self) -> None:
        self._served = None

    def _run_inline(self, session: Session, write: Write[T]) -> T:
        pending = Pending(write, getattr(write, "is_crowd", False))
        session.tx.is_inline = True
        try:
            self._run_together(session, [pending], may_wait=False)
        finally:
            session.tx.is_inline = False
        return pending.result()

    @staticmethod
    def _passing(session: Session, error: Exception) -> Exception | None:
        """Why a writer's thread must take it: waiting for a server or for a lock is not for the loop's.
        None: somebody else is writing. Raises what will not pass."""
        if isinstance(error, Busy):
            return None
        session.tx.forget()
        if _may_retry(session, error):
            return error
        explained = _in_words(session, error)
        if explained is error:
            raise error
        raise explained from error

    def _run_here(self, pending: Pending[Any]) -> bool:
        """True when it has its answer; False when no session was free."""
        for session, lock in self._pairs:
            if lock.acquire(blocking=False):
                try:
                    self._refuse_when_closed()
                    self._run(session, [pending])
                    return True
                finally:
                    lock.release()
        return False

    def _refuse_when_closed(self) -> None:
        if self._is_closed:
            raise StoreUnavailable("the store is closed")

    # --- the writer's thread

    def _enqueue(self, pending: Pending[Any]) -> None:
        self._refuse_when_closed()
        self._waiting.append(pending)
        # The lock is only for a thread that sleeps. One says that it will before it looks at the queue for
        # the last time, so it sees this member, or we see that it sleeps.
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
                except BaseException as error:  # noqa: BLE001 - whatever it is, nobody may wait for ever
                    for member in group:
                        if not member.is_settled:
                            member.error = error
            _settle(group)

    def _take_group(self) -> list[Pending[Any]]:
        with self._wake:
            # Sessions share what waits, so that each commit carries its part.
            share = min(MAX_GROUP, -(-len(self._waiting) // len(self._sessions)))
            group: list[Pending[Any]] = []
            singles = 0
            while len(group) < share:
                singles += not self._waiting[0].is_crowd
                if singles > self._max_transaction:
                    break
                group.append(self._waiting.popleft())
            return group

    # --- one group

    def _run(self, session: Session, group: list[Pending[Any]]) -> None:
        """Every member has an answer or an error afterwards."""
        self._lonely = self._lonely + 1 if len(group) == 1 else 0
        for part in _parts(group):
            try:
                self._run_timed(session, part, may_wait=True)
            except Exception as error:  # noqa: BLE001 - whatever ended the transaction, nobody was acknowledged
                session.tx.forget()
                self._run_each(session, part, error)
            for member in part:
                member.is_settled = True
        for member in group:
            if member.cause is not None:
                self._run_each(session, [member], member.cause)
                member.is_settled = True

    def _run_timed(self, session: Session, part: list[Pending[Any]], *, may_wait: bool) -> None:
        started = time.perf_counter()
        self._run_together(session, part, may_wait=may_wait)
        self._commit_s = 0.8 * self._commit_s + 0.2 * (time.perf_counter() - started)

    def _run_together(self, session: Session, part: list[Pending[Any]], *, may_wait: bool) -> None:
        if part[0].is_crowd or (part[0].is_joined and len(part) == 1):
            self._run_joined(session, part, may_wait=may_wait)
            return
        session.begin(may_wait=may_wait)
        try:
            for member in part:
                self._run_member(session, member, is_only=len(part) == 1)
            if any(member.error is None for member in part):
                session.tx.flush()
                session.commit()
            else:
                session.tx.forget()
                session.rollback()
        except CommitUnknown as unknown:
            unknown.topics = session.tx.take_topics()
            session.rollback()
            raise
        except BaseException:
            session.tx.forget()
            session.rollback()
            raise
        self._tell(session.tx.take_topics())

    def _run_joined(self, session: Session, part: list[Pending[Any]], *, may_wait: bool) -> None:
        """One statement for all of one kind, in a transaction of its own."""
        if len(part) == 1:
            write = cast("JoinedWrite[Any]", part[0].write)
            answers: Sequence[Any] = [session.alone(write, may_wait=may_wait)]
        else:
            together = cast(Any, type(part[0].write)).together
            writes = [member.write for member in part]
            answers = session.crowd(lambda tx: together(tx, writes), may_wait=may_wait)
        for member, answer in zip(part, answers, strict=True):
            is_error = isinstance(answer, Exception)
            member.answer, member.error = (None, answer) if is_error else (answer, None)
        assert session.tx.is_silent, "a write that is one statement tells nothing"

    def _run_member(self, session: Session, member: Pending[Any], *, is_only: bool) -> None:
        """One write under its savepoint; its own error is its own, an error of the database is everyone's."""
        if is_only:
            self._answer(session, member)
            return
        mark = session.tx.mark()
        session.savepoint()
        self._answer(session, member)
        if member.error is None:
            session.release()
        else:
            session.tx.forget(mark)
            session.rollback_to()

    def _answer(self, session: Session, member: Pending[Any]) -> None:
        try:
            member.answer, member.error = member.write(session.tx), None
        except Exception as error:
            # Some errors of the database end the whole transaction; then nobody may be acknowledged.
            is_everyones = isinstance(error, (Busy, KeyNeeded)) or session.explain(error) is not None
            if is_everyones or not session.is_open():
                raise
            member.answer, member.error = None, error
        except BaseException as error:
            # An interrupt goes to whoever asked for the write, and ends no thread of ours.
            if member.is_inline:
                raise
            member.answer, member.error = None, error

    def _tell(self, topics: set[str]) -> None:
        """Only hints: the commit has happened, and nothing here may say otherwise to whoever asked for it."""
        try:
            self._on_commit(topics)
        except Exception:  # whatever keeps a hint from being given
            log.exception("a hint was not given")

    # --- after an error

    def _run_each(self, session: Session, part: list[Pending[Any]], cause: Exception) -> None:
        """Each member again, alone, in its own transaction; what fails now fails for good."""
        give_up_at = time.monotonic() + RETRY_FOR_S
        unknown = cause if isinstance(cause, CommitUnknown) else None
        gone: Exception | None = cause if len(part) == 1 and not _may_retry(session, cause) else None
        for member in part:
            error = gone or self._run_alone(session, member, unknown, give_up_at)
            if error is None:
                continue
            member.answer, member.error = None, _in_words(session, error)
            if _may_retry(session, error):
                # Time is over for everyone, and the database is still not there.
                gone = error

    @staticmethod
    def _make_key(session: Session, needed: KeyNeeded) -> Exception | None:
        """In a transaction of its own: whatever becomes of the write, nothing is sealed with a key that the
        ledger does not have. Says why it was not made."""
        try:
            session.begin(may_wait=True)
            try:
                needed.vault.make(session.tx)
                session.commit()
            except BaseException:
                session.rollback()
                raise
        except CommitUnknown:
            return None  # the write looks for it again
        except KeyProblem as error:
            return CannotSeal(str(error))
        except Exception as error:  # noqa: BLE001 - returned to the caller of the write
            return error
        return None

    def _run_alone(
        self, session: Session, member: Pending[Any], unknown: CommitUnknown | None, give_up_at: float
    ) -> Exception | None:
        """None when it has its answer. A commit whose answer was lost is asked about before anything else."""
        for pause_s in _pauses():
            try:
                if unknown is not None and unknown.ask(session):
                    self._tell(unknown.topics)
                    return None
                unknown = None
                self._run_together(session, [member], may_wait=True)
            except CommitUnknown as again:
                error: Exception = again
                unknown = again
            except KeyNeeded as needed:
                session.tx.forget()
                error = self._make_key(session, needed) or needed
            except Exception as failed:  # noqa: BLE001 - returned to the caller of the write
                session.tx.forget()
                error = failed
            else:
                return None
            if not _may_retry(session, error) or time.monotonic() > min(give_up_at, self._close_by):
                return unknown or error
            time.sleep(pause_s)
        raise AssertionError("pauses never end")


def _parts(group: list[Pending[Any]]) -> Iterator[list[Pending[Any]]]:
    """Those not tried yet: a part for each kind that comes in crowds, and one for all others."""
    kinds: dict[type | None, list[Pending[Any]]] = {}
    for member in group:
        if member.cause is None:
            kind = type(member.write) if member.is_crowd else None
            kinds.setdefault(kind, []).append(member)
    yield from kinds.values()


def _pauses() -> Iterator[float]:
    """How long to wait before each further attempt: not at all, then longer and longer."""
    pause_s = 0.0
    while True:
        yield pause_s
        pause_s = min(_MAX_PAUSE_S, pause_s * 2 or 0.02)


def _may_retry(session: Session, error: Exception) -> bool:
    return isinstance(error, (CommitUnknown, KeyNeeded)) or session.may_retry(error)


def _in_words(session: Session, error: Exception) -> BaseException:
    if isinstance(error, CommitUnknown):
        return OutcomeUnknown(f"whether the write happened is not known: {error.__cause__ or error}")
    return session.explain(error) or error


def _settle(group: list[Pending[Any]]) -> None:
    """Answer everyone; one wake-up per event loop."""
    loops: dict[asyncio.AbstractEventLoop, list[Pending[Any]]] = {}
    for member in group:
        if member.ready is not None:
            member.ready.set()
        elif member.loop is not None:
            loops.setdefault(member.loop, []).append(member)
    for loop, members in loops.items():
        # A loop that was closed meanwhile has nobody left who waits.
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
