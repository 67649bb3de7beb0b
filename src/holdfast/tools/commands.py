"""A tool that runs a command with a receipt, so that its outcome is known even after a crash."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from holdfast.config import default_home
from holdfast.core.errors import BadInput
from holdfast.core.step_declarations import (
    DidNotHappen,
    Happened,
    Stopped,
    Unknown,
    Verdict,
    tool,
    verifiable,
)
from holdfast.tools.errors import CommandCutShort, CommandFailed, CommandNotStarted, CommandTimedOut, shown
from holdfast.tools.inputs import (
    check_directory,
    check_path,
    check_seconds,
    check_word,
    current_key,
    receipt_key,
)
from holdfast.tools.receipts import CommandInterrupted, Outcome, Receipt, ReceiptMissing, make_directory
from holdfast.tools.witness import CommandOrder, Done

MAX_OUTPUT_BYTES = 256 * 1024
GRACE_S = 5.0
# How long the next process waits, after a crash, for a command without a timeout.
PATIENCE_S = 3600.0

_FIRST_LOOK_S, _MOST_BETWEEN_LOOKS_S = 0.01, 1.0
_WITNESS = "import sys; sys.path[:] = sys.argv[1:]; from holdfast.tools.witness import main; main()"


class ShellResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended. A negative exit code is the signal that ended it.

    Output over the cap loses its middle; a line in its place says so.
    """

    exit_code: int
    stdout: str
    stderr: str
    is_stdout_cut: bool = False
    is_stderr_cut: bool = False
    has_timed_out: bool = False


async def _verify_shell(
    command: str | Sequence[str],
    *,
    cwd: str | None = None,
    env: Mapping[str, str | None] | None = None,
    timeout_s: float | None = None,
    check: bool = False,
    receipts: str | None = None,
    stdin: str | None = None,
) -> Verdict:
    del command, cwd, env, stdin
    patience_s = PATIENCE_S if timeout_s is None else timeout_s + 2 * GRACE_S
    outcome = await find_outcome(
        current_key(),
        receipts_place(receipts),
        patience_s=patience_s,
        seal_key=receipt_key(is_for_reading=True),
    )
    match outcome:
        case ReceiptMissing():
            return DidNotHappen()
        case CommandInterrupted(why):
            return Unknown(why)
        case Done(was_stopped=True):
            return Stopped("the command was told to stop midway; what it did by then is not known")
        case Done() if check and (failure := _failure_of(outcome)):
            # With `check`, this outcome is an error, which a verdict cannot express.
            return Unknown(str(failure))
        case Done():
            return Happened(_result(outcome))


@tool(
    # With `check`, the caller declares that a failed command may be run again.
    effect=verifiable(_verify_shell, local=True, did_not_happen=(CommandFailed, BadInput)),
    name="shell",
    raises=(CommandFailed, CommandTimedOut, CommandNotStarted, CommandCutShort, BadInput),
)
async def shell(
    command: str | Sequence[str],
    *,
    cwd: str | None = None,
    env: Mapping[str, str | None] | None = None,
    timeout_s: float | None = None,
    check: bool = False,
    receipts: str | None = None,
    stdin: str | None = None,
) -> ShellResult:
    """Run a command, at most once for each effect; its outcome is known even if this process dies meanwhile.

    A string is passed to /bin/sh; a list is run as it is. `env` is added to the environment of this process;
    a value of None removes a name. The command reads `stdin`, or nothing, and has no terminal.

    A separate process, the witness, runs the command, survives this process and writes a receipt. After a
    crash the receipt tells the outcome; if the command still runs, the next process waits for it. The outcome
    is unknown only if the witness was killed, too (with the machine, the container, the cgroup).

    Every end of a command is a result: any exit status, a signal, and the end of `timeout_s`, at which the
    command and its process group are asked to stop and then killed. With `check`, a command that fails raises
    CommandFailed, and a retry of its step or task may run it again; one that was stopped at its timeout may
    have done a part of its work, so a person decides. If the caller is cancelled, the command is stopped in
    the same way, and its outcome is unknown; if its task is cancelled, no person is asked. Processes that the
    command leaves in the background go on, and their output is lost. Raises CommandNotStarted when it never
    began.

    `receipts` is a directory on a local file system; by default `receipts` in Holdfast's home. Use the same
    one after a restart: in another directory, or on another machine, the receipt is not found.
    """
    order = checked_order(command, cwd=cwd, env=env, timeout_s=timeout_s, stdin=stdin)
    order = msgspec.structs.replace(order, seal_key=receipt_key())
    done = await run_with_receipt(current_key(), order, receipts_place(receipts))
    if check and (failure := _failure_of(done)):
        raise failure
    return _result(done)


