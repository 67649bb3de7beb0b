"""The API for authors of tasks: the run, its turns, its plan and its children."""

from __future__ import annotations

import builtins
import hashlib
import inspect
import sys
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast, overload

import msgspec

from holdfast.core.checkpoint import CheckpointKind, SeedContext
from holdfast.core.clock import to_micros
from holdfast.core.durations import Duration, parse_duration, parse_span
from holdfast.core.errors import BadInput
from holdfast.core.events import EventKind
from holdfast.core.payload import (
    MAX_NAME_CHARS,
    check_line,
    check_name,
    check_text,
    check_words,
    decode_payload,
    encode_payload,
)
from holdfast.core.plan import PlanItem
from holdfast.core.redaction import redact_name
from holdfast.core.step import Artifact, ArtifactKind, Note, NoteKind
from holdfast.core.task import NotifyPolicy, Progress
from holdfast.engine.journal.artifacts import ArtifactRecorder
from holdfast.engine.journal.codec import codec_of
from holdfast.engine.journal.scopes import Key, Scope, as_part, here, stored_form
from holdfast.engine.ledger.inputs import check_choice
from holdfast.engine.ledger.ledger import NewTask, checked_progress
from holdfast.engine.program.definitions import Call, checked_call
from holdfast.engine.program.loop_exit import was_left_on_purpose
from holdfast.engine.program.program import ENDLESS, RunProgram
from holdfast.engine.program.waits import check_reason, sending
from holdfast.engine.recovery.checkpoints import recording
from holdfast.store import Store, Tx

if TYPE_CHECKING:
    from holdfast.core.campaign import Item
    from holdfast.engine.program.lists import DurableList, DurableValue
    from holdfast.engine.program.loops import OpenLoop, PlanKeeper
    from holdfast.engine.program.restart_requests import OnRestart

P = ParamSpec("P")
T = TypeVar("T")

_NOT_GIVEN: Any = object()


