"""The agents of the fleet's tests: what they do to the world is one line in a file for each thing done."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import holdfast as hf
from holdfast.core.message import Envelope

STEPS = 4


def world() -> Path:
    return Path(os.environ["HOLDFAST_HOME"]) / "world"


def note(name: str, line: str) -> None:
    """One line, whole, also when several processes write."""
    with (world() / name).open("ab", buffering=0) as file:
        file.write(line.encode() + b"\n")


def was_noted(name: str, line: str) -> bool:
    path = world() / name
    return path.exists() and line in path.read_text().splitlines()


def _verify(name: str, line: str) -> hf.Happened | hf.DidNotHappen:
    return hf.Happened(line) if was_noted(name, line) else hf.DidNotHappen()


@hf.verifiable(_verify)
async def dig(name: str, line: str) -> str:
    await asyncio.sleep(random.uniform(0.0, 0.05))
    note(name, line)
    return line


@hf.task
async def gardener(run: hf.Run, message: Envelope) -> str:
    """Digs a few beds, one after another, and says which message it did that for."""
    done = run.list("done")
    async for item in run.plan([f"bed-{number}" for number in range(STEPS)]):
        done.append(await item.step(dig, message.session_key.replace(":", "-"), f"{message.id} {item.id}"))
    return f"{message.text}: {len(done)} beds"
