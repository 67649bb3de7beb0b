"""The runtime of CLI work: a process on this machine, known by its id and the moment it started."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

from holdfast.core.errors import BadInput
from holdfast.core.recorded import RecordedWork
from holdfast.core.task import RuntimeName
from holdfast.engine.producers.contract import (
    Alive,
    Dead,
    LifeAnswer,
    NotMine,
    ReattachAnswer,
    Reattached,
    StopAnswer,
    Unsupported,
    WorkLost,
    WorkStopped,
)
from holdfast.store.boot_proofs import kernel

_REFERENCE = re.compile(r"pid:(\d{1,9}):(\d{1,20})@([0-9a-f-]{1,64})")
# The start time is the 22nd field of a process's stat, and the 20th after its name, which may hold spaces.
_STARTED = 19


def pid_reference(pid: int) -> str:
    """The `reference` of a record whose work is this process. Process ids are used again, so it also has the
    moment of the start, and the running kernel. Raises BadInput if there is no such process."""
    started, running = _started(pid), kernel()
    if started is None or running is None:
        raise BadInput("pid", f"there is no process {pid} on this machine, or no /proc to look at")
    return f"pid:{pid}:{started}@{running}"


class CliRuntime:
    """Stops a recorded process with SIGTERM, and proves by /proc that it is alive or dead."""

    name = "cli"

    async def cancel(self, work: RecordedWork, reason: str) -> StopAnswer:  # noqa: ARG002 - SIGTERM has no text
        return end_process(work) if work.task.runtime is RuntimeName.CLI else NotMine()

    async def is_alive(self, work: RecordedWork) -> LifeAnswer:
        return life_of_process(work) if work.task.runtime is RuntimeName.CLI else NotMine()

    async def reattach(self, work: RecordedWork) -> ReattachAnswer:
        match await self.is_alive(work):
            case Alive():
                return Reattached()
            case Dead(why=why):
                return WorkLost(why=why)
        return NotMine()


def end_process(work: RecordedWork) -> StopAnswer:
    """Send SIGTERM to the process that the record refers to; NotMine if it refers to none of this machine."""
    found = _pid_of(work)
    if found is None:
        return NotMine()
    pid, started = found
    if _started(pid) != started:
        return WorkStopped()
    try:
        # A descriptor names one process for ever: the signal cannot reach a later one with the same id.
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return WorkStopped()
    try:
        if _started(pid) == started:
            signal.pidfd_send_signal(process, signal.SIGTERM)
    except ProcessLookupError:
        return WorkStopped()
    except PermissionError:
        return Unsupported(reason=f"process {pid} belongs to another user; stop it as that user")
    finally:
        os.close(process)
    return WorkStopped()


def life_of_process(work: RecordedWork) -> Alive | Dead | NotMine:
    """Whether the process that the record refers to lives; NotMine if it refers to none of this machine."""
    found = _pid_of(work)
    if found is None:
        return NotMine()
    pid, started = found
    return Alive() if _started(pid) == started else Dead(why=f"process {pid} has ended without a report")


def _pid_of(work: RecordedWork) -> tuple[int, int] | None:
    found = None if work.details is None else _REFERENCE.fullmatch(work.details.reference or "")
    if found is None or found[3] != kernel():
        return None  # another machine, or before a reboot: nothing here can tell
    return int(found[1]), int(found[2])


def _started(pid: int) -> int | None:
    """When the process started, in ticks since the kernel did; None if there is none, or only its zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
    except OSError:
        return None
    parts = fields.split()
    return None if parts[0] in {"Z", "X"} else int(parts[_STARTED])
