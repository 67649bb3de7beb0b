"""Follows a task that this process runs: shows its progress, asks a person, stops on a signal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from holdfast.cli.output import clock_time, is_terminal
from holdfast.cli.screen import ProgressSnapshot, Screen
from holdfast.core.effect import Effect
from holdfast.core.errors import BadInput, HoldfastError, RowDamaged
from holdfast.core.events import Event, EventKind
from holdfast.core.program_records import Question
from holdfast.core.task import Task
from holdfast.core.transitions import TaskStatus
from holdfast.views.effects import ReviewView
from holdfast.views.questions import QuestionView
from holdfast.views.text import one_line
from holdfast.views.waits import DECISIONS, brief_wait, kind_of

if TYPE_CHECKING:
    from holdfast.engine.client.handles import Holdfast
    from holdfast.store.transaction import Tx

SOONEST_LOOK_S = 0.02
LOOK_EVERY_S = 0.25
# Children are polled less often, and only this many of them.
LOOK_AT_TREE_EVERY_S = 1.0
MAX_TREE = 200
# A slow ledger is polled less often.
SHARE_OF_LOOKING = 0.1

# After these events a person may be needed.
FOR_A_PERSON = frozenset({EventKind.QUESTION_ASKED, EventKind.EFFECT_IN_DOUBT, EventKind.RUN_WAITED})

Command = Callable[..., str]


class TaskSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The task as last read."""

    task: Task
    steps: int
    last_step: str | None
    turns: int
    events: list[Event]
    # The position up to which the event feed was read.
    position: str
    # The task needs a person, and no terminal is attached.
    is_stuck: bool = False


class TaskTree(msgspec.Struct, frozen=True, kw_only=True):
    """A task and its descendants that have not ended, with what they need from a person."""

    tasks: list[Task]
    questions: list[Question]
    reviews: list[Effect]
    is_whole: bool

    @property
    def is_stuck(self) -> bool:
        """Whether every one of them needs a review, or waits for a child that does."""
        waits = [task for task in self.tasks if task.status is not TaskStatus.NEEDS_REVIEW]
        for_others = [task for task in waits if kind_of(task.waits_on or "")[0] in ("child", "children")]
        return self.is_whole and len(waits) < len(self.tasks) and len(for_others) == len(waits)


def look(tx: Tx, task_id: str, after: str) -> TaskSnapshot:
    heads = tx.journal.heads([task_id])
    loops = tx.turns.loops([task_id]).get(task_id, {})
    task, events = tx.tasks.look(task_id), tx.events.of_task(task_id, after)
    result = None if task.result is None else tx.blobs.open(task.result)
    return TaskSnapshot(
        task=msgspec.structs.replace(task, result=result),
        steps=heads[task_id].steps_saved if task_id in heads else 0,
        last_step=heads[task_id].last_step if task_id in heads else None,
        turns=sum(loop.turns_done for path, loop in loops.items() if "/" not in path),
        events=events,
        position=events[-1].position if events else after,
    )


def look_at_tree(tx: Tx, task: Task) -> TaskTree:
    tasks, place = [task], 0
    while place < len(tasks) and len(tasks) <= MAX_TREE:
        tasks += tx.tasks.children(tasks[place].id, only_alive=True)
        place += 1
    is_whole, tasks = len(tasks) <= MAX_TREE, tasks[:MAX_TREE]
    questions: list[Question] = []
    reviews: list[Effect] = []
    for one in tasks:
        kind, subject = kind_of(one.waits_on or "")
        # Skip damaged records here; `tasks show` and `store verify` report them.
        with contextlib.suppress(RowDamaged):
            questions += tx.questions.open_of_task(one.id)
            if kind == "review":
                reviews.append(tx.effects.get(subject))
    return TaskTree(tasks=tasks, questions=questions, reviews=reviews, is_whole=is_whole)


class Keyboard:
    """Lines that a person types. The terminal does the editing, so the event loop never blocks here."""

    def __init__(self, nudge: asyncio.Event) -> None:
        self._nudge = nudge
        self._typed = b""
        self.lines: list[str] = []
        # The person pressed Ctrl-D.
        self.is_over = False

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        loop.add_reader(sys.stdin.fileno(), self._read)
        try:
            yield
        finally:
            loop.remove_reader(sys.stdin.fileno())

    def _read(self) -> None:
        try:
            piece = os.read(sys.stdin.fileno(), 4096)
        except OSError:  # the terminal is gone
            piece = b""
        if not piece:
            self.is_over = True
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        *whole, self._typed = (self._typed + piece).split(b"\n")
        self.lines += [line.decode("utf-8", "replace").strip() for line in whole]
        self._nudge.set()