class _Stepping:
    """The calls that a run and a turn have in common."""

    _program: RunProgram

    def _scope_of(self) -> Scope:
        raise NotImplementedError

    @overload
    def step(
        self, fn: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, T]: ...

    @overload
    def step(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]: ...

    def step(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        """Run it once; from then on its result is remembered. The key is taken now, not when awaited."""
        return self._program.step(self._scope_of(), fn, args, kwargs)

    @overload
    def tool(
        self,
        fn: Callable[..., Coroutine[Any, Any, T]],
        arguments: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,
    ) -> Coroutine[Any, Any, T]: ...

    @overload
    def tool(
        self, fn: Callable[..., T], arguments: Mapping[str, Any] | None = None, *, id: str | None = None
    ) -> Coroutine[Any, Any, T]: ...

    def tool(
        self,
        fn: Callable[..., Any],
        arguments: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,  # noqa: A002 - what models call it
    ) -> Coroutine[Any, Any, Any]:
        """Call a tool with the arguments a model gave. One that declares no effect is taken for opaque."""
        return self._program.tool(self._scope_of(), fn, arguments, id)


class Turn(_Stepping):
    """One round of a loop: what it appended, its cursor and its progress commit together."""

    def __init__(self, program: RunProgram, scope: Scope, number: int) -> None:
        self._program = program
        self._scope = scope
        self.number = number

    def _scope_of(self) -> Scope:
        return self._scope

    def __repr__(self) -> str:
        return f"<turn {self._scope.path}>"


class PlanTurn(Turn):
    """The turn for one item of the plan."""

    def __init__(
        self, program: RunProgram, scope: Scope, number: int, item: PlanItem, keeper: PlanKeeper
    ) -> None:
        super().__init__(program, scope, number)
        self._keeper = keeper
        self.item = item

    @property
    def id(self) -> str:
        return self.item.id

    @property
    def title(self) -> str:
        return self.item.title

    def decompose(self, items: Sequence[str | PlanItem]) -> None:
        """Smaller items come right after this one, which is done when its turn ends."""

        def change() -> tuple[PlanItem, ...]:
            known = self._keeper.plan.items
            place = [item.id for item in known].index(self.item.id) + 1
            new = plan_items(items, {item.id for item in known})
            return (*known[:place], *new, *known[place:])

        self._program.replan(change)


class Turns:
    """`async for turn in run.turns():` finished turns are never run again."""

    def __init__(self, program: RunProgram, name: str | None, most: int, limit: timedelta | None) -> None:
        self._program = program
        self._name = name
        self._most = most
        self._limit = limit

    def __aiter__(self) -> AsyncIterator[Turn]:
        loop = self._program.begin_loop(self._name, self._most, None, self._limit)
        return _turning(self._program, loop, sys._getframe(1))  # noqa: SLF001 - the program


class ProgramPlan:
    """The ordered steps of a task. `async for item in plan:` visits each that is not done yet."""

    def __init__(self, program: RunProgram, keeper: PlanKeeper) -> None:
        self._program = program
        self._keeper = keeper

    @property
    def items(self) -> tuple[PlanItem, ...]:
        return self._keeper.plan.items

    def replan(self, items: Sequence[str | PlanItem]) -> None:
        """Replace the items that have not begun. Durable with the turn."""

        def change() -> tuple[PlanItem, ...]:
            begun = self._keeper.begun
            kept = [item for item in self.items if item.is_done or item.id == begun]
            return (*kept, *plan_items(items, {item.id for item in kept}))

        self._program.replan(change)

    def __aiter__(self) -> AsyncIterator[PlanTurn]:
        loop = self._program.begin_loop("plan", ENDLESS, self._keeper)
        return _turning(self._program, loop, sys._getframe(1))  # noqa: SLF001 - the program


class _Turning:
    """The iterator of one loop. Only the loop holds it, so it is destroyed when the loop is left."""

    def __init__(self, program: RunProgram, loop: OpenLoop) -> None:
        self._program = program
        self._loop = loop

    def __del__(self) -> None:
        self._program.leave_loop(self._loop, is_turn_done=was_left_on_purpose())

    def __aiter__(self) -> _Turning:
        return self

    async def __anext__(self) -> Any:
        loop = self._loop
        if not await self._program.next_turn(loop):
            raise StopAsyncIteration
        assert loop.scope is not None
        if loop.plan is None or loop.item is None:
            return Turn(self._program, loop.scope, loop.seq)
        return PlanTurn(self._program, loop.scope, loop.seq, loop.item, loop.plan)


def _turning(program: RunProgram, loop: OpenLoop, asker: FrameType) -> _Turning:
    turning = _Turning(program, loop)
    if asker.f_code.co_flags & inspect.CO_ASYNC_GENERATOR:
        # Python closes an unfinished generator at some later time, which differs from run to run: keep the
        # iterator, so that the loop does not count as left then.
        loop.iterator = turning
    return turning


class Child(Generic[T]):
    """A task that this one started. Await it for its result."""

    def __init__(self, program: RunProgram, task_id: str, call: Call[T], key: Key) -> None:
        self._program = program
        self._call = call
        self._key = key
        self.id = task_id

    def __await__(self) -> Generator[Any, None, T]:
        return self.result().__await__()

    async def result(self) -> T:
        """What it returned; StepFailed when it failed."""
        program = self._program
        key = await program.key("result of child", self.id)
        payload = await program.waits.child_result(key, self.id)
        decode = codec_of(self._call.definition.fn).decode
        return cast(T, program.stepper.opened(f"child {self.id}", payload, key, self._key, decode=decode))


class Run(_Stepping):
    """One execution of a task. Every call may raise Stopping: let it pass."""

    def __init__(
        self, program: RunProgram, *, seed: SeedContext | None, on_restart: OnRestart | None
    ) -> None:
        self._program = program
        self._live = program.live
        self._seed = seed
        self._on_restart = on_restart
        # So that an error of the store stops the program, as in every other write of the run.
        self._store = cast(Store, self._live)

    @property
    def _artifacts(self) -> ArtifactRecorder:
        return ArtifactRecorder(self._store, self._live.clock)

    def _scope_of(self) -> Scope:
        return here.get() or self._program.root

    # --- identity

    @property
    def id(self) -> str:
        return self._live.run.id

    @property
    def task_id(self) -> str:
        return self._live.task.id

    @property
    def goal(self) -> str:
        return self._live.task.goal

    @property
    def number(self) -> int:
        """The first run of a task is 1; each interruption makes a follow-up run."""
        return self._live.run.number

    @property
    def resumed(self) -> SeedContext | None:
        """What the interrupted run left behind, for a run that follows one; None for a first run."""
        return self._seed

    @property
    def is_stopping(self) -> bool:
        """Whether the run must stop: for a function in a thread, which cannot be interrupted."""
        return self._live.tell_stopping()

    # --- loops

    def turns(
        self,
        name: str | None = None,
        *,
        max: int | None = None,  # noqa: A002 - reads well
        timeout: Duration | None = None,
    ) -> Turns:
        """Instead of `while True:`. After `max` turns the loop ends.

        `timeout` is for each turn: a step that takes longer raises TimeoutError, and so does one after it.
        """
        if name is not None:
            name = _checked_part("loop", name)
        if max is not None and (isinstance(max, bool) or not isinstance(max, int) or max < 1):
            raise BadInput("max", "a whole number of turns is needed, at least 1")
        limit = None if timeout is None else parse_span("timeout", timeout)
        return Turns(self._program, name, ENDLESS if max is None else max, limit)

    def plan(self, items: Sequence[str | PlanItem]) -> ProgramPlan:
        """The ordered steps of this task; after a restart the stored plan holds, with what is done of it."""
        stored = self._program.past.plan
        known = set() if stored is None else {item.id for item in stored.items}
        return ProgramPlan(self._program, self._program.make_plan(plan_items(items, set(), known)))

    def stages(self, item: Item) -> ProgramPlan:
        """The stages of the phase of a campaign in which this item is, as the plan of its task: each is
        durable once it is done, and a task that is interrupted or retried goes on at its stage.

        `async for stage in run.stages(item):` gives a turn for each; its name is `stage.id`.
        """
        stages = getattr(item, "stages", None)
        if not stages:
            raise BadInput(
                "stages",
                f"phase {getattr(item, 'phase', '') or '?'} has none; declare them: "
                'hf.phase("migration", migrate, stages=["prep", "transfer"])',
            )
        return self.plan(stages)

    # --- what crosses turns

    @overload
    def list(self, name: str) -> DurableList[Any]: ...

    @overload
    def list(self, name: str, initial: Iterable[Any] = (), *, of: type[T]) -> DurableList[T]: ...

    @overload
    def list(self, name: str, initial: Iterable[T], *, of: Any = Any) -> DurableList[T]: ...

    def list(self, name: str, initial: Iterable[Any] = (), *, of: Any = Any) -> DurableList[Any]:
        """A durable, append-only list. `of` says what its items are, so that they come back as such."""
        return self._program.memory.list(check_line("list", name), initial, of)

    def value(self, name: str, initial: T, *, of: type[T] | Any = Any) -> DurableValue[T]:
        """A durable value."""
        return self._program.memory.value(check_line("value", name), initial, of)

    # --- waits

    async def sleep(self, duration: Duration, *, reason: str | None = None) -> None:
        """Durable: counted from the first time, through every restart.

        `reason` says in a few words what the task is woken for; `holdfast wakes list` shows it.
        """
        length = parse_duration("sleep", duration)
        why = None if reason is None else check_reason(reason)
        key = await self._program.key("sleep")
        await self._program.waits.sleep_until(key, self._live.clock.now() + length, why=why)

    async def ask(
        self,
        question: str,
        choices: Sequence[str] | None = None,
        *,
        timeout: Duration | None = None,  # noqa: ASYNC109 - a durable one, through restarts
        default: Any = _NOT_GIVEN,
        id: str | None = None,  # noqa: A002 - as for steps
    ) -> Any:
        """A person's answer. Without one in time: the default, or StepFailed, which is a TimeoutError."""
        key = await self._program.key("ask", id)
        payload = await self._program.waits.ask(
            key,
            question,
            choices=None if choices is None else tuple(check_words("choice", one) for one in choices),
            lasts=None if timeout is None else parse_duration("timeout", timeout),
            default=None if default is _NOT_GIVEN else default,
            has_default=default is not _NOT_GIVEN,
        )
        return self._program.stepper.opened("ask", payload, key)

    async def receive(
        self,
        topic: str,
        *,
        timeout: Duration | None = None,  # noqa: ASYNC109 - a durable one, through restarts
        default: Any = _NOT_GIVEN,
    ) -> Any:
        """The oldest message on a topic. Without one in time: the default, or StepFailed (a TimeoutError)."""
        key = await self._program.key(f"receive {topic}")
        payload = await self._program.waits.receive(
            key,
            topic,
            lasts=None if timeout is None else parse_duration("timeout", timeout),
            late=None if default is _NOT_GIVEN else encode_payload("default", default),
        )
        return self._program.stepper.opened("receive", payload, key)

    async def send(self, task: str | Child[Any], topic: str, body: object = None) -> None:
        """A message to another task, once."""
        key = await self._program.key(f"send {topic}")
        send = sending(
            task.id if isinstance(task, Child) else task,
            topic=topic,
            body=body,
            sender=self.task_id,
            key=self._text_of(key),
            now=self._live.clock.now(),
        )
        await self._program.once(key, None, send)

    def _text_of(self, key: Key) -> str:
        """A key of this task as one text: for what must happen once, also if another run asks again."""
        text = "|".join((self.task_id, *key))
        if len(text) <= MAX_NAME_CHARS // 2:
            return text
        digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        return f"{text[: MAX_NAME_CHARS // 2]}|{digest}"

    # --- children

    async def spawn(
        self,
        call: Call[T],
        *,
        goal: str | None = None,
        priority: int | None = None,
        attached: bool = True,
        notify: NotifyPolicy | str = NotifyPolicy.DONE_ONLY,
        id: str | None = None,  # noqa: A002 - as for steps
    ) -> Child[T]:
        """Start another task, once. Attached: this task ends after it, and takes it along when it fails.

        Not attached: if this task answers a person, that person is told how it ended, unless `notify` is
        `silent`; with `state_changes` also when it waits.
        """
        checked_call(call)
        key = await self._program.key(f"spawn {call.name}", id)
        found = self._program.past.find(key)
        if found is not None:
            return Child(self._program, str(decode_payload(found.result)), call, key)
        task = self._live.task
        new = NewTask(
            name=call.name,
            goal=call.goal if goal is None else goal,
            # The key is this task's own, so a retry may give other arguments.
            has_own_goal=False,
            owner=task.owner,
            arguments=call.arguments,
            origin=task.origin,
            session_key=task.session_key,
            parent_task_id=self.task_id if attached else None,
            # Respawning finds it: the key of a child is the key of the step that spawned it.
            key=self._text_of(key),
            notify=check_choice("notify", notify, NotifyPolicy),
            priority=task.priority if priority is None else priority,
        )
        self._live.has_children = True
        return Child(self._program, await self._program.waits.spawn(key, new), call, key)

    # --- telling

    async def progress(
        self, *, done: int = 0, total: int | None = None, failed: int = 0, subtask: str | None = None
    ) -> None:
        """Report how far the task is. Inside a turn it is saved when the turn commits."""
        progress = checked_progress(Progress(done=done, total=total, failed=failed, subtask=subtask))
        if self._live.is_stopping:
            await self._live.refuse()
        self._program.progress = progress
        if not self._program.is_in_turn:
            await self._program.settle()

    async def emit(self, name: str, **facts: object) -> None:
        """An event of the program's own, once."""
        name = check_name("event", name)
        key = await self._program.key(f"emit {name}")
        now, run_id, task_id = self._live.clock.now(), self.id, self.task_id
        told = decode_payload(encode_payload(f"facts of {name}", facts))

        def emit(tx: Tx) -> None:
            tx.emit(EventKind.PROGRAM_TOLD, run_id, at=now, task_id=task_id, name=name, told=told)

        await self._program.once(key, None, emit)

    async def artifact(
        self, path: str | Path, *, kind: ArtifactKind | str = ArtifactKind.FILE, name: str | None = None
    ) -> Artifact:
        """A file that the task leaves, with its checksum; recorded once."""
        if not isinstance(path, (str, Path)):
            raise BadInput("artifact", f"a path is needed, not {type(path).__name__}")
        key = await self._program.key("artifact", name or str(path))
        found = self._program.past.find(key)
        if found is None:
            artifact = await self._artifacts.record_file(self._live.claim, Path(path), kind=kind, name=name)
            await self._program.once(key, msgspec.to_builtins(artifact), lambda _tx: None)
            return artifact
        return msgspec.json.decode(found.result, type=Artifact)

    async def output(
        self, name: str, content: str, *, kind: ArtifactKind | str = ArtifactKind.OUTPUT
    ) -> Artifact:
        """A computed output or a diff, kept in the ledger itself."""
        key = await self._program.key("output", check_line("artifact", name))
        found = self._program.past.find(key)
        if found is None:
            artifact = await self._artifacts.record_output(self._live.claim, name, content, kind=kind)
            await self._program.once(key, msgspec.to_builtins(artifact), lambda _tx: None)
            return artifact
        return msgspec.json.decode(found.result, type=Artifact)

    async def decide(self, decision: str) -> None:
        """Record a decision: it stands in every later checkpoint."""
        key = await self._program.key("decide")
        claim, now = self._live.claim, self._live.clock.now()
        note = Note(kind=NoteKind.DECISION, text=check_text("decision", decision), written_at=now)
        await self._program.once(key, None, lambda tx: tx.journal.add_note(claim, note, seq=to_micros(now)))

    async def refer(self, tool: str, ref: str) -> None:
        """Name what a tool keeps for this task (a browser profile, a thread, a branch), never a secret: the
        reference stands in every later checkpoint, so that a follow-up run finds it again."""
        text = f"{check_line('tool', tool)}: {check_words('reference', ref)}"
        key = await self._program.key("refer")
        claim, now = self._live.claim, self._live.clock.now()
        note = Note(kind=NoteKind.TOOL_CONTEXT, text=check_text("reference", text), written_at=now)
        await self._program.once(key, None, lambda tx: tx.journal.add_note(claim, note, seq=to_micros(now)))

    async def checkpoint(self, name: str) -> None:
        """Record a milestone, to look at and to fork from."""
        key = await self._program.key("checkpoint")
        record = recording(self._live.claim, CheckpointKind.MILESTONE, name, now=self._live.clock.now())
        await self._program.once(key, None, record)

    async def requires_restart(self, why: str) -> None:
        """Ask for a restart of the process and go on after it, from here: it returns in another process.

        Raises RestartRefused, with the reason, when the process does not restart: nothing was interrupted,
        and the run goes on. A replay returns or raises the same. Only a gateway, `serve`, and `open` with an
        `on_restart` can restart.
        """
        from holdfast.engine.program.restart_requests import RestartRequests

        why = check_text("why", why)
        key = await self._program.key("requires restart")
        program = self._program
        restarting = RestartRequests(self._live, program.past, program.waits, self._on_restart)
        await restarting.ask(key, why)

    async def spend(self, cost: float) -> float:
        """Report a cost; when the budget is used up, the task asks a person before it goes on."""
        if isinstance(cost, bool) or not isinstance(cost, (int, float)) or not cost >= 0:
            raise BadInput("cost", f"a number that is not negative is needed, not {cost!r}")
        if self._live.is_stopping:
            await self._live.refuse()
        spent = self._program.spend(float(cost))
        await self._program.keep_budget()
        return spent

    def cleanup(self) -> AbstractAsyncContextManager[None]:
        """Steps inside are allowed although the run is stopping: `async with run.cleanup():`."""
        return self._live.cleanup()


# A plan is stored as a whole with every turn that completes an item.
MAX_PLAN_BYTES = 1024 * 1024


def _checked_part(field: str, name: str) -> str:
    """A name that can stand in the path of a scope. Checked as it was given: a hidden name has a colon."""
    line = check_line(field, name)
    if ":" in line or "/" in line:
        shown = redact_name(line)
        what = repr(line) if shown == line else f"a name that holds a secret (shown as {shown})"
        raise BadInput(field, f"{what} contains ':' or '/', which separate parts of a path; leave them out")
    return line


def plan_items(
    items: Sequence[str | PlanItem], taken: set[str], stored: Collection[str] = ()
) -> tuple[PlanItem, ...]:
    """Items of a plan, each with an id of its own: the one that is stored already, where it is."""
    if isinstance(items, str) or not isinstance(items, Sequence):
        raise BadInput("plan", "a list of items is needed")
    made: builtins.list[PlanItem] = []
    for item in items:
        if not isinstance(item, (str, PlanItem)):
            raise BadInput("plan item", f"a text or a PlanItem is needed, not {type(item).__name__}")
        new = item if isinstance(item, PlanItem) else PlanItem(id=item, title=item)
        form = stored_form(_checked_part("plan item", new.id), lambda form: as_part(form) in stored)
        new = msgspec.structs.replace(new, id=as_part(form))
        if new.id in taken:
            raise BadInput("plan", f"two items are called {new.id!r}; give each its own id")
        taken.add(new.id)
        made.append(new)
    size = len(msgspec.json.encode(made))
    if size > MAX_PLAN_BYTES:
        raise BadInput(
            "plan",
            f"the items have {size:,} bytes, and the limit is {MAX_PLAN_BYTES:,} (1 MiB): shorten the "
            "titles, or plan less at a time",
        )
    return tuple(made)


__all__ = ["Child", "PlanTurn", "ProgramPlan", "Run", "Turn", "Turns"]
