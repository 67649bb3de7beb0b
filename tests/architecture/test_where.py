"""Where responsibilities live: a newcomer finds each by the names of folders and files alone.

A reader who saw nothing but `git ls-files` was asked for these; a name that misled was changed.
"""

from __future__ import annotations

import ast

import pytest

from tests.architecture.source import PACKAGE

# The responsibility, its file, and the name in it that does the work.
WHERE = {
    "a claim on a run is taken": ("engine/claims/claims.py", "Claims"),
    "a step is run once, and its result saved": ("engine/program/steps.py", "StepRunner"),
    "an effect that a dead process left open is settled": (
        "engine/program/effect_settling.py",
        "EffectSettler",
    ),
    "a person's decision about an effect is applied": ("engine/program/effect_reviews.py", "resolving"),
    "a checkpoint becomes one follow-up run": ("engine/recovery/resume.py", "Resumer"),
    "work of a dead process is found": ("engine/recovery/rescue.py", "Rescuer"),
    "an operator retries a failed task": ("engine/recovery/operator_retry.py", "retrying_task"),
    "a worker looks for runs and takes them": ("engine/worker/taking.py", "RunTaker"),
    "a run without an end is put back": ("engine/worker/unfinished.py", "UnfinishedRuns"),
    "a drain stops runs before a restart": ("engine/worker/drain.py", "DrainTimeouts"),
    "a task is forked from a turn of another": ("engine/program/forks.py", "ForkSource"),
    "ended tasks are pruned": ("engine/ledger/retention.py", "Pruner"),
    "the gateway is wired together": ("app/gateway.py", "build_gateway"),
    "the text of the systemd unit is made": ("gateway/units.py", "systemd_unit"),
    "a message is sent through its channel": ("delivery/outbox.py", "Outbox"),
    "the moves that a status allows": ("core/transitions.py", "MOVES"),
    "a secret is sealed before it is stored": ("store/sealing.py", "Sealing"),
}


def names_in(path: str) -> set[str]:
    """What a module defines at its top level."""
    names: set[str] = set()
    for node in ast.parse((PACKAGE / path).read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


@pytest.mark.parametrize(("path", "name"), WHERE.values(), ids=WHERE.keys())
def test_a_responsibility_lives_where_its_file_name_says(path: str, name: str) -> None:
    assert name in names_in(path)
