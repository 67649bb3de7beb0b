"""A house whose gateway takes webhooks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from holdfast.api.server import Webhooks
from holdfast.config.sections import ChannelSettings, GatewaySettings
from holdfast.gateway.hooks import WebhookChannels
from holdfast.views.sessions import PostedView
from tests.api.stand_in import QUICK, ServedDoors, served_doors
from tests.security.raw_http import SECRET


@contextlib.contextmanager
def webhook_house(home: Path, settings: GatewaySettings = QUICK) -> Iterator[ServedDoors]:
    hooks: list[WebhookChannels] = []

    def check(name: str, headers: Sequence[tuple[bytes, bytes]]) -> None:
        hooks[0].check(name, headers)

    async def receive(name: str, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> PostedView:
        posted = await hooks[0].receive(name, headers, body)
        return PostedView.of(posted.message, is_duplicate=posted.is_duplicate)

    channels = {"hook": ChannelSettings(kind="webhook", secret_env="HOOK_SECRET", agent="ada")}
    with served_doors(home, settings=settings, webhooks=Webhooks(check=check, receive=receive)) as house:
        hooks.append(WebhookChannels(house.gateway.inbox, house.gateway.clock, channels, {"hook": [SECRET]}))
        yield house
