"""Service: warns when this machine's clock and the ledger's differ, once for each change."""

from __future__ import annotations

import logging
from datetime import timedelta

from holdfast.core.clock import Clock
from holdfast.engine.aio.service import Service
from holdfast.store.clock import MOST_SKEW, SET_BY_NTP, LedgerClock, skew_in_words, skew_of

log = logging.getLogger("holdfast")


class SkewWatch(Service):
    """Compares the two clocks. The ledger uses one clock and is right; but times that people compare, such as
    those in this machine's log, are not."""

    def __init__(self, clock: Clock, *, every_s: float = 10.0) -> None:
        super().__init__(every_s=every_s)
        self._clock = clock
        # The skew that was last reported; None while it is within the limit.
        self._told: timedelta | None = None
        self._jumps = 0

    async def run_once(self) -> timedelta:
        self._tell_jump()
        skew = skew_of(self._clock)
        if self._told is None and abs(skew) > MOST_SKEW:
            self._tell(skew)
        elif self._told is not None and abs(skew) <= MOST_SKEW / 2:  # hysteresis: not at every crossing
            log.info("%s: back within the limit", skew_in_words(skew))
            self._told = None
        elif self._told is not None and abs(skew - self._told) > MOST_SKEW:
            self._tell(skew)
        return skew

    def _tell(self, skew: timedelta) -> None:
        log.warning("%s; Holdfast uses the database's; %s", skew_in_words(skew), SET_BY_NTP)
        self._told = skew

    def _tell_jump(self) -> None:
        if isinstance(self._clock, LedgerClock) and self._clock.jumps != self._jumps:
            self._jumps = self._clock.jumps
            log.warning(
                "the database's clock has jumped by %+.1f s (a failover, or an operator has set it): effects "
                "that were begun before and left open by another process are settled later by as much; %s",
                self._clock.last_jump.total_seconds(),
                SET_BY_NTP,
            )
