"""The task of campaigns that tests create."""

from __future__ import annotations

import holdfast as hf

print("imported")  # must not reach the stdout of a command


@hf.task
async def analyse(run: hf.Run, item: hf.Item) -> dict[str, str]:
    return {"id": item.id}


@hf.task
async def itemless(run: hf.Run, number: int) -> int:
    return number
