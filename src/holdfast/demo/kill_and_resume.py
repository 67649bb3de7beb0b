"""Starts a process, kills it half-way, starts another to finish, and reads the proof from the ledger."""

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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol, Self

import msgspec

from holdfast.analysis.discovery import find_items
from holdfast.analysis.findings import AnalysisFindings, findings_in
from holdfast.analysis.progress import PhaseCounts
from holdfast.analysis.report import PAGE_NAME
from holdfast.analysis.tasks import ANALYSIS_STEPS, REPORT_STEPS
from holdfast.app import Settings, open_reader
from holdfast.config import HOME_VARIABLE, LEDGER_NAME, STORE_VARIABLE, MemoryPlace, SqlitePlace, StorePlace
from holdfast.core.clock import SystemClock
from holdfast.core.errors import BadInput, HoldfastError, NoLedger, Refused, SettingsError
from holdfast.core.transitions import TaskStatus, is_terminal
from holdfast.demo.process import CONCURRENCY, DemoReport
from holdfast.demo.proof import ProofLine, prove
from holdfast.views.text import one_line

MAX_S = 600.0


class DemoProgress(Protocol):
    """Where the demo reports what it does: lines for people, and counts for bars."""

    def say(self, text: str) -> None: ...

    def show(self, phases: Sequence[PhaseCounts], note: str) -> None:
        """How far each phase is, and what happens next."""
        ...


class DemoView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The whole demo, and whether the ledger proves it."""

    holds: bool
    items: int
    steps: int
    kills: int
    # Interrupted runs, each resumed by one follow-up run.
    resumed: int
    lost: int
    repeated: int
    seconds: float
    store: str
    owner: str
    folder: str
    killed_pids: list[int]
    killed_after_steps: list[int]
    # For each kill: from the start of the next process to its last follow-up run.
    resume_ms: list[int]
    report: AnalysisFindings
    lines: list[ProofLine]


@contextlib.contextmanager
def kill_and_resume(
    place: StorePlace | None,
    *,
    folder: Path,
    items: int,
    kills: int,
    pause_s: float,
    keep: bool,
    progress: DemoProgress,
) -> Iterator[tuple[DemoView, Settings]]:
    """Run the demo. Without a place it uses a temporary directory, and removes it after the block."""
    began_at = time.monotonic()
    # Only their number counts here: each process finds them itself.
    found = find_items(folder, artifacts=folder, now=SystemClock().now())[:items]
    steps_of_item = len(ANALYSIS_STEPS) + len(REPORT_STEPS)
    _refuse_too_many(kills, items=len(found), steps_of_item=steps_of_item)
    with _settings(place, keep=keep, progress=progress) as settings:
        owner = f"demo-{secrets.token_hex(4)}"
        progress.say(
            f"{len(found):,} items in {folder}: each is analysed in {len(ANALYSIS_STEPS)} steps or more, "
            f"then reported on, {CONCURRENCY} at once"
        )
        if pause_s:
            progress.say(f"each step rests up to {pause_s:g} s after its work, so that you can watch")
        total = len(found) * steps_of_item
        follower = _Follower(progress)
        killed_pids, killed_after = [], []
        for number in range(1, kills + 1):
            most = items if number == 1 else 0
            with _Process(settings, owner, folder, most, pause_s) as process:
                follower.follow(process, until=total * number // (kills + 1))
                process.kill()
                status = process.wait()
                if status != -signal.SIGKILL:
                    why = (
                        f": all was done before kill {number} of {kills}; "
                        "name fewer --kills, more --items or a longer --pause"
                    )
                    raise HoldfastError(
                        f"process {process.pid} ended by itself (status {status}){'' if status else why}"
                    )
            killed_pids.append(process.pid)
            killed_after.append(follower.steps)
            progress.say(f"process {process.pid} killed by SIGKILL: {follower.words()}")
        with _Process(settings, owner, folder, 0 if kills else items, pause_s) as last:
            follower.follow(last, until=None)
            status = last.wait()
            if status != 0:
                raise HoldfastError(f"process {last.pid} failed (status {status})")
        progress.say("reading the proof from the ledger")
        reader = open_reader(settings.store)
        try:
            proof = prove(reader, owner=owner, kills=kills)
        finally:
            reader.close()
        view = DemoView(
            holds=proof.holds,
            items=proof.items,
            steps=proof.steps,
            kills=kills,
            resumed=proof.resumed,
            lost=proof.lost,
            repeated=proof.repeated,
            seconds=round(time.monotonic() - began_at, 2),
            store=one_line(settings.store.shown, 4096),
            owner=owner,
            folder=one_line(str(folder), 4096),
            killed_pids=killed_pids,
            killed_after_steps=killed_after,
            resume_ms=proof.resume_ms,
            report=findings_in(settings.home / "artifacts"),
            lines=proof.lines,
        )
        yield view, settings


class _Follower:
    """Shows what the processes report, one process after another."""

    def __init__(self, progress: DemoProgress) -> None:
        self._progress = progress
        self._phases: tuple[PhaseCounts, ...] = ()
        # Steps whose work was done; a killed process may have saved a few more, or not yet the last ones.
        self.steps = 0

    def follow(self, process: _Process, *, until: int | None) -> None:
        """Until so many steps were done, or to the end of the process."""
        self._progress.say(f"process {process.pid} starts")
        then = "" if until is None else f", SIGKILL after {until:,}"
        for report in process.reports():
            match report.what:
                case "resumed":
                    self._progress.say(f"process {process.pid} resumes {report.number:,} runs")
                case "counts":
                    self._phases = report.phases
                case "step":
                    self.steps += 1
            self._progress.show(self._phases, f"process {process.pid}: {self.steps:,} steps done{then}")
            if until is not None and self.steps >= until and report.what == "step":
                return

    def words(self) -> str:
        counts = ", ".join(f"{one.name} {one.done:,} of {one.total:,}" for one in self._phases)
        running = sum(one.running for one in self._phases)
        return f"{counts}; {running:,} in flight, {self.steps:,} steps done"


class _Process:
    """A child process and its reports. It is killed after MAX_S, and at the end of its `with` block."""

    def __init__(self, settings: Settings, owner: str, folder: Path, most: int, pause_s: float) -> None:
        # The URL may hold a password, and every user of the machine can read a command line.
        environ = os.environ | {HOME_VARIABLE: str(settings.home), STORE_VARIABLE: settings.store.url}
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [
                sys.executable,
                "-P",
                "-m",
                "holdfast.demo.process",
                owner,
                str(folder),
                str(most),
                str(pause_s),
            ],
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


def _refuse_too_many(kills: int, *, items: int, steps_of_item: int) -> None:
    """Between two kills there must be a step for each item that is worked on at once, so that the last
    process still finds work."""
    most = items * steps_of_item // min(items, CONCURRENCY) - 1
    if kills > most:
        raise BadInput(
            "--kills",
            f"{items:,} {'item has' if items == 1 else 'items have'} too few steps for {kills} kills, at "
            f"most {most} can be shown: --kills {most}, or name a --folder with more items",
        )


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
        if keep:
            progress.say(f"kept: {home / 'artifacts' / PAGE_NAME}")
            if place is None:
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
