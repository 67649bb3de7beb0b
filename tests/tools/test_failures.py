"""A task whose ready-made tool fails: what is certain is tried again, the rest is put before a person."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.transitions import TaskStatus
from holdfast.testing import FakeClock
from holdfast.tools import git_push, http_request, shell, write_file
from tests.tools.repositories import git, new_repository

pytestmark = pytest.mark.slow


async def ends(tool: Callable[..., Any], *args: Any, **kwargs: Any) -> TaskStatus:
    """How a task ends, or where it stays, that calls the tool and has a second attempt."""
    clock = FakeClock()

    @hf.task(attempts=2, backoff="1s")
    async def works(run: hf.Run) -> None:
        await run.step(tool, *args, **kwargs)

    async with hf.open("memory:", tasks=[works], clock=clock) as holdfast:
        handle = await holdfast.start(works())
        async for event in handle.watch():
            if event.kind == "run_retried":
                clock.advance(minutes=1)
            if event.kind == "run_waited":
                break
        return await handle.status()


async def test_a_command_that_fails_is_run_again_if_its_caller_checks(receipts: str, tmp_path: Path) -> None:
    once = f"echo x >> {tmp_path}/tries; test $(wc -l < {tmp_path}/tries) = 2"

    assert await ends(shell, once, check=True, receipts=receipts) is TaskStatus.SUCCEEDED


async def test_a_command_whose_time_was_up_is_asked_about(receipts: str, tmp_path: Path) -> None:
    half = f"echo x >> {tmp_path}/tries; sleep 60"
    status = await ends(shell, half, timeout_s=0.3, check=True, receipts=receipts)

    assert status is TaskStatus.NEEDS_REVIEW
    assert (tmp_path / "tries").read_text() == "x\n"


async def test_a_command_that_never_began_is_certain(receipts: str) -> None:
    assert await ends(shell, ["no-such-program"], receipts=receipts) is TaskStatus.FAILED


async def test_a_file_that_cannot_be_written_is_certain(tmp_path: Path) -> None:
    (tmp_path / "note").write_text("somebody else's")

    assert await ends(write_file, str(tmp_path / "missing" / "note"), "hello") is TaskStatus.FAILED
    assert await ends(write_file, str(tmp_path / "note"), "hello") is TaskStatus.FAILED


async def test_a_file_whose_directory_cannot_be_flushed_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_spot: object) -> None:
        monkeypatch.undo()
        raise OSError(5, "the disk does not answer")

    monkeypatch.setattr("holdfast.tools.files._sync_directory", fail)

    assert await ends(write_file, str(tmp_path / "note"), "hello") is TaskStatus.SUCCEEDED
    assert (tmp_path / "note").read_text() == "hello"


async def test_a_push_that_the_remote_refuses_is_certain_because_the_remote_is_asked(tmp_path: Path) -> None:
    repo, other = new_repository(tmp_path / "repo"), new_repository(tmp_path / "other")
    git(repo, "commit", "--allow-empty", "-m", "ours")
    git(other, "commit", "--allow-empty", "-m", "theirs")
    git(tmp_path, "init", "-q", "--bare", "remote")
    for one in (other, repo):
        git(one, "branch", "-M", "main")
        git(one, "remote", "add", "origin", str(tmp_path / "remote"))
    git(other, "push", "-q", "origin", "main")

    assert await ends(git_push, str(repo), "main") is TaskStatus.FAILED


async def test_a_request_that_was_never_sent_is_certain() -> None:
    assert (
        await ends(http_request, "POST", "http://127.0.0.1:1/pay", json={}, allow_private=True)
        is TaskStatus.FAILED
    )


async def test_a_request_that_was_never_sent_is_certain_for_a_provider_without_keys_too() -> None:
    request = hf.tool(http_request, effect=hf.opaque)

    assert (
        await ends(request, "POST", "http://127.0.0.1:1/pay", json={}, allow_private=True)
        is TaskStatus.FAILED
    )
