"""reviews list, show, resolve: effects whose outcome is unknown, and the operator's decisions."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any

import click
import msgspec

from holdfast.api.reviews import (
    ResolveAsked,
    ReviewAsked,
    ReviewsAsked,
    read_detail,
    read_page,
    resolving_effect,
)
from holdfast.cli.groups import ListGroup
from holdfast.cli.invocation import (
    Invocation,
    effect_prefix,
    page_option,
    read_json,
    shared_options,
    user_name,
)
from holdfast.cli.output import Output, ago, brief, clock_time, step_place
from holdfast.core.transitions import EffectStatus
from holdfast.views.effects import ResolvedView, ReviewDetailView, ReviewPageView
from holdfast.views.waits import DECISIONS


@click.group("reviews", cls=ListGroup)
@shared_options
def reviews() -> None:
    """Effects whose outcome is unknown: check each one, and decide."""


# --- list


@reviews.command("list", short_help="Effects that wait for a decision, oldest first.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Maximum number to show."
)
@page_option
@shared_options
@click.pass_obj
def list_reviews(call: Invocation, limit: int, page: str | None) -> None:
    """Effects that wait for a decision, oldest first, a page at a time."""
    view = call.look_at_list(
        "reviews.list",
        ReviewsAsked(limit=limit, page_token=page),
        lambda tx: read_page(tx, after=page or "", limit=limit),
        ReviewPageView(),
    )
    call.output.show(view, lambda: _print_page(call.output, view, call.clock.now()))


def _print_page(output: Output, view: ReviewPageView, now: datetime) -> None:
    if view.reviews:
        rows = [
            (
                one.effect.id,
                one.effect.task_id,
                one.effect.effect_class,
                ago(one.effect.begun_at, now),
                step_place(one.effect.scope, one.effect.name, one.effect.occurrence)
                + ("" if one.returns is None else f" -> {one.returns}"),
                one.why or "-",
            )
            for one in view.reviews
        ]
        headers = ("ID", "TASK", "CLASS", "BEGUN", "STEP", "WHY IN DOUBT")
        output.table(headers, rows, leave=("BEGUN", "CLASS", "TASK", "STEP"))
    else:
        output.say("no effects wait for a review")
    for problem in view.problems:
        output.say(f"damaged: {problem}")
    if view.next_page_token is not None:
        output.say_next(view.next_page_token)
    if view.reviews:
        first = view.reviews[0].effect.id
        output.say(
            f"details: holdfast reviews show {first}; to decide: holdfast reviews resolve {first} DECISION"
        )


# --- show


@reviews.command("show", short_help="One effect in full.")
@click.argument("effect_id", metavar="EFFECT", callback=effect_prefix)
@shared_options
@click.pass_obj
def show_review(call: Invocation, effect_id: str) -> None:
    """One effect: its request, why its outcome is unknown, and its events."""
    view = call.look(
        "reviews.show",
        ReviewAsked(effect_id=effect_id),
        lambda tx: read_detail(tx, tx.effects.resolve(effect_id)),
        ReviewDetailView,
    )
    call.output.show(view, lambda: _print(call.output, view))


def _print(output: Output, view: ReviewDetailView) -> None:
    review, effect = view.review, view.review.effect
    decision = effect.decision
    output.fields(
        [
            ("effect", effect.id),
            ("status", effect.status),
            ("step", step_place(effect.scope, effect.name, effect.occurrence)),
            ("class", effect.effect_class),
            ("asked", review.asked),
            ("why", review.why),
            ("returns", review.returns),
            ("key", effect.idempotency_key),
            ("attempt", str(effect.generation) if effect.generation > 1 else None),
            ("task", f"{effect.task_id} ({review.task_name}, {review.task_status})"),
            ("goal", view.goal),
            ("run", effect.run_id),
            ("begun", clock_time(effect.begun_at)),
            ("changed", clock_time(effect.updated_at)),
            ("result", None if view.result is None else brief(view.result)),
            ("failure", _failure(view)),
            ("decision", None if decision is None else f"{decision.decision}, by {decision.by}"),
            ("note", None if decision is None else decision.note),
        ]
    )
    if view.evidence:
        output.heading("Events")
        rows = [
            (output.stamp(one.at), one.kind, " ".join(f"{k}={v}" for k, v in one.facts.items()))
            for one in view.evidence
        ]
        output.table(("WHEN", "EVENT", "FACTS"), rows)
    if effect.status == EffectStatus.UNKNOWN:
        output.say(f"to decide: holdfast reviews resolve {effect.id} {'|'.join(DECISIONS)}")


def _failure(view: ReviewDetailView) -> str | None:
    """The failure, unless it only repeats why the outcome is unknown."""
    if view.failure is None or view.review.why is not None:
        return None
    return f"{view.failure.kind}: {view.failure.message}"


# --- resolve


@reviews.command("resolve", short_help="Decide: done, retry, skip or compensate.")
@click.argument("effect_id", metavar="EFFECT", callback=effect_prefix)
@click.argument("decision", type=click.Choice(DECISIONS))
@click.option(
    "--result", metavar="JSON", help="With `done`: what the step returned, as JSON. [default: null]"
)
@click.option("--note", default="", help="Reason to record.")
@click.option("--by", metavar="NAME", help="Name to record. [default: the current user]")
@shared_options
@click.pass_obj
def resolve(
    call: Invocation, effect_id: str, decision: Any, result: str | None, note: str, by: str | None
) -> None:
    """Decide about an effect whose outcome is unknown. First check whether it happened.

    \b
    done        it happened: the step returns --result, as JSON (default null); `reviews show` prints
                its type, so --result '"5"' is a string and --result 5 a number
    retry       it did not happen: perform it again, with a new idempotency key
    skip        it must not happen: the step returns null
    compensate  undo it: run its compensation, if it has one, and fail the step

    \b
    holdfast reviews resolve eff_01h8 done --result '{"id": 7}' --note "found on the bank's page"

    The decision is recorded with your name and the time. Exit status 3 if the effect needs no review (any
    more).
    """
    if result is not None and decision != "done":
        raise click.UsageError(f"--result is what the step returned, so it needs `done`, not `{decision}`")
    value = msgspec.UNSET if result is None else read_json("--result", result)
    asked = ResolveAsked(effect_id=effect_id, decision=decision, result=value, note=note, by=user_name(by))
    resolving = partial(resolving_effect, by=user_name(by), has_gateway=False)
    view = call.change("reviews.resolve", asked, resolving, ResolvedView)
    call.output.show(view, lambda: call.output.line(f"{view.review.effect.id} is resolved: {view.next}"))
