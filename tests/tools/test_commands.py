"""A command is run once, its receipt tells how it ended, and what is wrong is said by name."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.core.errors import BadInput
from holdfast.core.step_declarations import DidNotHappen, Happened, Unknown
from holdfast.tools import CommandCutShort, CommandFailed, CommandNotStarted, ShellResult, shell
from holdfast.tools.commands import MAX_OUTPUT_BYTES, checked_order, find_outcome, run_with_receipt
from holdfast.tools.receipts import CommandInterrupted, Receipt, make_directory, old_receipts, prune_receipts
from holdfast.tools.witness import Done
from tests.tools.keyed_calls import KEY, call, verify

FAR_FUTURE = datetime(2100, 1, 1, tzinfo=UTC)


async def end_of(fifo: Path) -> str:
    """What was written into it, when everybody who has it open for writing is gone."""
    return await asyncio.to_thread(fifo.read_text)


def witness_of(receipts: str) -> int:
    pid: int = json.loads(Path(receipts, f"{KEY}.started").read_bytes())["witness"]["pid"]
    return pid


@pytest.fixture
def fifo(quick_path: Path) -> Path:
    path = quick_path / "fifo"
    os.mkfifo(path)
    return path


# --- every way to end is a result


async def test_a_command_is_run_and_a_status_other_than_0_is_a_result(
    receipts: str, quick_path: Path
) -> None:
    result = await call(
        shell, KEY, 'echo "$WORD" "$HOME" in "$(pwd)"; cat; echo no >&2; exit 3',
        cwd=str(quick_path), env={"WORD": "tide", "HOME": None}, receipts=receipts,
    )  # fmt: skip

    assert result == ShellResult(exit_code=3, stdout=f"tide  in {quick_path}\n", stderr="no\n")
    assert await verify(shell, KEY, "", receipts=receipts) == Happened(result)


async def test_a_list_is_run_as_it_stands_and_a_signal_is_a_negative_status(receipts: str) -> None:
    command = ["sh", "-c", 'printf %s "$1"; kill -9 $$', "sh", "$HOME *; #"]

    result = await call(shell, KEY, command, receipts=receipts)

    assert (result.stdout, result.exit_code) == ("$HOME *; #", -signal.SIGKILL)


async def test_of_too_much_output_the_middle_is_left_out_and_odd_bytes_are_replaced(receipts: str) -> None:
    command = "printf 'a\\377b'; head -c 3000000 /dev/zero | tr '\\0' x; echo end; printf '\\377' >&2"

    result = await call(shell, KEY, command, receipts=receipts)

    assert result.stdout.startswith("a\ufffdbxxx")
    assert result.stdout.endswith("xxxend\n")
    assert f"[… {3_000_007 - MAX_OUTPUT_BYTES:,} bytes left out …]" in result.stdout
    assert MAX_OUTPUT_BYTES < len(result.stdout) < MAX_OUTPUT_BYTES + 100
    assert (result.is_stdout_cut, result.is_stderr_cut, result.stderr) == (True, False, "\ufffd")


async def test_at_the_end_of_its_time_a_command_is_stopped_with_all_that_it_started(
    receipts: str, fifo: Path
) -> None:
    command = f"exec 9> {fifo}; (trap '' TERM; while :; do sleep 60; done) & sleep 60"
    heard = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)

    result = await call(shell, KEY, command, timeout_s=0.05, receipts=receipts)

    os.set_blocking(heard, True)
    assert await asyncio.to_thread(os.read, heard, 1) == b""  # when everybody who has it open is gone
    os.close(heard)
    assert (result.exit_code, result.has_timed_out) == (-signal.SIGTERM, True)
    assert await verify(shell, KEY, command, timeout_s=0.05, receipts=receipts) == Happened(result)


async def test_what_a_command_leaves_in_the_background_is_not_waited_for(receipts: str) -> None:
    result = await call(shell, KEY, "sleep 60 & echo $!", receipts=receipts)

    os.kill(int(result.stdout), signal.SIGKILL)  # it was still there


async def test_who_checks_gets_an_error_for_a_status_other_than_0(receipts: str) -> None:
    with pytest.raises(CommandFailed, match=r"exit status 2; its stderr: too bad") as failed:
        await call(shell, KEY, "echo too bad >&2; exit 2", check=True, receipts=receipts)

    assert failed.value.exit_code == 2
    # A verdict cannot be an error, and a result would break the promise.
    verdict = await verify(shell, KEY, "", check=True, receipts=receipts)
    assert isinstance(verdict, Unknown)
    assert "exit status 2" in verdict.why


# --- the receipt


async def test_a_command_that_was_never_begun_did_not_happen_and_never_will_under_its_key(
    receipts: str, quick_path: Path
) -> None:
    """Its starter may have been frozen before it began, and wake up when all has been decided."""
    before = await verify(shell, KEY, "", receipts=receipts)

    with pytest.raises(CommandNotStarted):
        await call(shell, KEY, f"touch {quick_path}/late", receipts=receipts)

    assert before == await verify(shell, KEY, "", receipts=receipts) == DidNotHappen()
    assert not (quick_path / "late").exists()


async def test_a_second_call_with_the_same_key_gets_what_came_of_the_first(
    receipts: str, quick_path: Path
) -> None:
    command = f"echo once >> {quick_path}/count; echo done"

    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(call(shell, KEY, command, receipts=receipts)) for _ in range(2)]
    third = await call(shell, KEY, command, receipts=receipts)

    assert [one.result().stdout for one in calls] == [third.stdout, third.stdout] == ["done\n", "done\n"]
    assert (quick_path / "count").read_text() == "once\n"


async def test_a_program_that_is_not_there_was_not_started(receipts: str) -> None:
    with pytest.raises(CommandNotStarted, match="No such file or directory: no-such-program"):
        await call(shell, KEY, ["no-such-program"], receipts=receipts)

    assert await verify(shell, KEY, [], receipts=receipts) == DidNotHappen()


async def test_a_command_that_is_too_long_was_not_started(receipts: str) -> None:
    with pytest.raises(CommandNotStarted, match="Argument list too long"):
        await call(shell, KEY, f": {'x' * 3_000_000}", receipts=receipts)


async def test_a_cancelled_command_is_stopped_and_its_outcome_is_unknown(receipts: str, fifo: Path) -> None:
    command = f"exec 9> {fifo}; echo here > {fifo}; sleep 60 & sleep 60"

    async with asyncio.TaskGroup() as group:
        child = group.create_task(call(shell, KEY, command, receipts=receipts))
        with await asyncio.to_thread(fifo.open) as heard:
            assert await asyncio.to_thread(heard.readline) == "here\n"
            child.cancel()
            assert await asyncio.to_thread(heard.read) == ""  # everybody who could say more is gone
    verdict = await verify(shell, KEY, command, receipts=receipts)

    assert child.cancelled()
    assert isinstance(verdict, Unknown)
    assert "told to stop midway" in verdict.why


async def test_a_command_that_does_not_want_to_stop_is_killed_after_the_grace(
    quick_path: Path, fifo: Path
) -> None:
    command = f"trap '' TERM; echo here > {fifo}; while :; do sleep 60; done"
    order = msgspec.structs.replace(checked_order(command), grace_s=0.01)

    async with asyncio.TaskGroup() as group:
        child = group.create_task(run_with_receipt(KEY, order, quick_path))
        await end_of(fifo)
        child.cancel()
    outcome = await find_outcome(KEY, quick_path, patience_s=0)

    assert outcome == Done(exit_code=-signal.SIGKILL, was_stopped=True)


async def test_a_command_whose_witness_is_killed_leaves_its_outcome_open(receipts: str, fifo: Path) -> None:
    command = f"echo $$ > {fifo}; exec sleep 60"

    async def kill_both() -> None:
        process_group = int(await end_of(fifo))
        os.kill(witness_of(receipts), signal.SIGKILL)
        os.killpg(process_group, signal.SIGKILL)

    async with asyncio.TaskGroup() as group:
        group.create_task(kill_both())
        with pytest.raises(CommandCutShort, match="killed midway") as cut:
            await call(shell, KEY, command, receipts=receipts)

    assert isinstance(cut.value, EOFError)  # the engine asks the world
    verdict = await verify(shell, KEY, command, receipts=receipts)
    assert isinstance(verdict, Unknown)
    assert "the command was killed midway" in verdict.why


async def test_a_command_that_does_not_end_is_waited_for_only_so_long(quick_path: Path) -> None:
    with Receipt(quick_path, KEY).held():  # by another process
        outcome = await find_outcome(KEY, quick_path, patience_s=0.02)

    assert outcome == CommandInterrupted("the command is still running after 0.02 s")


def test_a_program_gets_what_a_command_said_as_it_was(receipts: str) -> None:
    secret = "ghp_" + "0aZ9" * 9  # put together here, so that it is none

    result = asyncio.run(call(shell, KEY, f"echo {secret}; echo password=hunter2! >&2", receipts=receipts))

    assert (result.stdout, result.stderr) == (f"{secret}\n", "password=hunter2!\n")


def test_the_words_of_a_command_that_failed_are_redacted_in_the_error(receipts: str) -> None:
    with pytest.raises(CommandFailed) as failed:
        asyncio.run(call(shell, KEY, "echo password=hunter2! >&2; exit 3", receipts=receipts, check=True))

    assert "hunter2" not in str(failed.value)
    assert failed.value.stderr == "password=hunter2!\n"


def test_a_receipt_is_for_its_owner_alone(receipts: str) -> None:
    asyncio.run(call(shell, KEY, "echo", receipts=receipts))

    assert stat.S_IMODE(Path(receipts).stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in Path(receipts).iterdir()} == {0o600}


def test_a_receipt_that_cannot_be_read_tells_nothing(quick_path: Path) -> None:
    receipt = Receipt(quick_path, KEY)
    receipt.started.write_text('{"pid":1}')
    receipt.done.write_text('{"exit_code":')

    with receipt.held() as descriptor:
        assert descriptor is not None
        outcome = receipt.read(descriptor)

    assert isinstance(outcome, CommandInterrupted)
    assert "cannot be read" in outcome.why


def test_old_receipts_are_pruned_but_not_those_of_running_commands(quick_path: Path) -> None:
    for key in ("old", "running"):
        Receipt(quick_path, key).started.write_text("{}")
        Receipt(quick_path, key).done.write_text("{}")

    none = old_receipts(quick_path, before=FAR_FUTURE - timedelta(days=365 * 90))
    old = old_receipts(quick_path, before=FAR_FUTURE)
    with Receipt(quick_path, "running").held():
        pruned = prune_receipts(quick_path, old)

    assert (none, old, pruned) == ([], ["old", "running"], 1)
    assert sorted(path.name for path in quick_path.iterdir()) == ["running.done", "running.started"]


def test_where_no_command_has_ever_run_there_is_nothing_to_prune(quick_path: Path) -> None:
    assert old_receipts(quick_path / "nowhere", before=FAR_FUTURE) == []


def test_a_lock_on_a_receipt_that_was_pruned_meanwhile_is_worth_nothing(quick_path: Path) -> None:
    receipt = Receipt(quick_path, KEY)

    with receipt.held() as first:
        receipt.started.unlink()
        with receipt.held() as second:
            assert None not in (first, second)


# --- what is wrong is said by name


@pytest.mark.parametrize("text", ["", "tides?", "line\nline\n", "🌊" * 100_000])
async def test_a_command_reads_what_it_is_given(receipts: str, text: str) -> None:
    result = await call(shell, KEY, ["wc", "-c"], stdin=text, receipts=receipts)

    assert result.stdout.strip() == str(len(text.encode()))
    assert await verify(shell, KEY, ["wc", "-c"], stdin=text, receipts=receipts) == Happened(result)


async def test_a_command_that_is_given_nothing_reads_nothing(receipts: str) -> None:
    assert (await call(shell, KEY, ["cat"], receipts=receipts)).stdout == ""


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("", "is empty"),
        (" \n", "is empty"),
        ([], "is empty"),
        (["", "a"], "is empty"),
        ("a\0b", "a NUL at 1"),
        (["a", "b\0"], "a NUL at 1"),
        ("\ud800", "surrogate"),
        (b"ls", "not bytes"),
        (7, "not int"),
        (None, "not NoneType"),
        (["ls", 7], "not int"),
    ],
)
def test_no_such_command(receipts: str, command: Any, problem: str) -> None:
    with pytest.raises(BadInput, match=rf"command: .*{problem}"):
        asyncio.run(call(shell, KEY, command, receipts=receipts))

    assert not Path(receipts).exists()


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"cwd": "/no/such/place"}, "cwd"),
        ({"cwd": 7}, "cwd"),
        ({"cwd": ""}, "cwd"),
        ({"env": {"A=B": "c"}}, "env"),
        ({"env": {"": "c"}}, "env"),
        ({"env": {"A": "c\0"}}, "env A"),
        ({"env": {"A": 7}}, "env A"),
        ({"env": ["A"]}, "env"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"timeout_s": -1}, "timeout_s"),
        ({"timeout_s": float("nan")}, "timeout_s"),
        ({"timeout_s": "5"}, "timeout_s"),
        ({"timeout_s": True}, "timeout_s"),
        ({"stdin": 7}, "stdin"),
        ({"stdin": "\ud800"}, "stdin"),
        ({"receipts": ""}, "receipts"),
        ({"receipts": 7}, "receipts"),
        ({"receipts": "/dev/null"}, "receipts"),
        ({"receipts": "/dev/null/below"}, "receipts"),
    ],
)
async def test_no_such_option(receipts: str, options: Any, field: str) -> None:
    with pytest.raises(BadInput) as refusal:
        await call(shell, KEY, "true", **{"receipts": receipts, **options})

    assert refusal.value.field == field


@pytest.mark.parametrize("key", ["", "../up", "a/b", ".", "a" * 300, "a\0"])
def test_no_such_key(quick_path: Path, key: str) -> None:
    with pytest.raises(BadInput, match="cannot name a receipt"):
        Receipt(quick_path, key)


def test_receipts_lie_in_the_home_unless_it_is_said_otherwise(
    monkeypatch: pytest.MonkeyPatch, quick_path: Path
) -> None:
    monkeypatch.setenv("HOLDFAST_HOME", str(quick_path))

    asyncio.run(verify(shell, KEY, "true"))

    assert (quick_path / "receipts" / f"{KEY}.started").exists()


def test_a_place_for_receipts_that_cannot_be_made_is_named(quick_path: Path) -> None:
    (quick_path / "file").touch()

    with pytest.raises(BadInput, match=r"receipts: .*/file/below"):
        make_directory(quick_path / "file" / "below")


def _kept(receipts: str) -> bytes:
    kept = [path.read_bytes() for path in Path(receipts).iterdir()]
    assert kept
    return b"".join(kept)


async def test_what_a_command_says_comes_whole_and_its_receipt_is_sealed(receipts: str) -> None:
    password = "-".join(["correct", "horse", "battery"])

    done = await call(shell, KEY, f"echo 'password: {password}'", receipts=receipts)
    again = await verify(shell, KEY, "whatever it was", receipts=receipts)

    assert done.stdout == f"password: {password}\n"
    assert again == Happened(done)
    assert b"horse" not in _kept(receipts)


async def test_a_receipt_whose_key_is_gone_leaves_the_outcome_open(receipts: str) -> None:
    await call(shell, KEY, "echo 'password: correct-horse'", receipts=receipts)

    outcome = await find_outcome(KEY, Path(receipts), patience_s=0, seal_key=bytes(32))

    assert isinstance(outcome, CommandInterrupted)
    assert "sealed with a key that is not at hand" in outcome.why
