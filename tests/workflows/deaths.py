"""A producer that dies at each point of its workflow: simulated in one process, and killed in a real one."""

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
Workflow = Callable[[Store, Clock, str], Awaitable[object]]


def a_record(run_id: str, /, **changes: Any) -> NewRecord:
    facts = {"name": "render", "goal": "render the title", "owner": "ada", "runtime": "media"}
    return NewRecord(**facts | {"run_id": run_id} | changes)


async def work_of(store: Store, run_id: str) -> RecordedWork:
    return await Producers(store, store.clock).get(run_id)


async def dead_producers(
    store: Store, clock: Clock, workflow: Workflow
) -> AsyncIterator[tuple[str, Failpoint]]:
    """One run for each point of the workflow, with a producer that has died there."""
    whole = FailingStore(store)
    await workflow(whole, clock, "run-0")
    for number, point in enumerate(whole.failpoints(), start=1):
        dying = FailingStore(store, [point])
        with contextlib.suppress(Crashed):
            await workflow(dying, clock, f"run-{number}")
        assert dying.is_dead, f"{point} was not reached"
        yield f"run-{number}", point


def killed_producers(place: LedgerAddress, workflow: Workflow) -> list[str]:
    """The run ids of producers, each killed with SIGKILL at another point of the workflow: before and after
    each write, and inside its transaction. Nothing of this process may be open."""
    pipe = Pipe()
    child = fork(partial(_record, place, workflow, pipe))
    calls = msgspec.json.decode(pipe.only_hear().hear(), type=list[list[Failpoint]])
    assert_ended_well(child)
    pipe.close()
    run_ids: list[str] = []
    for points in calls:
        for point in (points[0], points[len(points) // 2], points[-1]):
            run_ids.append(f"killed-{len(run_ids)}")
            assert_was_killed(fork(partial(_die, place, workflow, run_ids[-1], point)))
    return run_ids


def _record(place: LedgerAddress, workflow: Workflow, pipe: Pipe) -> None:
    store = FailingStore(place.open())
    asyncio.run(_live(workflow, store, "whole"))
    pipe.say(msgspec.json.encode([call.failpoints() for call in store.calls]).decode())
    store.close()


def _die(place: LedgerAddress, workflow: Workflow, run_id: str, point: Failpoint) -> None:
    store = FailingStore(place.open(), [point], act=lambda: os.kill(os.getpid(), signal.SIGKILL))
    asyncio.run(_live(workflow, store, run_id))


async def _live(workflow: Workflow, store: Store, run_id: str) -> None:
    await workflow(store, SystemClock(), run_id)
