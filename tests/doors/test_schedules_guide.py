"""The guide to schedules: its commands, settings and programs, word for word."""

from __future__ import annotations

import asyncio
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from tests.architecture.source import DOCS
from tests.doors.calls import Opens, Run

PAGE = (DOCS / "guides" / "schedules.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


def blocks(language: str) -> list[str]:
    return [text for kind, text in BLOCK.findall(PAGE) if kind == language]


@pytest.fixture
def guide(home: Path, ledger: Opens, monkeypatch: pytest.MonkeyPatch) -> Path:
    home.mkdir()
    (settings,) = blocks("toml")
    (home / "holdfast.toml").write_text(settings + '\n[gateway]\npython_path = ["."]\n')
    (home / "reports.py").write_text(blocks("python")[0])
    monkeypatch.syspath_prepend(str(home))
    monkeypatch.delitem(sys.modules, "reports", raising=False)
    with ledger():
        pass
    return home


def test_every_command_of_the_guide_works_in_its_order(run: Run, guide: Path) -> None:
    (text,) = blocks("sh")
    for line in text.splitlines():
        called = run(*shlex.split(line)[1:])

        assert called.status == 0, f"{line}: {called.err}"

    assert run("config", "check").status == 0
    assert {one["id"] for one in run("cron", "list", "--json").json["jobs"]} == {"sweep", "weekly"}


def test_the_program_of_the_guide_runs(guide: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {"__name__": "reports"}
    exec(compile("\n".join(blocks("python")), "schedules.md", "exec"), names)

    @hf.task(name="agent.scholar")
    async def scholar(run: hf.Run) -> None: ...

    async def life() -> None:
        url = f"sqlite:///{guide / 'ledger.db'}"
        async with hf.open(url, tasks=[names["nightly"], scholar], home=guide) as holdfast:
            await names["plan"](holdfast)
            assert [one.name for one in await holdfast.schedules.page()] == ["monthly", "tea"]

    asyncio.run(life())

    assert "fire_" in capsys.readouterr().out
