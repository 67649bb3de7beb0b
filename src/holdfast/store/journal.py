"""Reads and writes of the journal: steps, plans, artifacts and notes, all under the run's fence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, TypeVar

import msgspec

from holdfast.core.claim import Claim
from holdfast.core.clock import from_micros
from holdfast.core.errors import ClaimLost
from holdfast.core.plan import Plan
from holdfast.core.step import Artifact, Note, Step
from holdfast.store.contract import Row
from holdfast.store.rows.effects import IN_ORDER, step_from_effect_row
from holdfast.store.rows.journal import (
    STEP_COLUMNS,
    artifact_from_row,
    note_from_row,
    plan_from_row,
    row_from_artifact,
    row_from_note,
    row_from_plan,
    row_from_step,
    step_from_row,
)
from holdfast.store.sealing import Sealing

if TYPE_CHECKING:
    from holdfast.store.transaction import Tx

N = TypeVar("N")

# The queries that delete a task's journal. Effects are deleted with the task, because an open one keeps it.
_OF_TASKS = (
    "steps",
    "plans",
    "artifacts",
    "notes",
    "loops",
    "turns",
    "kept_steps",
    "list_deltas",
    "durable_values",
    "scope_ops",
    "mail",
    "questions",
)


def _place(step: Step) -> tuple[int, str, str, str]:
    return (step.seq, step.scope, step.name, step.occurrence)


def _key(step: Step) -> tuple[str, str, str, str]:
    return (step.task_id, step.scope, step.name, step.occurrence)


class JournalHead(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a task's journal: how many steps, the last one, and which runs wrote any."""

    steps_saved: int = 0
    last_step: str | None = None
    written_by: frozenset[str] = frozenset()


class SaveStep(msgspec.Struct, frozen=True, gc=False):
    """The hottest write: one guarded statement, or a whole batch at once."""

    is_joined: ClassVar[bool] = True
    is_crowd: ClassVar[bool] = True
    when_done: ClassVar[None] = None
    statement: ClassVar[str] = "save_step"
    row: Row

    def __call__(self, tx: Tx) -> Step | None:
        """None when it was saved now; the stored step when there was one already."""
        if tx.statements.guarded("save_step", self.row):
            return None
        params = dict(zip(IN_ORDER["save_step"], self.row, strict=True))
        # Either it was saved before, perhaps in a commit whose answer was lost, or the claim is lost.
        found = tx.statements.one("get_step", params)
        if found is None or not tx.journal.holds(params["run_id"], params["task_id"], params["fence"]):
            raise ClaimLost(params["run_id"], params["fence"])
        step = step_from_row(found, tx.sealing)
        # The same digest means the same write: it ran before, in a commit whose answer was lost.
        return None if found[10] == params["digest"] else step

    @staticmethod
    def together(tx: Tx, writes: Sequence[SaveStep]) -> Sequence[Step | ClaimLost | None]:
        return tx.journal.save_many(writes)


def saving_step(step: Step, fence: int, sealing: Sealing) -> SaveStep:
    # A function instead of a constructor of our own, which Python calls more slowly.
    return SaveStep((*row_from_step(step, sealing), fence))


