"""Too many connections: places for clients with a token, which other one has to go, and few complaints."""

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
# For the ledger, for what agents start, and for the unix socket: no stranger can take them.
RESERVED = 512
# One place of so many is kept for clients with a token.
RESERVED_SHARE = 4
# As large as the supervisor made it when it bound the sockets: to listen again must not make it smaller.
BACKLOG = 4096
# A connection is counted a few rounds of the loop after it was accepted: until then it is in nobody's count.
# And when none can be accepted, asyncio tries, and says so, as often as this, each second.
ACCEPT_AT_ONCE = 8
TELL_EVERY_S = 60.0
_OUT_OF = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


def most_connections() -> int:
    """As many as the descriptors of this process allow, with some left for everything else."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(1, min(MAX_CONNECTIONS, soft - min(RESERVED, soft // 2)))


class Listening(socket.socket):
    """Keeps its backlog: asyncio would make it as small as the number that it accepts at once."""

    def listen(self, backlog: int = BACKLOG, /) -> None:
        super().listen(max(backlog, BACKLOG))

    @classmethod
    def of(cls, listening: socket.socket) -> Listening:
        """It takes the place of the other one, which is closed from then on."""
        return cls(fileno=listening.detach())


class Guest(Protocol):
    """One connection."""

    transport: asyncio.Transport


class ConnectionLimits:
    """All connections over TCP. A connection is a stranger's until a right token was shown on it.

    A quarter of the places is kept for clients with a token: when strangers have all others, one of them has
    to go for a new connection, which may be an operator's. The one that has waited longest without a request
    goes first, then the one that has been busy longest.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.most_strangers = max(1, most - most // RESERVED_SHARE)
        # Each in the order in which they became so.
        self._idle_strangers: dict[Guest, None] = {}
        self._busy_strangers: dict[Guest, None] = {}
        self._idle: dict[Guest, None] = {}
        self._busy: dict[Guest, None] = {}
        self._seldom = Seldom()

    def enter(self, guest: Guest, *, now: float) -> bool:
        """Whether there is room for it; another one may have to go for it."""
        strangers = len(self._idle_strangers) + len(self._busy_strangers)
        count = strangers + len(self._idle) + len(self._busy)
        if strangers >= self.most_strangers:
            words = f"{strangers} connections have shown no token, as many as may be; the oldest are closed"
            self._seldom.say(now, words)
            self._let_go(self._idle_strangers, self._busy_strangers)
        elif count >= self.most:
            self._seldom.say(now, f"there are {count} connections, as many as may be; idle ones are closed")
            if not self._let_go(self._idle_strangers, self._idle, self._busy_strangers):
                return False
        self._idle_strangers[guest] = None
        return True

    def waits(self, guest: Guest) -> None:
        """It has no request under way."""
        self._move(guest, is_idle=True)

    def is_busy(self, guest: Guest) -> None:
        """It has one."""
        self._move(guest, is_idle=False)

    def is_known(self, guest: Guest) -> None:
        """A right token was shown on it. Safe to repeat."""
        if guest in self._busy_strangers or guest in self._idle_strangers:
            self.leave(guest)
            self._busy[guest] = None

    def replace(self, guest: Guest, other: Guest) -> None:
        """The same connection goes on with another protocol, as a stranger's."""
        self.leave(guest)
        self._busy_strangers[other] = None

    def leave(self, guest: Guest) -> None:
        """It is gone. Safe to repeat."""
        for group in (self._idle_strangers, self._busy_strangers, self._idle, self._busy):
            group.pop(guest, None)

    def _move(self, guest: Guest, *, is_idle: bool) -> None:
        if guest in self._idle_strangers or guest in self._busy_strangers:
            idle, busy = self._idle_strangers, self._busy_strangers
        elif guest in self._idle or guest in self._busy:
            idle, busy = self._idle, self._busy
        else:
            return  # it was let go
        to, other = (idle, busy) if is_idle else (busy, idle)
        if guest in to and not is_idle:
            return
        other.pop(guest, None)
        to.pop(guest, None)
        to[guest] = None

    def _let_go(self, *groups: dict[Guest, None]) -> bool:
        """The oldest of the first group that has any; whether there was one."""
        for group in groups:
            if group:
                oldest = next(iter(group))
                del group[oldest]
                oldest.transport.abort()
                return True
        return False


class Seldom:
    """Says what happens all the time once in a while."""

    def __init__(self, every_s: float = TELL_EVERY_S) -> None:
        self._every_s = every_s
        self._at: float | None = None

    def say(self, now: float, words: str) -> None:
        if self._at is None or now - self._at >= self._every_s:
            self._at = now
            log.error("%s", words)


@contextlib.contextmanager
def few_complaints(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Meanwhile a connection that could not be accepted is said once in a while, and without a traceback."""
    before, seldom = loop.get_exception_handler(), Seldom()

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in _OUT_OF and "accept" in str(context.get("message")):
            seldom.say(loop.time(), f"no connection can be accepted: {error.strerror}; it is tried again")
        elif before is not None:
            before(loop, context)
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(handle)
    try:
        yield
    finally:
        loop.set_exception_handler(before)
