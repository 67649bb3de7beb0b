"""The writes that create a campaign and add items to it, a chunk at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec

from holdfast.core.campaign import (
    MAX_ITEM_BYTES,
    MAX_ITEMS,
    Campaign,
    CampaignSpec,
    Item,
    ItemPhase,
    ItemRecord,
    Phase,
    check_campaign_name,
    check_item,
    check_spec,
)
from holdfast.core.errors import BadInput, Conflict, NotYours
from holdfast.core.events import EventKind
from holdfast.core.ids import CampaignId, check_id, new_campaign_id
from holdfast.core.message import plain_line
from holdfast.core.payload import check_name, encode_payload
from holdfast.core.redaction import redact_name
from holdfast.core.transitions import CampaignStatus
from holdfast.engine.ledger.campaign_progress import count_new, moved_campaign
from holdfast.engine.ledger.item_slots import CAMPAIGN_SCOPE, phase_scope
from holdfast.store import Tx, Write

# Items are added in chunks of at most this size, each in one transaction.
MAX_CHUNK = 1000


class NewCampaign(msgspec.Struct, frozen=True, kw_only=True):
    """The campaign to create. The same name again, with the same spec, finds the first one."""

    name: str
    spec: CampaignSpec
    owner: str = "system"


class ItemsAdded(msgspec.Struct, frozen=True, kw_only=True):
    """How many items a call added, and how many were there already."""

    added: int
    known: int
    campaign: Campaign


def owned_campaign(campaign: Campaign, owner: str | None) -> Campaign:
    """The campaign, if it belongs to that owner; operators have no owner. Raises NotYours."""
    if owner is not None and campaign.owner not in (owner, redact_name(owner)):
        raise NotYours("campaign", campaign.id, redact_name(owner))
    return campaign


def creating_campaign(new: NewCampaign, *, now: datetime) -> Write[Campaign]:
    """The write that creates a campaign without items. Everything is checked before it is returned.

    Raises Conflict if the name belongs to a campaign with another spec or another owner.
    """
    if not isinstance(new, NewCampaign):
        raise BadInput("campaign", f"a new campaign is needed, not {type(new).__name__}")
    campaign = Campaign(
        id=new_campaign_id(now),
        name=check_campaign_name(new.name),
        owner=check_name("owner", new.owner),
        spec=check_spec(new.spec),
        created_at=now,
        updated_at=now,
    )

    def create(tx: Tx) -> Campaign:
        known = tx.campaigns.find(campaign.name)
        kept = tx.campaigns.create(campaign) if known is None else known
        if known is not None or kept.id != campaign.id:
            if kept.owner != campaign.owner:
                raise Conflict(
                    f"the name {campaign.name!r} belongs to a campaign of another owner; choose another name"
                )
            if kept.spec != campaign.spec:
                differences = "; ".join(_differences(kept.spec, campaign.spec))
                raise Conflict(
                    f"{kept.name} ({kept.id}) exists and has another spec: {differences}; choose another "
                    f"name, or look at it: holdfast campaign show {kept.name}"
                )
            return kept
        tx.campaigns.create_phases(campaign)
        tx.slots.create(campaign.id, CAMPAIGN_SCOPE, campaign.spec.concurrency)
        for number, phase in enumerate(campaign.spec.phases):
            if phase.concurrency is not None:
                tx.slots.create(campaign.id, phase_scope(number), phase.concurrency)
        tx.count("campaign", campaign.status, 1)
        tx.emit(EventKind.CAMPAIGN_CREATED, campaign.id, at=now, name=campaign.name, owner=campaign.owner)
        return kept

    return create


def _differences(kept: CampaignSpec, asked: CampaignSpec) -> Iterator[str]:
    """In which fields two specs differ."""
    yield from _fields_that_differ("its", kept, asked, besides="phases")
    names = [one.name for one in kept.phases], [one.name for one in asked.phases]
    if names[0] != names[1]:
        yield f"its phases are {','.join(names[0])}, not {','.join(names[1])}"
        return
    for one, other in zip(kept.phases, asked.phases, strict=True):
        yield from _fields_that_differ(f"in phase {one.name} its", one, other)


def _fields_that_differ(
    whose: str, kept: CampaignSpec | Phase, asked: CampaignSpec | Phase, *, besides: str = ""
) -> Iterator[str]:
    for field in kept.__struct_fields__:
        before, now = getattr(kept, field), getattr(asked, field)
        if before != now and field != besides:
            yield f"{whose} {field} is {_in_words(before)}, not {_in_words(now)}"


def _in_words(value: object) -> str:
    if isinstance(value, tuple):
        value = ",".join(map(str, value))
    return "none" if value in (None, "") else plain_line(str(value), 60)


def adding_items(
    campaign_id: str, items: Sequence[Item], *, now: datetime, owner: str | None = None
) -> Write[ItemsAdded]:
    """The write that adds items, in the order of their priorities, as pending in every phase.

    An item that is there already with the same contents is left alone, so a call that was cut off may be
    repeated. Raises Conflict if it has other contents. A campaign that had ended goes on.
    """
    check_id("campaign", campaign_id)
    if not isinstance(items, (list, tuple)):
        raise BadInput("items", "a list of items is needed")
    if len(items) > MAX_CHUNK:
        raise BadInput("items", f"{len(items)} items at once; add at most {MAX_CHUNK}, then the next ones")
    checked = [check_item(item, number) for number, item in enumerate(items, 1)]
    contents = {
        item.id: encode_payload(f"fields of item {item.id}", item.fields, max_bytes=MAX_ITEM_BYTES)
        for item in checked
    }
    if len(contents) != len(checked):
        seen: set[str] = set()
        double = next(item.id for item in checked if item.id in seen or seen.add(item.id))  # type: ignore[func-returns-value]
        raise BadInput("items", f"two items have the id {double!r}; rename one")

    def add(tx: Tx) -> ItemsAdded:
        campaign = owned_campaign(tx.campaigns.lock(campaign_id), owner)
        known = tx.items.by_ids(campaign_id, [item.id for item in checked])
        for item in checked:
            if item.id in known:
                _check_same(known[item.id], item, contents[item.id])
        new = sorted((item for item in checked if item.id not in known), key=lambda item: item.priority)
        if campaign.items + len(new) > MAX_ITEMS:
            raise BadInput("items", f"a campaign has at most {MAX_ITEMS:,} items")
        if not new:
            # Those of this very moment are its own: it runs again after its own commit.
            own = sum(one.created_at == now for one in known.values())
            return ItemsAdded(added=own, known=len(known) - own, campaign=campaign)
        grown, records = _placed(campaign, new, contents, now)
        rows = _rows_of(grown, records, now)
        tx.items.create_many(records)
        tx.item_phases.create_many(rows)
        count_new(tx, rows)
        tx.campaigns.grow(grown, now=now)
        tx.emit(EventKind.CAMPAIGN_GREW, campaign.id, at=now, added=len(new), items=grown.items)
        if campaign.status in (CampaignStatus.DONE, CampaignStatus.FAILED):
            grown = moved_campaign(tx, grown, CampaignStatus.RUNNING, now=now, reason="items were added")
        tx.hint("campaigns")
        return ItemsAdded(added=len(new), known=len(known), campaign=grown)

    return add


def _check_same(known: ItemRecord, item: Item, contents: bytes) -> None:
    now_is = (item.name, item.priority, item.category, contents)
    if (known.name, known.priority, known.category, known.contents) != now_is:
        raise Conflict(
            f"item {item.id} exists with other contents; give the new one another id, or leave it out"
        )


def _placed(
    campaign: Campaign, items: Sequence[Item], contents: dict[str, bytes], now: datetime
) -> tuple[Campaign, list[ItemRecord]]:
    """The items with their places and batches, and the campaign with its new counts. A batch has items of one
    priority; the last batch of each takes more until it is full."""
    open_batches, batches = dict(campaign.open_batches), campaign.batches
    records = []
    for place, item in enumerate(items, campaign.items):
        number, room = open_batches.get(item.priority, (0, 0))
        if not room:
            batches += 1
            number, room = batches, campaign.spec.batch_size
        open_batches[item.priority] = (number, room - 1)
        records.append(
            ItemRecord(
                campaign_id=CampaignId(campaign.id),
                place=place,
                id=item.id,
                name=item.name,
                priority=item.priority,
                category=item.category,
                batch=number,
                contents=contents[item.id],
                created_at=now,
            )
        )
    grown = msgspec.structs.replace(
        campaign, items=campaign.items + len(items), batches=batches, open_batches=open_batches
    )
    return grown, records


def _rows_of(campaign: Campaign, records: Sequence[ItemRecord], now: datetime) -> list[ItemPhase]:
    return [
        ItemPhase(
            campaign_id=campaign.id,
            phase=number,
            place=record.place,
            priority=record.priority,
            category=record.category,
            batch=record.batch,
            unmet=len(campaign.spec.needs_of(number)),
            updated_at=now,
        )
        for number in range(len(campaign.spec.phases))
        for record in records
    ]
