"""Scope and Past: which key a step has, and what earlier runs of the task saved under it."""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from holdfast.core.effect import Effect
from holdfast.core.errors import BadInput
from holdfast.core.plan import Plan
from holdfast.core.program_records import ListDelta, LoopPosition, StoredValue
from holdfast.core.redaction import hide_name, redact_name
from holdfast.core.step import Step, occurrence_of, shown_occurrence
from holdfast.store import Tx
from holdfast.store.sealing import Sealing

log = logging.getLogger("holdfast")

Key = tuple[str, str, str]
SPENT = "holdfast:spent"
# From so many steps outside turns on, the log warns: they are all replayed after a restart.
MANY_STEPS = 1000


class Called(msgspec.Struct, kw_only=True):
    """A step whose function is being called."""

    name: str
    # For an effect: the same after a crash, so that the provider recognises a repeat.
    idempotency_key: str | None = None
    # For tools that store values in their own files.
    sealing: Sealing


# The step whose function is being called, for the code that this function calls.
inside_step: contextvars.ContextVar[Called | None] = contextvars.ContextVar("holdfast_step", default=None)


# The turn that a program is in, also for the asyncio tasks that it starts there.
here: contextvars.ContextVar[Scope | None] = contextvars.ContextVar("holdfast_scope", default=None)


class ScopeChange(msgspec.Struct, frozen=True, array_like=True):
    """One change that a program made to a list, a value or its plan: its name, and the new content."""

    name: str
    payload: msgspec.Raw


class Marks(msgspec.Struct, omit_defaults=True):
    """The state of lists and values after the last committed turn of a loop; and, for a loop over the plan
    that was left, the item."""

    lists: dict[str, int] = {}
    values: dict[str, msgspec.Raw] = {}
    item: str | None = None


# Suffixes of the names of steps that belong to a call: its result, its question, the start of its wait.
_MARKS = ("", "!asked", "!began")
_ops = msgspec.json.Decoder(list[ScopeChange])
_marks = msgspec.json.Decoder(Marks)


def stored_form(text: str, is_there: Callable[[str], bool]) -> str:
    """How a name or an id of a program is stored: as it is, or hidden because it holds a secret.

    A form that is in the ledger already wins. Another process, or an older release, may know other secrets
    than this one, and what was done under its form must not be done again.
    """
    shown = redact_name(text)
    if is_there(shown):
        return shown
    other = hide_name(text) if shown == text else text
    return other if is_there(other) else shown


def as_part(form: str) -> str:
    """A name as a part of a scope's path, without colons: a hidden name has one."""
    return form.replace(":", " ")


