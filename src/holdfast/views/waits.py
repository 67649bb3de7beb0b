"""What a task waits for, in words: short for a list, whole with the next command for one task."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from holdfast.core.effect import Effect
from holdfast.core.run import Queue, Run
from holdfast.core.scope import Question
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
    # What a queued task waits for.
    "retry": "the next attempt",
    "alone": "a worker that carries nothing else",
    "worker": "a worker that takes it",
    "producer": "the program that carries it out",
}
# A worker that knows a task takes it at once; after so long a person may have to start one.
NOT_TAKEN = timedelta(minutes=1)


class WaitView(msgspec.Struct, frozen=True, kw_only=True):
    """What a task waits for, until when at most, and the command by which a person ends the wait."""

    kind: str
    subject_id: str | None
    words: str
    until: datetime | None
    command: str | None

    @classmethod
    def of(
        cls, task: Task, about: Question | Effect | Task | None = None, *, until: datetime | None = None
    ) -> WaitView | None:
        """`about` is the record that it waits for, where there is one. None for who waits for nothing."""
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


def why_queued(run: Run, now: datetime) -> str | None:
    """What the next run of a queued task waits for; None for one that a worker may be about to take."""
    if run.queue is Queue.PRODUCER:
        return "producer"
    if run.due_at > now:
        return "retry"
    if now - max(run.due_at, run.updated_at) <= NOT_TAKEN:
        return None
    return "alone" if run.is_alone else "worker"


def queued_wait(task: Task, run: Run, now: datetime) -> WaitView | None:
    """The same in words, with the command that brings a worker."""
    kind = why_queued(run, now)
    if kind is None:
        return None
    since = f"since {max(run.due_at, run.updated_at):%Y-%m-%d %H:%M:%S} UTC"
    agent, name = task.runtime is RuntimeName.AGENT, one_line(task.name)
    start = "holdfast up" if agent else f"holdfast run --resume {one_line(task.id)} MODULE:{name}"
    words = {
        "producer": f"the program that reported {name!r} carries it out, and has not begun",
        "retry": f"failed, and is tried again at {run.due_at:%Y-%m-%d %H:%M:%S} UTC",
        "alone": f"no worker has taken it {since}: twice its process died without progress, so a worker that "
        f"carries nothing else takes it, at the latest after a few minutes; `{start}` starts one",
        "worker": f"no worker has taken it {since}: `{start}` starts one that knows {name!r}",
    }[kind]
    return WaitView(
        kind=kind,
        subject_id=None,
        words=words,
        until=run.due_at if kind == "retry" else None,
        command=start if kind in ("alone", "worker") else None,
    )


def what_next(task: Task | None, *, has_gateway: bool) -> str:
    """What becomes of a task for which somebody has just decided or answered something.

    A gateway that answers this itself goes on with its agents' tasks; nobody else can.
    """
    if task is None:
        return "its task is gone, so nothing goes on"
    if task.has_ended:
        return f"its task {task.id} is {task.status.value}, so nothing goes on"
    if task.status is TaskStatus.QUEUED and task.runtime is RuntimeName.AGENT:
        return f"task {task.id} is queued, and " + (
            "goes on" if has_gateway else "the gateway goes on with it (none runs? `holdfast up`)"
        )
    if task.status is TaskStatus.QUEUED:
        return (
            f"task {task.id} is queued, and goes on in a process that carries {task.name!r} "
            f"(none? `holdfast run --resume {task.id} MODULE:{task.name}`)"
        )
    waits = "" if task.waits_on is None else f" on {task.waits_on}"
    return f"task {task.id} is {task.status.value}{waits}"


def kind_of(waits_on: str) -> tuple[str, str]:
    """`answer:ques_…` is of the kind `answer`, about `ques_…`."""
    kind, _, subject = waits_on.partition(":")
    return kind, subject


def waits_for_person(waits_on: str | None) -> bool:
    """Whether only a person brings it further: by an answer, or a review."""
    return waits_on is not None and kind_of(waits_on)[0] in ("answer", "review")


def brief_kind(kind: str) -> str:
    """What tasks wait for that wait for the same."""
    return "mail" if kind == "mail" else _BRIEF.get(kind) or one_line(kind, 40)


def brief_wait(waits_on: str | None) -> str:
    """For a cell; a dash for who waits for nothing."""
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
            return ("sleeps" if until is None else f"sleeps until {until:%Y-%m-%d %H:%M:%S} UTC"), None
        case "boot":
            return (
                f"waits until process {subject} ends, which may still be doing an effect of it{at_latest}",
                None,
            )
        case "mail":
            return f"waits for mail on {subject!r}{at_latest}", None
        case "child":
            how = f" ({about.name}, {about.status.value})" if isinstance(about, Task) else ""
            return f"waits for its child {subject}{how}", f"holdfast tasks show {subject}"
        case "children":
            return "waits for the end of its children", None
        case "resume":
            return f"is paused; whoever carries {task.name!r} next goes on with it", None
        case _:
            return f"waits for {task.waits_on}{at_latest}", None
