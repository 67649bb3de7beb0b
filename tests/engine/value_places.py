"""A program that passes what it is given through every place in which a ledger keeps a program's values."""

from __future__ import annotations

from typing import Any

import holdfast as hf
from tests.engine.stage import Stage

TURNS = 2
TOPIC = "letters"
QUESTION = "which of them?"
# Arguments, results, steps, lists, values, mail, answers, defaults, children and effects of each class.
PLACES = (
    *("arguments", "step", "large step", "list", "value", "mail", "mail from a task", "answer", "default"),
    *("child", "reads", "idempotent", "keyed", "verifiable", "transactional", "opaque", "confirmed", "tool"),
    *("list of turns", "value of turns", "step of a turn", "raised"),
)


async def echo(value: Any) -> Any:
    return value


async def looks(items: Any, cell: Any) -> int:
    """Its input is a durable list and a durable value, which digests stand for."""
    return len(items) + len(cell.get())


@hf.opaque
async def looks_outside(items: Any, cell: Any, both: Any) -> int:
    return len(items) + len(cell.get()) + len(both)


@hf.read
async def reads(value: Any) -> Any:
    return value


@hf.idempotent
async def idempotent(value: Any) -> Any:
    return value


@hf.keyed("1h")
async def keyed(value: Any) -> Any:
    return value


async def _verify(value: Any) -> hf.Happened:
    return hf.Happened(value)


@hf.verifiable(_verify)
async def verifiable(value: Any) -> Any:
    return value


@hf.verifiable(_verify)
async def confirmed(value: Any) -> Any:
    """Its answer is lost, so that its outcome is what `verify` says."""
    raise ConnectionError("the line is dead")


@hf.transactional
def transactional(tx: hf.Transaction, value: Any) -> Any:
    tx.execute("SELECT 1")
    return value


@hf.opaque
async def opaque(value: Any) -> Any:
    return value


class RaisedWithValue(Exception):
    """An error that a program raises with a value inside."""


@hf.step(raises=(RaisedWithValue,))
async def raises(value: Any) -> Any:
    raise RaisedWithValue("see there")


@hf.task(name="child")
async def child(run: hf.Run, value: Any) -> Any:
    return await run.step(echo, value)


@hf.task(name="writer")
async def writer(run: hf.Run, task_id: str, value: Any) -> None:
    await run.send(task_id, "from a task", value)


@hf.task(name="everywhere")
async def everywhere(run: hf.Run, values: list[Any], *, pad: str = "", turns: int = TURNS) -> dict[str, Any]:
    """What came back, by the place it went through."""
    got: dict[str, Any] = {"arguments": values}
    items, cell = run.list("items", values), run.value("cell", values)
    got["step"] = await run.step(echo, values)
    got["large step"] = (await run.step(echo, [values, pad]))[0]
    for effect in (reads, idempotent, keyed, verifiable, opaque, confirmed):
        got[effect.__name__] = await run.step(effect, values)
    got["transactional"] = await run.step(transactional, values)
    try:
        await run.step(raises, values)
    except RaisedWithValue:
        got["raised"] = values
    async for turn in run.turns(max=turns):
        # A finished turn is not gone through again: what it found out crosses turns in the list.
        items.append([await turn.step(echo, values), await turn.tool(opaque, {"value": values}), values])
        cell.set([turn.number, values])
        await turn.step(looks, items, cell)
        await turn.tool(looks_outside, {"items": items, "cell": cell, "both": [items, cell]})
    kept = list(items)
    got["list"] = kept[: len(values)]
    got["step of a turn"], got["tool"], got["list of turns"] = kept[-1]
    got["value"] = got["value of turns"] = cell.get()[1]
    got["default"] = await run.ask("nobody answers", timeout="1s", default=values)
    await run.emit("told", values=values)
    child_task = await run.spawn(child(values))
    got["child"] = await child_task
    await run.spawn(writer(run.task_id, values))
    got["mail from a task"] = await run.receive("from a task")
    got["answer"] = await run.ask(QUESTION)
    got["mail"] = await run.receive(TOPIC)
    return got


TASKS = (everywhere, child, writer)


async def pass_through(stage: Stage, values: list[Any], *, pad: str = "") -> hf.Handle[Any]:
    """To the end, with a new process for every wait: so all that was stored is read back, and often."""
    await stage.open(*TASKS)
    handle = await stage.start(everywhere(values, pad=pad), key="only")
    await go_on(stage, handle, values)
    return handle


async def go_on(stage: Stage, handle: hf.Handle[Any], values: list[Any]) -> None:
    """Until it has ended: answer what it asks, send what it waits for."""
    while not (await handle.task()).has_ended:
        await stage.settle()
        await stage.open(*TASKS)
        task = await handle.task()
        waits_on = task.waits_on or ""
        if task.has_ended:
            return
        asked = [one for one in await stage.holdfast.questions() if one.question == QUESTION]
        if waits_on.startswith("answer:") and asked:
            await stage.holdfast.answer(asked[0].id, values)
        elif waits_on == f"mail:{TOPIC}":
            await stage.holdfast.send(handle, TOPIC, values)
        else:
            assert await stage.pass_time(), f"it is {task.status}, and waits on {waits_on}"
