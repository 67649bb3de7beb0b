"""The effects of some items: those of their tasks, and of all tasks that these have started."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from holdfast.core.effect import Effect
from holdfast.store import Tx


class ItemEffects(msgspec.Struct, frozen=True, kw_only=True):
    # Each with the task of its item.
    found: Sequence[tuple[str, Effect]]
    # Tasks of items that are no longer in the ledger: it is not known what they did.
    gone: Sequence[str]

    @property
    def all(self) -> list[Effect]:
        return [effect for _, effect in self.found]


def effects_of_items(tx: Tx, task_ids: Collection[str]) -> ItemEffects:
    """By the tasks of the items. Raises RowDamaged."""
    roots = {one.task_id: one.root_id for one in tx.tasks.families(sorted(task_ids))}
    found = tx.effects.of_tasks(list(roots))
    return ItemEffects(
        found=[(roots[task_id], effect) for task_id, some in found.items() for effect in some],
        gone=sorted(set(task_ids).difference(roots)),
    )


def has_effects(tx: Tx, task_id: str) -> bool:
    """Whether the task of an item, or one that it started, has any, whatever became of them."""
    return tx.effects.has_any([one.task_id for one in tx.tasks.families([task_id])])
