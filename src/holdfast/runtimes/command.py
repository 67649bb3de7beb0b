"""Agents that are commands: the text on standard input, the answer on standard output, with a receipt."""

from __future__ import annotations

from pathlib import Path

from holdfast.config.gateway import AgentSettings
from holdfast.core.errors import BadInput, SettingsError
from holdfast.core.secret import Secret, secret
from holdfast.engine.program import Run
from holdfast.runtimes.contract import AgentFailed, Heard, Speak
from holdfast.tools.commands import ShellResult, shell

# What no agent needs of us: with these it could speak in our name.
_HIDDEN = ("HOLDFAST_TOKEN", "HOLDFAST_SUPERVISED")
_SHOWN_CHARS = 500


def speaks_by_command(
    name: str, settings: AgentSettings, *, home: Path | None, receipts: Path | None
) -> Speak:
    """The command runs at most once for a message; a crash of ours does not end it."""
    passed = {variable: _secret(name, ours) for variable, ours in sorted(settings.env.items())}
    directory = settings.directory
    if directory is not None and home is not None:
        directory = str(home / directory)

    async def speak(run: Run, heard: Heard) -> str | None:
        message = heard.message
        env: dict[str, str | None] = dict.fromkeys(_HIDDEN)
        env |= passed
        env |= {
            "HOLDFAST_AGENT": name,
            "HOLDFAST_SESSION_KEY": message.session_key,
            "HOLDFAST_MESSAGE_ID": message.id,
            "HOLDFAST_CHANNEL": message.channel,
            "HOLDFAST_PEER": message.peer,
            "HOLDFAST_TASK_ID": run.task_id,
        }
        result = await run.step(
            shell,
            settings.command,
            cwd=directory,
            env=env,
            timeout_s=settings.timeout_s,
            receipts=None if receipts is None else str(receipts),
            stdin=message.text,
        )
        return _answer_of(name, result)

    return speak


def _secret(name: str, ours: str) -> Secret:
    """Only the name is stored with the step; the value is found when the command begins."""
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
        said = result.stderr.strip()[-_SHOWN_CHARS:] or "it said nothing about why"
        raise AgentFailed(f"the command of agent {name} ended with {result.exit_code}: {said}")
    return result.stdout
