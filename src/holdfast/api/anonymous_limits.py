"""Limits for clients without a token: memory for bodies, waiting WebSockets, log lines."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Protocol

from holdfast.api.rpc import RETRY_AFTER_MS, UNAVAILABLE, RpcError

log = logging.getLogger("holdfast")

# For all bodies read before their sender is authenticated. One address gets a quarter of it.
BUDGET_BYTES = 32 * 1024**2
SHARES = 4
# WebSockets that have not sent a valid token yet.
MAX_WAITING = 256
LOG_EVERY_S = 1.0
# Delay of the answer to a client that sends too many requests without a token, or no valid HTTP.
HOLD_S = 0.25


class BodyBudget:
    """The memory for the bodies of all unauthenticated requests together."""

    def __init__(self) -> None:
        self.held = 0
        self._held_by: dict[str, int] = {}

    @contextlib.contextmanager
    def share(self, peer: str, *, max_body_bytes: int) -> Iterator[Callable[[int], None]]:
        """Yield `take`, which reserves bytes until the block ends; it raises RpcError if none are left."""
        most = max(BUDGET_BYTES, SHARES * max_body_bytes)
        taken = 0

        def take(count: int) -> None:
            nonlocal taken
            if self.held + count > most or self._held_by.get(peer, 0) + count > most // SHARES:
                raise RpcError(
                    UNAVAILABLE,
                    "too many request bodies are being read at once; send it again",
                    details={"code": "too_many_bodies"},
                    retryable=True,
                    retry_after_ms=RETRY_AFTER_MS,
                )
            taken += count
            self.held += count
            self._held_by[peer] = self._held_by.get(peer, 0) + count

        try:
            yield take
        finally:
            self.held -= taken
            left = self._held_by.get(peer, 0) - taken
            if left > 0:
                self._held_by[peer] = left
            else:
                self._held_by.pop(peer, None)


class WaitingPeer(Protocol):
    """A WebSocket that waits for its token and can be closed."""

    def give_up(self) -> None: ...


class WaitingRoom:
    """Holds waiting WebSockets. When it is full, the address with the most loses its oldest one."""

    def __init__(self, most: int | None = None) -> None:
        self._most = MAX_WAITING if most is None else most
        self._address_of: dict[WaitingPeer, str] = {}
        self._from: dict[str, dict[WaitingPeer, None]] = {}

    def enter(self, one: WaitingPeer, address: str) -> None:
        if len(self._address_of) >= self._most:
            fullest = max(self._from.values(), key=len)
            oldest = next(iter(fullest))
            self.leave(oldest)
            oldest.give_up()
        self._address_of[one] = address
        self._from.setdefault(address, {})[one] = None

    def leave(self, one: WaitingPeer) -> None:
        """Remove it; idempotent."""
        address = self._address_of.pop(one, None)
        if address is None:
            return
        others = self._from[address]
        del others[one]
        if not others:
            del self._from[address]


class RefusalLog:
    """Logs refused clients, at most one line a second; the others are counted."""

    def __init__(self, call_later: Callable[[float, Callable[[], None]], object]) -> None:
        self._call_later = call_later
        self._is_quiet = False
        # The newest refusal since the last line, and how many there were.
        self._newest = ""
        self._count = 0

    def add(self, peer: str, why: str) -> None:
        self._newest = f"refused a request from {peer}: {why}"
        self._count += 1
        if not self._is_quiet:
            self._say()

    def _say(self) -> None:
        self._is_quiet = self._count > 0
        if not self._count:
            return
        others = self._count - 1
        self._count = 0
        log.warning("%s%s", self._newest, f"; and {others:,} more since the last line" if others else "")
        self._call_later(LOG_EVERY_S, self._say)
