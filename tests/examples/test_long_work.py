"""The guide to long work from zero: its program and its commands, word for word."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.test_guides import blocks

pytestmark = pytest.mark.slow


def test_the_commands_of_the_guide_to_long_work_do_what_it_says(quick_path: Path) -> None:
    (program,) = blocks("long-work", "python")
    (quick_path / "report.py").write_text(program)
    commands = [line for block in blocks("long-work", "bash") for line in block.splitlines()]
    said = {command: run(command, quick_path) for command in commands}

    first, trail, history, listed, _ = said.values()
    assert first.strip() == "8"
    what = [line.split()[3] for line in trail.splitlines()[1:]]
    assert what[:5] == ["run", "checkpoint", "checkpoint", "wake", "wake"]
    assert (what.count("resume") >= 1, what[-1]) == (True, "done")
    assert "waiting" in history
    assert "100 %" in history
    assert listed == ""
    assert (quick_path / "report.md").read_text().count("\n") == 7


def run(command: str, home: Path) -> str:
    environ = os.environ | {
        "HOLDFAST_HOME": str(home / "home"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        command.split(), cwd=home, env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
