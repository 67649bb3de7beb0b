"""sessions list, show, tasks, send; chat: conversations with agents."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

import click

from holdfast.api.params import Nothing
from holdfast.api.sessions import (
    MAX_ACTIVE_MINUTES,
    ChatAsked,
    HistoryAsked,
    SessionAsked,
    SessionsAsked,
    SessionTasksAsked,
    list_agents,
    posting,
    read_page,
    read_session,
    read_tasks,
)
from holdfast.api.tasks import TaskAsked
from holdfast.cli.errors import FAILED
from holdfast.cli.groups import ListGroup
from holdfast.cli.invocation import Invocation, maybe_minutes, page_option, shared_options, user_name
from holdfast.cli.output import Output, ago, clock_time, is_terminal
from holdfast.core.errors import NotFound, SettingsError
from holdfast.core.ids import new_token
from holdfast.core.message import Role, clean_message
from holdfast.core.session import agent_of, session_key
from holdfast.views.sessions import (
    AgentPageView,
    MessageView,
    PostedView,
    SessionDetailView,
    SessionPageView,
    TranscriptView,
)
from holdfast.views.snapshot import SnapshotView
from holdfast.views.tasks import TaskDetailView
from holdfast.views.text import clean, safe

if TYPE_CHECKING:
    from holdfast.store.transaction import Tx

# The timeout for lists: the gateway may be frozen.
PATIENCE_S = 5.0
# After how long `chat` says that the agent waits for a person, or has no answer.
LOOK_EVERY_MS = 2_000
# Set in the environment of an agent's command.
SESSION_VARIABLE = "HOLDFAST_SESSION_KEY"


def configured_agents(call: Invocation) -> AgentPageView:
    """The agents of the settings; if those are invalid, the agents that the running gateway uses."""
    from holdfast.cli.client import is_listening
    from holdfast.config.files import load

    if call.gateway_url is not None:
        return call.ask("agents.list", Nothing(), AgentPageView)
    try:
        return list_agents(load(call.settings.home, os.environ).config)
    except SettingsError as error:
        if not is_listening(call.settings.home):
            raise
        view = call.ask("agents.list", Nothing(), AgentPageView)
        call.output.say(f"{error} (the gateway keeps its previous settings)")
        return view


def _key(call: Invocation, session: str, *, must_be_known: bool = False) -> str:
    """The key of a session; an agent's name alone means its main session."""
    if call.gateway_url is not None:
        return session  # the remote gateway checks the name
    main = {one.name: one.main_session for one in configured_agents(call).agents}
    if ":" in session:
        key, agent = session, agent_of(session)
    else:
        key, agent = main.get(session) or session_key(session, "main"), session
    if must_be_known and agent not in main:
        raise NotFound("agent", agent)
    return key


@click.group("sessions", cls=ListGroup)
@shared_options
def sessions() -> None:
    """Conversations with agents."""


# --- list, show


@sessions.command("list", short_help="Sessions, most recently used first.")
@click.option("--agent", metavar="NAME", help="Only sessions of this agent.")
@click.option("--all-agents", is_flag=True, help="Sessions of every agent. [default]")
@click.option(
    "--active",
    callback=maybe_minutes,
    metavar="MINUTES",
    help="Only sessions used in the last 30 (minutes), 2h or 1d.",
)
@click.option(
    "--limit", type=click.IntRange(1, 500), default=50, show_default=True, help="Maximum number to show."
)
@page_option
@shared_options
@click.pass_obj
def list_sessions(
    call: Invocation,
    agent: str | None,
    active: timedelta | None,
    limit: int,
    page: str | None,
    *,
    all_agents: bool,
) -> None:
    """Sessions, most recently used first, a page at a time."""
    if all_agents and agent is not None:
        raise click.UsageError("--agent and --all-agents exclude each other; give only one of them")
    minutes = None if active is None else min(active.total_seconds() / 60, MAX_ACTIVE_MINUTES)

    def read(tx: Tx) -> SessionPageView:
        since = None if active is None else call.clock.now() - active
        return read_page(tx, agent=agent, active_since=since, before=page, limit=limit)

    view = call.look_at_list(
        "sessions.page",
        SessionsAsked(agent_id=agent, active_minutes=minutes, page_token=page, limit=limit),
        read,
        SessionPageView(),
    )
    call.output.show(view, lambda: _print_page(call.output, view, call.clock.now()))