def is_attended() -> bool:
    """Whether a person can answer questions here: stdin and stderr are terminals."""
    return is_terminal(sys.stdin) and is_terminal(sys.stderr)


class Follower:
    """Polls until the task has ended, a signal stops the process, or only an absent person can help."""

    def __init__(
        self,
        holdfast: Holdfast,
        task_id: str,
        screen: Screen,
        *,
        after: str,
        known: frozenset[str],
        command: Command,
        by: str,
    ) -> None:
        self._holdfast = holdfast
        self._task_id = task_id
        self._screen = screen
        self._after = after
        self._known = known
        self._command = command
        self._by = by
        self._nudge = asyncio.Event()
        self._is_stopping = False
        self._keyboard = Keyboard(self._nudge) if is_attended() else None
        self._asking: Question | None = None
        self._last = ""
        # Ids that were shown or answered, so that each is handled once.
        self._settled: set[str] = set()
        # Questions answered in this terminal.
        self._answered: set[str] = set()

    def stop(self) -> None:
        self._is_stopping = True
        self._nudge.set()

    async def follow(self) -> TaskSnapshot:
        with contextlib.ExitStack() as watching:
            if self._keyboard is not None:
                watching.enter_context(self._keyboard.watched())
            try:
                return await self._follow()
            finally:
                self._ask_no_more()

    async def _follow(self) -> TaskSnapshot:
        store, pause, look_at_tree_at = self._holdfast.store, SOONEST_LOOK_S, 0.0
        while True:
            began = time.monotonic()
            seen = await store.read(lambda tx: look(tx, self._task_id, self._after))
            self._show(seen)
            if seen.task.has_ended or self._is_stopping:
                return seen
            if began >= look_at_tree_at or any(event.kind in FOR_A_PERSON for event in seen.events):
                task = seen.task
                tree = await store.read(lambda tx: look_at_tree(tx, task))  # noqa: B023 - read at once
                self._show_tree(tree)
                look_at_tree_at = began + LOOK_AT_TREE_EVERY_S
                if tree.is_stuck and self._keyboard is None:
                    return msgspec.structs.replace(seen, is_stuck=True)
            await self._hear()
            took = time.monotonic() - began
            await self._wait(max(pause, took / SHARE_OF_LOOKING))
            pause = min(LOOK_EVERY_S, pause * 2)

    async def _wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._nudge.wait()
        self._nudge.clear()

    # --- showing

    def _show(self, seen: TaskSnapshot) -> None:
        for event in seen.events:
            self._after = event.position
            words, is_remark = words_of(event)
            if words and is_remark and event.subject_id not in self._answered:
                self._screen.say(words)
            self._last = words or self._last
        task = seen.task
        waits = "" if task.waits_on is None else f" for {brief_wait(task.waits_on)}"
        progress = task.progress
        self._screen.show(
            ProgressSnapshot(
                status=f"{task.status.value}{waits}",
                done=0 if progress is None else progress.done,
                total=None if progress is None else progress.total,
                subtask=None if progress is None or not progress.subtask else one_line(progress.subtask, 60),
                turns=seen.turns,
                steps=seen.steps,
                last_step=None if seen.last_step is None else one_line(seen.last_step, 40),
                last_event=self._last,
            )
        )

    def _show_tree(self, tree: TaskTree) -> None:
        for effect in tree.reviews:
            if self._is_new(effect.id):
                self._show_review(effect)
        for task in tree.tasks:
            if task.status is TaskStatus.QUEUED and task.name not in self._known and self._is_new(task.id):
                self._screen.say(
                    f"{task.id} waits for another worker: this process does not know {one_line(task.name)!r}"
                )
        asked = {question.id for question in tree.questions}
        if self._asking is not None and self._asking.id not in asked:
            self._screen.say("this question was answered elsewhere, or its time is up")
            self._ask_no_more()
        for question in tree.questions:
            if question.id in self._settled or self._asking is not None:
                continue
            self._ask(question)

    def _is_new(self, subject_id: str) -> bool:
        is_new = subject_id not in self._settled
        self._settled.add(subject_id)
        return is_new

    def _show_review(self, effect: Effect) -> None:
        view = ReviewView.of(effect, None)
        why = "" if view.why is None else f": {view.why}"
        self._screen.say(f"it is unknown whether {view.effect.name}({view.asked or ''}) happened{why}")
        self._screen.say(
            f"check it, then decide: {self._command('reviews', 'resolve', effect.id, '|'.join(DECISIONS))}"
        )

    # --- asking

    def _ask(self, question: Question) -> None:
        view = QuestionView.of(question, None)
        due = "" if view.due_at is None else f" (until {clock_time(view.due_at)})"
        self._screen.say(f"? {view.question}{due}")
        if self._keyboard is None or self._keyboard.is_over:
            allowed = "ANSWER" if view.choices is None else "|".join(view.choices)
            self._screen.say(f"to answer: {self._command('questions', 'answer', question.id, allowed)}")
            self._settled.add(question.id)
            return
        for number, choice in enumerate(view.choices or (), start=1):
            self._screen.say(f"{number}) {choice}")
        self._keyboard.lines.clear()  # drop lines typed before the question
        self._asking = question
        self._prompt(view)

    def _prompt(self, view: QuestionView) -> None:
        hint = "" if view.choices is None else " (number or text)"
        if view.has_default:
            shown = msgspec.json.encode(view.default).decode()
            hint += f" [Enter for {one_line(shown, 60)}]"
        self._screen.ask(f"your answer{hint}: ")

    def _ask_no_more(self) -> None:
        if self._asking is not None:
            self._asking = None
            self._screen.go_on()

    async def _hear(self) -> None:
        """Take a typed line as the answer to the open question."""
        keyboard, question = self._keyboard, self._asking
        if keyboard is None or question is None:
            return
        if keyboard.is_over and not keyboard.lines:
            self._ask_no_more()
            self._ask(question)  # prints the command that answers it
            return
        if not keyboard.lines:
            return
        typed = keyboard.lines.pop(0)
        try:
            await self._holdfast.answer(question.id, answer_of(question, typed), by=self._by)
            self._answered.add(question.id)
        except BadInput as refusal:
            self._screen.say(refusal.problem)
            self._prompt(QuestionView.of(question, None))
            return
        except HoldfastError as error:
            self._screen.say(str(error))
        self._settled.add(question.id)
        self._ask_no_more()


