"""Service: tells the items of campaigns which step their tasks saved last, in one write for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from holdfast.core.clock import Clock
from holdfast.core.step import Step
from holdfast.engine.aio.service import Service
from holdfast.engine.program.live_run import LiveRun
from holdfast.store import Store, Tx

EVERY_S = 5.0
# The largest batch in one write: a longer one would hold up other writes.
MOST_AT_ONCE = 500


class SavedSteps(Service):
    """No step waits for it, and a task without a campaign costs nothing.

    A process that is killed loses at most what it saved since the last pass, and only here: the journal has
    the steps, and the next run tells the last of them when it has replayed it. The end of a task tells its
    last step itself.
    """

    def __init__(self, store: Store, clock: Clock, *, runs: Callable[[], Iterable[LiveRun]]) -> None:
        """`runs` are those that are executed here now."""
        super().__init__(every_s=EVERY_S)
        self._store = store
        self._clock = clock
        self._runs = runs
        # Runs that wait for something since the last pass, or go on elsewhere.
        self._left: list[LiveRun] = []

    def left(self, live: LiveRun) -> None:
        """It is no longer executed here."""
        if _untold(live) is not None:
            self._left.append(live)

    async def run_once(self) -> int:
        """One pass; how many items it told."""
        left = self._left[:]
        untold = [(one, step) for one in (*left, *self._runs()) if (step := _untold(one)) is not None]
        for first in range(0, len(untold), MOST_AT_ONCE):
            await self._tell(untold[first : first + MOST_AT_ONCE])
        del self._left[: len(left)]
        return len(untold)

    async def _tell(self, some: Sequence[tuple[LiveRun, Step]]) -> None:
        from holdfast.core.campaign import action_of  # most processes carry no campaign

        now = self._clock.now()
        steps: dict[str, tuple[str, datetime]] = {
            one.task.id: (action_of(step.name), step.ended_at) for one, step in some
        }

        def tell(tx: Tx) -> None:
            tx.item_phases.tell_steps(steps, now=now)

        await self._store.write(tell)
        for one, step in some:
            one.told_step = step


def _untold(live: LiveRun) -> Step | None:
    """The last saved step, if the task does an item of a campaign, and the item does not show it yet."""
    is_told = live.task.campaign_id is None or live.last_step is live.told_step
    return None if is_told else live.last_step
