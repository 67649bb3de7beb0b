"""Effects of an earlier task of an item that its next task finds as done, after a restore that keeps them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.core.campaign import ItemPhase
from holdfast.core.errors import Refused
from holdfast.core.ids import TaskId
from holdfast.core.step import Step
from holdfast.core.transitions import EffectStatus
from holdfast.store import Tx
from holdfast.store.blobs import pack

_HAPPENED = frozenset({EffectStatus.DONE, EffectStatus.CONFIRMED})


def kept_effects(tx: Tx, row: ItemPhase) -> list[Step] | None:
    """The steps that the next task of this item begins with; None if no restore kept any.

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
        return [
            msgspec.structs.replace(step, result=tx.blobs.open(step.result))
            for step in (
                effect.as_step() for effect in tx.effects.of_task(earlier) if effect.status in _HAPPENED
            )
        ]
    except ValueError as error:
        raise Refused(f"the effects of {earlier} cannot be read, so they are not kept: {error}") from error


def put_effects(tx: Tx, task_id: TaskId, steps: Sequence[Step]) -> None:
    """Give them to the task, which is new."""
    for step in steps:
        stored = tx.blobs.keep(task_id, pack(step.result, tx.sealing))
        tx.journal.put_step(msgspec.structs.replace(step, task_id=task_id, result=stored))
