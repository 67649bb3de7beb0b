"""The guide to campaigns: its commands word for word, with the output that it shows."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.store.sqlite_file import connect_beside
from tests.analysis.trees import repository
from tests.architecture.source import DOCS
from tests.examples.test_guides import BLOCK

pytestmark = pytest.mark.slow

GUIDE = DOCS / "guides" / "campaigns.md"
# What the guide shows in place of the directories of the test.
USER = "/home/ada"
HOME = f"{USER}/.local/state/holdfast"
PATIENCE_S = 60.0


class GuideShell:
    """A user's shell: commands run one after another, workers in the background."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.environ = os.environ | {
            "HOLDFAST_HOME": str(place / "home"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self.workers: list[subprocess.Popen[bytes]] = []

    def run(self, command: str) -> str:
        """What it prints on stdout."""
        if command.startswith("holdfast worker"):
            self.workers.append(
                subprocess.Popen(command.split(), cwd=self.place, env=self.environ, stderr=subprocess.DEVNULL)
            )
            return ""
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.place,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, (command, done.stderr)
        return done.stdout.replace(str(self.place / "home"), HOME).replace(str(self.place), USER)

    def settle(self) -> None:
        """Wait until no campaign runs, as a person would who watches the screen."""
        give_up_at = time.monotonic() + PATIENCE_S
        while self.workers and "running" in self._statuses():
            assert time.monotonic() < give_up_at, self.run("holdfast progress --once")
            time.sleep(0.1)

    def _statuses(self) -> set[str]:
        """From the ledger: a process for each look would cost more than all commands of the guide."""
        with contextlib.closing(connect_beside(self.place / "home" / "ledger.db")) as connection:
            return {status for (status,) in connection.execute("SELECT status FROM campaigns")}

    def close(self) -> None:
        for worker in self.workers:
            worker.send_signal(signal.SIGTERM)
        for worker in self.workers:
            assert worker.wait(timeout=PATIENCE_S) == 0


@pytest.fixture
def terminal(quick_path: Path) -> Iterator[GuideShell]:
    opened = GuideShell(quick_path)
    with contextlib.closing(opened):
        yield opened


def make_repositories(repos: Path) -> None:
    """The folder that the guide is about."""
    now = datetime.now(UTC)  # noqa: TID251 - recommendations follow from the real time
    shop = {f"shop/{number}.py": "def sell():\n    return 1\n" for number in range(120)}
    tests = "def test_sell():\n    assert 1\n"
    manifest = '[project]\nname = "shop"\ndependencies = ["requests", "rich", "tools"]\n'
    more = {"tests/test_shop.py": tests, ".gitlab-ci.yml": "test:\n", "pyproject.toml": manifest}
    repository(repos / "shop", {**shop, **more}, at=now)
    tools = {"tools.py": "# Tools.\nx = 1\n", "pyproject.toml": '[project]\nname = "tools"\n'}
    repository(repos / "tools", dict(tools), at=now - timedelta(days=200))
    repository(repos / "legacy", {"main.go": "package main\n"}, at=now - timedelta(days=4000))


def test_the_commands_of_the_guide_print_what_it_shows(terminal: GuideShell) -> None:
    make_repositories(terminal.place / "repos")
    printed = ""
    unlike = []
    for language, block in BLOCK.findall(GUIDE.read_text(encoding="utf-8")):
        match language:
            case "python":
                name = re.match(r"# (\w+\.py)\n", block)
                assert name is not None
                (terminal.place / name[1]).write_text(block)
            case "bash":
                printed = ""
                for command in block.replace("\\\n", " ").splitlines():
                    terminal.settle()
                    printed += terminal.run(command)
            case "text":
                if not is_like(block, printed):
                    unlike.append((block, printed))

    assert unlike == [], "\n".join(f"the guide shows\n{block}\nand it is\n{real}" for block, real in unlike)


def is_like(shown: str, printed: str) -> bool:
    """Whether the output is as shown; an ellipsis stands for anything in one line."""
    pattern = "[^\n]*".join(map(re.escape, shown.strip().split("…")))
    return re.fullmatch(pattern, printed.strip()) is not None


def test_an_ellipsis_stands_for_one_line_and_nothing_else() -> None:
    assert is_like("a … c\n", "a b c\n")
    assert not is_like("a … c\n", "a b\nc\n")
    assert not is_like("a\n", "a\nb\n")
