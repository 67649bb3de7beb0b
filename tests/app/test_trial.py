"""The trial before a restart: what it finds out, and what becomes of one that finds out nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.app import trial


def trial_of(script: str) -> str | None:
    return asyncio.run(trial.try_next(("-c", script)))


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("print('chatter')", None),
        ("raise SystemExit(78)", "exit status 78"),
        ("import sys; sys.stderr.write('first\\nholdfast: agents.a: no\\n'); sys.exit(78)", "agents.a: no"),
        ("import sys; sys.stderr.buffer.write(b'\\x1b[2J\\xff' * 9); sys.exit(1)", "\ufffd" * 9),
        ("import os; os.kill(os.getpid(), 9)", "exit status -9"),
    ],
)
def test_why_the_next_gateway_could_not_start(script: str, why: str | None) -> None:
    assert trial_of(script) == why


def test_one_that_takes_too_long_is_ended_and_blocks_no_restart(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(trial, "TRIAL_S", 0.05)

    assert trial_of("import time; time.sleep(3600)") is None
    assert "could not check within 0.05 s" in caplog.text


def test_one_that_cannot_be_begun_ends_no_gateway(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse(*_args: Any, **_options: Any) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", refuse)

    assert trial_of("") is None
    assert "Too many open files" in caplog.text
