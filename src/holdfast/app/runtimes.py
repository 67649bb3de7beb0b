"""The runtimes of a process: those of Holdfast, and those of installed plug-ins."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.app.parts import Parts
    from holdfast.config import Settings
    from holdfast.core.clock import Clock
    from holdfast.engine.producers.contract import Runtime
    from holdfast.store import Store

log = logging.getLogger("holdfast")
# A plug-in names a function of no arguments that returns its runtime.
GROUP = "holdfast.runtimes"
# In the home: where outside schedulers leave a line about each firing.
CRON_HISTORY = "cron-history"
# A gateway on the same ledger may have runtimes that a script has not; it stops recorded work at once.
FOR_A_GATEWAY = timedelta(minutes=1)


def build_runtimes(store: Store, clock: Clock, home: Path) -> list[Runtime]:
    """Plug-ins first: they know their own tasks. One that cannot be loaded is reported and left out."""
    # Imported late: it brings forty modules, and most programs record no work.
    from importlib.metadata import entry_points

    from holdfast.engine.ledger.ledger import Ledger
    from holdfast.runtimes.cli import CliRuntime
    from holdfast.runtimes.cron import CronRuntime, FileHistory
    from holdfast.runtimes.subagent import SubagentRuntime

    found: list[Runtime] = []
    for point in entry_points(group=GROUP):
        try:
            found.append(point.load()())
        except Exception:  # the plug-in is not our code and may raise anything
            log.exception("the runtime %s (%s) could not be loaded, and is left out", point.name, point.value)
    cron = CronRuntime(FileHistory(home / CRON_HISTORY))
    return [*found, CliRuntime(), cron, SubagentRuntime(store, Ledger(store, clock))]


def runtimes_of(
    parts: Parts, settings: Settings, given: Sequence[Runtime]
) -> Callable[[], Sequence[Runtime]]:
    """Those of a process without doors; built when first needed, because plug-ins take a while."""
    return functools.cache(lambda: [*given, *build_runtimes(parts.store, parts.clock, settings.home)])


async def stop_cancelled_work(store: Store, clock: Clock, home: Path) -> None:
    """Ask the runtimes of this machine, as a gateway does, to stop recorded work whose task was cancelled."""
    from holdfast.engine.producers.stopper import Stopper

    runtimes = build_runtimes(store, clock, home)
    await Stopper(store, clock, lambda: runtimes).run_once()
