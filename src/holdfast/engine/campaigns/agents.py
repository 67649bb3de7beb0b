"""The agents of campaigns, each an item in a phase: pages of them, one by its id, the oldest heartbeat."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from holdfast.core.agent import AgentStatus, CampaignAgent, item_statuses_of
from holdfast.core.campaign import Campaign, agent_id, role_of
from holdfast.core.errors import BadInput, Conflict, NotFound
from holdfast.core.ids import CampaignId
from holdfast.core.run import RunRecord
from holdfast.core.transitions import ItemStatus
from holdfast.engine.campaigns.creating import owned_campaign
from holdfast.store import Tx
from holdfast.store.campaign_agents import NamedItemPhase
from holdfast.store.tasks import LAST

# How many campaigns one page looks into, or a search by an agent's id without its campaign.
MAX_CAMPAIGNS = 200
# Looked up at most, so that a search costs little also with many campaigns of many phases.
_CAMPAIGNS_AT_A_TIME = 50


class AgentPosition(msgspec.Struct, frozen=True, kw_only=True):
    """Where a page of agents ended: campaigns newest first, in each its phases, in each its items."""

    campaign_id: CampaignId
    phase: int = 0
    place: int = -1


class AgentPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some agents, and where the next page begins; None if there are no more."""

    agents: tuple[CampaignAgent, ...]
    following: AgentPosition | None = None


class OldestHeartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """The agent from which the ledger has not heard for the longest time, and when it last did."""

    agent: CampaignAgent
    at: datetime


def page_of_agents(
    tx: Tx,
    *,
    campaign: Campaign | None = None,
    status: AgentStatus | None = None,
    type: str | None = None,  # noqa: A002 - the seed's word for the role of an agent
    after: AgentPosition | None = None,
    limit: int = 100,
    owner: str | None = None,
) -> AgentPage:
    """The agents of one campaign, or of all of that owner, newest campaign first.

    What it costs grows with the page: by status and type, agents are found through indexes.
    """
    found: list[CampaignAgent] = []
    looked = 0
    for one in _campaigns(tx, campaign, after, owner):
        here = after if after is not None and after.campaign_id == one.id else None
        looked += 1
        for number, phase in enumerate(one.spec.phases):
            if (here is not None and number < here.phase) or type not in (None, role_of(phase)):
                continue
            place = here.place if here is not None and number == here.phase else -1
            room = limit - len(found)
            rows = _rows(tx, one.id, number, status, after=place, limit=room + 1)
            found += _agents(tx, one, rows[:room])
            if len(rows) > room:
                last = found[-1]
                following = AgentPosition(
                    campaign_id=last.campaign_id, phase=last.phase_number, place=last.place
                )
                return AgentPage(agents=tuple(found), following=following)
        if looked == MAX_CAMPAIGNS and campaign is None:
            following = AgentPosition(campaign_id=one.id, phase=len(one.spec.phases))
            return AgentPage(agents=tuple(found), following=following)
    return AgentPage(agents=tuple(found))


def find_agent(
    tx: Tx, name: str, *, campaign: Campaign | None = None, owner: str | None = None
) -> CampaignAgent:
    """By its id, such as repo-001-analyzer; without a campaign in the newest one that has such an agent.

    Raises NotFound, and Conflict if two items of one campaign have agents with this id.
    """
    if not isinstance(name, str) or not name:
        raise BadInput("agent", "give its id, such as repo-001-analyzer")
    for number, one in enumerate(_campaigns(tx, campaign, None, owner)):
        if number == MAX_CAMPAIGNS:
            break
        found = _named(tx, one, name)
        if len(found) > 1:
            raise Conflict(
                f"{name} may be {' or '.join(f'item {a.item_id} in phase {a.phase}' for a in found)} of "
                f"{one.name}; act on the item instead: holdfast campaign show {one.name}"
            )
        if found:
            return found[0]
    shown_by = None if campaign is None else f"agents list --campaign {campaign.name}"
    raise NotFound("agent", name, shown_by=shown_by)