class TaskHistory:
    """What the ledger knows about a task: everything that its program is replayed from."""

    def __init__(
        self,
        *,
        steps: Iterable[Step] = (),
        loops: dict[str, LoopPosition] | None = None,
        ops: dict[str, bytes] | None = None,
        deltas: Sequence[ListDelta] = (),
        values: dict[str, StoredValue] | None = None,
        effects: Iterable[Effect] = (),
        plan: Plan | None = None,
    ) -> None:
        self.loops = {} if loops is None else loops
        self.deltas = deltas
        self.values = {} if values is None else values
        self.plan = plan
        self.effects: dict[Key, Effect] = {}
        # By idempotency key: when the provider first saw it. Attempts with the same key share its window.
        self.keys_since: dict[str, int] = {}
        # In order, so that the newest generation of each effect stays.
        for effect in sorted(effects, key=lambda one: one.generation):
            self.effects[(effect.scope, effect.name, effect.occurrence)] = effect
            self.keys_since.setdefault(effect.idempotency_key, effect.created_us)
        # Including steps of finished turns; None until they are counted.
        self.steps_done: int | None = None
        self._ops = {} if ops is None else ops
        # By scope, because the steps of a scope are dropped together.
        self.steps: dict[str, dict[Key, Step]] = {}
        for step in steps:
            self.put((step.scope, step.name, step.occurrence), step)
        # Whether no earlier run has saved a step.
        self.is_empty = not self.steps

    def find(self, key: Key) -> Step | None:
        steps = self.steps.get(key[0])
        return None if steps is None else steps.get(key)

    def has(self, key: Key) -> bool:
        """Whether a step was saved, begun or asked under the key."""
        scope, name, occurrence = key
        steps = self.steps.get(scope, {})
        return key in self.effects or any((scope, f"{name}{mark}", occurrence) in steps for mark in _MARKS)

    def has_scope(self, loop: str) -> bool:
        """Whether a turn of the loop was begun."""
        scopes = (*self.steps, *self._ops, *(key[0] for key in self.effects))
        return loop in self.loops or any(scope.startswith(f"{loop}:") for scope in scopes)

    def put(self, key: Key, step: Step) -> None:
        steps = self.steps.get(key[0])
        if steps is None:
            steps = self.steps[key[0]] = {}
        steps[key] = step
        if len(steps) == MANY_STEPS and not key[0]:
            log.warning(
                "%s has saved %d steps outside turns, and all of them are replayed after a restart; "
                "put them into a loop: async for turn in run.turns()",
                step.task_id,
                MANY_STEPS,
            )

    def count(self, path: str) -> int:
        """How many saved steps a scope has."""
        return len(self.steps.get(path, ()))

    def forget(self, key: Key) -> None:
        self.steps.get(key[0], {}).pop(key, None)

    def beside(self, key: Key) -> list[Key]:
        """The keys of what was saved while a step ran: its waits and its questions."""
        scope, name, occurrence = key
        waits = waits_beside(name, occurrence)
        names = {f"{name}{mark}" for mark in _MARKS[1:]}
        return [
            one
            for one in self.steps.get(scope, ())
            if one[1] == waits or (one[1] in names and one[2] == occurrence)
        ]

    def within(self, path: str) -> list[Step]:
        """The steps of a scope and of all scopes inside it."""
        return [step for scope in self._inside(path) for step in self.steps[scope].values()]

    def close(self, path: str) -> None:
        """Drop the steps of a scope: its turn has committed, so they are not replayed any more."""
        for scope in self._inside(path):
            del self.steps[scope]

    def _inside(self, path: str) -> list[str]:
        return [scope for scope in self.steps if scope == path or scope.startswith(f"{path}/")]

    @property
    def notes(self) -> int:
        return sum(step.input_digest is None for steps in self.steps.values() for step in steps.values())

    def ops_of(self, path: str) -> list[ScopeChange]:
        """What earlier runs did in that scope to lists and values, as far as it is durable."""
        stored = self._ops.get(path)
        return [] if stored is None else _ops.decode(stored)

    def marks_of(self, loop: str) -> Marks:
        stored = self._ops.get(loop)
        return Marks() if stored is None else _marks.decode(stored)

    @property
    def spent(self) -> float:
        """What the program has spent, by its own count."""
        stored = self.values.get(SPENT)
        return 0.0 if stored is None else msgspec.json.decode(stored.value, type=float)


def digest_of_values(values: Mapping[str, bytes]) -> str:
    """The digest of all values, in any order, without what the program has spent."""
    together = 0
    for name, encoded in values.items():
        if name != SPENT:
            digest = hashlib.blake2b(b"%b\0%b" % (name.encode(), encoded), digest_size=8)
            together ^= int.from_bytes(digest.digest(), "big")
    return f"{together:016x}" if together else ""


def load_pasts(tx: Tx, task_ids: Sequence[str]) -> dict[str, TaskHistory]:
    """The pasts of many tasks, in a few queries."""
    steps, loops = tx.journal.steps_of(task_ids), tx.turns.loops(task_ids)
    ops, deltas = tx.lists.ops(task_ids), tx.lists.deltas(task_ids)
    values, effects = tx.lists.values(task_ids), tx.effects.unsettled(task_ids)
    plans = tx.journal.plans(task_ids)
    return {
        task_id: TaskHistory(
            steps=[opened_step(tx, step) for step in steps.get(task_id, ())],
            loops=loops.get(task_id),
            ops=ops.get(task_id),
            deltas=deltas.get(task_id, ()),
            values=values.get(task_id),
            effects=effects.get(task_id, ()),
            plan=plans[task_id][1] if task_id in plans else None,
        )
        for task_id in task_ids
    }


def opened_step(tx: Tx, step: Step) -> Step:
    """The step with its result instead of a reference to a blob."""
    return msgspec.structs.replace(step, result=tx.blobs.open(step.result))


def waits_beside(name: str, occurrence: str) -> str:
    """The name under which the waits of a step are saved; its own name has its result."""
    return f"{name}!{shown_occurrence(occurrence)}"