class JournalTable:
    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._sql = tx.statements
        self._sealing = tx.sealing

    def save_many(self, writes: Sequence[SaveStep]) -> list[Step | ClaimLost | None]:
        """Save all at once; those that were not saved are checked one by one."""
        saved = self._sql.save_steps([write.row for write in writes])
        if all(saved):
            return [None] * len(writes)
        return [
            None if is_saved else self._look_at(write) for write, is_saved in zip(writes, saved, strict=True)
        ]

    def _look_at(self, write: SaveStep) -> Step | ClaimLost | None:
        try:
            return write(self._tx)
        except ClaimLost as error:
            return error

    def has_progress(self, task_id: str) -> bool:
        """Whether the task has saved anything; an effect that was only begun counts, too: it may have
        happened."""
        return self._sql.one("task_has_progress", {"task_id": task_id}) is not None

    def holds(self, run_id: str, task_id: str, fence: int) -> bool:
        """Whether the run is still held with this fence; if so, it is locked until the transaction ends."""
        params = {"run_id": run_id, "task_id": task_id, "fence": fence}
        return self._sql.one("hold_run", params) is not None

    def require(self, claim: Claim) -> None:
        if not self.holds(claim.run_id, claim.task_id, claim.fence):
            raise ClaimLost(claim.run_id, claim.fence)

    def put_step(self, step: Step) -> bool:
        """Save a step as part of a larger write, which holds the run or knows that no worker does.

        False when there is one already: the first result stays.
        """
        params = dict(zip(STEP_COLUMNS, row_from_step(step, self._sealing), strict=True))
        return self._sql.one("put_step", params) is not None

    def forget_step(self, claim: Claim, scope: str, name: str, occurrence: str) -> None:
        """Delete the result under this key, because it no longer belongs to it. It is idempotent.

        An effect that was done is never deleted.
        """
        self.require(claim)
        params = {"task_id": claim.task_id, "scope": scope, "name": name, "occurrence": occurrence}
        self._sql.run("delete_step", params)

    def forget_idle(self, task_id: str, scope: str, name: str, occurrence: str) -> None:
        """The same for a task that no worker executes; the caller has locked the task."""
        params = {"task_id": task_id, "scope": scope, "name": name, "occurrence": occurrence}
        self._sql.run("delete_step", params)

    def find_step(self, task_id: str, scope: str, name: str, occurrence: str) -> Step | None:
        params = {"task_id": task_id, "scope": scope, "name": name, "occurrence": occurrence}
        row = self._sql.one("get_step", params)
        if row is not None:
            return step_from_row(row, self._sealing)
        row = self._sql.one("get_done_effect", params)
        return None if row is None else step_from_effect_row(row, self._sealing)

    def steps(self, task_id: str, *, limit: int = 100_000) -> list[Step]:
        params = {"task_id": task_id, "limit": limit}
        steps = self._merged(
            self._sql.all("steps_of_task", params), self._sql.all("done_effects_of_task", params)
        )
        return sorted(steps, key=_place)[:limit]

    def steps_from(self, task_id: str, seq: int, *, scope: str | None = None, limit: int) -> list[Step]:
        """A page of the journal, with results as stored: from this number on. With a scope, only its steps
        and those of the scopes inside it."""
        params: dict[str, object] = {"task_id": task_id, "seq": seq, "limit": limit}
        which = "from"
        if scope is not None:
            params |= {"scope": scope, "low": f"{scope}/", "high": f"{scope}0"}
            which = "of_scope_from"
        steps = self._merged(
            self._sql.all(f"steps_{which}", params), self._sql.all(f"done_effects_{which}", params)
        )
        return sorted(steps, key=_place)[:limit]

    def newest_steps(self, task_id: str, *, limit: int) -> list[Step]:
        """The end of the journal, newest first, with results as stored."""
        params = {"task_id": task_id, "limit": limit}
        steps = self._merged(
            self._sql.all("newest_steps_of_task", params),
            self._sql.all("newest_done_effects_of_task", params),
        )
        return sorted(steps, key=_place, reverse=True)[:limit]

    def steps_of(self, task_ids: Sequence[str]) -> dict[str, list[Step]]:
        """The journals of several tasks, with results as stored."""
        ids = {"ids": self._sql.pack(task_ids)}
        found = self._sql.all("steps_of_tasks", ids), self._sql.all("done_effects_of_tasks", ids)
        journals: dict[str, list[Step]] = {}
        merged = self._merged(*found)
        for step in sorted(merged, key=_place) if found[1] else merged:
            journals.setdefault(step.task_id, []).append(step)
        return journals

    def heads(self, task_ids: Sequence[str]) -> dict[str, JournalHead]:
        """The head of each task's journal, finished turns included; tasks without either are left out."""
        ids = {"ids": self._sql.pack(task_ids)}
        last: dict[str, tuple[int, str | None]] = {}
        for task_id, _, name, ended_at in self._sql.all("last_steps", ids):
            # The turn replaces the step, unless the step is newer.
            if task_id not in last or last[task_id][0] <= ended_at:
                last[task_id] = (ended_at, _shown_name(name))
        heads: dict[str, JournalHead] = {}
        for task_id, run_id, saved in self._sql.all("journal_heads", ids):
            head = heads.get(task_id, JournalHead())
            heads[task_id] = JournalHead(
                steps_saved=head.steps_saved + saved,
                last_step=last[task_id][1] if task_id in last else None,
                written_by=head.written_by | {run_id},
            )
        return heads

    def last_saved_at(self, task_id: str) -> datetime | None:
        """When the last step, effect or turn of a task was saved."""
        found = self._sql.all("last_steps", {"ids": self._sql.pack([task_id])})
        return max((from_micros(row[3]) for row in found), default=None)

    def save_plan(self, claim: Claim, plan: Plan, *, now: datetime) -> bool:
        """True if its cursor moved or there was no plan before; a new plan alone is not progress."""
        self.require(claim)
        mover, before = self.plans([claim.task_id]).get(claim.task_id, (claim.run_id, None))
        has_moved = before is None or before.cursor.last_completed != plan.cursor.last_completed
        run_id = claim.run_id if has_moved else mover
        self._sql.run("save_plan", row_from_plan(claim.task_id, run_id, plan, now, self._sealing))
        return has_moved

    def plans(self, task_ids: Sequence[str]) -> dict[str, tuple[str, Plan]]:
        """The plan of each task, with the run that moved it last."""
        found = self._sql.all("plans_of_tasks", {"ids": self._sql.pack(task_ids)})
        return {row[0]: (row[1], plan_from_row(row, self._sealing)) for row in found}

    def save_artifact(self, claim: Claim, artifact: Artifact, *, now: datetime) -> None:
        self.require(claim)
        self._sql.run("save_artifact", row_from_artifact(claim.task_id, claim.run_id, artifact, now))

    def artifacts(self, task_ids: Sequence[str]) -> dict[str, list[Artifact]]:
        return self._grouped("artifacts_of_tasks", task_ids, artifact_from_row)

    def add_note(self, claim: Claim, note: Note, *, seq: int) -> None:
        """Add it at `seq` or at the next free position; the same note is not added twice there."""
        self.require(claim)
        while self._sql.one("save_note", row_from_note(claim.task_id, claim.run_id, seq, note)) is None:
            row = self._sql.one("get_note", {"task_id": claim.task_id, "seq": seq})
            if row is not None and note_from_row(row) == note:
                return
            seq += 1

    def notes(self, task_ids: Sequence[str]) -> dict[str, list[Note]]:
        return self._grouped("notes_of_tasks", task_ids, note_from_row)

    def delete_of_tasks(self, task_ids: Sequence[str]) -> None:
        """Retention: delete what their runs wrote, their mail and their questions."""
        ids = self._sql.pack(task_ids)
        for noun in _OF_TASKS:
            self._sql.run(f"delete_{noun}_of_tasks", {"ids": ids})

    def _merged(self, steps: Sequence[Row], effects: Sequence[Row]) -> Iterable[Step]:
        """Steps and effects that are done, which are their own steps. If a step was saved under the key of an
        effect, because the call has changed since, the step wins."""
        read = [step_from_row(row, self._sealing) for row in steps]
        if not effects:
            return read
        found = {_key(step): step for step in (step_from_effect_row(row, self._sealing) for row in effects)}
        found.update((_key(step), step) for step in read)
        return found.values()

    def _grouped(self, query: str, task_ids: Sequence[str], read: Callable[[Row], N]) -> dict[str, list[N]]:
        grouped: dict[str, list[N]] = {}
        for row in self._sql.all(query, {"ids": self._sql.pack(task_ids)}):
            grouped.setdefault(row[0], []).append(read(row))
        return grouped


def _shown_name(name: str | None) -> str | None:
    """The name without the mark that a call began. A turn without a step has no name."""
    return None if name is None else name.removesuffix("!asked").removesuffix("!began")
