"""Reads and checks everything that a gateway needs to start, besides its ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.app.secrets import webhook_secrets
from holdfast.config import Settings
from holdfast.core.clock import SystemClock
from holdfast.core.errors import BadInput, SettingsError

if TYPE_CHECKING:
    from holdfast.api.tls import Certificates
    from holdfast.api.tokens import Tokens
    from holdfast.config.files import Loaded
    from holdfast.config.sections import Config, ScheduleSettings
    from holdfast.core.schedule_spec import ScheduleSpec
    from holdfast.engine.program.definitions import TaskDefinition


class Startup(msgspec.Struct, frozen=True, kw_only=True):
    """What a gateway starts with; all of it was read without a problem."""

    settings: Settings
    environ: Mapping[str, str]
    loaded: Loaded
    # By their names: those of the settings, and one for each agent.
    tasks: Mapping[str, TaskDefinition[..., Any]]
    tokens: Tokens
    certificates: Certificates
    # By the names of their channels.
    webhook_secrets: Mapping[str, Sequence[bytes]]
    # How long it took to read all of it.
    took: timedelta = timedelta(0)

    @property
    def config(self) -> Config:
        """The settings as they were at the start."""
        return self.loaded.config


def prepare(
    settings: Settings, environ: Mapping[str, str], overrides: Mapping[str, str | int] | None = None
) -> Startup:
    """Load the settings, import the tasks, read the certificate, tokens and secrets. Raises SettingsError.

    The directories of modules that the settings name become part of this process's search path. `overrides`
    are settings of the command line.
    """
    from holdfast.api.tls import Certificates
    from holdfast.api.tokens import Tokens
    from holdfast.app.module_search import places_of, search
    from holdfast.config.files import load

    began_at = SystemClock().now()
    loaded = load(settings.home, environ, overrides)
    certificates = Certificates(loaded.config.gateway.tls, settings.home)
    search(places_of(loaded.config, settings.home))
    try:
        tasks = load_tasks(loaded.config, settings)
    except BadInput as error:
        raise SettingsError(f"tasks: {error}") from error
    return Startup(
        settings=settings,
        environ=environ,
        loaded=loaded,
        tasks=tasks,
        tokens=Tokens.read(loaded.config, settings.home, environ),
        certificates=certificates,
        webhook_secrets=webhook_secrets(loaded.config, settings.home, environ),
        took=max(SystemClock().now() - began_at, timedelta(0)),
    )


def load_tasks(config: Config, settings: Settings) -> Mapping[str, TaskDefinition[..., Any]]:
    """The tasks that a gateway with these settings knows, by name. Raises BadInput, SettingsError."""
    from holdfast.app.programs import load_installed, split_place
    from holdfast.engine.program.definitions import by_name
    from holdfast.runtimes.agents import definitions

    found: dict[str, TaskDefinition[..., Any]] = {}
    scheduled = [one.task for one in config.schedules.values() if one.task is not None and ":" in one.task]
    for spec in [*config.tasks, *scheduled]:
        place, name = split_place(spec)
        program = load_installed(place)
        chosen = program.known if name is None else [program.find(name), *program.known]
        found |= {one.name: one for one in chosen}
    attempts = config.policies.retry.attempts
    if attempts is not None:
        found = {name: one.with_default_attempts(attempts) for name, one in found.items()}
    known = by_name([*found.values(), *definitions(config, home=settings.home)])
    schedule_specs(config.schedules, known)
    return known


def schedule_specs(
    schedules: Mapping[str, ScheduleSettings], known: Mapping[str, TaskDefinition[..., Any]]
) -> dict[str, ScheduleSpec]:
    """The schedules of the settings as the ledger has them. Raises SettingsError for a task that the gateway
    does not know, or that does not take these arguments."""
    return {name: _spec(name, one, known) for name, one in schedules.items()}


def _spec(
    name: str, schedule: ScheduleSettings, known: Mapping[str, TaskDefinition[..., Any]]
) -> ScheduleSpec:
    spec = schedule.spec
    if schedule.task is None:
        return spec
    place, _, last = schedule.task.rpartition(":")
    task = known.get(last)
    if task is None and place:
        # Its name may differ from the name of its function.
        task = next((one for one in known.values() if one.fn.__name__ == last), None)
    if task is None:
        have = ", ".join(sorted(one for one in known if "." not in one)) or "none"
        raise SettingsError(
            f"schedules.{name}.task is {schedule.task!r}: the gateway knows no such task (it knows {have}); "
            "write module:task and restart it: `holdfast gateway restart`"
        )
    try:
        call = task(**schedule.args)
    except BadInput as error:
        raise SettingsError(f"schedules.{name}.args: {error}") from error
    return msgspec.structs.replace(spec, task=task.name, arguments=dict(call.arguments))
