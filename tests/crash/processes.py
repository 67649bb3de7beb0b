"""Processes that are started, stopped, frozen and killed; they meet at pipes, never by sleeping."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn, Self

FAILED = 70

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def fork(work: Callable[[], object]) -> int:
    """The id of a child that does this and ends at once: none of its parent's clean-up runs in it.

    Fork only where no store, loop or thread of this process lives.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _end_after(work)
    return pid


def _end_after(work: Callable[[], object]) -> NoReturn:
    status = FAILED
    try:
        _die_with_the_parent()
        work()
        status = 0
    except BaseException:  # noqa: BLE001 - a child has no caller to tell
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(status)


def _die_with_the_parent() -> None:
    """A test run that is killed leaves no process behind, not even the frozen."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def kill(pid: int) -> None:
    """SIGKILL, and the proof that it is gone."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def assert_ended_well(pid: int) -> None:
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code == 0, f"process {pid} ended with {code}; what it said stands in the output"


def assert_was_killed(pid: int) -> None:
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code == -signal.SIGKILL, f"process {pid} ended with {code} and not by SIGKILL"


@contextmanager
def killed_in_the_end(pid: int) -> Iterator[None]:
    """Whatever happens meanwhile: a child that is frozen or waits must not be left behind."""
    try:
        yield
    finally:
        kill(pid)


class Pipe:
    """A pipe that both sides of a fork know; each side closes what is not its own by using the other end."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()
        self._rest = b""

    def say(self, line: str) -> None:
        os.write(self._writing, line.encode() + b"\n")

    def hear(self) -> str:
        """The next line; empty when every writer is gone."""
        while b"\n" not in self._rest:
            chunk = os.read(self._reading, 65536)
            if not chunk:
                return ""
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()

    @property
    def reading(self) -> int:
        """The descriptor to wait for; it becomes readable, too, when every writer is gone."""
        return self._reading

    def only_hear(self) -> Self:
        """Give up the writing end, so that `hear` notices when the other side ends."""
        os.close(self._writing)
        self._writing = -1
        return self

    def close(self) -> None:
        for descriptor in (self._reading, self._writing):
            if descriptor >= 0:
                os.close(descriptor)
        self._reading = self._writing = -1


class Barrier:
    """Where processes wait for each other: each says that it is there, then all go at once."""

    def __init__(self) -> None:
        self._arrived = Pipe()
        self._gate = Pipe()

    def arrive(self) -> None:
        """In a child: say so, and wait until the gate opens."""
        self._gate.only_hear()
        self._arrived.say("here")
        assert self._gate.hear() == ""

    def open(self, expected: int) -> None:
        """In the parent: when all have arrived, let all of them go. The closed end is what they hear."""
        for _ in range(expected):
            assert self._arrived.hear() == "here"
        self._gate.close()
        self._arrived.close()
