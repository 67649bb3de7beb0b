"""Questions: what tasks ask a person, and the answer."""

from __future__ import annotations

from typing import Any

from holdfast.views.browser import Visitor
from holdfast.web.page_kinds import Action, Confirmation, Field, Page, Query
from holdfast.web.pages.reviews import read_json

LISTED = 50


async def load(visitor: Visitor, query: Query) -> dict[str, Any]:
    page = {"pageToken": query["page"]} if query.get("page") else {}
    return {"found": await visitor.ask("questions.list", limit=LISTED, **page)}


async def ask_answer(visitor: Visitor, query: Query) -> Confirmation:
    question = await visitor.ask("questions.show", questionId=query.get("questionId", ""))
    name = question.task_name or "A pruned task"
    says = [question.question, f"{name} goes on with your answer. The first answer counts."]
    if question.has_default:
        says.append(f"Without an answer in time it goes on with: {question.default}")
    if question.choices is None:
        fields = [
            Field(name="answer", label="Answer", kind="long", is_required=True),
            Field(
                name="is_json",
                label="The answer is JSON, such as a number or a list",
                kind="check",
            ),
        ]
    else:
        chosen = query.get("answer", "")
        choices = tuple((one, one) for one in question.choices)
        field = Field(
            name="answer", label="Answer", kind="choice", choices=choices, value=chosen, is_required=True
        )
        fields = [field]
    refused = None
    if question.answered_at is not None:
        refused = f"{question.answered_by} answered already: {question.answer}"
    return Confirmation(
        title=f"{name} asks",
        says=tuple(says),
        fields=tuple(fields),
        confirm="Answer",
        refused=refused,
    )


async def answer(visitor: Visitor, form: Query) -> str:
    text = form.get("answer", "")
    value = read_json(text, "answer") if form.get("is_json") == "yes" else text
    answered = await visitor.ask("questions.answer", questionId=form.get("questionId", ""), answer=value)
    return f"Answered: {answered.next}."


PAGES = [
    Page(
        path="/questions",
        title="Questions",
        template="questions.html",
        load=load,
        section="questions",
        follows="question task",
    )
]
ACTIONS = [Action(name="questions.answer", ask=ask_answer, act=answer)]
