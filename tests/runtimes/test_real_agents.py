"""The settings of the guide for real command-line agents work with their calling conventions."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.config.sections import AgentSettings, Config
from holdfast.runtimes.agents import definitions
from holdfast.store import Store
from holdfast.testing import FakeClock
from tests.architecture.source import DOCS
from tests.backends import on_sqlite
from tests.engine.stage import Stage
from tests.gateway.chats import Chat

STAND_INS = Path(__file__).with_name("stand_ins")
PAGE = (DOCS / "guides" / "talk-to-agents.md").read_text(encoding="utf-8")


def settings_of(name: str) -> dict[str, Any]:
    found = [tomllib.loads(block) for block in re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)]
    (agent,) = [block["agents"][name] for block in found if name in block.get("agents", {})]
    assert isinstance(agent, dict)
    return agent


@pytest.fixture
def stage(store: Store, clock: FakeClock, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(store, clock, tmp_path / "boots")
    yield stage
    stage.kill()


@on_sqlite
@pytest.mark.parametrize(
    ("name", "program"), [("claude", "claude"), ("codex", "codex"), ("claw", "openclaw")]
)
async def test_a_real_agent_hands_over_its_work_and_goes_on(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, program: str
) -> None:
    place = tmp_path / "bin" / program
    place.parent.mkdir()
    place.write_text(f'#!/bin/sh\nexec {sys.executable} -E -s {STAND_INS / f"{program}.py"} "$@"\n')
    place.chmod(0o755)
    monkeypatch.setenv("PATH", f"{place.parent}:/usr/bin:/bin")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
    monkeypatch.setenv("CODEX_API_KEY", "none")
    (tmp_path / "work").mkdir()
    agent = AgentSettings(**settings_of(name) | {"env": {}})
    chat = await Chat(stage, *definitions(Config(agents={"scholar": agent}), home=tmp_path)).begin()
    await chat.say("Collect the tides.\nAll of them.")

    for _ in range(3):
        await chat.talk()
        await stage.pass_time()

    assert await chat.answers() == ["Finished: dedupe, export"]
    lines = (tmp_path / "work" / "asked").read_text().splitlines()
    first, second = (msgspec.json.decode(line, type=str) for line in lines)
    for prompt in (first, second):
        assert "may work on it for 600 seconds" in prompt
        assert "Collect the tides.\nAll of them." in prompt
    assert "[System] Woken to go on" in second
