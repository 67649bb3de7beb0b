"""Every example is really killed inside a step of each kind, and goes on in a new process.

`test_crashes.py` kills it at every point, in one process.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.store.events import START
from tests.architecture.source import ROOT
from tests.examples.programs import ALL, Example

pytestmark = pytest.mark.slow

DEATHS = [(example, step) for example in ALL for step in example.killed_in or example.steps]


def start(place: Path, *command: str) -> tuple[int, list[str]]:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=place,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "HOLDFAST_HOME": str(place / "home"),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def kill_in(step: str, example: Example, place: Path) -> list[str]:
    """What it printed before it died there."""
    code, printed = start(
        place, "-m", "tests.examples.kill_after_line", step, str(example.path), *example.arguments
    )
    assert code == -signal.SIGKILL
    return printed


async def settle_in_review(place: Path, example: Example) -> list[str]:
    """What a person does about an effect of unknown outcome: they look, and say that it was done."""
    tasks = [example.module.research]
    async with hf.open(f"sqlite:///{place / example.ledger}", tasks=tasks) as holdfast:
        async for event in holdfast.watch(after=START):
            if event.kind == "effect_in_doubt":
                break
    # No worker here knows the task: it goes on only in the process that is started next.
    async with hf.open(f"sqlite:///{place / example.ledger}") as holdfast:
        found = await holdfast.reviews()
        for effect in found:
            await holdfast.resolve(effect.id, "done", result={"role": "tool", "text": "done by hand"})
    return [effect.name for effect in found]


@pytest.mark.parametrize(
    ("example", "step"), DEATHS, ids=[f"{example.name}-{step}" for example, step in DEATHS]
)
def test_a_killed_example_goes_on_in_a_new_process_and_repeats_nothing(
    example: Example, step: str, tmp_path: Path
) -> None:
    before = kill_in(step, example, tmp_path)
    if step in example.opaque:
        reviews = asyncio.run(settle_in_review(tmp_path, example))

        assert len(reviews) == 1
    code, (*after, result) = start(tmp_path, str(example.path), *example.arguments)

    assert (code, result) == (0, example.result)
    # Only the step in which it died may be done again, and only if its class allows it.
    assert example.is_parallel or set(before[:-1]) & set(after) == set()
    assert step not in after or step not in example.opaque
    assert {*before, *after} == set(example.steps)
    assert {name: len((tmp_path / name).read_text().splitlines()) for name in example.world} == example.world
