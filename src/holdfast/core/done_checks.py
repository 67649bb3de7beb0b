"""DoneCheck: what must hold before a task has succeeded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from holdfast.core.durations import Duration, parse_span
from holdfast.core.errors import BadInput
from holdfast.core.payload import check_line

MAX_CHECKS = 50


class DoneCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One check: a file that must exist, a command that must succeed, or a function that must return True."""

    # What must hold, in words; a failure names it.
    name: str
    path: str | None = None
    command: tuple[str, ...] = ()
    predicate: Callable[..., Any] | None = None
    timeout: timedelta = timedelta(minutes=1)
    # Where a relative path begins and a command works; None: where the worker was started.
    directory: str | None = None
    # Variables that a command does not inherit.
    hidden: tuple[str, ...] = ()


def file_exists(path: str, *, name: str | None = None) -> DoneCheck:
    """The file exists and is not empty. A relative path begins where the worker was started."""
    text = str(path)
    if not text.strip() or "\0" in text:
        raise BadInput("path", "name a file, such as report.md")
    return DoneCheck(name=check_line("name", name or f"{text} exists"), path=text)


def command_succeeds(
    command: Sequence[str], *, timeout: Duration = "1m", name: str | None = None
) -> DoneCheck:
    """The command ends with status 0 in time. It must only look: it may run several times."""
    is_list = isinstance(command, (list, tuple)) and all(isinstance(word, str) for word in command)
    if not is_list or not command or not command[0].strip() or any("\0" in word for word in command):
        raise BadInput("command", 'write a list of words, such as ["pytest", "-q"]')
    shown = name or f"{' '.join(command)} succeeds"
    return DoneCheck(
        name=check_line("name", shown[:200]), command=tuple(command), timeout=parse_span("timeout", timeout)
    )


def holds(predicate: Callable[..., Any], *, name: str, timeout: Duration = "1m") -> DoneCheck:
    """The function returns something true. It is called with the task's result, or without arguments."""
    if not callable(predicate):
        raise BadInput("predicate", f"a function is needed, not {type(predicate).__name__}")
    return DoneCheck(
        name=check_line("name", name), predicate=predicate, timeout=parse_span("timeout", timeout)
    )


def check_done(checks: Sequence[DoneCheck | Callable[..., Any]]) -> tuple[DoneCheck, ...]:
    """The checks of a task; a function is a check by its own name. Raises BadInput."""
    if isinstance(checks, (str, DoneCheck)) or not isinstance(checks, (list, tuple)):
        raise BadInput("done", 'a list of checks is needed, such as [hf.file_exists("report.md")]')
    if len(checks) > MAX_CHECKS:
        raise BadInput("done", f"at most {MAX_CHECKS} checks, not {len(checks)}")
    made = []
    for one in checks:
        if not isinstance(one, DoneCheck):
            if not callable(one):
                raise BadInput(
                    "done", f"{one!r} is no check; use hf.file_exists, hf.command_succeeds or hf.holds"
                )
            name = getattr(one, "__name__", type(one).__name__)
            one = DoneCheck(name=check_line("name", name), predicate=one)
        made.append(one)
    names = [one.name for one in made]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BadInput("done", f"two checks are called {twice!r}; give one of them another name=")
    return tuple(made)
