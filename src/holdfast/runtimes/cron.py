"""The runtime of outside schedulers: it finds in their history how a recorded firing ended.

A scheduler that cannot reach the ledger, or dies before it does, leaves a line in a file. The next sweep
reads it, so that a firing that has ended is not declared lost.
"""

from __future__ import annotations

import asyncio
import os
import re
import stat
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import msgspec

from holdfast.core.clock import to_micros
from holdfast.core.payload import encode_payload
from holdfast.core.recorded import RecordedWork
from holdfast.core.run import RunOutcome
from holdfast.core.task import Failure, RuntimeName
from holdfast.core.transitions import RunStatus
from holdfast.engine.producers.contract import (
    Alive,
    Dead,
    Ended,
    LifeAnswer,
    NotMine,
    ReattachAnswer,
    Reattached,
    StopAnswer,
    Unsupported,
    WorkLost,
    WorkStopped,
)
from holdfast.runtimes.cli import end_process, life_of_process

# How much of a history is read, from its end.
MAX_HISTORY_BYTES = 1024 * 1024
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,200}")
# What schedulers call their ends, and what we do.
_STATUSES = {
    "ok": RunStatus.SUCCEEDED,
    "succeeded": RunStatus.SUCCEEDED,
    "skipped": RunStatus.CANCELLED,
    "cancelled": RunStatus.CANCELLED,
    "timed_out": RunStatus.TIMED_OUT,
    "error": RunStatus.FAILED,
    "failed": RunStatus.FAILED,
    "running": None,
}


class PastFiring(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One line of a history. It names its firing by the run id, or by the moment at which it began."""

    status: str
    run_id: str | None = None
    run_at_ms: int | None = None
    summary: str | None = None
    error: str | None = None
    result: Any = None

    def is_of(self, work: RecordedWork) -> bool:
        if self.run_id is not None:
            return self.run_id == work.run.id
        began = (work.task.started_at, work.task.created_at)
        return self.run_at_ms is not None and self.run_at_ms in [_millis(at) for at in began if at]

    @property
    def outcome(self) -> RunOutcome | None:
        """None while it runs."""
        status = _STATUSES.get(self.status)
        if status is None:
            return None
        if status is RunStatus.SUCCEEDED:
            result = self.result if self.result is not None else self.summary
            return RunOutcome(status=status, result=encode_payload("result", result))
        message = self.error or self.summary or f"the scheduler's history says {self.status}"
        return RunOutcome(status=status, failure=Failure(kind=self.status, message=message))


class CronHistory(Protocol):
    """What an outside scheduler remembers of its firings."""

    async def find(self, work: RecordedWork) -> PastFiring | None:
        """The newest entry about this firing."""
        ...


class FileHistory:
    """A directory with one file for each schedule, `<source id>.jsonl`, to which the scheduler appends."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def find(self, work: RecordedWork) -> PastFiring | None:
        source_id = "" if work.details is None else work.details.source_id or ""
        if not _FILE_NAME.fullmatch(source_id):
            return None
        return await asyncio.to_thread(self._find, source_id, work)

    def _find(self, source_id: str, work: RecordedWork) -> PastFiring | None:
        for line in reversed(_tail(self._directory / f"{source_id}.jsonl").splitlines()):
            try:
                entry = msgspec.json.decode(line, type=PastFiring)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue  # the beginning of a long line, a line that is being written, or no entry
            if entry.is_of(work) and entry.status in _STATUSES:
                return entry
        return None


class CronRuntime:
    """Ends recorded firings as the history says; a firing whose process is known can also be stopped."""

    name = "cron"

    def __init__(self, history: CronHistory) -> None:
        self._history = history

    async def cancel(self, work: RecordedWork, reason: str) -> StopAnswer:  # noqa: ARG002 - SIGTERM has no text
        if work.task.runtime is not RuntimeName.CRON:
            return NotMine()
        stopped = end_process(work)
        entry = await self._history.find(work)
        if not isinstance(stopped, NotMine) or entry is None:
            return stopped
        if entry.outcome is None:
            return Unsupported(reason="an outside scheduler runs it; stop it there")
        return WorkStopped()

    async def is_alive(self, work: RecordedWork) -> LifeAnswer:
        if work.task.runtime is not RuntimeName.CRON:
            return NotMine()
        entry = await self._history.find(work)
        if entry is None:
            return life_of_process(work)
        outcome = entry.outcome
        if outcome is not None:
            return Ended(outcome=outcome, why="its report is missing, but the history has its end")
        life = life_of_process(work)
        return Alive() if isinstance(life, NotMine) else life

    async def reattach(self, work: RecordedWork) -> ReattachAnswer:
        match await self.is_alive(work):
            case Alive():
                return Reattached()
            case Dead(why=why):
                return WorkLost(why=why)
        return NotMine()


def _tail(path: Path) -> bytes:
    """The end of a regular file; empty if there is none. A link is not followed."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return b""
        file.seek(max(0, found.st_size - MAX_HISTORY_BYTES))
        return file.read(MAX_HISTORY_BYTES)


def _millis(moment: datetime) -> int:
    return to_micros(moment) // 1000
