"""A ledger whose process died with work in flight, and bits of its file that flip before the next one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

import holdfast as hf
from holdfast.core.clock import Clock
from holdfast.core.errors import HoldfastError, RowDamaged, SchemaMismatch, StoreUnavailable
from holdfast.core.task import Task
from holdfast.core.transitions import TaskStatus
from holdfast.engine.program.definitions import TaskDefinition
from holdfast.store import Store, Tx
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite_file import connect
from holdfast.testing import FakeClock
from tests.engine.workers import carrying, until

PAGE = 4096
# What a task that was not carried to its end may say.
NAMED = {"row_damaged", "failed_resume"}


class Shop:
    """Tasks that each charge a card once, and then wait: charges are counted outside the ledger."""

    def __init__(self) -> None:
        self.charges: list[str] = []
        self.arrived: list[str] = []
        self.door = asyncio.Event()

    def order(self) -> TaskDefinition[..., Any]:
        shop = self

        @hf.opaque
        async def charge(name: str) -> str:
            shop.charges.append(name)
            return f"receipt of {name}"

        async def look(name: str) -> str:
            return in_stock(name)

        async def wait(name: str) -> str:
            shop.arrived.append(name)
            await shop.door.wait()
            return f"{name} was sent"

        @hf.task(name="order")
        async def order(run: hf.Run, name: str) -> list[str]:
            found = await run.step(look, name)
            receipt = await run.step(charge, name)
            return [found, receipt, await run.step(wait, name)]

        return order


def in_stock(name: str) -> str:
    """Long enough that few orders share a page of the journal."""
    return f"{name} is in stock{'.' * 700}"


def result_of(name: str) -> list[str]:
    return [in_stock(name), f"receipt of {name}", f"{name} was sent"]


async def die_with(shop: Shop, path: Path, clock: FakeClock, names: list[str]) -> dict[str, str]:
    """A ledger as a process leaves it that is killed while each order waits to be sent; task ids by name."""
    order = shop.order()
    running = path.with_name("running.db")
    with closing(SqliteStore(running, clock=clock)) as store:
        async with carrying(store, clock, order) as process:
            handles = {name: await process.holdfast.start(order(name), key=name) for name in names}
            await until(lambda: sorted(shop.arrived) == sorted(names))
            store.backup(str(path))
            shop.door.set()
    assert sorted(shop.charges) == sorted(names)
    return {name: handle.id for name, handle in handles.items()}


async def go_on(
    shop: Shop, path: Path, clock: FakeClock, tasks: dict[str, str], *, all_end: bool = False
) -> dict[str, object]:
    """As `go_on_with`, once the leases of the dead process have lapsed."""
    clock.advance(minutes=10)
    return await go_on_with(shop, lambda: SqliteStore(path, clock=clock), clock, tasks, all_end=all_end)


async def go_on_with(
    shop: Shop, open_store: Callable[[], Store], clock: Clock, tasks: dict[str, str], *, all_end: bool = False
) -> dict[str, object]:
    """What the next process makes of each order: its result, or in words what is wrong with the ledger.

    Unless all must end, one that stays as it is, while the process speaks of damage, is not waited for.
    """
    order, said = shop.order(), DamageLog()
    logging.getLogger("holdfast").addHandler(said)
    try:
        with closing(open_store()) as store:
            async with carrying(store, clock, order):
                heard = [] if all_end else said.stopped
                return {name: await _outcome(store, task_id, heard) for name, task_id in tasks.items()}
    except (RowDamaged, StoreUnavailable, SchemaMismatch) as error:
        return dict.fromkeys(tasks, str(error))
    finally:
        logging.getLogger("holdfast").removeHandler(said)


async def _outcome(store: Store, task_id: str, heard: list[str]) -> object:
    def look(tx: Tx) -> Task:
        return tx.tasks.get(task_id)

    try:
        await until(lambda: store.read_now(look).has_ended or bool(heard))
        task = store.read_now(look)
    except HoldfastError as error:
        return str(error)
    if task.status is TaskStatus.SUCCEEDED:
        assert task.result is not None
        return msgspec.json.decode(task.result)
    if task.failure is None:
        return heard[0]  # it stays as it is, and its worker says why
    assert task.failure.kind in NAMED, task.failure
    return task.failure.message


class DamageLog(logging.Handler):
    """What a worker says about damage."""

    def __init__(self) -> None:
        super().__init__()
        self.stopped: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if "damaged" in message:
            self.stopped.append(message)


# --- flips


def leaves_of(path: Path, tree: str) -> list[int]:
    """The pages of a table or an index below which there are no others."""
    with closing(connect(path)) as connection:
        found = connection.execute(
            "SELECT pageno FROM dbstat WHERE name = ? AND pagetype = 'leaf' ORDER BY pageno", (tree,)
        )
        return [number for (number,) in found]


def flip(path: Path, place: int, bit: int) -> None:
    """One bit of the file, while no process has it open."""
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << bit
    path.write_bytes(content)


def flip_in(path: Path, tree: str, *texts: str) -> str:
    """The lowest bit of the last character of one of these texts, in a leaf of a table or an index."""
    content = path.read_bytes()
    for page in leaves_of(path, tree):
        for text in texts:
            start = (page - 1) * PAGE
            place = content.find(text.encode(), start, start + PAGE)
            if place >= 0:
                flip(path, place + len(text) - 1, 0)
                return text
    raise AssertionError(f"none of {texts} stands in {tree}")
