"""A process dies at every point of its life, and again at every point of the life after that.

HOLDFAST_EVERY_STATEMENT=1 takes each statement of both lives for the pairs, which takes an hour or so.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from pathlib import Path

import apsw
import msgspec
import pytest

from holdfast.core.clock import SystemClock
from holdfast.store import Store
from holdfast.testing import Crashed, FailingStore, Failpoint, FakeClock, RecordedWrite, memory_store
from tests.crash.facts import Fact, Log, assert_facts_stand, read_facts
from tests.crash.invariants import assert_ledger_is_whole
from tests.crash.ledger_address import LedgerAddress
from tests.crash.processes import Pipe, assert_ended_well, assert_was_killed, fork
from tests.crash.scenario import NAMES, Scenario

pytestmark = pytest.mark.slow

# How many pairs are tried at random on each database, where each takes long compared to one in memory.
PAIRS = int(os.environ.get("HOLDFAST_PAIRS") or 10)
# Of the points of a recovery, so many share a first death; after the next one it is the turn of others.
SHARE_OF_RECOVERY = 6


class Lives:
    """Lives of processes, one after another, over one ledger."""

    def __init__(
        self, store: Store, clock: FakeClock, locks: Path, facts: Sequence[Fact] = (), *, name: str = ""
    ) -> None:
        self.facts = list(facts)
        self._store = store
        self._clock = clock
        self._scenario = Scenario(clock, locks, self._note, round_name=name)

    async def first(self, *plan: Failpoint) -> FailingStore:
        store = FailingStore(self._store, plan)
        try:
            await self._scenario.first_life(store)
        except* Crashed:
            pass
        return self._over(store)

    async def next(self, *plan: Failpoint) -> FailingStore:
        store = FailingStore(self._store, plan)
        try:
            await self._scenario.next_life(store)
        except* Crashed:
            pass
        return self._over(store)

    def assert_nothing_is_lost_doubled_or_stuck(self, *, rounds: int = 1) -> None:
        contents = assert_ledger_is_whole(self._store, is_at_rest=True)
        assert_facts_stand(self._store, self.facts)
        assert len(contents.tasks) == len(NAMES) * rounds
        assert contents.living_boots == set()

    def _over(self, store: FailingStore) -> FailingStore:
        """Whatever it died of, it left a ledger that is whole; the next one only has to go on."""
        assert_ledger_is_whole(self._store)
        self._scenario.die()
        self._clock.advance(seconds=1)
        return store

    def _note(self, kind: str, **facts: object) -> None:
        self.facts.append(Fact(kind=kind, **facts))  # type: ignore[arg-type]


class MemoryLedger:
    """A ledger in memory that can be put back to how it was."""

    def __init__(self, locks: Path) -> None:
        self.clock = FakeClock()
        self.store = memory_store(self.clock)
        self._locks = locks
        self._kept = locks.with_name(f"{locks.name}-kept")
        for directory in (locks, self._kept):
            directory.mkdir(parents=True, exist_ok=True)
        self._empty = self.snapshot()

    def snapshot(self) -> bytes:
        """With the locks of the dead: as links, because a copy of a lock proves nothing."""
        _link_all(self._locks, self._kept)
        return bytes(self._connection().serialize("main"))

    def lives(self, snapshot: bytes | None = None, before: Lives | None = None) -> Lives:
        """Lives over an empty ledger, or over one as it was left before."""
        self._connection().deserialize("main", self._empty if snapshot is None else snapshot)
        _link_all(self._kept, self._locks)
        if before is None:
            return Lives(self.store, FakeClock(), self._locks)
        return Lives(self.store, FakeClock(before._clock.now()), self._locks, before.facts)

    def _connection(self) -> apsw.Connection:
        connection: apsw.Connection = self.store._writer.exclusively(lambda session: session.connection)  # type: ignore[attr-defined]
        return connection


def _link_all(source: Path, target: Path) -> None:
    for path in source.glob("*.lock"):
        with contextlib.suppress(FileExistsError):
            (target / path.name).hardlink_to(path)


@pytest.fixture
def memory(quick_path: Path) -> Iterator[MemoryLedger]:
    ledger = MemoryLedger(quick_path / "boots")
    yield ledger
    ledger.store.close()


def points_of(calls: Sequence[RecordedWrite], *, turn: int) -> list[Failpoint]:
    """Before, inside and after each call. What happens inside is undone, so one statement of each is enough;
    which one it is changes with the turn."""
    if os.environ.get("HOLDFAST_EVERY_STATEMENT"):
        return [point for call in calls for point in call.failpoints()]
    points = []
    for call in calls:
        before, *inside, after = call.failpoints()
        points += [before, *inside[turn % len(inside) :][:1], after] if inside else [before, after]
    return points


async def test_the_scenario_passes_every_kind_of_persistence_call(memory: MemoryLedger) -> None:
    lives = memory.lives()

    called = {call.name for store in (await lives.first(), await lives.next()) for call in store.calls}

    assert called >= {
        "pausing.<locals>.pause",
        "Claims._taking.<locals>.take",
        "Resumer.claim.<locals>.claim",
        "Resumer._following_up.<locals>.follow_up",
        "Ledger._end.<locals>.end",
        "Rescuer._rescuing.<locals>.rescue",
        "_noting_end.<locals>.note_end",
    }


async def test_a_process_may_die_at_any_point_of_its_life(memory: MemoryLedger) -> None:
    points = (await memory.lives().first()).failpoints()

    for point in points:
        lives = memory.lives()
        dead = await lives.first(point)
        await lives.next()

        assert dead.is_dead, f"{point} was not reached"
        lives.assert_nothing_is_lost_doubled_or_stuck()


def test_the_next_process_may_die_at_any_point_of_its_recovery_too(quick_path: Path) -> None:
    """All pairs of states, shared by as many processes as there are processors."""
    shares = os.cpu_count() or 1

    children = [
        fork(partial(run, die_in_pairs, quick_path / str(share), share, shares)) for share in range(shares)
    ]

    for child in children:
        assert_ended_well(child)


def states_of(points: Sequence[Failpoint]) -> list[Failpoint]:
    """One point for each state that a death can leave the ledger in: what is inside a call is undone, and
    after one is before the next, when more has been promised. The deaths that are alone pass all of them."""
    if os.environ.get("HOLDFAST_EVERY_STATEMENT"):
        return list(points)
    return [point for point in points[:-1] if point.where == "before"] + [points[-1]]


async def die_in_pairs(locks: Path, share: int, shares: int) -> None:
    memory = MemoryLedger(locks)
    calls = (await memory.lives().first()).calls
    for turn, first in enumerate(states_of(points_of(calls, turn=0))):
        if turn % shares == share:
            await die_there_and_everywhere_after(memory, first, turn)
    memory.store.close()


async def die_there_and_everywhere_after(memory: MemoryLedger, first: Failpoint, turn: int) -> None:
    before = memory.lives()
    await before.first(first)
    snapshot = memory.snapshot()
    recovery = await memory.lives(snapshot, before).next()
    points = points_of(recovery.calls, turn=turn // SHARE_OF_RECOVERY)
    for second in shared(points, turn):
        lives = memory.lives(snapshot, before)
        dead = await lives.next(second)
        await lives.next()

        assert dead.is_dead, f"{second} was not reached after {first}"
        lives.assert_nothing_is_lost_doubled_or_stuck()


def shared(points: Sequence[Failpoint], turn: int) -> list[Failpoint]:
    """One in so many of them, others each time, and the last one."""
    if os.environ.get("HOLDFAST_EVERY_STATEMENT"):
        return list(points)
    return [*points[:-1][turn % SHARE_OF_RECOVERY :: SHARE_OF_RECOVERY], points[-1]]


async def test_pairs_of_deaths_at_random_points_leave_any_ledger_whole(
    place: LedgerAddress, seed: int
) -> None:
    chance, clock = random.Random(seed), FakeClock()
    store = place.open(clock)
    recorded = Lives(store, clock, place.locks, name="recorded")
    firsts, nexts = (await recorded.first()).failpoints(), (await recorded.next()).failpoints()
    facts = recorded.facts

    for number in range(1, PAIRS + 1):
        lives = Lives(store, clock, place.locks, facts, name=f"{number}-")
        first, second = chance.choice(firsts), chance.choice(nexts)
        await lives.first(first)
        await lives.next(second)
        await lives.next()
        facts = lives.facts

        if number % 10 == 0 or number == PAIRS:
            print(f"up to {first}, {second}")
            lives.assert_nothing_is_lost_doubled_or_stuck(rounds=number + 1)
    store.close()


def test_every_single_write_is_also_met_by_a_real_kill(place: LedgerAddress) -> None:
    """Before it, inside it or after it, in turn: each state of the ledger is left once by a real kill.

    The deaths in memory pass every point, and a kill inside a transaction is the same for a database,
    whichever statement was the last.
    """
    calls = recorded_calls(place)
    points = [one_point_of(call, turn) for turn, call in enumerate(calls)]

    for number, point in enumerate(points, start=1):
        assert_was_killed(fork(partial(run, recover_and_live, place, point, number)))

    assert {point.where for point in points} == {"before", "inside", "after"}
    assert len(points) > 10
    assert_ended_well(fork(partial(run, recover, place, len(points))))
    assert_ended_well(fork(partial(check, place, rounds=len(points) + 1)))


def one_point_of(call: RecordedWrite, turn: int) -> Failpoint:
    before, *inside, after = call.failpoints()
    return [before, inside[turn % len(inside)] if inside else before, after][turn % 3]


def recorded_calls(place: LedgerAddress) -> list[RecordedWrite]:
    """The writes of a first life on this database, told by a child that lived it to the end."""
    pipe = Pipe()
    child = fork(partial(run, record, place, pipe))
    calls = msgspec.json.decode(pipe.only_hear().hear(), type=list[RecordedWrite])
    assert_ended_well(child)
    pipe.close()
    return calls


def run(life: Callable[..., Coroutine[None, None, None]], *arguments: object) -> None:
    """A whole life in this process, which does nothing else."""
    asyncio.run(life(*arguments))


async def record(place: LedgerAddress, pipe: Pipe) -> None:
    store = FailingStore(place.open())
    scenario = scenario_of(place, 0)
    await scenario.first_life(store)
    scenario.die()
    await scenario.next_life(store.inner)
    pipe.say(msgspec.json.encode(store.calls).decode())
    store.close()


async def recover_and_live(place: LedgerAddress, point: Failpoint, number: int) -> None:
    """Bring the last round to its end, then begin another that ends at the point, by a kill."""
    await recover(place, number - 1)
    store = FailingStore(place.open(), [point], act=lambda: os.kill(os.getpid(), signal.SIGKILL))
    await scenario_of(place, number).first_life(store)


async def recover(place: LedgerAddress, number: int) -> None:
    store = place.open()
    await scenario_of(place, number).next_life(store)
    store.close()


def scenario_of(place: LedgerAddress, number: int) -> Scenario:
    log = Log(place.home / "facts.jsonl")
    return Scenario(SystemClock(), place.locks, log.write, round_name=f"{number}-", wait_s=0)


def check(place: LedgerAddress, *, rounds: int) -> None:
    store = place.open()
    contents = assert_ledger_is_whole(store, is_at_rest=True)
    assert_facts_stand(store, read_facts(place.home / "facts.jsonl"))
    assert len(contents.tasks) == len(NAMES) * rounds
    assert contents.living_boots == set()
    store.close()
