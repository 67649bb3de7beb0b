"""Starts the first life, kills it half-way, starts the second, and asks the ledger for the proof."""

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
from holdfast.demo.life import STEPS, Told
from holdfast.demo.proof import Line, prove
from holdfast.views.text import one_line

MAX_S = 300.0


class Audience(Protocol):
    """Whoever watches."""

    def say(self, text: str) -> None: ...

    def tell(self, done: int, total: int) -> None:
        """How many of all steps are saved."""
        ...


class DemoView(msgspec.Struct, frozen=True, kw_only=True):
    """The whole demo, and whether the ledger proves it."""

    holds: bool
    store: str
    owner: str
    tasks: int
    killed_pid: int
    killed_after_steps: int
    resume_ms: int | None
    took_s: float
    lines: list[Line]


def perform(place: StorePlace | None, *, tasks: int, keep: bool, audience: Audience) -> DemoView:
    """The whole play. Without a place it is given in a temporary directory that is removed afterwards."""
    began_at = time.monotonic()
    with _scene(place, keep=keep, audience=audience) as settings:
        owner = f"demo-{secrets.token_hex(4)}"
        total = tasks * len(STEPS)
        with _Life(settings, owner, create=tasks) as first:
            audience.say(f"process {first.pid} creates {tasks:,} tasks and begins to carry them, all at once")
            saved = _watch_until_killed(first, total, audience)
        audience.say(f"process {first.pid} killed by SIGKILL after {saved:,} of {total:,} steps")
        with _Life(settings, owner, create=0) as second:
            _watch_to_the_end(second, saved, total, audience)
        audience.say("asking the ledger")
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


def _watch_until_killed(life: _Life, total: int, audience: Audience) -> int:
    saved = 0
    for told in life.tidings():
        if told.what == "step":
            saved += 1
            audience.tell(saved, total)
            if saved * 2 >= total:
                life.kill()
                break
    status = life.wait()
    if status != -signal.SIGKILL:
        raise HoldfastError(f"the first process ended by itself (status {status}) after {saved} steps")
    return saved


def _watch_to_the_end(life: _Life, saved: int, total: int, audience: Audience) -> None:
    """What is told of the first life may be a little less than what it saved: the ledger knows better."""
    for told in life.tidings():
        match told.what:
            case "resumed":
                audience.say(f"process {life.pid} resumed {told.number:,} runs and goes on")
            case "step":
                saved += 1
                audience.tell(min(saved, total), total)
    status = life.wait()
    if status != 0:
        raise HoldfastError(f"the second process did not come to its end (status {status})")


class _Life:
    """One child process, and what it tells. It outlives neither its time nor the block it was made for."""

    def __init__(self, settings: Settings, owner: str, *, create: int) -> None:
        # The URL travels in the environment: a command line is for everyone to read.
        environ = os.environ | {HOME_VARIABLE: str(settings.home), STORE_VARIABLE: settings.store.url}
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-P", "-m", "holdfast.demo.life", owner, str(create)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=environ,
            start_new_session=True,  # Ctrl-C is for the parent, which kills it
        )
        self.pid = self._process.pid
        self._timer = threading.Timer(MAX_S, self._process.kill)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._process.kill()  # does nothing to one that has been waited for
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def tidings(self) -> Iterator[Told]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with contextlib.suppress(msgspec.DecodeError):  # the last line of a killed process
                yield msgspec.json.decode(line, type=Told)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        return self._process.wait()


@contextlib.contextmanager
def _scene(place: StorePlace | None, *, keep: bool, audience: Audience) -> Iterator[Settings]:
    """A home of its own; and a ledger in it, unless another one was named that has no work in flight."""
    if isinstance(place, MemoryPlace):
        raise SettingsError("--store is 'memory:': two processes cannot share it; name a file or a database")
    if place is not None:
        _refuse_work_in_flight(place)
    home = Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    try:
        yield Settings(home=home, store=place or SqlitePlace(path=(home / LEDGER_NAME).resolve()))
    finally:
        if keep and place is None:
            audience.say(f"kept: holdfast --home {home} tasks list")
        else:
            shutil.rmtree(home, ignore_errors=True)


def _refuse_work_in_flight(place: StorePlace) -> None:
    """A second life rescues whatever it finds, and other people's work is not ours to play with."""
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
        raise Refused(f"{place.shown} has {alive:,} tasks in flight; give the demo a ledger without any")
