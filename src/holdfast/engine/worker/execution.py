"""One claimed run from start to end: called, ended, tried again or released."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.checkpoint import CheckpointKind, SeedContext, decode_seed
from holdfast.core.errors import ClaimLost, HoldfastError, PageDamaged, RowDamaged, StoreUnavailable
from holdfast.core.events import EventKind
from holdfast.core.plan import Plan
from holdfast.core.run import RunOutcome
from holdfast.core.schedule import WakeReason
from holdfast.core.smart_wake import SmartWake, estimated, is_expected
from holdfast.core.task import Failure, RuntimeName, Task
from holdfast.core.transitions import RunStatus, TaskStatus
from holdfast.engine.claims.claims import ClaimedRun
from holdfast.engine.journal.codec import Exited, failure_of
from holdfast.engine.journal.scopes import TaskHistory
from holdfast.engine.ledger.batched_ends import GoodEnd
from holdfast.engine.ledger.ledger import (
    DEFAULT_RETENTION,
    Finished,
    doubt_effects,
    end_task,
    may_have_wakes,
    why_not_ended,
)
from holdfast.engine.program.author_api import Run
from holdfast.engine.program.definitions import TaskDefinition
from holdfast.engine.program.live_run import LiveRun, RunHost
from holdfast.engine.program.program import RunProgram
from holdfast.engine.program.retry_ladder import Retries, SaidFail, keys_in
from holdfast.engine.program.run_limit import RunLimit
from holdfast.engine.program.run_phase import StopReason
from holdfast.engine.program.stopping import Stopping
from holdfast.engine.recovery.checkpoints import recording
from holdfast.engine.recovery.wakes import pausing_until_wake, wake_time
from holdfast.store import Tx, Write
from holdfast.store.blobs import Packed, pack_beside

if TYPE_CHECKING:
    from holdfast.engine.program.restart_requests import OnRestart

# Only one line for each task that fails for good: a program that shows failures itself can silence it.
log = logging.getLogger("holdfast.tasks")

# How many earlier tasks of the same name preflight looks at.
HISTORY = 20


def _as_planned(seed: SeedContext, plan: Plan | None) -> SeedContext:
    """The seed with the titles that the program gave its items: in the checkpoint they are redacted."""
    if seed.plan is None or plan is None:
        return seed
    titles = {item.id: item.title for item in plan.items}
    items = [msgspec.structs.replace(item, title=titles.get(item.id, item.title)) for item in seed.plan.items]
    return msgspec.structs.replace(seed, plan=Plan(items=tuple(items)))


class Execution:
    """One run of one task, in this process."""

    def __init__(
        self,
        place: RunHost,
        claimed: ClaimedRun,
        definition: TaskDefinition[..., Any],
        past: TaskHistory,
        *,
        sleep: Callable[[float], Awaitable[object]] | None = None,
        on_restart: OnRestart | None = None,
    ) -> None:
        self.claimed = claimed
        self.live = LiveRun(place, claimed.claim, claimed.run, claimed.task, sleep=sleep)
        # The task as it ended here, for callers in this process that wait for it.
        self.ended: Task | None = None
        self._definition = definition
        self._past = past
        seed = None if claimed.run.seed is None else _as_planned(decode_seed(claimed.run.seed), past.plan)
        self.program = RunProgram(self.live, past, definition.budget)
        if seed is not None and definition.done:
            seed = msgspec.structs.replace(seed, done_criteria=self.done_criteria)
        self._seed = seed
        self.run = Run(self.program, seed=seed, on_restart=on_restart)
        self.live.limit = self._limit(place)

    @property
    def done_criteria(self) -> tuple[str, ...]:
        """What must hold when the task is done, in words."""
        return tuple(one.name for one in self._definition.done)

    @property
    def _retries(self) -> Retries:
        return Retries(self.program, self._definition)

    async def carry(self) -> None:
        """Returns when the ledger knows how it went, or when another worker has the run."""
        try:
            await self._carry()
        except (ClaimLost, StoreUnavailable, Stopping):
            # Not ours to end: another worker has it, or the reaper will find it.
            if self.live.must_cancel:
                await self._end_cancelled()
            elif not self.live.is_given_up and self.live.damage is not None:
                await self._end_damaged(self.live.damage)
            elif not self.live.is_given_up and self.live.why is StopReason.RUN_TIMEOUT:
                with contextlib.suppress(ClaimLost, StoreUnavailable, Stopping):
                    await self.end_at_limit()
        finally:
            self.live.close()

    async def _carry(self) -> None:
        live = self.live
        if live.task.cancel_requested_at is not None:
            live.stop(StopReason.CANCELLED)
        self._refuse_if_stopped()
        try:
            arguments = await self._arguments()
        except HoldfastError as error:
            await self._fail(error)
            return
        try:
            if live.limit is not None:
                await self._preflight(live.limit)
            if self._definition.timeout is None:
                result = await self._call(arguments)
            else:
                async with self._timeout(self._definition.timeout):
                    result = await self._call(arguments)
        except Stopping:
            raise
        except asyncio.CancelledError:
            if live.why is not None:
                raise Stopping(live.why) from None
            child = asyncio.current_task()
            if child is None or child.cancelling():
                raise  # the worker itself is being cancelled, not this run
            await self._try_again(RuntimeError("the program let a CancelledError of its own pass"))
        except _TaskTimeout:
            await self._end(RunStatus.TIMED_OUT, failure=self._timed_out())
        except SaidFail as said:
            await self._end(RunStatus.FAILED, failure=said.failure)
        except BaseExceptionGroup as group:
            # A task group tests for exactly CancelledError, and takes Stopping for an error.
            self._refuse_if_stopped()
            if not isinstance(group, Exception):
                raise
            await self._try_again(group)
        except SystemExit as error:
            await self._try_again(Exited(error))
        except RowDamaged as damage:
            await self._end_unreadable(damage)
        except Exception as error:  # noqa: BLE001 - the user's own work
            await self._try_again(error)
        else:
            # A program that swallowed Stopping is stopped here; one that came to its end may end.
            if not live.may_finish:
                self._refuse_if_stopped()
            await self._finish(result)

    async def _call(self, arguments: dict[str, Any]) -> Any:
        if not self._past.is_empty:
            await self._retries.heed_answers()
        if self._seed is not None and self._seed.artifacts and self._may_be_woken:
            from holdfast.engine.program.artifact_checks import ArtifactChecks

            await ArtifactChecks(self.program, self._seed).heed()
        self.program.begin()
        return await self._definition.fn(self.run, **arguments)

    @property
    def _may_be_woken(self) -> bool:
        """Whether a wake started this run, or wakes may start runs of its task: such a task goes on later by
        itself, so a person is asked about artifacts that changed meanwhile. A crash after the wake does not
        change that."""
        is_woken = self._seed is not None and self._seed.wake_id is not None
        return is_woken or self.live.limit is not None or bool(self._definition.done)

    async def _arguments(self) -> dict[str, Any]:
        arguments, before = self._definition.arguments_of(self.live.task.arguments)
        if before is not None:
            claim, now, version = self.live.claim, self.live.clock.now(), self._definition.version

            def tell(tx: Tx) -> None:
                tx.emit(
                    EventKind.TASK_MIGRATED,
                    claim.run_id,
                    at=now,
                    task_id=claim.task_id,
                    version=version,
                    migrated=before,
                )

            await self.program.once(("", "migrate", f"{before}-{version}"), None, tell)
        return arguments

    def _refuse_if_stopped(self) -> None:
        if self.live.why is not None:
            raise Stopping(self.live.why)

    # --- ends

    async def _finish(self, result: Any) -> None:
        try:
            payload = self._definition.codec.encode_as(f"result of {self._definition.name}", result)
        except HoldfastError as error:
            await self._fail(error)
            return
        await self.program.until_idle()
        await self.program.settle_cut()
        if self.live.has_children:
            await self.program.waits.children_end()
        if self._definition.done and await self._is_undone(result):
            return
        await self._end(RunStatus.SUCCEEDED, packed=await pack_beside(payload, self.live.sealing))

    async def _is_undone(self, result: Any) -> bool:
        """Whether a done criterion does not hold: then the task is woken again to go on, or fails after too
        many cycles without progress."""
        from holdfast.engine.program.done_checking import unmet_of

        live, checks = self.live, self._definition.done
        unmet = await unmet_of(checks, result)
        now, claim = live.clock.now(), live.claim
        met = [one.name for one in checks if one.name not in unmet]

        def tell(tx: Tx) -> None:
            tx.journal.require(claim)
            tx.emit(EventKind.DONE_CHECKED, claim.run_id, at=now, task_id=claim.task_id, met=met, unmet=unmet)

        await live.write(tell)
        if not unmet:
            return False
        idle = 0 if self.program.stepper.saved else live.run.idle_attempts + 1
        message = "; ".join(f"{name}: {why}" for name, why in unmet.items())
        if idle >= self._definition.attempts:
            failure = Failure(
                kind="done_criteria_unmet",
                message=f"the program came to its end {idle} times without progress, and this does not hold: "
                f"{message}"[:4000],
                facts={"unmet": unmet, "attempts": idle},
            )
            await self._end(RunStatus.FAILED, failure=failure)
            return True
        due_at = await wake_time(live.store, live.place.wakes, now=now, after=self._definition.wake_after)
        await live.write(
            pausing_until_wake(
                claim,
                due_at=due_at,
                now=now,
                reason=WakeReason.SCHEDULED_PROGRESS,
                own_reason="done criteria unmet",
                note=f"not done: {message}"[:2000],
                done_criteria=self.done_criteria,
                unmet=tuple(unmet),
                max_idle_attempts=live.place.max_idle_attempts,
            )
        )
        live.let_go()
        return True

    async def _end(
        self, status: RunStatus, *, packed: Packed | None = None, failure: Failure | None = None
    ) -> None:
        live = self.live
        ending = self.program.ending() if status is RunStatus.SUCCEEDED else self.program.evidence()
        end = functools.partial(self._ending, status, packed, failure, ending)
        is_small = packed is not None and packed.digest is None
        if is_small and live.has_company and ending is None and not self.program.has_doubts:
            assert packed is not None
            good = GoodEnd(
                claim=live.claim,
                task=live.task,
                result=packed.stored,
                last_step=live.last_step,
                may_have_wakes=may_have_wakes(live.run),
                alone=end,
            )
            ended_at = await live.end(good)
        else:
            now = live.clock.now()
            ended_at = now if await live.write(end(now)) else None
        live.told_step = live.last_step
        live.let_go()
        if ended_at is not None and status in _GONE_WRONG and failure is not None:
            _tell_failure(live.task, failure)
        if ended_at is not None and is_small:
            assert packed is not None
            self.ended = msgspec.structs.replace(
                live.task,
                status=TaskStatus.SUCCEEDED,
                result=packed.stored,
                ended_at=ended_at,
                updated_at=ended_at,
            )

    def _ending(
        self,
        status: RunStatus,
        packed: Packed | None,
        failure: Failure | None,
        ending: Callable[[Tx], None] | None,
        now: datetime,
    ) -> Write[bool]:
        live, claim = self.live, self.live.claim
        last_step = live.step_at_end

        def end(tx: Tx) -> bool:
            if ending is not None and tx.journal.holds(claim.run_id, claim.task_id, claim.fence):
                ending(tx)
            if not tx.runs.end_held(claim.run_id, claim.fence, status, failure=failure, now=now):
                return isinstance(why_not_ended(tx, claim, status, packed, now=now), Finished)
            result = None if packed is None else tx.blobs.keep(claim.task_id, packed)
            outcome = RunOutcome(status=status, result=result, failure=failure)
            end_task(
                tx,
                live.run,
                outcome,
                now=now,
                retention=DEFAULT_RETENTION,
                task=live.task,
                last_step=last_step,
            )
            if self.program.has_doubts:
                doubt_effects(tx, claim.task_id, now=now)
            return True

        return end

    async def _end_cancelled(self) -> None:
        live = self.live
        await live.until_calm()
        with contextlib.suppress(ClaimLost, StoreUnavailable):
            # The task as it is now: as a rule the cancel came after the claim.
            asked = await live.store.read(lambda tx: tx.tasks.look(live.task.id))
            reason = asked.cancel_reason or "cancelled"
            await self._end(RunStatus.CANCELLED, failure=Failure(kind="cancelled", message=reason))

    async def _end_damaged(self, damage: PageDamaged) -> None:
        """A replay would find the same page, so the run fails. Raises the damage if it cannot be written."""
        await self.live.until_calm()
        with contextlib.suppress(ClaimLost, StoreUnavailable, Stopping):
            await self._end(RunStatus.FAILED, failure=Failure(kind=damage.code, message=str(damage)))
        if not self.live.is_given_up:
            raise damage

    async def _end_unreadable(self, damage: RowDamaged) -> None:
        """Its past is damaged, or its key is lost: a retry would find the same, so the run fails."""
        await self.live.until_idle()
        self._refuse_if_stopped()
        await self.program.settle_cut()
        await self._end(RunStatus.FAILED, failure=Failure(kind=damage.code, message=str(damage)))

    async def _fail(self, error: BaseException) -> None:
        await self._end(RunStatus.FAILED, failure=failure_of(error))

    async def _try_again(self, error: Exception) -> None:
        """The next rung of the ladder, or the end."""
        from holdfast.engine.recovery.reopen import naming_steps

        await self.live.until_idle()
        self._refuse_if_stopped()
        await self.program.settle_cut()
        await self.program.ask_about(keys_in(error))
        try:
            again = await self._retries.after(error)
        except (Exception, SystemExit) as other:  # noqa: BLE001 - the user's own function, to plan anew
            failure = naming_steps(failure_of(other), [*keys_in(error), *keys_in(other)])
            await self._end(RunStatus.FAILED, failure=failure)
            return
        if again is None:
            failure = naming_steps(failure_of(error), keys_in(error))
            await self._end(RunStatus.FAILED, failure=failure)
            return
        await self.live.write(again)
        self.live.let_go()

    # --- time

    def _limit(self, place: RunHost) -> RunLimit | None:
        definition, options = self._definition, place.wakes
        length = definition.run_timeout
        if length is None and self.live.task.runtime is RuntimeName.PYTHON:
            length = options.run_timeout
        if length is None:
            return None
        return RunLimit(
            length,
            definition.smart_wake or options.smart_wake,
            options,
            wake_after=definition.wake_after,
            now_ns=place.steady(),
            has_progressed=lambda: self.program.stepper.saved > 0,
        )

    async def _preflight(self, limit: RunLimit) -> None:
        """Estimate how long the run will take, from its plan and from earlier tasks of its name."""
        live, estimate = self.live, None
        if limit.mode is SmartWake.AUTO:
            earlier = await live.read(lambda tx: tx.tasks.durations(live.task.name, limit=HISTORY))
            estimate = estimated(earlier, self._past.plan)
            limit.is_expected = is_expected(estimate, limit.length, limit.options)
        if limit.is_smart and live.claim.fence == 1:
            await live.write(self._limiting(limit, estimate))

    def _limiting(self, limit: RunLimit, estimate: timedelta | None) -> Write[None]:
        """The write that records that smart wake is on, and the first checkpoint of a task."""
        live, now = self.live, self.live.clock.now()
        claim, is_first = live.claim, live.run.number == 1
        record = recording(claim, CheckpointKind.PERIODIC, "start", now=now)

        def limit_run(tx: Tx) -> None:
            tx.journal.require(claim)
            tx.emit(
                EventKind.RUN_LIMITED,
                claim.run_id,
                at=now,
                task_id=claim.task_id,
                run_timeout_s=limit.length.total_seconds(),
                estimate_s=None if estimate is None else estimate.total_seconds(),
                smart_wake=limit.mode.value,
            )
            if is_first:
                record(tx)

        return limit_run

    async def end_at_limit(self) -> None:
        """The run has used its time: save it with its wake, or end it. Raises as `live.write` does."""
        live, limit = self.live, self.live.limit
        assert limit is not None
        await live.until_idle()
        if live.is_given_up:
            return
        if not limit.is_smart:
            await self._end(RunStatus.TIMED_OUT, failure=run_timed_out(limit))
            return
        now = live.clock.now()
        due_at = await wake_time(live.store, limit.options, now=now, after=limit.wake_after)
        await live.write(
            pausing_until_wake(
                live.claim,
                due_at=due_at,
                now=now,
                done_criteria=self.done_criteria,
                max_idle_attempts=live.place.max_idle_attempts,
            )
        )
        live.let_go()

    def _timed_out(self) -> Failure:
        return Failure(kind="timed_out", message=f"it took longer than {self._definition.timeout}")

    @contextlib.asynccontextmanager
    async def _timeout(self, limit: timedelta) -> Any:
        """The task's own limit, counted from its first start: through every run, waits included."""
        live = self.live
        live.deadline = (live.task.started_at or live.clock.now()) + limit
        left = (live.deadline - live.clock.now()).total_seconds()
        if left <= 0:
            raise _TaskTimeout
        try:
            async with asyncio.timeout(left) as timer:
                yield
        except TimeoutError as error:
            if timer.expired() or live.clock.now() >= live.deadline:
                raise _TaskTimeout from error
            raise


def run_timed_out(limit: RunLimit) -> Failure:
    never = " (smart_wake is never)" if limit.mode is SmartWake.NEVER else ", and it had saved no step"
    return Failure(
        kind="timed_out",
        message=f"its run took longer than {limit.length}{never}",
        facts={"run_timeout_s": limit.length.total_seconds()},
    )


class _TaskTimeout(BaseException):
    pass


_GONE_WRONG = frozenset({RunStatus.FAILED, RunStatus.TIMED_OUT})


def _tell_failure(task: Task, failure: Failure) -> None:
    places = failure.facts.get("traceback")
    where = f" at {places[-1]}" if isinstance(places, list) and places else ""
    message = " ".join(failure.message.split())
    log.warning("%s (%s) failed: %s: %s%s", task.id, task.name, failure.kind, message, where)
