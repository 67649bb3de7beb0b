"""The long forms of the tests that strike at random, in turns, for as many minutes as are given.

`make soak` calls it, and `make soak SOAK_MINUTES=480` for a night. Each piece of it has new seeds, prints
them, and has a time limit of its own. Every test has its turn, and a piece that has begun is finished; so
even the shortest soak takes some minutes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

import msgspec

from tests.architecture.source import ROOT

# The pieces are made for a soak of an hour, and are smaller in a shorter one.
AN_HOUR = 60.0
# A piece that takes so much longer than it should hangs.
PATIENCE = 10
LEAST_PATIENCE_S = 600.0


class SoakedTest(msgspec.Struct, frozen=True, kw_only=True):
    """One of the tests, and how large a piece of it is."""

    name: str
    variable: str
    # In a piece, and about how many seconds that takes on two cores.
    count: int
    seconds: float
    tests: Sequence[str]

    def size(self, minutes: float) -> int:
        return max(1, round(self.count * min(1.0, minutes / AN_HOUR)))


STAGES = (
    SoakedTest(
        name="agents in a storm",
        variable="HOLDFAST_BLOWS",
        count=400,
        seconds=300,
        tests=["tests/crash/test_chaos.py", "-k", "storm"],
    ),
    SoakedTest(
        name="agents that are killed",
        variable="HOLDFAST_KILLS",
        count=1500,
        seconds=300,
        tests=["tests/crash/test_agents.py", "-k", "killed"],
    ),
    SoakedTest(
        name="a process that is killed",
        variable="HOLDFAST_KILLS",
        count=5_000,
        seconds=300,
        tests=["tests/crash/test_kills.py"],
    ),
    SoakedTest(
        name="a process that dies twice",
        variable="HOLDFAST_PAIRS",
        count=600,
        seconds=200,
        tests=["tests/crash/test_failpoints.py", "-k", "random_points"],
    ),
    SoakedTest(
        name="a disk that fails",
        variable="HOLDFAST_DISK_FAILURES",
        count=2000,
        seconds=200,
        tests=["tests/crash/test_faults.py", "-k", "may_fail_once"],
    ),
    SoakedTest(
        name="long tasks that are saved and woken",
        variable="HOLDFAST_KILLS",
        count=300,
        seconds=800,
        tests=["tests/crash/test_wakes.py"],
    ),
    SoakedTest(
        name="campaigns that are killed",
        variable="HOLDFAST_ITEMS",
        count=10_000,
        seconds=120,
        tests=["tests/crash/test_campaigns.py"],
    ),
    SoakedTest(
        name="a gateway that is interrupted",
        variable="HOLDFAST_RESTARTS",
        count=40,
        seconds=300,
        tests=["tests/gateway/test_fleet.py"],
    ),
    SoakedTest(
        name="messages during a drain",
        variable="HOLDFAST_MESSAGES",
        count=30_000,
        seconds=300,
        tests=["tests/gateway/test_client.py"],
    ),
    SoakedTest(
        name="a gateway under attack",
        variable="HOLDFAST_SHAPES",
        count=40_000,
        seconds=300,
        tests=["tests/security/test_fuzz.py"],
    ),
    SoakedTest(
        name="routes as they are documented",
        variable="HOLDFAST_EXAMPLES",
        count=40,
        seconds=200,
        tests=["tests/security/test_openapi.py"],
    ),
)


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """One that was run."""

    stage: SoakedTest
    size: int
    seconds: float
    problem: str | None


def soak(minutes: float) -> list[Piece]:
    """All stages, again and again, until the time is over; each of them at least once."""
    started, pieces = time.monotonic(), list[Piece]()
    while True:
        for stage in STAGES:
            spent = (time.monotonic() - started) / 60
            if len(pieces) >= len(STAGES) and spent >= minutes:
                return pieces
            size = stage.size(minutes)
            _say(f"[{spent:.1f} of {minutes:g} min] {stage.name}: {stage.variable}={size}")
            pieces.append(_run(stage, size))
            _say(f"    {pieces[-1].problem or 'passed'} after {pieces[-1].seconds:.0f} s")


def _run(stage: SoakedTest, size: int) -> Piece:
    # No limit for one test: those counts take their time, and the whole piece has a limit.
    how = "-m pytest -q -s -m slow --numprocesses 0 --timeout 0"
    command = [sys.executable, *how.split(), *stage.tests]
    started = time.monotonic()
    # A session of its own, so that one that hangs is ended with all that it has begun.
    process = subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, stage.variable: str(size)}, start_new_session=True
    )
    problem: str | None = None
    try:
        code = process.wait(max(PATIENCE * stage.seconds * size / stage.count, LEAST_PATIENCE_S))
        problem = f"FAILED with {code}; its seed stands above" if code else None
    except subprocess.TimeoutExpired:
        problem = "FAILED: it hangs, and was ended; its seed stands above"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return Piece(stage=stage, size=size, seconds=time.monotonic() - started, problem=problem)


def summary(pieces: Sequence[Piece]) -> str:
    lines = [f"{'':<34}{'pieces':>8}{'in all':>10}{'minutes':>9}{'failed':>8}"]
    for stage in STAGES:
        own = [piece for piece in pieces if piece.stage is stage]
        failed = sum(piece.problem is not None for piece in own)
        minutes = sum(piece.seconds for piece in own) / 60
        done = sum(piece.size for piece in own)
        lines.append(f"{stage.name:<34}{len(own):>8}{done:>10,}{minutes:>9.1f}{failed:>8}")
    return "\n".join(lines)


def _say(line: str) -> None:
    print(line, flush=True)


def main(minutes: str) -> None:
    pieces = soak(float(minutes))
    _say(summary(pieces))
    if any(piece.problem for piece in pieces):
        sys.exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
