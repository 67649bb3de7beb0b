"""Serves tasks in a process without doors: `holdfast.serve` and `holdfast worker` share it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast.app.campaigns import LazyCampaignStarter
from holdfast.app.parts import Parts, open_parts
from holdfast.app.runtimes import FOR_A_GATEWAY, runtimes_of
from holdfast.app.workers import build_worker
from holdfast.config import Settings, default_home
from holdfast.core.clock import Clock, SystemClock

if TYPE_CHECKING:
    from holdfast.app.workers import WorkerOptions
    from holdfast.engine.producers.contract import Runtime
    from holdfast.engine.program.definitions import TaskDefinition
    from holdfast.gateway.serving import Requests
    from holdfast.gateway.signals import StopRequest
    from holdfast.store.outer_keys import Given


async def serve_tasks(
    settings: Settings,
    known: Mapping[str, TaskDefinition[..., Any]],
    requests: Requests,
    *,
    role: str,
    options: WorkerOptions,
    clock: Clock | None = None,
    key: Given | None = None,
    runtimes: Sequence[Runtime] = (),
    settings_took: timedelta = timedelta(0),
    on_ready: Callable[[Parts], None] = lambda _parts: None,
) -> StopRequest:
    """Run these tasks, their schedules and the items of campaigns until a signal or a request to stop, then
    drain. `on_ready` is called once everything that was left in flight is resumed; `options` are those of the
    worker."""
    from holdfast.engine.aio.background import beside
    from holdfast.engine.clocks.jump_watch import ClockWatch
    from holdfast.engine.producers.stopper import Stopper
    from holdfast.engine.program.restart_requests import calling
    from holdfast.engine.recovery.start_log import StartLog
    from holdfast.gateway import serving
    from holdfast.gateway.signals import heard
    from holdfast.schedule.cron import Cron
    from holdfast.tools.command_cancel import CommandEnder
    from holdfast.tools.receipt_cleanup import ReceiptPruner

    # Before the store is opened, so that a signal during the start stops the process cleanly, too.
    with heard(requests.put):
        opened = open_parts(settings, clock=clock, role=role, names=sorted(known), key=key)
        async with opened as parts:
            on_restart = calling(requests.want_restart)
            worker = build_worker(parts, known, **(options | {"on_restart": on_restart}))
            start = StartLog(parts.store, parts.clock, parts.life.boot)
            await start.configured({"tasks": len(known)}, took=settings_took)
            await worker.take_over(start=start)
            await start.go_on()
            # The shell tool leaves receipts here, unless its caller gives another place.
            receipts = [default_home(os.environ) / "receipts"]
            # Files have this machine's time, which may differ from the ledger's.
            machine = SystemClock() if clock is None else clock
            watch = ClockWatch(parts.store, parts.clock)
            ender = CommandEnder(parts.store, parts.clock, parts.life, receipts)
            known_runtimes = runtimes_of(parts, settings, runtimes)
            stopper = Stopper(parts.store, parts.clock, known_runtimes, patience=FOR_A_GATEWAY)
            pruner = ReceiptPruner(parts.store, machine, receipts, watch=watch)
            cron = Cron(parts.store, parts.clock, {}, names=sorted(known), watch=watch)
            campaigns = LazyCampaignStarter(parts.store, parts.clock, host=parts.life.boot.node)
            async with beside(pruner), beside(ender), beside(stopper), beside(cron), beside(campaigns):
                await start.ended()
                on_ready(parts)
                return await serving.serve(worker, requests, parts.store, parts.clock)
