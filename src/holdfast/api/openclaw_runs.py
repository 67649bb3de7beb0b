"""agent, agent.wait, chat.abort and sessions.abort: the runs of agents in the format of OpenClaw's protocol.

The run of an agent has the id of the message that it answers.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Annotated

import msgspec

from holdfast.api.openclaw_chat import MessageAsked, default_agent, post, wire_key
from holdfast.api.params import KeyText, NameText, Params
from holdfast.api.sessions import SessionText, message_key
from holdfast.core.errors import BadInput, KeyLost, NotFound, RowDamaged
from holdfast.core.ids import is_whole_id
from holdfast.core.message import CONSOLE_CHANNEL, Message, command_answer_id, reply_id
from holdfast.core.session import agent_of
from holdfast.core.transitions import MessageStatus
from holdfast.views.openclaw_chat import (
    AgentAnswer,
    AgentResult,
    AgentRun,
    ChatAborted,
    RunWaited,
    SessionAborted,
)
from holdfast.views.sessions import MessageView
from holdfast.views.text import one_line
from holdfast.views.wire import millis

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast.api.contract import Caller, GatewayDoor
    from holdfast.config.sections import Config
    from holdfast.store.contract import Write
    from holdfast.store.transaction import Tx

DEFAULT_WAIT_MS = 30_000
# A longer wait is several calls: a client whose connection broke notices it, and calls again.
MAX_WAIT_MS = 600_000
_LOOK_EVERY_S = 1.0
# How many queued messages one abort takes out of the queue.
MAX_CLEARED = 1000
ABORTED = "aborted by a client"


class AgentAsked(MessageAsked, frozen=True, kw_only=True):
    """A message to an agent, in its main session or in another; idempotent by its key."""

    idempotency_key: KeyText
    session_key: SessionText | None = None
    # Seconds.
    timeout: Annotated[int, msgspec.Meta(ge=0, le=2**53)] | None = None


class RunWaitAsked(Params, frozen=True, kw_only=True):
    """Wait until a run has ended. A wait of more than ten minutes ends after ten minutes."""

    run_id: NameText
    timeout_ms: Annotated[int, msgspec.Meta(ge=0, le=2**53)] = DEFAULT_WAIT_MS


class ChatAbortAsked(Params, frozen=True, kw_only=True):
    """Cancel what a session's agent works on now; or one run, which may still be queued."""

    session_key: SessionText
    agent_id: NameText | None = None
    run_id: NameText | None = None
    # Only the run of the session is ended, never one of another session.
    preserve_side_runs: bool = False


class SessionAbortAsked(Params, frozen=True, kw_only=True):
    """The same; with `clearQueued`, messages that still wait are taken out of the queue."""

    key: SessionText | None = None
    agent_id: NameText | None = None
    run_id: NameText | None = None
    clear_queued: bool = False


# --- runs


async def run_agent(gateway: GatewayDoor, asked: AgentAsked, caller: Caller) -> AgentRun:
    """Store the message; on a WebSocket a second answer follows when the agent has answered."""
    key = await _session_of(gateway, asked)
    posted = await post(gateway, key, asked, asked.idempotency_key, caller)
    if not posted.is_duplicate:
        return _run_of(posted.message, "accepted")
    ended = await gateway.store.read(lambda tx: _maybe_ended(tx, posted.message.id))
    return ended or _run_of(posted.message, "in_flight")


async def finish_agent(gateway: GatewayDoor, accepted: AgentRun, caller: Caller) -> AgentRun:  # noqa: ARG001 - as a method
    """The end of a run that was accepted, whenever it comes."""
    while True:
        await _until_end(gateway, accepted.run_id, MAX_WAIT_MS)
        ended = await gateway.store.read(lambda tx: _maybe_ended(tx, accepted.run_id))
        if ended is not None:
            return ended


