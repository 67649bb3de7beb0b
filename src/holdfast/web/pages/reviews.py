"""Reviews: effects of unknown outcome with their evidence, and the four decisions about one."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec

from holdfast.views.browser import NotAnswered, Visitor
from holdfast.web.page_kinds import Action, Confirmation, Field, Page, Query

LISTED = 50


class DecisionChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One of the four decisions, in the words of the page."""

    name: str
    title: str
    # When to choose it, and what follows.
    when: str
    then: str
    is_dangerous: bool = False


DECISIONS = (
    DecisionChoice(
        name="done",
        title="It happened",
        when="You have seen its result in the outside world.",
        then="The step counts as done, with the result that you give, or with null. The effect is not "
        "performed again, and the task goes on.",
    ),
    DecisionChoice(
        name="retry",
        title="It did not happen: do it again",
        when="You have made sure that nothing happened outside.",
        then="The effect is performed again with a new idempotency key. If it did happen, it happens twice.",
        is_dangerous=True,
    ),
    DecisionChoice(
        name="skip",
        title="Go on without it",
        when="The task can do without this effect, whether it happened or not.",
        then="The effect is not performed again; its step returns null, and the task goes on.",
    ),
    DecisionChoice(
        name="compensate",
        title="Undo it",
        when="It may have happened, and should not have.",
        then="If its tool has a compensation, that runs once. Then the step fails, and the task decides how "
        "to go on.",
        is_dangerous=True,
    ),
)
_BY_NAME = {one.name: one for one in DECISIONS}


async def load_list(visitor: Visitor, query: Query) -> dict[str, Any]:
    page = {"pageToken": query["page"]} if query.get("page") else {}
    found = await visitor.ask("reviews.list", limit=LISTED, **page)
    return {"found": found}


async def load_one(visitor: Visitor, query: Query) -> dict[str, Any]:
    detail = await visitor.ask("reviews.show", effectId=query["effect"])
    return {
        "detail": detail,
        "review": detail.review,
        "effect": detail.review.effect,
        "decisions": DECISIONS,
        "is_open": detail.review.effect.status == "unknown",
    }


async def ask_resolve(visitor: Visitor, query: Query) -> Confirmation:
    detail = await visitor.ask("reviews.show", effectId=query.get("effectId", ""))
    review, effect = detail.review, detail.review.effect
    if effect.status != "unknown":
        refused: str | None = f"nothing is to be decided: this effect is {effect.status.replace('_', ' ')}"
    else:
        refused = None
    says = [f"{effect.name}({review.asked or ''}) of {review.task_name or 'a pruned task'}."]
    if review.why:
        says.append(f"Its outcome is unknown: {review.why}")
    chosen = _BY_NAME.get(query.get("decision", ""))
    fields = []
    if chosen is None:
        choices = tuple((one.name, f"{one.title}. {one.then}") for one in DECISIONS)
        fields.append(
            Field(
                name="decision", label="What do you know?", kind="choice", choices=choices, is_required=True
            )
        )
    else:
        says.append(chosen.then)
    if chosen is None or chosen.name == "done":
        returns = f"The step returns {review.returns}. " if review.returns else ""
        hint = f"{returns}A text needs its quotes. Without a result, it is null."
        label = "Result as JSON" if chosen is not None else "Result as JSON, if it happened"
        fields.append(Field(name="result", label=f"{label} (optional)", kind="json", hint=hint))
    fields.append(Field(name="note", label="Note for the record (optional)"))
    return Confirmation(
        title=f"What about {effect.name}?" if chosen is None else f"{chosen.title}?",
        says=tuple(says),
        fields=tuple(fields),
        confirm="Decide",
        is_dangerous=chosen is not None and chosen.is_dangerous,
        refused=refused,
    )


async def resolve(visitor: Visitor, form: Query) -> str:
    decision, text = form.get("decision", ""), form.get("result", "").strip()
    if decision not in _BY_NAME:
        raise NotAnswered("bad_input", "choose one of the decisions", status=HTTPStatus.BAD_REQUEST)
    given: dict[str, Any] = {}
    if text:
        if decision != "done":
            why = "a result belongs to an effect that happened: clear it, or choose “It happened”"
            raise NotAnswered("bad_input", why, status=HTTPStatus.BAD_REQUEST)
        given["result"] = read_json(text, "result")
    answer = await visitor.ask(
        "reviews.resolve",
        effectId=form.get("effectId", ""),
        decision=decision,
        note=form.get("note", "").strip(),
        **given,
    )
    return f"Decided: {answer.next}."


def read_json(text: str, field: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        why = f'the {field} is not JSON ({error}); a text needs its quotes: "like this"'
        raise NotAnswered("bad_input", why, status=HTTPStatus.BAD_REQUEST) from None


PAGES = [
    Page(
        path="/reviews",
        title="Reviews",
        template="reviews.html",
        load=load_list,
        section="reviews",
        follows="effect task",
    ),
    Page(
        path="/reviews/{effect}",
        title="Review",
        template="review.html",
        load=load_one,
        section="reviews",
        follows="effect task",
    ),
]
ACTIONS = [Action(name="reviews.resolve", ask=ask_resolve, act=resolve)]
