"""EffectView, and the views for a decision about an effect whose outcome is unknown."""

from __future__ import annotations

import contextlib
from datetime import datetime

import msgspec

from holdfast.core.effect import Effect, EffectRequest, decode_request
from holdfast.core.step import shown_occurrence
from holdfast.core.task import Failure, Task
from holdfast.core.transitions import EffectStatus
from holdfast.views.events import EventView
from holdfast.views.payloads import FailureView, PayloadView
from holdfast.views.text import bounded, one_line

MAX_ASKED_CHARS = 500
MAX_NOTE_CHARS = 2000


class DecisionView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a person decided about an effect."""

    decision: str
    by: str
    at: datetime
    note: str = ""

    @classmethod
    def maybe(cls, review: bytes | None) -> DecisionView | None:
        if review is None:
            return None
        try:
            decided = msgspec.json.decode(review, type=DecisionView)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        return cls(
            decision=one_line(decided.decision),
            by=one_line(decided.by),
            at=decided.at,
            note=bounded(decided.note, MAX_NOTE_CHARS),
        )


class EffectView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A step that changes the outside world, in a list: what it is, and its status."""

    id: str
    task_id: str
    run_id: str
    name: str
    scope: str
    occurrence: str
    effect_class: str
    idempotency_key: str
    # Counts retries after definite failures.
    generation: int
    status: str
    begun_at: datetime
    updated_at: datetime
    decision: DecisionView | None

    @classmethod
    def of(cls, effect: Effect) -> EffectView:
        return cls(
            id=one_line(effect.id),
            task_id=one_line(effect.task_id),
            run_id=one_line(effect.run_id),
            name=one_line(effect.name),
            scope=one_line(effect.scope),
            occurrence=one_line(shown_occurrence(effect.occurrence)),
            effect_class=effect.effect_class.value,
            idempotency_key=one_line(effect.idempotency_key),
            generation=effect.generation,
            status=effect.status.value,
            begun_at=effect.created_at,
            updated_at=effect.updated_at,
            decision=DecisionView.maybe(effect.review),
        )


class ReviewView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An effect with its request, and why its outcome is unknown."""

    effect: EffectView
    # Null if its task was pruned.
    task_name: str | None
    task_status: str | None
    # The arguments, redacted and cut.
    asked: str | None
    # Null if its outcome was never unknown.
    why: str | None
    # The declared type of its result; null if there is none.
    returns: str | None = None

    @classmethod
    def of(cls, effect: Effect, task: Task | None) -> ReviewView:
        failure, request = _failure_of(effect), _request_of(effect)
        return cls(
            effect=EffectView.of(effect),
            task_name=None if task is None else one_line(task.name),
            task_status=None if task is None else task.status.value,
            asked=one_line(request.shown, MAX_ASKED_CHARS) or None,
            why=None if failure is None else one_line(failure.message, MAX_ASKED_CHARS),
            returns=one_line(request.returns) or None,
        )


class ReviewPageView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A page of effects whose outcome is unknown, oldest first."""

    reviews: list[ReviewView] = []
    # For `--page`: the next page; null at the end.
    next_page_token: str | None = None
    # Damaged records, one sentence each; empty if there are none.
    problems: list[str] = []


class ReviewDetailView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One effect with its task, its outcome so far, and its events."""

    review: ReviewView
    goal: str | None
    failure: FailureView | None
    # Null unless it is known to have happened.
    result: PayloadView | None
    # Until then its first process may still be performing it.
    settle_after: datetime | None
    evidence: list[EventView]


class ResolvedView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A person's decision, and what happens next."""

    decision: str
    review: ReviewView
    next: str


def failure_view_of(effect: Effect) -> FailureView | None:
    return FailureView.maybe(_failure_of(effect))


def _failure_of(effect: Effect) -> Failure | None:
    if effect.status not in (EffectStatus.UNKNOWN, EffectStatus.FAILED) or effect.outcome is None:
        return None
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
        return msgspec.json.decode(effect.outcome, type=Failure)
    return None


def _request_of(effect: Effect) -> EffectRequest:
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
        return decode_request(effect.request)
    return EffectRequest()


# The JSON kind of a declared type, by the word before any bracket.
_JSON_KINDS = {"str": "text", "bool": "true or false", "int": "a whole number", "float": "a number"}
_JSON_KINDS |= {"dict": "an object", "list": "a list", "tuple": "a list", "None": "null"}
_FITTING = {"a number": {"a number", "a whole number"}}


def misfit_of(returns: str | None, value: object) -> str | None:
    """The kind that a result should have, if it clearly has another; None if it fits or is unknown."""
    declared = [one.partition("[")[0].strip() for one in (returns or "").split("|")]
    wanted = [_JSON_KINDS.get(one) for one in declared]
    # Null always fits: a skipped step has it, whatever its type.
    if value is None or None in wanted:
        return None
    given = _JSON_KINDS.get(type(value).__name__)
    if any(given in _FITTING.get(str(kind), {kind}) for kind in wanted):
        return None
    return " or ".join(str(kind) for kind in wanted)
