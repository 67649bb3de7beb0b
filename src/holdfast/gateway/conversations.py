"""Service: turns the messages of each session into tasks, one at a time and in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import TypeAlias, TypeVar

import msgspec

from holdfast.core.clock import Clock
from holdfast.core.errors import HoldfastError, RowDamaged, StoreUnavailable
from holdfast.core.message import Message
from holdfast.core.payload import MAX_GOAL_BYTES
from holdfast.core.redaction import REDACT_OFF_LOOP_BYTES
from holdfast.core.run import RunRecord
from holdfast.core.session import Session, agent_task
from holdfast.core.task import RuntimeName, Task
from holdfast.core.transitions import FiringStatus, MessageStatus, TaskStatus
from holdfast.engine.aio.polling import PollingService
from holdfast.engine.conversation.transcripts import answer, fail
from holdfast.engine.ledger.ledger import NewTask, create_prepared, prepare
from holdfast.store import Store, Tx

log = logging.getLogger("holdfast")

T = TypeVar("T")
_Prepared: TypeAlias = tuple[Session, Message, Task, RunRecord]

BATCH = 200
# How often the service polls when it gets no hint.
EVERY_S = 1.0


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """What one pass did: how many sessions it settled, and how many messages became tasks."""

    settled: int = 0
    started: int = 0


class Conversations(PollingService):
    """One run per session at a time; later messages wait their turn, also through restarts.

    Several gateways may run this service on one ledger: each message is started once.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        agents: Collection[str],
        *,
        every_s: float = EVERY_S,
        batch: int = BATCH,
    ) -> None:
        """`agents` names the agents of this gateway; messages for other agents wait."""
        super().__init__(store, "sessions", every_s=every_s)
        self._clock = clock
        self._batch = batch
        self._is_held = False
        self._missing: frozenset[str] = frozenset()
        self.agents = agents

    def hold(self) -> None:
        """Start nothing from now on: messages are stored and wait. Safe to call twice."""
        self._is_held = True

    def go_on(self) -> None:
        """The drain was called off: start waiting messages again."""
        self._is_held = False
        self.look()

    @property
    def is_held(self) -> bool:
        return self._is_held

    async def run_once(self) -> Moved:
        """Settle ended tasks, then start waiting messages; in batches, until none is left."""
        settled = started = 0
        while (count := await self._settle_batch()) > 0:
            settled += count
            if count < self._batch:
                break
        while not self._is_held and (count := await self._start_batch()) > 0:
            started += count
        return Moved(settled=settled, started=started)

    # --- settling

    async def _settle_batch(self) -> int:
        ended = await self._store.read(lambda tx: tx.sessions.ended(limit=self._batch))
        if not ended:
            return 0
        now = self._clock.now()
        # Lock sessions in a fixed order, to avoid a deadlock with another gateway.
        pairs = sorted((session.key, session.task_id or "") for session in ended)

        def settle_all(tx: Tx, some: Sequence[tuple[str, str]]) -> int:
            for key, task_id in some:
                settle(tx, key, task_id, now=now)
            return len(some)

        return await self._each(pairs, settle_all)

    # --- starting

    async def _start_batch(self) -> int:
        agents = frozenset(self.agents)
        found = await self._store.read(lambda tx: _find_ready(tx, agents, self._batch))
        self._warn_of_missing(found.agents - agents)
        if not found.messages:
            return 0
        now = self._clock.now()
        # Lock sessions in a fixed order, to avoid a deadlock with another gateway.
        ordered = sorted(found.messages, key=lambda one: one[0].key)

        def prepare_all() -> list[_Prepared]:
            return [(*one, *prepare(task_for(*one), now)) for one in ordered]

        # The message becomes the task's goal, which is redacted; for much text, off the event loop.
        is_much = sum(len(message.body) for _, message in ordered) > REDACT_OFF_LOOP_BYTES
        prepared = await asyncio.to_thread(prepare_all) if is_much else prepare_all()

        def start_all(tx: Tx, some: Sequence[_Prepared]) -> int:
            return sum(start(tx, *one, now=now) for one in some)

        return await self._each(prepared, start_all)

    async def _each(self, several: Sequence[T], act: Callable[[Tx, Sequence[T]], int]) -> int:
        """Try all in one write; if that fails, write each alone, so that one failure blocks no other."""
        try:
            return await self._store.write(lambda tx: act(tx, several))
        except StoreUnavailable:
            raise
        except HoldfastError as error:
            if len(several) == 1:
                log.error("a session is stuck: %s", error)  # noqa: TRY400 - the message says it all
                return 0
        return sum([await self._each([one], act) for one in several])

    def _warn_of_missing(self, agents: frozenset[str]) -> None:
        if agents - self._missing:
            log.warning(
                "messages wait for %s, and no agent of that name is declared; they wait until one is",
                ", ".join(sorted(agents)),
            )
        self._missing = agents


