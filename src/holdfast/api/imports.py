"""imports.*: a command on this machine reads another gateway's database and sends its records in batches."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import msgspec

from holdfast.api.params import IdText, Params
from holdfast.core.imported import ImportedFlow, ImportedTask, ImportSource
from holdfast.engine.producers.flow_imports import PreparedFlow, prepare_flow, taking_over_flows
from holdfast.engine.producers.imports import MAX_BATCH, PreparedTask, prepare_import, taking_over
from holdfast.views.imports import BatchTakenView, ImportBegunView

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast.api.contract import Caller, GatewayDoor
    from holdfast.core.imported import ImportOutcome
    from holdfast.store.contract import Write
    from holdfast.store.transaction import Tx


class ImportBeginAsked(Params, frozen=True, kw_only=True):
    """An import begins. `name` is the path that is imported, for the audit log."""

    source: ImportSource
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]


class ImportBatchAsked(Params, frozen=True, kw_only=True):
    """Tasks of another gateway. The same batch again gives the same answer."""

    source: ImportSource
    batch_id: IdText
    tasks: Annotated[list[ImportedTask], msgspec.Meta(min_length=1, max_length=MAX_BATCH)]


class ImportFlowsAsked(Params, frozen=True, kw_only=True):
    """Flows of another gateway. With `onlyNew`, known ones stay as they are: their tasks come first."""

    source: ImportSource
    batch_id: IdText
    flows: Annotated[list[ImportedFlow], msgspec.Meta(min_length=1, max_length=MAX_BATCH)]
    only_new: bool = False


def beginning(asked: ImportBeginAsked, *, now: datetime) -> Write[ImportBegunView]:  # noqa: ARG001 - the signature of every write
    """The audit entry is the whole write."""

    def begin(tx: Tx) -> ImportBegunView:  # noqa: ARG001 - the signature of every write
        return ImportBegunView(name=asked.name)

    return begin


async def take_tasks(gateway: GatewayDoor, asked: ImportBatchAsked, caller: Caller) -> BatchTakenView:  # noqa: ARG001 - the signature of every method
    """Raises BadInput."""
    now = gateway.clock.now()
    # In a thread, because every text is searched for secrets.
    prepared = await asyncio.to_thread(_prepare, asked, now)
    write = taking_over(prepared, source=asked.source, batch_id=asked.batch_id, now=now)
    return await _written(gateway, write)


async def take_flows(gateway: GatewayDoor, asked: ImportFlowsAsked, caller: Caller) -> BatchTakenView:  # noqa: ARG001 - the signature of every method
    """Raises BadInput."""
    now = gateway.clock.now()
    prepared = await asyncio.to_thread(_prepare_flows, asked, now)
    write = taking_over_flows(
        prepared, source=asked.source, batch_id=asked.batch_id, now=now, only_new=asked.only_new
    )
    return await _written(gateway, write)


async def _written(gateway: GatewayDoor, write: Write[list[ImportOutcome]]) -> BatchTakenView:
    def write_beside(tx: Tx) -> list[ImportOutcome]:
        tx.sealing.leave_loop()
        return write(tx)

    return BatchTakenView(taken=await gateway.store.write(write_beside))


def _prepare(asked: ImportBatchAsked, now: datetime) -> list[PreparedTask]:
    return [
        prepare_import(task, source=asked.source, batch_id=asked.batch_id, now=now) for task in asked.tasks
    ]


def _prepare_flows(asked: ImportFlowsAsked, now: datetime) -> list[PreparedFlow]:
    return [prepare_flow(flow, source=asked.source, batch_id=asked.batch_id, now=now) for flow in asked.flows]
