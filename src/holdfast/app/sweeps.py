"""Builds the sweep of a process: with its runtimes, the history of schedules, and the sweeps of plug-ins."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, TypeVar

from holdfast.core.errors import Refused

if TYPE_CHECKING:
    from holdfast.config.sections import UpkeepSettings
    from holdfast.core.claim import Boot
    from holdfast.core.clock import Clock
    from holdfast.engine.clocks.jump_watch import ClockWatch
    from holdfast.engine.producers.contract import Runtime
    from holdfast.store import Store, Tx, Write
    from holdfast.store.contract import Reader
    from holdfast.upkeep.plugins import PluginSweep
    from holdfast.upkeep.sweep import Sweep

T = TypeVar("T")

log = logging.getLogger("holdfast")
# A plug-in names a function of no arguments that returns its sweep.
GROUP = "holdfast.sweeps"


def build_sweep(
    store: Store,
    clock: Clock,
    runtimes: Sequence[Runtime],
    settings: UpkeepSettings,
    *,
    has_died: Callable[[Boot], bool],
    watch: ClockWatch | None = None,
) -> Sweep:
    from holdfast.upkeep.cron_history import FiringHistory
    from holdfast.upkeep.proofs import RuntimeProofs
    from holdfast.upkeep.sweep import Sweep

    return Sweep(
        store,
        clock,
        proofs=RuntimeProofs([*runtimes, FiringHistory(store)]),
        watch=watch,
        has_died=has_died,
        plugins=load_plugin_sweeps(),
        lost_after=timedelta(seconds=settings.lost_after_s),
        limits=settings.limits,
        every_s=settings.sweep_every_s,
    )


class ReadingStore:
    """A store that only reads: enough to audit, to plan a sweep, and to ask runtimes about work."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.clock = reader.clock

    async def read(self, read: Callable[[Tx], T]) -> T:
        return self._reader.read_now(read)

    async def write(self, write: Write[T]) -> T:
        raise Refused(f"{write} is not made: the ledger was opened for reading")


def load_plugin_sweeps() -> list[PluginSweep]:
    """One that cannot be loaded is reported and left out."""
    found: list[PluginSweep] = []
    for point in entry_points(group=GROUP):
        try:
            found.append(point.load()())
        except Exception:  # the plug-in is not our code and may raise anything
            log.exception("the sweep %s (%s) could not be loaded, and is left out", point.name, point.value)
    return found
