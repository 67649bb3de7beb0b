"""Kills a task at every point where it persists something, resumes it, and compares the results."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from holdfast.core.checkpoint import ResumeReason
from holdfast.core.effect import Decision, Effect, EffectClass
from holdfast.core.errors import BadInput, NotInRun
from holdfast.core.payload import decode_payload
from holdfast.core.run import Queue, RunRecord
from holdfast.core.step import shown_occurrence
from holdfast.core.task import Failure, Task
from holdfast.core.transitions import EffectStatus, FlowStatus, RunStatus, TaskStatus
from holdfast.engine.aio.threads import StepThreads
from holdfast.engine.claims.boots import Life
from holdfast.engine.claims.claims import NEVER, ClaimedRun, Claims
from holdfast.engine.clocks.steady import ElapsedTime, steady_of
from holdfast.engine.conversation.questions import answering
from holdfast.engine.journal.scopes import Key, TaskHistory, load_pasts
from holdfast.engine.ledger.flows import NewFlow, creating_flow
from holdfast.engine.ledger.ledger import NewTask, creating, opened
from holdfast.engine.program.definitions import Call, TaskDefinition, by_name
from holdfast.engine.program.effect_reviews import resolving
from holdfast.engine.program.effects import idempotency_key
from holdfast.engine.program.flow_builder import FlowBuilder
from holdfast.engine.program.live_run import RunHost, nanos_of
from holdfast.engine.program.restart_requests import WantedRestart
from holdfast.engine.program.run_phase import StopReason
from holdfast.engine.program.steps import FREE, StepCall, StepRunner
from holdfast.engine.program.waits import sending
from holdfast.engine.recovery.checkpoints import Checkpoints
from holdfast.engine.recovery.rescue import Rescuer
from holdfast.engine.recovery.resume import Resumer
from holdfast.engine.recovery.wakes import WakeTimer
from holdfast.engine.worker.execution import Execution
from holdfast.store import Store, Tx
from holdfast.store.effects import BeginEffect, FinishEffect
from holdfast.store.journal import SaveStep
from holdfast.store.rows.effects import effect_from_row
from holdfast.store.rows.work import run_from_row
from holdfast.store.verify import scan
from holdfast.testing.clocks import FakeClock
from holdfast.testing.stores import (
    Crashed,
    FailingStore,
    Failpoint,
    RepeatingStore,
    crash,
    memory_store,
    name_of,
)

T = TypeVar("T")

# Claims are not renewed here, and no lease may lapse although years pass.
_LEASE = timedelta(days=36_500)
_PATIENCE_S = 120.0
_REMEDY = (
    "Local variables that a turn changed are lost in a restart: keep what crosses turns in run.list(…) or "
    "run.value(…). Put what differs each time (the clock, random numbers, the world) into a step."
)


class CrashPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One point at which the task was killed, and what followed."""

    where: str
    # Effects that needed a review.
    reviews: tuple[str, ...] = ()
    # Steps that ran again because their result was not saved yet.
    repeated: tuple[str, ...] = ()


class CrashReport(msgspec.Struct, frozen=True, kw_only=True):
    """The points of all crashes; each ended with the same result as the run without a crash."""

    status: TaskStatus | FlowStatus
    result: Any
    points: tuple[CrashPoint, ...]

    @property
    def reviews(self) -> int:
        return sum(len(point.reviews) for point in self.points)

    @property
    def repeated(self) -> int:
        return sum(len(point.repeated) for point in self.points)


