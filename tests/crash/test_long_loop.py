"""A loop of five thousand turns costs as much at its end as at its beginning, and goes on after a kill.

Nothing here is measured with a clock: statements, pages and bytes are counted.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

import holdfast as hf
from holdfast.app import stores
from holdfast.engine.journal import scopes
from holdfast.engine.worker import taking
from holdfast.store.sqlite import SqliteStore
from tests.crash.agents import be_killed_when_stuck
from tests.crash.invariants import assert_ledger_is_whole
from tests.crash.ledger_address import LedgerAddress
from tests.crash.processes import Pipe, assert_ended_well, fork, killed_in_the_end

pytestmark = pytest.mark.slow

EARLY, LATE = 1_000, 5_000
# What a turn costs is the difference over so many of them.
WINDOW = 200
MEASURED = (0, EARLY - WINDOW, EARLY, LATE - WINDOW, LATE)
MESSAGE_BYTES = 200
# Of whatever crosses the loop beside the list, and of the tree of pages above the rows.
MOST_FORGOTTEN_BYTES = 100_000
MOST_MORE_PAGES = 1.5


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What has been spent up to a turn."""

    turn: int
    statements: int
    pages: int
    database_bytes: int
    # Of the list that the program has, and of everything that was allocated since the first measure.
    list_bytes: int
    memory_bytes: int

    def per_turn(self, before: Cost) -> tuple[float, float]:
        turns = self.turn - before.turn
        return (self.statements - before.statements) / turns, (self.pages - before.pages) / turns


class Meter:
    """Counts what the writer's connection does."""

    def __init__(self, say: Callable[[str], object]) -> None:
        self._say = say
        self._statements = 0
        self._store: Any = None

    def watch(self, store: SqliteStore) -> SqliteStore:
        self._store = store
        self._on_connection(lambda connection: connection.trace_v2(apsw.SQLITE_TRACE_STMT, self._count))
        return store

    def tell(self, turn: int, messages: list[str]) -> None:
        if turn and not tracemalloc.is_tracing():
            tracemalloc.start()
        gc.collect()
        cost = Cost(
            turn=turn,
            statements=self._statements,
            pages=self._on_connection(_pages_asked_for),
            database_bytes=self._on_connection(_size),
            list_bytes=sum(sys.getsizeof(message) for message in messages) + sys.getsizeof(messages),
            memory_bytes=tracemalloc.get_traced_memory()[0],
        )
        self._say(msgspec.json.encode(cost).decode())

    def _count(self, _event: object) -> None:
        self._statements += 1

    def _on_connection(self, act: Callable[[apsw.Connection], Any]) -> Any:
        return self._store._writer.exclusively(lambda session: act(session.connection))


def _pages_asked_for(connection: apsw.Connection) -> int:
    return sum(
        connection.status(what)[0]
        for what in (apsw.SQLITE_DBSTATUS_CACHE_HIT, apsw.SQLITE_DBSTATUS_CACHE_MISS)
    )


def _size(connection: apsw.Connection) -> int:
    return int(connection.pragma("page_count")) * int(connection.pragma("page_size"))


def program_with(at_turn: Callable[[int, list[str]], object]) -> hf.TaskDefinition[[], int]:
    async def answer(turn: int) -> str:
        return f"message {turn} ".ljust(MESSAGE_BYTES, "x")

    @hf.task
    async def talk(run: hf.Run) -> int:
        messages: hf.DurableList[str] = run.list("messages", of=str)
        async for turn in run.turns(max=LATE + WINDOW):
            at_turn(turn.number, messages)
            messages.append(await turn.step(answer, turn.number))
        return len(messages)

    return talk


async def carry(place: LedgerAddress, wrapped: Callable[[Any], Any], task: hf.TaskDefinition[[], int]) -> int:
    be_killed_when_stuck()
    open_place = stores.open_place
    stores.open_place = lambda *args, **kwargs: wrapped(open_place(*args, **kwargs))
    async with hf.open(place.url, tasks=[task], home=place.home) as holdfast:
        handle = await holdfast.start(task(), key="talk")
        return await handle.result()


def talk_and_measure(place: LedgerAddress, out: Pipe) -> None:
    """Until it stands still in turn 5,001, to be killed there."""
    meter = Meter(out.say)

    def measure(turn: int, messages: list[str]) -> None:
        if turn - 1 in MEASURED:
            meter.tell(turn - 1, messages)
        if turn - 1 == LATE:
            out.say("here")
            Pipe().hear()

    asyncio.run(carry(place, meter.watch, program_with(measure)))


def go_on(place: LedgerAddress, out: Pipe) -> None:
    """How often the past was read, where the program went on, and with what."""
    loads, turns = [], []
    load_pasts = scopes.load_pasts

    def load(tx: Any, task_ids: Any) -> Any:
        loads.append(task_ids)
        return load_pasts(tx, task_ids)

    vars(taking)["load_pasts"] = load
    task = program_with(lambda turn, messages: turns.append((turn, len(messages))))
    result = asyncio.run(carry(place, lambda store: store, task))
    out.say(msgspec.json.encode([len(loads), turns[0], len(turns), result]).decode())


def check(place: LedgerAddress, out: Pipe) -> None:
    store = place.open()
    contents = assert_ledger_is_whole(store, is_at_rest=True)
    out.say(str(len(contents.turns)))
    store.close()


def heard_from(work: Callable[[Pipe], object]) -> str:
    out = Pipe()
    child = fork(lambda: work(out))
    line = out.only_hear().hear()
    assert_ended_well(child)
    out.close()
    return line


def test_five_thousand_turns_cost_no_more_at_the_end_and_the_next_process_goes_on(quick_path: Path) -> None:
    place, out = LedgerAddress.of_file(quick_path), Pipe()

    with killed_in_the_end(fork(lambda: talk_and_measure(place, out))):
        out.only_hear()
        start, before_early, early, before_late, late = [
            msgspec.json.decode(out.hear(), type=Cost) for _ in MEASURED
        ]
        assert out.hear() == "here"
    resumed = msgspec.json.decode(heard_from(partial(go_on, place)))
    turns = int(heard_from(partial(check, place)))

    statements, pages = early.per_turn(before_early)
    late_statements, late_pages = late.per_turn(before_late)
    bytes_per_turn = [(cost.database_bytes - start.database_bytes) / cost.turn for cost in (early, late)]
    grown = (late.memory_bytes - early.memory_bytes) - (late.list_bytes - early.list_bytes)
    print(
        f"at turn {EARLY:,} and {LATE:,}: statements a turn {statements:.2f} and {late_statements:.2f}, "
        f"pages a turn {pages:.1f} and {late_pages:.1f}, "
        f"database bytes a turn {bytes_per_turn[0]:.0f} and {bytes_per_turn[1]:.0f}, "
        f"memory beside the list grew by {grown:,} bytes in between"
    )
    assert late_statements == pytest.approx(statements, rel=0.05)
    assert late_pages < pages * MOST_MORE_PAGES
    assert bytes_per_turn[1] == pytest.approx(bytes_per_turn[0], rel=0.15)
    assert grown < MOST_FORGOTTEN_BYTES
    assert resumed == [1, [LATE + 1, LATE], WINDOW, LATE + WINDOW]
    assert turns == LATE + WINDOW
