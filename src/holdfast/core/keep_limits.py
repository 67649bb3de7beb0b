"""How much of the steps of a finished turn is kept."""

from __future__ import annotations

from typing import Final

# Up to this size, results of steps stay when their turn has committed; the settings may say otherwise.
KEEP_RESULTS_BYTES: Final = 16 * 1024
# The most that the settings may say: no view shows a longer result whole.
MAX_KEEP_RESULTS_BYTES: Final = 64 * 1024
# Of all steps of one turn: they may be thousands, and what they keep is written in one commit.
MAX_KEPT_OF_TURN_BYTES: Final = 1024 * 1024
