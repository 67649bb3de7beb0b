"""One claimed run from start to end: called, watched, ended, tried again or given up."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from holdfast.core.checkpoint import decode_seed
from holdfast.core.errors import ClaimLost, Drift, HoldfastError, StepFailed, StoreUnavailable
from holdfast.core.events import EventKind
from holdfast.core.ids import new_run_id
from holdfast.core.ladder import Decompose, Replan, Retry, Rung, delay, next_rung
from holdfast.core.plan import Plan, PlanItem
from holdfast.core.run import Outcome, Queue
from holdfast.core.run import Run as RunRecord
from holdfast.core.task import Failure
from holdfast.core.transitions import RunStatus, TaskStatus
from holdfast.engine.claims import ClaimedRun
from holdfast.engine.codec import failure_of
from holdfast.engine.definitions import TaskDefinition
from holdfast.engine.ledger import DEFAULT_RETENTION, end_task, why_not_ended
from holdfast.engine.live import Live, Place
from holdfast.engine.program import Run, plan_items
from holdfast.engine.running import Program
from holdfast.engine.scopes import Key, Past
from holdfast.engine.stopping import Stopping
from holdfast.store import Tx
from holdfast.store.blobs import Packed, pack


class Execution:
    """One run of one task, carried by this process."""

    def __init__(
        self,
        place: Place,
        claimed: ClaimedRun,
        definition: TaskDefinition[..., Any],
        past: Past,
        *,
        on_restart: Callable[[str], None] = lambda _why: None,
    ) -> None:
        self.claimed = claimed
        self.live = Live(place, claimed.claim, claimed.run, claimed.task)
        self._definition = definition
        self._past = past
        seed = None if claimed.run.seed is None else decode_seed(claimed.run.seed)
        self.program = Program(self.live, past, definition.budget)
        self.run = Run(self.program, seed=seed, on_restart=on_restart)

    async def carry(self) -> None:
        """Returns when the ledger knows how it went: ended, waiting, paused, tried again, or not ours."""
        try:
            await self._carry()
        except (ClaimLost, StoreUnavailable, Stopping):
            # Not ours to end: somebody else has it, or the reaper will find it.
            if not self.live.is_given_up and self.live.why == "cancelled":
                await self._end_cancelled()
        finally:
            self.live.is_over = True

    async def _carry(self) -> None:
        live = self.live
        if live.task.cancel_requested_at is not None:
            live.stop("cancelled")
        try:
            arguments, migrated = self._definition.arguments_of(live.task.arguments)
            if migrated is not None:
                await live.emit(EventKind.TASK_MIGRATED, version=self._definition.version, migrated=migrated)
        except HoldfastError as error:
            await self._fail(error)
            return
        try:
            async with self._timeout():
                result = await self._definition.fn(self.run, **arguments)
        except Stopping:
            raise
        except asyncio.CancelledError:
            if live.why is None:
                raise  # somebody ends the whole process's work, not this run
            raise Stopping(live.why) from None
        except _TaskTimeout:
            await self._end(RunStatus.TIMED_OUT, failure=self._timed_out())
        except Exception as error:  # noqa: BLE001 - the user's own work
            self._refuse_if_stopped()
            await self._after(error)
        else:
            # A program that swallowed the stop does not escape it.
            self._refuse_if_stopped()
            await self._finish(result)

    def _refuse_if_stopped(self) -> None:
        if self.live.why is not None:
            raise Stopping(self.live.why)

    # --- ends

    async def _finish(self, result: Any) -> None:
        try:
            payload = self._definition.codec.encode(f"result of {self._definition.name}", result)
        except HoldfastError as error:
            await self._fail(error)
            return
        if self.live.has_children:
            await self.program.waits.children_end()
        await self._end(RunStatus.SUCCEEDED, packed=pack(payload))

    async def _end(
        self, status: RunStatus, *, packed: Packed | None = None, failure: Failure | None = None
    ) -> None:
        live, claim, now = self.live, self.live.claim, self.live.clock.now()
        ending = self.program.ending() if status is RunStatus.SUCCEEDED else None

        def end(tx: Tx) -> None:
            if not tx.journal.holds(claim.run_id, claim.task_id, claim.fence):
                why_not_ended(tx, claim, status, packed, now=now)
                return
            if ending is not None:
                ending(tx)
            run = tx.runs.end(claim.run_id, claim.fence, status, failure=failure, now=now)
            assert run is not None
            result = None if packed is None else tx.blobs.keep(claim.task_id, packed)
            outcome = Outcome(status=status, result=result, failure=failure)
            end_task(tx, run, outcome, now=now, retention=DEFAULT_RETENTION)

        await live.write(end)
        live.is_given_up = True

    async def _end_cancelled(self) -> None:
        live = self.live
        reason = live.task.cancel_reason or "cancelled"
        await live.until_calm()
        with contextlib.suppress(ClaimLost, StoreUnavailable):
            await self._end(RunStatus.CANCELLED, failure=Failure(kind="cancelled", message=reason))

    async def _fail(self, error: Exception) -> None:
        await self._end(RunStatus.FAILED, failure=failure_of(error))

    # --- after a failure

    async def _after(self, error: Exception) -> None:
        """The next rung of the ladder: the same later, another plan, smaller items, a person; or the end."""
        failure, live = failure_of(error), self.live
        runs = await live.store.read(lambda tx: tx.runs.of_task(live.task.id))
        failures = 1 + sum(run.status is RunStatus.FAILED for run in runs)
        rung = self._rung(failures)
        if rung is None or isinstance(error, Drift):
            await self._fail(error)
            return
        plan = None
        try:
            plan = await self._other_plan(rung, failure)
        except Exception as other:  # noqa: BLE001 - the user's own function
            await self._fail(other)
            return
        await live.write(self._trying_again(rung, failures, failure, plan, _keys_in(error)))
        live.is_given_up = True

    def _rung(self, failures: int) -> Rung | None:
        definition = self._definition
        ladder = definition.ladder
        if not ladder and definition.attempts > 1:
            most = max(definition.backoff, timedelta(minutes=5))
            ladder = (Retry(definition.attempts - 1, definition.backoff, most),)
        return next_rung(ladder, failures) if ladder else None

    async def _other_plan(self, rung: Rung, failure: Failure) -> Plan | None:
        keeper = self.program.plan
        plan = self._past.plan if keeper is None else keeper.plan
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
        self, rung: Rung, failures: int, failure: Failure, plan: Plan | None, keys: list[Key]
    ) -> Callable[[Tx], None]:
        """Each retry of a task is a follow-up run; what made it fail is forgotten, so that it is tried."""
        claim, now = self.live.claim, self.live.clock.now()
        due_at = now
        if isinstance(rung, Retry):
            chance = random.random()  # noqa: S311 - jitter, not a secret
            due_at = now + delay(rung, failures, chance=chance)
        new_id = new_run_id(now)

        def try_again(tx: Tx) -> None:
            before = tx.runs.get(claim.run_id)
            if before.status is RunStatus.FAILED and before.fence == claim.fence:
                return  # the write runs a second time after its own commit
            if plan is not None:
                tx.journal.save_plan(claim, plan, now=now)
            for scope, name, occurrence in keys:
                tx.journal.forget_step(claim, scope, name, occurrence)
            run = tx.runs.end(claim.run_id, claim.fence, RunStatus.FAILED, failure=failure, now=now)
            if run is None:
                raise ClaimLost(claim.run_id, claim.fence)
            tx.runs.create(_follow_up(run, new_id, due_at, now))
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

    # --- time

    def _timed_out(self) -> Failure:
        return Failure(kind="timed_out", message=f"it took longer than {self._definition.timeout}")

    @contextlib.asynccontextmanager
    async def _timeout(self) -> Any:
        """The task's own limit, counted from its first start: through every run, waits included."""
        limit, live = self._definition.timeout, self.live
        if limit is None:
            yield
            return
        since = live.task.started_at or live.clock.now()
        left = (since + limit - live.clock.now()).total_seconds()
        try:
            async with asyncio.timeout(max(0.0, left)):
                yield
        except TimeoutError as error:
            if live.clock.now() >= since + limit:
                raise _TaskTimeout from error
            raise


class _TaskTimeout(BaseException):
    pass


def _follow_up(run: RunRecord, new_id: Any, due_at: datetime, now: datetime) -> RunRecord:
    return RunRecord(
        id=new_id,
        task_id=run.task_id,
        task_name=run.task_name,
        number=run.number + 1,
        resumes_run_id=run.id,
        seed=run.seed,
        created_at=now,
        priority=run.priority,
        due_at=due_at,
        queue=Queue.READY if due_at <= now else Queue.LATER,
        updated_at=now,
    )


def _keys_in(error: BaseException | None) -> list[Key]:
    """The steps whose failure this is, or came from: those are to be tried again."""
    keys: list[Key] = []
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, StepFailed) and (key := getattr(error, "__holdfast_key__", None)):
            keys.append(key)
        if isinstance(error, BaseExceptionGroup):
            for inner in error.exceptions:
                keys += _keys_in(inner)
        error = error.__cause__ or error.__context__
    return keys