async def wait(gateway: GatewayDoor, asked: RunWaitAsked, caller: Caller) -> RunWaited:  # noqa: ARG001 - a method
    """How the run ended; `timeout` if it runs on, `pending` if it is still queued."""
    if not is_whole_id("msg", asked.run_id):
        raise NotFound("run", asked.run_id)
    return await _until_end(gateway, asked.run_id, min(asked.timeout_ms, MAX_WAIT_MS))


async def _until_end(gateway: GatewayDoor, run_id: str, wait_ms: int) -> RunWaited:
    give_up_at = time.monotonic() + wait_ms / 1000
    while True:
        state, task_id = await gateway.store.read(lambda tx: look(tx, run_id))
        left = give_up_at - time.monotonic()
        if state.has_ended or left <= 0:
            return state
        if task_id is None:
            await gateway.store.wait_for("events", min(left, _LOOK_EVERY_S))
            continue
        try:
            async with asyncio.timeout(left):
                await gateway.ends.wait(task_id)
        except (TimeoutError, RowDamaged, KeyLost):
            return (await gateway.store.read(lambda tx: look(tx, run_id)))[0]


def look(tx: Tx, run_id: str) -> tuple[RunWaited, str | None]:
    """How a run stands, and the task that answers its message, if one does already."""
    message = _message(tx, run_id)
    task = None if message.task_id is None else tx.tasks.get_many([message.task_id]).get(message.task_id)
    if task is None:
        return _of_message(message), None
    if task.has_ended:
        return RunWaited.of_task(message.id, task), task.id
    return RunWaited(run_id=message.id, status="timeout"), task.id


def _of_message(message: Message) -> RunWaited:
    match message.status:
        case MessageStatus.QUEUED | MessageStatus.TAKEN:
            return RunWaited(run_id=message.id, status="pending", timeout_phase="queue")
        case MessageStatus.ANSWERED:
            return RunWaited(run_id=message.id, status="ok", ended_at=millis(message.updated_at))
        case MessageStatus.FAILED:
            return RunWaited(
                run_id=message.id,
                status="error",
                ended_at=millis(message.updated_at),
                error="the message could not be answered",
            )
        case MessageStatus.NOTED:
            return RunWaited(
                run_id=message.id,
                status="error",
                ended_at=millis(message.updated_at),
                error="the message was taken out of the queue before an agent got it",
                stop_reason="aborted",
            )


def _maybe_ended(tx: Tx, run_id: str) -> AgentRun | None:
    """The answer to `agent` when its run has ended: what the agent said, or why it failed."""
    state, _ = look(tx, run_id)
    if not state.has_ended:
        return None
    message = _message(tx, run_id)
    said = [] if state.status != "ok" else [_reply(tx, message)]
    result = AgentResult(payloads=[AgentAnswer(text=one) for one in said if one is not None])
    summary = "completed" if state.status == "ok" else state.error or f"the run ended with {state.status}"
    run = _run_of(message, "error" if state.status == "pending" else state.status)
    return msgspec.structs.replace(run, summary=summary, result=result)


def _reply(tx: Tx, message: Message) -> str | None:
    """The text of the agent's answer; of the gateway's, if the message was a command."""
    answer = command_answer_id(message.id) if message.task_id is None else reply_id(message.task_id)
    try:
        return MessageView.of(tx.messages.get(answer), is_whole=True).text
    except NotFound:
        return None


def _run_of(message: Message, status: str) -> AgentRun:
    return AgentRun(
        run_id=one_line(message.id),
        status=status,  # type: ignore[arg-type]
        session_key=one_line(message.session_key),
        agent_id=one_line(agent_of(message.session_key)),
        accepted_at=millis(message.created_at),
        task_id=None if message.task_id is None else one_line(message.task_id),
    )


async def _session_of(gateway: GatewayDoor, asked: AgentAsked) -> str:
    """The session that is meant: by its key, by its id, or the main session of an agent."""
    config = gateway.config
    if asked.session_key is not None:
        return wire_key(config, asked.session_key, asked.agent_id, is_known=True)
    if asked.session_id is not None:
        session_id = asked.session_id
        if not is_whole_id("sess", session_id):
            raise NotFound("session", session_id)
        found = await gateway.store.read(lambda tx: tx.sessions.get(session_id))
        return wire_key(config, found.key, asked.agent_id, is_known=True)
    agent = asked.agent_id or default_agent(config)
    if agent is None:
        raise BadInput("agentId", f"name an agent: {', '.join(sorted(config.agents)) or 'none is declared'}")
    return wire_key(config, agent, agent, is_known=True)


