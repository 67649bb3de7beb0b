"""A command that its starter left running is ended, with its group, and no other process ever is."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from holdfast.core.step_declarations import Happened, Stopped
from holdfast.tools import shell
from holdfast.tools.command_end import end_command
from holdfast.tools.receipts import Receipt, make_directory, unfinished_receipts
from holdfast.tools.witness import Began, ProcessIdentity, machine_boot, seen, ticks_of
from tests.tools.keyed_calls import KEY, call, verify

PATIENCE_S = 30.0
REPOSITORY = Path(__file__).parents[2]
START = """
import asyncio, sys
from holdfast.tools import shell
from tests.tools.keyed_calls import KEY, call
asyncio.run(call(shell, KEY, sys.argv[1], receipts=sys.argv[2]))
"""


@pytest.fixture
def orphan(receipts: str, quick_path: Path) -> Iterator[Orphan]:
    """A command with a child of its own, in one group; the process that started it is dead."""
    yield Orphan(receipts, quick_path)
    end_command(Path(receipts), KEY)


class Orphan:
    def __init__(self, receipts: str, place: Path) -> None:
        self.receipts = receipts
        fifo = place / "pids"
        os.mkfifo(fifo)
        # The second one does not want to stop.
        self.command = (
            f"sh -c 'trap \"\" TERM; echo $$ > {fifo}; while :; do sleep 60; done' & echo $$ > {fifo}; wait"
        )
        # One reader for both lines, opened before either writer: a pipe that is closed and opened again
        # between them loses the line that was written meanwhile. Open for writing, too: it never ends.
        reader = os.open(fifo, os.O_RDWR)
        # A new interpreter, not a fork: this one may have threads of other tests, and the command's
        # process is started by threads of its own.
        starter = subprocess.Popen(
            [sys.executable, "-c", START, self.command, receipts], cwd=REPOSITORY, stderr=subprocess.PIPE
        )
        try:
            self.pids = [int(line) for line in two_lines(reader, starter)]
            until(lambda: b"command" in Path(receipts, f"{KEY}.started").read_bytes())
        finally:
            os.close(reader)
            starter.kill()
            starter.communicate()

    @property
    def witness(self) -> int:
        pid: int = json.loads(Path(self.receipts, f"{KEY}.started").read_bytes())["witness"]["pid"]
        return pid

    @property
    def alive(self) -> list[int]:
        return [pid for pid in self.pids if ticks_of(pid) is not None]


def two_lines(reader: int, starter: subprocess.Popen[bytes]) -> list[bytes]:
    """What the command and its child wrote; without both, the failure says what became of the starter."""
    told, give_up_at = b"", time.monotonic() + PATIENCE_S
    while told.count(b"\n") < 2:
        ready, _, _ = select.select([reader], [], [], max(0.0, give_up_at - time.monotonic()))
        if not ready:
            starter.kill()
            _, complaint = starter.communicate()
            pytest.fail(f"only {told!r} came; the starter said {complaint.decode()!r}")
        told += os.read(reader, 4096)
    return told.splitlines()


def until(is_so: object) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while not is_so():  # type: ignore[operator]
        assert time.monotonic() < give_up_at
        time.sleep(0.01)


def test_a_command_is_ended_by_its_witness_which_says_so(orphan: Orphan) -> None:
    assert len(orphan.alive) == 2

    assert end_command(Path(orphan.receipts), KEY)

    verdict = asyncio.run(verify(shell, KEY, orphan.command, receipts=orphan.receipts))
    assert (orphan.alive, type(verdict)) == ([], Stopped)
    assert end_command(Path(orphan.receipts), KEY)  # the same when it is asked again
    assert unfinished_receipts(Path(orphan.receipts)) == []


def test_a_command_whose_witness_was_killed_is_ended_with_its_whole_group(
    orphan: Orphan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.tools.command_end.GRACE_S", 0.2)
    witness = orphan.witness
    kill_stranger(witness)
    assert len(orphan.alive) == 2

    assert end_command(Path(orphan.receipts), KEY)

    assert orphan.alive == []
    assert isinstance(asyncio.run(verify(shell, KEY, orphan.command, receipts=orphan.receipts)), Stopped)


def kill_stranger(pid: int) -> None:
    """Its parent is dead, so no process here waits for it."""
    os.kill(pid, signal.SIGKILL)
    until(lambda: ticks_of(pid) is None)


@pytest.fixture
def innocent() -> Iterator[subprocess.Popen[bytes]]:
    """It has the number that a receipt holds, and has nothing to do with it."""
    one = subprocess.Popen(["/bin/sleep", "60"], start_new_session=True)
    yield one
    one.kill()
    one.wait()


@pytest.mark.parametrize("is_held", [True, False], ids=["witness", "command"])
@pytest.mark.parametrize("differs", ["ticks", "boot", "no ticks", "no boot", "older receipt"])
def test_a_process_that_only_has_the_number_is_never_signalled(
    receipts: str, innocent: subprocess.Popen[bytes], differs: str, is_held: bool
) -> None:
    directory = make_directory(Path(receipts))
    found = seen(innocent.pid)
    assert found.ticks is not None
    ticks = {"ticks": found.ticks - 1, "no ticks": None}.get(differs, found.ticks)
    boot = {"boot": "another one", "no boot": None}.get(differs, machine_boot())
    reused = ProcessIdentity(pid=innocent.pid, ticks=ticks)
    began = msgspec.json.encode(Began(boot=boot, witness=reused, command=reused))
    if differs == "older receipt":
        began = msgspec.json.encode({"pid": innocent.pid})
    receipt = Receipt(directory, KEY)
    with receipt.held() as descriptor:
        assert descriptor is not None
        os.pwrite(descriptor, began, 0)
        if is_held:
            assert not end_command(directory, KEY)
    if not is_held:
        assert not end_command(directory, KEY)

    assert innocent.poll() is None


async def test_a_command_that_came_to_its_own_end_was_not_ended_by_us(receipts: str) -> None:
    result = await call(shell, KEY, "echo done", receipts=receipts)

    assert not await asyncio.to_thread(end_command, Path(receipts), KEY)
    assert await verify(shell, KEY, "echo done", receipts=receipts) == Happened(result)
