"""The agents of these tests: a command that answers at once, and tasks that sleep or wait for a file."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import holdfast as hf


@hf.task(name="sleeper")
async def sleeper(run: hf.Run, message: hf.Envelope) -> str:
    await run.sleep("1h")
    return f"slept over {message.text}"


@hf.task(name="asker")
async def asker(run: hf.Run, message: hf.Envelope) -> str:
    answer = await run.ask(message.text, choices=["ebb", "flood"])
    return f"you chose: {answer}"


@hf.task(name="patient")
async def patient(run: hf.Run, message: hf.Envelope) -> str:
    await run.step(note_start, message.text)
    async for turn in run.turns(max=10_000):
        if await turn.step(is_open, message.text):
            break
        await run.sleep("1s")
    return f"you said: {message.text}"


def note_start(text: str) -> None:
    """Each start, so that a test can count them."""
    with (world() / "started").open("a") as started:
        started.write(f"{text}\n")


def is_open(text: str) -> bool:
    return (world() / f"{text}.open").exists()


def world() -> Path:
    return Path(os.environ["HOLDFAST_HOME"]) / "world"


def main() -> None:
    text = sys.stdin.read().strip()
    note_start(text)
    print(f"you said: {text}")


if __name__ == "__main__":
    main()
