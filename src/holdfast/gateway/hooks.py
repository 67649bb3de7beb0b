"""Webhooks that come in: signed by their channel's secret, posted into the session of whoever wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.channels.webhook import SIGNATURE_HEADER, read_inbound, verify
from holdfast.config.gateway import ChannelSettings
from holdfast.core.clock import Clock
from holdfast.core.errors import NotFound
from holdfast.gateway.inbox import Inbox, Posted

_HEADER = SIGNATURE_HEADER.lower().encode()


class Hooks:
    """The webhook channels of the settings that an agent answers."""

    def __init__(
        self,
        inbox: Inbox,
        clock: Clock,
        channels: Mapping[str, ChannelSettings],
        secrets: Mapping[str, Sequence[bytes]],
    ) -> None:
        self._inbox = inbox
        self._clock = clock
        self._channels = channels
        self._secrets = secrets

    async def receive(self, name: str, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> Posted:
        """Durable when it returns. Raises NotFound, BadSignature, BadInput and KeyConflict."""
        channel = self._channels.get(name)
        if channel is None or channel.agent is None or name not in self._secrets:
            raise NotFound("channel", name[:80])
        signatures = [value for header, value in headers if header.lower() == _HEADER]
        given = signatures[0].decode("latin-1") if len(signatures) == 1 else None
        verify(name, self._secrets[name], given, body, self._clock.now())
        inbound = read_inbound(name, channel.agent, body)
        return await self._inbox.post(
            inbound.session_key,
            inbound.text,
            inbound.origin,
            channel_message_id=inbound.channel_message_id,
        )
