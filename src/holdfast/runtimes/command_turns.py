"""One start of an agent's command: an effect with a receipt, which also holds the checkpoint that it left."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path

import msgspec

from holdfast.config import STORE_VARIABLE, without_password
from holdfast.config.token import TOKEN_VARIABLE
from holdfast.core.agent_checkpoint import CHECKPOINT_VARIABLE, find_checkpoint
from holdfast.core.step_declarations import (
    DidNotHappen,
    Happened,
    Stopped,
    Unknown,
    Verdict,
    options_of,
    tool,
    verifiable,
)
from holdfast.engine.program.secrets import PREFIX
from holdfast.store.outer_keys import KEY_VARIABLE, NEW_KEY_VARIABLE
from holdfast.tools.command_end import is_surely_gone
from holdfast.tools.commands import (
    GRACE_S,
    PATIENCE_S,
    ShellResult,
    checked_order,
    find_outcome,
    receipts_place,
    run_with_receipt,
    shell,
)
from holdfast.tools.errors import CommandNotStarted
from holdfast.tools.inputs import current_key, receipt_key
from holdfast.tools.receipts import CommandInterrupted, ReceiptMissing, checkpoint_file, make_directory
from holdfast.tools.witness import CheckpointFile, CommandWarning, Done

# Variables that no agent inherits: with them it could act as the gateway.
_HIDDEN = (TOKEN_VARIABLE, KEY_VARIABLE, NEW_KEY_VARIABLE, "HOLDFAST_SUPERVISED")


class AgentTurn(ShellResult, frozen=True, kw_only=True):
    """How one start of an agent's command ended, with what it left in its checkpoint file."""

    was_warned: bool = False
    # It was killed with its witness, and only its checkpoint is left.
    was_interrupted: bool = False
    checkpoint: str | None = None
    checkpoint_before: str | None = None


class TurnInput(msgspec.Struct, frozen=True, kw_only=True):
    """What a command gets beside its arguments. It differs from run to run, and the step stays the same."""

    stdin: str
    hidden: tuple[str, ...]
    # The working directory, and where this gateway keeps receipts.
    cwd: str | None
    receipts: str | None
    # The time that is left for it; None: as its argument says.
    timeout_s: float | None = None
    # Whether it may hand over a checkpoint, and under which names of its task.
    may_hand_over: bool = False
    ids: tuple[str, ...] = ()
    warning: CommandWarning | None = None


turn_input: ContextVar[TurnInput] = ContextVar("turn_input")


async def _verify_speak(
    command: Sequence[str],
    *,
    cwd: str | None,
    env: Mapping[str, str | None],
    timeout_s: float | None,
    receipts: str | None,
    stdin: str,
) -> Verdict:
    del command, cwd, env, receipts, stdin
    key, directory = current_key(), receipts_place(turn_input.get().receipts)
    patience_s = PATIENCE_S if timeout_s is None else timeout_s + 2 * GRACE_S
    seal_key = receipt_key(is_for_reading=True)
    match await find_outcome(key, directory, patience_s=patience_s, seal_key=seal_key):
        case ReceiptMissing():
            return DidNotHappen()
        case CommandInterrupted(why):
            left = _left_behind(directory, key)
            return Unknown(why) if left is None else Happened(left)
        case Done(was_stopped=True):
            return Stopped("the command was told to stop midway; what it did by then is not known")
        case Done() as done:
            return Happened(_turn_of(done))


def _left_behind(directory: Path, key: str) -> AgentTurn | None:
    """The turn of a command that was killed with its witness, by a reboot for one. A valid checkpoint that it
    had left asks for its continuation; without one, or if the command may still run, a person decides."""
    given = turn_input.get()
    if not given.may_hand_over or not is_surely_gone(directory, key):
        return None
    file = CheckpointFile(str(checkpoint_file(directory, key)))
    file.look()
    found = find_checkpoint(marked=(), files=(file.text,), ids=given.ids)
    if found.document is None or found.document.status not in ("running", "waiting"):
        return None
    return AgentTurn(exit_code=-9, stdout="", stderr="", was_interrupted=True, checkpoint=file.text)


_declared = options_of(shell)
assert _declared.effect is not None


@tool(
    effect=verifiable(_verify_speak, local=True, did_not_happen=_declared.effect.did_not_happen),
    name=_declared.name,
    raises=_declared.raises,
)
async def speak_once(
    command: Sequence[str],
    *,
    cwd: str | None,
    env: Mapping[str, str | None],
    timeout_s: float | None,
    receipts: str | None,
    stdin: str,
) -> AgentTurn:
    """Start the command with what this run adds; the arguments of the step are the same in every run."""
    given = turn_input.get()
    del cwd, receipts, stdin
    if given.timeout_s is not None and given.timeout_s <= 0:
        raise CommandNotStarted("the timeout_s of its agent was over before it was started again")
    directory, key = make_directory(receipts_place(given.receipts)), current_key()
    env = {**dict.fromkeys(hidden_from_agents(os.environ, given.hidden)), CHECKPOINT_VARIABLE: None, **env}
    checkpoint = checkpoint_file(directory, key) if given.may_hand_over else None
    if checkpoint is not None:
        make_directory(checkpoint.parent)
        env[CHECKPOINT_VARIABLE] = str(checkpoint)
    limit_s = timeout_s if given.timeout_s is None else given.timeout_s
    order = checked_order(command, cwd=given.cwd, env=env, timeout_s=limit_s, stdin=given.stdin)
    order = msgspec.structs.replace(
        order,
        seal_key=receipt_key(),
        warning=given.warning,
        checkpoint=None if checkpoint is None else str(checkpoint),
    )
    return _turn_of(await run_with_receipt(key, order, directory))


def _turn_of(done: Done) -> AgentTurn:
    return AgentTurn(
        **{name: getattr(done, name) for name in AgentTurn.__struct_fields__ if hasattr(done, name)}
    )


def hidden_from_agents(environ: Mapping[str, str], named: Collection[str]) -> list[str]:
    """The variables that a command does not inherit. The ledger's URL may hold a password."""
    found = [one for one in environ if one in named or one in _HIDDEN or one.startswith(PREFIX)]
    url = environ.get(STORE_VARIABLE, "")
    return found if without_password(url) == url else [*found, STORE_VARIABLE]
