"""What a task waits for: short for a list, in full with the next command for one task."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from holdfast.core.effect import Effect
from holdfast.core.program_records import Question
from holdfast.core.run import Queue, RunRecord
from holdfast.core.task import RuntimeName, Task
from holdfast.core.transitions import TaskStatus
from holdfast.views.text import bounded, one_line

MAX_WORDS_CHARS = 1000
DECISIONS = ("done", "retry", "skip", "compensate")

_BRIEF = {
    "answer": "an answer",
    "review": "a review",
    "boot": "the end of a boot",
    "sleep": "its time",
    "child": "a child",
    "children": "its children",
    "resume": "a resume",
    "wake": "its wake",
    # What a queued task waits for.
    "retry": "the next attempt",
    "alone": "an idle worker",
    "worker": "a worker that knows it",
    "producer": "the program that runs it",
}
# A worker that knows a task takes it at once; after this time a person may have to start one.
NOT_TAKEN = timedelta(minutes=1)


class WaitView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a task waits for, until when at most, and the command that ends the wait."""

    kind: str
    subject_id: str | None
    words: str
    until: datetime | None
    command: str | None

    @classmethod
    def of(
        cls, task: Task, about: Question | Effect | Task | None = None, *, until: datetime | None = None
    ) -> WaitView | None:
        """`about` is the record that it waits for, if there is one. None if the task waits for nothing."""
        if task.waits_on is None:
            return None
        kind, subject = kind_of(task.waits_on)
        words, command = _words(task, kind, subject, about, until)
        return cls(
            kind=one_line(kind, 40),
            subject_id=one_line(subject) or None,
            words=bounded(words, MAX_WORDS_CHARS),
            until=until,
            command=None if command is None else one_line(command),
        )


def why_queued(run: RunRecord, now: datetime) -> str | None:
    """What a queued task waits for; None if a worker may be about to take it."""
    if run.queue is Queue.PRODUCER:
        return "producer"
    if run.due_at > now:
        return "retry"
    if now - max(run.due_at, run.updated_at) <= NOT_TAKEN:
        return None
    return "alone" if run.is_alone else "worker"


def queued_wait(task: Task, run: RunRecord, now: datetime) -> WaitView | None:
    """The same as a view, with the command that starts a worker."""
    kind = why_queued(run, now)
    if kind is None:
        return None
    since = f"since {max(run.due_at, run.updated_at):%Y-%m-%d %H:%M:%S} UTC"
    agent, name = task.runtime is RuntimeName.AGENT, one_line(task.name)
    start = "holdfast up" if agent else f"holdfast run --resume {one_line(task.id)} MODULE:{name}"
    words = {
        "producer": f"the program that reported {name!r} runs it, and has not started",
        "retry": f"failed; it is retried at {run.due_at:%Y-%m-%d %H:%M:%S} UTC",
        "alone": f"no worker has taken it {since}: its process died twice without progress, so only an "
        f"idle worker takes it, within a few minutes; to start one: `{start}`",
        "worker": f"no worker has taken it {since}; to start one that knows {name!r}: `{start}`",
    }[kind]
    return WaitView(
        kind=kind,
        subject_id=None,
        words=words,
        until=run.due_at if kind == "retry" else None,
        command=start if kind in ("alone", "worker") else None,
    )


def what_next(task: Task | None, *, has_gateway: bool) -> str:
    """What happens to a task after a person's decision or answer.

    Tasks of agents run only in the gateway; with `has_gateway` the answering process is that gateway.
    """
    if task is None:
        return "its task was pruned, so nothing more happens"
    if task.has_ended:
        return f"its task {task.id} is {task.status.value}, so nothing more happens"
    if task.status is TaskStatus.QUEUED and task.runtime is RuntimeName.AGENT:
        return f"task {task.id} is queued, and " + (
            "the gateway resumes it" + ("" if has_gateway else " (if none runs: `holdfast up`)")
        )
    if task.status is TaskStatus.QUEUED:
        return (
            f"task {task.id} is queued, and a worker that knows {task.name!r} resumes it "
            f"(if none runs: `holdfast run --resume {task.id} MODULE:{task.name}`)"
        )
    waits = "" if task.waits_on is None else f" on {task.waits_on}"
    return f"task {task.id} is {task.status.value}{waits}"


def kind_of(waits_on: str) -> tuple[str, str]:
    """Split `answer:ques_…` into the kind `answer` and the subject `ques_…`."""
    kind, _, subject = waits_on.partition(":")
    return kind, subject


def waits_for_person(waits_on: str | None) -> bool:
    """Whether only a person can end the wait: by an answer or a review."""
    return waits_on is not None and kind_of(waits_on)[0] in ("answer", "review")


def brief_kind(kind: str) -> str:
    """The kind of a wait in words."""
    return "mail" if kind == "mail" else _BRIEF.get(kind) or one_line(kind, 40)


def brief_wait(waits_on: str | None) -> str:
    """The wait for a table cell; a dash if there is none."""
    if waits_on is None:
        return "-"
    kind, subject = kind_of(waits_on)
    if kind == "mail":
        return one_line(f"mail {subject}", 40)
    return _BRIEF.get(kind) or one_line(waits_on, 40)


def _words(
    task: Task, kind: str, subject: str, about: Question | Effect | Task | None, until: datetime | None
) -> tuple[str, str | None]:
    at_latest = "" if until is None else f" (until {until:%Y-%m-%d %H:%M:%S} UTC)"
    match kind:
        case "answer":
            asked = about.question if isinstance(about, Question) else subject
            return f"waits for an answer{at_latest}: {asked}", f"holdfast questions answer {subject} ANSWER"
        case "review":
            what = about.name if isinstance(about, Effect) else subject
            command = f"holdfast reviews resolve {subject} {'|'.join(DECISIONS)}"
            return f"waits for a review of {what}: run `{command}`", command
        case "sleep":
            until_when = "" if until is None else f" until {until:%Y-%m-%d %H:%M:%S} UTC"
            return f"sleeps{until_when}" + (f": {subject}" if subject else ""), None
        case "boot":
            why = "which may still be performing one of its effects"
            return f"waits for the end of process {subject}, {why}{at_latest}", None
        case "mail":
            return f"waits for mail on {subject!r}{at_latest}", None
        case "child":
            how = f" ({about.name}, {about.status.value})" if isinstance(about, Task) else ""
            return f"waits for its child {subject}{how}", f"holdfast tasks show {subject}"
        case "children":
            return "waits for the end of its children", None
        case "wake":
            when = "" if until is None else f" at {until:%Y-%m-%d %H:%M:%S} UTC"
            return (
                f"was saved before its time limit, and is woken{when}",
                f"holdfast wakes list --task {task.id}",
            )
        case "resume":
            return f"is paused; the next worker that knows {task.name!r} resumes it", None
        case _:
            return f"waits for {task.waits_on}{at_latest}", None
