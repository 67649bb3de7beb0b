"""The method of timelines: one task over time."""

from __future__ import annotations

from holdfast.api import timelines
from holdfast.api.contract import READ, Caller, GatewayDoor
from holdfast.api.method_kinds import Method, calls
from holdfast.api.tasks import TaskAsked
from holdfast.views.timeline import TimelineView


async def _timeline(gateway: GatewayDoor, asked: TaskAsked, caller: Caller) -> TimelineView:
    now, reach = gateway.clock.now(), caller.reach
    return await gateway.store.read(lambda tx: timelines.read_timeline(tx, asked, now=now, reach=reach))


TIMELINE_METHODS: list[Method] = [
    calls(
        "ledger.timeline",
        READ,
        TaskAsked,
        TimelineView,
        _timeline,
        "One task over time: its runs, turns, waits and steps, and the restarts of the gateway between.",
        is_owned=True,
    ),
]