async def run_with_receipt(key: str, order: CommandOrder, receipts: Path) -> Done:
    """Run the command under this key; if it was run before, return that outcome."""
    receipt = Receipt(make_directory(receipts), key, order.seal_key)
    with receipt.held() as descriptor:
        if descriptor is not None:
            said = ""
            if receipt.is_blank(descriptor):
                order = msgspec.structs.replace(order, started=descriptor, done=str(receipt.done))
                said = await _attend(order)
            return _seen(receipt.read(descriptor), said)
    # A process that was taken for dead still runs it: wait for that one, and never start the command twice.
    return _seen(await find_outcome(key, receipts, patience_s=PATIENCE_S, seal_key=order.seal_key), "")


async def find_outcome(
    key: str, receipts: Path, *, patience_s: float, seal_key: bytes | None = None
) -> Outcome:
    """The outcome of the command of this key; waits for one that still runs.

    After NotBegun, no command can ever begin under this key.
    """
    receipt = Receipt(make_directory(receipts), key, seal_key)
    give_up_at, pause_s = time.monotonic() + patience_s, _FIRST_LOOK_S
    while True:
        with receipt.held() as descriptor:
            if descriptor is not None:
                return receipt.read(descriptor)
        if time.monotonic() >= give_up_at:
            return CommandInterrupted(f"the command is still running after {patience_s:g} s")
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 1.5, _MOST_BETWEEN_LOOKS_S)


async def _attend(order: CommandOrder) -> str:
    """Pass the command to a witness and wait for it; returns what the witness printed as its own error."""
    try:
        witness = await _start_witness(order.started)
    except OSError as error:
        raise CommandNotStarted(f"no process can be started: {error.strerror}") from error
    try:
        _, complaint = await witness.communicate(msgspec.json.encode(order))
    except asyncio.CancelledError:
        with contextlib.suppress(ProcessLookupError):
            witness.terminate()
        await witness.wait()
        raise
    return complaint.decode("utf-8", "replace")


async def _start_witness(receipt: int) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", "-X", "utf8", "-c", _WITNESS, *_import_path()),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        pass_fds=(receipt,),
        # Ctrl-C and signals to this process group must not reach the witness.
        start_new_session=True,
    )


def _import_path() -> list[str]:
    """The import path for the witness, so that it runs the same code; this package's place comes first."""
    return [str(Path(one).absolute()) for one in (str(Path(__file__).parents[2]), *sys.path)]


def _seen(outcome: Outcome, said: str) -> Done:
    match outcome:
        case ReceiptMissing(why):
            raise CommandNotStarted(shown(said) or why)
        case CommandInterrupted(why):
            raise CommandCutShort(why)
        case Done(was_stopped=True):
            raise CommandCutShort("the command was told to stop midway")
        case Done():
            return outcome


def _failure_of(done: Done) -> CommandFailed | CommandTimedOut | None:
    if done.has_timed_out:
        return CommandTimedOut(done.stderr)
    return None if done.exit_code == 0 else CommandFailed(done.exit_code, done.stderr)


def _result(done: Done) -> ShellResult:
    return ShellResult(**{name: getattr(done, name) for name in ShellResult.__struct_fields__})


# --- checks of arguments


def checked_order(
    command: object,
    *,
    cwd: object = None,
    env: object = None,
    timeout_s: object = None,
    stdin: object = None,
) -> CommandOrder:
    return CommandOrder(
        started=-1,
        done="",
        argv=_checked_command(command),
        cwd=None if cwd is None else str(check_directory("cwd", cwd)),
        env={} if env is None else _checked_env(env),
        timeout_s=None if timeout_s is None else check_seconds("timeout_s", timeout_s),
        grace_s=GRACE_S,
        max_output_bytes=MAX_OUTPUT_BYTES,
        stdin=None if stdin is None else _checked_stdin(stdin),
    )


def _checked_command(command: object) -> list[str]:
    if isinstance(command, str):
        if not command.strip():
            raise BadInput("command", "is empty")
        return ["/bin/sh", "-c", check_word("command", command)]
    if not isinstance(command, Sequence) or isinstance(command, (bytes, bytearray, memoryview)):
        raise BadInput("command", f"text or a list of texts is needed, not {type(command).__name__}")
    words = [check_word("command", word) for word in command]
    if not words or not words[0].strip():
        raise BadInput("command", "is empty")
    return words


def _checked_stdin(stdin: object) -> str:
    if not isinstance(stdin, str):
        raise BadInput("stdin", f"text is needed, not {type(stdin).__name__}")
    try:
        stdin.encode()
    except UnicodeEncodeError as error:
        raise BadInput("stdin", f"half of a surrogate pair at {error.start}; it is not valid text") from error
    return stdin


def _checked_env(env: object) -> dict[str, str | None]:
    if not isinstance(env, Mapping):
        raise BadInput("env", f"names and values are needed, not {type(env).__name__}")
    checked = {}
    for name, value in env.items():
        if not check_word("env", name) or "=" in name:
            raise BadInput("env", f"{name!r} cannot be the name of a variable")
        checked[name] = None if value is None else check_word(f"env {name}", value)
    return checked


def receipts_place(given: str | None) -> Path:
    return default_home(os.environ) / "receipts" if given is None else check_path("receipts", given)
