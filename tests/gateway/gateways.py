"""A gateway over a store of a test, without doors: what `app.gateway` wires around it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from holdfast import app
from holdfast.app.workers import gateway_worker
from holdfast.config.sections import Config, GatewaySettings, RestartSettings
from holdfast.core.clock import Clock
from holdfast.core.manifest import Restart
from holdfast.engine.aio.service import Service
from holdfast.engine.claims.boots import Life
from holdfast.engine.program.definitions import TaskDefinition, by_name
from holdfast.engine.program.run_phase import StopReason
from holdfast.gateway.conversations import Conversations
from holdfast.gateway.gateway import Gateway, RestartRequest
from holdfast.gateway.inbox import Inbox
from holdfast.store import Store
from holdfast.upkeep.sweep import Sweep
from tests.engine.workers import soon


class Hosted:
    """One life of a gateway."""

    def __init__(self, gateway: Gateway, life: Life, running: asyncio.Task[bool]) -> None:
        self.gateway = gateway
        self.life = life
        self.running = running
        self.told: list[str] = []

    async def ended(self) -> bool:
        """Whether it wants to be started again."""
        return await soon(asyncio.shield(self.running))

    async def restart(self, reason: str = "why not", **changes: Any) -> Any:
        request = RestartRequest(reason=reason, triggered_by="ada", **{"force": True} | changes)
        return await soon(self.gateway.restart(request))

    async def restarts(self) -> list[Restart]:
        return await self.gateway.restarts()


def config_with(**restart: Any) -> Config:
    return Config(gateway=GatewaySettings(restart=RestartSettings(**{"drain_timeout_s": 10.0} | restart)))


@asynccontextmanager
async def hosted(
    store: Store,
    clock: Clock,
    home: Path,
    *tasks: TaskDefinition[..., Any],
    config: Config | None = None,
    why_held: str | None = None,
    services: Sequence[Service] = (),
    why_not: Callable[[], str | None] = lambda: None,
) -> AsyncIterator[Hosted]:
    """A gateway that serves while the block runs. If it has not ended by then it dies: nothing is drained.

    `why_not` says why the next one could not start."""
    home.mkdir(exist_ok=True)  # noqa: ASYNC240 - a test
    life = await Life.begin(store, clock, locks=home / "boots", role="gateway")
    known = by_name(tasks)
    agents = [name.removeprefix("agent.") for name in known if name.startswith("agent.")]
    conversations = Conversations(store, clock, agents)
    told: list[str] = []

    async def try_next() -> str | None:
        return why_not()

    config = config or config_with()
    gateway = Gateway(
        store,
        clock,
        life,
        config,
        known,
        home=home,
        inbox=Inbox(store, clock),
        make_worker=gateway_worker(app.wire(store, clock, life), known, config),
        sweep=Sweep(store, clock, has_died=life.has_died),
        services=[conversations, *services],
        held=[conversations],
        why_held=why_held,
        tell=told.append,
        trial=try_next,
    )
    running = asyncio.get_running_loop().create_task(gateway.run())
    one = Hosted(gateway, life, running)
    one.told = told
    try:
        await soon(_ready_or_over(gateway, running))
        yield one
    finally:
        if running.done() and not getattr(store, "is_dead", False):
            await life.end()
        else:
            await die(one)


async def _ready_or_over(gateway: Gateway, running: asyncio.Task[bool]) -> None:
    ready = asyncio.ensure_future(gateway.is_ready.wait())
    await asyncio.wait([ready, running], return_when=asyncio.FIRST_COMPLETED)
    ready.cancel()
    if running.done():
        running.result()


async def die(one: Hosted) -> None:
    """As a killed process: nothing is written any more, and its lock is free."""
    worker = one.gateway._worker
    for carried in worker._in_flight.all_runs():
        carried.give_up(StopReason.CRASHED)
    worker._in_flight.let_go(worker._in_flight.all_runs())
    one.running.cancel()
    await asyncio.gather(one.running, return_exceptions=True)
    assert one.life._lock is not None
    one.life._lock.release(keeps_file=True)  # as the kernel does: the file stays


def document_of(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.json.decode(path.read_bytes())
    return document