class Scope:
    """A namespace of step keys: one turn, or the task outside turns."""

    def __init__(
        self,
        path: str,
        past: Sequence[ScopeChange] = (),
        *,
        around: Scope | None = None,
        child: object = None,
    ) -> None:
        self.path = path
        self.around = around
        # The asyncio task that the program itself runs in.
        self.child = child
        # Changes to lists and values made here. Those of earlier runs come first, and are made again.
        self.ops = list(past)
        self.ops_done = 0
        # Values that were set here, or in finished turns inside.
        self.changed: dict[str, None] = {}
        # Its turn has committed, so it takes no more calls.
        self.is_over = False
        # When its steps must have ended; None without a limit.
        self.due_at: datetime | None = None
        self.has_loops = False
        # Steps that were called, and those of them that have begun.
        self.called = 0
        self._running = 0
        self._calm: asyncio.Event | None = None
        # Dictionaries of names, also instead of sets: the garbage collector does not track them, and there
        # may be many thousands.
        self._counts: dict[str, int] = {}
        # By name: the asyncio task that called the step last, and how many of its calls are in flight.
        self._callers: dict[str, list[Any]] = {}
        self._ids: dict[Key, None] = {}
        self._loops: dict[str, int] = {}

    def key(self, name: str, step_id: str | None) -> Key:
        """The next key of that name: its occurrence, counted when the step is called, or its own id.

        If two asyncio tasks call a step of the same name, a replay cannot rely on their order. That is
        refused even if the calls do not overlap, so that it fails in the first run and not only in a replay.
        """
        if self.is_over:
            raise self.over(name)
        self.called += 1
        if step_id is not None:
            key = (self.path, name, f"id:{step_id}")
            if key in self._ids:
                raise BadInput(f"step {name}", f"{step_id!r} is in flight already; give each its own id")
            self._ids[key] = None
            return key
        caller, callers = asyncio.current_task(), self._callers.get(name)
        if callers is None:
            self._callers[name] = [caller, 1]
        elif callers[0] is caller:
            callers[1] += 1
        elif callers[1] or self.child not in (caller, callers[0]):
            raise BadInput(
                f"step {name}",
                "is called by two asyncio tasks, which a restart could not tell apart; "
                "give each an id: hf.step(fn, id=…), turn.tool(fn, …, id=…)",
            )
        else:
            self._callers[name] = [caller, 1]
        count = self._counts[name] = self._counts.get(name, 0) + 1
        return (self.path, name, occurrence_of(count))

    def over(self, name: str) -> BadInput:
        return BadInput(f"step {name}", f"turn {self.path} is over; use the turn that the loop gives now")

    def next_key(self, name: str) -> Key:
        count = self._counts[name] = self._counts.get(name, 0) + 1
        return (self.path, name, occurrence_of(count))

    def begun(self) -> None:
        """A step that was called here runs now."""
        self._running += 1

    def ended(self, key: Key) -> None:
        """The step is no longer in flight. Wakes `until_idle`."""
        self.called -= 1
        self._running -= 1
        if key[2].startswith("id:"):
            self._ids.pop(key, None)
        else:
            self._callers[key[1]][1] -= 1
        if self._calm is not None:
            self._calm.set()

    def loop(self, name: str | None) -> str:
        """The path of a loop that begins here. Loops without a name are numbered."""
        base, self.has_loops = name or "turns", True
        count = self._loops[base] = self._loops.get(base, 0) + 1
        if count > 1:
            base = f"{base}#{count}"
        return f"{self.path}/{base}" if self.path else base

    async def until_idle(self) -> None:
        """Wait until every step that was begun here has ended, also steps that the program does not await."""
        for _ in range(2 if self.called > self._running else 0):
            await asyncio.sleep(0)  # scheduled steps begin now; those that were never awaited do not
        while self._running:
            self._calm = self._calm or asyncio.Event()
            self._calm.clear()
            await self._calm.wait()

    def is_within(self, path: str) -> bool:
        """Whether this is the scope of that path, or inside it."""
        return self.path == path or self.path.startswith(f"{path}/")

    def is_inside(self, scope: Scope) -> bool:
        """Whether this is that very object, or inside it: an earlier scope may have had the same path."""
        inner: Scope | None = self
        while inner is not None and inner is not scope:
            inner = inner.around
        return inner is scope