async def crash_everywhere(
    task: TaskDefinition[..., Any] | Call[Any] | FlowBuilder,
    /,
    *args: Any,
    tasks: Sequence[TaskDefinition[..., Any]] = (),
    answers: Mapping[str, object] | None = None,
    mail: Sequence[tuple[str, object]] = (),
    pairs: bool = False,
    twice: bool = False,
    drain: bool = False,
    store: Callable[[], AbstractContextManager[Store]] | None = None,
    clock: FakeClock | None = None,
    **kwargs: Any,
) -> CrashReport:
    """Run the task once without a crash. Then, for each point before and after each of its writes (and so
    also before and after each call of an effect): run it, kill it there, and resume it in a new process.

    Raises AssertionError, with the place and the reason, unless every run ends with the same result, no step
    with a saved result runs again, no effect is repeated that must not be, and every effect of unknown
    outcome is in review. The reviews are then resolved as a person would who knows what happened.

    A flow is killed at each point of all its tasks: `crash_everywhere(flow, tasks=[…])`, with the tasks of
    its nodes. Its result is the status and the result of each node.

    Time passes by itself. `tasks` are the other tasks that it spawns; `answers` are given to its questions,
    by their text or a part of it; `mail` is sent when it waits for the topic. `pairs` also kills the second
    process, at each of its points. `twice` runs every write a second time after its own commit. With `drain`
    the process is told to stop at each point instead of being killed, as in a planned restart. A task that
    calls `run.requires_restart` gets its restart. Each run has a fresh ledger in memory, unless `store` makes
    another, which may follow `clock`. If the task's arguments have the names of these options, pass a call:
    `crash_everywhere(my_task(…), pairs=True)`.
    """
    stage = _Stage(_call_of(task, args, kwargs), tasks, answers or {}, mail, store, clock, drain=drain)
    expected = await stage.play()
    if twice:
        stage.compare("when every write ran twice", expected, await stage.play(twice=True))
    points: list[CrashPoint] = []
    for first in expected.points:
        played = await stage.play(first.point)
        points.append(stage.compare(f"crashed {first}", expected, played))
        for second in played.points if pairs else ():
            where = f"crashed {first}, and its next process {second}"
            points.append(stage.compare(where, expected, await stage.play(first.point, second.point)))
    return CrashReport(status=expected.status, result=expected.result, points=tuple(points))


