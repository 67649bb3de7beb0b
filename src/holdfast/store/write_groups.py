"""Runs a group of writes so that they share one commit, and each has its own answer."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar, cast

import msgspec

from holdfast.core.errors import CannotSeal, KeyProblem, OutcomeUnknown
from holdfast.store.contract import Busy, JoinedWrite, Write
from holdfast.store.sealing import KeyNeeded
from holdfast.store.write_session import CommitUnknown, WriteSession

T = TypeVar("T")

log = logging.getLogger("holdfast")

# How long a write is run again after errors that may pass: a deadlock, a server that is starting.
RETRY_FOR_S = 30.0
_MAX_PAUSE_S = 1.0


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

    @classmethod
    def of(cls, write: Write[T]) -> Pending[T]:
        return cls(write, getattr(write, "is_crowd", False))

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


class GroupRunner:
    """Runs each write of a group under its own savepoint, and commits once.

    Writes of a kind that comes in crowds (see JoinedWrite) are one batch without savepoints instead. If an
    error ends the transaction, no member is acknowledged: each is run again, alone.

    Why a batch: `python -m bench --quick --only "1,000 runs of 10"` on PostgreSQL, where it is one statement:
    0.37 and 0.44 of raw writes with it, 0.20 and 0.27 without. On SQLite it saves the savepoints.
    """

    def __init__(
        self,
        *,
        on_commit: Callable[[set[str]], None],
        on_timed: Callable[[float], None],
    ) -> None:
        self._on_commit = on_commit
        self._on_timed = on_timed
        # No write is tried again later than this, by the monotonic clock.
        self.give_up_by = math.inf

    def run(self, session: WriteSession, group: list[Pending[Any]]) -> None:
        """Every member has an answer or an error afterwards."""
        for part in _parts(group):
            started = time.perf_counter()
            try:
                self.run_together(session, part, may_wait=True)
            except Exception as error:  # noqa: BLE001 - it ended the transaction, and no member was acknowledged
                session.tx.forget()
                self._run_each(session, part, error)
            else:
                self._on_timed(time.perf_counter() - started)
            for member in part:
                member.is_settled = True
        for member in group:
            if member.cause is not None:
                self._run_each(session, [member], member.cause)
                member.is_settled = True

    def run_together(self, session: WriteSession, part: list[Pending[Any]], *, may_wait: bool) -> None:
        """All in one commit. Raises what ended the transaction: then no member has an answer."""
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
        self._hint(session.tx.take_topics())

    def _run_joined(self, session: WriteSession, part: list[Pending[Any]], *, may_wait: bool) -> None:
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
        assert session.tx.is_silent, "a write that is one statement gives no events, counts or hints"

    def _run_member(self, session: WriteSession, member: Pending[Any], *, is_only: bool) -> None:
        """One write under its savepoint: if it fails, the others do not."""
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

    def _answer(self, session: WriteSession, member: Pending[Any]) -> None:
        try:
            member.answer, member.error = member.write(session.tx), None
        except Exception as error:
            # Some errors of the database end the whole transaction; then no member may be acknowledged.
            ends_transaction = isinstance(error, (Busy, KeyNeeded)) or session.explain(error) is not None
            if ends_transaction or not session.is_open():
                raise
            member.answer, member.error = None, error
        except BaseException as error:
            # An interrupt goes to the caller of the write, and ends no writer's thread.
            if member.is_inline:
                raise
            member.answer, member.error = None, error

    def _hint(self, topics: set[str]) -> None:
        """The commit has happened, so an error of a listener must not reach the caller of the write."""
        try:
            self._on_commit(topics)
        except Exception:  # whatever keeps a hint from being given
            log.exception("a hint was not given")

    # --- after an error

    def _run_each(self, session: WriteSession, part: list[Pending[Any]], cause: Exception) -> None:
        """Each member again, alone, in its own transaction; what fails now fails for good."""
        give_up_at = time.monotonic() + RETRY_FOR_S
        unknown = cause if isinstance(cause, CommitUnknown) else None
        gone: Exception | None = cause if len(part) == 1 and not may_retry(session, cause) else None
        for member in part:
            error = gone or self._run_alone(session, member, unknown, give_up_at)
            if error is None:
                continue
            member.answer, member.error = None, in_words(session, error)
            if may_retry(session, error):
                # The time is over for every member, and the database is still away.
                gone = error

    def _run_alone(
        self, session: WriteSession, member: Pending[Any], unknown: CommitUnknown | None, give_up_at: float
    ) -> Exception | None:
        """None when it has its answer. A commit whose answer was lost is asked about before anything else."""
        for pause_s in _pauses():
            try:
                if unknown is not None and unknown.ask(session):
                    self._hint(unknown.topics)
                    return None
                unknown = None
                self.run_together(session, [member], may_wait=True)
            except CommitUnknown as again:
                error: Exception = again
                unknown = again
            except KeyNeeded as needed:
                session.tx.forget()
                error = _make_key(session, needed) or needed
            except Exception as failed:  # noqa: BLE001 - returned to the caller of the write
                session.tx.forget()
                error = failed
            else:
                return None
            if not may_retry(session, error) or time.monotonic() > min(give_up_at, self.give_up_by):
                return unknown or error
            time.sleep(pause_s)
        raise AssertionError("pauses never end")


def _make_key(session: WriteSession, needed: KeyNeeded) -> Exception | None:
    """Make the key in a transaction of its own: even if the write fails, nothing may be sealed with a key
    that the ledger does not have. Returns why it was not made."""
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


def may_retry(session: WriteSession, error: Exception) -> bool:
    return isinstance(error, (CommitUnknown, KeyNeeded)) or session.may_retry(error)


def in_words(session: WriteSession, error: Exception) -> BaseException:
    """The error for the caller of the write."""
    if isinstance(error, CommitUnknown):
        return OutcomeUnknown(f"whether the write happened is not known: {error.__cause__ or error}")
    return session.explain(error) or error
