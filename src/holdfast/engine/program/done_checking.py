"""Runs the done criteria of a task: only looks, so that each may run several times."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
from pathlib import Path
from typing import Any

from holdfast.core.done_checks import DoneCheck
from holdfast.core.payload import clean_text
from holdfast.core.redaction import redact_text

MAX_SHOWN_CHARS = 300


async def unmet_of(checks: tuple[DoneCheck, ...], result: Any) -> dict[str, str]:
    """The checks that do not hold, by name, each with the reason."""
    unmet: dict[str, str] = {}
    for check in checks:
        why = await _why_not(check, result)
        if why is not None:
            unmet[check.name] = redact_text(clean_text(why, max_chars=MAX_SHOWN_CHARS))
    return unmet


async def _why_not(check: DoneCheck, result: Any) -> str | None:
    try:
        async with asyncio.timeout(check.timeout.total_seconds()):
            if check.path is not None:
                return await asyncio.to_thread(_why_no_file, check.path, check.directory)
            if check.command:
                return await _why_command_failed(check)
            return await _why_not_true(check, result)
    except TimeoutError:
        return f"it took longer than {check.timeout}"
    except Exception as error:  # noqa: BLE001 - the user's own check
        return f"{type(error).__name__}: {error}"


def _why_no_file(path: str, directory: str | None) -> str | None:
    place = Path(directory or ".") / Path(path).expanduser()
    if not place.is_file():
        return f"{path} does not exist"
    return None if place.stat().st_size else f"{path} is empty"


async def _why_command_failed(check: DoneCheck) -> str | None:
    child = await asyncio.create_subprocess_exec(
        *check.command,
        cwd=check.directory,
        env={name: value for name, value in os.environ.items() if name not in check.hidden},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output, _ = await child.communicate()
    finally:
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, 9)
            await child.wait()
    if child.returncode == 0:
        return None
    last = output.decode(errors="replace").strip().rpartition("\n")[2]
    return f"it ended with status {child.returncode}" + (f": {last}" if last else "")


async def _why_not_true(check: DoneCheck, result: Any) -> str | None:
    assert check.predicate is not None
    takes_result = bool(inspect.signature(check.predicate).parameters)
    arguments = (result,) if takes_result else ()
    if inspect.iscoroutinefunction(check.predicate):
        is_met = await check.predicate(*arguments)
    else:
        is_met = await asyncio.to_thread(check.predicate, *arguments)
    return None if is_met else f"it returned {is_met!r}"
