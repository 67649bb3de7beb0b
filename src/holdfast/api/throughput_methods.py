"""progress.throughput: how many items of a phase were done in each five minutes, for a chart."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

import msgspec

from holdfast.api.campaigns import CampaignText, campaign_owner, phase_number, reached_campaign
from holdfast.api.contract import EVERYTHING, READ, Caller, GatewayDoor, Reach
from holdfast.api.method_kinds import Method, calls
from holdfast.api.params import NameText, Params
from holdfast.core.campaign import Campaign
from holdfast.core.progress import SPAN, CountKind, Tally, noun_of, span_began_at, span_of, total_of
from holdfast.engine.campaigns.finding import newest_campaign
from holdfast.engine.campaigns.report import phase_counts
from holdfast.store.transaction import Tx
from holdfast.views.text import one_line
from holdfast.views.throughput import ThroughputSpanView, ThroughputView

LONGEST_HOURS = 48


class ThroughputAsked(Params, frozen=True, kw_only=True):
    """A campaign and a phase, by default as for `progress.get`; and how far back."""

    campaign: CampaignText | None = None
    phase: NameText | None = None
    hours: Annotated[int, msgspec.Meta(ge=1, le=LONGEST_HOURS)] = 6


def read_throughput(
    tx: Tx, asked: ThroughputAsked, *, now: datetime, reach: Reach = EVERYTHING
) -> ThroughputView:
    """From the kept counts: what it costs grows with the hours, not with the items."""
    if asked.campaign is None:
        campaign = newest_campaign(tx, owner=campaign_owner(reach))
    else:
        campaign = reached_campaign(tx, asked.campaign, reach)
    number = phase_number(tx, campaign, asked.phase)
    counts = total_of(list(phase_counts(tx, campaign, number).values()))
    return ThroughputView(
        campaign_id=one_line(campaign.id),
        campaign=one_line(campaign.name),
        phase=one_line(campaign.spec.phases[number].name),
        at=now,
        span_s=int(SPAN.total_seconds()),
        done=counts.done,
        total=counts.total,
        spans=_spans(tx, campaign, number, hours=asked.hours, now=now),
    )


def _spans(tx: Tx, campaign: Campaign, phase: int, *, hours: int, now: datetime) -> list[ThroughputSpanView]:
    """Until the campaign has started there is nothing to count; after its end, its last hours are told."""
    if campaign.started_at is None:
        return []
    until = now if campaign.ended_at is None else min(now, campaign.ended_at)
    first = span_of(max(until - timedelta(hours=hours), campaign.started_at))
    last = span_of(until)
    found = tx.campaigns.counts_under(
        noun_of(campaign.id, phase, CountKind.SPAN, ""), after=first, limit=int(last) - int(first) + 1
    )
    return [
        ThroughputSpanView(
            began_at=span_began_at(span), done=found.get(f"{span:012d}", {}).get(Tally.DONE.value, 0)
        )
        for span in range(int(first), int(last) + 1)
    ]


async def _throughput(gateway: GatewayDoor, asked: ThroughputAsked, caller: Caller) -> ThroughputView:
    now = gateway.clock.now()
    return await gateway.store.read(lambda tx: read_throughput(tx, asked, now=now, reach=caller.reach))


THROUGHPUT_METHODS: list[Method] = [
    calls(
        "progress.throughput",
        READ,
        ThroughputAsked,
        ThroughputView,
        _throughput,
        "How many items of one phase were done in each five minutes of the last hours.",
        is_owned=True,
    ),
]
