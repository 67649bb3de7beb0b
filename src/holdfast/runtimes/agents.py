"""Turns the agents of the settings into tasks: each answers one message, in one write."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.config.sections import AgentSettings, Config
from holdfast.core.errors import SettingsError
from holdfast.core.message import Envelope, clean_answer
from holdfast.core.session import agent_task
from holdfast.core.smart_wake import SmartWake
from holdfast.engine.conversation.spawning import packet_of
from holdfast.engine.conversation.transcripts import hear, reply
from holdfast.engine.program.author_api import Run
from holdfast.engine.program.definitions import TaskDefinition
from holdfast.runtimes.command import secret_names, speaks_by_command
from holdfast.runtimes.contract import AgentFailed, AgentInput, Speak
from holdfast.runtimes.python import speaks_by_function, speaks_by_task
from holdfast.runtimes.scheduled_command import command_task
from holdfast.store import Tx

# How many messages of history an agent gets at most.
MAX_HISTORY = 200
# How often a Python agent is tried when it raises; a command is never started twice.
ATTEMPTS = 3


def definitions(
    config: Config, *, home: Path | None = None, receipts: Path | None = None
) -> list[TaskDefinition[..., Any]]:
    """One task for each agent, named `agent.<name>`, and one for the commands of schedules. Raises
    SettingsError for one that cannot be loaded.

    Relative directories begin at the home; receipts of commands are in its directory `receipts` unless given.
    """
    hidden = secret_names(config)
    agents = [
        define(name, settings, home=home, receipts=receipts, hidden=hidden)
        for name, settings in sorted(config.agents.items())
    ]
    return [*agents, command_task(home=home, receipts=receipts, hidden=hidden)]


def define(
    name: str,
    settings: AgentSettings,
    *,
    home: Path | None = None,
    receipts: Path | None = None,
    hidden: frozenset[str] = frozenset(),
) -> TaskDefinition[..., Any]:
    """The task that answers one message of this agent. A command does not inherit variables in `hidden`."""
    options: dict[str, Any] = {"timeout": settings.timeout_s, "attempts": None, "backoff": "1s"}
    options["default_attempts"] = ATTEMPTS
    options["run_timeout"] = settings.run_timeout_s
    if settings.command:
        if receipts is None and home is not None:
            receipts = home / "receipts"
        # The command has the timeouts; the task waits for its receipt, even longer than that.
        options |= {"timeout": None, "run_timeout": None, "default_attempts": 1}
        speak = speaks_by_command(name, settings, home=home, receipts=receipts, hidden=hidden)
    elif settings.pydantic_ai is not None:
        speak = _speaks_by_model(f"agents.{name}.pydantic_ai", settings.pydantic_ai)
    else:
        assert settings.callable is not None
        key = f"agents.{name}.callable"
        found = load(key, settings.callable)
        if isinstance(found, TaskDefinition):
            if found.done:
                # The answer would be sent before the criteria are checked.
                raise SettingsError(
                    f"{key}: {settings.callable} declares done criteria, which the task of an agent cannot "
                    "have; check them in the task, or start it with `holdfast run`"
                )
            options |= _options_of(found)
            if settings.timeout_s is not None:
                options["timeout"] = settings.timeout_s
            if settings.run_timeout_s is not None:
                options["run_timeout"] = settings.run_timeout_s
            speak = speaks_by_task(key, found)
        else:
            speak = speaks_by_function(key, found)
    return _definition(name, speak, options)


def _options_of(task: TaskDefinition[..., Any]) -> dict[str, Any]:
    """The options that the author declared on a task; they also hold when it answers messages."""
    return {
        "timeout": task.timeout,
        "attempts": task.named_attempts,
        "default_attempts": task.attempts,
        "backoff": task.backoff,
        "ladder": task.ladder,
        "budget": task.budget,
        "run_timeout": task.run_timeout,
        "smart_wake": task.smart_wake,
        "wake_after": task.wake_after,
    }


def _definition(name: str, speak: Speak, options: Mapping[str, Any]) -> TaskDefinition[..., Any]:
    async def answer_message(run: Run, session_key: str, message_id: str, until: int = 0) -> str | None:
        heard = await _hear(run, session_key, message_id, until)
        limit = run._live.limit  # noqa: SLF001 - the limit of this run
        packet = heard.packet
        if limit is not None and packet is not None and packet.smart_wake is not SmartWake.AUTO:
            limit.mode = packet.smart_wake  # `auto` leaves it as the settings say
        said = await speak(run, heard)
        if said is not None and not isinstance(said, str):
            raise AgentFailed(f"agent {name} returned {type(said).__name__}; return text, or None")
        text = None if said is None else clean_answer(said)
        await _reply(run, session_key, message_id, text)
        return text

    defaults: dict[str, Any] = {"ladder": (), "budget": None, "version": 1, "migrate": None}
    return TaskDefinition(answer_message, name=agent_task(name), **defaults | dict(options))


async def _hear(run: Run, session_key: str, message_id: str, until: int) -> AgentInput:
    """Read the message and its history; not a step, because neither ever changes."""

    def read(tx: Tx) -> AgentInput:
        asked, before = hear(
            tx,
            session_key=session_key,
            message_id=message_id,
            task_id=run.task_id,
            until=until,
            limit=MAX_HISTORY,
        )
        return AgentInput(
            message=Envelope.of(asked), history=tuple(map(Envelope.of, before)), packet=packet_of(asked)
        )

    return await run._store.read(read)  # noqa: SLF001 - the transcript is the run's to read


async def _reply(run: Run, session_key: str, message_id: str, text: str | None) -> None:
    """Save the answer, mark the message as answered and owe the delivery: in one write, once."""
    program, live, task_id = run._program, run._live, run.task_id  # noqa: SLF001 - as its own
    now = live.clock.now()

    def write(tx: Tx) -> None:
        reply(tx, session_key=session_key, message_id=message_id, task_id=task_id, text=text, now=now)

    # Keep an answer that comes during a drain: the settings may forbid a later run to answer.
    async with live.cleanup() if live.may_finish else contextlib.nullcontext():
        await program.once(await program.key("reply", task_id), None, write)


def _speaks_by_model(key: str, name: str) -> Speak:
    """Import pydantic-ai only when an agent needs it: it is heavy, and an extra."""
    try:
        models = importlib.import_module("holdfast.runtimes.pydantic_ai")
        speak: Speak = models.speaks_by_model(key, load(key, name))
    except ImportError as error:
        raise SettingsError(
            f"{key} is {name!r}: pydantic-ai is not installed; pip install '.[pydantic-ai]' in a checkout"
        ) from error
    return speak


def load(key: str, name: str) -> Any:
    """What `module:name` names. Raises SettingsError with the key, the value and the fix."""
    module_name, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:  # a module may raise anything when it is imported
        is_missing = isinstance(error, ModuleNotFoundError)
        near = (
            "; put it into the home, or name its directory in gateway.python_path"
            if is_missing
            else "; fix it"
        )
        raise SettingsError(
            f"{key} is {name!r}: {module_name} cannot be imported ({type(error).__name__}: {error}){near}"
        ) from error
    for part in path.split("."):
        if not hasattr(found, part):
            raise SettingsError(f"{key} is {name!r}: {module_name} has no {path!r}; check the name")
        found = getattr(found, part)
    return found


__all__ = ["define", "definitions", "load"]
