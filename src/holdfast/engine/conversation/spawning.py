"""Spawns a session: the child, its first message and the task that answers it, in one write."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from datetime import datetime

import msgspec

from holdfast.core.errors import BadInput, KeyConflict, NotFound, Refused
from holdfast.core.ids import SessionId
from holdfast.core.message import SPAWN_CHANNEL, Message, Role
from holdfast.core.payload import MAX_GOAL_BYTES
from holdfast.core.session import Session, agent_of, agent_task, is_session_key, session_key
from holdfast.core.spawn_packet import SpawnPacket, check_packet, new_packet_id, packet_in
from holdfast.core.task import Origin, RuntimeName, Task
from holdfast.core.transitions import TaskStatus, is_terminal
from holdfast.engine.conversation.transcripts import new_message
from holdfast.engine.ledger.entries import append
from holdfast.engine.ledger.ledger import NewTask, create_prepared, prepare
from holdfast.engine.ledger.updates import is_spawned
from holdfast.store import Tx, Write

# How deep sessions may spawn sessions, and how many tasks of its children a session may have at a time.
MAX_DEPTH = 5
MAX_CHILDREN = 20
# The same for an owner that is no session, such as that of a token; about, if it spawns twice at once.
MAX_OF_OWNER = 200
# How many tasks of an owner are looked at to count its children.
_LOOKED_AT = 1000
_ALIVE = tuple(status for status in TaskStatus if not is_terminal(status))


class SpawnRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be spawned, its owner, and its key."""

    # Owns the child's task: the session that spawns it, or the owner of a caller that has none.
    owner: str
    agent: str
    task: str
    # The key of the child's task; made from the task's text if it is not given.
    task_id: str | None = None
    # The same key again is the same request.
    key: str
    packet: SpawnPacket
    # Whether the gateway itself woke the session that spawns: the end of the child does not wake it again.
    is_woken: bool = False


class Spawned(msgspec.Struct, frozen=True, kw_only=True):
    """The task of a child session, and whether it was spawned before."""

    task: Task
    session_key: str
    is_duplicate: bool


def spawn_request(
    packet: SpawnPacket,
    *,
    owner: str,
    agent: str | None,
    agents: Collection[str],
    key: str | None,
    now: datetime,
    is_woken: bool = False,
) -> SpawnRequest:
    """A checked request. A packet without a task_id gets one. Raises BadInput, NotFound."""
    given = packet.task_id or None
    if given is None and key is None:
        raise BadInput("task_id", "name one, smartwake_<slug>_<timestamp>, or give an idempotency key")
    if given is None:
        mark = hashlib.blake2b(f"{owner}\0{key}".encode(), digest_size=3).hexdigest()
        packet = msgspec.structs.replace(packet, task_id=f"{new_packet_id(packet.task, now)}-{mark}")
    packet = check_packet(packet)
    if agent is None:
        agent = agent_of(owner) if is_session_key(owner) else _only_one(agents)
    if agent not in agents:
        raise NotFound("agent", agent)
    return SpawnRequest(
        owner=owner,
        agent=agent,
        task=packet.task,
        task_id=given,
        key=f"task:{given}" if given is not None else f"key:{key}",
        packet=packet,
        is_woken=is_woken,
    )


def _only_one(agents: Collection[str]) -> str:
    """The agent of a child that no session spawns, if the request names none."""
    if not agents:
        raise BadInput("agentId", "the settings have no agent; declare one: [agents.main]")
    if len(agents) > 1:
        raise BadInput("agentId", f"name the agent of the child: {' or '.join(sorted(agents))}")
    (agent,) = agents
    return agent


