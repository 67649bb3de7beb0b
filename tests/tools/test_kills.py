"""A tool's process is killed at any moment: it happened once and that is known, or it did not happen."""

from __future__ import annotations

import asyncio
import os
import random
import select
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

import holdfast as hf
from holdfast.core.step_declarations import DidNotHappen, Happened, Unknown
from holdfast.tools import GitCommit, ShellResult, git_commit, shell
from tests.crash.processes import Pipe, fork, kill
from tests.tools.keyed_calls import KEY, call, verify
from tests.tools.repositories import git, new_repository

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("HOLDFAST_KILLS") or 10)

T = TypeVar("T")


@pytest.fixture
def seed() -> int:
    """Printed, so that a failure can be had again: HOLDFAST_SEED=… make test."""
    seed = int(os.environ.get("HOLDFAST_SEED") or random.SystemRandom().randrange(2**32))
    print(f"HOLDFAST_SEED={seed}")
    return seed


def kill_in(seconds: float, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Do it in a process that is killed after so long, or at once when it is done."""
    pipe = Pipe()

    def do_it() -> None:
        asyncio.run(work())
        pipe.say("done")

    pid = fork(do_it)
    pipe.only_hear()
    select.select([pipe.reading], [], [], seconds)
    kill(pid)
    pipe.close()


async def while_opening(gate: Path, work: Coroutine[Any, Any, T]) -> T:
    """What comes of it, when the gate is opened after it has begun."""
    async with asyncio.TaskGroup() as group:
        child = group.create_task(work)
        await asyncio.to_thread(gate.write_text, "open\n")
    return child.result()


def fifo_at(path: Path) -> Path:
    os.mkfifo(path)
    return path


def test_a_command_outlives_the_process_that_ran_it_and_its_output_is_whole(
    receipts: str, quick_path: Path
) -> None:
    arrived, gate = fifo_at(quick_path / "arrived"), fifo_at(quick_path / "gate")
    command = f"echo before; echo here > {arrived}; cat {gate}; echo after; echo and this >&2; exit 4"
    pid = fork(lambda: asyncio.run(call(shell, KEY, command, receipts=receipts)))
    assert arrived.read_text() == "here\n"
    kill(pid)

    verdict = asyncio.run(while_opening(gate, verify(shell, KEY, command, receipts=receipts)))

    assert verdict == Happened(ShellResult(exit_code=4, stdout="before\nopen\nafter\n", stderr="and this\n"))


@hf.task
async def patient(run: hf.Run, command: str, receipts: str) -> str:
    return (await run.step(shell, command, receipts=receipts)).stdout


def test_a_task_that_is_killed_in_its_command_goes_on_with_what_the_command_said(
    receipts: str, quick_path: Path
) -> None:
    arrived, gate = fifo_at(quick_path / "arrived"), fifo_at(quick_path / "gate")
    command = f"echo before; echo here > {arrived}; cat {gate}; echo after"
    url = f"sqlite:///{quick_path}/ledger.db"

    async def run_task() -> str:
        async with hf.open(url, tasks=[patient]) as holdfast:
            handle = await holdfast.start(patient(command, receipts), key="only")
            return await handle.result()

    pid = fork(lambda: asyncio.run(run_task()))
    assert arrived.read_text() == "here\n"
    kill(pid)

    # A second command would wait for a reader to hear that it is here.
    answer = asyncio.run(while_opening(gate, run_task()))

    assert answer == "before\nopen\nafter\n"


def test_a_command_that_was_killed_with_everything_around_it_is_unknown(
    receipts: str, quick_path: Path
) -> None:
    arrived = fifo_at(quick_path / "arrived")
    command = f"echo $PPID $$ > {arrived}; exec sleep 60"
    pid = fork(lambda: asyncio.run(call(shell, KEY, command, receipts=receipts)))
    witness, process_group = map(int, arrived.read_text().split())
    kill(pid)
    os.kill(witness, signal.SIGKILL)
    os.killpg(process_group, signal.SIGKILL)

    verdict = asyncio.run(verify(shell, KEY, command, receipts=receipts))

    assert isinstance(verdict, Unknown)
    assert "the command was killed midway" in verdict.why


def test_a_kill_at_any_moment_leaves_a_command_run_once_or_not_at_all(
    receipts: str, quick_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    found = []
    for number in range(KILLS):
        key, count = f"key-{number}", quick_path / f"count-{number}"
        command = f"echo once >> {count}; sleep 0.03; echo done"
        kill_in(chance.uniform(0, 0.15), lambda: call(shell, key, command, receipts=receipts))  # noqa: B023
        verdict = asyncio.run(verify(shell, key, command, receipts=receipts))
        times = len(count.read_text().splitlines()) if count.exists() else 0
        found.append((verdict, times))

    allowed = [(DidNotHappen(), 0), (Happened(ShellResult(exit_code=0, stdout="done\n", stderr="")), 1)]
    assert [one for one in found if one not in allowed] == []
    # Nothing was begun after it had been said that it did not happen.
    assert sum(times for _, times in found) == len(list(quick_path.glob("count-*")))


def test_a_kill_at_any_moment_leaves_one_commit(quick_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    repo = new_repository(quick_path / "repo")
    for number in range(KILLS):
        key, arguments = f"key-{number}", (str(repo), f"Number {number}")
        (repo / "file").write_text(f"{number}\n")
        kill_in(chance.uniform(0, 0.08), lambda: call(git_commit, key, *arguments, all=True))  # noqa: B023
        verdict = asyncio.run(verify(git_commit, key, *arguments, all=True))
        if verdict == DidNotHappen():
            again = asyncio.run(call(git_commit, f"{key}-again", *arguments, all=True))
            # The git that we left behind may have been quicker.
            verdict = Happened(GitCommit(sha=again.sha))

        assert verdict == Happened(GitCommit(sha=git(repo, "rev-parse", "HEAD")))
        assert git(repo, "log", "--format=%s", f"--grep=^Number {number}$") == f"Number {number}"
