"""A producer that dies at each point of its scenario: simulated in one process, and killed in a real one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import msgspec

from holdfast.core.clock import Clock, SystemClock
from holdfast.core.recorded import RecordedWork
from holdfast.engine.producers.producers import Producers
from holdfast.engine.producers.writes import NewRecord
from holdfast.store import Store
from holdfast.testing import Crashed, FailingStore, Failpoint
from tests.crash.ledger_address import LedgerAddress
from tests.crash.processes import Pipe, assert_ended_well, assert_was_killed, fork

# The calls of one producer about one run.
Scenario = Callable[[Store, Clock, str], Awaitable[object]]


def a_record(run_id: str, /, **changes: Any) -> NewRecord:
    facts = {"name": "render", "goal": "render the title", "owner": "ada", "runtime": "media"}
    return NewRecord(**facts | {"run_id": run_id} | changes)


async def work_of(store: Store, run_id: str) -> RecordedWork:
    return await Producers(store, store.clock).get(run_id)


async def dead_producers(
    store: Store, clock: Clock, scenario: Scenario
) -> AsyncIterator[tuple[str, Failpoint]]:
    """One run for each point of the scenario, with a producer that has died there."""
    whole = FailingStore(store)
    await scenario(whole, clock, "run-0")
    for number, point in enumerate(whole.failpoints(), start=1):
        dying = FailingStore(store, [point])
        with contextlib.suppress(Crashed):
            await scenario(dying, clock, f"run-{number}")
        assert dying.is_dead, f"{point} was not reached"
        yield f"run-{number}", point


def killed_producers(place: LedgerAddress, scenario: Scenario) -> list[str]:
    """The run ids of producers, each killed with SIGKILL at another write of the scenario: before it, inside
    its transaction and after it, in turn. Nothing of this process may be open."""
    pipe = Pipe()
    child = fork(partial(_record, place, scenario, pipe))
    calls = msgspec.json.decode(pipe.only_hear().hear(), type=list[list[Failpoint]])
    assert_ended_well(child)
    pipe.close()
    run_ids: list[str] = []
    for number, points in enumerate(calls):
        run_ids.append(f"killed-{number}")
        point = points[(len(points) - 1) * (number % 3) // 2]
        assert_was_killed(fork(partial(_die, place, scenario, run_ids[-1], point)))
    return run_ids


def _record(place: LedgerAddress, scenario: Scenario, pipe: Pipe) -> None:
    store = FailingStore(place.open())
    asyncio.run(_live(scenario, store, "whole"))
    pipe.say(msgspec.json.encode([call.failpoints() for call in store.calls]).decode())
    store.close()


def _die(place: LedgerAddress, scenario: Scenario, run_id: str, point: Failpoint) -> None:
    store = FailingStore(place.open(), [point], act=lambda: os.kill(os.getpid(), signal.SIGKILL))
    asyncio.run(_live(scenario, store, run_id))


async def _live(scenario: Scenario, store: Store, run_id: str) -> None:
    await scenario(store, SystemClock(), run_id)
