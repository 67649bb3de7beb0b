"""Service: saves campaigns as a whole after items, batches and phases, at their end, and now and then."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial

from holdfast.core.campaign_checkpoint import CampaignCheckpoint
from holdfast.core.clock import Clock
from holdfast.core.errors import HoldfastError, NotFound, StoreUnavailable
from holdfast.core.transitions import CampaignStatus
from holdfast.engine.aio.polling import PollingService
from holdfast.engine.campaigns.saving import prepared_checkpoints, saving
from holdfast.store import Store, Tx

# How often a process looks without a notification, and how seldom at most with many of them.
EVERY_S = 5.0
LEAST_S = 1.0
# How often one pass tries again when another process saved the same campaign first.
_TRIES = 3
_PAGE = 100


class CampaignSaver(PollingService):
    """Several processes may run this service on one ledger: each checkpoint is saved once.

    It works beside the items: their transactions do not wait for it.
    """

    def __init__(self, store: Store, clock: Clock, *, every_s: float = EVERY_S) -> None:
        super().__init__(store, "campaigns", every_s=every_s)
        self._clock = clock

    async def run(self) -> None:
        await super().run()
        # What happened since the last pass; if it is not saved now, the next process saves it.
        with contextlib.suppress(HoldfastError):
            await self.run_once()

    def hurry(self) -> None:
        self.stop()

    async def run_once(self) -> list[CampaignCheckpoint]:
        """Save what is due in every campaign that runs or asked for it; returns what was saved. An error of
        one campaign is logged, and the others go on. Raises StoreUnavailable."""
        saved: list[CampaignCheckpoint] = []
        for campaign_id in await self._campaigns():
            try:
                saved += await self._save(campaign_id)
            except StoreUnavailable:
                raise
            except NotFound:
                continue  # it was asked for, and the campaign is gone
            except HoldfastError as error:
                self.troubles.met(f"checkpoints of {campaign_id}", error, again_in_s=self.every_s)
            else:
                self.troubles.worked(f"checkpoints of {campaign_id}")
        return saved

    async def _campaigns(self) -> list[str]:
        return await self._store.read(lambda tx: sorted({*_running(tx), *_wanting(tx)}))

    async def _save(self, campaign_id: str) -> list[CampaignCheckpoint]:
        for _ in range(_TRIES):
            now = self._clock.now()
            prepared = await self._store.read(partial(prepared_checkpoints, campaign_id=campaign_id, now=now))
            if prepared is None:
                return []
            saved = await self._store.write(saving(prepared))
            if saved is not None:
                return saved
        return []

    async def _pause(self) -> None:
        # With a thousand agents, items end all the time.
        await self._wait(LEAST_S)
        await super()._pause()


def _running(tx: Tx) -> Iterator[str]:
    after = ""
    while found := tx.campaigns.in_status(CampaignStatus.RUNNING, after=after, limit=_PAGE):
        yield from (one.id for one in found)
        after = found[-1].id


def _wanting(tx: Tx) -> Iterator[str]:
    after = ""
    while found := tx.campaign_saves.wanting(after=after, limit=_PAGE):
        yield from found
        after = found[-1]
