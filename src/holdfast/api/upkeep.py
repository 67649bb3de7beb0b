"""Upkeep for the API and the CLI: audit the ledger, and preview or apply a sweep."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from holdfast.api.params import PageSize, Params
from holdfast.core.errors import Refused
from holdfast.core.finding import FindingCode, Severity
from holdfast.upkeep.audit import TaskCounts
from holdfast.views.upkeep import AuditFiltersView, AuditView, MaintenanceView

if TYPE_CHECKING:
    from holdfast.api.contract import Caller, GatewayDoor
    from holdfast.store import Store
    from holdfast.upkeep.sweep import Sweep


class FindingsAsked(Params, frozen=True, kw_only=True):
    """Findings of an audit, errors first: all, or those of a code or a severity."""

    code: FindingCode | None = None
    severity: Severity | None = None
    limit: PageSize = 50

    @property
    def filters(self) -> AuditFiltersView:
        return AuditFiltersView(code=self.code, severity=self.severity, limit=self.limit)


class MaintenanceAsked(Params, frozen=True, kw_only=True):
    """A sweep; unless `isDryRun` is false, only its preview."""

    is_dry_run: bool = True


async def read_audit(gateway: GatewayDoor, asked: FindingsAsked, caller: Caller) -> AuditView:  # noqa: ARG001 - the signature of every method
    return AuditView.of(await gateway.sweep.audit(), asked.filters)


async def maintain_ledger(gateway: GatewayDoor, asked: MaintenanceAsked, caller: Caller) -> MaintenanceView:  # noqa: ARG001 - the signature of every method
    return await maintain(gateway.sweep, gateway.store, is_dry_run=asked.is_dry_run)


async def maintain(sweep: Sweep, store: Store, *, is_dry_run: bool) -> MaintenanceView:
    """Make a plan, and apply exactly this plan unless it is a dry run. Raises Refused if resumes are held."""
    before, plan = await sweep.audit(), await sweep.plan()
    if is_dry_run:
        plugins = await sweep.preview_plugins()
        return MaintenanceView.preview(plan, plugins, await store.read(TaskCounts.of), before)
    held = await asyncio.to_thread(store.held_why)
    if held is not None:
        raise Refused(
            f"the ledger is not swept while resumes are held ({held}); if the database is older on purpose, "
            "run `holdfast store accept`"
        )
    swept = await sweep.apply(plan)
    counts = await store.read(TaskCounts.of)
    return MaintenanceView.applied(plan, swept, counts, before, await sweep.audit())
