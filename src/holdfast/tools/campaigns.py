"""Tools with which an agent looks at the campaigns of its owner: the context document, groups and samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.campaign import ItemPhase, agent_id, batch_name
from holdfast.core.errors import BadInput, NoCampaign, NotFound, NotInRun
from holdfast.core.message import plain_line
from holdfast.core.progress import ItemCounts
from holdfast.core.session import acting_session
from holdfast.core.step_declarations import read, tool
from holdfast.core.transitions import ItemStatus

if TYPE_CHECKING:
    from holdfast.core.campaign import Campaign
    from holdfast.engine.program.live_run import LiveRun
    from holdfast.store import Tx

# An agent's context is small.
MOST_GROUPS = 20
MOST_SAMPLED = 10
_MAX_NAME_CHARS = 100
_MAX_WHY_CHARS = 300


class OwnGroup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The items of one priority, category or batch."""

    name: str
    total: int
    done: int
    in_progress: int = 0
    failed: int = 0


class OwnGroups(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Some groups of one phase; `after` in the next call shows more."""

    campaign: str
    phase: str
    groups: tuple[OwnGroup, ...] = ()
    # None if these are the last ones.
    after: str | None = None


class OwnItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One item in one phase, in words that do no harm in a prompt."""

    id: str
    name: str
    status: str
    priority: str
    batch: str
    agent: str
    category: str | None = None
    # How far its task is.
    stage: str | None = None
    percent: int = 0
    task_id: str | None = None
    # Why it failed, or why it was started anew.
    why: str | None = None
    # A small document of its result.
    result: Any = None


class OwnItems(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Some items of one phase by chance."""

    campaign: str
    phase: str
    # How many items the sample was drawn from.
    of: int = 0
    items: tuple[OwnItem, ...] = ()


@tool(effect=read, name="campaign_progress", raises=(BadInput, NoCampaign, NotFound, NotInRun))
async def campaign_progress(campaign: str | None = None, phase: str | None = None) -> dict[str, Any]:
    """Where a campaign of this session's owner is, in at most 2 KB: counts, priorities, current and next
    batch, time left, issues. Without a name, the newest one that runs; without a phase, the current one."""
    from holdfast.engine.campaigns.documents import read_context

    live = _live("campaign_progress")
    now = live.clock.now()
    found = await live.store.read(lambda tx: read_context(tx, _own(tx, live, campaign), now=now, phase=phase))
    document: dict[str, Any] = msgspec.to_builtins(found)
    return document


@tool(effect=read, name="campaign_groups", raises=(BadInput, NoCampaign, NotFound, NotInRun))
async def campaign_groups(
    by: str = "batch", campaign: str | None = None, phase: str | None = None, after: str | None = None
) -> OwnGroups:
    """How many items are done by "batch", "priority" or "category", at most 20 groups; `after` is that of the
    previous answer."""
    live = _live("campaign_groups")
    return await live.store.read(lambda tx: _groups(tx, _own(tx, live, campaign), by, phase, after))


@tool(effect=read, name="campaign_sample", raises=(BadInput, NoCampaign, NotFound, NotInRun))
async def campaign_sample(
    status: str = "failed", size: int = 5, campaign: str | None = None, phase: str | None = None
) -> OwnItems:
    """Some items by chance that are "pending", "running", "paused", "done" or "failed", with their results
    and errors; at most 10."""
    live = _live("campaign_sample")
    if status not in set(ItemStatus):
        raise BadInput("status", f"{status!a:.40} is none; use {', '.join(one.value for one in ItemStatus)}")
    if not isinstance(size, int) or not 1 <= size <= MOST_SAMPLED:
        raise BadInput("size", f"1 to {MOST_SAMPLED}")
    return await live.store.read(
        lambda tx: _sample(tx, _own(tx, live, campaign), ItemStatus(status), size, phase)
    )


def _live(name: str) -> LiveRun:
    from holdfast.engine.program.live_run import running  # heavy, and needed only inside a run

    live = running.get()
    if live is None:
        raise NotInRun(name)
    return live


def _own(tx: Tx, live: LiveRun, name: str | None) -> Campaign:
    """A campaign of the owner of the run."""
    from holdfast.engine.campaigns.finding import found_campaign, newest_campaign

    owner = acting_session(live.task)
    return newest_campaign(tx, owner=owner) if name is None else found_campaign(tx, name, owner=owner)


def _phase(tx: Tx, campaign: Campaign, phase: str | None) -> int:
    from holdfast.engine.campaigns.report import current_phase

    return current_phase(tx, campaign) if phase is None else campaign.spec.number_of(phase)


def _groups(tx: Tx, campaign: Campaign, by: str, phase: str | None, after: str | None) -> OwnGroups:
    from holdfast.engine.campaigns.drill_down import groups_of, kind_named

    number = _phase(tx, campaign, phase)
    found, token = groups_of(tx, campaign, number, kind_named(by), token=after, limit=MOST_GROUPS)
    return OwnGroups(
        campaign=campaign.name,
        phase=campaign.spec.phases[number].name,
        groups=tuple(_group(name, counts) for name, counts in found),
        after=token,
    )


def _group(name: str, counts: ItemCounts) -> OwnGroup:
    return OwnGroup(
        name=plain_line(name, _MAX_NAME_CHARS),
        total=counts.total,
        done=counts.done,
        in_progress=counts.running + counts.paused,
        failed=counts.failed,
    )


def _sample(tx: Tx, campaign: Campaign, status: ItemStatus, size: int, phase: str | None) -> OwnItems:
    from holdfast.engine.campaigns.drill_down import new_seed, sample_of

    number = _phase(tx, campaign, phase)
    found, total = sample_of(tx, campaign, number, status, size=size, seed=new_seed())
    spec = campaign.spec.phases[number]
    return OwnItems(
        campaign=campaign.name,
        phase=spec.name,
        of=total,
        items=tuple(
            _item(one.at, one.id or "?", one.name or "?", agent_id(one.id or "?", spec)) for one in found
        ),
    )


def _item(at: ItemPhase, item_id: str, name: str, agent: str) -> OwnItem:
    return OwnItem(
        id=plain_line(item_id, _MAX_NAME_CHARS),
        name=plain_line(name, _MAX_NAME_CHARS),
        status=at.status.value,
        priority=plain_line(at.priority, 10),
        batch=batch_name(at.batch),
        agent=plain_line(agent, _MAX_NAME_CHARS + 60),
        category=None if at.category is None else plain_line(at.category, _MAX_NAME_CHARS),
        stage=None if at.stage is None else plain_line(at.stage, _MAX_NAME_CHARS),
        percent=100 if at.status is ItemStatus.DONE else at.percent,
        task_id=at.task_id,
        why=plain_line(at.error or at.note or "", _MAX_WHY_CHARS) or None,
        result=None if at.summary is None else _plain(msgspec.json.decode(at.summary)),
    )


def _plain(value: Any) -> Any:
    """The same document, with every text in one harmless line."""
    match value:
        case str():
            return plain_line(value, _MAX_WHY_CHARS)
        case dict():
            return {plain_line(str(key), _MAX_NAME_CHARS): _plain(inner) for key, inner in value.items()}
        case list():
            return [_plain(inner) for inner in value]
        case _:
            return value
