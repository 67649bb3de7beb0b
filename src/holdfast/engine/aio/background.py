"""Background work that runs while a body of code runs, and ends with it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Protocol

log = logging.getLogger("holdfast")


class BackgroundWork(Protocol):
    async def run(self) -> None:
        """Until told to stop; complete when it returns."""
        ...

    def stop(self) -> None: ...

    def hurry(self) -> None:
        """Stop at once."""
        ...


@contextlib.asynccontextmanager
async def beside(work: BackgroundWork) -> AsyncIterator[None]:
    """Run the work while the body runs, and stop it when the body ends; it is complete on return.

    What the body raises is raised, also if it is cancelled; a second cancel makes the work hurry. If the work
    itself fails, the body is cancelled, and the error of the work is raised.
    """
    body = asyncio.current_task()
    assert body is not None
    working = asyncio.get_running_loop().create_task(work.run(), name="holdfast work")
    is_over = has_broken = False

    def tell_body(working: asyncio.Task[None]) -> None:
        nonlocal has_broken
        if not is_over and (working.cancelled() or working.exception() is not None):
            has_broken = True
            body.cancel()

    working.add_done_callback(tell_body)
    raised: BaseException | None = None
    try:
        yield
    except GeneratorExit:
        working.cancel()
        raise
    except BaseException as error:  # noqa: BLE001 - raised again, once the work has ended
        raised = error
    is_over = True
    work.stop()
    while not working.done():
        try:
            await asyncio.wait([working])
        except asyncio.CancelledError as error:
            work.hurry()
            raised = raised or error
    broken = None if working.cancelled() else working.exception()
    if has_broken and body.uncancel() == 0 and isinstance(raised, asyncio.CancelledError | None):
        raised = None  # this function cancelled the body
    if raised is not None:
        if broken is not None:
            log.error("while it was being stopped: %s", broken)
        raise raised
    if broken is not None:
        raise broken
