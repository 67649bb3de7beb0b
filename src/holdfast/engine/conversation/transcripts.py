"""The transcript of a session: posts a message, answers it, or reports its failure, in one write each."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from datetime import datetime
from typing import TypeAlias

import msgspec

from holdfast.core.audit import Actor, AuditEntry, AuditOutcome, Door
from holdfast.core.errors import BadInput, KeyConflict, KeyLost, NotFound, Refused, RowDamaged
from holdfast.core.events import EventKind
from holdfast.core.ids import MessageId, SessionId, TaskId, new_audit_id, new_message_id
from holdfast.core.message import (
    CONSOLE_CHANNEL,
    HASHED_ID,
    SPAWN_CHANNEL,
    SYSTEM_MARK,
    Message,
    Role,
    clean_message,
    command_answer_id,
    notice_id,
    reply_id,
)
from holdfast.core.payload import MAX_NAME_CHARS, encode_payload
from holdfast.core.program_records import Question
from holdfast.core.redaction import redact_json, redact_text
from holdfast.core.schedule import Firing
from holdfast.core.session import Session, agent_of
from holdfast.core.task import Failure, Origin, Task
from holdfast.core.transitions import DeliveryStatus, FiringStatus, MessageStatus, TaskStatus
from holdfast.engine.conversation.questions import answering, choice_in
from holdfast.engine.ledger.entries import (
    OWN_CHANNELS,
    SYSTEM_CHANNEL,
    append,
    is_spoken,
    leave_loop_with,
    owe,
)
from holdfast.engine.ledger.inputs import check_choice
from holdfast.engine.ledger.session_queue import settle_update
from holdfast.store import Tx

# The ids, on the gateway's own channel, of its answers to chat commands. An agent hears neither these nor
# the commands; after the second kind, its history begins anew.
_COMMAND_ID = "command:"
_NEW_ID = "new:"

# How many descendants of a session's task are searched for an open question.
_MOST_ASKING = 50

_ID = re.compile(rf"[!-~]([ -~]{{0,{MAX_NAME_CHARS - 2}}}[!-~])?")

# Failures of tasks that could not be resumed, or whose records cannot be read.
NOT_RESUMED_KINDS = frozenset({"failed_resume", RowDamaged.code, KeyLost.code})
_MOST_WHY = 300

_SENTENCES = {
    TaskStatus.CANCELLED: "was cancelled before it was answered",
    TaskStatus.TIMED_OUT: "was not answered in the time it may take",
}


class Posted(msgspec.Struct, frozen=True, kw_only=True):
    """The message in the transcript; `is_duplicate` if it was posted before."""

    message: Message
    is_duplicate: bool


class CommandAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the gateway itself answers to a chat command."""

    text: str
    # True if the sender may not use commands here: then nothing was done.
    is_refused: bool = False
    # Whether the history that an agent gets begins anew after this answer.
    starts_anew: bool = False


# Carries out the message if it is a chat command, in the write that posts it; None if it is none.
Commands: TypeAlias = Callable[[Tx, Session, Message], CommandAnswer | None]


# --- posting


def new_message(
    session_key: str,
    text: object,
    origin: Origin | None,
    *,
    channel_message_id: str | None = None,
    role: Role | str = Role.USER,
    is_noted: bool = False,
    now: datetime,
) -> Message:
    """A checked message, ready to be stored; `post` sets its position. Raises BadInput."""
    agent_of(session_key)
    role = check_choice("role", role, Role)
    if origin is not None and not isinstance(origin, Origin):
        raise BadInput("origin", f"an origin is needed, not {type(origin).__name__}")
    checked = None if origin is None else origin.checked()
    cleaned = clean_message(text, role)
    return Message(
        id=new_message_id(now),
        session_key=session_key,
        position=0,
        role=role,
        channel=SYSTEM_CHANNEL if checked is None else checked.channel,
        account_id="" if checked is None else checked.account_id or "",
        channel_message_id=None if channel_message_id is None else _checked_id(channel_message_id),
        origin=checked,
        body=encode_payload("message", cleaned, max_bytes=2**21),
        created_at=now,
        status=MessageStatus.NOTED if is_noted else MessageStatus.QUEUED,
        updated_at=now,
    )


