"""The inbox: stores each message once, in its session and in order, before it acknowledges it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from datetime import datetime
from functools import partial
from typing import Any

from holdfast.core.clock import Clock
from holdfast.core.errors import BadInput, Draining, NotFound
from holdfast.core.ids import check_id
from holdfast.core.message import Message, Role
from holdfast.core.payload import check_number
from holdfast.core.redaction import REDACT_OFF_LOOP_BYTES
from holdfast.core.session import Session, agent_of
from holdfast.core.task import Origin
from holdfast.engine.conversation.transcripts import Commands, Posted, new_message, post, withdraw
from holdfast.engine.ledger.entries import OWN_CHANNELS, owe
from holdfast.store import Store, Tx
from holdfast.store.messages import LAST_POSITION

MAX_PAGE = 1000


class Inbox:
    """Posts messages of people and schedules to agents, and reads the transcripts of sessions."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        agents: Callable[[], Collection[str]] | None = None,
        commands: Commands | None = None,
    ) -> None:
        """`agents` returns the names of the agents that take messages now; without it, any name will do.

        `commands` carries out chat commands; without it, agents get them as any other message.
        """
        self._store = store
        self._commands = commands
        self._clock = clock
        self._agents = agents
        # While True, messages from outside are refused and not stored.
        self.is_closed = False

    async def post(
        self,
        session_key: str,
        text: str,
        origin: Origin,
        *,
        channel_message_id: str | None = None,
        role: Role | str = Role.USER,
        parent_key: str | None = None,
    ) -> Posted:
        """Post a message; when this returns, the message is durable and has its place in the transcript.

        The id is the channel's own, unique in its channel and account (a channel that counts in each chat
        puts the chat into it). The same id again returns the first message; with another text, another role
        or in another session it raises KeyConflict. Raises BadInput for what cannot be posted, and NotFound
        for an unknown agent. Only the gateway itself may post with a role other than `user`.
        """
        agent = agent_of(session_key)
        self._refuse_when_closed()
        if self._agents is not None and agent not in self._agents():
            raise NotFound("agent", agent)
        if role == Role.USER and isinstance(origin, Origin) and origin.channel in OWN_CHANNELS:
            raise BadInput("origin.channel", f"{origin.channel!r} is the gateway's own; name another channel")
        message = await _made(
            session_key,
            text,
            origin,
            channel_message_id=channel_message_id,
            role=role,
            now=self._clock.now(),
        )
        self._refuse_when_closed()  # it may have been closed during the await above
        if parent_key is not None:
            agent_of(parent_key)
        return await self._store.write(
            lambda tx: post(tx, message, parent_key=parent_key, commands=self._commands)
        )

    async def note(
        self,
        session_key: str,
        text: str,
        *,
        key: str,
        role: Role | str = Role.SYSTEM,
        tells: bool = False,
    ) -> Posted:
        """Add a message to the transcript that no agent answers; once for each key.

        With `tells` it is also delivered to the person who spoke last in the session.
        """
        message = await _made(
            session_key,
            text,
            None,
            channel_message_id=key,
            role=role,
            is_noted=True,
            now=self._clock.now(),
        )

        def note(tx: Tx) -> Posted:
            posted = post(tx, message)
            origin = tx.sessions.of_key(session_key).origin
            if tells and origin is not None:
                owe(tx, posted.message, origin, key=f"note:{posted.message.id}")
            return posted

        return await self._store.write(note)

    async def ask(self, session_key: str, text: str, *, key: str) -> Posted:
        """Post a message of the gateway itself for an agent to answer; once for each key."""
        message = await _made(
            session_key, text, None, channel_message_id=key, role=Role.SYSTEM, now=self._clock.now()
        )

        def ask(tx: Tx) -> Posted:
            return post(tx, message)

        return await self._store.write(ask)

    async def withdraw(self, message_id: str) -> Message:
        """Withdraw a message that still waits, so that it is not answered; any other stays as it is."""
        check_id("message", message_id)
        now = self._clock.now()
        return await self._store.write(lambda tx: withdraw(tx, message_id, now=now))

    async def message(self, message_id: str) -> Message:
        """Raises NotFound."""
        check_id("message", message_id)
        return await self._store.read(lambda tx: tx.messages.get(message_id))

    async def messages(self, session_key: str, after: int = 0, limit: int = 100) -> list[Message]:
        """The transcript after a position, oldest first. Raises NotFound for an unknown session."""
        agent_of(session_key)
        check_number("after", after, low=0, high=LAST_POSITION)
        check_number("limit", limit, low=1, high=MAX_PAGE)

        def read(tx: Tx) -> list[Message]:
            tx.sessions.of_key(session_key)
            return tx.messages.after(session_key, after, limit=limit)

        return await self._store.read(read)

    async def latest(
        self, session_key: str, *, before: int = LAST_POSITION, limit: int = 100
    ) -> list[Message]:
        """The end of the transcript, oldest first; pass its first position as `before` to get older ones."""
        agent_of(session_key)
        check_number("before", before, low=0, high=LAST_POSITION)
        check_number("limit", limit, low=1, high=MAX_PAGE)

        def read(tx: Tx) -> list[Message]:
            tx.sessions.of_key(session_key)
            return tx.messages.before(session_key, before, limit=limit)

        return await self._store.read(read)

    async def session(self, session_key: str) -> Session:
        """Raises NotFound."""
        agent_of(session_key)
        return await self._store.read(lambda tx: tx.sessions.of_key(session_key))

    async def sessions(
        self,
        *,
        agent: str | None = None,
        active_since: datetime | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> list[Session]:
        """Sessions, the most recently used first; the next page begins at `store.sessions.page_token`
        of the last one."""
        check_number("limit", limit, low=1, high=MAX_PAGE)
        return await self._store.read(
            lambda tx: tx.sessions.page(agent=agent, active_since=active_since, before=before, limit=limit)
        )

    def _refuse_when_closed(self) -> None:
        if self.is_closed:
            raise Draining


async def _made(session_key: str, text: str, origin: Origin | None, **more: Any) -> Message:
    """A message ready to be stored. A long text is cleaned in a thread, so as not to block the event loop."""
    make = partial(new_message, session_key, text, origin, **more)
    is_long = isinstance(text, str) and len(text) > REDACT_OFF_LOOP_BYTES
    return await asyncio.to_thread(make) if is_long else make()


__all__ = ["Inbox", "Posted"]
