"""Hold: why interrupted work is not resumed for now, and the command that ends that."""

from __future__ import annotations

import msgspec

# What a person says after a look.
ACCEPT = "holdfast store accept"
RESUME = "holdfast gateway resume"


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """One reason; there may be several, and each must be ended."""

    why: str
    remedy: str