def _checked_id(value: object) -> str:
    """The channel's id of a message. One that looks like a secret is hashed: redacted, two could be equal."""
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise BadInput(
            "message id", f"1 to {MAX_NAME_CHARS} printable ASCII characters are needed; give it another id"
        )
    if redact_text(value) != value:
        return f"{HASHED_ID}{hashlib.sha256(value.encode()).hexdigest()}"
    return value


def post(
    tx: Tx, message: Message, *, parent_key: str | None = None, commands: Commands | None = None
) -> Posted:
    """Append the message to the transcript and queue it, unless it is only noted. Idempotent.

    A chat command is not queued: it is carried out and answered here, also while the agent is busy.
    Raises KeyConflict if the channel used the same id for another message.
    """
    leave_loop_with(tx, message.body)
    now = message.created_at
    session = tx.sessions.hold(message.session_key)
    if session is None:
        tx.sessions.create(
            Session(
                # Derived from the message's id, so that the write returns the same when it runs again.
                id=SessionId(f"sess_{message.id.removeprefix('msg_')}"),
                key=message.session_key,
                agent=agent_of(message.session_key),
                parent_key=parent_key,
                created_at=now,
                updated_at=now,
            )
        )
        tx.sessions.hold(message.session_key)
    before = tx.messages.find(message)
    if before is not None:
        return _found(before, message)
    if commands is not None and is_spoken(message):
        held = tx.sessions.of_key(message.session_key) if session is None else session
        done = commands(tx, held, message)
        if done is not None:
            return _answer_command(tx, message, done)
    question = None if session is None else _question_to(tx, session, message)
    answered = None if question is None else _meant(question, message)
    if session is not None and question is not None and answered is not None:
        answering(question.id, answered, by=name_of(message), now=now)(tx)
        tx.audit.add(audit_entry(message, "questions.answer", question.id, now))
        message = msgspec.structs.replace(message, status=MessageStatus.NOTED, task_id=session.task_id)
    posted = append(tx, message)
    if question is not None and answered is None:
        _tell_choices(tx, question, posted)
    tx.hint("sessions")
    return Posted(message=posted, is_duplicate=False)


def _answer_command(tx: Tx, message: Message, done: CommandAnswer) -> Posted:
    """Append the command and its answer, and owe the answer: with the effect of the command in one write."""
    posted = append(
        tx, msgspec.structs.replace(message, status=MessageStatus.ANSWERED), is_from_stranger=done.is_refused
    )
    said = new_message(
        message.session_key,
        f"{SYSTEM_MARK} {done.text}",
        None,
        channel_message_id=f"{_NEW_ID if done.starts_anew else _COMMAND_ID}{message.id}",
        role=Role.SYSTEM,
        is_noted=True,
        now=message.created_at,
    )
    said = msgspec.structs.replace(said, id=command_answer_id(message.id), reply_to=message.id)
    placed = append(tx, said)
    if message.origin is not None:
        owe(tx, placed, message.origin, key=f"command:{message.id}")
    return Posted(message=posted, is_duplicate=False)


def _found(before: Message, message: Message) -> Posted:
    is_same = (before.session_key, before.role) == (message.session_key, message.role)
    # If the key is lost, only the id is compared. Older releases redacted a text before they stored it.
    is_same_text = before.is_sealed or before.body == message.body or before.body == redact_json(message.body)
    if not (is_same and is_same_text):
        raise KeyConflict(message.channel_message_id or message.id, before.id, of_message=True)
    return Posted(message=before, is_duplicate=before.id != message.id)


# --- questions


def tell_question(tx: Tx, session_key: str, question: Question) -> None:
    """Post the question of an agent's task in its session, and owe it to the person it answers."""
    _tell(
        tx,
        session_key,
        _with_choices(question.question, question),
        key=f"question:{question.id}",
        role=Role.AGENT,
        task_id=question.task_id,
        now=question.asked_at,
    )


