"""sessions list, show, send; chat; agents list: conversations, and who holds them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import click
import msgspec

from holdfast.api.sessions import (
    MAX_WAIT_MS,
    ChatAsked,
    HistoryAsked,
    full_key,
    known_key,
    list_agents,
    posting,
    read_page,
    read_session,
)
from holdfast.cli.errors import FAILED
from holdfast.cli.invocation import Invocation, maybe_duration, shared_options, whoever
from holdfast.cli.output import Output, ago, clock_time, is_terminal
from holdfast.core.errors import GatewaySilent
from holdfast.core.ids import new_token
from holdfast.views.sessions import (
    AgentPageView,
    MessageView,
    PostedView,
    SessionDetailView,
    SessionPageView,
    TranscriptView,
)
from holdfast.views.text import one_line

if TYPE_CHECKING:
    from holdfast.config.gateway import Config

V = TypeVar("V", bound=msgspec.Struct)

# While the gateway restarts, a conversation waits for it.
AWAY_PATIENCE_S = 180.0
_ASK_AGAIN_S = 0.5


def _config(call: Invocation) -> Config:
    from holdfast.config.files import load

    return load(call.settings.home, os.environ).config


@click.group("sessions")
@shared_options
def sessions() -> None:
    """Conversations of agents."""


# --- list, show


@sessions.command("list", short_help="Sessions, last spoken in first.")
@click.option("--agent", metavar="NAME", help="Only those of this agent.")
@click.option("--all-agents", is_flag=True, help="Those of every agent. [default]")
@click.option("--active", callback=maybe_duration, metavar="DURATION", help="Spoken in since: 30m, 2h, 1d.")
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
    since = None if active is None else call.clock.now() - active
    with call.listing() as ledger:
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
    key = full_key(_config(call), session)
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
    output.line(f"{output.paint(message.role + waits, 'bold')}: {message.text}")


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
    call.output.show(view, lambda: call.output.line(_posted(view)))


def _asked(call: Invocation, session: str, message: str, key: str | None) -> ChatAsked:
    whole = known_key(_config(call), session)
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
        if line.strip():
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
    after = posted.position
    while True:
        told = _patiently(
            call,
            "chat.history",
            HistoryAsked(session_key=asked.session_key, after=after, wait_ms=MAX_WAIT_MS),
            TranscriptView,
        )
        after = told.next_after
        for message in told.messages:
            if message.reply_to == posted.message_id:
                call.output.stream(message, lambda: call.output.line(message.text))  # noqa: B023 - called at once
                return message.role == "agent"
        if not told.messages and _has_failed(call, asked.session_key, posted):
            call.output.say(f"no answer; `holdfast sessions show {asked.session_key}` tells more")
            return False


def _has_failed(call: Invocation, key: str, posted: PostedView) -> bool:
    asked = HistoryAsked(session_key=key, after=posted.position - 1, limit=1)
    told = _patiently(call, "chat.history", asked, TranscriptView)
    return bool(told.messages) and told.messages[0].status == "failed"


def _patiently(call: Invocation, method: str, asked: ChatAsked | HistoryAsked, answer: type[V]) -> V:
    """A request that may be repeated, also through a restart of the gateway."""
    give_up_at = time.monotonic() + AWAY_PATIENCE_S
    has_said = False
    while True:
        try:
            return call.ask(method, asked, answer, timeout_s=MAX_WAIT_MS / 1000 + 10)
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
    view = list_agents(_config(call))
    call.output.show(view, lambda: _print_agents(call.output, view))


def _print_agents(output: Output, view: AgentPageView) -> None:
    if not view.agents:
        output.say("no agents are set; write [agents.NAME] into holdfast.toml")
        return
    rows = [(one.name, one.runtime, one.main_session, one_line(one.target)) for one in view.agents]
    output.table(("NAME", "RUNTIME", "MAIN SESSION", "WHAT IS CALLED"), rows)
