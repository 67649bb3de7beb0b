"""Which loop runs here is known again at once, and never taken for another one."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from holdfast.store.running_loop import running


def test_it_says_what_asyncio_says_again_and_again() -> None:
    async def ask() -> None:
        for _ in range(3):
            assert running() == (asyncio.get_running_loop(), asyncio.current_task())
            await asyncio.sleep(0)

    async def both() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(ask())
            group.create_task(ask())
        await ask()

    asyncio.run(both())


def test_the_next_loop_of_a_thread_is_not_taken_for_the_last_one() -> None:
    async def ask() -> asyncio.AbstractEventLoop:
        assert running() == running()
        return running()[0]

    with asyncio.Runner() as first, asyncio.Runner() as second:
        for runner in (first, second, first):
            assert runner.run(ask()) is runner.get_loop()


def test_a_callback_has_a_loop_and_no_task() -> None:
    found: list[object] = []

    async def call_back() -> None:
        loop, _ = running()
        loop.call_soon(lambda: found.append(running()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert found == [(loop, None)]

    asyncio.run(call_back())


@pytest.fixture
def threads_that_switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("threads_that_switch_often")
def test_each_thread_finds_its_own_loop_while_others_ask() -> None:
    wrong: list[bool] = []
    everybody = threading.Barrier(4)

    async def ask() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        everybody.wait()
        wrong.extend(True for _ in range(5_000) if running() != (loop, task))

    in_threads(lambda: asyncio.run(ask()), 4)

    assert wrong == []


def test_where_no_loop_runs_it_says_so_even_after_one_did() -> None:
    async def ask() -> None:
        running()

    def find_none() -> None:
        with pytest.raises(RuntimeError, match="no running event loop"):
            running()

    asyncio.run(ask())
    find_none()

    async def beside() -> None:
        running()
        in_threads(find_none, 1)

    asyncio.run(beside())


def in_threads(act: Callable[[], None], count: int) -> None:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            act()
        except BaseException as error:  # noqa: BLE001 - said below
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
