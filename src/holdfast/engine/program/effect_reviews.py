"""Effects that only a person can decide about: put before one, decided, and followed by the run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

import msgspec

from holdfast.core.claim import Claim
from holdfast.core.clock import to_micros
from holdfast.core.effect import NOT_APPROVED, Decision, Effect, EffectClass, Review
from holdfast.core.errors import IllegalMove
from holdfast.core.events import EventKind
from holdfast.core.ids import check_id
from holdfast.core.payload import check_name, check_text, encode_payload
from holdfast.core.step import Step
from holdfast.core.task import Failure
from holdfast.core.transitions import EffectStatus
from holdfast.engine.conversation.questions import wake_waiting
from holdfast.engine.journal.scopes import Key, TaskHistory
from holdfast.engine.ledger.inputs import check_choice
from holdfast.engine.program.steps import FREE, StepCall, StepRunner
from holdfast.store import Tx, Write
from holdfast.store.blobs import pack

# A fact in the failure of an effect: it is certain that nothing happened.
_CERTAIN = "did_not_happen"


class Compensated(Exception):
    """A person decided that the effect is undone, or not performed at all; the step failed."""


# Ledgers store the kind of a failure with its module, so it stays what it was when the class stood there.
Compensated.__module__ = "holdfast.engine.effects"
COMPENSATED = f"{Compensated.__module__}.{Compensated.__qualname__}"


# --- which failures leave doubt


def certain(failure: Failure) -> Failure:
    """Mark a failure as "nothing happened", so that the effect may be tried again."""
    return Failure(kind=failure.kind, message=failure.message, facts={**failure.facts, _CERTAIN: True})


def is_certain(effect: Effect) -> bool:
    """Whether it is known that a failed effect did not happen: its author, `verify` or a person says so."""
    failure = failure_in(effect)
    is_unperformed = failure.kind in ("not_begun", NOT_APPROVED)
    return effect.review is not None or is_unperformed or failure.facts.get(_CERTAIN) is True


def may_have_happened(effect: Effect) -> bool:
    """Whether a failed effect may have happened all the same, and no person has decided about it yet."""
    is_free = effect.effect_class in (EffectClass.TRANSACTIONAL, *FREE)
    return effect.status is EffectStatus.FAILED and not is_free and not is_certain(effect)


def failure_in(effect: Effect) -> Failure:
    if effect.outcome is None:
        return Failure(kind="failed", message="nothing is known of how it failed")
    return msgspec.json.decode(effect.outcome, type=Failure)


def failed_unsurely(past: TaskHistory, keys: Iterable[Key]) -> list[Effect]:
    """Of these steps, the opaque effects that raised although they may have happened.

    Effects of finished turns are left out: the program went on from them, and they are not replayed.
    """
    found = [past.effects[key] for key in dict.fromkeys(keys) if key in past.effects and past.find(key)]
    return [effect for effect in found if is_in_doubt_once_failed(effect)]


def is_in_doubt_once_failed(effect: Effect) -> bool:
    """Whether it failed, and only a person can tell whether it happened all the same."""
    return effect.effect_class is EffectClass.OPAQUE and may_have_happened(effect)


# --- putting an effect before a person


def doubt(tx: Tx, effect: Effect, failure: Failure, now: datetime) -> Effect:
    """Ask a person what came of it. Changes nothing if a person was asked, or has decided, already."""
    found = tx.effects.again(effect)
    if found.status is EffectStatus.UNKNOWN or found.review is not None:
        return found
    why = failure.message
    tx.emit(EventKind.EFFECT_IN_DOUBT, effect.id, at=now, task_id=effect.task_id, step=effect.name, why=why)
    return tx.effects.settle(effect, EffectStatus.UNKNOWN, outcome=msgspec.json.encode(failure), now=now)


def unapproved(effect_class: EffectClass) -> Failure:
    """Why an effect that the policies hold back waits for a person."""
    message = (
        f"it was not performed yet: policies.approval asks a person before each {effect_class.value} effect; "
        "`retry` performs it, `skip` leaves it out, `compensate` fails its step"
    )
    return Failure(kind=NOT_APPROVED, message=message)


def doubting(effect: Effect, claim: Claim, beside: Iterable[Key], now: datetime) -> Callable[[Tx], None]:
    """The part of a write that puts a failed opaque effect before a person.

    It forgets the step that failed: the decision takes its place.
    """
    failure = failure_in(effect)
    why = (
        f"it raised {failure.kind}: {failure.message}, and the task did not go on from that error; "
        "the effect may have happened all the same"
    )
    in_doubt = Failure(kind="unknown", message=why, facts={**failure.facts, "raised": failure.kind})

    def put_in_doubt(tx: Tx) -> None:
        for key in (effect.key, *beside):
            tx.journal.forget_step(claim, *key)
        doubt(tx, effect, in_doubt, now)

    return put_in_doubt


# --- the decision, and what the run makes of it


def resolving(
    effect_id: str,
    decision: Decision,
    *,
    by: str,
    now: datetime,
    result: object = None,
    note: str = "",
) -> Write[Effect]:
    """The write by which a person settles an effect whose outcome is unknown, and its run goes on."""
    check_id("effect", effect_id)
    decision = check_choice("decision", decision, Decision)
    review = Review(
        decision=decision, by=check_name("by", by), at=now, note=check_text("note", note, may_be_empty=True)
    )
    payload = encode_payload("result", result)
    encoded = msgspec.json.encode(review)

    def resolve(tx: Tx) -> Effect:
        effect = tx.effects.get(effect_id)
        if effect.review == encoded:  # the write runs a second time after its own commit
            return effect
        if effect.status is not EffectStatus.UNKNOWN:
            raise IllegalMove("effect", effect_id, effect.status.value, decision.value)
        packed = pack(payload, tx.sealing)
        is_done = decision is Decision.DONE
        to = EffectStatus.CONFIRMED if is_done else EffectStatus.FAILED
        settled = tx.effects.settle(effect, to, outcome=packed.stored if is_done else effect.outcome, now=now)
        tx.effects.set_review(effect_id, encoded, now=now)
        if decision in (Decision.DONE, Decision.SKIP):
            tx.blobs.keep(effect.task_id, packed)
            tx.journal.put_step(_reviewed_step(effect, packed.stored, now))
        tx.emit(
            EventKind.EFFECT_REVIEWED,
            effect_id,
            at=now,
            task_id=effect.task_id,
            decision=decision.value,
            by=by,
            step=effect.name,
        )
        wake_waiting(tx, effect.task_id, f"review:{effect_id}", now)
        return msgspec.structs.replace(settled, review=encoded)

    return resolve


def _reviewed_step(effect: Effect, result: bytes, now: datetime) -> Step:
    return Step(
        task_id=effect.task_id,
        scope=effect.scope,
        name=effect.name,
        occurrence=effect.occurrence,
        run_id=effect.run_id,
        seq=to_micros(now),
        # None: the decision holds even if the program now calls the step with other arguments.
        input_digest=None,
        result=result,
        started_us=effect.created_us,
        ended_us=to_micros(now),
    )


async def follow_review(stepper: StepRunner, doing: StepCall, effect: Effect) -> None:
    """Returns if the effect may be done again. Raises StepFailed if a person chose to compensate it, after
    its `compensate` function has run."""
    review = None if effect.review is None else msgspec.json.decode(effect.review, type=Review)
    if review is None or review.decision is not Decision.COMPENSATE:
        return
    if effect.is_unapproved:  # there is nothing to undo
        raise await stepper.failed(doing, Compensated("a person did not approve it; it was not performed"))
    compensate = doing.options.compensate
    if compensate is not None:
        await stepper.call_instead(compensate, doing, f"{effect.idempotency_key}-compensation")
    message = "it was compensated" if compensate is not None else "a person compensated it"
    raise await stepper.failed(doing, Compensated(message))
