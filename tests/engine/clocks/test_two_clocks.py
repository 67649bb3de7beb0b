"""A machine whose clock is not the database's: one clock decides, nothing is repeated, nothing spins."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

import holdfast as hf
from holdfast import app
from holdfast.core.clock import SystemClock, from_micros
from holdfast.core.events import EventKind
from holdfast.core.run import RunRecord
from holdfast.core.transitions import EffectStatus, RunStatus, TaskStatus
from holdfast.engine.ledger.retention import Pruner
from holdfast.engine.recovery.rescue import Reaper
from holdfast.engine.worker import worker as worker_module
from holdfast.store import Store
from holdfast.store.outer_keys import VariableKey
from holdfast.store.postgres import PostgresStore
from holdfast.store.sealing import Vault
from tests.engine.parts import Parts
from tests.engine.workers import GateAndNotes, Process, WatchedStore, carrying, soon, until
from tests.servers import PostgresServer, move_clock

pytestmark = pytest.mark.slow

# No measure is as exact as that, and no skew as small.
SLACK = timedelta(minutes=1)
# Moments of the ledger: whatever is compared with one has to come from the same clock.
MOMENTS = """
SELECT table_name, column_name FROM information_schema.columns
 WHERE table_schema = 'holdfast' AND data_type = 'bigint'
   AND (column_name LIKE '%\\_at' OR column_name LIKE '%\\_us' OR column_name = 'at')
"""


@pytest.fixture
def url(postgres_server: PostgresServer) -> Iterator[str]:
    """A new ledger, gone with the test."""
    created = postgres_server.create_database()
    PostgresStore(created, clock=SystemClock()).close()
    yield created
    postgres_server.drop_database(created)


Opens = Callable[[], PostgresStore]


@pytest.fixture
def opens(url: str) -> Iterator[Opens]:
    """A store of one machine; as `app.open` has it, its clock is the ledger's."""
    with contextlib.ExitStack() as stores:

        def open_one() -> PostgresStore:
            store = PostgresStore(url, clock=SystemClock(), vault=Vault(VariableKey(os.environ)))
            stores.callback(store.close)
            return store

        yield open_one


def ask(url: str, sql: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True, options="-c search_path=holdfast") as connection:
        return connection.execute(sql.encode()).fetchall()


def server_time(url: str) -> datetime:
    return from_micros(ask(url, "SELECT holdfast_now()")[0][0])


def newest_run(store: Store, task_id: str) -> RunRecord:
    return store.read_now(lambda tx: max(tx.runs.of_task(task_id), key=lambda one: one.number))


def lease_of(store: Store, task_id: str) -> datetime:
    lease_until = newest_run(store, task_id).lease_until
    assert lease_until is not None
    return lease_until


def kinds(store: Store, task_id: str) -> list[EventKind]:
    return store.read_now(lambda tx: [one.kind for one in tx.events.of_task(task_id)])


def sending(gate: GateAndNotes, effect: Any) -> Any:
    """Sends once, and is on its way until the door is open."""

    @hf.tool(effect=effect)
    async def send() -> str:
        gate.notes.append("send")
        gate.entered.set()
        await gate.open.wait()
        return "sent"

    @hf.task(name="sends", attempts=1)
    async def sends(run: hf.Run) -> str:
        return await run.step(send)

    return sends


def not_yet() -> hf.DidNotHappen:
    """What the world says while it is on its way."""
    return hf.DidNotHappen()


# --- leases


@pytest.mark.parametrize("seconds", [-3600, 45])
async def test_a_machine_with_another_clock_carries_a_run_under_one_claim(
    url: str, opens: Opens, tmp_path: Path, seconds: int
) -> None:
    move_clock(url, seconds=seconds)
    gate = GateAndNotes()
    gate.open.set()
    sends = sending(gate, hf.opaque)

    async with hf.open(url, tasks=[sends], home=tmp_path) as holdfast:
        handle = await holdfast.start(sends())
        assert await soon(handle.result()) == "sent"

    assert gate.notes == ["send"]
    assert kinds(opens(), handle.id).count(EventKind.RUN_CLAIMED) == 1


