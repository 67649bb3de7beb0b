"""Decides who may use commands in a session: the person who began it, peers of the settings, operators."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeAlias

from holdfast.channels.webhook import own_session_key
from holdfast.core.errors import HoldfastError
from holdfast.core.ids import MessageId
from holdfast.core.message import CONSOLE_CHANNEL, Message
from holdfast.core.session import Session
from holdfast.core.task import Origin
from holdfast.engine.ledger.entries import is_spoken
from holdfast.store import Tx

# The peers that may use commands, by channel. None: those who began the session. `*` is every peer.
AllowedPeers: TypeAlias = Mapping[str, Collection[str] | None]
EVERY_PEER = "*"


def may_command(tx: Tx, session: Session, message: Message, allowed: AllowedPeers) -> bool:
    """Whether the author of this message may use commands in this session."""
    if message.channel == CONSOLE_CHANNEL:
        return True
    origin = message.origin
    if origin is None:
        return False
    named = allowed.get(origin.channel)
    if named is not None:
        return EVERY_PEER in named or origin.peer in named
    return _is_own(session, origin) or _has_begun(tx, session, message)


def _is_own(session: Session, origin: Origin) -> bool:
    """Whether the channel gives this session to this peer alone."""
    return own_session_key(session.agent, origin) == session.key


def _has_begun(tx: Tx, session: Session, message: Message) -> bool:
    """Whether the first message of the session is from the same person. A session is named after it."""
    first_id = MessageId(f"msg_{session.id.removeprefix('sess_')}")
    if first_id == message.id:
        return True
    try:
        first = tx.messages.get(first_id)
    except HoldfastError:
        return False  # it was pruned or is damaged, so it is not known who began the session
    return is_spoken(first) and _person(first.origin) == _person(message.origin)


def _person(origin: Origin | None) -> tuple[str, str | None, str | None] | None:
    return None if origin is None else (origin.channel, origin.account_id, origin.peer)
