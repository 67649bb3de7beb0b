"""The gateway's doors: HTTP, WebSocket and webhooks on the supervisor's sockets, and the unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from holdfast.core.clock import SystemClock

if TYPE_CHECKING:
    from holdfast.api.server import Webhooks
    from holdfast.app.startup import Startup
    from holdfast.gateway.gateway import Gateway
    from holdfast.gateway.supervisor_protocol import Supervised
    from holdfast.views.sessions import PostedView


@contextlib.asynccontextmanager
async def open_doors(gateway: Gateway, startup: Startup, supervised: Supervised) -> AsyncIterator[None]:
    """Answer requests while the block runs."""
    from holdfast.api.server import serve_doors
    from holdfast.web.dashboard import Dashboard

    stop = asyncio.Event()
    unix = supervised.unix_fd
    async with asyncio.TaskGroup() as group:
        group.create_task(
            serve_doors(
                gateway,
                tcp_sockets=[socket.socket(fileno=number) for number in supervised.tcp_fds],
                unix_socket=None if unix is None else socket.socket(fileno=unix),
                tokens=startup.tokens,
                stop=stop,
                webhooks=_webhooks(gateway, startup),
                pages=Dashboard(),
                certificates=startup.certificates,
            )
        )
        try:
            yield
        finally:
            stop.set()


def _webhooks(gateway: Gateway, startup: Startup) -> Webhooks:
    """Incoming webhooks; a change of their channels or secrets needs a restart."""
    from holdfast.api.server import Webhooks
    from holdfast.gateway.hooks import WebhookChannels
    from holdfast.views.sessions import PostedView

    channels = {name: startup.config.channels[name] for name in startup.webhook_secrets}
    # Senders sign with the time of their own clocks, so compare with this machine's, not the ledger's.
    hooks = WebhookChannels(gateway.inbox, SystemClock(), channels, startup.webhook_secrets)

    async def receive(name: str, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> PostedView:
        posted = await hooks.receive(name, headers, body)
        return PostedView.of(posted.message, is_duplicate=posted.is_duplicate)

    return Webhooks(check=hooks.check, receive=receive)
