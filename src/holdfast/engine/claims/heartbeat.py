"""Renews the claims of this process before their leases lapse, and reports lost and cancelled ones."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from holdfast.core.claim import DEFAULT_LEASE, Claim
from holdfast.engine.aio.service import Service
from holdfast.engine.claims.claims import Claims, Renewed

# Two renewals may fail in a row before a lease lapses.
BEATS_PER_LEASE = 3


class Heartbeat(Service):
    """Renews each claim, not the process: a claim that is not held here is not renewed.

    `on_lost` is called once for a claim that could not be renewed. The worker must stop working on it.
    """

    def __init__(
        self,
        claims: Claims,
        *,
        on_lost: Callable[[Claim], None],
        on_cancelled: Callable[[Claim], None],
        lease: timedelta = DEFAULT_LEASE,
    ) -> None:
        super().__init__(every_s=lease.total_seconds() / BEATS_PER_LEASE)
        self._claims = claims
        self._on_lost = on_lost
        self._on_cancelled = on_cancelled
        self._held: dict[str, Claim] = {}

    def hold(self, claim: Claim) -> None:
        """Renew it from now on."""
        self._held[claim.run_id] = claim

    def let_go(self, claim: Claim) -> None:
        """Stop renewing the claim: its run has ended or was released. Safe if it is not held."""
        if self._holds(claim):
            del self._held[claim.run_id]

    def newest(self, claim: Claim) -> Claim:
        """The claim with its present lease; unchanged if it is not held here."""
        held = self._held.get(claim.run_id)
        return held if held is not None and held.fence == claim.fence else claim

    async def run_once(self) -> Renewed:
        renewed = await self._claims.renew(list(self._held.values()))
        for claim in renewed.held:
            if self._holds(claim):  # it may have been released during the renewal
                self._held[claim.run_id] = claim
        for claim in renewed.lost:
            if self._holds(claim):
                self.let_go(claim)
                self._on_lost(claim)
        for claim in renewed.held:
            if claim.task_id in renewed.cancelled_task_ids and self._holds(claim):
                self._on_cancelled(claim)
        return renewed

    def _holds(self, claim: Claim) -> bool:
        held = self._held.get(claim.run_id)
        return held is not None and held.fence == claim.fence
