"""What a process was told had happened, written down outside the ledger, to be held against it later.

One line per fact, appended with one system call after the acknowledgement. A process that is killed between
the acknowledgement and the line knew a fact that we do not; that loses a check and never makes a false one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from holdfast.core.transitions import CheckpointStatus, RunStatus, TaskStatus
from holdfast.store import Store, Tx


class Fact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that a call answered with."""

    kind: str
    task: str = ""
    run: str = ""
    checkpoint: str = ""
    name: str = ""
    value: Any = None


class Log:
    """An append-only file of facts. Several processes may write, one after another or together."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, kind: str, **facts: Any) -> None:
        # A kill may cut even one call short: what follows must not stand on the same line.
        os.write(self._descriptor, b"\n" + msgspec.json.encode(Fact(kind=kind, **facts)) + b"\n")

    def close(self) -> None:
        os.close(self._descriptor)


def read_facts(path: Path, offset: int = 0) -> list[Fact]:
    """Every whole line after an offset; a kill may have cut one short."""
    if not path.exists():
        return []
    with path.open("rb") as file:
        file.seek(offset)
        lines = [line for line in file.read().split(b"\n") if line]
    facts = []
    for line in lines:
        try:
            facts.append(msgspec.json.decode(line, type=Fact))
        except msgspec.DecodeError:
            assert not line.endswith(b"}"), f"not a fact, and not cut short either: {line!r}"
    return facts


def assert_facts_stand(store: Store, facts: Iterable[Fact]) -> None:
    """Nothing that was acknowledged is lost, and nothing of it has changed."""

    def look(tx: Tx) -> list[Fact]:
        return [fact for fact in facts if not _CHECKS[fact.kind](tx, fact)]

    missing = store.read_now(look)
    assert missing == [], f"{len(missing)} acknowledged facts are not in the ledger"


def _a_task_has_its_key(tx: Tx, fact: Fact) -> bool:
    return tx.tasks.get(fact.task).dedup_key == fact.name


def _a_claim_raised_the_fence(tx: Tx, fact: Fact) -> bool:
    return tx.runs.get(fact.run).fence >= int(fact.value)


def _a_step_keeps_its_first_result(tx: Tx, fact: Fact) -> bool:
    step = tx.journal.find_step(fact.task, "", fact.name, "1")
    return step is not None and bool(msgspec.json.decode(tx.blobs.open(step.result)) == fact.value)


def _a_plan_only_advances(tx: Tx, fact: Fact) -> bool:
    _, plan = tx.journal.plans([fact.task])[fact.task]
    return sum(item.is_done for item in plan.items) >= int(fact.value)


def _progress_only_advances(tx: Tx, fact: Fact) -> bool:
    progress = tx.tasks.look(fact.task).progress
    return progress is not None and progress.done >= int(fact.value)


def _a_note_is_kept(tx: Tx, fact: Fact) -> bool:
    texts = [note.text for note in tx.journal.notes([fact.task])[fact.task]]
    return texts.count(str(fact.value)) == 1


def _an_output_is_kept(tx: Tx, fact: Fact) -> bool:
    return fact.name in {artifact.name for artifact in tx.journal.artifacts([fact.task])[fact.task]}


def _a_checkpoint_exists(tx: Tx, fact: Fact) -> bool:
    return tx.checkpoints.get(fact.checkpoint).run_id == fact.run


def _a_resume_has_this_one_follow_up(tx: Tx, fact: Fact) -> bool:
    checkpoint = tx.checkpoints.get(fact.checkpoint)
    return (checkpoint.status, checkpoint.resumed_run_id) == (CheckpointStatus.RESUMED, fact.run)


def _a_failed_resume_stays_failed(tx: Tx, fact: Fact) -> bool:
    return tx.checkpoints.get(fact.checkpoint).status is CheckpointStatus.FAILED_RESUME


def _a_success_keeps_its_result(tx: Tx, fact: Fact) -> bool:
    task = tx.tasks.get(fact.task)
    return (
        task.status is TaskStatus.SUCCEEDED
        and task.result is not None
        and bool(msgspec.json.decode(tx.blobs.open(task.result)) == fact.value)
        and tx.runs.get(fact.run).status is RunStatus.SUCCEEDED
    )


def _a_failure_stays(tx: Tx, fact: Fact) -> bool:
    return tx.tasks.get(fact.task).status is TaskStatus.FAILED


def _a_cancel_is_sticky(tx: Tx, fact: Fact) -> bool:
    return tx.tasks.get(fact.task).cancel_requested_at is not None


def _given_up(tx: Tx, fact: Fact) -> bool:
    """A release or a wait raised the fence above the claim's."""
    return tx.runs.get(fact.run).fence > int(fact.value)


def _attempted(tx: Tx, fact: Fact) -> bool:
    """What was about to be done: no promise that it was."""
    return True


_CHECKS: dict[str, Callable[[Tx, Fact], bool]] = {
    "created": _a_task_has_its_key,
    "claimed": _a_claim_raised_the_fence,
    "doing": _attempted,
    "step": _a_step_keeps_its_first_result,
    "plan": _a_plan_only_advances,
    "progress": _progress_only_advances,
    "note": _a_note_is_kept,
    "output": _an_output_is_kept,
    "paused": _a_checkpoint_exists,
    "resumed": _a_resume_has_this_one_follow_up,
    "failed_resume": _a_failed_resume_stays_failed,
    "finished": _a_success_keeps_its_result,
    "failed": _a_failure_stays,
    "cancel": _a_cancel_is_sticky,
    "released": _given_up,
    "waited": _given_up,
}


def assert_saved_results_were_attempted(store: Store, facts: Iterable[Fact], task_ids: Iterable[str]) -> None:
    """No result stands in the journal that no process was about to save."""
    attempted = {(fact.task, fact.name, fact.value) for fact in facts if fact.kind == "doing"}

    def look(tx: Tx) -> list[str]:
        return [
            f"{step.task_id} {step.name}"
            for task_id in task_ids
            for step in tx.journal.steps(task_id)
            if (task_id, step.name, msgspec.json.decode(tx.blobs.open(step.result))) not in attempted
        ]

    assert store.read_now(look) == []
