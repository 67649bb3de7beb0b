"""A person decides: the task waits for the answer, and no process has to run meanwhile.

`python examples/approval.py` asks, and ends.
`python examples/approval.py yes`, today or tomorrow, answers, and carries the task to its end.
Without an answer the default holds after two days.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import holdfast as hf

RELEASED = Path("released.txt")


async def write_notes(version: str) -> str:
    print(f"writing the notes of {version}", flush=True)
    return f"{version}: faster, and it survives restarts"


def was_released(version: str, notes: str) -> hf.Happened | hf.DidNotHappen:
    has_line = RELEASED.exists() and f"{notes}\n" in RELEASED.read_text()
    return hf.Happened(f"released {version}") if has_line else hf.DidNotHappen()


@hf.verifiable(was_released)
def release(version: str, notes: str) -> str:
    print(f"releasing {version}", flush=True)
    with RELEASED.open("a") as file:
        file.write(f"{notes}\n")
    return f"released {version}"


@hf.task
async def ship(run: hf.Run, version: str) -> str:
    notes = await run.step(write_notes, version)
    answer = await run.ask(f"Release {version}? {notes}", ["yes", "no"], timeout="2d", default="no")
    await run.decide(f"release {version}: {answer}")  # stands in every later checkpoint
    if answer == "no":
        return f"{version} was not released"
    return await run.step(release, version, notes)


async def main(answer: str | None = None, url: str = "sqlite:///approval.db") -> None:
    async with hf.open(url, tasks=[ship]) as holdfast:
        handle = await holdfast.start(ship("1.2"), key="1.2")
        async for event in handle.watch():  # until it has ended, or asks
            if event.kind == "question_asked":
                break
        for question in await holdfast.questions():
            if answer is None:
                print(f"{question.question} ({', '.join(question.choices or ())})")
                return
            await holdfast.answer(question.id, answer, by="the release manager")
        print(await handle.result())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
