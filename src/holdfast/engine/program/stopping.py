"""Stopping: what every Holdfast call raises once its run must stop in this process."""

from __future__ import annotations

import asyncio


class Stopping(asyncio.CancelledError):
    """The run is being drained, paused, cancelled or unloaded. Let it pass: what was saved is saved.

    A CancelledError, so that `except Exception` does not catch it and task groups unwind as usual.
    """

    def __init__(self, reason: str = "stopping") -> None:
        self.reason = reason
        super().__init__(f"the run stops here: {reason}; let this pass")
