"""Hints between the processes of one PostgreSQL ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from holdfast.store.postgres import PostgresStore
from tests.builders import unique
from tests.store.postgres.sessions import SOON_S, change, emit

pytestmark = pytest.mark.slow


def test_a_hint_reaches_another_process_and_comes_at_once_in_this_one(
    open_store: Callable[..., PostgresStore],
) -> None:
    here, elsewhere = open_store(), open_store()

    async def main() -> tuple[bool, bool]:
        async def hint_until(done: asyncio.Future[bool]) -> None:
            while not done.done():  # listening begins some time after the first who waits
                await elsewhere.write(lambda tx: tx.hint("runs"))
                await asyncio.sleep(0.02)

        async with asyncio.TaskGroup() as group:
            far = group.create_task(here.wait_for("runs", SOON_S))
            group.create_task(hint_until(far))
        async with asyncio.TaskGroup() as group:
            near = group.create_task(here.wait_for("checkpoints", SOON_S))
            await asyncio.sleep(0)
            await here.write(lambda tx: tx.hint("checkpoints"))
        return far.result(), near.result()

    assert asyncio.run(main()) == (True, True)


def test_hints_come_back_after_the_connection_that_carries_them_was_lost(
    open_store: Callable[..., PostgresStore], url: str
) -> None:
    here, elsewhere = open_store(), open_store()

    async def hear() -> bool:
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(here.wait_for("events", SOON_S))
            while not waiting.done():
                await asyncio.to_thread(emit, elsewhere, unique())
                await asyncio.sleep(0.02)
        return waiting.result()

    first = asyncio.run(hear())
    change(
        url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )

    assert (first, asyncio.run(hear())) == (True, True)
