"""Effect classes and Effect: a step that changes the outside world, noted before and after."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from holdfast.core.ids import EffectId, RunId, TaskId
from holdfast.core.transitions import EffectStatus


class EffectClass(StrEnum):
    READ = "read"
    IDEMPOTENT = "idempotent"
    KEYED = "keyed"
    VERIFIABLE = "verifiable"
    TRANSACTIONAL = "transactional"
    OPAQUE = "opaque"


class Effect(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The durable note that an effect is about to happen, and later how it ended."""

    id: EffectId
    task_id: TaskId
    run_id: RunId
    scope: str = ""
    name: str
    occurrence: str = "1"
    effect_class: EffectClass
    idempotency_key: str
    generation: int = 1
    request: bytes
    created_at: datetime
    status: EffectStatus = EffectStatus.INTENT
    fence: int
    outcome: bytes | None = None
    # The decision of a person about an effect whose outcome is unknown.
    review: bytes | None = None
    settle_after: datetime | None = None
    updated_at: datetime
