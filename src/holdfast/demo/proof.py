"""Counts what the demo left in the ledger (items, tasks, runs, steps), and compares it with what must be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime

import msgspec

from holdfast.analysis.tasks import ANALYSE, ANALYSIS_STEPS, COUNTED, REPORT_STEPS
from holdfast.core.campaign import Campaign, ItemPhase
from holdfast.core.claim import Boot
from holdfast.core.effect import Effect
from holdfast.core.program_records import Mail
from holdfast.core.run import RunRecord
from holdfast.core.step import Step, shown_occurrence
from holdfast.core.task import Task
from holdfast.core.transitions import CheckpointStatus, EffectStatus, ItemStatus, RunStatus, TaskStatus
from holdfast.demo.process import BEGUN, Begun
from holdfast.store.contract import Reader
from holdfast.store.tasks import LAST
from holdfast.store.transaction import Tx

PAGE = 500
ANALYSIS, REPORTING = 0, 1
StepKey = tuple[str, int]


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
    items: int
    steps: int
    resumed: int
    # Item-phases and steps that must be there and are not.
    lost: int
    # Steps, effects, tasks and follow-up runs that are there once more than they must.
    repeated: int
    # For each kill: from the start of the next process to its last follow-up run.
    resume_ms: list[int]

    @property
    def holds(self) -> bool:
        return all(line.holds for line in self.lines)


class Evidence(msgspec.Struct, kw_only=True, rename="camel"):
    """What was counted in the ledger."""

    # Of each phase, by status.
    items: tuple[Counter[str], Counter[str]] = msgspec.field(default_factory=lambda: (Counter(), Counter()))
    # Item-phases for which more than one task was created.
    started_anew: int = 0
    tasks: Counter[str] = msgspec.field(default_factory=Counter)
    runs: Counter[str] = msgspec.field(default_factory=Counter)
    follow_ups: Counter[str] = msgspec.field(default_factory=Counter)
    checkpoints: Counter[str] = msgspec.field(default_factory=Counter)
    steps_of_boot: Counter[str] = msgspec.field(default_factory=Counter)
    effects: Counter[str] = msgspec.field(default_factory=Counter)
    steps_needed: int = 0
    steps_missing: int = 0
    begun_though_saved: int = 0
    cut_short: int = 0
    # By boot that resumed: when it started, and when its last follow-up run was created.
    boots: dict[str, Boot] = {}
    last_follow_up: dict[str, datetime] = {}

    @property
    def steps_before_the_kill(self) -> int:
        """Saved by the processes that were killed; the last process of all saved the rest."""
        last = max(self.boots.values(), key=lambda boot: boot.started_at, default=None)
        return self.steps_of_boot.total() - (0 if last is None else self.steps_of_boot[last.id])

    @property
    def resume_ms(self) -> list[int]:
        boots = sorted(self.boots.values(), key=lambda boot: boot.started_at)
        spans = [self.last_follow_up[boot.id] - boot.started_at for boot in boots]
        return [int(span.total_seconds() * 1000) for span in spans]


def prove(ledger: Reader, *, owner: str, kills: int = 1) -> Proof:
    """Read every record of the demo, then the whole ledger, and compare."""
    found = ledger.read_now(lambda tx: gather(tx, owner))
    problems = ledger.verify()
    analysis, reporting = found.items
    items, analysed, broken = analysis.total(), analysis[ItemStatus.DONE], analysis[ItemStatus.FAILED]
    reported = reporting[ItemStatus.DONE]
    interrupted = found.runs[RunStatus.RESUMED]
    succeeded = found.tasks[TaskStatus.SUCCEEDED]
    ended = interrupted + found.runs[RunStatus.SUCCEEDED] + found.runs[RunStatus.FAILED]
    most_follow_ups = max(found.follow_ups.values(), default=0)
    # Confirmed: a process died after it had written the file, and the next one looked, and found it.
    confirmed = found.effects[EffectStatus.CONFIRMED]
    done_effects = found.effects[EffectStatus.DONE] + confirmed
    # Failed: it died before, and the next one looked, found nothing, and wrote the file.
    not_begun = found.effects[EffectStatus.FAILED]
    odd_effects = found.effects.total() - done_effects - not_begun
    lines = [
        _line("items", 1, items, or_more=True),
        _line("items analysed", items - broken, analysed),
        _line("items reported", analysed, reported),
        _line("items that could not be analysed, with the reason", None, broken),
        _line("tasks, one for each item and phase", items + analysed, found.tasks.total()),
        _line("tasks that succeeded", analysed + reported, succeeded),
        _line("tasks stuck or lost", 0, found.tasks.total() - succeeded - broken),
        _line("items started anew", 0, found.started_anew),
        _line("runs interrupted by a kill", kills, interrupted, or_more=True),
        _line("checkpoints resumed", interrupted, found.checkpoints[CheckpointStatus.RESUMED]),
        _line("checkpoints in another status", 0, found.checkpoints.total() - interrupted),
        _line("follow-up runs", interrupted, found.follow_ups.total()),
        _line("follow-up runs of one run, at most", min(1, interrupted), most_follow_ups),
        _line("runs still open", 0, found.runs.total() - ended),
        _line("steps saved, each once", found.steps_needed, found.steps_of_boot.total()),
        _line("steps missing", 0, found.steps_missing),
        _line("steps saved before the last kill", kills, found.steps_before_the_kill, or_more=True),
        _line("steps begun again though saved", 0, found.begun_though_saved),
        _line("steps cut short by a kill, done again", None, found.cut_short),
        _line("files written (effects), each once", analysed, done_effects),
        _line("files that were found written after a kill", None, confirmed),
        _line("files that were found unwritten after a kill", None, not_begun),
        _line("effects in another status", 0, odd_effects),
        _line("problems found by store verify", 0, len(problems)),
    ]
    return Proof(
        lines=lines,
        items=items,
        steps=found.steps_of_boot.total(),
        resumed=found.follow_ups.total(),
        lost=(items - broken - analysed) + (analysed - reported) + found.steps_missing,
        repeated=found.begun_though_saved
        + found.started_anew
        + sum(number - 1 for number in found.follow_ups.values())
        + max(0, done_effects - analysed)
        + max(0, found.steps_of_boot.total() - found.steps_needed),
        resume_ms=found.resume_ms,
    )


def gather(tx: Tx, owner: str) -> Evidence:
    found, before = Evidence(), LAST
    campaign = tx.campaigns.find(owner)
    if campaign is not None:
        for phase in (ANALYSIS, REPORTING):
            for one in _item_phases(tx, campaign, phase):
                found.items[phase][one.status.value] += 1
                found.started_anew += one.attempt > 1
    while page := tx.tasks.page(owner=owner, before=before, limit=PAGE):
        for task in page:
            _gather_task(tx, task, found)
        before = page[-1].id
    return found


def _item_phases(tx: Tx, campaign: Campaign, phase: int) -> Iterator[ItemPhase]:
    after = -1
    while page := tx.item_phases.page(campaign.id, phase, after=after, limit=PAGE):
        yield from page
        after = page[-1].place


def _gather_task(tx: Tx, task: Task, found: Evidence) -> None:
    runs = tx.runs.of_task(task.id)
    found.tasks[task.status.value] += 1
    for run in runs:
        _gather_run(tx, run, found)
    for checkpoint in tx.checkpoints.page(task_id=task.id, limit=PAGE):
        found.checkpoints[str(checkpoint.status)] += 1
    _gather_steps(task, tx.journal.steps(task.id), runs, tx.mail.of_task(task.id), found)
    _gather_effects(tx.effects.of_task(task.id), found)


def _gather_run(tx: Tx, run: RunRecord, found: Evidence) -> None:
    found.runs[run.status.value] += 1
    if run.resumes_run_id is None:
        return
    found.follow_ups[run.resumes_run_id] += 1
    if run.claimed_by is None:
        return
    boot_id = str(run.claimed_by)
    if boot_id not in found.boots:
        boot = tx.boots.get(run.claimed_by)
        if boot is None:
            return
        found.boots[boot_id] = boot
    found.last_follow_up[boot_id] = max(found.last_follow_up.get(boot_id, run.created_at), run.created_at)


def _gather_steps(
    task: Task, steps: list[Step], runs: list[RunRecord], mail: list[Mail], found: Evidence
) -> None:
    boots = {run.id: str(run.claimed_by) for run in runs}
    known = {*ANALYSIS_STEPS, *REPORT_STEPS}
    # The others are records of artifacts, which come with the step before.
    saved = {_key(step): step for step in steps if step.name in known}
    found.steps_of_boot.update(boots[step.run_id] for step in saved.values())
    letters = [(msgspec.json.decode(one.body, type=Begun), one) for one in mail if one.topic == BEGUN]
    needed = _needed(task, saved, parts=max((begun.parts for begun, _ in letters), default=1))
    found.steps_needed += len(needed)
    found.steps_missing += len(needed - set(saved))
    calls = [((begun.step, begun.number), one.sent_at) for begun, one in letters]
    late = [key for key, begun_at in calls if key in saved and begun_at > saved[key].ended_at]
    found.begun_though_saved += len(late)
    # Of the calls before a step was saved, one led to the saved result; a kill cut the others short.
    found.cut_short += len(calls) - len(late) - len({key for key, _ in calls} & set(saved))


def _key(step: Step) -> StepKey:
    return step.name, int(shown_occurrence(step.occurrence))


def _needed(task: Task, saved: dict[StepKey, Step], *, parts: int) -> set[StepKey]:
    """The steps that the task must have saved. One that failed, failed at its first step, for a reason."""
    if task.status is TaskStatus.FAILED:
        return set(saved)
    if task.name != ANALYSE:
        return {(name, 1) for name in REPORT_STEPS}
    needed = {(name, 1) for name in ANALYSIS_STEPS}
    return needed | {(COUNTED, number) for number in range(1, parts + 1)}


def _gather_effects(effects: list[Effect], found: Evidence) -> None:
    """A file that was written twice has two rows that are done, which makes the count too high."""
    found.effects.update(effect.status.value for effect in effects)


def _line(what: str, expected: int | None, found: int, *, or_more: bool = False) -> ProofLine:
    holds = expected is None or (found >= expected if or_more else found == expected)
    return ProofLine(what=what, expected=expected, or_more=or_more, found=found, holds=holds)
