"""Holdfast and Handle: start tasks and look after them (send, cancel, answer, review, retry, watch)."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from holdfast.core.clock import Clock
from holdfast.core.durations import Duration, parse_span
from holdfast.core.effect import Decision
from holdfast.core.errors import BadInput, TaskFailed
from holdfast.core.events import Event
from holdfast.core.ids import BootId, check_id, new_token
from holdfast.core.program_records import Question
from holdfast.core.task import DEFAULT_PRIORITY, NotifyPolicy, Origin, RuntimeName, Task
from holdfast.core.transitions import TaskStatus
from holdfast.engine.claims.claims import unknown_names
from holdfast.engine.client.end_watcher import EndWatcher
from holdfast.engine.client.waiting_notes import WaitingNotes
from holdfast.engine.journal.codec import codec_of
from holdfast.engine.ledger.inputs import check_choice
from holdfast.engine.ledger.ledger import Ledger, NewTask, opened, owned
from holdfast.engine.program.definitions import Call, TaskDefinition, checked_call
from holdfast.store import Store
from holdfast.store.events import START

if TYPE_CHECKING:
    from holdfast.core.flow_definition import FlowDefinition
    from holdfast.engine.client.campaigns import Campaigns
    from holdfast.engine.client.detached import DetachedTask, UnrecordedNotes
    from holdfast.engine.client.flow_handles import FlowHandle
    from holdfast.engine.client.flows import Flows
    from holdfast.engine.client.schedules import Schedules
    from holdfast.engine.producers.contract import Runtime
    from holdfast.engine.producers.stopping import RecordedCancelOutcome
    from holdfast.engine.program.flow_builder import FlowBuilder
    from holdfast.engine.program.forks import Compensate, Effects
    from holdfast.engine.recovery.operator_retry import Retried

T = TypeVar("T")

# How often the feed is polled if no notification comes.
_ASK_EVERY_S = 0.25


class Handle(Generic[T]):
    """One task, seen by the code that started it. Any number of handles, in any process, may refer to it."""

    def __init__(self, holdfast: Holdfast, task_id: str, definition: TaskDefinition[..., T] | None) -> None:
        self._holdfast = holdfast
        self._store = holdfast.store
        self._definition = definition
        self.id = task_id

    async def result(self, *, timeout: Duration | None = None) -> T:  # noqa: ASYNC109 - reads well
        """Wait for the end of the task and return its result. Raises TaskFailed if it did not succeed.

        Raises TimeoutError after `timeout`; the task itself goes on. While the task waits for a person, or
        for a process that knows it, the log says so and names the command to run.
        """
        limit = None if timeout is None else parse_span("timeout", timeout).total_seconds()
        try:
            async with asyncio.timeout(limit):
                ended = await self._holdfast.endings.wait(self.id)
        except TimeoutError:
            why = f"{self.id} has not ended after {timeout}; it goes on: `holdfast tasks show {self.id}`"
            raise TimeoutError(why) from None
        return self._opened(ended)

    async def task(self) -> Task:
        return await self._store.read(lambda tx: opened(tx, tx.tasks.get(self.id)))

    async def status(self) -> TaskStatus:
        return (await self.task()).status

    async def events(self, after: str = START) -> list[Event]:
        """The events of the task so far."""
        return await self._store.read(lambda tx: tx.events.of_task(self.id, after))

    async def watch(self) -> AsyncIterator[Event]:
        """The events of the task, as they come, until it has ended."""
        position = START
        while True:
            has_ended = (await self.task()).has_ended
            for event in await self.events(position):
                position = event.position
                yield event
            if has_ended:
                return
            await self._store.wait_for("events", _ASK_EVERY_S)

    async def send(self, topic: str, body: object = None, *, key: str | None = None) -> bool:
        return await self._holdfast.send(self.id, topic, body, key=key)

    async def cancel(self, reason: str = "cancelled by its owner") -> RecordedCancelOutcome:
        return await self._holdfast.cancel(self.id, reason=reason)

    async def retry(self, *, cancelled: bool = False) -> Retried:
        """Reopen the task after it ended without success; see `Holdfast.retry`."""
        return await self._holdfast.retry(self.id, cancelled=cancelled)

    def _opened(self, task: Task) -> T:
        if task.status is not TaskStatus.SUCCEEDED:
            raise TaskFailed(task.id, task.status.value, task.failure)
        payload = b"null" if task.result is None else task.result
        if self._definition is None:
            from holdfast.core.payload import decode_payload

            return cast(T, decode_payload(payload))
        return cast(T, codec_of(self._definition.fn).decode(payload))

    def __repr__(self) -> str:
        return f"<handle of {self.id}>"


class Holdfast:
    """A ledger, and the tasks that may be started in it."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        tasks: Mapping[str, TaskDefinition[..., Any]],
        *,
        owner: str = "system",
        boot_id: BootId | None = None,
        runtimes: Callable[[], Sequence[Runtime]] = tuple,
    ) -> None:
        """`runtimes` is called when recorded work is to be stopped."""
        self.store = store
        self._boot_id = boot_id
        self._runtimes = runtimes
        self.endings = EndWatcher(store, WaitingNotes(tasks))
        self._clock = clock
        self._tasks = tasks
        self._ledger = Ledger(store, clock)
        self._owner = owner

    @cached_property
    def schedules(self) -> Schedules:
        """Add, change, fire and remove schedules of this ledger."""
        from holdfast.engine.client.schedules import Schedules

        return Schedules(self.store, self._clock, self._owner)

    @cached_property
    def _unrecorded(self) -> UnrecordedNotes:
        from holdfast.engine.client.detached import UnrecordedNotes

        return UnrecordedNotes()

    async def start(
        self,
        call: Call[T],
        *,
        key: str | None = None,
        goal: str | None = None,
        priority: int = DEFAULT_PRIORITY,
        owner: str | None = None,
        due_at: datetime | None = None,
        origin: Origin | None = None,
        notify: NotifyPolicy | str = NotifyPolicy.DONE_ONLY,
    ) -> Handle[T]:
        """Create the task; it is durable when this returns. The same key again returns the first task, even
        an ended one. If it has an origin, `notify` says which updates go there."""
        (handle,) = await self.start_many(
            [call],
            keys=[key],
            goal=goal,
            priority=priority,
            owner=owner,
            due_at=due_at,
            origin=origin,
            notify=notify,
        )
        return handle

    async def start_many(
        self,
        calls: list[Call[T]],
        *,
        keys: list[str | None] | None = None,
        goal: str | None = None,
        priority: int = DEFAULT_PRIORITY,
        owner: str | None = None,
        due_at: datetime | None = None,
        origin: Origin | None = None,
        notify: NotifyPolicy | str = NotifyPolicy.DONE_ONLY,
    ) -> list[Handle[T]]:
        """Create all tasks in one commit, or none."""
        keys = [None] * len(calls) if keys is None else keys
        new = [
            NewTask(
                name=checked_call(call).name,
                goal=call.goal if goal is None else goal,
                has_own_goal=goal is not None,
                owner=self._owner if owner is None else owner,
                arguments=call.arguments,
                key=key,
                priority=priority,
                due_at=due_at,
                origin=origin,
                notify=check_choice("notify", notify, NotifyPolicy),
            )
            for call, key in zip(calls, keys, strict=True)
        ]
        tasks = await self._ledger.create_many(new)
        return [Handle(self, task.id, call.definition) for task, call in zip(tasks, calls, strict=True)]

    def detached(
        self,
        name: str,
        *,
        runtime: RuntimeName | str = RuntimeName.CLI,
        goal: str | None = None,
        owner: str | None = None,
        best_effort: bool = False,
        beat_every: Duration = 30,
        **facts: Any,
    ) -> AbstractAsyncContextManager[DetachedTask]:
        """Record work that this block of code executes itself: `async with holdfast.detached("render") as
        task: await task.progress("frame 1")`.

        At the end of the block the task has succeeded, with `task.result`. If the block raises, the task has
        failed, and the exception is raised. If the process dies, the task is lost: Holdfast cannot resume
        code that it does not execute. If the task is cancelled, so is the block, and TaskFailed is raised.

        With `best_effort` the block never waits for the ledger and never fails because of it; reports that
        the ledger did not get are counted in `task.dropped`, and recorded when it answers again. `facts` are
        the other fields of `NewRecord`, such as `session_key`, `parent_task_id` or `key`.
        """
        from holdfast.engine.client.detached import DetachedTask, recorded_while_open
        from holdfast.engine.producers.producers import Producers
        from holdfast.engine.producers.writes import NewRecord

        every_s = parse_span("beat_every", beat_every).total_seconds()
        new = NewRecord(
            name=name,
            goal=goal or name,
            runtime=runtime,
            owner=self._owner if owner is None else owner,
            **{"beat_timeout_s": max(1, math.ceil(every_s * 10))} | facts,
        )
        task = DetachedTask(
            Producers(self.store, self._clock),
            self._clock,
            new,
            holder=self._boot_id,
            is_best_effort=best_effort,
            unrecorded=self._unrecorded,
        )
        return recorded_while_open(task, beat_every_s=every_s)

    async def start_flow(
        self,
        flow: FlowBuilder | FlowDefinition,
        *,
        key: str | None = None,
        goal: str | None = None,
        owner: str | None = None,
    ) -> FlowHandle:
        """Create a flow from its definition, and the tasks of the nodes that need nothing; all of it is
        durable when this returns. The same key again returns the first flow, even an ended one."""
        from holdfast.core.flow_definition import FlowDefinition
        from holdfast.engine.client.flow_handles import FlowHandle
        from holdfast.engine.ledger.flows import NewFlow
        from holdfast.engine.program.flow_builder import FlowBuilder

        definition = flow.definition() if isinstance(flow, FlowBuilder) else flow
        if not isinstance(definition, FlowDefinition):
            raise BadInput("flow", f"a flow is needed, such as hf.flow(…), not {type(flow).__name__}")
        new = NewFlow(
            definition=definition, goal=goal, owner=self._owner if owner is None else owner, key=key
        )
        return FlowHandle(self, (await self.flows().create(new)).id)

    def flow_handle(self, flow_id: str) -> FlowHandle:
        """The handle of a flow that was started before."""
        from holdfast.engine.client.flow_handles import FlowHandle

        return FlowHandle(self, check_id("flow", flow_id))

    def campaigns(self, *, owner: str | None = None) -> Campaigns:
        """All campaigns of the ledger, or those of one owner."""
        from holdfast.engine.client.campaigns import Campaigns

        return Campaigns(self.store, self._clock, owner=owner)

    def flows(self, *, owner: str | None = None) -> Flows:
        """All flows of the ledger, or those of one owner: for controllers, which create and update them."""
        from holdfast.engine.client.flows import Flows

        return Flows(self.store, self._clock, owner=owner)

    def handle(self, task_id: str) -> Handle[Any]:
        """The handle of a task that was started before."""
        return Handle(self, check_id("task", task_id), None)

    async def send(
        self,
        task: str | Handle[Any],
        topic: str,
        body: object = None,
        *,
        key: str | None = None,
        sender: str | None = None,
    ) -> bool:
        """Send a message to a task's mailbox. False if that key was sent before."""
        from holdfast.engine.program.waits import sending

        write = sending(
            _id_of(task),
            topic=topic,
            body=body,
            sender=_name_or_user(sender),
            key=new_token() if key is None else key,
            now=self._clock.now(),
        )
        return await self.store.write(write)

    async def cancel(
        self, task: str | Handle[Any], *, reason: str = "cancelled by its owner", owner: str | None = None
    ) -> RecordedCancelOutcome:
        """Request the end of a task and of its children. Running programs may clean up first. Work that
        others execute is stopped by the runtime that controls it; NotStopped tells why it was not."""
        from holdfast.engine.producers.stopping import cancel_recorded, find_recorded

        task_id = check_id("task", _id_of(task))
        work = await self.store.read(lambda tx: find_recorded(tx, task_id))
        if work is None:
            return await self._ledger.cancel(task_id, reason=reason, owner=owner)
        owned(work.task, owner)
        return await cancel_recorded(self.store, self._clock, self._runtimes(), work, reason=reason)

    async def retry(
        self, task: str | Handle[Any], *, cancelled: bool = False, owner: str | None = None
    ) -> Retried:
        """Reopen a task that failed, timed out or is lost; with `cancelled`, also one that was cancelled. It
        keeps its id and key. A follow-up run continues after the last saved step, with the present code, and
        its attempts and its time are counted from zero.

        Raises IllegalMove for a task that has not ended or has succeeded, Pruned if its journal is gone.
        """
        from holdfast.engine.recovery.operator_retry import retrying_task

        write = retrying_task(_id_of(task), now=self._clock.now(), may_be_cancelled=cancelled, owner=owner)
        return await self.store.write(write)

    async def fork(
        self,
        task: str | Handle[Any],
        *,
        at: str,
        effects: Effects = "refuse",
        key: str | None = None,
        owner: str | None = None,
        compensate: Compensate | None = None,
    ) -> Handle[Any]:
        """Create a task that copies the journal of this one up to the end of a turn: `at="turn:12"`,
        `"<loop>:<turn>"`, or `"start"`. The first task does not change.

        If effects have happened since then, `effects` says what to do about them: "refuse" (raises
        EffectsInTheWay), "keep" (the fork takes their results and does not repeat them), "compensate" (undo
        them now, with the function `compensate`), or "acknowledge" (the fork may repeat them).
        """
        from holdfast.engine.program.forks import fork  # few programs fork

        made = await fork(
            self.store,
            self._clock,
            _id_of(task),
            at=at,
            effects=effects,
            key=key,
            owner=owner,
            compensate=compensate,
        )
        return Handle(self, made.id, self._tasks.get(made.name))

    async def questions(self, *, limit: int = 50, after: str = "") -> list[Question]:
        """The open questions of tasks to people."""
        return await self.store.read(lambda tx: tx.questions.open_page(limit=limit, after=after))

    async def answer(self, question_id: str, answer: object, *, by: str | None = None) -> Question:
        from holdfast.engine.conversation.questions import answering

        return await self.store.write(
            answering(question_id, answer, by=_name_or_user(by), now=self._clock.now())
        )

    async def reviews(self, *, limit: int = 50, after: str = "") -> list[Any]:
        """Effects whose outcome is unknown."""
        return await self.store.read(lambda tx: tx.effects.reviews(limit=limit, after=after))

    async def resolve(
        self,
        effect_id: str,
        decision: Decision | str,
        *,
        result: object = None,
        by: str | None = None,
        note: str = "",
    ) -> Any:
        """Record a person's decision about an effect of unknown outcome: done, retry, skip or compensate."""
        from holdfast.engine.program.effect_reviews import resolving

        write = resolving(
            effect_id,
            Decision(decision) if decision in list(Decision) else decision,  # type: ignore[arg-type]
            result=result,
            by=_name_or_user(by),
            note=note,
            now=self._clock.now(),
        )
        return await self.store.write(write)

    async def unknown_names(self) -> list[str]:
        """The names of tasks that have ready runs and are not known to this process: their runs wait."""
        return await unknown_names(self.store, self._tasks)

    async def watch(self, after: str | None = None) -> AsyncIterator[Event]:
        """Every event in the ledger, as it comes."""
        position = after
        if position is None:
            newest = await self.store.read(lambda tx: tx.events.newest(limit=1))
            position = newest[-1].position if newest else START
        while True:
            at = position
            for event in await self.store.read(lambda tx: tx.events.after(at)):  # noqa: B023 - read at once
                position = event.position
                yield event
            await self.store.wait_for("events", _ASK_EVERY_S)


def _id_of(task: object) -> str:
    if isinstance(task, Handle):
        return task.id
    if not isinstance(task, str):
        raise BadInput("task", f"a task's id or handle is needed, not {type(task).__name__}")
    return task


def _name_or_user(name: str | None) -> str:
    """The name for the audit log: as given, else the user of this process."""
    if name is not None:
        return name
    try:
        # Imported here, because most programs never need it.
        from getpass import getuser

        return getuser()
    except (KeyError, OSError):
        return "unknown"
