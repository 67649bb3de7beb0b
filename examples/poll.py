"""A long poll: look, sleep, look again, for days if need be. Nothing runs while it sleeps.

Run it with `python examples/poll.py`.
A sleep is counted from when it began: a restart does not begin it anew.
"""

from __future__ import annotations

import asyncio
import sys

import holdfast as hf


@hf.read
async def look_at(export: str, look: int) -> int:
    """How much of it is ready, in percent. A script: a quarter more at each look."""
    percent = min(100, 25 * look)
    print(f"look {look}: {export} is at {percent} %", flush=True)
    return percent


@hf.task(timeout="30d")
async def await_export(run: hf.Run, export: str, every: str = "10m") -> str:
    looks = run.value("looks", 0)  # a local variable would be lost in a restart
    async for turn in run.turns(max=5_000):
        percent = await turn.step(look_at, export, looks.get() + 1)
        looks.set(looks.get() + 1)
        await run.progress(done=percent, total=100)
        if percent == 100:
            return f"{export} was ready at look {looks.get()}"
        await run.sleep(every)
    raise TimeoutError(f"{export} is not ready after 5,000 looks")


async def main(url: str = "sqlite:///poll.db") -> None:
    async with hf.open(url, tasks=[await_export]) as holdfast:
        handle = await holdfast.start(await_export("the archive", every="200ms"), key="the archive")
        print(await handle.result())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
