"""Hold: why interrupted work is not resumed for now, and the command that releases it."""

from __future__ import annotations

import msgspec

# What an operator runs after checking the cause.
ACCEPT = "holdfast store accept"
RESUME = "holdfast gateway resume"


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """One reason; there may be several, and an operator must release each."""

    why: str
    remedy: str
