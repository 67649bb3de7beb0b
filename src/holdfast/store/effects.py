"""Reads and writes of intents, outcomes and reviews."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from holdfast.core.claim import Claim
from holdfast.core.clock import to_micros
from holdfast.core.effect import Effect
from holdfast.core.errors import ClaimLost, IllegalMove, NotFound, RowDamaged
from holdfast.core.ids import EffectId
from holdfast.core.payload import digest_of
from holdfast.core.transitions import EffectStatus, sources_of
from holdfast.store.contract import Row
from holdfast.store.rows.effects import (
    INTENT_COLUMNS,
    effect_from_row,
    intent_from_effect,
    row_from_effect,
    sealed_outcome,
)
from holdfast.store.rows.reading import digest_of_late
from holdfast.store.sealing import Sealing
from holdfast.store.tasks import resolve

if TYPE_CHECKING:
    from holdfast.store.transaction import Tx


# Positions of columns in a row.
_DIGEST, _OUTCOME = 11, 14


class BeginEffect(msgspec.Struct, frozen=True, gc=False):
    """Records the intent of an effect with one guarded statement."""

    is_joined: ClassVar[bool] = True
    is_crowd: ClassVar[bool] = False
    when_done: ClassVar[bool] = True
    effect: Effect
    row: Row
    statement: str

    def __call__(self, tx: Tx) -> bool:
        """False when another effect has its id or its key. Raises ClaimLost when the run is no longer held.

        True also when it was recorded before, in a commit whose answer was lost.
        """
        if tx.statements.guarded(self.statement, self.row):
            return True
        effect, params = self.effect, dict(zip(INTENT_COLUMNS, self.row, strict=True))
        found = tx.statements.one("find_effect", params)
        if found is None or not tx.journal.holds(effect.run_id, effect.task_id, effect.fence):
            raise ClaimLost(effect.run_id, effect.fence)
        effect_from_row(found, tx.sealing)  # raises when it is damaged
        return bool(found[_DIGEST] == params["digest"])


def beginning_effect(effect: Effect, sealing: Sealing) -> BeginEffect:
    # Outside turns there is no turn that could have finished before, so that check is left out.
    statement = "begin_effect" if effect.scope else "begin_effect_outside"
    return BeginEffect(effect, intent_from_effect(effect, sealing), statement)


class FinishEffect(msgspec.Struct, frozen=True, gc=False):
    """Records the outcome of an effect that succeeded; from then on the effect is its own step."""

    is_joined: ClassVar[bool] = True
    is_crowd: ClassVar[bool] = False
    when_done: ClassVar[bool] = True
    statement: ClassVar[str] = "finish_effect"
    effect: Effect
    row: Row

    @property
    def name(self) -> str:
        """The name of its step."""
        return self.effect.name

    def __call__(self, tx: Tx) -> bool:
        """False when the claim is lost, or the effect was settled in another way."""
        if tx.statements.guarded("finish_effect", self.row):
            return True
        row = tx.statements.one("find_effect", _key(self.effect))
        if row is None:
            return False
        found = effect_from_row(row, tx.sealing)
        # The same write: it ran before, in a commit whose answer was lost.
        return found.status is EffectStatus.DONE and (row[_OUTCOME], found.updated_us) == (
            self.row[0],
            self.row[2],
        )


def finishing_effect(
    effect: Effect, claim: Claim, outcome: bytes, micros: int, sealing: Sealing
) -> FinishEffect:
    sealed = sealed_outcome(effect, outcome, sealing)
    row = (
        sealed,
        digest_of(effect.id, sealed),
        micros,
        effect.task_id,
        effect.scope,
        effect.name,
        effect.occurrence,
        effect.generation,
        claim.run_id,  # not the effect's: an earlier run may have begun it
        claim.fence,
    )
    return FinishEffect(effect, row)


def _key(effect: Effect) -> dict[str, Any]:
    return {
        "task_id": effect.task_id,
        "scope": effect.scope,
        "name": effect.name,
        "occurrence": effect.occurrence,
        "generation": effect.generation,
    }


class EffectTable:
    """Find effects by key. By id you find only those that failed or whose outcome is or was unknown."""

    noun = "effect"

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._sql = tx.statements
        self._sealing = tx.sealing

    def create(self, effect: Effect) -> Effect:
        """Store it; if an effect with its key exists, return that one instead."""
        if self._sql.one("insert_effect", row_from_effect(effect, self._sealing)) is not None:
            return effect
        return self.again(effect)

    def get(self, effect_id: str) -> Effect:
        row = self._sql.one("get_effect", {"id": effect_id})
        if row is None:
            raise NotFound("review", effect_id)
        return effect_from_row(row, self._sealing)

    def again(self, effect: Effect) -> Effect:
        """The stored effect with the same key, as it is now."""
        row = self._sql.one("find_effect", _key(effect))
        if row is None:
            raise NotFound(self.noun, effect.id)
        return effect_from_row(row, self._sealing)

    def begin(self, effect: Effect, claim: Claim) -> bool:
        """Record the intent under the claim's fence; returns and raises as BeginEffect does."""
        if effect.fence != claim.fence:
            effect = msgspec.structs.replace(effect, fence=claim.fence)
        return beginning_effect(effect, self._sealing)(self._tx)

    def settle(self, effect: Effect, to: EffectStatus, *, outcome: bytes | None, now: datetime) -> Effect:
        """Record how the effect ended, and return it. Settling it again in the same way changes nothing.

        Raises IllegalMove if the table of moves does not allow it; the guard is part of the UPDATE.
        """
        sealed = sealed_outcome(effect, outcome, self._sealing)
        params = _key(effect) | {
            "to": to.value,
            "sources": self._sql.pack(sources_of(to)),
            "outcome": sealed,
            "outcome_digest": digest_of_late(effect.id, sealed),
            "now": to_micros(now),
        }
        row = self._sql.one("settle_effect", params)
        if row is not None:
            return effect_from_row(row, self._sealing)
        found = self.again(effect)
        wanted = (effect.id, to, outcome, params["now"])
        if (found.id, found.status, found.outcome, found.updated_us) != wanted:
            raise IllegalMove(self.noun, effect.id, found.status.value, to.value)
        return found

    def set_review(self, effect_id: str, review: bytes, now: datetime) -> Effect:
        """Record a person's decision; a later decision replaces it."""
        params = {
            "id": effect_id,
            "review": review,
            "review_digest": digest_of_late(effect_id, review),
            "now": to_micros(now),
        }
        row = self._sql.one("review_effect", params)
        if row is None:
            raise NotFound(self.noun, effect_id)
        return effect_from_row(row, self._sealing)

    def unsettled(self, task_ids: Sequence[str]) -> dict[str, list[Effect]]:
        """For each task, the effects in its journal that are not done; tasks without any are left out."""
        found: dict[str, list[Effect]] = {}
        for row in self._sql.all("unsettled_effects", {"ids": self._sql.pack(task_ids)}):
            found.setdefault(row[1], []).append(effect_from_row(row, self._sealing))
        return found

    def reviews(self, limit: int = 50, after: str = "") -> list[Effect]:
        """Effects that wait for a person, oldest first; the last id of a page is the next page's token."""
        found = self._sql.all("effects_to_review", {"after": after, "limit": limit})
        return [effect_from_row(row, self._sealing) for row in found]

    def settled_among(self, keys: Sequence[str]) -> set[str]:
        """Those of these idempotency keys whose effect has a known outcome."""
        found = self._sql.all("settled_keys", {"keys": self._sql.pack(keys)})
        return {row[0] for row in found}

    def to_stop(self, keys: Sequence[str]) -> list[Effect]:
        """The open effects with these idempotency keys whose tasks are to be cancelled. Damaged ones are left
        out, so that they do not keep the others running."""
        found = []
        for row in self._sql.all("effects_to_stop", {"keys": self._sql.pack(keys)}):
            with contextlib.suppress(RowDamaged):
                found.append(effect_from_row(row, self._sealing))
        return found

    def of_task(self, task_id: str) -> list[Effect]:
        return [
            effect_from_row(row, self._sealing)
            for row in self._sql.all("effects_of_task", {"task_id": task_id})
        ]

    def of_tasks(self, task_ids: Sequence[str]) -> dict[str, list[Effect]]:
        """The same for several tasks; tasks without any are left out."""
        found: dict[str, list[Effect]] = {}
        for row in self._sql.all("effects_of_tasks", {"ids": self._sql.pack(task_ids)}):
            found.setdefault(row[1], []).append(effect_from_row(row, self._sealing))
        return found

    def has_any(self, task_ids: Sequence[str]) -> bool:
        """Whether one of these tasks has an effect, also a damaged one."""
        return self._sql.one("any_effect_of_tasks", {"ids": self._sql.pack(task_ids)}) is not None

    def past_of_scope(self, task_id: str, scope: str) -> list[Effect]:
        """The finished effects of a committed turn; the newest generation of each last."""
        found = self._sql.all("past_effects_of_scope", {"task_id": task_id, "scope": scope})
        return [effect_from_row(row, self._sealing) for row in found]

    def newest_of_task(self, task_id: str, *, limit: int) -> list[Effect]:
        """Newest first, for displaying a task that may have very many."""
        found = self._sql.all("newest_effects_of_task", {"task_id": task_id, "limit": limit})
        return [effect_from_row(row, self._sealing) for row in found]

    def resolve(self, prefix: str) -> EffectId:
        """The one id with this prefix. Errors call it a review, because people know effects by reviews."""
        return EffectId(resolve(self._tx, "review", "find_effects", prefix))
