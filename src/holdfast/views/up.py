"""UpView, DashboardLinkView and UnitView: where a gateway is reached, and the unit that keeps it running."""

from __future__ import annotations

from datetime import datetime

import msgspec


class UpView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The addresses of the gateway, printed when it is ready."""

    pid: int
    urls: list[str]
    home: str
    socket: str
    # Where the token is: a file or an environment variable.
    token: str
    # A link that signs a browser in once, within ten minutes; null under systemd, whose log keeps what is
    # printed: `holdfast dashboard` makes another.
    dashboard: str | None = None


class DashboardLinkView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A link to the dashboard that signs a browser in once."""

    url: str
    # The name of the token whose rights it gives.
    token: str
    valid_until: datetime


class UnitView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A systemd unit or a launchd plist, as the content of a file."""

    kind: str
    text: str
