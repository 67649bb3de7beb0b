"""The methods of failures: groups by fingerprint, and a retry of one group."""

from __future__ import annotations

import asyncio

from holdfast.api import failures
from holdfast.api.contract import READ, WRITE, Caller, GatewayDoor
from holdfast.api.method_kinds import Method, acts, calls
from holdfast.views.failures import FailuresView, RetriedGroupView


async def _list(gateway: GatewayDoor, asked: failures.FailuresAsked, caller: Caller) -> FailuresView:
    now, reach = gateway.clock.now(), caller.reach
    return await gateway.store.read(lambda tx: failures.read_failures(tx, asked, now=now, reach=reach))


async def _retry(
    gateway: GatewayDoor, asked: failures.FailuresRetryAsked, caller: Caller
) -> RetriedGroupView:
    # In a thread: many writes must not block the event loop.
    return await asyncio.to_thread(failures.retry_failures, gateway.store, asked, reach=caller.reach)


FAILURE_METHODS: list[Method] = [
    calls(
        "failures.list",
        READ,
        failures.FailuresAsked,
        FailuresView,
        _list,
        "The newest failed tasks, grouped by what failed and where.",
        is_owned=True,
    ),
    acts(
        "failures.retry",
        WRITE,
        failures.FailuresRetryAsked,
        RetriedGroupView,
        _retry,
        "Retry all tasks that failed in the same way; the answer names those that were refused, and why.",
        is_owned=True,
    ),
]
