"""Backoff, attempt limits, and the ladder retry, replan, decompose, ask."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from holdfast.core.errors import (
    BadInput,
    ClaimLost,
    Drift,
    PayloadTooLarge,
    Refused,
    RestartRefused,
    StepFailed,
)
from holdfast.core.events import EventKind
from holdfast.core.ids import new_question_id, new_run_id
from holdfast.core.ladder import Ask, Decompose, Replan, Retry, Rung, delay, next_rung
from holdfast.core.payload import clean_text, decode_payload, encode_payload
from holdfast.core.plan import Plan, PlanItem
from holdfast.core.program_records import Question
from holdfast.core.task import Failure
from holdfast.core.transitions import RunStatus, TaskStatus
from holdfast.engine.journal.codec import failure_of
from holdfast.engine.journal.scopes import Key
from holdfast.engine.ledger.ledger import tell_item_progress
from holdfast.engine.program.author_api import plan_items
from holdfast.engine.program.definitions import TaskDefinition
from holdfast.engine.program.effect_reviews import COMPENSATED
from holdfast.engine.program.program import RunProgram
from holdfast.engine.recovery.reopen import NOT_RESUMED, follow_up, forgiven_in
from holdfast.store import Tx, Write

MAX_QUESTION_CHARS = 2_000
# An effect was done and its value cannot be stored, or a person had it undone: never tried again.
_UNSTORABLE = {f"{kind.__module__}.{kind.__qualname__}" for kind in (BadInput, PayloadTooLarge)}
_FINAL_KINDS = frozenset({*_UNSTORABLE, COMPENSATED})


class SaidFail(BaseException):
    """A person was asked, and chose not to try again."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure


