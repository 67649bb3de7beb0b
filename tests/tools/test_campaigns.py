"""An agent reads with tools how far its owner's campaigns are, drills down, and sees no others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.core.errors import NotInRun, StepFailed
from holdfast.engine.program.author_api import Run
from holdfast.runtimes.contract import AgentInput
from holdfast.store import Store
from holdfast.testing import FakeClock
from holdfast.tools import campaign_groups, campaign_progress, campaign_sample
from tests.engine.priority_campaign import PHASE, seed_campaign
from tests.engine.stage import Stage
from tests.gateway.chats import KEY, Chat, agent


@pytest.fixture
def stage(store: Store, clock: FakeClock, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(store, clock, tmp_path / "boots")
    yield stage
    stage.kill()


async def test_an_agent_knows_where_its_own_campaign_is(stage: Stage, store: Store, clock: FakeClock) -> None:
    await seed_campaign(store, clock, owner=KEY)
    await seed_campaign(store, clock, name="theirs", owner="agent:other:main")
    found: dict[str, Any] = {}

    async def speak(run: Run, heard: AgentInput) -> str:
        found["context"] = await run.tool(campaign_progress, {}, id="1")
        found["groups"] = await run.tool(campaign_groups, {"by": "priority"}, id="2")
        found["batches"] = await run.tool(campaign_groups, {"after": "20"}, id="3")
        found["sample"] = await run.tool(campaign_sample, {"status": "done", "size": 3}, id="4")
        bad: tuple[tuple[Any, dict[str, Any]], ...] = (
            (campaign_progress, {"campaign": "theirs"}),
            (campaign_progress, {"phase": "packing"}),
            (campaign_groups, {"by": "colour"}),
            (campaign_sample, {"status": "sleeping"}),
            (campaign_sample, {"size": 1000}),
        )
        for number, (tool, given) in enumerate(bad):
            with pytest.raises(StepFailed):
                await run.tool(tool, given, id=f"bad-{number}")
        return "so"

    chat = await Chat(stage, agent(speak)).begin()
    await chat.say("where are we?")
    await chat.talk()

    context = found["context"]
    assert (context["phase"], context["overall"]["percent"]) == (PHASE, 37.5)
    assert context["by_priority"]["P1"] == "80% done 🏃"
    assert len(msgspec.json.encode(context)) <= 2048
    groups = found["groups"]
    assert [(one.name, one.done, one.total) for one in groups.groups] == [
        ("P0", 50, 50),
        ("P1", 80, 100),
        ("P2", 20, 150),
        ("P3", 0, 100),
    ]
    assert [one.name for one in found["batches"].groups][:2] == ["batch-021", "batch-022"]
    assert len(found["batches"].groups) == 20
    sample = found["sample"]
    assert (sample.campaign, sample.of, len(sample.items)) == ("rd-os", 150, 3)
    assert {one.status for one in sample.items} == {"done"}
    assert all(one.agent.startswith(one.id) and "lines_of_code" in one.result for one in sample.items)


async def test_outside_a_run_the_tools_say_so() -> None:
    for tool in (campaign_progress, campaign_groups, campaign_sample):
        with pytest.raises(NotInRun):
            await tool()
