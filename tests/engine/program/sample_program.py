"""Steps that programs of several tests call, and what such a program leaves for its test."""

from __future__ import annotations

from typing import Any

from holdfast.engine.client.handles import Handle
from tests.engine.stage import Stage


async def add(one: int, other: int = 0) -> int:
    return one + other


class Kept:
    """What a program leaves for a test to look at."""

    def __init__(self) -> None:
        self.run: Any = None
        self.seen: list[Any] = []

    def __call__(self, what: Any) -> None:
        self.seen.append(what)


async def failure_of(handle: Handle[Any]) -> str:
    task = await handle.task()
    assert task.failure is not None
    return task.failure.message


async def failure_of_all(stage: Stage, handle: Handle[Any]) -> str:
    while not (await handle.task()).has_ended:
        await stage.settle()
        await stage.pass_time()
    return await failure_of(handle)