def _print_page(output: Output, view: SessionPageView, now: datetime) -> None:
    if view.sessions:
        rows = [
            (one.key, one.status, str(one.queued), str(one.messages), ago(one.updated_at, now))
            for one in view.sessions
        ]
        headers = ("SESSION", "STATUS", "QUEUED", "MESSAGES", "CHANGED")
        output.table(headers, rows, leave=("MESSAGES", "QUEUED", "CHANGED"), matters="SESSION")
    else:
        output.say("no sessions to show")
    if view.next_page_token is not None:
        output.say_next(view.next_page_token)


@sessions.command("show", short_help="One session with its last messages.")
@click.argument("session", metavar="SESSION")
@click.option(
    "--limit", type=click.IntRange(1, 500), default=50, show_default=True, help="Maximum number of messages."
)
@shared_options
@click.pass_obj
def show_session(call: Invocation, session: str, limit: int) -> None:
    """One session, by its key or its agent's name, with its last messages."""
    key = _key(call, session)
    view = call.look(
        "sessions.get",
        SessionAsked(session_key=key, limit=limit),
        lambda tx: read_session(tx, key, limit, now=call.clock.now(), projection=call.projection()),
        SessionDetailView,
    )
    call.output.show(view, lambda: _print_session(call.output, view))


def _print_session(output: Output, view: SessionDetailView) -> None:
    one = view.session
    origin = one.origin
    output.fields(
        [
            ("session", one.key),
            ("status", one.status),
            ("agent", one.agent),
            ("parent", one.parent_key),
            ("tasks", view.line),
            ("answers", one.task_id),
            ("queued", str(one.queued) if one.queued else None),
            ("from", None if origin is None else f"{origin.channel} {origin.peer or ''}".strip()),
            ("created", clock_time(one.created_at)),
        ]
    )
    if view.messages:
        output.line()
    for message in view.messages:
        _print_message(output, message)


def _print_message(output: Output, message: MessageView) -> None:
    waits = (
        "" if message.status in {"answered", "noted"} or message.role != "user" else f" ({message.status})"
    )
    # Indent further lines, so that none of them can look like another speaker's message.
    text = clean(message.text).replace("\n", "\n  ")
    output.line(f"{output.paint(message.role + waits, 'bold')}: {text}")


# --- tasks


@sessions.command("tasks", short_help="What the tasks of a session do now.")
@click.argument("session", metavar="[SESSION]", required=False)
@shared_options
@click.pass_obj
def session_tasks(call: Invocation, session: str | None) -> None:
    """Active tasks of a session, those that ended in the last five minutes, and what failed in the last hour.

    Without SESSION, an agent's command gets its own: the session in HOLDFAST_SESSION_KEY.
    """
    wanted = session or os.environ.get(SESSION_VARIABLE)
    if not wanted:
        raise click.UsageError(
            f"name a session; only the command of an agent has its own, in {SESSION_VARIABLE}"
        )
    key = _key(call, wanted)
    view = call.look(
        "sessions.tasks",
        SessionTasksAsked(session_key=key),
        lambda tx: read_tasks(tx, key, now=call.clock.now(), projection=call.projection()),
        SnapshotView,
    )
    call.output.show(view, lambda: _print_tasks(call.output, view))


def _print_tasks(output: Output, view: SnapshotView) -> None:
    output.line(view.line)
    if view.tasks:
        rows = [(one.task_id, one.status, one.since, one.detail or "-", one.title) for one in view.tasks]
        headers = ("ID", "STATUS", "SINCE", "DETAIL", "TITLE")
        output.table(headers, rows, leave=("SINCE", "DETAIL"), matters="TITLE")
    if view.more:
        output.say(f"and {view.more} more")


# --- send


@sessions.command("send", short_help="Post a message.")
@click.argument("session", metavar="SESSION")
@click.argument("message")
@click.option(
    "--key", metavar="KEY", help="Idempotency key: sending the same key again posts no second message."
)
@shared_options
@click.pass_obj
def send(call: Invocation, session: str, message: str, key: str | None) -> None:
    """Post a message to a session, by its key or its agent's name. The message is stored when this returns.

    If no gateway runs, the agent answers when one starts.
    """
    from holdfast.chat.commands import run_command

    asked = _asked(call, session, message, key)
    write = partial(posting, by=user_name(None), commands=run_command)
    view = call.change("chat.send", asked, write, PostedView, is_audited=False)
    call.output.show(view, lambda: call.output.line(clean(_posted(view))))