async def test_who_sees_a_jump_of_the_servers_clock_renews_at_once(
    url: str, opens: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "Reaper", partial(Reaper, every_s=3600))  # it renews, too, but later
    gate, store = GateAndNotes(), opens()
    sends = sending(gate, hf.opaque)

    async with carrying(store, store.clock, sends, lease=120) as process:
        handle = await process.holdfast.start(sends())
        await soon(gate.entered.wait())
        move_clock(url, hours=1)

        await until(lambda: lease_of(store, handle.id) > server_time(url))

        gate.open.set()
        assert await soon(handle.result()) == "sent"


async def test_after_a_jump_of_the_servers_clock_others_can_renew_before_anything_is_taken_from_them(
    url: str, opens: Opens
) -> None:
    ours, theirs = opens(), opens()
    here, there = await Parts.begin(ours, ours.clock), await Parts.begin(theirs, theirs.clock)
    reaper = Reaper(here.rescuer, here.resumer, ours.clock)
    await reaper.run_once()
    carried = await there.carry()

    move_clock(url, hours=1)
    rescued, _ = await reaper.run_once()
    assert rescued.checkpointed == 0

    assert len((await there.claims.renew([carried.claim])).held) == 1
    rescued, _ = await reaper.run_once()
    assert rescued.checkpointed == 0

    move_clock(url, hours=2)
    passes = [(await reaper.run_once())[0].checkpointed for _ in range(20)]
    assert (passes[0], sum(passes)) == (0, 1)


# --- settle time


@contextlib.asynccontextmanager
async def silenced(opens: Opens, task: Any, gate: GateAndNotes) -> Any:
    """A process that is in the middle of an effect, and cannot reach the ledger any more."""
    store = opens()
    watched = WatchedStore(store)
    async with carrying(watched, store.clock, task, lease=0.5) as process:
        handle = await process.holdfast.start(task())
        await soon(gate.entered.wait())
        watched.is_away = True
        try:
            yield process, handle
        finally:
            watched.is_away = False
            gate.open.set()


@pytest.mark.parametrize("seconds", [-3600, 3600])
async def test_an_effect_in_flight_elsewhere_is_not_settled_before_its_time_whatever_this_machines_clock_says(
    url: str, opens: Opens, seconds: int
) -> None:
    move_clock(url, seconds=seconds)
    gate = GateAndNotes()
    sends = sending(gate, hf.verifiable(not_yet))

    async with silenced(opens, sends, gate) as (_, handle):
        store = opens()
        async with carrying(store, store.clock, sends, lease=0.5):
            await until(
                lambda: len(gate.notes) > 1 or newest_run(store, handle.id).status is RunStatus.WAITING
            )
            waiting = newest_run(store, handle.id)
            (effect,) = store.read_now(lambda tx: tx.effects.of_task(handle.id))

    assert gate.notes == ["send"]
    assert effect.status is EffectStatus.INTENT
    assert effect.settle_after is not None
    assert waiting.due_at >= effect.settle_after
    assert abs(effect.settle_after - server_time(url) - timedelta(minutes=10)) < timedelta(minutes=1)


async def test_after_a_jump_of_the_servers_clock_an_effect_in_flight_elsewhere_is_settled_later(
    url: str, opens: Opens
) -> None:
    gate = GateAndNotes()
    sends = sending(gate, hf.verifiable(not_yet))
    store = opens()  # it was there before the jump, and sees it

    async with silenced(opens, sends, gate) as (_, handle):
        move_clock(url, hours=1)
        async with carrying(store, store.clock, sends, lease=0.5):
            await until(
                lambda: len(gate.notes) > 1 or newest_run(store, handle.id).status is RunStatus.WAITING
            )
            waiting = newest_run(store, handle.id)

    assert gate.notes == ["send"]
    assert waiting.due_at > server_time(url) + timedelta(minutes=5)


# --- keyed window


async def bury(store: Store, process: Process) -> None:
    """Another process has proved its death."""
    now = store.clock.now()
    await store.write(lambda tx: tx.boots.end(process.life.id, now=now))