def answer_of(question: Question, typed: str) -> object:
    """The choice by its text or number; an empty line means the default. Raises BadInput."""
    if not typed:
        if question.default_answer is None:
            raise BadInput("answer", "type an answer")
        return msgspec.json.decode(question.default_answer)
    if question.choices is None or typed in question.choices:
        return typed
    if typed.isdecimal() and 1 <= int(typed) <= len(question.choices):
        return question.choices[int(typed) - 1]
    raise BadInput("answer", f"choose one of: {', '.join(one_line(one) for one in question.choices)}")


# --- events as text


def words_of(event: Event) -> tuple[str, bool]:
    """An event as text, and whether to print it as a line that stays."""
    facts = {name: one_line(str(value), 120) for name, value in event.facts.items()}

    def fact(name: str) -> str:
        return facts.get(name, "?")

    match event.kind:
        case EventKind.RUN_RETRIED:
            return f"the run failed ({fact('why')}); retrying: {fact('rung')}", True
        case EventKind.STEP_RETRIED:
            return (
                f"{fact('step')} failed ({fact('why')}), attempt {fact('attempt')}; retrying",
                True,
            )
        case EventKind.STEP_DRIFTED:
            return f"drift in {fact('step')}: {fact('why')}", True
        case EventKind.EFFECT_REVIEWED:
            return f"{fact('by')} reviewed {fact('step')}: {fact('decision')}", True
        case EventKind.QUESTION_ANSWERED:
            return f"{fact('by')} answered", True
        case EventKind.TASK_CANCEL_REQUESTED:
            return f"cancel requested: {fact('reason')}", True
        case EventKind.PROGRAM_TOLD:
            return f"{fact('name')} {one_line(msgspec.json.encode(event.facts.get('told')).decode())}", True
        case EventKind.CHECKPOINT_RESUMED:
            how = "started anew" if event.facts.get("is_anew") else "resumed"
            return f"{how} after {fact('reason')}", True
        case EventKind.CHECKPOINT_SAVED:
            return f"checkpoint ({fact('saved')})", False
        case EventKind.RUN_PAUSED:
            return "paused", False
        case EventKind.RUN_CLAIMED:
            return "started", False
        case EventKind.RUN_WOKEN:
            return "woken", False
        case EventKind.MAIL_SENT:
            return f"mail on {fact('topic')} from {fact('sender')}", False
        case _:
            return "", False
