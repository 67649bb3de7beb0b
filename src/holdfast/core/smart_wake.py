"""SmartWake and its sums: whether a run will reach its time limit, when it must stop, when it is woken."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from enum import StrEnum

import msgspec

from holdfast.core.errors import BadInput
from holdfast.core.plan import Plan

# A chunk is at least and at most so long, unless the settings say otherwise.
_SHORTEST_CHUNK = timedelta(minutes=5)
_LONGEST_CHUNK = timedelta(minutes=15)
# From so many runs on, queued and running, a wake comes as late as it may.
FULL_LOAD = 100


class SmartWake(StrEnum):
    """What happens when a run reaches its time limit."""

    # It is saved and woken if it was expected to take that long, or if it makes progress.
    AUTO = "auto"
    # It is saved and woken.
    ALWAYS = "always"
    # It times out, and so does its task.
    NEVER = "never"


class WakeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How runs are saved before their time limit and woken later; tasks may set the first two themselves."""

    smart_wake: SmartWake = SmartWake.AUTO
    run_timeout: timedelta | None = None
    # The share of the limit that is left when the run is asked to stop.
    stop_before: float = 0.15
    # Preflight switches smart wake on if the estimate is above this share of the limit.
    on_above: float = 0.7
    # How often a run with smart wake records a checkpoint; None: from 5 to 15 minutes, by the limit.
    chunk: timedelta | None = None
    # How long after the save the wake is due, by load.
    delay_least: timedelta = timedelta(minutes=2)
    delay_most: timedelta = timedelta(minutes=10)

    def chunk_of(self, limit: timedelta) -> timedelta:
        """How often a run with this limit records a checkpoint."""
        if self.chunk is not None:
            return self.chunk
        return min(_LONGEST_CHUNK, max(_SHORTEST_CHUNK, limit / 4))

    def delay(self, load: int) -> timedelta:
        """How long after the save a run is woken, when so many others are queued or running."""
        share = min(1.0, max(0, load) / FULL_LOAD)
        return self.delay_least + (self.delay_most - self.delay_least) * share


def check_smart_wake(value: SmartWake | str) -> SmartWake:
    """Raises BadInput."""
    if value not in list(SmartWake):
        raise BadInput("smart_wake", f"one of auto, always and never is needed, not {value!r}")
    return SmartWake(value)


def estimated(earlier: Sequence[timedelta], plan: Plan | None) -> timedelta | None:
    """How long a run will probably take: as long as earlier tasks of its name, less what is done of its plan.
    None if nothing is known."""
    if not earlier:
        return None
    whole = sorted(earlier)[len(earlier) // 2]
    if plan is None or not plan.items:
        return whole
    left = sum(1 for item in plan.items if not item.is_done)
    return whole * (left / len(plan.items))


def is_expected(estimate: timedelta | None, limit: timedelta, options: WakeOptions) -> bool:
    """Whether a run will probably come near its limit. One of which nothing is known may."""
    return estimate is None or estimate > limit * options.on_above