def tell_review(tx: Tx, session_key: str, task: Task, effect_id: str, *, now: datetime) -> None:
    """Tell the people of a session that its agent waits for a review."""
    name = tx.effects.get(effect_id).name
    _tell(
        tx,
        session_key,
        f"[System] This session waits: whether {name} happened is not known, and an operator has to decide "
        f"(`holdfast reviews show {effect_id}`, task {task.id}). New messages are kept until then.",
        key=f"review:{effect_id}",
        role=Role.SYSTEM,
        task_id=task.id,
        now=now,
    )


def tell_refused_restart(tx: Tx, session_key: str, task: Task, why: str, *, key: str, now: datetime) -> None:
    """Tell a session whose agent asked for a restart that it was refused, once for each key."""
    _tell(
        tx,
        session_key,
        f"[System] The restart that this session asked for was refused: {why}. Its task {task.id} goes on.",
        key=f"restart-refused:{key}",
        role=Role.SYSTEM,
        task_id=task.id,
        now=now,
    )


def _question_to(tx: Tx, session: Session, message: Message) -> Question | None:
    """The open question of the session's task to the author of this message; None if there is none, or if it
    is for another person."""
    if session.task_id is None or not is_spoken(message):
        return None
    question = _open_question(tx, session.task_id)
    return question if question is not None and is_partner(tx, session, message) else None


def _meant(question: Question, message: Message) -> str | None:
    """The message as an answer; None if it is none of the choices."""
    text = message.text.strip()
    return text if question.choices is None else choice_in(question.choices, text)


def _tell_choices(tx: Tx, question: Question, message: Message) -> None:
    """Show the choices again: the message is no answer, and stays queued."""
    text = _with_choices(f"That is none of the choices. {question.question}", question)
    _tell(
        tx,
        message.session_key,
        text,
        key=f"choices:{message.id}",
        role=Role.AGENT,
        task_id=question.task_id,
        reply_to=message.id,
        now=message.created_at,
    )


def _open_question(tx: Tx, task_id: str) -> Question | None:
    """The oldest open question of the task, or of its descendants."""
    tasks, place = [task_id], 0
    while place < len(tasks):
        found = tx.questions.open_of_task(tasks[place], limit=1)
        if found:
            return found[0]
        if len(tasks) < _MOST_ASKING:
            tasks += [one.id for one in tx.tasks.children(tasks[place], only_alive=True)]
        place += 1
    return None


def is_partner(tx: Tx, session: Session, message: Message) -> bool:
    """Whether the message is from the person whose message is being answered, or, if none is, from the person
    who spoke last. An operator may speak instead, at the console."""
    asked = None if session.task_id is None else tx.messages.taken_by(session.task_id)
    wanted = session.origin if asked is None or asked.channel in OWN_CHANNELS else asked.origin
    one = message.origin
    if wanted is None or one is None or message.channel == CONSOLE_CHANNEL:
        return True
    return (one.channel, one.account_id, one.peer) == (wanted.channel, wanted.account_id, wanted.peer)


def name_of(message: Message) -> str:
    peer = None if message.origin is None else message.origin.peer
    return message.channel if peer is None else f"{message.channel}:{peer}"[:MAX_NAME_CHARS]


def audit_entry(message: Message, action: str, subject: str, now: datetime) -> AuditEntry:
    """The audit entry of what a message did. The message gives it its id, so the write may run again."""
    origin = message.origin
    actor = Actor(
        who=name_of(message), door=Door.CHANNEL, address=None if origin is None else origin.account_id
    )
    entry = actor.entry(action, AuditOutcome.DONE, now=now, subject=subject)
    chance = hashlib.blake2b(message.id.encode(), digest_size=6).digest()
    return msgspec.structs.replace(entry, id=new_audit_id(now, chance))


def _with_choices(text: str, question: Question) -> str:
    return "\n".join([text, *(f"- {one}" for one in question.choices or ())])