def _asked(call: Invocation, session: str, message: str, key: str | None) -> ChatAsked:
    whole = _key(call, session, must_be_known=True)
    clean_message(message, Role.USER)  # fail here, with a message for a person
    return ChatAsked(session_key=whole, message=message, idempotency_key=key or f"cli-{new_token()}")


def _posted(view: PostedView) -> str:
    again = " (it was posted before)" if view.is_duplicate else ""
    return f"{view.message_id} is {view.status} in {view.session_key}{again}"


# --- chat


@click.command("chat", short_help="Talk to an agent.")
@click.argument("session", metavar="SESSION")
@click.option("--message", "-m", metavar="TEXT", help="Send one message, print the answer and exit.")
@shared_options
@click.pass_context
def chat(context: click.Context, session: str, message: str | None) -> None:
    """Talk to an agent through the running gateway. SESSION is a session's key or an agent's name.

    Each line is a message. Ctrl-D leaves the chat; the session stays and you can continue it later. If the
    gateway restarts, the chat waits for it. Exit status 1 if the last message got no answer.
    """
    call: Invocation = context.obj
    has_answer = True
    for line in [message] if message is not None else _lines(call.output):
        if line.strip() or message is not None:
            has_answer = _exchange(call, session, line, is_only=message is not None)
    if not has_answer:
        context.exit(FAILED)


def _lines(output: Output) -> Iterator[str]:
    while True:
        if is_terminal(sys.stdin) and is_terminal(sys.stderr):
            sys.stderr.write("> ")
            sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            output.say("")
            return
        yield line.rstrip("\n")


def _exchange(call: Invocation, session: str, text: str, *, is_only: bool) -> bool:
    """Post one message and print the answers; return whether an agent answered.

    If the agent asks a question, show it: the next message answers it. With no further message, wait for an
    answer that is given elsewhere.
    """
    asked = _asked(call, session, text, None)
    posted = call.ask_patiently("chat.send", asked, PostedView)
    after, said = posted.position, ""
    # The message answered the agent's question, so wait for the answer to the earlier message.
    task_id = _message_at(call, asked.session_key, posted).task_id if posted.status == "noted" else None
    while True:
        told = call.ask_patiently(
            "sessions.transcript",
            HistoryAsked(session_key=asked.session_key, after=after, wait_ms=LOOK_EVERY_MS),
            TranscriptView,
        )
        after = told.next_after
        for message in told.messages:
            is_reply = message.reply_to == posted.message_id
            if is_reply and posted.status == "answered":
                # A command, which the gateway has answered.
                call.output.stream(message, lambda: call.output.line(safe(message.text)))  # noqa: B023 - called at once
                return True
            if is_reply and message.role == "system" and _is_remark(call, asked.session_key, posted):
                call.output.say(safe(message.text))
                continue
            if is_only and is_reply and _message_at(call, asked.session_key, posted).status == "taken":
                continue
            if is_reply or (task_id is not None and message.task_id == task_id):
                call.output.stream(message, lambda: call.output.line(safe(message.text)))  # noqa: B023 - called at once
                return message.role == "agent"
        if told.messages:
            continue
        # No answer yet: the run may have failed, have nothing to say, or wait for a person.
        message = _message_at(call, asked.session_key, posted)
        if message.status == "answered":
            call.output.say(f"{asked.session_key} finished without an answer")
            return True
        if message.status == "failed":
            call.output.say(f"no answer; see `holdfast sessions show {asked.session_key}`")
            return False
        waits = _waits(call, message.task_id)
        if waits != said:
            said = waits
            call.output.say(waits)


def _is_remark(call: Invocation, key: str, posted: PostedView) -> bool:
    """Whether the gateway's notice about a message is not the final answer: the agent is still working."""
    message = _message_at(call, key, posted)
    return message.status != "failed" and not _waits(call, message.task_id)


def _message_at(call: Invocation, key: str, posted: PostedView) -> MessageView:
    asked = HistoryAsked(session_key=key, after=posted.position - 1, limit=1)
    return call.ask_patiently("sessions.transcript", asked, TranscriptView).messages[0]


def _waits(call: Invocation, task_id: str | None) -> str:
    """What the agent waits for, if a person can act on it."""
    if task_id is None:
        return ""
    task = call.ask_patiently("ledger.show", TaskAsked(task_id=task_id), TaskDetailView)
    wait = task.waits_for
    if wait is None or wait.command is None:
        return ""
    return wait.words if wait.command in wait.words else f"{wait.words} (`{wait.command}`)"
