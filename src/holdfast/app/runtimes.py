"""The runtimes of a gateway: those of Holdfast, and those of installed plug-ins."""

from __future__ import annotations

import logging
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.app.parts import Parts
    from holdfast.engine.producers.contract import Runtime

log = logging.getLogger("holdfast")
# A plug-in names a function of no arguments that returns its runtime.
GROUP = "holdfast.runtimes"


def build_runtimes(parts: Parts) -> list[Runtime]:
    """Plug-ins first: they know their own tasks. One that cannot be loaded is reported and left out."""
    from holdfast.runtimes.cli import CliRuntime
    from holdfast.runtimes.subagent import SubagentRuntime

    found: list[Runtime] = []
    for point in entry_points(group=GROUP):
        try:
            found.append(point.load()())
        except Exception:
            log.exception("the runtime %s (%s) could not be loaded, and is left out", point.name, point.value)
    return [*found, CliRuntime(), SubagentRuntime(parts.store, parts.ledger)]
