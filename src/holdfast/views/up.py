"""UpView and UnitView: the addresses of a gateway, and the unit that keeps it running."""

from __future__ import annotations

import msgspec


class UpView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The addresses of the gateway, printed when it is ready."""

    pid: int
    urls: list[str]
    home: str
    socket: str
    # Where the token is: a file or an environment variable.
    token: str


class UnitView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A systemd unit or a launchd plist, as the content of a file."""

    kind: str
    text: str
