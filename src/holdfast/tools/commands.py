"""A tool that runs a command with a receipt, so that its outcome is known even when we die meanwhile."""

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
from holdfast.core.effect_class import DidNotHappen, Happened, Stopped, Unknown, Verdict, tool, verifiable
from holdfast.core.errors import BadInput
from holdfast.tools.errors import CommandCutShort, CommandFailed, CommandNotStarted, CommandTimedOut, shown
from holdfast.tools.inputs import (
    check_directory,
    check_path,
    check_seconds,
    check_word,
    current_key,
    receipt_key,
)
from holdfast.tools.receipts import CutShort, NotBegun, Outcome, Receipt, make_directory
from holdfast.tools.witness import Done, Order

MAX_OUTPUT_BYTES = 256 * 1024
GRACE_S = 5.0
# How long whoever comes after a crash waits for a command that has no limit of its own.
PATIENCE_S = 3600.0

_FIRST_LOOK_S, _MOST_BETWEEN_LOOKS_S = 0.01, 1.0
_WITNESS = "import sys; sys.path[:] = sys.argv[1:]; from holdfast.tools.witness import main; main()"


class ShellResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended. A negative exit code is the signal that ended it.

    Of what it said beyond the cap the middle is left out, with a line that says so.
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
        current_key(), _receipts(receipts), patience_s=patience_s, seal_key=receipt_key(is_for_reading=True)
    )
    match outcome:
        case NotBegun():
            return DidNotHappen()
        case CutShort(why):
            return Unknown(why)
        case Done(was_stopped=True):
            return Stopped("the command was told to stop midway; what it did by then is not known")
        case Done() if check and (failure := _failure_of(outcome)):
            # Who checks was promised an error, and a verdict cannot be one.
            return Unknown(str(failure))
        case Done():
            return Happened(_result(outcome))


@tool(
    # With `check` the caller says that a command which fails has done nothing that counts.
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
    """Run a command, at most once for each effect, and remember how it ended even if we die meanwhile.

    A text is given to /bin/sh, a list is run as it stands. `env` is added to our own environment; a value of
    None takes a name away. It reads `stdin`, or nothing, and has no terminal.

    The command belongs to a process of its own that survives ours and writes a receipt. After a crash the
    receipt tells the outcome; a command that still runs is waited for. Only when that process was killed too
    (with the machine, the container, the cgroup) is the outcome unknown.

    Every way in which a command can end is a result: an exit status other than 0, a signal, and the end of
    `timeout_s`, at which it and its group are asked to stop and then killed. With `check` a command that
    fails raises CommandFailed, and may be run again by a retry of its step or of its task; one that was
    stopped because its time was up may have done a part, so a person is asked. When our caller is cancelled
    it is stopped in the same way, and its outcome is unknown; if that is because its task is cancelled, no
    person is asked. What it leaves in the background goes on,
    unheard. Raises CommandNotStarted when it never began.

    `receipts` is a directory on a local file system, `receipts` in Holdfast's home unless given. It must be
    the same in the next life: elsewhere, or on another machine, nothing is known of the command.
    """
    order = _checked_order(command, cwd=cwd, env=env, timeout_s=timeout_s, stdin=stdin)
    order = msgspec.structs.replace(order, seal_key=receipt_key())
    done = await run_with_receipt(current_key(), order, _receipts(receipts))
    if check and (failure := _failure_of(done)):
        raise failure
    return _result(done)


async def run_with_receipt(key: str, order: Order, receipts: Path) -> Done:
    """Run it under this key, unless that was done before; then what came of it counts."""
    receipt = Receipt(make_directory(receipts), key, order.seal_key)
    with receipt.held() as descriptor:
        if descriptor is not None:
            said = ""
            if receipt.is_blank(descriptor):
                order = msgspec.structs.replace(order, started=descriptor, done=str(receipt.done))
                said = await _attend(order)
            return _seen(receipt.read(descriptor), said)
    # Somebody who was taken for dead is at it; to begin a second time is the one thing that we must not do.
    return _seen(await find_outcome(key, receipts, patience_s=PATIENCE_S, seal_key=order.seal_key), "")


async def find_outcome(
    key: str, receipts: Path, *, patience_s: float, seal_key: bytes | None = None
) -> Outcome:
    """What became of the command of this key; one that still runs is waited for.

    After NotBegun, nothing will ever be begun under this key.
    """
    receipt = Receipt(make_directory(receipts), key, seal_key)
    give_up_at, pause_s = time.monotonic() + patience_s, _FIRST_LOOK_S
    while True:
        with receipt.held() as descriptor:
            if descriptor is not None:
                return receipt.read(descriptor)
        if time.monotonic() >= give_up_at:
            return CutShort(f"the command is still running after {patience_s:g} s of waiting for its end")
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 1.5, _MOST_BETWEEN_LOOKS_S)


async def _attend(order: Order) -> str:
    """Give the command to a witness and wait for it; what the witness itself had to complain about."""
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
        # Neither a terminal's Ctrl-C nor a signal to our group is meant for it.
        start_new_session=True,
    )


def _import_path() -> list[str]:
    """Where the witness finds the same code as we do; first of all where we come from ourselves."""
    return [str(Path(one).absolute()) for one in (str(Path(__file__).parents[2]), *sys.path)]


def _seen(outcome: Outcome, said: str) -> Done:
    match outcome:
        case NotBegun(why):
            raise CommandNotStarted(shown(said) or why)
        case CutShort(why):
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


# --- what callers hand in


def _checked_order(
    command: object,
    *,
    cwd: object = None,
    env: object = None,
    timeout_s: object = None,
    stdin: object = None,
) -> Order:
    return Order(
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


def _receipts(given: str | None) -> Path:
    return default_home(os.environ) / "receipts" if given is None else check_path("receipts", given)
