"""Scopes and what a task's past holds: which key a step has, and what was done under it before."""

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
from holdfast.core.redaction import hide_name, redact_name
from holdfast.core.scope import ListDelta, Loop, StoredValue
from holdfast.core.step import Step, occurrence_of, shown_occurrence
from holdfast.store import Tx
from holdfast.store.sealing import Sealing

log = logging.getLogger("holdfast")

Key = tuple[str, str, str]
SPENT = "holdfast:spent"
# The journal may only grow outside turns, where it is replayed whole.
MANY_STEPS = 1000


class Called(msgspec.Struct, kw_only=True):
    """A step whose function is being called."""

    name: str
    # Of an effect: the same after a crash, so that a repeat can be told.
    idempotency_key: str | None = None
    # For tools that keep something in files of their own.
    sealing: Sealing


# The step whose function is being called, for whatever that function calls in turn.
inside_step: contextvars.ContextVar[Called | None] = contextvars.ContextVar("holdfast_step", default=None)


# Where a program is: the turn that it is in, also for the asyncio tasks that it starts there.
here: contextvars.ContextVar[Scope | None] = contextvars.ContextVar("holdfast_scope", default=None)


class Op(msgspec.Struct, frozen=True, array_like=True):
    """One thing that a program did to a list, a value or its plan: to which, and what came of it."""

    name: str
    payload: msgspec.Raw


class Marks(msgspec.Struct, omit_defaults=True):
    """Where lists and values stood when the last turn of a loop had committed; and, of a loop over the plan
    that was left, at which item."""

    lists: dict[str, int] = {}
    values: dict[str, msgspec.Raw] = {}
    item: str | None = None


# What is noted beside the result of a call, under its name: a question, a wait that began.
_MARKS = ("", "!asked", "!began")
_ops = msgspec.json.Decoder(list[Op])
_marks = msgspec.json.Decoder(Marks)


def stored_form(text: str, is_there: Callable[[str], bool]) -> str:
    """How a name or an id of a program is stored: as it is, or hidden because it holds a secret.

    The form that is there already goes first. Another process, or an older release, may have found a secret
    where this one finds none, or the reverse; what was done under that form must not be done again.
    """
    shown = redact_name(text)
    if is_there(shown):
        return shown
    other = hide_name(text) if shown == text else text
    return other if is_there(other) else shown


def as_part(form: str) -> str:
    """A name as it stands in the path of a scope: what hides a secret has a colon."""
    return form.replace(":", " ")


