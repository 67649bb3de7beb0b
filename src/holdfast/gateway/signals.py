"""Turns SIGTERM and SIGINT into stop requests, SIGUSR1 and SIGHUP into restarts; handlers only enqueue."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Iterator

import msgspec

log = logging.getLogger("holdfast")


class StopRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to end the process, and perhaps to start it again."""

    why: str
    wants_restart: bool = False


REQUESTS = {
    signal.SIGTERM: StopRequest(why="SIGTERM"),
    signal.SIGINT: StopRequest(why="SIGINT"),
    signal.SIGUSR1: StopRequest(why="SIGUSR1", wants_restart=True),
}
# Only for a gateway; to any other process SIGHUP says that its terminal is gone.
HANGUP = {signal.SIGHUP: StopRequest(why="SIGHUP", wants_restart=True)}


@contextlib.contextmanager
def heard(enqueue: Callable[[StopRequest], None], *, is_gateway: bool = False) -> Iterator[None]:
    """Turn signals into requests inside the block; afterwards restore the earlier handlers."""
    loop = asyncio.get_running_loop()
    requests = dict(REQUESTS)
    # A process under nohup ignores SIGHUP, and must go on ignoring it.
    if is_gateway and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        requests |= HANGUP
    before = {number: signal.getsignal(number) for number in requests}
    try:
        for number, request in requests.items():
            loop.add_signal_handler(number, enqueue, request)
    except (RuntimeError, ValueError, NotImplementedError):
        # Python handles signals only in its main thread; in another one, stop by cancelling.
        log.warning("signals are not handled: this is not the main thread; stop by cancelling")
        yield
        return
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            if handler is not None:  # None: set by something that is not Python
                signal.signal(number, handler)
