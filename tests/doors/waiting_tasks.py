"""Tasks that come to wait, each for something else; a file named `mended` beside the home lets some go on."""

from __future__ import annotations

import os
from pathlib import Path

import holdfast as hf


def is_mended() -> bool:
    return Path(os.environ["WAITING_TASKS_MENDED"]).exists()


def fail_until_mended() -> str:
    if not is_mended():
        raise ValueError("not mended yet")
    return "mended"


def be_patient() -> str:
    if not is_mended():
        raise hf.RetryAfter(3600.0)
    return "patient"


def tick(number: int) -> int:
    return number


@hf.tool(effect=hf.opaque)
async def pay(amount: int) -> str:
    raise TimeoutError("the bank did not answer")


@hf.task
async def pays(run: hf.Run) -> str | None:
    return await run.tool(pay, {"amount": 3})


@hf.task
async def asks(run: hf.Run) -> str:
    return str(await run.ask("Which colour?", ["red", "blue"]))


@hf.task(budget=hf.budget(steps=1))
async def spends(run: hf.Run) -> int:
    return await run.step(tick, 1) + await run.step(tick, 2)


@hf.task(attempts=1, ladder=[hf.ask()])
async def despairs(run: hf.Run) -> str:
    return await run.step(fail_until_mended)


@hf.task
async def reads(run: hf.Run) -> str:
    return str(await run.receive("post"))


@hf.task
async def sleeps(run: hf.Run) -> str:
    await run.sleep("8h")
    return "awake"


@hf.task
async def is_limited(run: hf.Run) -> str:
    return await run.step(be_patient)


@hf.task(ladder=[hf.retry(3, backoff="1h", most="2h")])
async def tries(run: hf.Run) -> str:
    return await run.step(fail_until_mended)


@hf.task(attempts=1)
async def breaks(run: hf.Run) -> str:
    return await run.step(fail_until_mended)


@hf.opaque
def shape() -> str:
    return "round"


@hf.task(attempts=1)
async def shifts(run: hf.Run) -> str:
    found = await run.step(shape)
    await run.sleep("8h")
    return found


def edited_shifts() -> hf.TaskDefinition[..., str]:
    """The same after an edit that its past does not fit; what was done to the world is not done again."""

    @hf.opaque
    def shape() -> int:
        return 4

    @hf.task(attempts=1, name="shifts")
    async def edited(run: hf.Run) -> str:
        return str(await run.step(shape))

    return edited


@hf.task
async def awaits(run: hf.Run) -> str:
    return await (await run.spawn(asks()))


@hf.task
async def leaves(run: hf.Run) -> str:
    await run.spawn(asks())
    return "left"


@hf.task
async def tells(run: hf.Run, what: str) -> str:
    return what


@hf.task
async def stops(run: hf.Run) -> int:
    """Goes on until it is told to stop, and ends when it is mended."""
    number = 0
    while not is_mended():
        number += 1
        await run.step(tick, number)
        await run.sleep(0.01)
    return number


ALL = (
    *(pays, asks, spends, despairs, reads, sleeps, is_limited),
    *(tries, breaks, shifts, awaits, leaves, tells, stops),
)
