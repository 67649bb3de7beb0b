"""The guide about recorded work does what it says."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from holdfast import producers
from holdfast.core.payload import decode_payload
from holdfast.core.transitions import TaskStatus
from holdfast.runtimes.cron import PastFiring
from holdfast.testing import FakeClock
from holdfast.testing.stores import memory_store
from holdfast.upkeep.proofs import RuntimeProofs
from holdfast.upkeep.sweep import Sweep
from tests.architecture.source import DOCS

PAGE = (DOCS / "guides" / "record-work.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)
RECORD = producers.NewRecord(
    name="render", goal="render the title", owner="ada", runtime="media", run_id="r-1"
)


def blocks(language: str) -> list[str]:
    return [block for given, block in BLOCK.findall(PAGE) if given == language]


@pytest.fixture(scope="module")
def programs() -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "studio"}
    exec(compile("\n".join(blocks("python")), "record-work.md", "exec"), names)
    return names


@pytest.mark.slow
async def test_the_block_of_the_guide_is_recorded(
    programs: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import holdfast as hf

    url = f"sqlite:///{tmp_path / 'work.db'}"
    monkeypatch.setenv("HOLDFAST_STORE", url)
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))

    await programs["render"]("the title")

    async with hf.open(url, home=tmp_path) as opened:
        (task,) = opened.store.read_now(lambda tx: tx.tasks.page(limit=9))
    assert (task.goal, task.status) == ("render the title", TaskStatus.SUCCEEDED)
    assert decode_payload(task.result or b"") == {"frames": 3}


async def test_the_calls_of_the_guide_end_in_success(programs: dict[str, Any]) -> None:
    clock = FakeClock()
    recorder = producers.Producers(memory_store(clock), clock)

    await programs["build"](recorder)

    work = await recorder.get("build-17")
    assert work.task.status is TaskStatus.SUCCEEDED
    assert work.details is not None
    assert (work.details.terminal_summary, work.details.last_tool_name) == ("no warnings", "ld")


async def test_the_runtime_of_the_guide_starts_the_work_of_a_dead_process_again(
    programs: dict[str, Any], tmp_path: Path
) -> None:
    clock = FakeClock()
    store = memory_store(clock)
    recorder = producers.Producers(store, clock)
    await recorder.create(RECORD, is_running=True)
    (tmp_path / "r-1").mkdir()
    (tmp_path / "r-1" / "0.ppm").write_bytes(b"from before the restart")
    renderer = programs["Renderer"](tmp_path)
    sweep = Sweep(store, clock, proofs=RuntimeProofs([renderer]))

    clock.advance(minutes=20)
    await sweep.apply(await sweep.plan(prunes=False))
    restarted = (await recorder.get("r-1")).task.status
    await renderer.rendering["r-1"]
    clock.advance(minutes=20)
    await sweep.apply(await sweep.plan(prunes=False))

    ended = (await recorder.get("r-1")).task
    assert (restarted, ended.status) == (TaskStatus.RUNNING, TaskStatus.SUCCEEDED)
    assert decode_payload(ended.result or b"") == {"frames": 3}
    assert (tmp_path / "r-1" / "0.ppm").read_bytes() == b"from before the restart", "done once"


async def test_the_runtime_of_the_guide_stops_its_work_and_only_its_own(
    programs: dict[str, Any], tmp_path: Path
) -> None:
    async def render_for_ever(_run_id: str) -> None:
        await asyncio.Event().wait()

    clock = FakeClock()
    renderer = programs["Renderer"](tmp_path)
    renderer.render = render_for_ever
    recorder = producers.Producers(memory_store(clock), clock, runtimes=[renderer])
    work = await recorder.create(RECORD, is_running=True)
    foreign = await renderer.cancel(work, "enough")

    async with asyncio.TaskGroup() as group:
        renderer.begin("r-1", group)
        child = renderer.rendering["r-1"]
        alive = await renderer.is_alive(work)
        await recorder.cancel("r-1", reason="enough")

    assert foreign == producers.NotMine()
    assert alive == producers.Alive()
    assert child.cancelled()
    assert (await recorder.get("r-1")).task.status is TaskStatus.CANCELLED


def test_the_line_of_the_guide_is_an_end(programs: dict[str, Any]) -> None:
    import msgspec

    (line,) = blocks("json")

    entry = msgspec.json.decode(line, type=PastFiring)

    assert entry.outcome is not None
    assert entry.outcome.status is producers.RunStatus.SUCCEEDED
    assert programs["Studio"]().runtime.name == "acp"


def test_the_guide_lists_every_runtime_that_is_public() -> None:
    listed = set(re.findall(r"^\| `(\w+Runtime)` \|", PAGE, re.MULTILINE))

    public = {name for name in producers.__all__ if name.endswith("Runtime")} - {"Runtime"}
    assert listed == public | {"SubagentRuntime"}
