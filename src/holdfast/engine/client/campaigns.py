"""Campaigns: create, fill, start, pause, retry and read campaigns, for programs and doors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from holdfast.core.campaign import Campaign, CampaignSpec, Item, Phase
from holdfast.core.campaign_checkpoint import CampaignCheckpoint, CampaignCheckpointKind, Decision
from holdfast.core.clock import Clock
from holdfast.core.errors import BadInput
from holdfast.core.payload import check_number
from holdfast.core.transitions import CampaignStatus
from holdfast.engine.campaigns.changes import (
    PausedItems,
    ResumedItems,
    RetriedItems,
    pausing_campaign,
    pausing_items,
    resuming_items,
    retrying_items,
    starting_campaign,
    stopping_items,
)
from holdfast.engine.campaigns.creating import (
    MAX_CHUNK,
    ItemsAdded,
    NewCampaign,
    adding_items,
    creating_campaign,
    owned_campaign,
)
from holdfast.engine.campaigns.recovery_document import RecoveryDocument, place_after, recovery_document
from holdfast.engine.campaigns.report import CampaignProgress, progress_of
from holdfast.engine.campaigns.saving import PreparedCheckpoints, prepared_milestone, saving
from holdfast.engine.ledger.ledger import MAX_PAGE
from holdfast.engine.program.definitions import TaskDefinition
from holdfast.store import Store, Tx
from holdfast.store.campaign_checkpoints import FIRST_PAGE
from holdfast.store.tasks import LAST

if TYPE_CHECKING:
    from holdfast.engine.program.campaign_restore import RestorePlan, RestoreProgress
    from holdfast.engine.program.forks import Compensate


class Campaigns:
    """The campaigns of a ledger. With an `owner`, only those of that owner."""

    def __init__(self, store: Store, clock: Clock, *, owner: str | None = None) -> None:
        self._store = store
        self._clock = clock
        self._owner = owner

    async def create(self, name: str, spec: CampaignSpec, items: Iterable[Item] = ()) -> Campaign:
        """A draft with its items, durable when this returns. The same call again, also after it was cut off,
        adds what is missing. Items are batched by priority."""
        new = NewCampaign(name=name, spec=spec, owner="system" if self._owner is None else self._owner)
        campaign = await self._store.write(creating_campaign(new, now=self._clock.now()))
        return (await self.add(campaign.id, items)).campaign

    async def add(self, name: str, items: Iterable[Item]) -> ItemsAdded:
        """Add items, also to a running campaign or to one that has ended. Raises Conflict if an item is there
        with other contents; then the items before it were added."""
        campaign = await self.get(name)
        # Sorted, so that batches are filled across chunks; a wrong item is found when it is checked.
        ordered = iter(sorted(items, key=lambda item: str(getattr(item, "priority", ""))))
        added = known = 0
        while chunk := list(islice(ordered, MAX_CHUNK)):
            write = adding_items(campaign.id, chunk, now=self._clock.now(), owner=self._owner)
            done = await self._store.write(write)
            added, known, campaign = added + done.added, known + done.known, done.campaign
        return ItemsAdded(added=added, known=known, campaign=campaign)

    async def get(self, name: str) -> Campaign:
        """By its name, its id or a unique prefix of that. Raises NotFound, NotYours."""
        if not isinstance(name, str) or not name:
            raise BadInput("campaign", "give its name or id")
        return await self._store.read(lambda tx: find_campaign(tx, name, owner=self._owner))

    async def page(self, *, before: str = LAST, limit: int = 50) -> list[Campaign]:
        """Newest first; the id of the last one is the page token of the next page."""
        check_number("limit", limit, low=1, high=MAX_PAGE)
        found = await self._store.read(lambda tx: tx.campaigns.page(before=before, limit=limit))
        return [one for one in found if self._owner is None or one.owner == self._owner]

    async def progress(self, name: str) -> CampaignProgress:
        """How far it is, read from kept counts."""
        now = self._clock.now()
        return await self._store.read(
            lambda tx: progress_of(tx, find_campaign(tx, name, owner=self._owner), now=now)
        )

    async def recovery_state(
        self, name: str, *, page_token: str | None = None, limit: int = 100
    ) -> RecoveryDocument:
        """What a restart would have to go on with: items that are not done, agents that are not idle, and the
        last checkpoint. A page at a time: pass the `next_page_token` of the last one."""
        check_number("limit", limit, low=1, high=MAX_PAGE)
        after = place_after(page_token)
        return await self._store.read(
            lambda tx: recovery_document(
                tx, find_campaign(tx, name, owner=self._owner), after=after, limit=limit
            )
        )

    async def start(self, name: str) -> Campaign:
        """Start a draft, or let a paused campaign go on."""
        campaign = await self.get(name)
        return await self._store.write(
            starting_campaign(campaign.id, now=self._clock.now(), owner=self._owner)
        )

    async def pause(
        self, name: str, *, reason: str = "paused by an operator", stop: bool = False
    ) -> Campaign:
        """Start no more items; those that run come to their end. With `stop` they are asked to stop at their
        next step, and go on from there when the campaign does."""
        campaign = await self.get(name)
        campaign = await self._store.write(
            pausing_campaign(campaign.id, now=self._clock.now(), reason=reason, owner=self._owner)
        )
        while stop:
            done = await self._store.write(stopping_items(campaign.id, now=self._clock.now(), reason=reason))
            stop = done.has_more
        return campaign

    async def pause_items(
        self,
        name: str,
        items: Sequence[str],
        *,
        phase: str | None = None,
        reason: str = "paused by an operator",
    ) -> PausedItems:
        """Pause single items: what waits starts no more, and what runs is asked to stop at its next step."""
        campaign = await self.get(name)
        paused = stopping = 0
        while True:
            write = pausing_items(
                campaign.id, items, now=self._clock.now(), phase=phase, reason=reason, owner=self._owner
            )
            done = await self._store.write(write)
            paused, stopping = paused + done.paused, stopping + done.stopping
            if not done.has_more:
                return PausedItems(paused=paused, stopping=stopping, has_more=False, campaign=done.campaign)

    async def resume_items(
        self, name: str, *, items: Sequence[str] = (), phase: str | None = None
    ) -> ResumedItems:
        """Let paused items go on, each after its last saved step: the named ones, or all."""
        campaign = await self.get(name)
        resumed = 0
        while True:
            write = resuming_items(
                campaign.id, now=self._clock.now(), item_ids=items, phase=phase, owner=self._owner
            )
            done = await self._store.write(write)
            resumed += done.resumed
            if items or not done.has_more:
                return ResumedItems(resumed=resumed, has_more=False, campaign=done.campaign)

    async def retry(self, name: str, *, phase: str | None = None, items: Sequence[str] = ()) -> RetriedItems:
        """Let failed items start again, each after its last saved step."""
        campaign = await self.get(name)
        retried = 0
        while True:
            write = retrying_items(
                campaign.id, now=self._clock.now(), phase=phase, item_ids=items, owner=self._owner
            )
            done = await self._store.write(write)
            retried += done.retried
            if items or not done.has_more:
                return RetriedItems(retried=retried, has_more=False, campaign=done.campaign)

    # --- checkpoints

    async def milestone(self, name: str, campaign: str) -> CampaignCheckpoint:
        """Save a campaign as a whole under this name, so that `restore` can go back to it."""
        while True:
            now = self._clock.now()
            prepared = await self._store.read(
                partial(_milestone_of, name=name, campaign=campaign, owner=self._owner, now=now)
            )
            saved = await self._store.write(saving(prepared))
            if saved is not None:
                return saved[-1]

    async def checkpoints(
        self,
        name: str,
        *,
        kind: CampaignCheckpointKind | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> list[CampaignCheckpoint]:
        """Newest first; the number of the last one is the page token (`before`) of the next page."""
        check_number("limit", limit, low=1, high=MAX_PAGE)
        campaign = await self.get(name)
        place = FIRST_PAGE if before is None else before
        return await self._store.read(
            lambda tx: tx.campaign_checkpoints.page(campaign.id, kind=kind, before=place, limit=limit)
        )

    async def plan_restore(self, checkpoint_id: str) -> RestorePlan:
        """What `restore` would undo; nothing is changed."""
        from holdfast.engine.program.campaign_restore import plan_restore  # few programs restore

        return await self._store.read(lambda tx: plan_restore(tx, checkpoint_id, owner=self._owner))

    async def restore(
        self,
        checkpoint_id: str,
        *,
        effects: Decision = "refuse",
        compensate: Compensate | None = None,
        timeout_s: float | None = None,
    ) -> RestoreProgress:
        """Let everything that was not done at that milestone start again, as new tasks; nothing is deleted.

        The campaign is paused meanwhile. If effects happened since, say what becomes of them: "keep" (the new
        tasks find them as done), "compensate" (undo them now, with the function `compensate`), or
        "acknowledge" (the new tasks may repeat them). If this process dies, the same call goes on. Raises
        TimeoutError if items that run do not stop in that time; the same call goes on then, too.
        """
        import asyncio

        from holdfast.engine.program.campaign_restore import restore_campaign

        async with asyncio.timeout(timeout_s):
            while True:
                progress = await restore_campaign(
                    self._store,
                    self._clock,
                    checkpoint_id,
                    effects=effects,
                    compensate=compensate,
                    owner=self._owner,
                )
                if progress.is_over:
                    return progress

    async def wait(self, name: str, *, timeout_s: float | None = None) -> Campaign:
        """Until the campaign is done or failed, or is paused. Raises TimeoutError."""
        import asyncio

        campaign = await self.get(name)
        async with asyncio.timeout(timeout_s):
            while campaign.status in (CampaignStatus.RUNNING, CampaignStatus.DRAFT):
                await self._store.wait_for("campaigns", 1.0)
                campaign = await self.get(campaign.id)
        return campaign


def _milestone_of(
    tx: Tx, *, name: str, campaign: str, owner: str | None, now: datetime
) -> PreparedCheckpoints:
    return prepared_milestone(tx, find_campaign(tx, campaign, owner=owner), name, now=now)


def find_campaign(tx: Tx, name: str, *, owner: str | None) -> Campaign:
    return owned_campaign(tx.campaigns.get(tx.campaigns.resolve(name)), owner)


def phase(
    name: str,
    task: TaskDefinition[..., Any] | str,
    *,
    role: str = "",
    stages: Sequence[str] = (),
    needs: Sequence[str] | None = None,
    waits_for_all: bool = False,
    concurrency: int | None = None,
) -> Phase:
    """A phase of a campaign: every item goes through it as one task with a parameter called `item`."""
    if isinstance(task, TaskDefinition):
        task.check_takes("item")
        task = task.name
    return Phase(
        name=name,
        task=task,
        role=role,
        stages=tuple(stages),
        needs=None if needs is None else tuple(needs),
        waits_for_all=waits_for_all,
        concurrency=concurrency,
    )
