"""Rows of effects, and the order of values in guarded statements."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.effect import Effect, EffectClass, decode_request
from holdfast.core.errors import RowDamaged
from holdfast.core.payload import digest_of
from holdfast.core.step import Step
from holdfast.core.transitions import EffectStatus
from holdfast.store.contract import Row
from holdfast.store.rows.journal import STEP_COLUMNS
from holdfast.store.rows.reading import Params, digest_of_late, moment_of, reads
from holdfast.store.sealing import CLOSED, KEYED_BYTES, Sealing


@reads("effect")
def effect_from_row(row: Row, sealing: Sealing = CLOSED) -> Effect:
    if (
        digest_of(*row[:11]) != row[11]
        or digest_of_late(row[0], row[14]) != row[15]
        or digest_of_late(row[0], row[16]) != row[17]
    ):
        raise RowDamaged("effect", row[0])
    # No digest covers these two. A time that no clock can have is damage, too, and raises here.
    for micros in (row[18], row[19]):
        moment_of(micros)
    return Effect(
        id=row[0],
        task_id=row[1],
        run_id=row[2],
        scope=row[3],
        name=row[4],
        occurrence=row[5],
        effect_class=EffectClass(row[6]),
        idempotency_key=row[7],
        generation=row[8],
        request=sealing.open(row[9], "effects.request", row[0]),
        created_us=row[10],
        status=EffectStatus(row[12]),
        fence=row[13],
        outcome=sealing.maybe_open(row[14], "effects.outcome", row[0]),
        review=row[16],
        settle_us=row[18],
        updated_us=row[19],
    )


# The columns that are written when an effect is done.
FINISH_COLUMNS = (
    *("outcome", "outcome_digest", "now"),
    *("task_id", "scope", "name", "occurrence", "generation", "run_id", "fence"),
)


@reads("effect")
def step_from_effect_row(row: Row, sealing: Sealing = CLOSED) -> Step:
    """The step that a finished effect stands for. Raises RowDamaged."""
    return effect_from_row(row, sealing).as_step()


# The columns that are written when an effect begins.
INTENT_COLUMNS = (
    *("id", "task_id", "run_id", "scope", "name", "occurrence", "effect_class", "idempotency_key"),
    *("generation", "request", "created_at", "digest", "fence", "settle_after"),
)


# The statements of every step and every effect, with the order of their values: they are frequent enough for
# positional values to matter.
IN_ORDER = {
    "save_step": (*STEP_COLUMNS, "fence"),
    "begin_effect": INTENT_COLUMNS,
    "begin_effect_outside": INTENT_COLUMNS,
    "finish_effect": FINISH_COLUMNS,
}


def intent_from_effect(effect: Effect, sealing: Sealing) -> tuple[Any, ...]:
    """In the order of INTENT_COLUMNS."""
    row = (
        effect.id,
        effect.task_id,
        effect.run_id,
        effect.scope,
        effect.name,
        effect.occurrence,
        effect.effect_class.value,
        effect.idempotency_key,
        effect.generation,
        sealing.seal(effect.request, "effects.request", effect.id),
        effect.created_us,
    )
    return (*row, digest_of(*row), effect.fence, effect.settle_us)


def sealed_outcome(effect: Effect, outcome: bytes | None, sealing: Sealing) -> bytes | None:
    """The outcome of an effect, as it is stored."""
    return sealing.maybe(outcome, "effects.outcome", effect.id, of_secret=_was_given_secret(effect))


def _was_given_secret(effect: Effect) -> bool:
    try:
        return len(decode_request(effect.request).input_digest) == 2 * KEYED_BYTES
    except msgspec.DecodeError:
        return False  # reading the row raises the error


def row_from_effect(effect: Effect, sealing: Sealing) -> Params:
    outcome = sealed_outcome(effect, effect.outcome, sealing)
    return dict(zip(INTENT_COLUMNS, intent_from_effect(effect, sealing), strict=True)) | {
        "status": effect.status.value,
        "outcome": outcome,
        "outcome_digest": digest_of_late(effect.id, outcome),
        "review": effect.review,
        "review_digest": digest_of_late(effect.id, effect.review),
        "updated_at": effect.updated_us,
    }
