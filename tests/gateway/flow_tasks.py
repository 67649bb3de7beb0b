"""The task of a flow in real gateways: it notes its word once, and waits for a door if it is told to."""

from __future__ import annotations

import os
import time
from pathlib import Path

import holdfast as hf


@hf.task
async def note(run: hf.Run, word: str, waits: bool = False) -> str:
    await run.step(write, "noted", word)
    if waits:
        await run.step(wait_at_the_door, word)
    return word


def world() -> Path:
    return Path(os.environ["HOLDFAST_HOME"]) / "world"


def write(name: str, word: str) -> None:
    with (world() / name).open("a") as lines:
        lines.write(f"{word}\n")


def wait_at_the_door(word: str) -> None:
    write("waiting", f"{word} {os.getpid()}")
    while not (world() / "flow.open").exists():
        time.sleep(0.02)
