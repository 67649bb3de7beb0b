"""The methods of flows: reads, the updates of a controller, cancel and retry."""

from __future__ import annotations

import asyncio

from holdfast.api import flow_changes, flows
from holdfast.api.contract import WRITE, Caller, GatewayDoor
from holdfast.api.method_kinds import Method, audited, calls, reads_own, run_write, shows_own, writes_own
from holdfast.views.flows import (
    FlowCancelView,
    FlowChangedView,
    FlowCreatedView,
    FlowDetailView,
    FlowNodePageView,
    FlowPageView,
    FlowRetriedView,
    FlowStateView,
    FlowTaskPageView,
)


async def _state(gateway: GatewayDoor, asked: flows.FlowAsked, caller: Caller) -> FlowStateView:
    return await gateway.store.read(lambda tx: flows.read_state(tx, asked, reach=caller.reach))


async def _start(gateway: GatewayDoor, asked: flow_changes.FlowStartAsked, caller: Caller) -> FlowCreatedView:
    # In a thread: it may import the modules of its tasks.
    definition = await asyncio.to_thread(gateway.find_flow, asked.name)
    write = flow_changes.starting_flow
    return await run_write(
        gateway, "flows.start", write, asked, caller, definition=definition, reach=caller.reach
    )


async def _cancel(
    gateway: GatewayDoor, asked: flow_changes.FlowCancelAsked, caller: Caller
) -> FlowCancelView:
    write = flow_changes.cancelling_flow
    view = await run_write(gateway, "flows.cancel", write, asked, caller, reach=caller.reach)
    return await flow_changes.stop_rest(gateway.store, view)


async def _retry(gateway: GatewayDoor, asked: flow_changes.FlowRetryAsked, caller: Caller) -> FlowRetriedView:
    write = flow_changes.retrying_flow
    view = await run_write(gateway, "flows.retry", write, asked, caller, reach=caller.reach)
    # In a thread: many writes must not block the event loop.
    return await asyncio.to_thread(flow_changes.retry_rest, gateway.store, asked, view, reach=caller.reach)


FLOW_METHODS: list[Method] = [
    reads_own("flows.list", flows.FlowsAsked, FlowPageView, flows.read_flows, "Flows, newest first."),
    shows_own(
        "flows.get",
        flows.FlowPartsAsked,
        FlowDetailView,
        flows.read_flow,
        "One flow with a page of its nodes or tasks, its documents without secrets, and its last events.",
    ),
    shows_own(
        "flows.nodes", flows.FlowPartsAsked, FlowNodePageView, flows.read_nodes, "The nodes of a flow."
    ),
    shows_own(
        "flows.tasks", flows.FlowPartsAsked, FlowTaskPageView, flows.read_tasks, "The tasks of a flow."
    ),
    calls(
        "flows.state",
        # Needs the write scope: readers get the redacted documents of `flows.get`.
        WRITE,
        flows.FlowAsked,
        FlowStateView,
        _state,
        "The documents of a flow in full, with the revision that the next update names.",
        is_owned=True,
    ),
    writes_own(
        "flows.create",
        flow_changes.FlowCreateAsked,
        FlowCreatedView,
        flow_changes.creating_flow,
        "Create a flow; the tasks of nodes that need nothing start at once.",
    ),
    audited(
        "flows.start",
        flow_changes.FlowStartAsked,
        FlowCreatedView,
        _start,
        "Start a flow that the settings define under `workflows`.",
        is_owned=True,
    ),
    writes_own(
        "flows.update",
        flow_changes.FlowUpdateAsked,
        FlowChangedView,
        flow_changes.updating_flow,
        "A controller's update of its flow; refused if the flow has another revision.",
    ),
    writes_own(
        "flows.wait",
        flow_changes.FlowWaitAsked,
        FlowChangedView,
        flow_changes.waiting_flow,
        "A flow with a controller waits; its wait document says for what.",
    ),
    writes_own(
        "flows.resume",
        flow_changes.FlowResumeAsked,
        FlowChangedView,
        flow_changes.resuming_flow,
        "A flow with a controller goes on.",
    ),
    writes_own(
        "flows.finish",
        flow_changes.FlowFinishAsked,
        FlowChangedView,
        flow_changes.finishing_flow,
        "A flow with a controller has succeeded; refused while a task of it is alive.",
    ),
    writes_own(
        "flows.fail",
        flow_changes.FlowFailAsked,
        FlowChangedView,
        flow_changes.failing_flow,
        "A flow with a controller has failed; refused while a task of it is alive.",
    ),
    audited(
        "flows.cancel",
        flow_changes.FlowCancelAsked,
        FlowCancelView,
        _cancel,
        "Cancel a flow: nothing of it starts any more, and it ends when its last task has ended.",
        is_owned=True,
    ),
    audited(
        "flows.retry",
        flow_changes.FlowRetryAsked,
        FlowRetriedView,
        _retry,
        "Retry what blocks a flow: every node that did not succeed, or one of them.",
        is_owned=True,
    ),
]