class _Found(msgspec.Struct, frozen=True):
    messages: list[tuple[Session, Message]]
    agents: frozenset[str]


def _find_ready(tx: Tx, agents: frozenset[str], limit: int) -> _Found:
    waiting = frozenset(tx.sessions.waiting_agents(limit=limit))
    if not waiting:
        return _Found([], waiting)
    # Messages of an agent that an operator has paused wait in their sessions.
    paused = frozenset(tx.paused_agents.all())
    firsts = [(one, _first_of(tx, one)) for one in tx.sessions.ready(agents - paused, limit=limit)]
    return _Found([(session, first) for session, first in firsts if first is not None], waiting)


def _first_of(tx: Tx, session: Session) -> Message | None:
    """The next message of a session; None when its row is damaged: only that session is stuck then."""
    try:
        return tx.messages.next_of(session.key)
    except RowDamaged as damage:
        log.error("%s is stuck: %s", session.key, damage)  # noqa: TRY400 - the message says it all
        return None


def task_for(session: Session, message: Message) -> NewTask:
    """The task that answers one message."""
    text = message.text
    goal = text.encode()[:MAX_GOAL_BYTES].decode(errors="ignore")
    return NewTask(
        name=agent_task(session.agent),
        goal=goal,
        owner=session.key,
        # The agent sees the transcript up to here; a later message is answered by its own task.
        arguments={"session_key": session.key, "message_id": message.id, "until": session.last_position},
        runtime=RuntimeName.AGENT,
        origin=message.origin,
        session_key=session.key,
        key=f"message:{message.id}",
    )


def start(tx: Tx, session: Session, message: Message, task: Task, run: RunRecord, *, now: datetime) -> bool:
    """Turn the first waiting message into a task, if it still waits and its session is idle."""
    held = tx.sessions.hold(session.key)
    if held is None:
        return False
    if held.task_id == task.id:
        return True  # an earlier attempt of this write committed, and its answer was lost
    if session.agent in tx.paused_agents.all():
        return False  # it was paused meanwhile
    first = tx.messages.next_of(session.key)
    if held.task_id is not None or first is None or first.id != message.id:
        return False
    if tx.sessions.take(held.id, task.id, now=now) is None:
        return False
    tx.messages.take(message.id, task.id, now=now)
    tx.firings.follow(message.id, FiringStatus.RUNNING, task_id=task.id, now=now)
    create_prepared(tx, task, run, now)
    return True


def settle(tx: Tx, session_key: str, task_id: str, *, now: datetime) -> bool:
    """Free a session whose task has ended; a message that the task did not answer has failed.

    False when the session was settled before, or when the task was retried and goes on.
    """
    session = tx.sessions.hold(session_key)
    if session is None or session.task_id != task_id:
        return False
    task = tx.tasks.get_many([task_id]).get(task_id)
    if task is not None and not task.has_ended:
        return False
    try:
        asked = tx.messages.taken_by(task_id)
    except RowDamaged as damage:
        log.error("the message that %s was to answer cannot be read: %s", task_id, damage)  # noqa: TRY400 - the message says what is damaged; a traceback would say where we read it
        asked = None
    if asked is not None:
        _close(tx, asked, task_id, task, now)
    tx.sessions.free(session.id, task_id, now=now)
    return True


def _close(tx: Tx, asked: Message, task_id: str, task: Task | None, now: datetime) -> None:
    assert asked.status is MessageStatus.TAKEN
    status = TaskStatus.LOST if task is None else task.status
    if status is TaskStatus.SUCCEEDED:
        # The task succeeded without an answer of its own.
        answer(tx, session_key=asked.session_key, message_id=asked.id, task_id=task_id, text=None, now=now)
    else:
        failure = None if task is None else task.failure
        fail(tx, asked, task_id=task_id, status=status, failure=failure, now=now)


__all__ = ["Conversations", "Moved"]
