"""sessions list, show, send; chat; agents list: conversations, and who holds them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

import click
import msgspec

from holdfast.api.params import Nothing
from holdfast.api.sessions import (
    ChatAsked,
    HistoryAsked,
    list_agents,
    posting,
    read_page,
    read_session,
)
from holdfast.api.tasks import TaskAsked
from holdfast.cli.errors import FAILED
from holdfast.cli.invocation import Invocation, maybe_minutes, shared_options, whoever
from holdfast.cli.output import Output, ago, clock_time, is_terminal
from holdfast.core.errors import GatewaySilent, NotFound, SettingsError
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
from holdfast.views.tasks import TaskDetailView
from holdfast.views.text import clean, one_line

V = TypeVar("V", bound=msgspec.Struct)

# While the gateway restarts, a conversation waits for it.
AWAY_PATIENCE_S = 180.0
ANSWER_TIMEOUT_S = 35.0
# How soon whoever talks is told that the agent waits for a person, or has nothing to say.
LOOK_EVERY_MS = 2_000
_ASK_AGAIN_S = 0.5


def _agents(call: Invocation) -> AgentPageView:
    """Those of the settings. A mistake in them keeps nobody from a gateway that goes on without it."""
    from holdfast.cli.client import is_listening
    from holdfast.config.files import load

    try:
        return list_agents(load(call.settings.home, os.environ).config)
    except SettingsError as error:
        if call.gateway_url is None and not is_listening(call.settings.home):
            raise
        view = call.ask("agents.list", Nothing(), AgentPageView)
        call.output.say(f"{error} (the gateway goes on with the settings that it has)")
        return view


def _key(call: Invocation, session: str, *, must_be_known: bool = False) -> str:
    """The key of a session; an agent's name alone is its main session."""
    main = {one.name: one.main_session for one in _agents(call).agents}
    if ":" in session:
        key, agent = session, agent_of(session)
    else:
        key, agent = main.get(session) or session_key(session, "main"), session
    if must_be_known and agent not in main:
        raise NotFound("agent", agent)
    return key


@click.group("sessions")
@shared_options
def sessions() -> None:
    """Conversations of agents."""


# --- list, show


@sessions.command("list", short_help="Sessions, last spoken in first.")
@click.option("--agent", metavar="NAME", help="Only those of this agent.")
@click.option("--all-agents", is_flag=True, help="Those of every agent. [default]")
@click.option(
    "--active", callback=maybe_minutes, metavar="MINUTES", help="Spoken in since then: 30, or 2h, or 1d."
)
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True, help="How many at most.")
@click.option("--before", metavar="TOKEN", help="The next page.")
@shared_options
@click.pass_obj
def list_sessions(
    call: Invocation,
    agent: str | None,
    active: timedelta | None,
    limit: int,
    before: str | None,
    *,
    all_agents: bool,
) -> None:
    """Last spoken in first, a page at a time."""
    if all_agents and agent is not None:
        raise click.UsageError("--agent and --all-agents exclude each other")
    with call.listing() as ledger:
        since = None if active is None else call.clock.now() - active
        view = SessionPageView()
        if ledger is not None:
            view = ledger.read_now(
                lambda tx: read_page(tx, agent=agent, active_since=since, before=before, limit=limit)
            )
    call.output.show(view, lambda: _print_page(call.output, view, call.clock.now()))


def _print_page(output: Output, view: SessionPageView, now: datetime) -> None:
    if view.sessions:
        rows = [
            (one.key, one.status, str(one.queued), str(one.messages), ago(one.updated_at, now))
            for one in view.sessions
        ]
        output.table(("SESSION", "STATUS", "QUEUED", "MESSAGES", "CHANGED"), rows)
    else:
        output.say("no sessions to show")
    if view.next_page_token is not None:
        output.say(f"more: --before {view.next_page_token}")


@sessions.command("show", short_help="One session with the end of its transcript.")
@click.argument("session", metavar="SESSION")
@click.option(
    "--limit", type=click.IntRange(1, 500), default=50, show_default=True, help="So many messages at most."
)
@shared_options
@click.pass_obj
def show_session(call: Invocation, session: str, limit: int) -> None:
    """One session, by its key or by its agent's name, and what was said last."""
    key = _key(call, session)
    with call.reading() as ledger:
        view = ledger.read_now(lambda tx: read_session(tx, key, limit))
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
    # Further lines are set in: none of them may look like what somebody else says.
    text = clean(message.text).replace("\n", "\n  ")
    output.line(f"{output.paint(message.role + waits, 'bold')}: {text}")


# --- send


@sessions.command("send", short_help="Post a message.")
@click.argument("session", metavar="SESSION")
@click.argument("message")
@click.option("--key", metavar="KEY", help="The same key again is the same message.")
@shared_options
@click.pass_obj
def send(call: Invocation, session: str, message: str, key: str | None) -> None:
    """Post a message to a session, by its key or by its agent's name. It is durable when this returns.

    Without a running gateway it is answered when one starts.
    """
    asked = _asked(call, session, message, key)
    view = call.change("chat.send", asked, partial(posting, by=whoever(None)), PostedView)
    call.output.show(view, lambda: call.output.line(clean(_posted(view))))