class Retries:
    """The ladder of one task. Each retry is a follow-up run, and each rung is recorded."""

    def __init__(self, program: RunProgram, definition: TaskDefinition[..., Any]) -> None:
        self._program = program
        self._live = program.live
        self._past = program.past
        self._definition = definition

    async def after(self, error: Exception) -> Write[None] | None:
        """The write that tries it again: the same later, another plan, smaller items, a person's decision.

        None when nothing is left to try. Raises what the function of a rung raises.
        """
        live, failure = self._live, failure_of(error)
        failed = 1 + await live.read(lambda tx: tx.runs.count_failed(live.task.id))
        # Failures before a person's retry do not count.
        failures = failed - forgiven_in(self._past)
        rung = self._rung(failures)
        if rung is None or _is_final(error):
            return None
        plan = await self._other_plan(rung, failure)
        return self._trying_again(rung, failures, failed, failure, plan, keys_in(error))

    def _rung(self, failures: int) -> Rung | None:
        definition = self._definition
        ladder = definition.ladder
        if not ladder and definition.attempts > 1:
            most = max(definition.backoff, timedelta(minutes=5))
            ladder = (Retry(definition.attempts - 1, definition.backoff, most),)
        if not ladder:
            return None
        # Once a person was asked, ask again at each failure: the person decides when it is enough.
        return next_rung(ladder, failures) or (ladder[-1] if isinstance(ladder[-1], Ask) else None)

    @property
    def _plan(self) -> Plan | None:
        keeper = self._program.plan
        return self._past.plan if keeper is None else keeper.plan

    async def _other_plan(self, rung: Rung, failure: Failure) -> Plan | None:
        plan = self._plan
        if plan is None or not isinstance(rung, (Replan, Decompose)):
            return None
        failed = next((item for item in plan.items if not item.is_done), None)
        answer = rung.fn(failed, failure)
        items = await answer if inspect.isawaitable(answer) else answer
        done = [item for item in plan.items if item.is_done]
        rest: list[PlanItem] = []
        if isinstance(rung, Decompose):
            rest = [item for item in plan.items if not item.is_done and item is not failed]
        taken = {item.id for item in (*done, *rest)}
        return Plan(items=(*done, *plan_items(items, taken), *rest))

    def _trying_again(
        self, rung: Rung, failures: int, failed: int, failure: Failure, plan: Plan | None, keys: list[Key]
    ) -> Write[None]:
        """Forget the failed steps, so that they run again. Questions are numbered by all failed runs."""
        claim, task, now = self._live.claim, self._live.task, self._live.clock.now()
        due_at = now
        if isinstance(rung, Retry):
            chance = random.random()  # noqa: S311 - jitter, not a secret
            due_at = now + delay(rung, failures, chance=chance)
        new_id = new_run_id(now)
        ask = self._asking(failed, failure, now) if isinstance(rung, Ask) else None
        # An effect that a person had undone stays undone, even if the program wraps its failure.
        effects = self._past.effects
        keys = [key for key in keys if key not in effects or not effects[key].is_undone]
        forgotten = [*keys, *(key for one in keys for key in self._past.beside(one))]

        def try_again(tx: Tx) -> None:
            before = tx.runs.get(claim.run_id)
            if before.status is RunStatus.FAILED and before.fence == claim.fence:
                return  # the write runs a second time after its own commit
            if plan is not None:
                tx.journal.save_plan(claim, plan, now=now)
                tell_item_progress(tx, task, now=now, plan=plan)
            for key in forgotten:
                tx.journal.forget_step(claim, *key)
            run = tx.runs.end(claim.run_id, claim.fence, RunStatus.FAILED, failure=failure, now=now)
            if run is None:
                raise ClaimLost(claim.run_id, claim.fence)
            if ask is not None:
                ask(tx)
            tx.runs.create(follow_up(run, new_id, due_at=due_at, now=now))
            tx.tasks.move(tx.tasks.lock(claim.task_id), TaskStatus.QUEUED, now=now)
            tx.emit(
                EventKind.RUN_RETRIED,
                claim.run_id,
                at=now,
                task_id=claim.task_id,
                rung=type(rung).__name__.lower(),
                failures=failures,
                run_id=new_id,
                why=failure.message,
            )
            tx.hint("runs")

        return try_again

    # --- the last rung

    def _asking(self, failed: int, failure: Failure, now: datetime) -> Callable[[Tx], None]:
        """The part of a write that asks a person. The follow-up run waits for the answer first."""
        live, plan = self._live, self._plan
        item = None if plan is None else plan.cursor.next_step
        text = f"{live.task.name} failed{f' at {item}' if item else ''}: {failure.message}. What now?"
        question = Question(
            id=new_question_id(now),
            task_id=live.claim.task_id,
            run_id=live.claim.run_id,
            question=clean_text(text, max_chars=MAX_QUESTION_CHARS),
            choices=("retry", "fail") if item is None else ("retry", "skip", "fail"),
            asked_at=now,
        )
        number = str(failed)
        steps = [
            self._program.waits.step(("", name, number), encode_payload("fact", fact), now)
            for name, fact in (("ladder!asked", [question.id, None]), ("ladder!item", item))
        ]

        def ask(tx: Tx) -> None:
            tx.questions.create(question)
            for step in steps:
                tx.journal.put_step(step)
            tx.emit(
                EventKind.QUESTION_ASKED,
                question.id,
                at=now,
                task_id=question.task_id,
                question=question.question,
            )

        return ask

    async def heed_answers(self) -> None:
        """What a person said after a failure: go on, leave that item out, or (SaidFail) let the task fail."""
        asked = [step for step in self._past.within("") if step.name == "ladder!asked"]
        for number in sorted(int(step.occurrence) for step in asked):
            payload = await self._program.waits.ask(
                ("", "ladder", str(number)), "?", choices=None, lasts=None, default=None, has_default=False
            )
            match decode_payload(payload):
                case "fail":
                    raise SaidFail(await self._failure_before())
                case "skip":
                    item = self._past.find(("", "ladder!item", str(number)))
                    assert item is not None
                    self._program.skipped += (str(decode_payload(item.result)),)

    async def _failure_before(self) -> Failure:
        before = self._live.run.resumes_run_id
        run = None if before is None else await self._live.read(lambda tx: tx.runs.get(before))
        failure = None if run is None else run.failure
        return failure or Failure(kind="failed", message="a person said so")


def _is_final(error: Exception) -> bool:
    """Whether a retry would only fail again, or go against a person's decision."""
    if isinstance(error, ExceptionGroup):
        return any(map(_is_final, error.exceptions))
    return isinstance(error, (BadInput, Drift, Refused)) or (
        isinstance(error, StepFailed) and (error.kind in _FINAL_KINDS or _is_given_up(error))
    )


def _is_given_up(error: StepFailed) -> bool:
    """Whether it is the failure of a child that a retry does not restart: cancelled, or not resumed."""
    return error.kind == NOT_RESUMED or error.facts.get("status") == TaskStatus.CANCELLED.value


def keys_in(error: BaseException | None) -> list[Key]:
    """The steps whose failure this is, or that caused it: also causes, contexts and members of groups."""
    keys: list[Key] = []
    waiting, seen = [error], set[int]()
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, (StepFailed, RestartRefused)):
            keys += getattr(one, "__holdfast_keys__", ())
        if isinstance(one, BaseExceptionGroup):
            waiting += one.exceptions
        waiting += (one.__cause__, one.__context__)
    return keys
