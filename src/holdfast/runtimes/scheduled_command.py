"""The task that runs the command of a schedule, once for each firing, with a receipt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from holdfast.config import in_home
from holdfast.core.errors import HoldfastError
from holdfast.core.schedule_spec import COMMAND_TASK
from holdfast.engine.program.author_api import Run
from holdfast.engine.program.definitions import TaskDefinition
from holdfast.runtimes.command_turns import TurnInput, speak_once, turn_input

_SHOWN_CHARS = 500


class ScheduledCommandFailed(HoldfastError):
    """The command of a schedule ended with an error; it is not run again by itself."""

    code = "command_failed"


class CommandEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How the command of a firing ended."""

    exit_code: int
    stdout: str
    stderr: str


def command_task(
    *, home: Path | None, receipts: Path | None = None, hidden: frozenset[str] = frozenset()
) -> TaskDefinition[..., Any]:
    """The task of all commands of schedules. A command inherits the gateway's environment without its own
    secrets and those in `hidden`; relative directories begin at the home."""
    if receipts is None and home is not None:
        receipts = home / "receipts"

    async def run_command(
        run: Run, command: list[str], directory: str | None = None, timeout_s: float | None = None
    ) -> CommandEnd:
        where = directory
        if directory is not None and home is not None:
            where = str(in_home(home, directory, key="directory"))
        given = TurnInput(
            stdin="",
            # Read at each firing: a reload of the settings may have declared more secrets.
            hidden=tuple(sorted(hidden | run._live.place.secrets.variables)),  # noqa: SLF001 - not handed on
            # Never the directory where the gateway was started: its files are not trusted.
            cwd=str(home) if where is None and home is not None else where,
            receipts=None if receipts is None else str(receipts),
        )
        token = turn_input.set(given)
        try:
            result = await run.step(
                speak_once,
                command,
                # As the schedule says it: another gateway, which may go on, has another home.
                cwd=directory,
                env={"HOLDFAST_TASK_ID": run.task_id},
                timeout_s=timeout_s,
                receipts=None,
                stdin="",
            )
        finally:
            turn_input.reset(token)
        if result.has_timed_out:
            raise ScheduledCommandFailed(f"{command[0]} was stopped after {timeout_s:g} s")
        if result.exit_code != 0:
            said = " ".join((result.stderr or result.stdout).split())[-_SHOWN_CHARS:]
            raise ScheduledCommandFailed(f"{command[0]} ended with exit code {result.exit_code}: {said}")
        return CommandEnd(exit_code=0, stdout=result.stdout, stderr=result.stderr)

    return TaskDefinition(
        run_command,
        name=COMMAND_TASK,
        # The command has the timeout, and it is never started twice.
        timeout=None,
        attempts=None,
        default_attempts=1,
        backoff="1s",
        ladder=(),
        budget=None,
        version=1,
        migrate=None,
    )
