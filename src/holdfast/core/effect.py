"""Effect classes and Effect: a step that changes the outside world, recorded before and after."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from holdfast.core.clock import from_micros
from holdfast.core.ids import EffectId, RunId, TaskId
from holdfast.core.seal_mode import SEALED
from holdfast.core.step import Step
from holdfast.core.task import Failure
from holdfast.core.transitions import EffectStatus


class EffectClass(StrEnum):
    READ = "read"
    IDEMPOTENT = "idempotent"
    KEYED = "keyed"
    VERIFIABLE = "verifiable"
    TRANSACTIONAL = "transactional"
    OPAQUE = "opaque"


# The kind of failure of an effect that is not performed before a person approves it.
NOT_APPROVED = "not_approved"


class Decision(StrEnum):
    """What a person decides about an effect whose outcome is unknown, or that needs approval."""

    DONE = "done"
    RETRY = "retry"
    SKIP = "skip"
    COMPENSATE = "compensate"


class Review(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A person's decision, kept with the effect."""

    decision: Decision
    by: str
    at: datetime
    note: str = ""


class Effect(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The durable record that an effect is about to happen, and later of how it ended."""

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
    # Times as stored. Every effect has three and they are rarely read, so they are converted on demand.
    created_us: int
    status: EffectStatus = EffectStatus.INTENT
    fence: int
    outcome: bytes | None = None
    # The decision of a person about an effect whose outcome is unknown.
    review: bytes | None = None
    settle_us: int | None = None
    updated_us: int

    @property
    def key(self) -> tuple[str, str, str]:
        """The key of its step."""
        return (self.scope, self.name, self.occurrence)

    @property
    def is_undone(self) -> bool:
        """Whether a person had it compensated. That happens once, and its step stays failed."""
        if self.review is None:
            return False
        return msgspec.json.decode(self.review, type=Review).decision is Decision.COMPENSATE

    @property
    def is_unapproved(self) -> bool:
        """Whether it was put before a person, or decided by one, without having been performed."""
        if self.status not in (EffectStatus.UNKNOWN, EffectStatus.FAILED):
            return False
        if self.outcome is None or self.outcome is SEALED:
            return False
        return msgspec.json.decode(self.outcome, type=Failure).kind == NOT_APPROVED

    @property
    def created_at(self) -> datetime:
        return from_micros(self.created_us)

    @property
    def settle_after(self) -> datetime | None:
        """From then on the worker that began it has certainly finished or died."""
        return None if self.settle_us is None else from_micros(self.settle_us)

    @property
    def updated_at(self) -> datetime:
        return from_micros(self.updated_us)

    def as_step(self) -> Step:
        """The step that this effect stands for: a finished effect needs no step record of its own.

        Raises ValueError when Holdfast did not write its request.
        """
        request = decode_request(self.request)
        digest = request.input_digest
        return Step(
            task_id=self.task_id,
            scope=self.scope,
            name=self.name,
            occurrence=self.occurrence,
            run_id=self.run_id,
            seq=self.updated_us,
            input_digest=bytes.fromhex(digest) if digest else None,
            result=b"null" if self.outcome is None else self.outcome,
            started_us=self.created_us,
            ended_us=self.updated_us,
            arguments=request.shown,
            is_effect=True,
        )


class EffectRequest(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """The call that the effect makes, as far as it may be stored, and the boot that made it.

    Stored as a list: every effect has one, and field names would take a third of the space.
    """

    boot: str = ""
    input_digest: str = ""
    shown: str = ""
    # The declared type of its result, shown to the person who must enter one; empty when none is declared.
    returns: str = ""


_decode_request = msgspec.json.Decoder(EffectRequest).decode


def decode_request(request: bytes) -> EffectRequest:
    """The stored request; `[sealed]` and nothing else when no key opens it. Raises DecodeError."""
    return EffectRequest(shown="[sealed]") if request is SEALED else _decode_request(request)