def _tell(
    tx: Tx,
    session_key: str,
    text: str,
    *,
    key: str,
    role: Role,
    task_id: str,
    now: datetime,
    reply_to: MessageId | None = None,
) -> None:
    """Post a text in a session, once for each key, and owe it to the person whose message is answered."""
    session = tx.sessions.hold(session_key)
    if session is None:
        return
    said = new_message(session_key, text, None, channel_message_id=key, role=role, is_noted=True, now=now)
    if tx.messages.find(said) is not None:
        return
    asked = None if session.task_id is None else tx.messages.taken_by(session.task_id)
    if reply_to is None and asked is not None:
        reply_to = asked.id
    # The session's own task, even if a child asks: the session's task answers in the end.
    answers_id = session.task_id or TaskId(task_id)
    placed = append(tx, msgspec.structs.replace(said, task_id=answers_id, reply_to=reply_to))
    origin = session.origin if asked is None or asked.channel in OWN_CHANNELS else asked.origin
    if origin is not None:
        owe(tx, placed, origin, key=key)


def withdraw(tx: Tx, message_id: str, *, now: datetime) -> Message:
    """Take a queued message out of the queue: it is only noted from now on. Others stay as they are."""
    message = tx.messages.get(message_id)
    tx.sessions.hold(message.session_key)
    message = tx.messages.get(message_id)
    if message.status is not MessageStatus.QUEUED:
        return message
    tx.sessions.drop_queued(message.session_key, now=now)
    tx.firings.follow(message.id, FiringStatus.FAILED, task_id=None, now=now)
    _tell_failed(tx, message, None, "withdrawn", now)
    settle_update(tx, message, DeliveryStatus.DISMISSED, now=now)
    return tx.messages.move(message.id, MessageStatus.NOTED, now=now)


# --- answering


def hear(
    tx: Tx, *, session_key: str, message_id: str, task_id: str, until: int, limit: int
) -> tuple[Message, list[Message]]:
    """The message that a task answers, and the messages before it. Raises Refused for a task that does not
    belong to that session."""
    asked = tx.messages.get(message_id).checked()
    _check_answers(tx, asked, session_key, task_id)
    before = tx.messages.heard(session_key, until=until, limit=limit + 1)
    return asked, [one for one in _since_new(before, asked) if one.id != message_id][-limit:]


def _since_new(before: list[Message], asked: Message) -> list[Message]:
    """The messages after the last `/new` before this one, without chat commands and their answers."""
    news = [
        place for place, one in enumerate(before) if _is_own(one, _NEW_ID) and one.position < asked.position
    ]
    kept = before[news[-1] + 1 :] if news else before
    return [
        one for one in kept if not (_is_own(one, _COMMAND_ID) or _is_own(one, _NEW_ID) or _is_command(one))
    ]


def _is_own(message: Message, prefix: str) -> bool:
    return message.channel == SYSTEM_CHANNEL and (message.channel_message_id or "").startswith(prefix)


def _is_command(message: Message) -> bool:
    """Whether the gateway answered the message itself: then no task took it."""
    return message.status is MessageStatus.ANSWERED and message.task_id is None


def reply(
    tx: Tx, *, session_key: str, message_id: str, task_id: str, text: str | None, now: datetime
) -> Message | None:
    """`answer`, for a program. Raises Refused as `hear` does."""
    _check_answers(tx, tx.messages.get(message_id), session_key, task_id)
    return answer(tx, session_key=session_key, message_id=message_id, task_id=task_id, text=text, now=now)


def _check_answers(tx: Tx, asked: Message, session_key: str, task_id: str) -> None:
    task = tx.tasks.look(task_id)
    # Only the inbox creates tasks of a session, and it makes the session their owner. A spawned session is
    # made together with its task, which belongs to the session that spawned it.
    is_owner = task.owner == session_key or (asked.channel == SPAWN_CHANNEL and asked.task_id == task.id)
    if not (is_owner and task.session_key == session_key == asked.session_key):
        raise Refused(
            f"task {task.id} of {task.owner!r} does not answer {session_key}: only the inbox makes the tasks "
            "that do; post a message instead, with `holdfast sessions send` or the method chat.send"
        )


