"""The threads of a channel: few, its own, and honest about what never began."""

from __future__ import annotations

import asyncio
import threading

import pytest

from holdfast.channels.threads import ChannelThreads, ThreadsBusy
from tests.engine.workers import soon


async def test_a_call_returns_or_raises_what_it_did() -> None:
    threads = ChannelThreads("hook")

    def fail() -> None:
        raise LookupError("no")

    assert await threads.call(lambda: threading.current_thread().name, timeout_s=20) != "MainThread"
    with pytest.raises(LookupError):
        await threads.call(fail, timeout_s=20)
    threads.close()


async def test_what_takes_too_long_is_told_so_and_what_never_began_is_known() -> None:
    threads = ChannelThreads("hook", most=1)
    gate, given_up = threading.Event(), threading.Event()

    with pytest.raises(TimeoutError, match="hook took longer"):
        await threads.call(lambda: gate.wait(60), timeout_s=0.05, give_up=given_up.set)
    with pytest.raises(ThreadsBusy, match="hook was busy"):
        await threads.call(lambda: gate.wait(60), timeout_s=0.05)

    assert given_up.is_set()
    gate.set()
    assert await threads.call(lambda: 7, timeout_s=20) == 7
    threads.close()


async def test_who_is_cancelled_gives_the_call_up() -> None:
    threads = ChannelThreads("hook")
    begun, given_up = threading.Event(), threading.Event()

    def act() -> None:
        begun.set()
        given_up.wait(60)

    child = asyncio.ensure_future(threads.call(act, timeout_s=60, give_up=given_up.set))
    assert await soon(asyncio.to_thread(begun.wait, 20))
    child.cancel()
    with pytest.raises(asyncio.CancelledError):
        await child

    assert given_up.is_set()
    threads.close()


async def test_what_would_begin_after_we_stood_still_does_not() -> None:
    times = iter([0.0, 100.0])
    threads = ChannelThreads("hook", monotonic=lambda: next(times))
    done: list[int] = []

    with pytest.raises(ThreadsBusy, match="too late"):
        await threads.call(lambda: done.append(1), timeout_s=20)

    assert done == []
    threads.close()
