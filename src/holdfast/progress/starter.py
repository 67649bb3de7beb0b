"""Service: starts items of running campaigns as slots become free, and ends campaigns that are over."""

from __future__ import annotations

from functools import partial

from holdfast.core.campaign import Campaign
from holdfast.core.clock import Clock
from holdfast.core.errors import HoldfastError, StoreUnavailable
from holdfast.core.transitions import CampaignStatus
from holdfast.engine.aio.polling import PollingService
from holdfast.engine.campaigns.starting import StartedItems, ending_campaign, starting_items
from holdfast.store import Store, Tx

# How often a process looks without a notification.
EVERY_S = 5.0


def _running(after: str, tx: Tx) -> list[Campaign]:
    return tx.campaigns.in_status(CampaignStatus.RUNNING, after=after)


class CampaignStarter(PollingService):
    """Several processes may run this service on one ledger: each item starts once, and limits hold for all of
    them together."""

    def __init__(
        self, store: Store, clock: Clock, *, host: str | None = None, every_s: float = EVERY_S
    ) -> None:
        """`host` is the machine on which this process runs, for limits per host."""
        super().__init__(store, "campaigns", every_s=every_s)
        self._clock = clock
        self._host = host
        self._is_held = False

    def hold(self) -> None:
        """Start nothing from now on. Safe to call twice."""
        self._is_held = True

    def go_on(self) -> None:
        self._is_held = False
        self.look()

    def hurry(self) -> None:
        self.stop()

    async def run_once(self) -> int:
        """Start what can start in every running campaign; returns how many items were started. An error of
        one campaign is logged, and the others go on. Raises StoreUnavailable.

        Each campaign starts one batch in each round, so that a large one does not hold up the others.
        """
        started = 0
        waiting = await self._running_campaigns()
        while waiting and not self._is_held:
            again = []
            for campaign in waiting:
                done = await self._fill(campaign)
                started += done.started
                if done.has_more:
                    again.append(campaign)
            waiting = again
        return started

    async def _running_campaigns(self) -> list[Campaign]:
        campaigns: list[Campaign] = []
        while found := await self._store.read(partial(_running, campaigns[-1].id if campaigns else "")):
            campaigns += found
        return campaigns

    async def _fill(self, campaign: Campaign) -> StartedItems:
        """Start one batch, and end the campaign if nothing is left to do."""
        if self._is_held:
            return StartedItems()
        name = f"campaign {campaign.name}"
        try:
            write = starting_items(campaign.id, now=self._clock.now(), host=self._host)
            done = await self._store.write(write)
            if done.may_have_ended:
                await self._store.write(ending_campaign(campaign.id, now=self._clock.now()))
        except StoreUnavailable:
            raise
        except HoldfastError as error:
            self.troubles.met(name, error, again_in_s=self.every_s)
            return StartedItems()
        self.troubles.worked(name)
        return done