def answer(
    tx: Tx, *, session_key: str, message_id: str, task_id: str, text: str | None, now: datetime
) -> Message | None:
    """Append the agent's answer to the transcript, mark the message as answered, and owe the answer to its
    origin.

    Idempotent for a task. Without a text the message is only marked as answered.
    """
    if tx.sessions.hold(session_key) is None:
        raise NotFound("session", session_key)
    asked = tx.messages.get(message_id)
    if asked.status not in (MessageStatus.TAKEN, MessageStatus.FAILED):
        return None
    tx.messages.move(message_id, MessageStatus.ANSWERED, now=now)
    tx.firings.follow(message_id, FiringStatus.DONE, task_id=task_id, now=now)
    settle_update(tx, asked, DeliveryStatus.DELIVERED, now=now)
    if text is None:
        return None
    return _say(tx, asked, reply_id(task_id), Role.AGENT, text, task_id=task_id, now=now)


def tell_fired(tx: Tx, firing: Firing, now: datetime) -> None:
    """Emit that an occurrence of a schedule has posted its prompt, or is queued again."""
    tx.emit(
        EventKind.SCHEDULE_FIRED,
        firing.id,
        at=now,
        task_id=firing.task_id,
        schedule=firing.schedule,
        occurrence_at=firing.occurrence_at.isoformat(),
        session_key=firing.session_key,
        is_retry=firing.is_retry,
    )


def fail(
    tx: Tx,
    asked: Message,
    *,
    task_id: str,
    status: TaskStatus,
    now: datetime,
    failure: Failure | None = None,
) -> Message:
    """Mark the message as failed, and tell its session and its origin in one sentence. The sentence has the
    reason if the task could not be resumed."""
    tx.messages.move(asked.id, MessageStatus.FAILED, now=now)
    tx.firings.follow(asked.id, FiringStatus.FAILED, task_id=task_id, now=now)
    _tell_failed(tx, asked, task_id, status.value, now)
    why = f"the agent of its session was to hear it, and {task_id} ended as {status.value}"
    settle_update(tx, asked, DeliveryStatus.FAILED, why=why, now=now)
    what = _SENTENCES.get(status, "could not be answered: the agent failed")
    if failure is not None and failure.kind in NOT_RESUMED_KINDS:
        why = " ".join(failure.message.split())[:_MOST_WHY]
        what = f"could not be answered: not resumed after a restart: {why}"
    text = f"[System] Your last message {what} ({task_id}). The next one begins afresh."
    return _say(tx, asked, notice_id(task_id), Role.SYSTEM, text, task_id=task_id, now=now)


def _tell_failed(tx: Tx, message: Message, task_id: str | None, why: str, now: datetime) -> None:
    tx.emit(
        EventKind.MESSAGE_FAILED,
        message.id,
        at=now,
        task_id=task_id,
        session_key=message.session_key,
        why=why,
    )


def _say(
    tx: Tx, asked: Message, said_id: MessageId, role: Role, text: str, *, task_id: str, now: datetime
) -> Message:
    session = tx.sessions.of_key(asked.session_key)
    # A schedule and the gateway have no address: answer the person who wrote last in the session.
    origin = session.origin if asked.channel in OWN_CHANNELS else asked.origin
    said = Message(
        id=said_id,
        session_key=asked.session_key,
        position=0,
        role=role,
        channel=asked.channel if origin is None else origin.channel,
        account_id="" if origin is None else origin.account_id or "",
        origin=origin,
        body=encode_payload("answer", text),
        reply_to=asked.id,
        created_at=now,
        status=MessageStatus.NOTED,
        task_id=TaskId(task_id),
        updated_at=now,
    )
    placed = append(tx, said)
    if origin is not None:
        owe(tx, placed, origin, key=f"{'reply' if role is Role.AGENT else 'failure'}:{task_id}")
    return placed
