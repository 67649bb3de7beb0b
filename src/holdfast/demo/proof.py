"""Counts the demo's tasks, runs, checkpoints and steps in the ledger, and compares them with what must be."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

import msgspec

from holdfast.core.claim import Boot
from holdfast.core.effect import Effect
from holdfast.core.program_records import Mail
from holdfast.core.run import RunRecord
from holdfast.core.step import Step
from holdfast.core.task import Task
from holdfast.core.transitions import CheckpointStatus, EffectStatus, RunStatus, TaskStatus
from holdfast.demo.process import BEGUN, STEPS, Begun
from holdfast.store.contract import Reader
from holdfast.store.tasks import LAST
from holdfast.store.transaction import Tx

PAGE = 500


class ProofLine(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One count, and what it must be. A line without an expected number is for information only."""

    what: str
    expected: int | None
    # Whether a higher number is right, too.
    or_more: bool
    found: int
    holds: bool


class Proof(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Every line of the proof."""

    lines: list[ProofLine]
    # From the start of the second process to its last follow-up run.
    resume_ms: int | None

    @property
    def holds(self) -> bool:
        return all(line.holds for line in self.lines)


class Evidence(msgspec.Struct, kw_only=True, rename="camel"):
    """What was counted in the ledger."""

    tasks: Counter[str] = msgspec.field(default_factory=Counter)
    runs: Counter[str] = msgspec.field(default_factory=Counter)
    follow_ups: Counter[str] = msgspec.field(default_factory=Counter)
    checkpoints: Counter[str] = msgspec.field(default_factory=Counter)
    steps_of_boot: Counter[str] = msgspec.field(default_factory=Counter)
    effects: Counter[str] = msgspec.field(default_factory=Counter)
    steps_missing: int = 0
    begun_though_saved: int = 0
    cut_short: int = 0
    last_follow_up_at: datetime | None = None
    second_boot: Boot | None = None

    @property
    def steps_before_the_kill(self) -> int:
        second = 0 if self.second_boot is None else self.steps_of_boot[self.second_boot.id]
        return self.steps_of_boot.total() - second

    @property
    def resume_ms(self) -> int | None:
        if self.last_follow_up_at is None or self.second_boot is None:
            return None
        return int((self.last_follow_up_at - self.second_boot.started_at).total_seconds() * 1000)


def prove(ledger: Reader, *, owner: str, tasks: int) -> Proof:
    """Read every record of the demo, then the whole ledger, and compare."""
    found = ledger.read_now(lambda tx: gather(tx, owner))
    problems = ledger.verify()
    interrupted = found.runs[RunStatus.RESUMED]
    succeeded = found.tasks[TaskStatus.SUCCEEDED]
    ended = interrupted + found.runs[RunStatus.SUCCEEDED]
    lines = [
        _line("tasks", tasks, found.tasks.total()),
        _line("tasks that succeeded", tasks, succeeded),
        _line("tasks stuck, failed or lost", 0, found.tasks.total() - succeeded),
        _line("runs interrupted by the kill", 1, interrupted, or_more=True),
        _line("checkpoints resumed", interrupted, found.checkpoints[CheckpointStatus.RESUMED]),
        _line("checkpoints in another status", 0, found.checkpoints.total() - interrupted),
        _line("follow-up runs", interrupted, found.follow_ups.total()),
        _line("follow-up runs of one run, at most", 1, max(found.follow_ups.values(), default=0)),
        _line("runs still open", 0, found.runs.total() - ended),
        _line("steps saved, each once", tasks * len(STEPS), found.steps_of_boot.total()),
        _line("steps missing", 0, found.steps_missing),
        _line("steps saved before the kill", 1, found.steps_before_the_kill, or_more=True),
        _line("steps begun again though saved", 0, found.begun_though_saved),
        _line("steps cut short by the kill, done again", None, found.cut_short),
        _line("effects done, each once", tasks, found.effects[EffectStatus.DONE]),
        _line("effects in another status", 0, found.effects.total() - found.effects[EffectStatus.DONE]),
        _line("problems found by store verify", 0, len(problems)),
    ]
    return Proof(lines=lines, resume_ms=found.resume_ms)


def gather(tx: Tx, owner: str) -> Evidence:
    found, before = Evidence(), LAST
    while page := tx.tasks.page(owner=owner, before=before, limit=PAGE):
        for task in page:
            _gather_task(tx, task, found)
        before = page[-1].id
    return found


def _gather_task(tx: Tx, task: Task, found: Evidence) -> None:
    runs = tx.runs.of_task(task.id)
    found.tasks[task.status.value] += 1
    for run in runs:
        _gather_run(tx, run, found)
    for checkpoint in tx.checkpoints.page(task_id=task.id, limit=PAGE):
        found.checkpoints[str(checkpoint.status)] += 1
    _gather_steps(tx.journal.steps(task.id), runs, tx.mail.of_task(task.id), found)
    _gather_effects(tx.effects.of_task(task.id), found)


def _gather_run(tx: Tx, run: RunRecord, found: Evidence) -> None:
    found.runs[run.status.value] += 1
    if run.resumes_run_id is None:
        return
    found.follow_ups[run.resumes_run_id] += 1
    found.last_follow_up_at = max(found.last_follow_up_at or run.created_at, run.created_at)
    if found.second_boot is None and run.claimed_by is not None:
        found.second_boot = tx.boots.get(run.claimed_by)


def _gather_steps(steps: list[Step], runs: list[RunRecord], mail: list[Mail], found: Evidence) -> None:
    boots = {run.id: str(run.claimed_by) for run in runs}
    found.steps_of_boot.update(boots[step.run_id] for step in steps)
    saved = {step.name: step for step in steps}
    found.steps_missing += len(set(STEPS) - set(saved))
    calls = [
        (msgspec.json.decode(one.body, type=Begun).step, one.sent_at) for one in mail if one.topic == BEGUN
    ]
    late = [name for name, begun_at in calls if name in saved and begun_at > saved[name].ended_at]
    found.begun_though_saved += len(late)
    # Of the calls before a step was saved, one led to the saved result; the kill cut the others short.
    found.cut_short += len(calls) - len(late) - len({name for name, _ in calls} & set(saved))


def _gather_effects(effects: list[Effect], found: Evidence) -> None:
    """A second attempt under another key is a second row, and makes the count too high."""
    found.effects.update(effect.status.value for effect in effects)


def _line(what: str, expected: int | None, found: int, *, or_more: bool = False) -> ProofLine:
    holds = expected is None or (found >= expected if or_more else found == expected)
    return ProofLine(what=what, expected=expected, or_more=or_more, found=found, holds=holds)
