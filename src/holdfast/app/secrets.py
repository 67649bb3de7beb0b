"""The secrets that the settings declare, and the values that only the gateway itself may use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.core.session import agent_task

if TYPE_CHECKING:
    from holdfast.api.tokens import Tokens
    from holdfast.config.sections import Config
    from holdfast.engine.program.secrets import DeclaredSecret


def declared_secrets(config: Config) -> dict[str, DeclaredSecret]:
    """The secrets of the settings, as programs may use them.

    A variable that an agent's `env` passes on is declared for that agent only, unless `[secrets]` declares
    the same name.
    """
    from holdfast.engine.program.secrets import DeclaredSecret

    found: dict[str, DeclaredSecret] = {}
    for agent, settings in config.agents.items():
        for variable in settings.env.values():
            before = found.get(variable, DeclaredSecret(variable=variable, tasks=frozenset()))
            assert before.tasks is not None
            found[variable] = DeclaredSecret(
                variable=variable,
                tasks=before.tasks | {agent_task(agent)},
                limit=f"agents.*.env gives it to commands of other agents alone; if this task may use it, "
                f"declare [secrets.{variable}] with it under tasks or agents",
            )
    for name, one in config.secrets.items():
        is_limited = one.tasks is not None or one.agents is not None
        allowed = frozenset([*(one.tasks or ()), *map(agent_task, one.agents or ())])
        found[name] = DeclaredSecret(
            variable=one.env,
            tasks=allowed if is_limited else None,
            limit=f"secrets.{name}.tasks and secrets.{name}.agents do not name this task; add it there if it "
            "may use the secret",
        )
    return found


def webhook_secrets(config: Config, home: Path, environ: Mapping[str, str]) -> dict[str, tuple[bytes, ...]]:
    """By the name of its channel, what each webhook is signed with. Raises SettingsError if there is none."""
    from holdfast.delivery.channels import secrets_of

    return {
        name: secrets_of(name, channel, home=home, environ=environ)
        for name, channel in config.channels.items()
        if channel.kind == "webhook"
    }


def is_own_value(
    webhook_secrets: Mapping[str, Sequence[bytes]], environ: Mapping[str, str], tokens: Tokens
) -> Callable[[str], bool]:
    """A function that recognises what callers and channels authenticate with, whatever variable holds it.

    No program may use such a value as a secret.
    """
    from holdfast.core.secret import is_own_variable

    own = {value for name, value in environ.items() if is_own_variable(name)}
    own |= {one.decode() for secrets in webhook_secrets.values() for one in secrets}
    return lambda value: value in own or tokens.find(value) is not None
