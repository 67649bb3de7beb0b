"""Logs what a task waits for, while a program waits for its end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence

from holdfast.core.errors import RowDamaged
from holdfast.core.redaction import redact_text
from holdfast.core.run import Queue
from holdfast.core.task import Task
from holdfast.core.transitions import RunStatus
from holdfast.store import Tx

log = logging.getLogger("holdfast.tasks")

# Nothing is checked before: most tasks end, or go on, by themselves.
FIRST_S = 2.0
# The same line is logged again after so long.
AGAIN_S = 300.0
# While there is nothing to log, the pauses between two checks grow up to this.
LONGEST_PAUSE_S = 60.0
# A queued task is not reported before: a worker that knows it may be busy or starting.
QUEUED_S = 10.0
# How many descendants of a task are checked.
MOST_LOOKED_AT = 50
_MOST_CHARS = 200


class _Waited:
    """One task whose end a program waits for."""

    __slots__ = ("look_at", "pause_s", "said", "said_at", "since")

    def __init__(self, now: float) -> None:
        self.since = now
        self.look_at = now + FIRST_S
        self.pause_s = FIRST_S
        self.said = ""
        self.said_at = now


class WaitingNotes:
    """Logs a line for each task that waits for a person, or for a process that knows it; and again after
    AGAIN_S. Times are those of the event loop."""

    def __init__(self, known: Collection[str]) -> None:
        self._known = known
        self._waited: dict[str, _Waited] = {}

    def begin(self, task_id: str, now: float) -> None:
        self._waited.setdefault(task_id, _Waited(now))

    def end(self, task_id: str) -> None:
        self._waited.pop(task_id, None)

    def due(self, now: float) -> list[str]:
        """The tasks to check now."""
        return [task_id for task_id, one in self._waited.items() if one.look_at <= now]

    def read(self, tx: Tx, task_ids: Sequence[str], now: float) -> dict[str, str | None]:
        """The line to log for each task; None if there is none."""
        tasks = tx.tasks.get_many(task_ids)
        queued = {
            one for one in task_ids if one in self._waited and now - self._waited[one].since >= QUEUED_S
        }
        return {
            task_id: _or_none(what_it_waits_for, tx, task, self._known, has_waited=task_id in queued)
            for task_id, task in tasks.items()
        }

    def say(self, found: dict[str, str | None], now: float) -> None:
        for task_id, remark in found.items():
            one = self._waited.get(task_id)
            if one is None:
                continue
            if remark is not None and (remark != one.said or now - one.said_at >= AGAIN_S):
                log.warning("%s", remark)
                one.said, one.said_at, one.pause_s = remark, now, FIRST_S
            one.pause_s = min(one.pause_s * 2, LONGEST_PAUSE_S)
            one.look_at = now + one.pause_s


def _or_none(look: Callable[..., str | None], *given: object, **named: object) -> str | None:
    """None for a damaged record: `holdfast tasks show` reports it, and the other tasks are checked."""
    try:
        return look(*given, **named)
    except RowDamaged:
        return None


def what_it_waits_for(tx: Tx, task: Task, known: Collection[str], *, has_waited: bool) -> str | None:
    """One line with the command to run; None while the task goes on by itself. A task that waits for its
    children waits for what they wait for."""
    tasks, place = [task], 0
    while place < len(tasks):
        one = tasks[place]
        remark = _of_one(tx, one, known, has_waited=has_waited)
        if remark is not None:
            return remark
        if len(tasks) < MOST_LOOKED_AT:
            tasks += tx.tasks.children(one.id, only_alive=True)[: MOST_LOOKED_AT - len(tasks)]
        place += 1
    return None


def _of_one(tx: Tx, task: Task, known: Collection[str], *, has_waited: bool) -> str | None:
    kind, _, subject = (task.waits_on or "").partition(":")
    if kind == "answer":
        asked = _short(tx.questions.get(subject).question)
        return (
            f"{task.id} ({task.name}) waits for an answer to {asked!r}: "
            f"`holdfast questions answer {subject} ANSWER`"
        )
    if kind == "review":
        name = tx.effects.get(subject).name
        return (
            f"{task.id} ({task.name}) waits for a review of {name}, whose outcome is unknown: "
            f"`holdfast reviews show {subject}`, then `holdfast reviews resolve {subject} "
            "done|retry|skip|compensate`"
        )
    if has_waited and task.name not in known:
        run = tx.runs.live_of_task(task.id)
        if run is not None and run.status is RunStatus.QUEUED and run.queue is Queue.READY:
            return (
                f"{task.id} is queued, and no process has taken it; this one does not know the task "
                f"{task.name!r}: start one that does, such as `holdfast run --resume {task.id} "
                f"MODULE:{task.name}`"
            )
    return None


def _short(text: str) -> str:
    line = " ".join(redact_text(text).split())
    return line if len(line) <= _MOST_CHARS else f"{line[:_MOST_CHARS]}…"
