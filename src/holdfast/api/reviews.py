"""Reviews for the API and the CLI: effects whose outcome is unknown, and decisions about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from holdfast.api.pages import place_of, read_sound
from holdfast.api.params import IdText, NameText, PageSize, PageToken, Params, ShortText, credited
from holdfast.api.tasks import SHOWN_AT_MOST
from holdfast.core.errors import BadInput, HoldfastError, IllegalMove, NotFound
from holdfast.core.events import EventKind
from holdfast.core.secret import refuse_references
from holdfast.core.transitions import EffectStatus
from holdfast.views.effects import (
    DecisionView,
    ResolvedView,
    ReviewDetailView,
    ReviewPageView,
    ReviewView,
    failure_view_of,
    misfit_of,
)
from holdfast.views.events import EventView
from holdfast.views.payloads import FailureView, PayloadView, failure_in
from holdfast.views.tasks import MAX_GOAL_CHARS
from holdfast.views.text import bounded
from holdfast.views.waits import what_next

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast.core.effect import Effect
    from holdfast.core.task import Task
    from holdfast.store.contract import Write
    from holdfast.store.transaction import Tx

# The events of a task that are about one of its effects.
EVIDENCE = frozenset({EventKind.EFFECT_IN_DOUBT, EventKind.EFFECT_SEEN_LATE, EventKind.EFFECT_REVIEWED})
EVENTS_READ = 10_000


class ReviewsAsked(Params, frozen=True, kw_only=True):
    """Effects that wait for a decision, oldest first."""

    limit: PageSize = 50
    # The `nextPageToken` of the previous page.
    page_token: PageToken | None = None


class ReviewAsked(Params, frozen=True, kw_only=True):
    """One effect."""

    effect_id: IdText


class ResolveAsked(Params, frozen=True, kw_only=True):
    """A person's decision about an effect; `result` only with `done`."""

    effect_id: IdText
    decision: Literal["done", "retry", "skip", "compensate"]
    result: Any | msgspec.UnsetType = msgspec.UNSET
    note: ShortText = ""
    by: NameText | None = None


def read_page(tx: Tx, *, after: str, limit: int) -> ReviewPageView:
    problems: list[str] = []
    after = place_of("eff", after, tx.effects.resolve) if after else ""
    found = read_sound(tx.effects.reviews, after=after, limit=limit + 1, problems=problems)
    tasks = tx.tasks.get_many([effect.task_id for effect in found])
    return ReviewPageView(
        reviews=[ReviewView.of(effect, tasks.get(effect.task_id)) for effect in found[:limit]],
        next_page_token=found[limit - 1].id if len(found) > limit else None,
        problems=problems,
    )


def read_detail(tx: Tx, effect_id: str) -> ReviewDetailView:
    effect = tx.effects.get(effect_id)
    task = _task_of(tx, effect)
    events = tx.events.of_task(effect.task_id, limit=EVENTS_READ)
    seen = [
        event
        for event in events
        if event.kind in EVIDENCE and effect_id in (event.subject_id, event.facts.get("effect_id"))
    ]
    result, failure = _outcome(tx, effect)
    return ReviewDetailView(
        review=ReviewView.of(effect, task),
        goal=None if task is None else bounded(task.goal, MAX_GOAL_CHARS),
        failure=failure,
        result=result,
        settle_after=effect.settle_after,
        evidence=[EventView.of(event) for event in seen[-SHOWN_AT_MOST:]],
    )


def _task_of(tx: Tx, effect: Effect) -> Task | None:
    try:
        return tx.tasks.look(effect.task_id)
    except NotFound:
        return None


def _outcome(tx: Tx, effect: Effect) -> tuple[PayloadView | None, FailureView | None]:
    """Its result or its failure, if known."""
    if effect.status not in (EffectStatus.DONE, EffectStatus.CONFIRMED) or effect.outcome is None:
        return None, failure_view_of(effect)
    try:
        payload = tx.blobs.open(effect.outcome)
    except HoldfastError:  # damaged: `store verify` reports it
        return None, None
    failure = failure_in(payload)
    return (PayloadView.of(payload), None) if failure is None else (None, failure)


def resolving_effect(
    asked: ResolveAsked, *, by: str, now: datetime, has_gateway: bool = True
) -> Write[ResolvedView]:
    """The write of a person's decision.

    Raises IllegalMove, with the earlier decision, if the effect needs no review; NotFound if it does not
    exist; BadInput for a result that the step cannot have returned.
    """
    from holdfast.core.effect import Decision
    from holdfast.engine.program.effect_reviews import resolving

    has_result = asked.result is not msgspec.UNSET
    if has_result and asked.decision != "done":
        raise BadInput("result", f"it is what the step returned, so it needs `done`, not `{asked.decision}`")
    if has_result:
        refuse_references("result", asked.result)

    def resolve(tx: Tx) -> ResolvedView:
        effect_id = tx.effects.resolve(asked.effect_id)
        if has_result:
            _check_result(ReviewView.of(tx.effects.get(effect_id), None), asked.result)
        settle = resolving(
            effect_id,
            Decision(asked.decision),
            result=asked.result if has_result else None,
            by=credited(asked.by, by),
            note=asked.note,
            now=now,
        )
        try:
            effect = settle(tx)
        except IllegalMove as refusal:
            raise _not_in_doubt(tx.effects.get(effect_id)) from refusal
        task = _task_of(tx, effect)
        return ResolvedView(
            decision=asked.decision,
            review=ReviewView.of(effect, task),
            next=f"{_meaning(asked.decision, effect, has_result=has_result)}; "
            + what_next(task, has_gateway=has_gateway),
        )

    return resolve


def _check_result(review: ReviewView, result: object) -> None:
    """Refuse a result of the wrong type: with it, the task would need a review again at once."""
    wanted = misfit_of(review.returns, result)
    if wanted is not None:
        hint = " (a string needs its own quotes: '\"5\"')" if "text" in wanted else ""
        raise BadInput(
            "result", f"{review.effect.name} returns {review.returns}: give {wanted} as JSON{hint}"
        )


def _not_in_doubt(effect: Effect) -> IllegalMove:
    decision = DecisionView.maybe(effect.review)
    why = "reviewed: only an effect of unknown outcome can be"
    refusal = IllegalMove("effect", effect.id, effect.status.value, why)
    if decision is not None:
        # Its status would mislead: an effect to retry is failed, and performed again as another one.
        what = f"{decision.by} already decided: {decision.decision}"
        refusal.args = (f"effect {effect.id} needs no review any more, {what}",)
    return refusal


def _meaning(decision: str, effect: Effect, *, has_result: bool) -> str:
    match decision:
        case "retry" if effect.is_unapproved:
            return "it is approved, and will be performed"
        case "compensate" if effect.is_unapproved:
            return "it is not performed, and its step fails"
        case "done":
            return (
                "the step is done, with the result you gave (if its type is wrong, the task needs a review "
                "again)"
                if has_result
                else ("the step is done, with the result null (no --result was given)")
            )
        case "retry":
            return "it will be performed again, with a new idempotency key"
        case "skip":
            return "the step is skipped, with the result null"
        case _:
            return "its compensation runs, if it has one, then its step fails"