def _call_of(
    task: TaskDefinition[..., Any] | Call[Any] | FlowBuilder, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Call[Any] | FlowBuilder:
    if isinstance(task, TaskDefinition):
        return task(*args, **kwargs)
    if not isinstance(task, (Call, FlowBuilder)):
        raise BadInput("task", f"a task, a call of one or a flow is needed, not {type(task).__name__}")
    if args or kwargs:
        raise BadInput("task", "it has its arguments already")
    return task


# --- what was seen


class _Point(msgspec.Struct, frozen=True):
    """A point where a process can die, in words."""

    point: Failpoint
    what: str

    def __str__(self) -> str:
        return f"{self.point.where} write {self.point.call} ({self.what})"


class _Ran(msgspec.Struct, kw_only=True):
    """One call of a step's function."""

    task_id: str
    key: Key
    is_effect: bool
    life: int
    idempotency_key: str | None
    # False also if the process died before it returned.
    has_returned: bool = False
    has_raised: bool = False
    result: object = None

    @property
    def shown(self) -> str:
        scope, name, occurrence = self.key
        return f"step {name} ({shown_occurrence(occurrence)}{f' in {scope}' if scope else ''})"


class _Played(msgspec.Struct, frozen=True, kw_only=True):
    """What happened: how the task or the flow ended, the points of the last process, and the steps that
    ran."""

    status: TaskStatus | FlowStatus
    result: object
    failure: Failure | None
    points: list[_Point]
    ran: list[_Ran]
    reviewed: list[str]

    @property
    def end(self) -> tuple[object, ...]:
        failure = self.failure
        return (self.status, self.result, failure and (failure.kind, failure.message))

    @property
    def shown(self) -> str:
        if self.failure is not None:
            return f"{self.status}: {self.failure.kind}: {self.failure.message}"
        return f"{self.status} with {self.result!r}"


class _Stage:
    """One task or flow and its options; plays it any number of times."""

    def __init__(
        self,
        call: Call[Any] | FlowBuilder,
        tasks: Sequence[TaskDefinition[..., Any]],
        answers: Mapping[str, object],
        mail: Sequence[tuple[str, object]],
        store: Callable[[], AbstractContextManager[Store]] | None,
        clock: FakeClock | None,
        *,
        drain: bool,
    ) -> None:
        self._call = call
        self._drain = drain
        own = [call.definition] if isinstance(call, Call) else []
        self._known = by_name([*dict.fromkeys([*own, *tasks])])
        self._answers = answers
        self._mail = mail
        self._store = store
        self._clock = clock

    async def play(self, *plan: Failpoint, twice: bool = False) -> _Played:
        """Run the task on a fresh ledger: a process dies at each point of the plan, the last one ends it."""
        clock = FakeClock() if self._clock is None else self._clock
        start = clock.now()
        fresh = self._store or (lambda: contextlib.closing(memory_store(clock)))
        with fresh() as store, tempfile.TemporaryDirectory(prefix="holdfast-") as locks:
            world = _World(store, clock, Path(locks), self._known, self._answers, self._mail)
            world.twice, world.drain = twice, self._drain
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    return await world.play(self._call, plan)
            finally:
                clock.set(start)

    def compare(self, where: str, expected: _Played, played: _Played) -> CrashPoint:
        if played.end != expected.end:
            raise AssertionError(
                f"{self._call.name}, {where}: it ended {played.shown}; without a crash it ends "
                f"{expected.shown}.\n{_REMEDY}"
            )
        return CrashPoint(
            where=where, reviews=tuple(played.reviewed), repeated=tuple(_repeated(expected, played))
        )


def _repeated(expected: _Played, played: _Played) -> Iterator[str]:
    """Steps that ran more often than without a crash. Counted by scope and name, because ids may differ from
    play to play, such as those that an agent framework generates."""
    more = Counter(ran.key[:2] for ran in played.ran) - Counter(ran.key[:2] for ran in expected.ran)
    seen, first, again = set[tuple[str, Key]](), list[_Ran](), list[_Ran]()
    for ran in played.ran:
        (again if (ran.task_id, ran.key) in seen else first).append(ran)
        seen.add((ran.task_id, ran.key))
    for place, count in more.items():
        likely = [ran.shown for ran in (*again, *reversed(first)) if ran.key[:2] == place]
        yield from likely[:count]


class _Subject:
    """The task or the flow that is played."""

    def __init__(self, record_id: str, *, is_flow: bool) -> None:
        self._id = record_id
        self._is_flow = is_flow

    def has_ended(self, tx: Tx) -> bool:
        """A blocked flow without live tasks waits for a person, so nothing follows."""
        if not self._is_flow:
            return tx.tasks.get(self._id).has_ended
        flow = tx.flows.get(self._id)
        return flow.has_ended or (flow.status is FlowStatus.BLOCKED and flow.live == 0)

    def end(self, tx: Tx) -> tuple[TaskStatus | FlowStatus, object, Failure | None]:
        """How it ended: status, result, failure. The result of a flow is that of each node."""
        if not self._is_flow:
            task = opened(tx, tx.tasks.get(self._id))
            return task.status, _decoded(task), task.failure
        flow = tx.flows.get(self._id)
        nodes = tx.flow_nodes.page(flow.id, limit=flow.nodes)
        tasks = tx.tasks.get_many([node.task_id for node in nodes if node.task_id is not None])
        results = {
            node.id: (node.status.value, _decoded(opened(tx, tasks[node.task_id])) if node.task_id else None)
            for node in nodes
        }
        if len(tasks) != len(tx.tasks.of_flow(flow.id, limit=flow.nodes + 1)):
            raise AssertionError(f"a node of {flow.name} was started twice")
        return flow.status, results, flow.failure


def _decoded(task: Task) -> object:
    return None if task.result is None else decode_payload(task.result)


class _World:
    """One ledger, the world outside, and the processes that follow one another."""

    def __init__(
        self,
        store: Store,
        clock: FakeClock,
        locks: Path,
        known: Mapping[str, TaskDefinition[..., Any]],
        answers: Mapping[str, object],
        mail: Sequence[tuple[str, object]],
    ) -> None:
        self.store = store
        self.clock = clock
        self.locks = locks
        self.known = known
        self.twice = self.drain = False
        self.ran: list[_Ran] = []
        self.reviewed: list[str] = []
        self._answers = answers
        self._mail = list(mail)
        self._in_doubt: list[Effect] = []

    async def play(self, call: Call[Any] | FlowBuilder, plan: Sequence[Failpoint]) -> _Played:
        subject = await self._start(call)
        for number, point in enumerate([*plan, None], start=1):
            process = await _Process.begin(self, number, () if point is None else (point,))
            if await process.work(subject):
                break
            self._in_doubt += [one for one in self._effects() if _needs_review(one)]
        await process.life.end()
        self._check_doubts(self._effects())
        if problems := self.store.verify():
            raise AssertionError(f"the ledger is damaged: {'; '.join(problems)}")
        points = [] if self.twice else process.points
        status, result, failure = self.store.read_now(subject.end)
        return _Played(
            status=status,
            result=result,
            failure=failure,
            points=points,
            ran=self.ran,
            reviewed=self.reviewed,
        )

    async def _start(self, call: Call[Any] | FlowBuilder) -> _Subject:
        if isinstance(call, FlowBuilder):
            new_flow = NewFlow(definition=call.definition())
            flow = await self.store.write(creating_flow(new_flow, now=self.clock.now()))
            return _Subject(flow.id, is_flow=True)
        new = NewTask(name=call.name, goal=call.goal, arguments=call.arguments)
        (task,) = await self.store.write(creating([new], now=self.clock.now()))
        return _Subject(task.id, is_flow=False)

    # --- effects

    def _effects(self) -> list[Effect]:
        return self.store.read_now(
            lambda tx: [effect_from_row(row, tx.sealing) for row in scan(tx, "effects", 6)]
        )

    def _check_doubts(self, effects: Sequence[Effect]) -> None:
        now = {effect.id: effect for effect in effects}
        for effect in self._in_doubt:
            found = now.get(effect.id, effect)
            if found.review is None and found.status is not EffectStatus.UNKNOWN:
                raise AssertionError(
                    f"whether {effect.name} happened is unknown, but it is {found.status}, not in review"
                )

    def check_call(self, task_id: str, doing: StepCall, ran: _Ran) -> None:
        """A step must not run again once its result is saved, nor an effect that may have happened."""
        if self.store.read_now(lambda tx: _is_remembered(tx, task_id, doing.key)):
            raise AssertionError(f"{ran.shown} runs again, although its result was saved")
        before = [one for one in self.ran if (one.task_id, one.key) == (task_id, doing.key)]
        if not ran.is_effect or not any(one.has_returned for one in before):
            return
        assert doing.effect is not None
        match doing.effect.effect_class:
            case EffectClass.VERIFIABLE:
                raise AssertionError(f"{ran.shown} runs again: it had happened, but `verify` says otherwise")
            case EffectClass.KEYED if before[-1].idempotency_key == ran.idempotency_key:
                return
            case _:
                raise AssertionError(f"{ran.shown} runs again, although it had happened")

    async def _resolve(self, effect: Effect) -> None:
        """Decide as a person would who knows what happened: `done` with its result if it returned, `skip` if
        it raised, `retry` if it never ran."""
        ran = [one for one in self.ran if (one.task_id, one.key) == (effect.task_id, effect.key)]
        done = [one for one in ran if one.has_returned]
        decision, result = (Decision.DONE, done[-1].result) if done else (Decision.RETRY, None)
        if not done and any(one.has_raised for one in ran):
            decision = Decision.SKIP
        self.reviewed.append(effect.name)
        await self.store.write(
            resolving(effect.id, decision, by="crash_everywhere", now=self.clock.now(), result=result)
        )

    # --- the world outside

    async def help(self) -> None:
        """When all runs wait: answer, send mail, review, or let time pass. Raises when nothing helps."""
        runs = self.store.read_now(lambda tx: [*map(run_from_row, scan(tx, "runs", 1))])
        waiting = [run for run in runs if run.status is RunStatus.WAITING]
        for run in waiting:
            if await self._bring(run):
                return
        due = [run.due_at for run in waiting]
        due += [run.due_at for run in runs if run.status is RunStatus.QUEUED and run.queue is Queue.LATER]
        due += [one.due_at for one in self.store.read_now(lambda tx: tx.wakes.pending(limit=100))]
        if due and min(due) < NEVER:
            self.clock.set(max(min(due), self.clock.now()))
            return
        raise AssertionError("; ".join(self._why_stuck(runs, waiting)))

    async def _bring(self, run: RunRecord) -> bool:
        what, _, name = (run.waits_on or "").partition(":")
        match what:
            case "review":
                await self._resolve(self.store.read_now(lambda tx: tx.effects.get(name)))
                return True
            case "answer":
                question = self.store.read_now(lambda tx: tx.questions.get(name))
                for text, answer in self._answers.items():
                    if text in question.question:
                        await self.store.write(
                            answering(name, answer, by="crash_everywhere", now=self.clock.now())
                        )
                        return True
            case "mail":
                for place, (topic, body) in enumerate(self._mail):
                    if topic == name:
                        del self._mail[place]
                        await self.store.write(
                            sending(
                                run.task_id,
                                topic=topic,
                                body=body,
                                sender="crash_everywhere",
                                key=f"{len(self._mail)} left",
                                now=self.clock.now(),
                            )
                        )
                        return True
        return False

    def _why_stuck(self, runs: Sequence[RunRecord], waiting: Sequence[RunRecord]) -> list[str]:
        unknown = {run.task_name for run in runs if not run.has_ended} - self.known.keys()
        why = [f"{name} was started, but is not among the tasks; give tasks=[{name}]" for name in unknown]
        for run in waiting:
            what, _, name = (run.waits_on or "").partition(":")
            if what == "answer":
                question = self.store.read_now(lambda tx: tx.questions.get(name))  # noqa: B023 - read at once
                why.append(f"{run.task_name} asks {question.question!r}; give answers={{…}}")
            elif what == "mail":
                why.append(f"{run.task_name} waits for mail on {name!r}; give mail=[({name!r}, …)]")
        return why or [f"{run.task_name} is {run.status}" for run in runs if not run.has_ended]


class _Process:
    """One simulated process: it claims ready runs and executes them, until it is killed or all is done."""

    def __init__(self, world: _World, number: int, life: Life, store: FailingStore) -> None:
        self._world = world
        self._number = number
        self._store = store
        self._whats: list[str] = []
        inner = RepeatingStore(store) if world.twice else store
        self._telling = _Telling(inner, self._whats)
        self._executions: list[Execution] = []
        self._is_draining = False
        self._wrong: AssertionError | None = None
        self._live_as(life)

    def _live_as(self, life: Life) -> None:
        world, self.life = self._world, life
        self._claims = Claims(world.store, world.clock, life.id, names=sorted(world.known), lease=_LEASE)
        self._rescuer = Rescuer(world.store, world.clock, life)
        # The process can die at its writes, too.
        mortal = cast(Store, self._telling)
        self._wake_timer = WakeTimer(
            mortal, world.clock, Resumer(mortal, world.clock, life.id, concurrency=1)
        )
        self._place = RunHost(
            store=cast(Store, self._telling),
            clock=world.clock,
            nanos=nanos_of(world.clock),
            steady=steady_of(world.clock),
            elapsed=ElapsedTime(world.clock),
            life=life,
            threads=StepThreads(8),
            digest_key=b"crash_everywhere",
            newest=lambda claim: claim,
            sleep=world.clock.sleep,
        )

    @classmethod
    async def begin(cls, world: _World, number: int, plan: Sequence[Failpoint]) -> _Process:
        """Start as every worker does: rescue and resume what a dead process left."""
        life = await Life.begin(world.store, world.clock, locks=world.locks)
        store = FailingStore(world.store, plan, act=lambda: process.stop() if world.drain else crash())
        process = cls(world, number, life, store)
        await process._take_over()
        return process

    async def _take_over(self) -> None:
        await self._rescuer.rescue_dead_boots()
        await Resumer(self._world.store, self._world.clock, self.life.id).resume_all(concurrency=1)

    @property
    def points(self) -> list[_Point]:
        return [
            _Point(Failpoint(call=call.number, where=where), what)
            for call, what in zip(self._store.calls, self._whats, strict=True)
            for where in ("before", "after")
        ]

    def stop(self) -> None:
        """Stop every run: its next call raises Stopping."""
        self._is_draining = True
        for execution in self._executions:
            execution.live.stop(StopReason.DRAINING)

    async def work(self, subject: _Subject) -> bool:
        """True when the task or the flow has ended; False when this process died or stopped before."""
        others = asyncio.all_tasks()
        carried: set[asyncio.Task[None]] = set()
        try:
            while not self._store.is_dead:
                if not self._is_draining:
                    carried |= await self._take()
                if self._store.is_dead:
                    break
                if self._only_waits_for_restart():
                    if not await self._restart():
                        return False
                elif carried:
                    # With a timeout: runs that these runs start must be claimed, too.
                    done, carried = await asyncio.wait(
                        carried, timeout=0.01, return_when=asyncio.FIRST_COMPLETED
                    )
                    self._raise_from(done)
                elif self._world.store.read_now(subject.has_ended):
                    return True
                elif self._is_draining:
                    await self._pause()
                    return False
                else:
                    await self._world.help()
        finally:
            await self._telling.until_quiet()
            await _end_all(carried | (asyncio.all_tasks() - others))
            self._place.threads.shutdown(wait=False)
            if self._store.is_dead:
                _let_die(self.life)
        return False

    def _only_waits_for_restart(self) -> bool:
        carried = [one.live for one in self._executions if not one.live.is_over]
        return bool(carried) and all(one.is_ready_to_pause for one in carried)

    async def _restart(self) -> bool:
        """A run asked for a restart: pause all runs, and go on as a new process. False when this one dies."""
        try:
            await self._pause()
        except Crashed:
            return False
        self._place.threads.shutdown(wait=False)
        if not self._is_draining:
            self._live_as(await Life.begin(self._world.store, self._world.clock, locks=self._world.locks))
            await self._take_over()
        return not self._is_draining

    async def _pause(self) -> None:
        """Pause all runs, as a drain does; the process can die at this write, too."""
        paused = [one.live for one in self._executions if not one.live.is_given_up]
        checkpoints = Checkpoints(cast(Store, self._telling), self._world.clock)
        asking = {str(one.run.id): one.restart_why for one in paused if one.restart_why is not None}
        await checkpoints.pause([one.claim for one in paused], ResumeReason.EXPLICIT_RESTART, asking=asking)
        for one in paused:
            one.give_up(StopReason.DRAINING)
        await self.life.end()

    def _raise_from(self, done: set[asyncio.Task[None]]) -> None:
        for child in done:
            error = None if child.cancelled() else child.exception()
            if error is not None and not self._store.is_dead:
                raise error
        if self._wrong is not None:
            raise self._wrong

    async def _take(self) -> set[asyncio.Task[None]]:
        await self._rescuer.ready_due()
        try:
            await self._wake_timer.run_once()
        except (Crashed, BaseExceptionGroup):
            if not self._store.is_dead:
                raise
            return set()
        claimed = await self._claims.take(100)
        return {
            asyncio.get_running_loop().create_task(self._begin(one, self._past_of(one)).carry())
            for one in claimed
        }

    def _past_of(self, claimed: ClaimedRun) -> TaskHistory:
        task_id = claimed.task.id
        return self._world.store.read_now(lambda tx: load_pasts(tx, [task_id]))[task_id]

    def _begin(self, claimed: ClaimedRun, past: TaskHistory) -> Execution:
        definition = self._world.known[claimed.task.name]
        execution = Execution(self._place, claimed, definition, past, on_restart=_accepted)
        self._executions.append(execution)
        stepper = execution.program.stepper

        async def call(doing: StepCall) -> Any:
            return await self._watch(stepper, claimed.task.id, doing)

        stepper.call = call  # type: ignore[method-assign]
        return execution

    async def _watch(self, stepper: StepRunner, task_id: str, doing: StepCall) -> Any:
        is_effect = doing.effect is not None and doing.effect.effect_class not in FREE
        ran = _Ran(
            task_id=task_id, key=doing.key, is_effect=is_effect, life=self._number, idempotency_key=_key()
        )
        try:
            self._world.check_call(task_id, doing, ran)
        except AssertionError as wrong:
            self._wrong = wrong  # keep it: the program may swallow the exception
            raise
        self._world.ran.append(ran)
        try:
            value = await StepRunner.call(stepper, doing)
        except Exception:
            ran.has_raised = True
            raise
        with contextlib.suppress(BadInput):  # the step itself reports a result that cannot be stored
            ran.result = decode_payload(doing.codec.encode(doing.name, value))
        ran.has_returned = True
        return value


class _Telling:
    """A store that notes what each write is about."""

    def __init__(self, inner: Any, whats: list[str]) -> None:
        self._inner = inner
        self._whats = whats
        self._under_way = 0
        self._news = asyncio.Event()

    async def write(self, write: Callable[[Tx], T]) -> T:
        self._whats.append(_about(write))
        self._under_way += 1
        try:
            answer: T = await self._inner.write(write)
        finally:
            self._under_way -= 1
            self._news.set()
        return answer

    async def until_quiet(self) -> None:
        """Wait until every write in flight has committed or failed."""
        while self._under_way:
            self._news.clear()
            await self._news.wait()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


async def _accepted(_asked: WantedRestart) -> None:
    """Accept every restart that a run asks for."""


def _about(write: Any) -> str:
    """What a write does, in words: the name of its function, and of the step that it is about."""
    if isinstance(write, SaveStep):
        _, scope, name, *_ = write.row
        return f"save step {name}{f' of {scope}' if scope else ''}"
    if isinstance(write, BeginEffect):
        return f"begin effect of {write.effect.name}"
    if isinstance(write, FinishEffect):
        return f"note outcome of {write.name}"
    words = name_of(write).rpartition(".")[2].replace("_", " ")
    cells = (cell.cell_contents for cell in getattr(write, "__closure__", None) or ())
    about = [one.name for one in cells if isinstance(one, (StepCall, Effect))]
    return f"{words} of {about[0]}" if about else words


def _needs_review(effect: Effect) -> bool:
    """Whether the effect was cut short and only a person can find out whether it happened."""
    return effect.effect_class is EffectClass.OPAQUE and effect.status is EffectStatus.INTENT


def _is_remembered(tx: Tx, task_id: str, key: Key) -> bool:
    if tx.journal.find_step(task_id, *key) is not None:
        return True
    parts = key[0].split("/")
    for place in range(1, len(parts) + 1):
        loop, _, turn = "/".join(parts[:place]).rpartition(":")
        if loop and any(one.turn == turn for one in tx.turns.finished(task_id, loop)):
            return True
    return False


def _key() -> str | None:
    try:
        return idempotency_key()
    except NotInRun:
        return None


async def _end_all(children: set[asyncio.Task[Any]]) -> None:
    """Cancel all children and ignore their errors, as the death of a process does."""
    for _ in range(10):
        alive = [child for child in children if not child.done()]
        if not alive:
            break
        for child in alive:
            child.cancel()
        await asyncio.wait(alive, timeout=1.0)
    for child in children:
        if child.done() and not child.cancelled():
            child.exception()


def _let_die(life: Life) -> None:
    """Do what the kernel does for a dead process: release its lock, keep its file."""
    lock = life._lock  # noqa: SLF001 - nothing of it is called
    if lock is not None and lock._descriptor is not None:  # noqa: SLF001
        os.close(lock._descriptor)  # noqa: SLF001
        lock._descriptor = None  # noqa: SLF001
