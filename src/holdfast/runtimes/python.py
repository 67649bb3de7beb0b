"""Agents in Python: a plain function runs as one step; a task runs inside the run that answers."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Any

from holdfast.core.errors import SettingsError
from holdfast.core.message import Envelope
from holdfast.core.step_declarations import options_of, step
from holdfast.engine.program.author_api import Run
from holdfast.engine.program.definitions import TaskDefinition
from holdfast.runtimes.contract import AgentInput, Speak


def speaks_by_function(key: str, fn: Any) -> Speak:
    """Call a plain function as one step: once it has answered, it is not called again."""
    if not callable(fn):
        raise SettingsError(f"{key}: a function is needed, not {type(fn).__name__}")
    wanted = _wanted(key, fn, inspect.signature(fn).parameters.values())
    declared = fn if options_of(fn).name is not None else step(fn, name="answer")

    async def speak(run: Run, heard: AgentInput) -> str | None:
        said: str | None = await run.step(declared, **_given(wanted, heard))
        return said

    return speak


def speaks_by_task(key: str, task: TaskDefinition[..., Any]) -> Speak:
    """Call a task's function, with its steps and turns, in the run that answers."""
    parameters = list(inspect.signature(task.fn).parameters.values())[1:]
    wanted = _wanted(key, task.fn, parameters)

    async def speak(run: Run, heard: AgentInput) -> str | None:
        said: str | None = await task.fn(run, **_given(wanted, heard))
        return said

    return speak


def _given(wanted: dict[str, str], heard: AgentInput) -> dict[str, Any]:
    given = {"text": heard.message.text, "message": heard.message, "history": list(heard.history)}
    return {parameter: given[what] for parameter, what in wanted.items()}


def _wanted(key: str, fn: Callable[..., Any], parameters: Any) -> dict[str, str]:
    """What each parameter gets, by its type or name: the whole message, the history, or the text."""
    try:
        hints = typing.get_type_hints(fn)
    except (NameError, TypeError):
        hints = {}
    wanted: dict[str, str] = {}
    for parameter in parameters:
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            continue
        if hints.get(parameter.name) is Run or parameter.name == "run":
            raise SettingsError(f"{key}: it takes a run, so it is a task; decorate it with @hf.task")
        if hints.get(parameter.name) is Envelope or parameter.name == "message":
            wanted[parameter.name] = "message"
        elif parameter.name == "history":
            wanted[parameter.name] = "history"
        elif "text" not in wanted.values() and parameter.default is inspect.Parameter.empty:
            wanted[parameter.name] = "text"
        elif parameter.default is inspect.Parameter.empty:
            raise SettingsError(
                f"{key}: its parameter {parameter.name!r} cannot be given; an agent takes the text, "
                "`message: hf.Envelope` and `history`"
            )
    if not wanted:
        raise SettingsError(f"{key}: it takes nothing; an agent takes the text, or `message: hf.Envelope`")
    return wanted
