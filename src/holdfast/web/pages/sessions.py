"""Sessions: conversations with agents, and a chat with each."""

from __future__ import annotations

import secrets
from http import HTTPStatus
from typing import Any

from holdfast.views.browser import NotAnswered, Visitor
from holdfast.web.page_kinds import Action, ActionDone, Confirmation, Field, Page, Query
from holdfast.web.queries import page_of
from holdfast.web.words import plural

PAGE = 30
# How many messages a chat shows at first, how many more on demand, and at most; older ones come in pages.
MESSAGES, MORE, MOST = 40, 40, 400
MAX_OFFSET = 10_000


async def load_list(visitor: Visitor, query: Query) -> dict[str, Any]:
    page = await visitor.ask(
        "sessions.page",
        limit=PAGE,
        agentId=query.get("agent") or None,
        pageToken=query.get("page") or None,
        includeLastMessage=True,
    )
    return {"found": page, "agents": (await visitor.ask("agents.list")).agents}


async def load_one(visitor: Visitor, query: Query) -> dict[str, Any]:
    """A session without messages has no record yet; its chat is empty."""
    key = query["session"]
    shown = min(MOST, max(MESSAGES, _number(query.get("shown"))))
    offset = min(MAX_OFFSET, _number(query.get("offset")))
    history = await visitor.ask("chat.history", sessionKey=key, limit=shown, offset=offset)
    session = None
    try:
        session = (await visitor.ask("sessions.get", sessionKey=key, limit=1)).session
    except NotAnswered as refused:
        if refused.status != HTTPStatus.NOT_FOUND:
            raise
    return {
        "history": history,
        "session": session,
        "work": await visitor.ask("sessions.tasks", sessionKey=key),
        "gateway": await visitor.ask("gateway.status"),
        "key": new_key(),
        "shown": shown,
        "offset": offset,
        "more": MORE,
        "most": MOST,
    }


def new_key() -> str:
    """What lets the gateway recognise a message that the page sends twice."""
    return secrets.token_urlsafe(12)


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) <= 6 else 0


# --- actions


async def ask_send(visitor: Visitor, query: Query) -> Confirmation:
    """The chat sends without a dialog; this is for a page that offers it elsewhere."""
    return Confirmation(
        title=f"Send a message to {query.get('sessionKey', '')}",
        says=("The message is stored before it is acknowledged, and the agent answers in order.",),
        fields=(Field(name="message", label="Message", kind="long", is_required=True),),
        confirm="Send",
        refused=None if visitor.may_change else "you may only read",
    )


async def send(visitor: Visitor, form: Query) -> str:
    """The same key sends once, however often the page asks. Says nothing if all is as expected."""
    text = form.get("message", "").strip()
    if not text:
        raise NotAnswered("bad_input", "write a message first", status=HTTPStatus.BAD_REQUEST)
    sent = await visitor.ask(
        "chat.send", sessionKey=form["sessionKey"], message=text, idempotencyKey=form["key"]
    )
    if sent.is_duplicate:
        return "This message had arrived before; it was not sent again."
    gateway = await visitor.ask("gateway.status")
    if gateway.status != "serving":
        return f"Stored. The gateway is {gateway.status}; the agent answers after the restart."
    return ""


async def ask_begin(visitor: Visitor, query: Query) -> Confirmation:  # noqa: ARG001 - as every action has it
    agents = (await visitor.ask("agents.list")).agents
    choices = tuple((one.name, one.name) for one in agents)
    return Confirmation(
        title="Begin a conversation",
        says=("Each conversation has its own transcript and its own queue of messages.",),
        fields=(
            Field(
                name="agent",
                label="Agent",
                kind="choice",
                choices=choices,
                value=choices[0][0] if choices else "",
                is_required=True,
            ),
            Field(name="name", label="Name of the conversation, such as plans-for-may", is_required=True),
            Field(name="message", label="First message", kind="long", is_required=True),
            Field(name="key", label="", kind="hidden", value=new_key()),
        ),
        confirm="Send",
        refused=None if agents else "no agent is declared; add one to holdfast.toml: [agents.main]",
    )


async def begin(visitor: Visitor, form: Query) -> ActionDone:
    name = "-".join(form.get("name", "").split())
    agent = form.get("agent", "")
    await visitor.ask(
        "chat.send",
        sessionKey=f"agent:{agent}:{name}",
        message=form.get("message", "").strip(),
        idempotencyKey=form["key"],
    )
    return ActionDone(
        text=f"Sent to {agent}.", link=f"Open {name}", href=page_of("sessions", f"agent:{agent}:{name}")
    )


async def ask_abort(visitor: Visitor, query: Query) -> Confirmation:
    session = (await visitor.ask("sessions.get", sessionKey=query["sessionKey"], limit=1)).session
    fields: list[Field] = []
    if session.queued:
        label = f"Also take {plural(session.queued, 'queued message')} out of the queue"
        fields.append(Field(name="clear", label=label, kind="check"))
    is_idle = session.task_id is None and not session.queued
    says = ["The task that answers now is cancelled. What it has done already stays done."]
    if session.task_id is None:
        says = ["The agent works on nothing now."]
    return Confirmation(
        title="Stop the answer?",
        says=(*says, "The conversation goes on with the next message."),
        lines=() if session.task_id is None else (f"task {session.task_id}",),
        fields=tuple(fields),
        confirm="Stop",
        is_dangerous=True,
        refused="there is nothing to stop" if is_idle else None,
    )


async def abort(visitor: Visitor, form: Query) -> str:
    answer = await visitor.ask(
        "sessions.abort", key=form["sessionKey"], clearQueued=form.get("clear") == "yes"
    )
    cleared = plural(answer.cleared, "queued message was", "queued messages were")
    taken = f" {cleared} taken out of the queue." if answer.cleared else ""
    if answer.status == "aborted":
        return f"The agent is told to stop; it may take some seconds.{taken}"
    return f"Nothing was being answered.{taken}"


PAGES = [
    Page(
        path="/sessions",
        title="Sessions",
        template="sessions.html",
        load=load_list,
        section="sessions",
        follows="message delivery run_claimed run_ended task_created task_ended",
    ),
    Page(
        path="/sessions/{session:path}",
        title="Session",
        template="session.html",
        load=load_one,
        section="sessions",
        follows="message run task question restart boot",
        every_s=10,
    ),
]
ACTIONS = [
    Action(name="chat.send", ask=ask_send, act=send),
    Action(name="sessions.begin", ask=ask_begin, act=begin),
    Action(name="sessions.abort", ask=ask_abort, act=abort),
]
