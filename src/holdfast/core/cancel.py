"""CancelAnswer: what became of the cancel of one task."""

from __future__ import annotations

import msgspec


class CancelAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether the task exists, whether it is cancelled or will be, and otherwise why not."""

    found: bool
    cancelled: bool
    reason: str | None = None