def _message(tx: Tx, run_id: str) -> Message:
    try:
        return tx.messages.get(run_id)
    except NotFound as error:
        raise NotFound("run", run_id) from error


# --- aborts


def aborting_chat(asked: ChatAbortAsked, *, now: datetime, config: Config) -> Write[ChatAborted]:
    key = wire_key(config, asked.session_key, asked.agent_id)

    def abort(tx: Tx) -> ChatAborted:
        _check_agent(tx, key, config)
        aborted = _abort(tx, key, asked.run_id, now)
        return ChatAborted(ok=True, aborted=aborted is not None, run_ids=[] if aborted is None else [aborted])

    return abort


def aborting_session(asked: SessionAbortAsked, *, now: datetime, config: Config) -> Write[SessionAborted]:
    """Raises BadInput if neither a session nor a run is named."""
    if asked.key is None and asked.run_id is None:
        raise BadInput("key", "name the session with key, or one run with runId")
    named = None if asked.key is None else wire_key(config, asked.key, asked.agent_id)

    def abort(tx: Tx) -> SessionAborted:
        key = named
        if key is not None:
            _check_agent(tx, key, config)
        else:
            found = _find_run(tx, None, asked.run_id or "")
            key = None if found is None else found.session_key
        aborted = None if key is None else _abort(tx, key, asked.run_id, now)
        cleared = _clear(tx, key, now) if key is not None and asked.clear_queued else 0
        return SessionAborted(
            ok=True,
            status="no-active-run" if aborted is None else "aborted",
            aborted_run_id=aborted,
            cleared=cleared,
        )

    return abort


def _abort(tx: Tx, key: str, run_id: str | None, now: datetime) -> str | None:
    """Cancel the task that answers in this session, or take a queued message out of the queue.

    Returns the id of the run that it ended; None if there was none to end.
    """
    from holdfast.engine.conversation.transcripts import withdraw
    from holdfast.engine.ledger.ledger import AlreadyEnded
    from holdfast.engine.producers.stopping import ending_stopped

    session = tx.sessions.find(key)
    if session is None:
        return None
    wanted = None if run_id is None else _find_run(tx, key, run_id)
    if run_id is not None and (wanted is None or wanted.session_key != key):
        return None
    if wanted is not None and wanted.status is MessageStatus.QUEUED:
        return one_line(withdraw(tx, wanted.id, now=now).id)
    task_id = session.task_id if wanted is None else wanted.task_id
    if task_id is None:
        return None
    message = wanted or tx.messages.taken_by(task_id)
    if isinstance(ending_stopped(task_id, reason=ABORTED, now=now)(tx), AlreadyEnded):
        return None
    return one_line(task_id if message is None else message.id)


def _check_agent(tx: Tx, key: str, config: Config) -> None:
    """Raises NotFound if there is neither such an agent nor such a session."""
    if agent_of(key) not in config.agents:
        tx.sessions.of_key(key)


def _find_run(tx: Tx, key: str | None, run_id: str) -> Message | None:
    """The message of a run: by its id or, in a known session, by the key that it was sent with."""
    try:
        if is_whole_id("msg", run_id):
            return tx.messages.get(run_id)
    except NotFound:
        return None
    return None if key is None else tx.messages.sent_as(CONSOLE_CHANNEL, message_key(key, run_id) or "")


def _clear(tx: Tx, key: str, now: datetime) -> int:
    from holdfast.engine.conversation.transcripts import withdraw

    cleared = 0
    while cleared < MAX_CLEARED and (message := tx.messages.next_of(key)) is not None:
        withdraw(tx, message.id, now=now)
        cleared += 1
    return cleared
