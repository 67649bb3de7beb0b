"""The public API: everything a user may import, and nothing else.

Each name is imported when it is first used, so that `import holdfast` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from holdfast.app import Parts, open_parts, open_store
    from holdfast.config import Settings, read_settings
    from holdfast.core.clock import Clock, SystemClock
    from holdfast.core.errors import (
        AmbiguousId,
        BadInput,
        CheckpointError,
        CheckpointNotSaved,
        CheckpointUnreadable,
        ClaimLost,
        Conflict,
        FeedGap,
        HoldfastError,
        HomeInUse,
        IllegalMove,
        KeyConflict,
        LedgerReplaced,
        NoLedger,
        NotFound,
        NotYours,
        OutcomeUnknown,
        PayloadTooLarge,
        Refused,
        ResumesHeld,
        RevisionMismatch,
        RowDamaged,
        SchemaMismatch,
        SettingsError,
        StoreUnavailable,
    )
    from holdfast.engine.boots import Life
    from holdfast.engine.checkpoints import Checkpoints
    from holdfast.engine.claims import Claims
    from holdfast.engine.ledger import Ledger, NewTask
    from holdfast.engine.rescue import Rescuer
    from holdfast.engine.resume import Resumer
    from holdfast.engine.steps import Journal

_ERRORS = (
    "AmbiguousId BadInput CheckpointError CheckpointNotSaved CheckpointUnreadable ClaimLost Conflict FeedGap "
    "HoldfastError HomeInUse IllegalMove KeyConflict LedgerReplaced NoLedger NotFound NotYours "
    "OutcomeUnknown PayloadTooLarge Refused ResumesHeld RevisionMismatch RowDamaged SchemaMismatch "
    "SettingsError StoreUnavailable"
)
_WHERE = {
    "Checkpoints": "holdfast.engine.checkpoints",
    "Claims": "holdfast.engine.claims",
    "Clock": "holdfast.core.clock",
    "Journal": "holdfast.engine.steps",
    "Ledger": "holdfast.engine.ledger",
    "Life": "holdfast.engine.boots",
    "NewTask": "holdfast.engine.ledger",
    "Parts": "holdfast.app",
    "Rescuer": "holdfast.engine.rescue",
    "Resumer": "holdfast.engine.resume",
    "Settings": "holdfast.config",
    "SystemClock": "holdfast.core.clock",
    "open_parts": "holdfast.app",
    "open_store": "holdfast.app",
    "read_settings": "holdfast.config",
} | dict.fromkeys(_ERRORS.split(), "holdfast.core.errors")


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "AmbiguousId",
    "BadInput",
    "CheckpointError",
    "CheckpointNotSaved",
    "CheckpointUnreadable",
    "Checkpoints",
    "ClaimLost",
    "Claims",
    "Clock",
    "Conflict",
    "FeedGap",
    "HoldfastError",
    "HomeInUse",
    "IllegalMove",
    "Journal",
    "KeyConflict",
    "Ledger",
    "LedgerReplaced",
    "Life",
    "NewTask",
    "NoLedger",
    "NotFound",
    "NotYours",
    "OutcomeUnknown",
    "Parts",
    "PayloadTooLarge",
    "Refused",
    "Rescuer",
    "Resumer",
    "ResumesHeld",
    "RevisionMismatch",
    "RowDamaged",
    "SchemaMismatch",
    "Settings",
    "SettingsError",
    "StoreUnavailable",
    "SystemClock",
    "__version__",
    "open_parts",
    "open_store",
    "read_settings",
]
