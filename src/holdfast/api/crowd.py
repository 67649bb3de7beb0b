"""Too many connections: how many are kept, who has to go, and a failure to accept one that is said seldom."""

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
# As large as whoever bound the sockets made it: to listen again must not make it smaller.
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


class Crowd:
    """All connections over TCP. When there are too many, who has waited longest without a request goes."""

    def __init__(self, most: int) -> None:
        self.most = most
        # In the order in which they began to wait.
        self._idle: dict[Guest, None] = {}
        self._seldom = Seldom()

    def waits(self, guest: Guest) -> None:
        """It has no request under way."""
        self._idle.pop(guest, None)
        self._idle[guest] = None

    def is_busy(self, guest: Guest) -> None:
        """It has one, or is gone."""
        self._idle.pop(guest, None)

    def has_room(self, count: int, *, now: float) -> bool:
        """Whether one more may come to so many; for it, one that only waits is let go."""
        if count < self.most:
            return True
        self._seldom.say(now, f"there are {count} connections, as many as may be; idle ones are closed")
        if not self._idle:
            return False
        oldest = next(iter(self._idle))
        del self._idle[oldest]
        oldest.transport.abort()
        return True


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
