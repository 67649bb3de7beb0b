"""Scopes and what a task's past holds: which key a step has, and what was done under it before."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from holdfast.core.effect import Effect
from holdfast.core.errors import BadInput
from holdfast.core.plan import Plan
from holdfast.core.scope import ListDelta, Loop, StoredValue
from holdfast.core.step import Step
from holdfast.store import Tx

Key = tuple[str, str, str]
SPENT = "holdfast:spent"
# The journal may only grow outside turns, where it is replayed whole.
MANY_STEPS = 1000


class Past(msgspec.Struct, kw_only=True):
    """What the ledger knows about a task that goes on: all that a program is replayed from."""

    steps: dict[Key, Step] = {}
    loops: dict[str, Loop] = {}
    ops: dict[str, int] = {}
    deltas: list[ListDelta] = []
    values: dict[str, StoredValue] = {}
    effects: dict[Key, Effect] = {}
    plan: Plan | None = None
    # Steps of finished turns included; None until somebody counts them.
    steps_done: int | None = None

    @property
    def spent(self) -> float:
        """What the program says it has cost."""
        stored = self.values.get(SPENT)
        return 0.0 if stored is None else msgspec.json.decode(stored.value, type=float)


def load_pasts(tx: Tx, task_ids: Sequence[str]) -> dict[str, Past]:
    """The pasts of many tasks, in a handful of queries."""
    steps, loops = tx.journal.steps_of(task_ids), tx.turns.loops(task_ids)
    ops, deltas = tx.lists.ops(task_ids), tx.lists.deltas(task_ids)
    values, effects = tx.lists.values(task_ids), tx.effects.unsettled(task_ids)
    plans = tx.journal.plans(task_ids)
    return {
        task_id: Past(
            steps={
                (step.scope, step.name, step.occurrence): _opened(tx, step) for step in steps.get(task_id, ())
            },
            loops=loops.get(task_id, {}),
            ops=ops.get(task_id, {}),
            deltas=deltas.get(task_id, []),
            values=values.get(task_id, {}),
            # Later generations come later, so the newest of each stays.
            effects={
                (effect.scope, effect.name, effect.occurrence): effect
                for effect in sorted(effects.get(task_id, ()), key=lambda one: one.generation)
            },
            plan=plans[task_id][1] if task_id in plans else None,
        )
        for task_id in task_ids
    }


def _opened(tx: Tx, step: Step) -> Step:
    return msgspec.structs.replace(step, result=tx.blobs.open(step.result))


class Scope:
    """Where step keys count: outside turns, or inside one of them."""

    def __init__(self, path: str, *, ops_done: int = 0) -> None:
        self.path = path
        # Operations on lists and values: counted so far, and those that were applied in an earlier life.
        self.ops = 0
        self.ops_done = ops_done
        self._counts: dict[str, int] = {}
        self._callers: dict[str, tuple[asyncio.Task[object] | None, int]] = {}
        self._loops: dict[str, int] = {}

    def key(self, name: str, step_id: str | None) -> Key:
        """The next key of that name: its occurrence, counted when the step is called, or its own id."""
        if step_id is not None:
            return (self.path, name, f"id:{step_id}")
        caller, others = asyncio.current_task(), self._callers.get(name)
        if others is not None and others[0] is not caller:
            raise BadInput(
                f"step {name}",
                "is in flight from another asyncio task, so nobody can tell which is which after a restart; "
                "give each an id: hf.step(fn, id=…)",
            )
        self._callers[name] = (caller, 1 if others is None else others[1] + 1)
        count = self._counts[name] = self._counts.get(name, 0) + 1
        return (self.path, name, str(count))

    def ended(self, key: Key) -> None:
        """The step is no longer in flight."""
        others = self._callers.get(key[1])
        if others is not None and not key[2].startswith("id:"):
            if others[1] <= 1:
                del self._callers[key[1]]
            else:
                self._callers[key[1]] = (others[0], others[1] - 1)

    def loop(self, name: str | None) -> str:
        """The path of a loop that begins here; loops without a name are numbered."""
        base = name or "turns"
        count = self._loops[base] = self._loops.get(base, 0) + 1
        if count > 1:
            base = f"{base}#{count}"
        return f"{self.path}/{base}" if self.path else base

    def is_within(self, path: str) -> bool:
        return self.path == path or self.path.startswith(f"{path}/")

    def next_op(self) -> bool:
        """Count an operation; True when it is new, False when it was applied in an earlier life."""
        self.ops += 1
        return self.ops > self.ops_done
