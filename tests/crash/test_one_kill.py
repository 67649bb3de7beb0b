"""The promise at its smallest: one task, one step, SIGKILL, resume."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.core.clock import SystemClock
from holdfast.core.transitions import RunStatus, TaskStatus
from tests.crash.ledger_address import LedgerAddress
from tests.crash.processes import Pipe, fork, killed_in_the_end
from tests.engine.parts import Parts

pytestmark = pytest.mark.slow


def test_a_killed_process_leaves_a_step_that_its_follow_up_run_remembers(place: LedgerAddress) -> None:
    pipe = Pipe()

    async def save_one_step_and_hang() -> None:
        parts = await Parts.begin(place.open(), SystemClock(), locks=place.locks)
        claimed = await parts.carry()
        await parts.journal.save_step(claimed.claim, "one", {"tide": "high"})
        pipe.say(claimed.task.id)
        await asyncio.Event().wait()

    async def resume() -> None:
        store = place.open()
        parts = await Parts.begin(store, SystemClock(), locks=place.locks)
        resumed = await parts.recover()
        (claimed,) = await parts.claims.take(10)

        assert len(resumed.followed_up) == 1
        assert claimed.task.id == task_id
        assert claimed.run.resumes_run_id is not None
        assert await parts.journal.find_step(task_id, "one") == b'{"tide":"high"}'
        await parts.ledger.finish(claimed.claim, "done")
        assert (await parts.ledger.get(task_id)).status is TaskStatus.SUCCEEDED
        assert [run.status for run in await parts.ledger.runs(task_id)] == [
            RunStatus.RESUMED,
            RunStatus.SUCCEEDED,
        ]
        assert store.verify() == []
        await parts.life.end()
        store.close()

    with killed_in_the_end(fork(lambda: asyncio.run(save_one_step_and_hang()))):
        task_id = pipe.only_hear().hear()

    asyncio.run(resume())
    pipe.close()
