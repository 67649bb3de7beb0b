"""Durable lists and values of a program: they only grow, and come back as what they were."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest

import holdfast as hf
from holdfast.core.transitions import TaskStatus
from tests.engine.program.sample_program import Kept, failure_of
from tests.engine.stage import Stage


async def test_an_item_that_was_changed_after_it_was_appended_is_found(quick: Stage) -> None:
    @hf.task
    async def changes(run: hf.Run) -> None:
        notes = run.list("notes")
        async for _ in run.turns(max=3):
            notes.append({"text": "calm"})
            notes[-1]["text"] = "storm"

    await quick.open(changes)
    handle = await quick.start(changes())
    await quick.settle()

    assert await failure_of(handle) == (
        "list notes: item 0 was changed after it was appended; append a new item instead, "
        "or keep what changes in run.value(…)"
    )


async def test_an_item_that_is_changed_in_the_next_turn_is_found(quick: Stage) -> None:
    @hf.task
    async def changes(run: hf.Run) -> None:
        notes = run.list("notes", [{"text": "calm"}])
        async for turn in run.turns(max=3):
            if turn.number == 2:
                notes[0]["text"] = "storm"

    await quick.open(changes)
    handle = await quick.start(changes())
    await quick.settle()

    assert "list notes: item 0 was changed after it was appended" in await failure_of(handle)


@pytest.mark.parametrize(
    "change",
    [
        lambda items: items.insert(0, 1),
        lambda items: items.pop(),
        lambda items: items.remove(1),
        lambda items: items.clear(),
        lambda items: items.sort(),
        lambda items: items.reverse(),
        lambda items: items.__setitem__(0, 5),
        lambda items: items.__setitem__(slice(0, 1), [5]),
        lambda items: items.__delitem__(0),
        lambda items: items.__imul__(2),
    ],
)
async def test_a_durable_list_only_grows(quick: Stage, change: Any) -> None:
    @hf.task
    async def changes(run: hf.Run) -> None:
        change(run.list("notes", [1, 2]))

    await quick.open(changes)
    handle = await quick.start(changes())
    await quick.settle()

    message = await failure_of(handle)
    assert message.startswith("list notes: a durable list only grows")
    assert message.endswith("append, or keep what changes in run.value(…), or work on a copy: list(…)")


async def test_a_copy_of_a_durable_list_is_a_plain_list(quick: Stage, kept: Kept) -> None:
    @hf.task
    async def copies(run: hf.Run) -> list[int]:
        items = run.list("items", [1, 2])
        items += [3]
        items.extend(items)
        for made in (copy.copy(items), copy.deepcopy(items), items.copy(), items[:], items * 1):
            kept(type(made))
            made.append(9)
        return list(items)

    await quick.open(copies)

    assert await quick.run(copies()) == [1, 2, 3, 1, 2, 3]
    assert set(kept.seen) == {list}


class Message(msgspec.Struct):
    role: str
    text: str = ""


async def test_items_of_a_list_come_back_as_what_they_are_said_to_be(quick: Stage) -> None:
    @hf.task(attempts=1)
    async def typed(run: hf.Run) -> None:
        messages = run.list("messages", of=Message)
        messages.append(Message("user", "hello"))
        messages.append({"text": "in another order", "role": "user", "more": 1})  # type: ignore[arg-type]
        assert messages[1] == Message("user", "in another order")
        async for _ in run.turns(max=1):
            messages.append(7)  # type: ignore[arg-type]

    await quick.open(typed)
    handle = await quick.start(typed())
    await quick.settle()

    assert "item 2 of list messages" in await failure_of(handle)


async def test_a_value_that_is_got_is_a_copy(quick: Stage) -> None:
    @hf.task
    async def copies(run: hf.Run) -> list[Any]:
        value: hf.DurableValue[dict[str, Any]] = run.value("value", {"a": [1]})
        value.get()["a"].append(2)
        value.update(lambda found: found | {"b": 1})
        return [value.get(), repr(value)]

    await quick.open(copies)

    assert await quick.run(copies()) == [{"a": [1], "b": 1}, "<value value: {'a': [1], 'b': 1}>"]


async def test_what_a_program_had_appended_is_kept_when_it_fails(stage: Stage) -> None:
    @hf.task(attempts=1)
    async def fails(run: hf.Run) -> None:
        notes: hf.DurableList[Any] = run.list("notes", ["first"])
        async for turn in run.turns():
            notes.append(turn.number)
            if turn.number == 2:
                raise ValueError("rough sea")

    await stage.open(fails)
    handle = await stage.start(fails())
    await stage.settle()

    deltas = stage.store.read_now(lambda tx: tx.lists.deltas([handle.id]))[handle.id]
    assert await handle.status() is TaskStatus.FAILED
    assert b"".join(delta.items for delta in deltas) == b'["first",1][2]'