def _asked(call: Invocation, session: str, message: str, key: str | None) -> ChatAsked:
    whole = _key(call, session, must_be_known=True)
    clean_message(message, Role.USER)  # what is wrong with it is said here, in words
    return ChatAsked(session_key=whole, message=message, idempotency_key=key or f"cli-{new_token()}")


def _posted(view: PostedView) -> str:
    again = ", which was posted before" if view.is_duplicate else ""
    return f"{view.message_id} is {view.status} in {view.session_key}{again}"


# --- chat


@click.command("chat", short_help="Talk to an agent.")
@click.argument("session", metavar="SESSION")
@click.option("--message", "-m", metavar="TEXT", help="Say only this, and end with the answer.")
@shared_options
@click.pass_context
def chat(context: click.Context, session: str, message: str | None) -> None:
    """Talk to an agent through the running gateway: SESSION is a session's key, or an agent's name.

    Each line is a message. Ctrl-D ends the conversation, and nothing of it: the session goes on next time.
    A restart of the gateway is waited for. Status 1 when the last message got no answer.
    """
    call: Invocation = context.obj
    has_answer = True
    for line in [message] if message is not None else _lines(call.output):
        if line.strip() or message is not None:
            has_answer = _exchange(call, session, line)
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


def _exchange(call: Invocation, session: str, text: str) -> bool:
    """One message and what is answered to it; whether an agent answered."""
    asked = _asked(call, session, text, None)
    posted = _patiently(call, "chat.send", asked, PostedView)
    after, said = posted.position, ""
    while True:
        told = _patiently(
            call,
            "chat.history",
            HistoryAsked(session_key=asked.session_key, after=after, wait_ms=LOOK_EVERY_MS),
            TranscriptView,
        )
        after = told.next_after
        for message in told.messages:
            if message.reply_to == posted.message_id:
                call.output.stream(message, lambda: call.output.line(clean(message.text)))  # noqa: B023 - called at once
                return message.role == "agent"
        if told.messages:
            continue
        # Nothing was said: it may have failed, have nothing to say, or wait for somebody.
        message = _message_at(call, asked.session_key, posted)
        if message.status == "answered":
            call.output.say(f"{asked.session_key} has nothing to say to that")
            return True
        if message.status == "failed":
            call.output.say(f"no answer; `holdfast sessions show {asked.session_key}` tells more")
            return False
        waits = _waits(call, message.task_id)
        if waits != said:
            said = waits
            call.output.say(waits)


def _message_at(call: Invocation, key: str, posted: PostedView) -> MessageView:
    asked = HistoryAsked(session_key=key, after=posted.position - 1, limit=1)
    return _patiently(call, "chat.history", asked, TranscriptView).messages[0]


def _waits(call: Invocation, task_id: str | None) -> str:
    """What the agent waits for, if a person can do something about it."""
    if task_id is None:
        return ""
    task = _patiently(call, "ledger.show", TaskAsked(task_id=task_id), TaskDetailView)
    wait = task.waits_for
    if wait is None or wait.command is None:
        return ""
    return wait.words if wait.command in wait.words else f"{wait.words} (`{wait.command}`)"


def _patiently(call: Invocation, method: str, asked: msgspec.Struct, answer: type[V]) -> V:
    """A request that may be repeated, also through a restart of the gateway."""
    give_up_at = time.monotonic() + AWAY_PATIENCE_S
    has_said = False
    while True:
        try:
            return call.ask(method, asked, answer, timeout_s=ANSWER_TIMEOUT_S)
        except GatewaySilent as silent:
            # Where no supervisor keeps the socket, nobody comes back.
            if time.monotonic() >= give_up_at or not silent.was_there:
                raise
        if not has_said:
            has_said = True
            call.output.say("the gateway is away for a moment; waiting for it")
        time.sleep(_ASK_AGAIN_S)


# --- agents


@click.group("agents")
@shared_options
def agents() -> None:
    """Who answers."""


@agents.command("list", short_help="The agents of the settings.")
@shared_options
@click.pass_obj
def list_them(call: Invocation) -> None:
    """The agents of the settings, by name."""
    view = _agents(call)
    call.output.show(view, lambda: _print_agents(call.output, view))


def _print_agents(output: Output, view: AgentPageView) -> None:
    if not view.agents:
        output.say("no agents are set; write [agents.NAME] into holdfast.toml")
        return
    rows = [(one.name, one.runtime, one.main_session, one_line(one.target)) for one in view.agents]
    output.table(("NAME", "RUNTIME", "MAIN SESSION", "WHAT IS CALLED"), rows)
