"""Tasks that workers of tests carry: what each did is a line in the log that WORLD names."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import holdfast as hf

WORLD = "HOLDFAST_TEST_WORLD"


def note(text: str) -> None:
    with (Path(os.environ[WORLD]) / "world.log").open("a", encoding="utf-8") as log:
        log.write(f"{text} {os.getpid()}\n")


async def begin(item: str) -> str:
    note(f"+{item}")
    return item


async def work(item: str) -> str:
    await asyncio.sleep(0.02)
    note(f"={item}")
    return item


async def end(item: str) -> str:
    note(f"-{item}")
    return item


@hf.task
async def analyse(run: hf.Run, item: dict[str, object]) -> str:
    name = f"{item['phase']}/{item['id']}"
    await run.step(begin, name)
    await run.step(work, name)
    return await run.step(end, name)


@hf.task
async def upgrade(run: hf.Run) -> str:
    note("before")
    await run.step(begin, "upgrade")
    await run.requires_restart("new code is there")
    return await run.step(end, "upgrade")


async def at_door() -> None:
    note("waiting")
    while not (Path(os.environ[WORLD]) / "door").exists():  # noqa: ASYNC110 - another process opens it
        await asyncio.sleep(0.005)


@hf.task
async def waits(run: hf.Run) -> str:
    await run.step(at_door)
    return await run.step(end, "waits")


@hf.opaque
async def mail() -> str:
    note("mailed")
    return "sent"


@hf.task
async def mails(run: hf.Run) -> str:
    return await run.step(mail)


@hf.task(backoff="0s")
async def fails(run: hf.Run) -> None:
    note("tried")
    raise ValueError("no")
