"""Notifies systemd of the gateway's state (sd_notify): ready, reloading, stopping, alive."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping

# Variables that systemd sets for one process; a child that inherited them would notify for its parent.
VARIABLES = (
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
)
MAX_STATUS_CHARS = 500


class Notifier:
    """The notification socket of systemd, if there is one.

    Best effort: a message that cannot be sent changes nothing for the gateway.
    """

    def __init__(self, environ: Mapping[str, str], *, pid: int | None = None) -> None:
        where = environ.get("NOTIFY_SOCKET", "")
        # A name that begins with @ is in the abstract namespace, which the kernel writes with a NUL.
        self._address = f"\0{where[1:]}" if where.startswith("@") else where
        pid = os.getpid() if pid is None else pid
        is_ours = environ.get("WATCHDOG_PID", str(pid)) == str(pid)
        self.has_watchdog = bool(self._address) and is_ours and environ.get("WATCHDOG_USEC", "0") != "0"

    def ready(self, status: str) -> None:
        self._tell("READY=1", _status(status))

    def reloading(self, status: str, *, monotonic_s: float) -> None:
        """The gateway restarts; `ready` follows when it serves again."""
        self._tell("RELOADING=1", f"MONOTONIC_USEC={int(monotonic_s * 1_000_000)}", _status(status))

    def stopping(self, status: str) -> None:
        self._tell("STOPPING=1", _status(status))

    def status(self, status: str) -> None:
        self._tell(_status(status))

    def alive(self) -> None:
        """Feed the watchdog. Only on a heartbeat of the gateway itself: a supervisor alone serves nothing."""
        if self.has_watchdog:
            self._tell("WATCHDOG=1")

    def _tell(self, *lines: str) -> None:
        if not self._address:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as way:
            way.setblocking(False)  # a full queue must not hold up the supervisor
            way.sendto("\n".join(lines).encode(), self._address)


def _status(text: str) -> str:
    return "STATUS=" + " ".join(text.split())[:MAX_STATUS_CHARS]
