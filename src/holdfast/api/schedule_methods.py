"""The methods of schedules, in the format of OpenClaw's protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.api import schedule_params, schedules
from holdfast.api.contract import READ, Caller, GatewayDoor
from holdfast.api.method_kinds import Method, P, V, audited, calls, run_write
from holdfast.api.params import Nothing
from holdfast.views.schedules import (
    FiringPageView,
    SchedulePageView,
    ScheduleRemovedView,
    ScheduleRunView,
    ScheduleStatusView,
    ScheduleView,
)

if TYPE_CHECKING:
    from holdfast.store.contract import Write


def _schedules_own(
    name: str, params: type[P], answer: type[V], writing: Callable[..., Write[V]], summary: str
) -> Method:
    """A method of one write to a schedule that the caller may reach."""

    async def call(gateway: GatewayDoor, asked: P, caller: Caller) -> V:
        by = schedules.ScheduleCaller.of(gateway.config, caller, gateway.tasks)
        return await run_write(gateway, name, writing, asked, caller, by=by)

    return audited(name, params, answer, call, summary, is_owned=True)


SCHEDULE_METHODS: list[Method] = [
    calls(
        "cron.list",
        READ,
        schedule_params.SchedulesAsked,
        SchedulePageView,
        schedules.call_list,
        "A page of schedules, with the next and the last firing of each.",
        is_owned=True,
    ),
    calls(
        "cron.get",
        READ,
        schedule_params.ScheduleAsked,
        ScheduleView,
        schedules.call_show,
        "One schedule.",
        is_owned=True,
    ),
    calls(
        "cron.status",
        READ,
        Nothing,
        ScheduleStatusView,
        schedules.call_status,
        "How many schedules there are, and when the next one is due.",
        is_owned=True,
    ),
    _schedules_own(
        "cron.add",
        schedule_params.ScheduleAddAsked,
        ScheduleView,
        schedules.adding_schedule,
        "Add a schedule: for an agent's prompt, a task, or (with operator.admin) a command.",
    ),
    _schedules_own(
        "cron.update",
        schedule_params.ScheduleEditAsked,
        ScheduleView,
        schedules.editing_schedule,
        "Change, pause (`enabled: false`) or resume a schedule; refused if another change came first.",
    ),
    _schedules_own(
        "cron.remove",
        schedule_params.ScheduleRemoveAsked,
        ScheduleRemovedView,
        schedules.removing_schedule,
        "Remove a schedule; its history stays.",
    ),
    _schedules_own(
        "cron.run",
        schedule_params.ScheduleRunAsked,
        ScheduleRunView,
        schedules.running,
        "Fire a schedule now; with the same `requestId` only once.",
    ),
    calls(
        "cron.runs",
        READ,
        schedule_params.FiringsAsked,
        FiringPageView,
        schedules.call_history,
        "The history of a schedule, or of all, with the task of each firing.",
        is_owned=True,
    ),
]
