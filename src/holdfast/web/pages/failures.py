"""Failures: failed tasks by what failed and where, the retry of a whole group, and failed resumes."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.views.browser import NotAnswered, Visitor
from holdfast.views.failures import FailureGroupView
from holdfast.web.page_kinds import Action, Confirmation, Page, Query
from holdfast.web.words import plural

GROUPS = 50
RESUMES = 20
REFUSED_SHOWN = 3


async def load(visitor: Visitor, query: Query) -> dict[str, Any]:  # noqa: ARG001 - as every page has it
    found, resumes = await asyncio.gather(
        visitor.ask("failures.list", limit=GROUPS),
        visitor.ask("checkpoints.list", needsPerson=True, limit=RESUMES),
    )
    return {"found": found, "resumes": resumes.checkpoints, "more_resumes": resumes.next_page_token}


async def _group(visitor: Visitor, fingerprint: str) -> FailureGroupView | None:
    found = await visitor.ask("failures.list", fingerprint=fingerprint)
    group: FailureGroupView | None = found.groups[0] if found.groups else None
    return group


async def ask_retry_all(visitor: Visitor, query: Query) -> Confirmation:
    group = await _group(visitor, query.get("fingerprint", ""))
    if group is None:
        gone = "none of these tasks is failed any more"
        return Confirmation(title="Retry all?", says=(), confirm="Retry all", refused=gone)
    left = group.count - len(group.newest)
    return Confirmation(
        title=f"Retry {plural(group.count, 'task')}?",
        says=(
            f"All failed in the same way: {group.kind}: {group.pattern}",
            "Each goes on in a new run after its last saved step.",
            "Mend the cause of the failure first: otherwise they fail again.",
            "A task that cannot be retried is left as it is, and the answer says why.",
        ),
        lines=(
            *(f"{one.name}: {one.message}" for one in group.newest),
            *([f"and {left:,} more"] if left else []),
        ),
        confirm=f"Retry {plural(group.count, 'task')}",
        is_dangerous=group.count > len(group.newest),
    )


async def retry_all(visitor: Visitor, form: Query) -> str:
    until = {"endedUntil": form["until"]} if form.get("until") else {}
    answer = await visitor.ask("failures.retry", fingerprint=form.get("fingerprint", ""), **until)
    said = [f"Retried {plural(answer.count, 'task')}."]
    if answer.refused:
        whys = list(dict.fromkeys(one.why for one in answer.refused))[:REFUSED_SHOWN]
        said.append(f"Not retried: {plural(len(answer.refused), 'task')}: {'; '.join(whys)}.")
    if answer.left:
        more = plural(answer.left, "more task has", "more tasks have")
        said.append(f"{more} this failure: retry again.")
    return " ".join(said)


async def ask_retry_resume(visitor: Visitor, query: Query) -> Confirmation:
    found = await visitor.ask("checkpoints.show", checkpointId=query.get("checkpointId", ""))
    says = ["The task goes on from this checkpoint, once."]
    if found.diagnostic is not None:
        says.insert(0, f"The resume failed: {found.diagnostic.kind}: {found.diagnostic.message}")
    if found.advice is not None and not found.can_retry:
        says.append(found.advice)
    return Confirmation(
        title="Retry this resume?",
        says=tuple(says),
        confirm="Retry the resume",
        refused=None if found.can_retry else "this resume cannot be retried now",
    )


async def retry_resume(visitor: Visitor, form: Query) -> str:
    answer = await visitor.ask("checkpoints.retry", checkpointId=form.get("checkpointId", ""))
    if answer.status is None:
        raise NotAnswered("refused", "this checkpoint cannot be resumed", status=409)
    return f"Retried: checkpoint {answer.id} is {answer.status.value.replace('_', ' ')}."


PAGES = [
    Page(
        path="/failures",
        title="Failures",
        template="failures.html",
        load=load,
        section="failures",
        follows="task checkpoint restart",
    )
]
ACTIONS = [
    Action(name="failures.retry", ask=ask_retry_all, act=retry_all),
    Action(name="checkpoints.retry", ask=ask_retry_resume, act=retry_resume),
]