def oldest_heartbeat(tx: Tx, campaign: Campaign) -> OldestHeartbeat | None:
    """Of the agents whose runs a process should be executing now; None if there are none.

    An agent that waits, for a time, a person or a free worker, is not expected to be heard of. What this
    costs grows with the concurrency of the campaign, not with its items.
    """
    oldest = tx.campaign_agents.oldest_heartbeat(campaign.id)
    if oldest is None:
        return None
    task_id, at = oldest
    agent = agent_of_task(tx, campaign, task_id)
    return None if agent is None else OldestHeartbeat(agent=agent, at=at)


def agent_of_task(tx: Tx, campaign: Campaign, task_id: str) -> CampaignAgent | None:
    """The agent that a task of this campaign is the work of."""
    rows = tx.item_phases.look_of_tasks([task_id])
    if not rows or rows[0].phase >= len(campaign.spec.phases):
        return None
    item = tx.items.at(campaign.id, rows[0].place)
    row = NamedItemPhase(item_phase=rows[0], item_id=item.id, item_name=item.name)
    return _agents(tx, campaign, [row])[0]


def _campaigns(
    tx: Tx, only: Campaign | None, after: AgentPosition | None, owner: str | None
) -> Sequence[Campaign] | _NewestFirst:
    if only is not None:
        return [owned_campaign(only, owner)]
    return _NewestFirst(tx, after, owner)


class _NewestFirst:
    """Campaigns of one owner, newest first, read a few at a time."""

    def __init__(self, tx: Tx, after: AgentPosition | None, owner: str | None) -> None:
        self._tx = tx
        self._before = LAST
        self._owner = owner
        # The first one is the campaign in which the last page ended.
        self._waiting = [] if after is None else [tx.campaigns.get(after.campaign_id)]

    def __iter__(self) -> _NewestFirst:
        return self

    def __next__(self) -> Campaign:
        while True:
            if not self._waiting:
                self._waiting = self._tx.campaigns.page(before=self._before, limit=_CAMPAIGNS_AT_A_TIME)
                if not self._waiting:
                    raise StopIteration
            one = self._waiting.pop(0)
            self._before = one.id
            if self._owner is None or one.owner == self._owner:
                return one


def _rows(
    tx: Tx, campaign_id: str, phase: int, status: AgentStatus | None, *, after: int, limit: int
) -> list[NamedItemPhase]:
    statuses: Sequence[ItemStatus | None] = [None] if status is None else item_statuses_of(status)
    rows: list[NamedItemPhase] = []
    for one in statuses:
        rows += tx.campaign_agents.page(campaign_id, phase, status=one, after=after, limit=limit)
    rows.sort(key=lambda row: row.item_phase.place)
    return rows[:limit]


def _named(tx: Tx, campaign: Campaign, name: str) -> list[CampaignAgent]:
    found = []
    for number, phase in enumerate(campaign.spec.phases):
        item_id = name.removesuffix(f"-{role_of(phase)}")
        if item_id and item_id != name:
            row = tx.campaign_agents.of_item(campaign.id, number, item_id)
            if row is not None:
                found += _agents(tx, campaign, [row])
    return found


def _agents(tx: Tx, campaign: Campaign, rows: Sequence[NamedItemPhase]) -> list[CampaignAgent]:
    task_ids = [str(row.item_phase.task_id) for row in rows if row.item_phase.task_id is not None]
    runs = tx.runs.live_of_tasks(task_ids) if task_ids else {}
    return [_agent(campaign, row, runs.get(str(row.item_phase.task_id))) for row in rows]


def _agent(campaign: Campaign, row: NamedItemPhase, run: RunRecord | None) -> CampaignAgent:
    one = row.item_phase
    phase = campaign.spec.phases[one.phase]
    heard = [at for at in (one.updated_at, None if run is None else run.beat_at) if at is not None]
    return CampaignAgent(
        id=agent_id(row.item_id, phase),
        type=role_of(phase),
        campaign_id=campaign.id,
        campaign=campaign.name,
        item_id=row.item_id,
        item_name=row.item_name,
        phase=phase.name,
        phase_number=one.phase,
        place=one.place,
        item_status=one.status,
        attempt=one.attempt,
        task_id=one.task_id,
        run_status=None if run is None else run.status,
        last_heartbeat=max(heard) if one.started_at is not None else None,
        error=one.error,
        note=one.note,
    )
