"""Service: the messages of each session become tasks, one at a time, in order; ended tasks free it."""

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
from holdfast.core.run import Run
from holdfast.core.session import Session, agent_task
from holdfast.core.task import RuntimeName, Task
from holdfast.core.transitions import FiringStatus, MessageStatus, TaskStatus
from holdfast.engine.aio.polling import PollingService
from holdfast.engine.conversation.transcripts import answer, fail
from holdfast.engine.ledger.ledger import NewTask, create_prepared, prepare
from holdfast.store import Store, Tx

log = logging.getLogger("holdfast")

T = TypeVar("T")
_Prepared: TypeAlias = tuple[Session, Message, Task, Run]

BATCH = 200
# Without a hint, how often somebody looks.
EVERY_S = 1.0


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """What one pass did: sessions whose task had ended, and messages that became tasks."""

    settled: int = 0
    started: int = 0


class Conversations(PollingService):
    """One run per session at a time; what comes meanwhile waits its turn, also through restarts.

    Any number of them may work on one ledger: each message is started once.
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
        """`agents` are the names of those whose messages are started here; others wait for their agent."""
        super().__init__(store, "sessions", every_s=every_s)
        self._clock = clock
        self._batch = batch
        self._is_held = False
        self._missing: frozenset[str] = frozenset()
        self.agents = agents

    def hold(self) -> None:
        """Start nothing from now on: messages are stored and wait. Safe twice."""
        self._is_held = True

    def go_on(self) -> None:
        """The drain was called off: start again what waits."""
        self._is_held = False
        self.look()

    @property
    def is_held(self) -> bool:
        return self._is_held

    async def run_once(self) -> Moved:
        """Settle what has ended, then start what can be started; all there is, a batch at a time."""
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
        # Always in the same order: two of us must not wait for each other.
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
        # Always in the same order: two of us must not wait for each other.
        ordered = sorted(found.messages, key=lambda one: one[0].key)

        def prepare_all() -> list[_Prepared]:
            return [(*one, *prepare(task_for(*one), now)) for one in ordered]

        # What is asked for becomes a goal, and is redacted.
        is_much = sum(len(message.body) for _, message in ordered) > REDACT_OFF_LOOP_BYTES
        prepared = await asyncio.to_thread(prepare_all) if is_much else prepare_all()

        def start_all(tx: Tx, some: Sequence[_Prepared]) -> int:
            return sum(start(tx, *one, now=now) for one in some)

        return await self._each(prepared, start_all)

    async def _each(self, several: Sequence[T], act: Callable[[Tx, Sequence[T]], int]) -> int:
        """All in one write; when one of them cannot be done, each alone, so that it harms no other."""
        try:
            return await self._store.write(lambda tx: act(tx, several))
        except StoreUnavailable:
            raise
        except HoldfastError as error:
            if len(several) == 1:
                log.error("a session stands still: %s", error)  # noqa: TRY400 - its message is the story
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
    firsts = [(one, _first_of(tx, one)) for one in tx.sessions.ready(agents, limit=limit)]
    return _Found([(session, first) for session, first in firsts if first is not None], waiting)


def _first_of(tx: Tx, session: Session) -> Message | None:
    """One that is damaged must not keep other sessions from going on; its own stands still."""
    try:
        return tx.messages.next_of(session.key)
    except RowDamaged as damage:
        log.error("%s stands still: %s", session.key, damage)  # noqa: TRY400 - the row is the story
        return None


def task_for(session: Session, message: Message) -> NewTask:
    """The task that answers one message."""
    text = message.text
    goal = text.encode()[:MAX_GOAL_BYTES].decode(errors="ignore")
    return NewTask(
        name=agent_task(session.agent),
        goal=goal,
        owner=session.key,
        # What was said by now; a message that comes later has its own turn.
        arguments={"session_key": session.key, "message_id": message.id, "until": session.last_position},
        runtime=RuntimeName.AGENT,
        origin=message.origin,
        session_key=session.key,
        key=f"message:{message.id}",
    )


def start(tx: Tx, session: Session, message: Message, task: Task, run: Run, *, now: datetime) -> bool:
    """The first message that waits becomes a task, if it still waits and nothing is being answered there."""
    held = tx.sessions.hold(session.key)
    if held is None:
        return False
    if held.task_id == task.id:
        return True  # in a commit whose answer was lost
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
    """A task of the session has ended: what it did not answer failed, and the session is free.

    False when that was settled before, or when the task goes on after all.
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
        log.error("what %s was to answer cannot be read: %s", task_id, damage)  # noqa: TRY400
        asked = None
    if asked is not None:
        _close(tx, asked, task_id, task, now)
    tx.sessions.free(session.id, task_id, now=now)
    return True


def _close(tx: Tx, asked: Message, task_id: str, task: Task | None, now: datetime) -> None:
    assert asked.status is MessageStatus.TAKEN
    status = TaskStatus.LOST if task is None else task.status
    if status is TaskStatus.SUCCEEDED:
        # It had nothing to say, or said it elsewhere.
        answer(tx, session_key=asked.session_key, message_id=asked.id, task_id=task_id, text=None, now=now)
    else:
        failure = None if task is None else task.failure
        fail(tx, asked, task_id=task_id, status=status, failure=failure, now=now)


__all__ = ["Conversations", "Moved"]
