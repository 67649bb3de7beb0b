"""Agents of the gateway's tests: what they do to the world is one line in a file for each thing done."""

from __future__ import annotations

import asyncio
import hashlib
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


def harvest() -> Path:
    """Where the files lie that agents leave; not in the world, of which each line counts."""
    return Path(os.environ["HOLDFAST_HOME"]) / "harvest"


def order_for(message_id: str) -> str:
    """What stands in the file that the gardener leaves for a message."""
    return f"dig {STEPS} beds for {message_id}"


def left_for(message_id: str) -> dict[str, str]:
    """What the gardener leaves for a message, in the order in which it does: the checksum of each."""
    beds = {f"bed-{number}": f"{message_id} bed-{number}" for number in range(STEPS)}
    texts = {"order": order_for(message_id), **beds}
    return {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}


def write_order(message_id: str) -> str:
    """Whole or not at all, also when it is killed; the same when it is done again."""
    path = harvest() / message_id
    path.parent.mkdir(exist_ok=True)
    beside = path.with_suffix(f".{os.getpid()}")
    beside.write_text(order_for(message_id))
    beside.rename(path)
    return str(path)


@hf.task
async def gardener(run: hf.Run, message: Envelope) -> str:
    """Digs a few beds, one after another, and says which message it did that for.

    It leaves a file, and a line in the ledger for each bed.
    """
    await run.artifact(await run.step(write_order, message.id), name="order")
    done = run.list("done")
    async for item in run.plan([f"bed-{number}" for number in range(STEPS)]):
        line = await item.step(dig, message.session_key.replace(":", "-"), f"{message.id} {item.id}")
        await run.output(item.id, line)
        done.append(line)
    return f"{message.text}: {len(done)} beds"
