"""Incoming webhooks: verified with their channel's secret, then posted into the session of their sender."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.channels.webhook import SIGNATURE_HEADER, read_inbound, read_signature, verify
from holdfast.config.sections import ChannelSettings
from holdfast.core.clock import Clock
from holdfast.core.errors import NotFound
from holdfast.gateway.inbox import Inbox, Posted

_HEADER = SIGNATURE_HEADER.lower().encode()


class WebhookChannels:
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

    def check(self, name: str, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Check what can be checked before the body is read. Raises NotFound and BadSignature."""
        self._agent_of(name)
        read_signature(name, _signature(headers), self._clock.now())

    async def receive(self, name: str, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> Posted:
        """Post a message, durably. Raises NotFound, BadSignature, BadInput and KeyConflict."""
        agent = self._agent_of(name)
        verify(name, self._secrets[name], _signature(headers), body, self._clock.now())
        inbound = read_inbound(name, agent, body)
        return await self._inbox.post(
            inbound.session_key,
            inbound.text,
            inbound.origin,
            channel_message_id=inbound.channel_message_id,
        )

    def _agent_of(self, name: str) -> str:
        channel = self._channels.get(name)
        if channel is None or channel.agent is None or name not in self._secrets:
            raise NotFound("channel", name[:80])
        return channel.agent


def _signature(headers: Sequence[tuple[bytes, bytes]]) -> str | None:
    found = [value for header, value in headers if header.lower() == _HEADER]
    return found[0].decode("latin-1") if len(found) == 1 else None
