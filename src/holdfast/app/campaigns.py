"""Starts the items of campaigns and saves campaigns beside a script, once the ledger has a running one."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from holdfast.core.clock import Clock
from holdfast.core.errors import HoldfastError
from holdfast.core.transitions import CampaignStatus
from holdfast.engine.aio.background import beside
from holdfast.store import Store

if TYPE_CHECKING:
    from holdfast.progress.starter import CampaignStarter

_LOOK_EVERY_S = 5.0


class LazyCampaignStarter:
    """The services that start items and save campaigns, imported when first needed: most scripts have
    no campaign."""

    def __init__(self, store: Store, clock: Clock, *, host: str) -> None:
        self._store = store
        self._clock = clock
        self._host = host
        self._is_stopping = asyncio.Event()
        self._starter: CampaignStarter | None = None

    async def run(self) -> None:
        stopping = asyncio.get_running_loop().create_task(self._is_stopping.wait())
        try:
            while not self._is_stopping.is_set():
                # It listens before it looks, so that no notification in between is lost.
                hint = asyncio.get_running_loop().create_task(
                    self._store.wait_for("campaigns", _LOOK_EVERY_S)
                )
                await asyncio.sleep(0)
                try:
                    if await self._has_campaign():
                        break
                    await asyncio.wait({hint, stopping}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    hint.cancel()
                    with contextlib.suppress(asyncio.CancelledError, HoldfastError):
                        await hint
            if not self._is_stopping.is_set():
                await self._start()
        finally:
            stopping.cancel()

    async def _start(self) -> None:
        from holdfast.progress.saver import CampaignSaver
        from holdfast.progress.starter import CampaignStarter

        self._starter = CampaignStarter(self._store, self._clock, host=self._host)
        async with beside(CampaignSaver(self._store, self._clock)):
            await self._starter.run()

    def stop(self) -> None:
        self._is_stopping.set()
        if self._starter is not None:
            self._starter.stop()

    def hurry(self) -> None:
        self.stop()

    async def _has_campaign(self) -> bool:
        try:
            counts = await self._store.read(lambda tx: tx.events.counts("campaign"))
        except HoldfastError:  # the worker beside it tells that the ledger is away
            return False
        return counts.get(CampaignStatus.RUNNING.value, 0) > 0
