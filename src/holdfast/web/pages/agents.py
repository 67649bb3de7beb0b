"""Agents: a map of up to a thousand by their last heartbeat, the same as a table, and one in full."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from holdfast.core.clock import SystemClock
from holdfast.views.agents import CAMPAIGN, AgentLineView
from holdfast.views.browser import Visitor
from holdfast.web.page_kinds import Action, Confirmation, Field, Page, Query
from holdfast.web.queries import given
from holdfast.web.words import NONE

# The map has at most so many cells.
MAPPED = 1000
LISTED = 50
CAMPAIGNS = 20
# In this order they are on the map, so that those that need a person are always there.
STATUSES = ("error", "active", "paused", "idle")
# An agent that runs and was not heard of for so long is late, or silent.
LATE, SILENT = timedelta(minutes=1), timedelta(minutes=5)
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One agent on the map: its age in a few letters, and its colour, which the words repeat."""

    agent: AgentLineView
    text: str
    tone: str
    # `late` or `silent` if its heartbeat is due; else empty.
    alarm: str
    words: str


class CellGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The agents of one status on the map."""

    status: str
    cells: list[Cell]
    # Whether there are more than the map shows.
    has_more: bool

    @property
    def alarms(self) -> int:
        return sum(bool(cell.alarm) for cell in self.cells)


# --- pages


async def load_agents(visitor: Visitor, query: Query) -> dict[str, Any]:
    campaigns = (await visitor.ask("campaigns.list", limit=CAMPAIGNS)).campaigns
    found: dict[str, Any] = {
        "campaigns": [one.campaign for one in campaigns],
        "statuses": STATUSES,
        "is_table": query.get("view") == "table",
        "kept": given(query, "view", "campaign", "status", "type", page="page"),
        "groups": [],
        "listed": None,
    }
    wanted = given(query, "campaign", "type")
    if found["is_table"]:
        page = given(query, "status", page="pageToken")
        found["listed"] = await visitor.ask("agents.page", limit=LISTED, **wanted, **page)
        return found
    room, now = MAPPED, SystemClock().now()
    for status in STATUSES:
        if query.get("status") not in (None, "", status):
            continue
        page = await visitor.ask("agents.page", status=status, limit=max(1, room), **wanted)
        agents = page.agents[:room]
        has_more = page.next_page_token is not None or len(page.agents) > len(agents)
        room -= len(agents)
        if agents or has_more:
            cells = [cell_of(one, now) for one in agents]
            found["groups"].append(CellGroup(status=status, cells=cells, has_more=has_more))
    return found


async def load_agent(visitor: Visitor, query: Query) -> dict[str, Any]:
    detail = await visitor.ask("agents.get", **given(query, "agent", "campaign"))
    return {"detail": detail, "agent": detail.agent, "cell": cell_of(detail.agent, SystemClock().now())}


def cell_of(agent: AgentLineView, now: datetime) -> Cell:
    heard = agent.last_heartbeat
    age = None if heard is None else max(now - heard, timedelta())
    alarm = ""
    # An agent that waits for a time, a person or a worker has no process that could be heard of.
    waits = agent.status == "active" and agent.kind == CAMPAIGN and agent.run_status != "running"
    if agent.status == "active" and age is not None and not waits:
        alarm = "silent" if age >= SILENT else "late" if age >= LATE else ""
    tones = {"error": "bad", "paused": "waits", "active": "busy" if waits else "good"}
    tone = {"late": "waits", "silent": "bad"}.get(alarm, tones.get(agent.status, "quiet"))
    said = "never heard" if age is None else f"last heard {_short(age)} ago"
    parts = [agent.id, agent.campaign or "agent of the gateway", agent.status]
    if agent.item_status in ("done", "pending"):
        parts.append(agent.item_status)
    parts += ["waits"] if waits else [alarm] if alarm else []
    text = NONE if age is None else f"{'!' if alarm == 'silent' else ''}{_short(age)}"
    return Cell(agent=agent, text=text, tone=tone, alarm=alarm, words=", ".join([*parts, said]))


def _short(age: timedelta) -> str:
    seconds = int(age.total_seconds())
    size, unit = next((one for one in _UNITS if seconds >= one[0]), _UNITS[-1])
    return f"{seconds // size}{unit}"


# --- actions


async def ask_pause(visitor: Visitor, query: Query) -> Confirmation:
    agent = await _agent(visitor, query)
    then = "Messages for it wait in their sessions, in order."
    if agent.kind == CAMPAIGN:
        then = "It stops at its next step and keeps what it saved; the other agents go on."
    return Confirmation(
        title=f"Pause {agent.id}?",
        says=(then, "It goes on when you resume it."),
        fields=(Field(name="reason", label="Reason", value="paused at the dashboard", is_required=True),),
        confirm="Pause",
        refused="it is paused already" if agent.status == "paused" else None,
    )


async def ask_resume(visitor: Visitor, query: Query) -> Confirmation:
    agent = await _agent(visitor, query)
    then = "It answers the messages that waited, in order."
    if agent.kind == CAMPAIGN:
        then = "It goes on after its last saved step, when it gets a slot."
    return Confirmation(
        title=f"Resume {agent.id}?",
        says=(f"It was paused: {agent.reason}." if agent.reason else "It is paused.", then),
        confirm="Resume",
        refused=None if agent.status == "paused" else "it is not paused",
    )


async def ask_restart(visitor: Visitor, query: Query) -> Confirmation:
    agent = await _agent(visitor, query)
    return Confirmation(
        title=f"Restart {agent.id}?",
        says=(
            "Its run is cancelled, and its task goes on in a new one after the last saved step.",
            "What it did since that step is done again.",
        ),
        fields=(Field(name="reason", label="Reason", value="restarted at the dashboard", is_required=True),),
        confirm="Restart",
        is_dangerous=True,
    )


async def pause(visitor: Visitor, form: Query) -> str:
    return _told(await visitor.ask("agents.pause", **given(form, "agent", "campaign", "reason")))


async def resume(visitor: Visitor, form: Query) -> str:
    return _told(await visitor.ask("agents.resume", **given(form, "agent", "campaign")))


async def restart(visitor: Visitor, form: Query) -> str:
    return _told(await visitor.ask("agents.restart", **given(form, "agent", "campaign", "reason")))


async def _agent(visitor: Visitor, query: Query) -> AgentLineView:
    found: AgentLineView = (await visitor.ask("agents.get", **given(query, "agent", "campaign"))).agent
    return found


def _told(changed: Any) -> str:
    return f"{changed.agent.id}: {changed.outcome}."


PAGES = [
    Page(
        path="/agents",
        title="Agents",
        template="agents.html",
        load=load_agents,
        section="agents",
        follows="campaign_moved agent",
        # Heartbeats have no events.
        every_s=10,
    ),
    Page(
        path="/agents/{agent}",
        title="Agent",
        template="agent.html",
        load=load_agent,
        section="agents",
        follows="campaign item agent message run_",
        every_s=10,
    ),
]
ACTIONS = [
    Action(name="agents.pause", ask=ask_pause, act=pause),
    Action(name="agents.resume", ask=ask_resume, act=resume),
    Action(name="agents.restart", ask=ask_restart, act=restart),
]
