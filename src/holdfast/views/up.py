"""UpView and UnitView: where a gateway is found, and what keeps it running."""

from __future__ import annotations

import msgspec


class UpView(msgspec.Struct, frozen=True, kw_only=True):
    """Where the gateway is found, said before it is ready: a connection waits until it is."""

    pid: int
    urls: list[str]
    home: str
    socket: str
    # Where the token is: a file, or the variable that holds it.
    token: str


class UnitView(msgspec.Struct, frozen=True, kw_only=True):
    """A unit of systemd or a plist of launchd, ready to be put into a file."""

    kind: str
    text: str
