"""Ends a command that its starter left running: through its witness, or its group when the witness is gone.

The system reuses pids. So a process is signalled only if its start time is the one in the receipt, under the
same boot of the machine; where the system does not tell these, nothing is signalled.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import msgspec

from holdfast.tools.receipts import Receipt
from holdfast.tools.witness import (
    Began,
    Done,
    ProcessIdentity,
    machine_boot,
    read_done,
    seen,
    ticks_of,
    write_done,
)

GRACE_S = 5.0
# How long to wait for a witness: it asks its command to stop, kills it after a grace, writes the receipt.
_PATIENCE_S = 2 * GRACE_S + 5.0
_LOOK_EVERY_S = 0.02


def end_command(directory: Path, key: str, seal_key: bytes | None = None) -> bool:
    """End the command of this key and wait for its end; safe to repeat. True when Holdfast ended it, now or
    before; False when it ended by itself, never began, or cannot be identified.

    `seal_key` opens a receipt that holds a secret.
    """
    receipt = Receipt(directory, key)
    give_up_at = time.monotonic() + _PATIENCE_S
    is_told = False
    while time.monotonic() < give_up_at:
        with receipt.held() as descriptor:
            if descriptor is not None:
                return _was_stopped(receipt, seal_key) or _end_orphan(receipt, descriptor)
        if not is_told:
            began = _began(receipt)
            is_told = _signal(began, None if began is None else began.witness, signal.SIGTERM)
            if not is_told:
                return False
        time.sleep(_LOOK_EVERY_S)
    return False


def is_surely_gone(directory: Path, key: str) -> bool:
    """Whether neither the command of this key nor a process of its group is left: its machine was started
    anew, or its processes can be told from all others. Where the system does not tell this, False."""
    receipt = Receipt(directory, key)
    with receipt.held() as descriptor:
        if descriptor is None:
            return False
        began = _read(os.pread(descriptor, 500, 0))
    if began is None or began.boot is None or machine_boot() is None:
        return False
    if began.boot != machine_boot():
        return True
    if began.command is None or began.command.ticks is None or _is_there(began, began.command):
        return False
    # A process that has ended and was not collected yet has no start time.
    return all(one.ticks is None for one in _group(began.command.pid, began.witness.pid))


def _end_orphan(receipt: Receipt, descriptor: int) -> bool:
    """End a command whose witness is gone, with its process group, and write that into the receipt."""
    began = _read(os.pread(descriptor, 500, 0))
    if receipt.done.exists() or began is None or began.command is None or not _is_there(began, began.command):
        return False
    known, alive = set[ProcessIdentity](), {began.command}
    told: set[ProcessIdentity] = set()
    kill_at = time.monotonic() + GRACE_S
    while alive:
        # While one of them lives, the system cannot reuse the number of their group.
        known |= _group(began.command.pid, began.witness.pid) | {began.command}
        alive = {one for one in known if _is_there(began, one)}
        is_late = time.monotonic() >= kill_at
        for one in alive if is_late else alive - told:
            _signal(began, one, signal.SIGKILL if is_late else signal.SIGTERM)
        told |= alive
        time.sleep(_LOOK_EVERY_S)
    write_done(receipt.done, Done(exit_code=-signal.SIGTERM, was_stopped=True), None)
    return True


def _group(group: int, session: int) -> set[ProcessIdentity]:
    """The processes of a group, in the session of its witness."""
    found = set()
    for place in Path("/proc").iterdir():
        if not place.name.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError):
            _, _, of_group, of_session, *_ = (place / "stat").read_text().rpartition(")")[2].split()
            if (int(of_group), int(of_session)) == (group, session):
                found.add(seen(int(place.name)))
    return found


def _was_stopped(receipt: Receipt, seal_key: bytes | None) -> bool:
    try:
        return read_done(receipt.done.read_bytes(), seal_key).was_stopped
    except (OSError, ValueError, msgspec.DecodeError):
        return False  # no receipt, or an unreadable one


def _began(receipt: Receipt) -> Began | None:
    try:
        return _read(receipt.started.read_bytes())
    except OSError:
        return None


def _read(found: bytes) -> Began | None:
    try:
        return msgspec.json.decode(found, type=Began)
    except (msgspec.DecodeError, ValueError):
        return None  # blank, void, or from an older version


def _is_there(began: Began, process: ProcessIdentity | None) -> bool:
    """Whether this very process lives, not another one that got its pid."""
    if process is None or process.ticks is None or began.boot is None:
        return False
    return began.boot == machine_boot() and ticks_of(process.pid) == process.ticks


def _signal(began: Began | None, process: ProcessIdentity | None, number: signal.Signals) -> bool:
    """Signal through a pidfd, so that the process that was checked is the one that gets the signal."""
    if began is None or process is None or not hasattr(os, "pidfd_open"):
        return False
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        if not _is_there(began, process):
            return False
        with contextlib.suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(descriptor, number)
        return True
    finally:
        os.close(descriptor)
