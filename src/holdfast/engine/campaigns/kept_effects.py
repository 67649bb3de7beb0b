"""Effects of an earlier task of an item that its next task finds as done, after a restore that keeps them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from holdfast.core.campaign import ItemPhase
from holdfast.core.effect import Effect, decode_request
from holdfast.core.errors import KeyLost, Refused
from holdfast.core.ids import new_effect_id
from holdfast.core.run import RunRecord
from holdfast.core.seal_mode import SEALED
from holdfast.core.transitions import EffectStatus
from holdfast.store import Tx
from holdfast.store.blobs import pack

_HAPPENED = frozenset({EffectStatus.DONE, EffectStatus.CONFIRMED})


def kept_effects(tx: Tx, row: ItemPhase) -> list[Effect] | None:
    """The effects that the next task of this item begins with; None if no restore kept any.

    If they cannot be read, raises Refused until the item has failed for that reason and is retried.
    """
    earlier = tx.campaign_restores.kept_effects(row)
    if earlier is None:
        return None
    try:
        effects = _effects_of(tx, earlier)
    except Refused as refused:
        if row.error != str(refused)[:500]:
            raise
        effects = []
    tx.campaign_restores.forget_effects(row)
    return effects


def _effects_of(tx: Tx, earlier: str) -> list[Effect]:
    """Raises Refused."""
    if earlier not in tx.tasks.get_many([earlier]):
        raise Refused(
            f"{earlier}, whose effects a restore kept, is no longer in the ledger; a retry of this item does "
            "them again"
        )
    try:
        happened = [effect for effect in tx.effects.of_task(earlier) if effect.status in _HAPPENED]
        # The oldest generation first: of one key the last one counts.
        last = {
            effect.key: _opened(tx, effect) for effect in sorted(happened, key=lambda one: one.generation)
        }
    except ValueError as error:
        raise Refused(
            f"the effects of {earlier}, which a restore kept, cannot be read ({error}); a retry of this item "
            "does them again"
        ) from error
    return list(last.values())


def _opened(tx: Tx, effect: Effect) -> Effect:
    """The effect with its outcome itself. Raises ValueError if Holdfast did not write its request."""
    decode_request(effect.request)
    outcome = None if effect.outcome is None else tx.blobs.open(effect.outcome)
    if SEALED in (effect.request, outcome):
        raise KeyLost("effect", f"{effect.id} of {effect.task_id}")
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
