"""LISTEN and NOTIFY: notifications between processes, on one connection and one thread of their own.

PostgreSQL calls what you listen to a channel; here that word means a place where people talk, so these are
topics. All topics go through one PostgreSQL channel, named `holdfast`.
"""

from __future__ import annotations

import contextlib
import re
import select
import socket
import threading
import time
from collections.abc import Callable

import psycopg

from holdfast.core.errors import HoldfastError
from holdfast.store.contract import Statements
from holdfast.store.hints import Hints
from holdfast.store.postgres_connection import PostgresConnection

# Hints within this time are sent as one NOTIFY. Inside the writers' transactions it halved the commit rate.
COALESCE_S = 0.02
ERRAND_EVERY_S = 1.0
_FIRST_PAUSE_S = 0.1
_MAX_PAUSE_S = 5.0

_TOPIC = re.compile(r"[a-z_]{1,40}")


class Topics:
    """Sends the hints of this process to other processes, and theirs to the waiters here.

    Never needed for correctness, so nothing here raises: while the connection is lost there are no hints.
    Because its connection is mostly idle, it also runs a maintenance job now and then after commits.
    """

    def __init__(
        self,
        link: PostgresConnection,
        statements: Statements,
        hints: Hints,
        *,
        errand: Callable[[Statements], None],
    ) -> None:
        self._link = link
        self._statements = statements
        self._hints = hints
        self._errand = errand
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._bell: tuple[socket.socket, socket.socket] | None = None
        self._is_closed = False
        self._pending: set[str] = set()
        self._has_errand = False
        self._wants_to_listen = False
        # Only the thread uses these.
        self._listens = False
        self._tell_at = self._errand_at = self._connect_at = 0.0
        self._pause_s = _FIRST_PAUSE_S

    def tell(self, topics: set[str]) -> None:
        """Notify listeners in other processes of these topics, soon."""
        tellable = {topic for topic in topics if _TOPIC.fullmatch(topic)}
        with self._lock:
            is_asleep = not self._has_errand or not tellable <= self._pending
            self._has_errand = True
            self._pending |= tellable
            if is_asleep:
                self._rouse()

    def listen(self) -> None:
        """From now on, pass on the hints of other processes."""
        if self._wants_to_listen:
            return
        with self._lock:
            self._wants_to_listen = True
            self._rouse()

    def close(self) -> None:
        """Send pending hints if that does not block, and end the thread. It is safe to call twice."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._rouse()
        if self._thread is not None:
            self._thread.join()
        for end in self._bell or ():
            end.close()
        self._link.close()

    def _rouse(self) -> None:
        """Wake the thread, which starts on first use."""
        if self._thread is None and not self._is_closed:
            self._bell = socket.socketpair()
            for end in self._bell:
                end.setblocking(False)
            self._thread = threading.Thread(target=self._serve, name="holdfast-topics", daemon=True)
            self._thread.start()
        if self._bell is not None:
            with contextlib.suppress(BlockingIOError):  # the thread has enough wake-ups pending
                self._bell[1].send(b"!")

    # --- the thread

    def _serve(self) -> None:
        while not self._is_closed:
            self._sleep()
            if self._is_closed:
                break
            if time.monotonic() >= self._connect_at:
                self._attempt()
        if self._link.is_open:
            self._tell_at = self._errand_at = 0.0
            self._attempt()

    def _attempt(self) -> None:
        try:
            self._exchange()
        except (psycopg.Error, HoldfastError, OSError):
            # Only hints are lost; waiters look again by themselves.
            self._link.close()
            self._connect_at = time.monotonic() + self._pause_s
            self._pause_s = min(_MAX_PAUSE_S, self._pause_s * 2)
        else:
            self._pause_s = _FIRST_PAUSE_S

    def _sleep(self) -> None:
        """Wait until the thread is woken, a notification comes, or something is due."""
        assert self._bell is not None
        sources = select.poll()  # unlike select(), it works with thousands of descriptors
        sources.register(self._bell[0], select.POLLIN)
        if self._listens and self._link.is_open:
            sources.register(self._link.pgconn.socket, select.POLLIN)
        due_at = self._due_at()
        sources.poll(None if due_at is None else max(0.0, due_at - time.monotonic()) * 1000)
        with contextlib.suppress(BlockingIOError):
            self._bell[0].recv(4096)

    def _due_at(self) -> float | None:
        with self._lock:
            moments = []
            if self._pending:
                moments.append(self._tell_at)
            if self._has_errand:
                moments.append(self._errand_at)
            if self._wants_to_listen and not (self._listens and self._link.is_open):
                moments.append(0.0)
        return max(min(moments), self._connect_at) if moments else None

    def _exchange(self) -> None:
        if not self._link.is_open:
            self._listens = False
            self._link.open()
        if self._wants_to_listen and not self._listens:
            self._link.command(b"LISTEN holdfast")
            self._listens = True
        self._hear()
        now = time.monotonic()
        if now >= self._tell_at:
            self._tell_pending()
            self._tell_at = now + COALESCE_S
        if self._has_errand and now >= self._errand_at:
            self._errand_at = now + ERRAND_EVERY_S
            self._has_errand = False
            self._errand(self._statements)

    def _hear(self) -> None:
        pgconn = self._link.pgconn
        pgconn.consume_input()
        topics: set[str] = set()
        while (heard := pgconn.notifies()) is not None:
            # Our own waiters were notified at once, when the transaction committed.
            if heard.be_pid != pgconn.backend_pid:
                topics.update(_TOPIC.findall(heard.extra.decode("ascii", "replace")))
        self._hints.give(topics)

    def _tell_pending(self) -> None:
        with self._lock:
            topics, self._pending = self._pending, set()
        if topics:
            try:
                self._statements.run("notify", {"topics": " ".join(sorted(topics))})
            except BaseException:
                with self._lock:
                    self._pending |= topics
                raise
