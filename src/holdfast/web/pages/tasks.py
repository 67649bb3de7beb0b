"""Tasks: the list with its filters, one task in full, its timeline, and what a person may do with it."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

import msgspec

from holdfast.core.task import RuntimeName
from holdfast.core.transitions import TaskStatus, is_terminal
from holdfast.views.browser import NotAnswered, Visitor
from holdfast.views.steps import StepLineView
from holdfast.views.tasks import TaskDetailView, TaskView
from holdfast.views.waits import brief_kind, kind_of
from holdfast.web.page_kinds import Action, ActionDone, Confirmation, Field, Page, Query
from holdfast.web.queries import page_of
from holdfast.web.timelines import draw_timeline

LISTED = 50
STEPS = 30
EVENTS = 30
# The page of steps that begins with the first one.
FIRST = "first"
# So many turns without steps are passed over at once, and so often.
EMPTY_TURNS, PASSED_OVER = 200, 10
_STATUSES = [
    TaskStatus.RUNNING,
    TaskStatus.QUEUED,
    TaskStatus.WAITING,
    TaskStatus.NEEDS_REVIEW,
    TaskStatus.PAUSED,
    TaskStatus.SUCCEEDED,
    TaskStatus.FAILED,
    TaskStatus.TIMED_OUT,
    TaskStatus.LOST,
    TaskStatus.CANCELLED,
]
AGES = [("3600", "1 hour"), ("86400", "1 day"), ("604800", "7 days"), ("2592000", "30 days")]
# The filters of the list: the name in the query, and the parameter of the method.
_TEXTS = {
    "text": "text",
    "name": "name",
    "owner": "owner",
    "agent": "agentId",
    "session": "sessionKey",
    "key": "key",
    "runtime": "runtime",
}
_AGES = {"newer": "newerThanS", "older": "olderThanS"}
FORKS = (
    ("refuse", "Refuse if effects happened after that turn"),
    ("keep", "Keep their results: the fork does not do them again"),
    ("acknowledge", "I know: the fork may do them again"),
)


# --- the list


async def load_list(visitor: Visitor, query: Query) -> dict[str, Any]:
    asked: dict[str, Any] = {"limit": LISTED}
    chosen = [one for one in query.get("status", "").split(",") if one]
    if chosen:
        asked["status"] = chosen
    asked |= {param: query[name].strip() for name, param in _TEXTS.items() if query.get(name, "").strip()}
    for name, param in _AGES.items():
        if query.get(name):
            asked[param] = _seconds(query[name])
    if query.get("page"):
        asked["pageToken"] = query["page"]
    found = await visitor.ask("ledger.list", **asked)
    kept = {name: query[name] for name in ("status", *_TEXTS, *_AGES) if query.get(name)}
    counts = {status.value: found.counts.get(status.value, 0) for status in _STATUSES}
    total = sum(counts.values())
    chips = [("", f"all {total:,}")]
    chips += [
        (status, f"{status.replace('_', ' ')} {number:,}")
        for status, number in counts.items()
        if number or status in chosen
    ]
    return {
        "tasks": found.tasks,
        "token": found.next_page_token,
        "kept": kept,
        "chips": chips,
        "chosen": query.get("status", ""),
        "has_rare": any(query.get(name) for name in (*_TEXTS, *_AGES) if name != "text"),
        "is_filtered": bool(kept),
        "runtimes": [one.value for one in RuntimeName],
        "ages": AGES,
        "waits": {task.id: words for task in found.tasks if (words := _waits_in_words(task))},
    }


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        why = f"{text!r:.40} is not a number of seconds"
        raise NotAnswered("bad_input", why, status=HTTPStatus.BAD_REQUEST) from None


def _waits_in_words(task: TaskView) -> str:
    if task.waits_on is None:
        return ""
    return brief_kind(kind_of(task.waits_on)[0])


# --- one task


class TurnGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of one turn, or those outside turns; as far as they are on one page."""

    scope: str
    run: int | None
    is_finished: bool
    steps: list[StepLineView]

    @property
    def fork_at(self) -> str:
        """The turn as a fork names it; empty if none can begin there."""
        return self.scope if self.is_finished and ":" in self.scope and "/" not in self.scope else ""


class LineageStep(msgspec.Struct, frozen=True, kw_only=True):
    """One run, and what led from the run before to it."""

    run: Any
    # Why there is a follow-up run; empty for the first.
    why: str = ""
    checkpoint: Any = None


