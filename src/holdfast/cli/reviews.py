"""reviews list, show, resolve: effects whose outcome nobody knows, and what a person decides about them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import click

from holdfast.cli.invocation import Invocation, effect_prefix, read_json, shared_options, whoever
from holdfast.cli.output import Output, ago, clock_time, size
from holdfast.cli.pages import read_sound
from holdfast.cli.tasks import SHOWN_AT_MOST, step_place
from holdfast.core.errors import HoldfastError, IllegalMove, NotFound
from holdfast.core.events import EventKind
from holdfast.core.transitions import EffectStatus, TaskStatus
from holdfast.views.effects import (
    DecisionView,
    ResolvedView,
    ReviewDetailView,
    ReviewPageView,
    ReviewView,
    failure_view_of,
)
from holdfast.views.events import EventView
from holdfast.views.payloads import FailureView, PayloadView, failure_in
from holdfast.views.tasks import MAX_GOAL_CHARS
from holdfast.views.text import bounded, one_line
from holdfast.views.waits import DECISIONS

if TYPE_CHECKING:
    from holdfast.core.effect import Effect
    from holdfast.core.task import Task
    from holdfast.store.transaction import Tx

# What of a task's feed is about one of its effects.
EVIDENCE = frozenset({EventKind.EFFECT_IN_DOUBT, EventKind.EFFECT_SEEN_LATE, EventKind.EFFECT_REVIEWED})
EVENTS_READ = 10_000


@click.group("reviews")
@shared_options
def reviews() -> None:
    """Effects whose outcome nobody knows: somebody has to look, and decide."""


# --- list


@reviews.command("list", short_help="What waits for a decision, oldest first.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many at most."
)
@click.option("--page", callback=effect_prefix, metavar="ID", help="Newer than this one: the next page.")
@shared_options
@click.pass_obj
def list_reviews(call: Invocation, limit: int, page: str | None) -> None:
    """What waits for a decision, oldest first, a page at a time."""
    with call.listing() as ledger:
        view = ReviewPageView()
        if ledger is not None:
            view = ledger.read_now(lambda tx: read_page(tx, after=page or "", limit=limit))
    call.output.show(view, lambda: _print_page(call.output, view, call.clock.now()))


def read_page(tx: Tx, *, after: str, limit: int) -> ReviewPageView:
    problems: list[str] = []
    found = read_sound(tx.effects.reviews, after=after, limit=limit + 1, problems=problems)
    tasks = tx.tasks.get_many([effect.task_id for effect in found])
    return ReviewPageView(
        reviews=[ReviewView.of(effect, tasks.get(effect.task_id)) for effect in found[:limit]],
        next_page_token=found[limit - 1].id if len(found) > limit else None,
        problems=problems,
    )


def _print_page(output: Output, view: ReviewPageView, now: datetime) -> None:
    if view.reviews:
        rows = [
            (
                one.effect.id,
                one.effect.task_id,
                one.effect.effect_class,
                ago(one.effect.begun_at, now),
                step_place(one.effect.scope, one.effect.name, one.effect.occurrence),
                one.why or "-",
            )
            for one in view.reviews
        ]
        output.table(("ID", "TASK", "CLASS", "BEGUN", "STEP", "WHY IN DOUBT"), rows)
    else:
        output.say("nothing waits for a review")
    for problem in view.problems:
        output.say(f"damaged: {problem}")
    if view.next_page_token is not None:
        output.say(f"more: --page {view.next_page_token}")
    if view.reviews:
        first = view.reviews[0].effect.id
        output.say(f"look: holdfast reviews show {first}; decide: holdfast reviews resolve {first} DECISION")


# --- show


@reviews.command("show", short_help="One effect with all that is known about it.")
@click.argument("effect_id", metavar="EFFECT", callback=effect_prefix)
@shared_options
@click.pass_obj
def show_review(call: Invocation, effect_id: str) -> None:
    """One effect: what was asked of the world, why it is in doubt, and everything that was seen of it."""
    with call.reading() as ledger:
        view = ledger.read_now(lambda tx: read_detail(tx, tx.effects.resolve(effect_id)))
    call.output.show(view, lambda: _print(call.output, view))


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
    """What it returned, or how it failed, as far as either is known."""
    if effect.status not in (EffectStatus.DONE, EffectStatus.CONFIRMED) or effect.outcome is None:
        return None, failure_view_of(effect)
    try:
        payload = tx.blobs.open(effect.outcome)
    except HoldfastError:  # `store verify` tells more
        return None, None
    failure = failure_in(payload)
    return (PayloadView.of(payload), None) if failure is None else (None, failure)


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
            ("key", effect.idempotency_key),
            ("attempt", str(effect.generation) if effect.generation > 1 else None),
            ("task", f"{effect.task_id} ({review.task_name}, {review.task_status})"),
            ("goal", view.goal),
            ("run", effect.run_id),
            ("begun", clock_time(effect.begun_at)),
            ("changed", clock_time(effect.updated_at)),
            ("result", None if view.result is None else _brief(view.result)),
            ("failure", _failure(view)),
            ("decision", None if decision is None else f"{decision.decision}, by {decision.by}"),
            ("note", None if decision is None else decision.note),
        ]
    )
    if view.evidence:
        output.heading("What was seen")
        rows = [
            (f"{one.at:%Y-%m-%d %H:%M:%S}Z", one.kind, " ".join(f"{k}={v}" for k, v in one.facts.items()))
            for one in view.evidence
        ]
        output.table(("WHEN", "EVENT", "FACTS"), rows)
    if effect.status == EffectStatus.UNKNOWN:
        output.say(f"to decide: holdfast reviews resolve {effect.id} {'|'.join(DECISIONS)}")


def _failure(view: ReviewDetailView) -> str | None:
    """Unless it is the same as why it is in doubt."""
    if view.failure is None or view.review.why is not None:
        return None
    return f"{view.failure.kind}: {view.failure.message}"


def _brief(payload: PayloadView) -> str:
    return f"{one_line(payload.preview, 300)}  ({size(payload.size_bytes)})"


# --- resolve


@reviews.command("resolve", short_help="Decide: done, retry, skip or compensate.")
@click.argument("effect_id", metavar="EFFECT", callback=effect_prefix)
@click.argument("decision", type=click.Choice(DECISIONS))
@click.option("--result", metavar="JSON", help="With `done`: what the step returned. [default: null]")
@click.option("--note", default="", help="Why; it is recorded.")
@click.option("--by", metavar="NAME", help="Who decides. [default: the user of this process]")
@shared_options
@click.pass_obj
def resolve(
    call: Invocation, effect_id: str, decision: str, result: str | None, note: str, by: str | None
) -> None:
    """Decide about an effect whose outcome nobody knows, once you have looked.

    \b
    done        it happened; its step has the --result, or null
    retry       it did not happen; it is done again, with a new idempotency key
    skip        it is not to happen; the step counts as done, with null
    compensate  it is to be undone: its compensation runs, if it has one, and its step fails

    The decision is recorded with who made it and when. Status 3 when the effect is not in doubt (any more).
    """
    from holdfast.engine.effects import Decision, resolving

    if result is not None and decision != Decision.DONE:
        raise click.UsageError(
            f"--result says what the step returned, so it goes with `done`, not {decision}"
        )
    value = None if result is None else read_json("--result", result)
    with call.writing() as store:
        whole_id = store.read_now(lambda tx: tx.effects.resolve(effect_id))
        write = resolving(
            whole_id, Decision(decision), result=value, by=whoever(by), note=note, now=call.clock.now()
        )
        try:
            effect = store.write_now(write)
        except IllegalMove as refusal:
            raise _not_in_doubt(store.read_now(lambda tx: tx.effects.get(whole_id))) from refusal
        task = store.read_now(lambda tx: _task_of(tx, effect))
    has_result = result is not None
    view = ResolvedView(
        decision=decision,
        review=ReviewView.of(effect, task),
        next=f"{_meaning(decision, has_result=has_result)}; {what_next(task)}",
    )
    call.output.show(view, lambda: call.output.line(f"{effect.id} is resolved: {view.next}"))


def _not_in_doubt(effect: Effect) -> IllegalMove:
    decision = DecisionView.maybe(effect.review)
    before = "only one of unknown outcome can be"
    if decision is not None:
        before = f"{decision.by} decided before: {decision.decision}"
    return IllegalMove("effect", effect.id, effect.status.value, f"reviewed ({before})")


def _meaning(decision: str, *, has_result: bool) -> str:
    match decision:
        case "done":
            return (
                "the step is done, with the result you gave"
                if has_result
                else ("the step is done, with null as its result (no --result was given)")
            )
        case "retry":
            return "it will be done again, with a new idempotency key"
        case "skip":
            return "the step counts as done without having been, with null as its result"
        case _:
            return "its compensation runs, if it has one, and then its step fails"


def what_next(task: Task | None) -> str:
    """What becomes of a task for which somebody has just decided or answered something."""
    if task is None:
        return "its task is gone, so nothing goes on"
    if task.has_ended:
        return f"its task {task.id} is {task.status.value}, so nothing goes on"
    if task.status is TaskStatus.QUEUED:
        return (
            f"task {task.id} is queued, and goes on in a process that carries {task.name!r} "
            f"(none? `holdfast run --resume {task.id} MODULE:{task.name}`)"
        )
    waits = "" if task.waits_on is None else f" on {task.waits_on}"
    return f"task {task.id} is {task.status.value}{waits}"
