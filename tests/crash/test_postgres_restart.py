"""PostgreSQL crashes and comes back in the midst of writes; what was acknowledged stands, once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from holdfast.core.clock import SystemClock
from holdfast.core.errors import StoreUnavailable
from holdfast.engine.claims.claims import ClaimedRun
from holdfast.engine.ledger.ledger import Finished
from holdfast.store import Store, write_groups
from tests.crash.facts import Log, assert_facts_stand, read_facts
from tests.crash.invariants import assert_ledger_is_whole
from tests.crash.ledger_address import LedgerAddress
from tests.crash.processes import Pipe, assert_ended_well, fork
from tests.engine.parts import Parts
from tests.servers import PostgresServer

pytestmark = pytest.mark.slow

T = TypeVar("T")

CALLERS = 40
RESTARTS = 2
# So many facts are acknowledged between one crash of the server and the next.
FACTS_BETWEEN = 150


class Callers:
    """Many callers of one store. Each goes on with the same call until it is answered."""

    def __init__(self, parts: Parts, log: Log, out: Pipe) -> None:
        self.refusals = 0
        self._parts = parts
        self._log = log
        self._out = out
        self._facts = 0
        self._wanted = 0

    async def work(self, restarts: int) -> None:
        self._wanted = (restarts + 1) * FACTS_BETWEEN
        async with asyncio.TaskGroup() as group:
            for number in range(CALLERS):
                group.create_task(self._call(number))

    async def _call(self, number: int) -> None:
        turn = 0
        while self._facts < self._wanted:
            turn += 1
            key = f"key-{number}-{turn}"
            task = await self._persist(lambda key=key: self._parts.create(key=key))  # type: ignore[misc]
            self._note("created", task=task.id, name=key)
            for claimed in await self._persist(self._parts.claims.take):
                await self._carry(claimed)

    async def _carry(self, one: ClaimedRun) -> None:
        self._note("claimed", run=one.run.id, value=one.claim.fence)
        await self._persist(lambda: self._parts.journal.save_step(one.claim, "read", one.run.id))
        self._note("step", task=one.task.id, name="read", value=one.run.id)
        await self._persist(lambda: self._parts.journal.decide(one.claim, one.run.id))
        outcome = await self._persist(lambda: self._parts.ledger.finish(one.claim, one.run.id))
        assert isinstance(outcome, Finished)
        self._note("finished", task=one.task.id, run=one.run.id, value=one.run.id)

    async def _persist(self, call: Callable[[], Awaitable[T]]) -> T:
        """The answer, or StoreUnavailable and the same call again: nothing else may come back."""
        while True:
            try:
                return await call()
            except StoreUnavailable:
                self.refusals += 1

    def _note(self, kind: str, **facts: object) -> None:
        self._log.write(kind, **facts)
        self._facts += 1
        if self._facts % FACTS_BETWEEN == 0:
            self._out.say("many")


async def work_through_crashes(place: LedgerAddress, out: Pipe, retry_for_s: float) -> None:
    write_groups.RETRY_FOR_S = retry_for_s
    store = place.open()
    parts = await Parts.begin(store, SystemClock(), locks=place.locks)
    callers = Callers(parts, Log(place.home / "facts.jsonl"), out)
    await callers.work(RESTARTS)
    out.say(f"refused {callers.refusals}")
    await finish_everything(store, parts, place)
    check(store, place, was_refused=callers.refusals > 0)
    store.close()


async def finish_everything(store: Store, parts: Parts, place: LedgerAddress) -> None:
    """The same store goes on: a claim whose answer was lost is still ours until this life ends."""
    await parts.life.end()
    after = await Parts.begin(store, SystemClock(), locks=place.locks)
    await after.recover()
    while claimed := await after.claims.take(100):
        for one in claimed:
            await after.ledger.finish(one.claim, "done")
    await after.life.end()


def check(store: Store, place: LedgerAddress, *, was_refused: bool) -> None:
    facts = read_facts(place.home / "facts.jsonl")
    contents = assert_ledger_is_whole(store, is_at_rest=True)
    assert_facts_stand(store, facts)
    created = Counter(fact.name for fact in facts if fact.kind == "created")
    assert set(created.values()) == {1}
    keys = Counter(task.dedup_key for task in contents.tasks.values())
    assert set(keys.values()) == {1}, "a key has two tasks"
    assert keys.keys() >= created.keys()
    claims = Counter((fact.run, fact.value) for fact in facts if fact.kind == "claimed")
    assert set(claims.values()) == {1}, "a run was handed out twice with one fence"
    noted = store.read_now(lambda tx: tx.journal.notes(list(contents.tasks)))
    # Who was refused and notes it again has noted it again: a note has no key.
    assert was_refused or {len(notes) for notes in noted.values()} == {1}, "a note was doubled"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PostgresServer]:
    with PostgresServer.start(tmp_path / "postgres") as server:
        yield server


@pytest.mark.parametrize("retry_for_s", [30.0, 0.01], ids=["patient", "impatient"])
def test_a_server_that_crashes_in_the_midst_of_writes_loses_and_doubles_nothing(
    server: PostgresServer, quick_path: Path, retry_for_s: float
) -> None:
    place = LedgerAddress(url=server.create_database(), home=quick_path)
    out = Pipe()
    child = fork(partial(run, place, out, retry_for_s))
    out.only_hear()

    for _ in range(RESTARTS):
        assert out.hear() == "many"
        server.stop("immediate")
        server.start_again()
    while (line := out.hear()) == "many":
        pass

    assert_ended_well(child)
    refused = int(line.removeprefix("refused "))
    assert (refused > 0) == (retry_for_s < 1), "who waits long enough is never refused"
    out.close()


def run(place: LedgerAddress, out: Pipe, retry_for_s: float) -> None:
    asyncio.run(work_through_crashes(place, out, retry_for_s))
