"""The trial before a restart: whether a gateway could start now, found out in another process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from holdfast.app.startup import prepare
from holdfast.app.stores import open_reader
from holdfast.app.vaults import vault_of
from holdfast.core.errors import NoLedger, StoreUnavailable
from holdfast.views.text import one_line

if TYPE_CHECKING:
    from holdfast.config import Settings

log = logging.getLogger("holdfast")

# How long a trial may take; importing the modules of agents may be slow.
TRIAL_S = 20.0


def check_start(settings: Settings, environ: Mapping[str, str]) -> None:
    """What the trial's process does: raises what would keep a gateway from starting.

    If the ledger is missing or away, the next gateway can wait for it, so that is no problem.
    """
    prepare(settings, environ)
    vault = vault_of(settings)
    try:
        ledger = open_reader(settings.store, must_be_current=False)
    except (NoLedger, StoreUnavailable):
        return
    with contextlib.closing(ledger), contextlib.suppress(StoreUnavailable):
        ledger.read_now(vault.begin)  # raises KeyProblem while the key does not open the ledger


async def try_next(command: Sequence[str]) -> str | None:
    """Why a gateway could not start with the present settings and modules; None if it could.

    `command` are the arguments of Python that call `check_start`. It runs in a process of its own, so that
    modules cannot change this process while they are imported.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:  # no memory or no file descriptor: a restart may be what helps
        log.warning("could not check whether the next gateway can start: %s", error)
        return None
    try:
        async with asyncio.timeout(TRIAL_S):
            _, said = await process.communicate()
    except TimeoutError:
        log.warning("could not check within %g s whether the next gateway can start", TRIAL_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        return None
    if process.returncode == 0:
        return None
    lines = said.decode("utf-8", "replace").strip().splitlines() or [f"exit status {process.returncode}"]
    return one_line(lines[-1].removeprefix("holdfast: "), 500)
