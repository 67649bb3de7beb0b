"""What an editor knows: checked by mypy with everything else, and run so that it is true as well."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, assert_type

import msgspec

import holdfast as hf
from holdfast.engine.client.handles import Handle
from holdfast.engine.program.definitions import Call


class Reply(msgspec.Struct):
    text: str


async def ask_model(prompt: str, *, times: int = 1) -> Reply:
    return Reply(text=prompt * times)


def count_words(text: str) -> int:
    return len(text.split())


@hf.task(timeout="1h")
async def describe(run: hf.Run, topic: str, loud: bool = False) -> Reply:
    reply = await run.step(ask_model, topic, times=2)
    assert_type(reply, Reply)
    assert_type(run.step(count_words, reply.text), Coroutine[Any, Any, int]).close()
    words = await run.step(hf.step(count_words, name="words", id="a"), reply.text)
    assert_type(words, int)
    async for turn in run.turns(max=1):
        assert_type(turn, hf.Turn)
        assert_type(await turn.step(ask_model, "x"), Reply)
        assert_type(await turn.tool(hf.read(count_words), {"text": "one two"}, id="c1"), int)
    async for item in run.plan(["one"]):
        assert_type(item, hf.PlanTurn)
    numbers = run.list("numbers", [1], of=int)
    assert_type(numbers, hf.DurableList[int])
    assert_type(run.list("names", ["ada"]), hf.DurableList[str])
    assert_type(run.list("replies", of=Reply), hf.DurableList[Reply])
    assert_type(run.list("anything"), hf.DurableList[Any])
    total = run.value("total", 0)
    assert_type(total.get(), int)
    return Reply(text=reply.text.upper() if loud else reply.text)


async def test_an_editor_knows_what_a_step_and_a_task_return() -> None:
    call = describe("tides ", loud=True)
    assert_type(call, Call[Reply])
    async with hf.open("memory:", tasks=[describe]) as holdfast:
        handle = await holdfast.start(call)
        assert_type(handle, Handle[Reply])
        result = await handle.result()
        assert_type(result, Reply)

    assert result == Reply(text="TIDES TIDES ")
