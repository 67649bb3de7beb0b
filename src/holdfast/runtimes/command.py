"""Agents that are commands: the message on standard input, the answer on standard output, with a receipt."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path

import msgspec

from holdfast.config import STORE_VARIABLE, in_home, without_password
from holdfast.config.sections import AgentSettings, Config
from holdfast.config.token import TOKEN_VARIABLE
from holdfast.core.checkpoint import SeedContext
from holdfast.core.errors import BadInput, SettingsError
from holdfast.core.message import Envelope
from holdfast.core.secret import Secret, secret
from holdfast.core.step_declarations import options_of, tool
from holdfast.engine.program.author_api import Run
from holdfast.engine.program.secrets import PREFIX
from holdfast.runtimes.contract import AgentFailed, AgentInput, Speak
from holdfast.store.outer_keys import KEY_VARIABLE, NEW_KEY_VARIABLE
from holdfast.tools.commands import ShellResult, shell

# Variables that no agent inherits: with them it could act as the gateway.
_HIDDEN = (TOKEN_VARIABLE, KEY_VARIABLE, NEW_KEY_VARIABLE, "HOLDFAST_SUPERVISED")
# Characters that a reader may take for a line break.
_BREAKS = ("\x85", "\u2028", "\u2029")
_SHOWN_CHARS = 500


class CommandInput(msgspec.Struct, frozen=True, kw_only=True):
    """What a command with `stdin = "json"` reads: the message, and what is known of an interruption."""

    message: Envelope
    # The same as `run.resumed`; null unless an interrupted run goes on.
    resumed: SeedContext | None = None


class _Given(msgspec.Struct, frozen=True, kw_only=True):
    """What a command gets beside its arguments. It differs from run to run, and the step stays the same."""

    stdin: str
    hidden: tuple[str, ...]
    # The working directory if the settings name none.
    cwd: str | None


_given: ContextVar[_Given] = ContextVar("given")


def secret_names(config: Config) -> frozenset[str]:
    """The variables that the settings name as secrets; an agent gets only those that its `env` names."""
    passed = {ours for agent in config.agents.values() for ours in agent.env.values()}
    signed = {channel.secret_env for channel in config.channels.values()}
    borne = {token.token_env for token in config.tokens.values()}
    declared = {secret.env for secret in config.secrets.values()}
    return frozenset(one for one in (*passed, *signed, *borne, *declared) if one is not None)


def speaks_by_command(
    name: str,
    settings: AgentSettings,
    *,
    home: Path | None,
    receipts: Path | None,
    hidden: frozenset[str] = frozenset(),
) -> Speak:
    """Run the command at most once for each message; it survives a crash of the gateway.

    It inherits the gateway's environment, without the gateway's own secrets and those in `hidden`.
    """
    passed = {variable: _secret(name, ours) for variable, ours in sorted(settings.env.items())}
    directory = settings.directory
    if directory is not None and home is not None:
        directory = str(in_home(home, directory, key=f"agents.{name}.directory"))
    # Never the directory where the gateway was started: its files are not trusted.
    otherwise = None if home is None else str(home)

    async def speak(run: Run, heard: AgentInput) -> str | None:
        message = heard.message
        env: dict[str, str | Secret | None] = {
            **passed,
            "HOLDFAST_AGENT": name,
            "HOLDFAST_SESSION_KEY": message.session_key,
            "HOLDFAST_MESSAGE_ID": message.id,
            "HOLDFAST_CHANNEL": message.channel,
            "HOLDFAST_PEER": message.peer,
            "HOLDFAST_TASK_ID": run.task_id,
        }
        # Read for each message: a reload of the settings may have declared more secrets.
        declared = run._live.place.secrets.variables  # noqa: SLF001 - what the run may not hand on
        given = _Given(
            stdin=stdin_of(settings, message, run.resumed),
            hidden=tuple(sorted(hidden | declared)),
            cwd=otherwise,
        )
        token = _given.set(given)
        try:
            result = await run.step(
                _speak,
                settings.command,
                cwd=directory,
                env=env,
                timeout_s=settings.timeout_s,
                receipts=None if receipts is None else str(receipts),
                stdin=message.text,
            )
        finally:
            _given.reset(token)
        return _answer_of(name, result)

    return speak


_declared = options_of(shell)


@tool(effect=_declared.effect, name=_declared.name, raises=_declared.raises)
async def _speak(
    command: Sequence[str],
    *,
    cwd: str | None,
    env: Mapping[str, str | None],
    timeout_s: float | None,
    receipts: str | None,
    stdin: str,
) -> ShellResult:
    """Call `shell` with what this run adds; its arguments, and so the step, are the same in every run."""
    given = _given.get()
    del stdin
    return await shell(
        command,
        cwd=cwd or given.cwd,
        env={**dict.fromkeys(_hidden(os.environ, given.hidden)), **env},
        timeout_s=timeout_s,
        receipts=receipts,
        stdin=given.stdin,
    )


def _hidden(environ: Mapping[str, str], named: Collection[str]) -> list[str]:
    """The variables that a command does not inherit. The ledger's URL may hold a password."""
    found = [one for one in environ if one in named or one in _HIDDEN or one.startswith(PREFIX)]
    url = environ.get(STORE_VARIABLE, "")
    return found if without_password(url) == url else [*found, STORE_VARIABLE]


def stdin_of(settings: AgentSettings, message: Envelope, resumed: SeedContext | None) -> str:
    """What the command reads: the text, after a resume preceded by what is known; or the JSON document."""
    if settings.stdin == "json":
        return msgspec.json.encode(CommandInput(message=message, resumed=resumed)).decode()
    if resumed is None:
        return message.text
    # No message can hold a line that begins with [System], and the document is one line: so the command can
    # tell them apart.
    said = (
        f"[System] Resumed after an interruption ({resumed.reason.value}). "
        "What is known stands in the next line, the message after it."
    )
    document = msgspec.json.encode(resumed).decode()
    for sign in _BREAKS:  # JSON does not escape these
        document = document.replace(sign, f"\\u{ord(sign):04x}")
    return f"{said}\n{document}\n\n{message.text}"


def _secret(name: str, ours: str) -> Secret:
    """Only the name is stored with the step; the value is looked up when the command starts."""
    try:
        return secret(ours)
    except BadInput as error:
        raise SettingsError(
            f"agents.{name}.env: {ours} cannot be passed on; write the name of a variable in capitals"
        ) from error


def _answer_of(name: str, result: ShellResult) -> str:
    if result.has_timed_out:
        raise AgentFailed(f"the command of agent {name} took longer than its timeout_s and was stopped")
    if result.exit_code != 0:
        said = result.stderr.strip()[-_SHOWN_CHARS:] or "it printed nothing on stderr"
        raise AgentFailed(f"the command of agent {name} ended with {result.exit_code}: {said}")
    return result.stdout
