"""Threads of steps: what they are at is known, and can be waited for."""

from __future__ import annotations

import asyncio
import threading

from holdfast.engine.aio.threads import EffectsInThreads


async def test_an_effect_is_at_work_until_the_last_of_its_calls_has_ended() -> None:
    at_work, gates = EffectsInThreads(), [threading.Event(), threading.Event()]
    entered = [threading.Event(), threading.Event()]

    def do(number: int) -> None:
        with at_work.doing("key"):
            entered[number].set()
            gates[number].wait(10)

    calls = [asyncio.create_task(asyncio.to_thread(do, number)) for number in (0, 1)]  # noqa: TID251 - ended below
    for one in entered:
        await asyncio.to_thread(one.wait, 10)
    waiting = asyncio.ensure_future(at_work.until_over("key"))
    await asyncio.sleep(0)
    gates[0].set()
    await calls[0]

    assert "key" in at_work
    assert not waiting.done()
    gates[1].set()
    await calls[1]
    async with asyncio.timeout(10):
        await waiting
    assert "key" not in at_work
    assert not at_work


async def test_what_is_no_effect_is_not_noted_and_what_is_over_is_not_waited_for() -> None:
    at_work = EffectsInThreads()
    with at_work.doing(None):
        assert not at_work

    async with asyncio.timeout(10):
        await at_work.until_over("key")
