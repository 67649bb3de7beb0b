"""The methods of imports, for commands on this machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.api import imports
from holdfast.api.contract import ADMIN, Caller, GatewayDoor
from holdfast.api.method_kinds import Method, P, V, audited, calls, run_write
from holdfast.views.imports import BatchTakenView, ImportBegunView

if TYPE_CHECKING:
    from holdfast.store.contract import Write


def _begins(
    name: str, params: type[P], answer: type[V], writing: Callable[..., Write[V]], summary: str
) -> Method:
    """A method of one write that only commands on this machine may call."""

    async def call(gateway: GatewayDoor, asked: P, caller: Caller) -> V:
        return await run_write(gateway, name, writing, asked, caller)

    return audited(name, params, answer, call, summary, scope=ADMIN, is_local=True)


IMPORT_METHODS: list[Method] = [
    _begins(
        "imports.begin",
        imports.ImportBeginAsked,
        ImportBegunView,
        imports.beginning,
        "Record in the audit log that an import begins.",
    ),
    calls(
        "imports.flows",
        ADMIN,
        imports.ImportFlowsAsked,
        BatchTakenView,
        imports.take_flows,
        "Import a batch of flows of another gateway, before and after their tasks.",
        is_local=True,
    ),
    calls(
        "imports.tasks",
        ADMIN,
        imports.ImportBatchAsked,
        BatchTakenView,
        imports.take_tasks,
        "Import a batch of tasks of another gateway; no requester is told.",
        is_local=True,
    ),
]
