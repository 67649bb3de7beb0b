"""Runs that were claimed here and did not come to an end: released, paused, or ended with the reason."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

from holdfast.core.claim import Claim
from holdfast.core.clock import Clock
from holdfast.core.errors import CheckpointNotSaved, ClaimLost, HoldfastError, PageDamaged, RowDamaged
from holdfast.core.task import Task
from holdfast.engine.claims.claims import ClaimedRun, Claims
from holdfast.engine.claims.heartbeat import Heartbeat
from holdfast.engine.journal.codec import failure_of
from holdfast.engine.ledger.ledger import DEFAULT_RETENTION, Ledger, fail_damaged
from holdfast.engine.program.run_phase import StopReason
from holdfast.engine.worker.drain import Drain
from holdfast.engine.worker.in_flight import RunInFlight, RunsInFlight
from holdfast.store import Store

log = logging.getLogger("holdfast")

OnLetGo = Callable[[str, Task | None], None]

# Between two attempts of a run whose lease had lapsed both times before.
_LAPSED_PAUSE_S = 1.0
# Reasons to release a run and try it again later, each time after a longer pause.
_GIVEN_BACK = frozenset({StopReason.LEASE_LAPSED, StopReason.CANNOT_SEAL})


class UnfinishedRuns:
    """Puts back the runs of this process that have no end in the ledger, so that none is stuck."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        claims: Claims,
        heartbeat: Heartbeat,
        ledger: Ledger,
        in_flight: RunsInFlight,
        drain: Drain,
        *,
        lease: timedelta,
        on_let_go: OnLetGo,
    ) -> None:
        self._store = store
        self._clock = clock
        self._claims = claims
        self._heartbeat = heartbeat
        self._ledger = ledger
        self._in_flight = in_flight
        self._drain = drain
        self._lease = lease
        self._on_let_go = on_let_go
        # How often in a row each of these runs found its lease lapsed.
        self._lapses: dict[str, int] = {}

    def ended(self, one: RunInFlight) -> None:
        """Its child is done. Forget its lapses, unless it lapsed again."""
        if self._lapses and one.live.why not in _GIVEN_BACK:
            self._lapses.pop(one.claim.run_id, None)

    async def put_back(self) -> None:
        """Release runs whose child ended without a record: the database was away, or we have a bug."""
        left_over = list(self._in_flight.left_over.values())
        self._tell_lapsed(left_over)
        for one in left_over:
            with contextlib.suppress(ClaimLost):
                if one.trouble is None:
                    # It stays the same run; the next worker that claims it replays it.
                    await self._claims.release(one.claim, due_at=self._not_before(one))
                else:
                    await self._pause_troubled(one)
            self._in_flight.let_go([one])

    def _tell_lapsed(self, some: Sequence[RunInFlight]) -> None:
        """Log once for each run whose lease lapsed, however often it is tried again."""
        lapsed = [one.claim.run_id for one in some if one.live.why is StopReason.LEASE_LAPSED]
        new = [run_id for run_id in lapsed if run_id not in self._lapses]
        for one in some:
            if one.live.why in _GIVEN_BACK:
                self._lapses[one.claim.run_id] = self._lapses.get(one.claim.run_id, 0) + 1
        if new:
            log.warning(
                "%s released before an effect, because the lease had lapsed: this process could not renew "
                "it (a program that blocks the event loop? a machine that slept?), or its clock is not the "
                "ledger's; `holdfast doctor` compares them",
                f"{new[0]} was" if len(new) == 1 else f"{len(new)} runs ({new[0]} first) were",
            )

    def _not_before(self, one: RunInFlight) -> datetime | None:
        """None for the first lapse: at once. A run that lapses again and again waits longer each time."""
        again = self._lapses.get(one.claim.run_id, 0) - 1
        if again <= 0:
            return None
        pause_s = min(_LAPSED_PAUSE_S * 2.0 ** min(again - 1, 20), self._lease.total_seconds())
        return self._clock.now() + timedelta(seconds=pause_s)

    async def _pause_troubled(self, one: RunInFlight) -> None:
        try:
            await self._drain.pause_troubled(one)
        except CheckpointNotSaved as problem:
            if not isinstance(one.trouble, PageDamaged):
                raise
            # Do not retry in each round: let its lease lapse.
            log.warning("%s", problem)

    async def end_unfit(self, claimed: ClaimedRun, problem: Exception) -> None:
        """End a run whose past is damaged, with the reason; the other runs go on."""
        now = self._clock.now()
        log.error("%s cannot be executed: %s", claimed.run.id, problem)
        try:
            if isinstance(problem, RowDamaged):
                await self._store.write(
                    lambda tx: fail_damaged(tx, claimed.run, problem, now=now, retention=DEFAULT_RETENTION)
                )
            else:
                await self._ledger.fail(claimed.claim, failure_of(problem))
        except ClaimLost:
            pass
        except PageDamaged as damage:
            # Its lease lapses; the runs that were claimed with it go on.
            log.warning("%s cannot be ended: %s", claimed.run.id, damage)
        self._on_let_go(claimed.task.id, None)

    async def release(self, claims: Iterable[Claim]) -> None:
        for claim in claims:
            with contextlib.suppress(HoldfastError):  # a claim that cannot be released lapses
                await self._claims.release(claim)
            self._heartbeat.let_go(claim)
