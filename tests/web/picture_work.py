"""The work that the picture of README shows: agents that research, order and ask, and a campaign."""

from __future__ import annotations

import asyncio

import holdfast as hf


@hf.task
async def research(run: hf.Run, topic: str) -> None:
    async for turn in run.turns(max=200):
        await run.progress(done=turn.number, total=200, subtask=f"reading about {topic}")
        await asyncio.sleep(0.2)


@hf.tool(effect=hf.opaque)
async def place_order(licences: int) -> str:
    raise TimeoutError("the shop did not answer within 30 s")


@hf.task
async def order(run: hf.Run, licences: int) -> str | None:
    """Its effect times out, so a person has to decide."""
    return await run.tool(place_order, {"licences": licences})


@hf.task
async def deploy(run: hf.Run, version: str) -> str:
    return str(await run.ask(f"Deploy {version} to production?", ["yes", "no"]))


@hf.task(attempts=1)
async def analyse(run: hf.Run, item: hf.Item) -> dict[str, int]:
    number = int(item.id.rpartition("-")[2])
    if number % 41 == 0:
        raise ValueError(f"repository {item.id} has no commits")
    if number > 130:
        # The rest stays in flight, so that the picture has something that runs.
        await run.sleep("1h")
    return {"lines": number * 1000}
