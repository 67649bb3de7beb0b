"""The task of campaigns that tests create."""

from __future__ import annotations

import asyncio
import sys

import holdfast as hf

print("imported")  # must not reach the stdout of a command


@hf.task
async def analyse(run: hf.Run, item: hf.Item) -> dict[str, str]:
    return {"id": item.id}


@hf.task
async def itemless(run: hf.Run, number: int) -> int:
    return number


@hf.task
async def hold(run: hf.Run, item: hf.Item) -> None:
    """Until its process is killed."""
    print(f"holds {item.id}.", file=sys.stderr, flush=True)
    await asyncio.Event().wait()
