"""Starts the first process, kills it half-way, starts the second, and reads the proof from the ledger."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, Self

import msgspec

from holdfast.app import Settings, open_reader
from holdfast.config import HOME_VARIABLE, LEDGER_NAME, STORE_VARIABLE, MemoryPlace, SqlitePlace, StorePlace
from holdfast.core.errors import HoldfastError, NoLedger, Refused, SettingsError
from holdfast.core.transitions import TaskStatus, is_terminal
from holdfast.demo.process import STEPS, DemoReport
from holdfast.demo.proof import ProofLine, prove
from holdfast.views.text import one_line

MAX_S = 300.0


class DemoProgress(Protocol):
    """Where the demo reports what it does: lines for people, and a count for a progress bar."""

    def say(self, text: str) -> None: ...

    def count(self, done: int, total: int) -> None:
        """How many steps are saved."""
        ...


class DemoView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The whole demo, and whether the ledger proves it."""

    holds: bool
    store: str
    owner: str
    tasks: int
    killed_pid: int
    killed_after_steps: int
    resume_ms: int | None
    took_s: float
    lines: list[ProofLine]


def kill_and_resume(place: StorePlace | None, *, tasks: int, keep: bool, progress: DemoProgress) -> DemoView:
    """Run the demo. Without a place it uses a temporary directory, and removes it afterwards."""
    began_at = time.monotonic()
    with _settings(place, keep=keep, progress=progress) as settings:
        owner = f"demo-{secrets.token_hex(4)}"
        total = tasks * len(STEPS)
        with _Process(settings, owner, create=tasks) as first:
            progress.say(f"process {first.pid} starts {tasks:,} tasks and runs them all at once")
            saved = _kill_half_way(first, total, progress)
        progress.say(f"process {first.pid} killed by SIGKILL after {saved:,} of {total:,} steps")
        with _Process(settings, owner, create=0) as second:
            _follow_to_end(second, saved, total, progress)
        progress.say("reading the proof from the ledger")
        reader = open_reader(settings.store)
        try:
            proof = prove(reader, owner=owner, tasks=tasks)
        finally:
            reader.close()
        return DemoView(
            holds=proof.holds,
            store=one_line(settings.store.shown, 4096),
            owner=owner,
            tasks=tasks,
            killed_pid=first.pid,
            killed_after_steps=saved,
            resume_ms=proof.resume_ms,
            took_s=round(time.monotonic() - began_at, 2),
            lines=proof.lines,
        )


def _kill_half_way(process: _Process, total: int, progress: DemoProgress) -> int:
    saved = 0
    for report in process.reports():
        if report.what == "step":
            saved += 1
            progress.count(saved, total)
            if saved * 2 >= total:
                process.kill()
                break
    status = process.wait()
    if status != -signal.SIGKILL:
        raise HoldfastError(f"the first process ended by itself (status {status}) after {saved} steps")
    return saved


def _follow_to_end(process: _Process, saved: int, total: int, progress: DemoProgress) -> None:
    """The killed process may have saved a few steps more than it reported; the proof counts in the ledger."""
    for report in process.reports():
        match report.what:
            case "resumed":
                progress.say(f"process {process.pid} resumes {report.number:,} unfinished tasks")
            case "step":
                saved += 1
                progress.count(min(saved, total), total)
    status = process.wait()
    if status != 0:
        raise HoldfastError(f"the second process failed (status {status})")


class _Process:
    """A child process and its reports. It is killed after MAX_S, and at the end of its `with` block."""

    def __init__(self, settings: Settings, owner: str, *, create: int) -> None:
        # The URL may hold a password, and every user of the machine can read a command line.
        environ = os.environ | {HOME_VARIABLE: str(settings.home), STORE_VARIABLE: settings.store.url}
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-P", "-m", "holdfast.demo.process", owner, str(create)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=environ,
            start_new_session=True,  # Ctrl-C goes to the parent, which kills the child
        )
        self.pid = self._process.pid
        self._timer = threading.Timer(MAX_S, self._process.kill)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._process.kill()  # does nothing after wait()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def reports(self) -> Iterator[DemoReport]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with contextlib.suppress(msgspec.DecodeError):  # a killed process may leave half a line
                yield msgspec.json.decode(line, type=DemoReport)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        return self._process.wait()


@contextlib.contextmanager
def _settings(place: StorePlace | None, *, keep: bool, progress: DemoProgress) -> Iterator[Settings]:
    """A temporary home with a ledger in it; or with the named ledger, if that has no work in flight."""
    if isinstance(place, MemoryPlace):
        raise SettingsError("--store is 'memory:': two processes cannot share it; name a file or a database")
    if place is not None:
        _refuse_work_in_flight(place)
    home = Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    try:
        yield Settings(home=home, store=place or SqlitePlace(path=(home / LEDGER_NAME).resolve()))
    finally:
        if keep and place is None:
            progress.say(f"kept: holdfast --home {home} tasks list")
        else:
            shutil.rmtree(home, ignore_errors=True)


def _refuse_work_in_flight(place: StorePlace) -> None:
    """The second process rescues all work that it finds in the ledger, so nothing else may be in flight."""
    try:
        reader = open_reader(place)
    except NoLedger:
        return
    try:
        counts = reader.read_now(lambda tx: tx.events.counts("task"))
    finally:
        reader.close()
    alive = sum(number for status, number in counts.items() if not is_terminal(TaskStatus(status)))
    if alive:
        raise Refused(
            f"{place.shown} has {alive:,} tasks in flight; name a ledger without any, or leave out --store"
        )
