"""The chat commands: `/tasks`, `/status`, `/stop`, `/new`, `/answer` and `/help`.

The inbox calls them in the write that posts the message. So a command takes effect once, and its answer is in
the transcript exactly if the command is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime

from holdfast.chat.board import read_board
from holdfast.chat.permission import AllowedPeers, may_command
from holdfast.core.errors import HoldfastError, StoreUnavailable
from holdfast.core.message import Message, plain_line
from holdfast.core.program_records import Question
from holdfast.core.session import AGENT_PREFIX, Session
from holdfast.core.snapshot import NO_TASKS, OwnerSnapshot
from holdfast.core.task import Task
from holdfast.core.transitions import TaskStatus
from holdfast.engine.conversation.questions import answering, choice_in
from holdfast.engine.conversation.transcripts import CommandAnswer, audit_entry, is_partner, name_of
from holdfast.engine.ledger.ledger import AlreadyEnded, Cancelled, cancelling
from holdfast.engine.ledger.recent import active_tasks, recent_tasks
from holdfast.store import Tx
from holdfast.views.board import BoardEntryView

# How many open questions an answer lists, and how many stopped tasks it names.
MOST_LISTED = 5
MAX_QUESTION_CHARS = 200

HELP = """The gateway itself answers these commands:
/tasks: the tasks of this session
/status: what the agent does now, and what waits
/stop: cancel the work of this session
/new: begin a new conversation; the agent does not see the earlier messages
/answer [QUESTION] TEXT: answer a question of a task; QUESTION is the beginning of its id
/help: this list
Everything else goes to the agent."""

_COMMAND = re.compile(r"\s*/([A-Za-z]+)(?:\s+(.*))?", re.DOTALL)
# An id, or its beginning, as the first word after `/answer`.
_QUESTION = re.compile(r"(ques_[a-z0-9]*)(?:\s+(.*))?", re.DOTALL)


def run_command(
    tx: Tx, session: Session, message: Message, *, allowed: AllowedPeers | None = None
) -> CommandAnswer | None:
    """Carry out the message if it is a command; None for any other message, also with another `/word`.

    `allowed` are the peers of each channel that may use commands there, as the settings say.
    """
    found = _COMMAND.fullmatch(message.text)
    act = None if found is None else _COMMANDS.get(found[1].lower())
    if found is None or act is None:
        return None
    # A plain message of the person that is asked answers a question, too.
    is_asked = act is _answer and is_partner(tx, session, message)
    if not is_asked and not may_command(tx, session, message, allowed or {}):
        return CommandAnswer(
            text=f"/{found[1].lower()} was not carried out: only the person who began this session, a peer "
            "that the channel's `command_peers` names, or an operator at the console may use commands.",
            is_refused=True,
        )
    try:
        return act(tx, session, message, (found[2] or "").strip())
    except StoreUnavailable:
        raise
    except HoldfastError as error:
        return CommandAnswer(text=str(error))


# --- looking


def _help(_tx: Tx, _session: Session, _message: Message, _rest: str) -> CommandAnswer:
    return CommandAnswer(text=HELP)


def _tasks(tx: Tx, session: Session, message: Message, _rest: str) -> CommandAnswer:
    return CommandAnswer(text=read_board(tx, session.key, message.created_at).text)


def _status(tx: Tx, session: Session, message: Message, _rest: str) -> CommandAnswer:
    now, recent = message.created_at, recent_tasks(tx, session.key)
    tasks = [task for task in recent if not task.has_ended]
    sentences = [_what_it_does(session, tasks, now)]
    # The answers themselves are in the chat: the line is about the other tasks.
    others = [task for task in recent if not task.name.startswith(AGENT_PREFIX)]
    if others and (line := OwnerSnapshot.of(others, now).line) != NO_TASKS:
        sentences.append(f"Tasks of this session: {line}.")
    if session.queued:
        sentences.append(f"{_count(session.queued, 'message')} {_waits(session.queued)} for the agent.")
    questions = _open_questions(tx, tasks)
    if questions:
        sentences.append(f"Waiting for your answer: {_line(questions[0].question)}")
    reviews = sum(task.status is TaskStatus.NEEDS_REVIEW for task in tasks)
    if reviews:
        sentences.append(f"{_count(reviews, 'task')} {_waits(reviews)} for an operator's decision.")
    return CommandAnswer(text=" ".join(sentences))


def _what_it_does(session: Session, tasks: list[Task], now: datetime) -> str:
    name = plain_line(session.agent, MAX_QUESTION_CHARS)
    task = next((one for one in tasks if one.id == session.task_id), None)
    if task is None:
        return f"{name} is idle."
    entry = BoardEntryView.of(task, now)
    detail = "" if entry.detail is None else f"; {entry.detail}"
    return f"{name} answers “{entry.title}” ({entry.status.replace('_', ' ')}, {entry.since}{detail})."


# --- changing


def _stop(tx: Tx, session: Session, message: Message, _rest: str) -> CommandAnswer:
    """Cancel every task of the session. A child is cancelled with its parent."""
    now, tasks = message.created_at, active_tasks(tx, session.key)
    ids = {task.id for task in tasks}
    roots = [task for task in tasks if task.parent_task_id not in ids]
    if not roots:
        return CommandAnswer(text=f"Nothing to stop: no task of this session is active.{_queue_of(session)}")
    told = []
    for task in sorted(roots, key=lambda one: one.id):
        reason = f"stopped with /stop by {name_of(message)}"
        match cancelling(task.id, reason=reason, owner=session.key, now=now)(tx):
            case Cancelled() if not task.runtime.is_executed_here and task.started_at is not None:
                # A write cannot ask a runtime; `holdfast tasks cancel` does.
                how = "cancelled; the program that executes it is told at its next report"
            case Cancelled():
                how = "cancelled"
            case AlreadyEnded(task=ended):
                how = f"had ended: {ended.status.value}"
            case _:
                how = "is being cancelled"
        told.append(f"“{BoardEntryView.of(task, now).title}” ({task.id}) {how}")
    tx.audit.add(audit_entry(message, "chat.stop", session.key, now))
    more = f", and {len(told) - MOST_LISTED} more" if len(told) > MOST_LISTED else ""
    return CommandAnswer(text=f"Stopped: {'; '.join(told[:MOST_LISTED])}{more}.{_queue_of(session)}")


def _queue_of(session: Session) -> str:
    if not session.queued:
        return ""
    return f" {_count(session.queued, 'message')} still {_waits(session.queued)} for the agent."


def _new(_tx: Tx, session: Session, _message: Message, rest: str) -> CommandAnswer:
    busy = "" if session.task_id is None else " The answer in progress still comes; /stop cancels it."
    again = " Send the text after /new as your next message." if rest else ""
    text = (
        "A new conversation begins: the agent does not see earlier messages, and the transcript keeps them."
    )
    return CommandAnswer(text=f"{text}{busy}{again}", starts_anew=True)


def _answer(tx: Tx, session: Session, message: Message, rest: str) -> CommandAnswer:
    questions = _open_questions(tx, active_tasks(tx, session.key))
    named = _QUESTION.fullmatch(rest)
    if named is not None:
        wanted, text = [one for one in questions if one.id.startswith(named[1])], (named[2] or "").strip()
    else:
        wanted, text = questions, rest
    if not questions:
        return CommandAnswer(text="No task of this session has an open question.")
    if len(wanted) != 1 or not text:
        why = "Give an answer" if wanted else "No open question has this id"
        why = "Name the question: several are open" if len(wanted) > 1 else why
        return CommandAnswer(text=f"{why}: /answer [QUESTION] TEXT. Open questions:\n{_listed(questions)}")
    (question,) = wanted
    meant = text if question.choices is None else choice_in(question.choices, text)
    if meant is None:
        return CommandAnswer(text=f"That is none of the choices. Open questions:\n{_listed([question])}")
    answering(question.id, meant, by=name_of(message), now=message.created_at)(tx)
    tx.audit.add(audit_entry(message, "questions.answer", question.id, message.created_at))
    return CommandAnswer(text=f"Answered: {_line(question.question)}")


def _open_questions(tx: Tx, tasks: list[Task]) -> list[Question]:
    waiting = [task for task in tasks if task.status is TaskStatus.WAITING]
    found = [one for task in waiting for one in tx.questions.open_of_task(task.id, limit=MOST_LISTED)]
    return sorted(found, key=lambda one: one.id)


def _listed(questions: list[Question]) -> str:
    lines = []
    for one in questions[:MOST_LISTED]:
        choices = "" if one.choices is None else f" ({', '.join(_line(choice) for choice in one.choices)})"
        lines.append(f"{one.id}: {_line(one.question)}{choices}")
    return "\n".join(lines)


# --- words


def _line(text: str) -> str:
    return plain_line(text, MAX_QUESTION_CHARS)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _waits(number: int) -> str:
    return "waits" if number == 1 else "wait"


_Act = Callable[[Tx, Session, Message, str], CommandAnswer]

_COMMANDS: Mapping[str, _Act] = {
    "tasks": _tasks,
    "help": _help,
    "status": _status,
    "stop": _stop,
    "new": _new,
    "answer": _answer,
}
