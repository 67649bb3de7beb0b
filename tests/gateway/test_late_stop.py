"""A stop that comes when a restart is already decided: the gateway stays stopped, and the asker hears it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from holdfast.engine.aio.service import Service
from holdfast.gateway.gateway import Gateway, RestartRequest
from holdfast.gateway.signals import StopRequest
from holdfast.store import Store
from holdfast.testing import FakeClock
from tests.engine.workers import soon, until
from tests.gateway.gateways import Hosted, hosted


class Sender(Service):
    """Ends what it is at before it ends, as one that sends does."""

    def __init__(self) -> None:
        super().__init__(every_s=1.0)
        self.is_done = asyncio.Event()

    async def run_once(self) -> None:
        pass

    async def _pause(self) -> None:
        await self._stop.wait()
        await self.is_done.wait()


async def restarting(one: Hosted) -> Gateway:
    """The restart is decided, and the process has not ended yet."""
    one.gateway.put(StopRequest(why="SIGUSR1", wants_restart=True))
    await until(lambda: one.gateway.status().status == "stopped")
    return one.gateway


async def test_a_signal_to_stop_counts_while_a_restart_ends(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    sender = Sender()
    async with hosted(store, clock, tmp_path / "home", services=[sender]) as one:
        gateway = await restarting(one)
        gateway.put(StopRequest(why="SIGTERM"))
        sender.is_done.set()

        assert await one.ended() is False


async def test_who_asks_to_stop_while_a_restart_ends_is_answered_at_once(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    sender = Sender()
    async with hosted(store, clock, tmp_path / "home", services=[sender]) as one:
        gateway = await restarting(one)
        await soon(gateway.stop("enough", triggered_by="ada"))
        # A caller that wants a restart now does not undo it.
        answer = await soon(gateway.restart(RestartRequest(reason="again", triggered_by="bob")))
        sender.is_done.set()

        assert await one.ended() is False
    assert answer.is_accepted


async def test_a_stop_counts_until_the_process_has_ended(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    async with hosted(store, clock, tmp_path / "home") as one:
        gateway = await restarting(one)
        assert await one.ended() is True
        await soon(gateway.stop("enough", triggered_by="ada"))

        assert gateway.wants_restart is False
