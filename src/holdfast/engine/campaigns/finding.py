"""Finds the campaign that a caller means: by its name, id or a prefix of that, or the newest that runs."""

from __future__ import annotations

import re

from holdfast.core.campaign import Campaign
from holdfast.core.errors import NoCampaign, NotFound, NotYours
from holdfast.core.ids import CampaignId
from holdfast.core.redaction import redact_name
from holdfast.core.transitions import CampaignStatus
from holdfast.engine.campaigns.creating import owned_campaign
from holdfast.store import Tx

_ID = re.compile(r"[a-z0-9_-]{1,64}")
_LIKE_RUNNING = (CampaignStatus.RUNNING, CampaignStatus.PAUSED, CampaignStatus.DRAFT)


def found_campaign(tx: Tx, name: str, *, owner: str | None = None) -> Campaign:
    """The one with this name, id or prefix of the id. With an owner, a campaign of another owner is not
    found, as if it did not exist. Raises NotFound, AmbiguousId."""
    try:
        return owned_campaign(tx.campaigns.get(_id_of(tx, name, owner)), owner)
    except NotYours:
        raise NotFound("campaign", name) from None


def _id_of(tx: Tx, name: str, owner: str | None) -> CampaignId:
    found = tx.campaigns.find(name)
    if found is not None:
        return found.id
    # A prefix could match campaigns of others, and so tell about them.
    if owner is not None or not _ID.fullmatch(name):
        return CampaignId(name)
    return tx.campaigns.resolve(name)


def newest_campaign(tx: Tx, *, owner: str | None = None) -> Campaign:
    """The newest one that runs; else the newest that is paused or not started; else the newest. Raises
    NoCampaign."""
    stored = None if owner is None else redact_name(owner)
    for status in (*_LIKE_RUNNING, None):
        found = tx.campaign_pages.page(owner=stored, status=status, limit=1)
        if found:
            return found[0]
    raise NoCampaign
