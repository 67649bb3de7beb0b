"""An agent schedules prompts for its own session with a tool, within limits, and sees no others."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import NotInRun, StepFailed
from holdfast.core.schedule_spec import ScheduleSpec
from holdfast.engine.program.author_api import Run
from holdfast.engine.schedules.changes import ScheduleLimits, adding
from holdfast.runtimes.contract import AgentInput
from holdfast.schedule.cron import Cron
from holdfast.store import Store
from holdfast.testing import FakeClock
from holdfast.tools import my_schedules, remove_my_schedule, schedule_prompt
from holdfast.tools.schedules import scheduling_within
from tests.engine.stage import Stage
from tests.gateway.chats import KEY, Chat, agent


@pytest.fixture
def stage(store: Store, clock: FakeClock, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(store, clock, tmp_path / "boots")
    yield stage
    stage.kill()


async def test_an_agent_schedules_itself_and_sees_and_removes_only_its_own(
    stage: Stage, store: Store, clock: FakeClock
) -> None:
    spec = ScheduleSpec(every_s=60, agent="other", session="main", prompt="x")
    store.write_now(adding("other", spec, owner="agent:other:main", now=clock.now(), known={"agent.other"}))
    found: dict[str, Any] = {}

    async def speak(run: Run, heard: AgentInput) -> str:
        if heard.message.text != "plan":
            return "hm"
        made = await run.tool(schedule_prompt, {"name": "tea", "prompt": "Tea?", "every": "2h"}, id="1")
        for number, bad in enumerate(({"every": "10s"}, {"every": "3h", "at": "2030-01-01T00:00"}, {})):
            with pytest.raises(StepFailed):
                await run.tool(schedule_prompt, {"name": f"b{number}", "prompt": "x", **bad}, id=f"b{number}")
        with pytest.raises(StepFailed, match="which is the limit"):
            await run.tool(schedule_prompt, {"name": "two", "prompt": "x", "every": "2h"}, id="2")
        found["mine"] = await run.tool(my_schedules, {}, id="3")
        found["not mine"] = await run.tool(remove_my_schedule, {"name": "other"}, id="4")
        return made.name

    limits = ScheduleLimits(most=1, min_interval=timedelta(minutes=5))
    with scheduling_within(lambda: limits):
        chat = await Chat(stage, agent(speak)).begin()
        await chat.say("plan")
        await chat.talk()

    (mine,) = found["mine"].schedules
    assert (mine.name, mine.when, mine.prompt) == ("tea", "every 7200 s", "Tea?")
    assert found["not mine"].removed is False
    stored = store.read_now(lambda tx: tx.schedules.get("tea"))
    assert (stored.owner, stored.spec.session_key) == (KEY, KEY)
    clock.advance(hours=2)
    await Cron(store, clock, {}).run_once()
    said = store.read_now(lambda tx: tx.messages.after(KEY, limit=99))
    assert said[-1].text == "Tea?"


async def test_the_tools_of_schedules_are_for_agents_in_a_run() -> None:
    with pytest.raises(NotInRun):
        await my_schedules()
