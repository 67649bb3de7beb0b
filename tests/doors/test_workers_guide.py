"""The guide to workers, word for word: its module is written down, and its commands run in their order."""

from __future__ import annotations

import asyncio
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.core.campaign import CampaignSpec, Item, Phase
from tests.doors.calls import PROGRAM, environment

pytestmark = pytest.mark.slow

GUIDE = (Path(__file__).parents[2] / "docs/guides/workers.md").read_text(encoding="utf-8")
COMMANDS = [
    line
    for block in re.findall(r"<!-- begin commands -->\n\n```\n(.*?)```", GUIDE, re.DOTALL)
    for line in block.splitlines()
]


def words(line: str) -> list[str]:
    program, *rest = shlex.split(line)
    assert program == "holdfast"
    return [*PROGRAM, *rest]


async def a_campaign(url: str, home: Path) -> None:
    """One that has not started, so that its agents can be changed as the guide says."""
    spec = CampaignSpec(phases=(Phase(name="analysis", task="analyse"),))
    async with hf.open(url, home=home) as holdfast:
        await holdfast.campaigns().create("rd-os", spec, [Item(id="repo-001"), Item(id="repo-002")])


def test_the_commands_of_the_guide_do_what_it_says(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (module,) = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    (tmp_path / "analysis.py").write_text(module, encoding="utf-8")
    where = {"cwd": tmp_path, "env": environment(home), "text": True}
    first, *others = COMMANDS
    worker = subprocess.Popen(words(first), stderr=subprocess.PIPE, **where)  # type: ignore[call-overload]
    try:
        assert "carries 1 task" in worker.stderr.readline()
        asyncio.run(a_campaign(f"sqlite:///{home / 'ledger.db'}", home))
        said = {}
        for line in others:
            done = subprocess.run(words(line), capture_output=True, check=False, timeout=60, **where)  # type: ignore[call-overload]
            assert done.returncode == 0, f"{line}: {done.stderr}"
            said[line] = done.stdout
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
    finally:
        worker.kill()
        worker.communicate()

    assert len(others) == 7
    by_word = {line.split()[1] + " " + line.split()[2]: text for line, text in said.items()}
    assert (
        f"ExecStart={sys.executable} -m holdfast worker analysis.py --capacity 50"
        in by_word["worker analysis.py"]
    )
    assert "worker on" in by_word["status --recovery"]
    assert "is paused: it does not start until it is resumed" in by_word["agents pause"]
