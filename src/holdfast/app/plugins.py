"""Installed plug-ins: each runs beside the gateway, with the tasks of one owner and no others."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from holdfast.engine.aio.service import Service

if TYPE_CHECKING:
    from holdfast.app.parts import Parts
    from holdfast.config.sections import Config
    from holdfast.engine.client.owner_tasks import OwnerTasks
    from holdfast.engine.producers.contract import Runtime

log = logging.getLogger("holdfast")
# A plug-in names a coroutine function that gets its tasks and runs until it returns or the gateway stops.
GROUP = "holdfast.plugins"
# After how long a plug-in that raised is called again.
AGAIN_IN_S = 30.0
# How long a plug-in may take to stop.
STOP_S = 5.0

Main = Callable[["OwnerTasks"], Awaitable[object]]


class PluginService(Service):
    """Service: calls one plug-in, again if it raises, and cancels it when the gateway stops."""

    def __init__(self, name: str, main: Main, tasks: OwnerTasks, *, again_in_s: float = AGAIN_IN_S) -> None:
        super().__init__(every_s=again_in_s)
        self.name = name
        self._main = main
        self._tasks = tasks

    async def run_once(self) -> bool:
        """Run the plug-in until it returns, raises or is stopped; True if it returned by itself."""
        running = asyncio.ensure_future(self._main(self._tasks))
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            running.cancel()
            await asyncio.wait({running}, timeout=STOP_S)
        if not running.done():
            log.warning("the plug-in %s did not stop in %g s, and is left behind", self.name, STOP_S)
            return False
        if running.cancelled():
            return False
        running.result()  # raises what the plug-in raised
        self.stop()
        return True


def build_plugins(
    parts: Parts, config: Config, runtimes: Sequence[Runtime], points: Sequence[EntryPoint] | None = None
) -> list[PluginService]:
    """One service for each plug-in that is installed and enabled. One that cannot be loaded is reported and
    left out."""
    found = []
    for point in entry_points(group=GROUP) if points is None else points:
        settings = config.plugins.get(point.name)
        if settings is not None and not settings.is_enabled:
            continue
        try:
            main = _load(point)
            tasks = _tasks_of(parts, runtimes, (settings and settings.owner) or f"plugin:{point.name}")
        except Exception:  # the plug-in is not our code and may raise anything
            log.exception("the plug-in %s (%s) could not be loaded, and is left out", point.name, point.value)
            continue
        found.append(PluginService(point.name, main, tasks))
    return found


def _load(point: EntryPoint) -> Main:
    main: Main = point.load()
    if not inspect.iscoroutinefunction(main):
        raise TypeError(f"{point.value} is not a coroutine function; write `async def main(tasks)`")
    return main


def _tasks_of(parts: Parts, runtimes: Sequence[Runtime], owner: str) -> OwnerTasks:
    from holdfast.engine.client.owner_tasks import OwnerTasks

    return OwnerTasks(parts.store, parts.clock, owner, runtimes=runtimes)
