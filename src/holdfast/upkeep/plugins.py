"""The sweeps of plug-ins: what a plug-in keeps beside the ledger is cleaned up in each pass, too."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

import msgspec

log = logging.getLogger("holdfast")

# A plug-in that takes longer is left until the next pass, so that it cannot hold up the others.
PATIENCE_S = 30.0


class PluginSweep(Protocol):
    """What a plug-in does in each pass. It is asked outside of any transaction, and may be asked twice."""

    @property
    def name(self) -> str:
        """For logs and reports."""
        ...

    async def sweep(self, *, is_dry_run: bool) -> Sequence[str]:
        """One sentence for each change that it made; in a dry run, that it would make."""
        ...


class PluginSwept(msgspec.Struct, frozen=True, kw_only=True):
    """What the sweep of one plug-in changed, or would change; or why it failed."""

    name: str
    changes: tuple[str, ...] = ()
    problem: str | None = None


async def sweep_plugins(plugins: Sequence[PluginSweep], *, is_dry_run: bool) -> list[PluginSwept]:
    """All of them, one after another. An error is logged and reported, and stops no other."""
    return [await _sweep_one(plugin, is_dry_run=is_dry_run) for plugin in plugins]


async def _sweep_one(plugin: PluginSweep, *, is_dry_run: bool) -> PluginSwept:
    name = type(plugin).__name__
    try:
        name = plugin.name
        async with asyncio.timeout(PATIENCE_S):
            changes = tuple(str(one) for one in await plugin.sweep(is_dry_run=is_dry_run))
    except Exception as error:  # noqa: BLE001 - the code of a plug-in: one must not stop the pass
        log.warning(
            "the sweep of the plug-in %s failed, and is tried again in the next pass: %r", name, error
        )
        return PluginSwept(name=name, problem=f"{type(error).__name__}: {error}")
    return PluginSwept(name=name, changes=changes)
