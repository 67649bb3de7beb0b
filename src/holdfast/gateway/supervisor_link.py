"""The gateway's side of its supervisor: reports how the gateway is, and stops it when the supervisor dies."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable, MutableMapping

from holdfast.gateway.signals import StopRequest
from holdfast.gateway.supervisor_protocol import VARIABLE, GatewayReport, Supervised, line_of


def keep_from_children(supervised: Supervised, environ: MutableMapping[str, str]) -> None:
    """Processes that the gateway starts must not hold its sockets, or take themselves for the gateway."""
    for number in supervised.fds:
        os.set_inheritable(number, False)
    environ.pop(VARIABLE, None)


def why_held(supervised: Supervised) -> str | None:
    """Why the supervisor wants resumes to be held; None if it does not."""
    if not supervised.holds_resumes:
        return None
    return f"the gateway crashed {supervised.crashes} times in a row"


def report_to(supervised: Supervised) -> Callable[[str], None]:
    """A function that sends one word to the supervisor; the first `ready` also prints the announcement."""
    announcements = [supervised.announcement] if supervised.announcement else []

    def report(word: str) -> None:
        with contextlib.suppress(OSError):  # the supervisor is dead
            os.write(supervised.tell_fd, line_of(GatewayReport(word)))
        if word == GatewayReport.READY and announcements:
            with contextlib.suppress(OSError, ValueError):  # stdout is closed
                sys.stdout.write(announcements.pop())
                sys.stdout.flush()

    os.set_blocking(supervised.tell_fd, False)
    return report


@contextlib.asynccontextmanager
async def stopped_with(supervised: Supervised, put: Callable[[StopRequest], None]) -> AsyncIterator[None]:
    """Stop the gateway when the supervisor dies: nothing else would restart it, or hold its sockets."""
    loop = asyncio.get_running_loop()
    life_fd = supervised.life_fd

    def look() -> None:
        if not os.read(life_fd, 1):
            loop.remove_reader(life_fd)
            put(StopRequest(why="the supervisor died"))

    loop.add_reader(life_fd, look)
    try:
        yield
    finally:
        loop.remove_reader(life_fd)
