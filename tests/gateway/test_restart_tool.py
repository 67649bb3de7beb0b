"""The tool with which a run asks its own gateway to restart."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import holdfast as hf
from holdfast.core.errors import NotInRun
from holdfast.testing import FakeClock, memory_store
from holdfast.tools import restart_gateway
from tests.engine.workers import carrying, soon
from tests.gateway.gateways import hosted


@hf.task
async def asks(run: hf.Run) -> str:
    answer = await run.tool(restart_gateway, {"reason": "new tools", "force": True})
    assert answer.is_accepted
    await run.sleep("1h")
    return "restarted"


async def test_a_run_asks_the_gateway_that_runs_it_and_no_other_one_of_its_process(tmp_path: Path) -> None:
    clock = FakeClock()
    with closing(memory_store(clock=clock)) as one, closing(memory_store(clock=clock)) as two:
        async with (
            hosted(one, clock, tmp_path / "one", asks) as first,
            hosted(two, clock, tmp_path / "two", asks) as second,
        ):
            await first.gateway.holdfast.start(asks())

            assert await first.ended() is True
            assert await second.restarts() == []
            assert not second.running.done()


async def test_a_run_of_a_script_has_no_gateway_to_ask() -> None:
    clock = FakeClock()

    @hf.task
    async def asks_in_vain(run: hf.Run) -> str:
        try:
            await run.tool(restart_gateway, {"reason": "new tools"})
        except NotInRun as error:
            return str(error)
        return "restarted"

    with closing(memory_store(clock=clock)) as store:
        async with carrying(store, clock, asks_in_vain) as process:
            handle = await process.holdfast.start(asks_in_vain())
            answer = await soon(handle.result())

    assert "start one with `holdfast up`" in answer
