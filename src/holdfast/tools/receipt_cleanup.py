"""Service: removes receipts of commands that are no longer needed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path

from holdfast.core.clock import Clock
from holdfast.engine.aio.service import Service
from holdfast.engine.clocks.jump_watch import ClockWatch
from holdfast.store import Store
from holdfast.tools.receipts import old_receipts, prune_receipts

# Long enough for a ledger that is restored from a recent backup; shorter than effects are kept.
RECEIPTS_KEPT = timedelta(days=7)
BATCH = 500


class ReceiptPruner(Service):
    """Removes old receipts whose effects are settled in this ledger.

    Receipts that the ledger does not know stay: another ledger may use the same directory.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        directories: Iterable[Path],
        *,
        watch: ClockWatch | None = None,
        every_s: float = 3600.0,
        kept: timedelta = RECEIPTS_KEPT,
    ) -> None:
        """Without a watch, jumps of the clock are not noticed."""
        super().__init__(every_s=every_s)
        self._store = store
        self._clock = clock
        self._watch = watch
        self._directories = sorted(set(directories))
        self._kept = kept

    async def run_once(self) -> int:
        """Remove old receipts; returns how many."""
        now = self._clock.now()
        if self._watch is not None:
            believed = await self._watch.deletion_time()
            if believed is None:
                return 0
            # File times follow the machine's clock; take the earlier time in case that clock has jumped.
            now = min(now, believed)
        before, pruned = now - self._kept, 0
        for directory in self._directories:
            old = await asyncio.to_thread(old_receipts, directory, before=before)
            for first in range(0, len(old), BATCH):
                if self._stop.is_set():
                    break
                keys = old[first : first + BATCH]
                settled = await self._settled(keys)
                pruned += await asyncio.to_thread(prune_receipts, directory, sorted(settled))
        return pruned

    async def _settled(self, keys: Sequence[str]) -> set[str]:
        return await self._store.read(lambda tx: tx.effects.settled_among(keys))

    def hurry(self) -> None:
        self.stop()