class Past:
    """What the ledger knows about a task that goes on: all that a program is replayed from."""

    def __init__(
        self,
        *,
        steps: Iterable[Step] = (),
        loops: dict[str, Loop] | None = None,
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
        # By idempotency key: when a provider first saw it. Attempts that share one share its window.
        self.keys_since: dict[str, int] = {}
        # Later generations come later, so the newest of each stays.
        for effect in sorted(effects, key=lambda one: one.generation):
            self.effects[(effect.scope, effect.name, effect.occurrence)] = effect
            self.keys_since.setdefault(effect.idempotency_key, effect.created_us)
        # Steps of finished turns included; None until somebody counts them.
        self.steps_done: int | None = None
        self._ops = {} if ops is None else ops
        # By scope, because a scope is forgotten as a whole.
        self.steps: dict[str, dict[Key, Step]] = {}
        for step in steps:
            self.put((step.scope, step.name, step.occurrence), step)
        # Nothing of an earlier life to look for.
        self.is_empty = not self.steps

    def find(self, key: Key) -> Step | None:
        steps = self.steps.get(key[0])
        return None if steps is None else steps.get(key)

    def has(self, key: Key) -> bool:
        """Whether something was done, begun or asked under the key."""
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
        """How many steps are remembered of a scope."""
        return len(self.steps.get(path, ()))

    def forget(self, key: Key) -> None:
        self.steps.get(key[0], {}).pop(key, None)

    def beside(self, key: Key) -> list[Key]:
        """What was noted on the way of a step: its waits, its questions."""
        scope, name, occurrence = key
        waits = waits_beside(name, occurrence)
        names = {f"{name}{mark}" for mark in _MARKS[1:]}
        return [
            one
            for one in self.steps.get(scope, ())
            if one[1] == waits or (one[1] in names and one[2] == occurrence)
        ]

    def within(self, path: str) -> list[Step]:
        """The steps of a scope and of all inside it."""
        return [step for scope in self._inside(path) for step in self.steps[scope].values()]

    def close(self, path: str) -> None:
        """The scope has become data."""
        for scope in self._inside(path):
            del self.steps[scope]

    def _inside(self, path: str) -> list[str]:
        return [scope for scope in self.steps if scope == path or scope.startswith(f"{path}/")]

    @property
    def notes(self) -> int:
        return sum(step.input_digest is None for steps in self.steps.values() for step in steps.values())

    def ops_of(self, path: str) -> list[Op]:
        """What an earlier life did in that scope to lists and values, as far as it is durable."""
        stored = self._ops.get(path)
        return [] if stored is None else _ops.decode(stored)

    def marks_of(self, loop: str) -> Marks:
        stored = self._ops.get(loop)
        return Marks() if stored is None else _marks.decode(stored)

    @property
    def spent(self) -> float:
        """What the program says it has cost."""
        stored = self.values.get(SPENT)
        return 0.0 if stored is None else msgspec.json.decode(stored.value, type=float)


def digest_of_values(values: Mapping[str, bytes]) -> str:
    """Of all values together, in any order; what the program has spent is not one of its own."""
    together = 0
    for name, encoded in values.items():
        if name != SPENT:
            digest = hashlib.blake2b(b"%b\0%b" % (name.encode(), encoded), digest_size=8)
            together ^= int.from_bytes(digest.digest(), "big")
    return f"{together:016x}" if together else ""


def load_pasts(tx: Tx, task_ids: Sequence[str]) -> dict[str, Past]:
    """The pasts of many tasks, in a handful of queries."""
    steps, loops = tx.journal.steps_of(task_ids), tx.turns.loops(task_ids)
    ops, deltas = tx.lists.ops(task_ids), tx.lists.deltas(task_ids)
    values, effects = tx.lists.values(task_ids), tx.effects.unsettled(task_ids)
    plans = tx.journal.plans(task_ids)
    return {
        task_id: Past(
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
    """With its result itself, where a blob holds it."""
    return msgspec.structs.replace(step, result=tx.blobs.open(step.result))


def waits_beside(name: str, occurrence: str) -> str:
    """The name under which is saved what a step waits for on its way; its own has its result."""
    return f"{name}!{shown_occurrence(occurrence)}"


class Scope:
    """Where step keys count: outside turns, or inside one of them."""

    def __init__(
        self, path: str, past: Sequence[Op] = (), *, around: Scope | None = None, child: object = None
    ) -> None:
        self.path = path
        self.around = around
        # The asyncio task that the program itself runs in.
        self.child = child
        # What was done here to lists and values. What an earlier life did comes first, and is done again.
        self.ops = list(past)
        self.ops_done = 0
        # Values that were set here or in finished turns inside.
        self.changed: dict[str, None] = {}
        # Its turn has committed, so nothing can be done in it any more.
        self.is_over = False
        # Until when its steps may take; None without a limit.
        self.due_at: datetime | None = None
        self.has_loops = False
        # Steps that were called, and those of them that have begun.
        self.called = 0
        self.running = 0
        self.calm: asyncio.Event | None = None
        # Dictionaries, also in place of sets: the collector of garbage does not look at those of names, and
        # there may be many thousands.
        self._counts: dict[str, int] = {}
        # By name: who called a step last, and how many of those calls are in flight.
        self._callers: dict[str, list[Any]] = {}
        self._ids: dict[Key, None] = {}
        self._loops: dict[str, int] = {}

    def key(self, name: str, step_id: str | None) -> Key:
        """The next key of that name: its occurrence, counted when the step is called, or its own id.

        Two asyncio tasks that both call it have no order that a replay could rely on. So that this shows in
        the first life and not in some later one, it is refused even when they do not meet.
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
                "is called by two asyncio tasks, so nobody can tell which is which after a restart; "
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

    def ended(self, key: Key) -> None:
        """The step is no longer in flight."""
        self.called -= 1
        if key[2].startswith("id:"):
            self._ids.pop(key, None)
        else:
            self._callers[key[1]][1] -= 1

    def loop(self, name: str | None) -> str:
        """The path of a loop that begins here; loops without a name are numbered."""
        base, self.has_loops = name or "turns", True
        count = self._loops[base] = self._loops.get(base, 0) + 1
        if count > 1:
            base = f"{base}#{count}"
        return f"{self.path}/{base}" if self.path else base

    async def until_idle(self) -> None:
        """Until every step that was begun here has ended, also one that nobody waits for."""
        for _ in range(2 if self.called > self.running else 0):
            await asyncio.sleep(0)  # what was scheduled begins now; what was never awaited does not
        while self.running:
            self.calm = self.calm or asyncio.Event()
            self.calm.clear()
            await self.calm.wait()

    def is_within(self, path: str) -> bool:
        """Whether it is the scope of that path, or inside it."""
        return self.path == path or self.path.startswith(f"{path}/")

    def is_inside(self, scope: Scope) -> bool:
        """Whether it is that very scope, or inside it: not one of an earlier life that has its path."""
        inner: Scope | None = self
        while inner is not None and inner is not scope:
            inner = inner.around
        return inner is scope