def spawning(asked: SpawnRequest, *, now: datetime) -> Write[Spawned]:
    """The write that spawns. The same request again returns the first task; another packet under the same key
    raises KeyConflict. Raises Refused at the limits, NotFound if the session that spawns does not exist."""
    packet, owner = asked.packet, asked.owner
    mark = hashlib.blake2b(f"{owner}\0{asked.key}".encode(), digest_size=4).hexdigest()
    child_key = session_key(asked.agent, f"{packet.task_id}-{mark}")
    message = _message(asked, child_key, now)
    new = NewTask(
        name=agent_task(asked.agent),
        goal=packet.task.encode()[:MAX_GOAL_BYTES].decode(errors="ignore"),
        owner=owner,
        arguments={"session_key": child_key, "message_id": message.id, "until": 1},
        runtime=RuntimeName.AGENT,
        # As for an agent that the gateway woke: its own children do not wake it again.
        origin=Origin(channel=SPAWN_CHANNEL) if asked.is_woken else None,
        session_key=child_key,
        key=packet.task_id,
    )
    task, run = prepare(new, now)
    parent = owner if is_session_key(owner) else None

    def spawn(tx: Tx) -> Spawned:
        if parent is not None and tx.sessions.hold(parent) is None:
            raise NotFound("session", parent)
        before = tx.messages.find(message)
        if before is not None:
            return _found(tx, before, asked)
        paused = tx.paused_agents.all().get(asked.agent)
        if paused is not None:
            raise Refused(f"agent {asked.agent} is paused; run `holdfast agents resume {asked.agent}` first")
        if parent is not None:
            _check_depth(tx, parent)
        _check_children(tx, owner, most=MAX_OF_OWNER if parent is None else MAX_CHILDREN)
        session = Session(
            # Derived from the message's id, so that the write returns the same when it runs again.
            id=SessionId(f"sess_{message.id.removeprefix('msg_')}"),
            key=child_key,
            agent=asked.agent,
            parent_key=parent,
            created_at=now,
            updated_at=now,
        )
        tx.sessions.create(session)
        tx.sessions.hold(child_key)
        append(tx, message)
        tx.sessions.take(session.id, task.id, now=now)
        tx.messages.take(message.id, task.id, now=now)
        kept, _ = create_prepared(tx, task, run, now)
        if kept.id != task.id:
            raise KeyConflict(packet.task_id, kept.id)
        return Spawned(task=kept, session_key=child_key, is_duplicate=False)

    return spawn


def find_spawned(tx: Tx, asked: SpawnRequest, *, now: datetime) -> Spawned | None:
    """What an earlier write of the same request has spawned. Raises KeyConflict for another packet."""
    before = tx.messages.find(_message(asked, session_key(asked.agent, "none"), now))
    return None if before is None else _found(tx, before, asked)


def _message(asked: SpawnRequest, child_key: str, now: datetime) -> Message:
    """The child's first message. Its id in the channel is the key of the request, for each owner apart."""
    account = hashlib.blake2b(asked.owner.encode(), digest_size=16).hexdigest()
    peer = asked.owner[:200]
    origin = Origin(channel=SPAWN_CHANNEL, peer=peer, account_id=account)
    made = new_message(child_key, asked.packet.text, origin, role=Role.USER, now=now)
    return msgspec.structs.replace(made, channel_message_id=asked.key)


def _found(tx: Tx, before: Message, asked: SpawnRequest) -> Spawned:
    packet = packet_in(before.text)
    if asked.task_id is None and packet is not None:
        # The first request has made the task_id.
        packet = msgspec.structs.replace(packet, task_id=asked.packet.task_id)
    expected = packet_in(_message(asked, before.session_key, before.created_at).text)
    task = None if before.task_id is None else tx.tasks.get_many([before.task_id]).get(before.task_id)
    is_same = packet == expected and agent_of(before.session_key) == asked.agent
    if not is_same or task is None:
        raise KeyConflict(asked.task_id or asked.packet.task_id, before.task_id or before.id)
    return Spawned(task=task, session_key=before.session_key, is_duplicate=True)


def _check_depth(tx: Tx, parent: str) -> None:
    depth, above = 1, tx.sessions.of_key(parent).parent_key
    while above is not None and depth < MAX_DEPTH:
        session = tx.sessions.find(above)
        depth, above = depth + 1, None if session is None else session.parent_key
    if depth >= MAX_DEPTH:
        raise Refused(f"{parent} is spawned {MAX_DEPTH} deep; do the work in this session instead")


def _check_children(tx: Tx, owner: str, *, most: int) -> None:
    """A session that spawns is locked, so two requests at a time do not exceed its limit together."""
    alive = tx.tasks.page(owner=owner, statuses=_ALIVE, limit=_LOOKED_AT)
    children = [one for one in alive if is_spawned(one)]
    if len(children) >= most:
        raise Refused(
            f"{owner} has {len(children)} spawned tasks that have not ended; wait for one, or cancel it: "
            f"`holdfast tasks cancel {children[-1].id}`"
        )


def packet_of(message: Message) -> SpawnPacket | None:
    """The packet, if this is the first message of a spawned session."""
    return packet_in(message.text) if message.channel == SPAWN_CHANNEL else None
