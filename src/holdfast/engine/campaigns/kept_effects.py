"""Effects of an earlier task of an item that its next task finds as done, after a restore that keeps them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from holdfast.core.campaign import ItemPhase
from holdfast.core.effect import Effect, decode_request
from holdfast.core.errors import Refused
from holdfast.core.ids import new_effect_id
from holdfast.core.run import RunRecord
from holdfast.core.seal_mode import SEALED
from holdfast.core.transitions import EffectStatus
from holdfast.store import Tx
from holdfast.store.blobs import pack

_HAPPENED = frozenset({EffectStatus.DONE, EffectStatus.CONFIRMED})


def kept_effects(tx: Tx, row: ItemPhase) -> list[Effect] | None:
    """The effects that the next task of this item begins with; None if no restore kept any.

    Raises Refused once if retention has removed them: the operator must know before they are repeated.
    """
    earlier = tx.campaign_restores.kept_effects(row)
    if earlier is None:
        return None
    tx.campaign_restores.forget_effects(row)
    if earlier not in tx.tasks.get_many([earlier]):
        raise Refused(
            f"retention removed {earlier}, whose effects a restore kept; a retry of this item does them again"
        )
    try:
        happened = [effect for effect in tx.effects.of_task(earlier) if effect.status in _HAPPENED]
        # The oldest generation first: of one key the last one counts.
        last = {
            effect.key: _opened(tx, effect) for effect in sorted(happened, key=lambda one: one.generation)
        }
    except ValueError as error:
        raise Refused(f"the effects of {earlier} cannot be read, so they are not kept: {error}") from error
    return list(last.values())


def _opened(tx: Tx, effect: Effect) -> Effect:
    """The effect with its outcome itself. Raises ValueError if Holdfast did not write its request."""
    decode_request(effect.request)
    outcome = None if effect.outcome is None else tx.blobs.open(effect.outcome)
    if SEALED in (effect.request, outcome):
        raise Refused(f"{effect.id} of {effect.task_id} is sealed with a key that is not here")
    return msgspec.structs.replace(effect, outcome=outcome)


def put_effects(tx: Tx, run: RunRecord, effects: Sequence[Effect]) -> None:
    """Give them to the task of this run, which is new, as its own: the next restore finds them there.

    They keep the idempotency keys under which they happened.
    """
    for effect in effects:
        outcome = effect.outcome
        if outcome is not None:
            outcome = tx.blobs.keep(run.task_id, pack(outcome, tx.sealing))
        digest = hashlib.blake2b(f"{run.task_id}\0{effect.id}".encode(), digest_size=16).hexdigest()
        tx.effects.create(
            msgspec.structs.replace(
                effect,
                id=new_effect_id(effect.created_us, digest),
                task_id=run.task_id,
                run_id=run.id,
                generation=1,
                status=EffectStatus.DONE,
                fence=run.fence,
                outcome=outcome,
                review=None,
                settle_us=None,
            )
        )
