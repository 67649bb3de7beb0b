"""A working process is killed again and again, on both databases; what it was told stands every time.

HOLDFAST_KILLS=100000 kills so many in all; HOLDFAST_SEED=… has the same kills again (as far as two processes
that race against each other can do the same again).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.crash.kill_loop import KillReport
from tests.crash.ledger_address import LedgerAddress
from tests.servers import PostgresServer

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("HOLDFAST_KILLS") or 100)
# So many of them on each database are processes that were not forked.
FRESH = 2 if KILLS <= 100 else 5


def begin_kills(place: LedgerAddress, seed: int, kills: int) -> subprocess.Popen[bytes]:
    """A warm parent of its own for each database: they have two processors to share."""
    command = [sys.executable, "-m", "tests.crash.kill_loop", place.url, str(place.home)]
    command += [str(seed), str(kills), str(FRESH)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)


def report_of(process: subprocess.Popen[bytes]) -> KillReport:
    output, _ = process.communicate()
    assert process.returncode == 0, "a fact was lost, or the ledger is broken; see the output"
    return msgspec.json.decode(output, type=KillReport)


def test_many_kills_lose_double_and_block_nothing(
    quick_path: Path, postgres_server: PostgresServer, seed: int
) -> None:
    files, rows = quick_path / "sqlite", quick_path / "postgres"
    for home in (files, rows):
        home.mkdir()
    url = postgres_server.create_database()

    processes = [
        begin_kills(LedgerAddress.of_file(files), seed, KILLS * 9 // 10),
        # To connect takes longer than to die: both loops are over at about the same time.
        begin_kills(LedgerAddress(url=url, home=rows), seed, KILLS // 10),
    ]
    reports = [report_of(process) for process in processes]

    for report in reports:
        print(report)
        assert report.facts["resumed"] > report.kills / 10
        assert report.facts["step"] > report.kills / 10
    assert sum(report.kills for report in reports) >= KILLS
    postgres_server.drop_database(url)
