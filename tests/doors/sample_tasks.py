"""Programs for `holdfast run`: what they do is seen from outside, and a test decides when they go on."""

from __future__ import annotations

import asyncio
import enum
import os
import subprocess
import sys
from pathlib import Path

import holdfast as hf


class Paint(enum.Enum):
    RED = "red"
    BLUE = "blue"


NOT_A_TASK = 7


async def note(number: int, marks: str, gate: str) -> int:
    """Leaves a mark; the third one waits for ever unless its gate is open."""
    with Path(marks).open("a", encoding="utf-8") as file:  # noqa: ASYNC230 - a line
        file.write(f"{number}\n")
    print(f"noted {number}", flush=True)
    if number == 3 and gate and not Path(gate).exists():  # noqa: ASYNC240 - a glance
        await asyncio.Event().wait()
    return number


@hf.task
async def tally(run: hf.Run, to: int, marks: str, gate: str = "") -> int:
    total = run.value("total", 0)
    async for turn in run.turns(max=to):
        total.set(total.get() + await turn.step(note, turn.number, marks, gate))
        await run.progress(done=turn.number, total=to, subtask="noting")
    return total.get()


# One parameter has no annotation on purpose.
@hf.task
async def echo(  # type: ignore[no-untyped-def]
    run: hf.Run,
    text: str = "",
    number: int = 0,
    share: float = 0.0,
    flag: bool = False,
    tags: list[str] | None = None,
    colour: Paint = Paint.RED,
    anything=None,
) -> dict[str, object]:
    return {
        "text": text,
        "number": number,
        "share": share,
        "flag": flag,
        "tags": tags,
        "colour": colour.value,
        "anything": anything,
    }


@hf.task
async def say(run: hf.Run, text: str) -> str:
    return text


@hf.opaque
async def knock(number: int) -> int:
    return number


@hf.task
async def knocks(run: hf.Run) -> None:
    has_waited = False

    async def wait_then_knock(number: int) -> int:
        nonlocal has_waited
        if number == 10 and not has_waited:
            has_waited = True
            raise hf.RetryAfter(0.0)
        return number

    for number in range(1, 12):
        await run.step(knock, number)
        await run.step(wait_then_knock, number)


@hf.task
async def nothing(run: hf.Run) -> None:
    pass


@hf.task
async def noisy(run: hf.Run) -> str:
    print("printed")
    os.write(1, b"written\n")
    subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)  # noqa: ASYNC221 - short
    return "quiet"


def refuse() -> None:
    raise ValueError("no good")


@hf.task(attempts=1)
async def broken(run: hf.Run) -> None:
    await run.step(refuse)


@hf.task(name="another name")
async def named(run: hf.Run) -> str:
    return "named"


@hf.task
async def asks(run: hf.Run) -> str:
    colour = await run.ask("Which colour?", ["red", "blue"])
    name = await run.ask("Who are you?", default="nobody")
    return f"{colour} for {name}"


@hf.tool(effect=hf.opaque)
async def pay(amount: int) -> str:
    raise TimeoutError("the bank did not answer")


@hf.task
async def pays(run: hf.Run, amount: int = 3) -> str | None:
    return await run.tool(pay, {"amount": amount})


@hf.task
async def delegates(run: hf.Run) -> str | None:
    return await (await run.spawn(pays(4)))


@hf.task
async def gathers(run: hf.Run) -> list[str]:
    first, second = await run.spawn(say("one")), await run.spawn(say("two"))
    return [await first, await second]


@hf.tool(effect=hf.opaque)
async def hangs() -> str:
    print("hanging", flush=True)
    await asyncio.Event().wait()
    return "never"


@hf.task
async def stuck(run: hf.Run) -> str:
    return await run.tool(hangs)


@hf.task
async def sleeps(run: hf.Run) -> str:
    await run.sleep("8h")
    return "awake"


@hf.task
async def upgrades(run: hf.Run) -> str:
    await run.requires_restart("a new driver")
    return "upgraded"


@hf.task
async def remembers(run: hf.Run) -> int:
    """Leaves something of every kind, and then waits for mail."""
    words = run.list("words", ["a"])
    count = run.value("count", 0)
    async for turn in run.turns("main", max=2):
        words.append(await turn.step(spell, turn.number))
        count.set(count.get() + 1)
    try:
        await run.step(refuse)
    except ValueError:
        await run.tool(hf.tool(spell, effect=hf.opaque, name="sent"), {"number": 9})
    await run.receive("post")
    return count.get()


def spell(number: int) -> str:
    return f"word {number}"
