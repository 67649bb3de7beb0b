"""Saves a milestone, as a person or an agent does by its name."""

from __future__ import annotations

from functools import partial

from holdfast.core.campaign import Campaign
from holdfast.core.campaign_checkpoint import CampaignCheckpoint
from holdfast.engine.campaigns.saving import prepared_milestone, saving
from holdfast.store import Store
from holdfast.testing import FakeClock


def save_milestone(store: Store, clock: FakeClock, campaign: Campaign, name: str) -> CampaignCheckpoint:
    prepared = store.read_now(partial(prepared_milestone, campaign=campaign, name=name, now=clock.now()))
    saved = store.write_now(saving(prepared))
    assert saved
    return saved[-1]