async def load_task(visitor: Visitor, query: Query) -> dict[str, Any]:
    task_id = query["task"]
    events: dict[str, Any] = {"after": query["events"]} if query.get("events") else {}
    detail, timeline, found, feed = await asyncio.gather(
        visitor.ask("ledger.show", taskId=task_id),
        visitor.ask("ledger.timeline", taskId=task_id),
        _steps(visitor, task_id, query.get("steps")),
        visitor.ask("events.list", taskId=task_id, limit=EVENTS, **events),
    )
    return {
        "detail": detail,
        "task": detail.task,
        "lineage": lineage_of(detail),
        "timeline": timeline,
        "drawing": draw_timeline(timeline, turns_done=_turns_done(detail)),
        "turns": _in_order(turns_of(found.steps, {run.id: run.number for run in detail.runs}), query, found),
        "steps": found,
        "plan_items": [] if detail.plan is None else detail.plan.items,
        "kept_values": detail.values,
        "events": feed.events,
        "next_event": feed.next_position if len(feed.events) == EVENTS and events else None,
        "may": what_may_be_done(detail),
    }


async def _steps(visitor: Visitor, task_id: str, page: str | None) -> Any:
    """The newest steps, or a page from the first one on; pages of turns without steps are passed over."""
    asked: dict[str, Any] = {"newest": True}
    if page:
        asked = {} if page == FIRST else {"pageToken": page}
    found = await visitor.ask("ledger.steps", taskId=task_id, limit=STEPS, **asked)
    for _ in range(PASSED_OVER):
        if found.steps or found.problems or found.next_page_token is None:
            break
        token = found.next_page_token
        found = await visitor.ask("ledger.steps", taskId=task_id, limit=EMPTY_TURNS, pageToken=token)
    return found


def _in_order(turns: list[TurnGroup], query: Query, found: Any) -> list[TurnGroup]:
    """Newest first, unless they are a page of several."""
    is_all = not query.get("steps") and found.next_page_token is None
    return turns[::-1] if is_all else turns


async def load_timeline(visitor: Visitor, query: Query) -> dict[str, Any]:
    detail, timeline = await asyncio.gather(
        visitor.ask("ledger.show", taskId=query["task"]), visitor.ask("ledger.timeline", taskId=query["task"])
    )
    chosen = query.get("run", "")
    run = int(chosen) if chosen.isascii() and chosen.isdigit() and len(chosen) < 9 else None
    return {
        "timeline": timeline,
        "drawing": draw_timeline(timeline, run=run, turns_done=_turns_done(detail)),
        "chosen": chosen,
        "choices": [("", "all runs"), *((str(one.number), f"run {one.number}") for one in timeline.runs)],
    }


def _turns_done(detail: TaskDetailView) -> int:
    return sum(one.turns_done for one in detail.loops if "/" not in one.loop)


def lineage_of(detail: TaskDetailView) -> list[LineageStep]:
    """The original run and its follow-ups, each with the checkpoint between."""
    saved = {one.id: one for one in detail.checkpoints}
    resumed = {one.resumed_run_id: one for one in detail.checkpoints if one.resumed_run_id}
    found = []
    for place, run in enumerate(detail.runs):
        checkpoint = resumed.get(run.id) or (saved.get(run.checkpoint_id) if run.checkpoint_id else None)
        why = ""
        if place:
            why = "next attempt" if checkpoint is None else checkpoint.reason.value.replace("_", " ")
        found.append(LineageStep(run=run, why=why, checkpoint=checkpoint))
    return found


def turns_of(steps: list[StepLineView], runs: dict[str, int]) -> list[TurnGroup]:
    groups: list[TurnGroup] = []
    for step in steps:
        if not groups or groups[-1].scope != step.scope or groups[-1].is_finished != step.is_finished:
            group = TurnGroup(
                scope=step.scope, run=runs.get(step.run_id), is_finished=step.is_finished, steps=[]
            )
            groups.append(group)
        groups[-1].steps.append(step)
    return groups


def what_may_be_done(detail: TaskDetailView) -> set[str]:
    """The actions that a button stands for; the gateway decides again when one is pressed."""
    task, status = detail.task, TaskStatus(detail.task.status)
    may: set[str] = set()
    if not is_terminal(status):
        may.add("cancel")
    elif status is not TaskStatus.SUCCEEDED:
        may.add("retry")
    if detail.recorded is None and task.runtime in (RuntimeName.PYTHON.value, RuntimeName.COMMAND.value):
        may.add("fork")
    return may


# --- actions