@pytest.mark.parametrize(("minutes", "times"), [(20, 2), (50, 1)])
async def test_the_window_of_a_key_passes_by_the_clock_of_the_database(
    url: str, opens: Opens, minutes: int, times: int
) -> None:
    gate = GateAndNotes()
    sends = sending(gate, hf.keyed("30m"))

    async with silenced(opens, sends, gate) as (process, handle):
        move_clock(url, minutes=minutes)
        store = opens()
        await bury(store, process)
        async with carrying(store, store.clock, sends) as other:
            await until(
                lambda: len(gate.notes) > 1 or newest_run(store, handle.id).status is RunStatus.WAITING
            )
            gate.open.set()
            status = await other.holdfast.handle(handle.id).status()

    assert len(gate.notes) == times
    assert (status is TaskStatus.NEEDS_REVIEW) == (times == 1)


# --- due times


async def test_a_wait_is_over_when_the_database_says_so(url: str, tmp_path: Path) -> None:
    @hf.task(name="sleeps")
    async def sleeps(run: hf.Run) -> str:
        await run.sleep("10m")
        return "awake"

    async with hf.open(url, tasks=[sleeps], home=tmp_path) as holdfast:
        handle = await holdfast.start(sleeps())
        await until(lambda: newest_run(holdfast.store, handle.id).status is RunStatus.WAITING)
    move_clock(url, minutes=11)

    async with hf.open(url, tasks=[sleeps], home=tmp_path) as holdfast:
        assert await soon(holdfast.handle(handle.id).result()) == "awake"


async def test_a_jump_is_seen_by_a_process_that_only_waits(url: str, tmp_path: Path) -> None:
    @hf.task(name="sleeps")
    async def sleeps(run: hf.Run) -> str:
        await run.sleep("10m")
        return "awake"

    async with hf.open(url, tasks=[sleeps], home=tmp_path) as holdfast:
        handle = await holdfast.start(sleeps())
        await until(lambda: newest_run(holdfast.store, handle.id).status is RunStatus.WAITING)

        move_clock(url, minutes=11)

        assert await soon(handle.result()) == "awake"


# --- retention


async def test_what_has_ended_is_kept_by_the_clock_of_the_database(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @hf.task(name="ends")
    async def ends(_run: hf.Run) -> str:
        return "done"

    async with hf.open(url, tasks=[ends], home=tmp_path) as holdfast:
        handle = await holdfast.start(ends())
        await soon(handle.result())
    real = SystemClock.now
    monkeypatch.setattr(SystemClock, "now", staticmethod(lambda: real() + timedelta(days=400)))

    settings = app.read_settings({}, store=url, home=str(tmp_path))
    async with app.open_parts(settings) as parts:
        assert (await Pruner(parts.store, parts.clock).run_once()).tasks == 0

    move_clock(url, days=400)
    async with app.open_parts(settings) as parts:
        assert (await Pruner(parts.store, parts.clock).run_once()).tasks == 1


# --- everything


async def test_every_moment_that_a_process_stores_is_of_the_clock_of_the_database(
    url: str, tmp_path: Path
) -> None:
    move_clock(url, hours=-7)
    gate = GateAndNotes()
    gate.open.set()
    sends = sending(gate, hf.keyed("1h"))

    @hf.task(name="parent")
    async def parent(run: hf.Run) -> str:
        await run.progress(done=1, total=2)
        messages = run.list("messages", ["a"])
        async for turn in run.turns(max=2):
            messages.append(await turn.step(str, "b"))
        await run.sleep(0.01)
        await run.ask("well?", timeout="1ms", default="yes")
        await run.checkpoint("half")
        child = await run.spawn(sends())
        return str(await child.result())

    before = server_time(url)
    async with hf.open(url, tasks=[parent, sends], home=tmp_path) as holdfast:
        handle = await holdfast.start(parent(), key="k")
        assert await soon(handle.result()) == "sent"
    after = server_time(url)

    asked = {
        (table, column): ask(url, f"SELECT {column} FROM {table}") for table, column in ask(url, MOMENTS)
    }
    wrong = {
        f"{where[0]}.{where[1]}": from_micros(value)
        for where, rows in asked.items()
        for (value,) in rows
        if value and not before - SLACK <= from_micros(value) <= after + SLACK
    }
    assert wrong == {}
