"""Limits the TCP connections: reserves slots for clients with a token, and closes the oldest others."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import resource
import socket
from collections.abc import Iterator
from typing import Any, Protocol

log = logging.getLogger("holdfast")

MAX_CONNECTIONS = 4000
# File descriptors reserved for the ledger, for agents and for the unix socket.
RESERVED = 512
# One slot in this many is reserved for clients with a token.
RESERVED_SHARE = 4
# The same backlog as the supervisor's: listening again must not shrink it.
BACKLOG = 4096
# A connection is counted a few loop rounds after it was accepted, so accept few at once.
# If none can be accepted, asyncio retries and logs this often per second.
ACCEPT_AT_ONCE = 8
TELL_EVERY_S = 60.0
_OUT_OF = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


def most_connections() -> int:
    """As many as the file descriptors of this process allow, minus the reserve."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(1, min(MAX_CONNECTIONS, soft - min(RESERVED, soft // 2)))


class ListeningSocket(socket.socket):
    """A socket that keeps its backlog: asyncio would shrink it to the number that it accepts at once."""

    def listen(self, backlog: int = BACKLOG, /) -> None:
        super().listen(max(backlog, BACKLOG))

    @classmethod
    def of(cls, listening: socket.socket) -> ListeningSocket:
        """Take over the file descriptor of another socket, which is closed from then on."""
        return cls(fileno=listening.detach())


class LimitedConnection(Protocol):
    """One connection."""

    transport: asyncio.Transport


class ConnectionLimits:
    """All TCP connections. A connection is anonymous until a valid token was shown on it.

    A quarter of the slots is reserved for clients with a token. If anonymous connections use all others, one
    of them is closed for a new connection, which may be an operator's: first the one that has been idle
    longest, then the one that has been busy longest.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.most_strangers = max(1, most - most // RESERVED_SHARE)
        # Each in the order of its last change.
        self._idle_strangers: dict[LimitedConnection, None] = {}
        self._busy_strangers: dict[LimitedConnection, None] = {}
        self._idle: dict[LimitedConnection, None] = {}
        self._busy: dict[LimitedConnection, None] = {}
        self._seldom = RateLimitedLog()

    def enter(self, guest: LimitedConnection, *, now: float) -> bool:
        """Add a connection; returns whether there is room. May close another one."""
        strangers = len(self._idle_strangers) + len(self._busy_strangers)
        count = strangers + len(self._idle) + len(self._busy)
        if strangers >= self.most_strangers:
            words = f"{strangers} connections without a token, the limit; the oldest are closed"
            self._seldom.say(now, words)
            self._let_go(self._idle_strangers, self._busy_strangers)
        elif count >= self.most:
            self._seldom.say(now, f"{count} connections, the limit; idle ones are closed")
            if not self._let_go(self._idle_strangers, self._idle, self._busy_strangers):
                return False
        self._idle_strangers[guest] = None
        return True

    def waits(self, guest: LimitedConnection) -> None:
        """It has no request in progress."""
        self._move(guest, is_idle=True)

    def is_busy(self, guest: LimitedConnection) -> None:
        """It has a request in progress."""
        self._move(guest, is_idle=False)

    def is_known(self, guest: LimitedConnection) -> None:
        """A valid token was shown on it; idempotent."""
        if guest in self._busy_strangers or guest in self._idle_strangers:
            self.leave(guest)
            self._busy[guest] = None

    def replace(self, guest: LimitedConnection, other: LimitedConnection) -> None:
        """The connection switches to another protocol, and is anonymous again."""
        self.leave(guest)
        self._busy_strangers[other] = None

    def leave(self, guest: LimitedConnection) -> None:
        """It was closed; idempotent."""
        for group in (self._idle_strangers, self._busy_strangers, self._idle, self._busy):
            group.pop(guest, None)

    def _move(self, guest: LimitedConnection, *, is_idle: bool) -> None:
        if guest in self._idle_strangers or guest in self._busy_strangers:
            idle, busy = self._idle_strangers, self._busy_strangers
        elif guest in self._idle or guest in self._busy:
            idle, busy = self._idle, self._busy
        else:
            return  # already closed by us
        to, other = (idle, busy) if is_idle else (busy, idle)
        if guest in to and not is_idle:
            return
        other.pop(guest, None)
        to.pop(guest, None)
        to[guest] = None

    def _let_go(self, *groups: dict[LimitedConnection, None]) -> bool:
        """Close the oldest connection of the first non-empty group; returns whether there was one."""
        for group in groups:
            if group:
                oldest = next(iter(group))
                del group[oldest]
                oldest.transport.abort()
                return True
        return False


class RateLimitedLog:
    """Logs a frequent message only once in a while."""

    def __init__(self, every_s: float = TELL_EVERY_S) -> None:
        self._every_s = every_s
        self._at: float | None = None

    def say(self, now: float, words: str) -> None:
        if self._at is None or now - self._at >= self._every_s:
            self._at = now
            log.error("%s", words)


@contextlib.contextmanager
def few_complaints(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """While the block runs, log failed accepts only once in a while, and without a traceback."""
    before, seldom = loop.get_exception_handler(), RateLimitedLog()

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in _OUT_OF and "accept" in str(context.get("message")):
            seldom.say(loop.time(), f"no connection can be accepted: {error.strerror}; retrying")
        elif before is not None:
            before(loop, context)
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(handle)
    try:
        yield
    finally:
        loop.set_exception_handler(before)