async def ask_cancel(visitor: Visitor, query: Query) -> Confirmation:
    task = (await visitor.ask("ledger.show", taskId=query.get("taskId", ""))).task
    how = {
        TaskStatus.RUNNING.value: "It is running: its worker stops it when it next calls Holdfast.",
    }.get(task.status, "It ends at once as cancelled.")
    return Confirmation(
        title=f"Cancel {task.name}?",
        says=(task.goal[:300], how, "What it has saved is kept, and a retry can go on from there."),
        fields=(Field(name="reason", label="Reason", value="cancelled at the dashboard"),),
        confirm="Cancel the task",
        is_dangerous=True,
        refused=f"it has already ended as {task.status}" if is_terminal(TaskStatus(task.status)) else None,
    )


async def cancel(visitor: Visitor, form: Query) -> str:
    reason = form.get("reason", "").strip() or "cancelled at the dashboard"
    answer = await visitor.ask("ledger.cancel", taskId=form.get("taskId", ""), reason=reason)
    if not answer.cancelled:
        raise NotAnswered("refused", answer.reason or "it cannot be cancelled", status=HTTPStatus.CONFLICT)
    return "Cancelled." if answer.reason is None else f"The cancel is requested: {answer.reason}."


async def ask_retry(visitor: Visitor, query: Query) -> Confirmation:
    task = (await visitor.ask("ledger.show", taskId=query.get("taskId", ""))).task
    says = [task.goal[:300]]
    if task.status == TaskStatus.CANCELLED.value:
        says.append(
            f"It was cancelled: {task.cancel_reason or 'no reason was given'}. It goes on all the same."
        )
    elif task.failure is not None:
        says.append(
            f"It ended as {task.status.replace('_', ' ')}: {task.failure.kind}: {task.failure.message}"
        )
    says.append(
        "A new run goes on after its last saved step; what failed is tried again, with all attempts anew."
    )
    return Confirmation(title=f"Retry {task.name}?", says=tuple(says), confirm="Retry the task")


async def retry(visitor: Visitor, form: Query) -> str:
    task_id = form.get("taskId", "")
    task = (await visitor.ask("ledger.show", taskId=task_id)).task
    answer = await visitor.ask(
        "ledger.retry", taskId=task_id, cancelled=task.status == TaskStatus.CANCELLED.value
    )
    return f"Retried: the task is {answer.task.status}."


async def ask_fork(visitor: Visitor, query: Query) -> Confirmation:
    detail = await visitor.ask("ledger.show", taskId=query.get("taskId", ""))
    loops = [one for one in detail.loops if "/" not in one.loop]
    at = query.get("at") or "start"
    done = ", ".join(f"{one.loop} ({one.turns_done} turns done)" for one in loops) or "none"
    return Confirmation(
        title=f"Fork {detail.task.name}?",
        says=(
            "A fork is a new task with the arguments and the past of this one, up to the end of one turn.",
            "This task stays as it is.",
            f"Loops of this task: {done}.",
        ),
        fields=(
            Field(
                name="at",
                label="At the end of the turn",
                value=at,
                is_required=True,
                hint="Such as turns:3; or start, for a new task without any past.",
            ),
            Field(
                name="effects",
                label="Effects that happened after that turn",
                kind="choice",
                value="refuse",
                choices=FORKS,
                is_required=True,
            ),
        ),
        confirm="Fork",
    )


async def fork(visitor: Visitor, form: Query) -> ActionDone:
    answer = await visitor.ask(
        "ledger.fork",
        taskId=form.get("taskId", ""),
        at=form.get("at", "").strip() or "start",
        effects=form.get("effects") or "refuse",
    )
    return ActionDone(
        text="The fork is a new task.", link=f"Open {answer.task.name}", href=page_of("tasks", answer.task.id)
    )


PAGES = [
    Page(
        path="/tasks",
        title="Tasks",
        template="tasks.html",
        load=load_list,
        section="tasks",
        follows="task run effect question checkpoint restart boot",
    ),
    Page(
        path="/tasks/{task}/timeline",
        title="Timeline",
        template="task-timeline.html",
        load=load_timeline,
        section="tasks",
        follows="task restart boot",
        every_s=5,
    ),
    Page(
        path="/tasks/{task}",
        title="Task",
        template="task.html",
        load=load_task,
        section="tasks",
        follows="task restart boot",
    ),
]
ACTIONS = [
    Action(name="tasks.cancel", ask=ask_cancel, act=cancel),
    Action(name="tasks.retry", ask=ask_retry, act=retry),
    Action(name="tasks.fork", ask=ask_fork, act=fork),
]
