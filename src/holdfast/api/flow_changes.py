"""Changes of flows: create one, update it as its controller, cancel it, retry what blocks it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec

from holdfast.api.contract import EVERYTHING, Reach
from holdfast.api.flows import owner_of, reached_flow, view_nodes
from holdfast.api.ledger import DEFAULT_OWNER, refuse_own
from holdfast.api.params import IdText, NameText, Params, ShortText
from holdfast.core.errors import BadInput, Conflict, NotFound, NotYours
from holdfast.core.flow import FlowMode, NeededResult
from holdfast.core.flow_definition import MAX_NODES, FlowDefinition, NodeDefinition
from holdfast.core.ids import new_token
from holdfast.core.payload import MAX_GOAL_BYTES
from holdfast.core.secret import refuse_references
from holdfast.core.task import DEFAULT_PRIORITY, LOWEST_PRIORITY, Failure
from holdfast.core.transitions import FlowNodeStatus, FlowStatus
from holdfast.views.flows import (
    FlowCancelView,
    FlowChangedView,
    FlowCreatedView,
    FlowRetriedView,
    FlowView,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from holdfast.core.flow import Flow, FlowNode
    from holdfast.engine.ledger.flows import FlowChange
    from holdfast.store.contract import Store, Write
    from holdfast.store.transaction import Tx

T = TypeVar("T")

CANCELLED_BY_OPERATOR = "cancelled by an operator"
# How many existing tasks a new mirrored flow may follow.
MAX_TASKS = 1000
# How many retried nodes an answer has.
MOST_SHOWN = 100

GoalText = Annotated[str, msgspec.Meta(max_length=MAX_GOAL_BYTES)]
# The revision that the caller has read; another one refuses the change.
Revision = Annotated[int, msgspec.Meta(ge=1, le=2**53)]
# A part of a value: names of fields and numbers of items, outermost first.
Path = Annotated[tuple[str | int, ...], msgspec.Meta(max_length=20)]


# --- create


class NodeResultAsked(Params, frozen=True, kw_only=True):
    """A result of a node, or a part of it, as an argument of another node."""

    to: Path
    node: NameText
    path: Path = ()


class NodeAsked(Params, frozen=True, kw_only=True):
    """One node: the task to start when all that it needs has succeeded."""

    id: NameText
    task: NameText
    # An object of names and values.
    arguments: Any = None
    results: tuple[NodeResultAsked, ...] = ()
    needs: tuple[NameText, ...] = ()
    goal: GoalText | None = None
    priority: Annotated[int, msgspec.Meta(ge=0, le=LOWEST_PRIORITY)] = DEFAULT_PRIORITY

    def definition(self) -> NodeDefinition:
        refuse_own("task", self.task)
        refuse_references(f"arguments of {self.id}", self.arguments)
        return NodeDefinition(
            id=self.id,
            task=self.task,
            arguments={} if self.arguments is None else self.arguments,
            results=tuple(NeededResult(to=one.to, node=one.node, path=one.path) for one in self.results),
            needs=self.needs,
            goal=self.goal,
            priority=self.priority,
        )


class FlowCreateAsked(Params, frozen=True, kw_only=True):
    """A new flow: with `nodes`, with a `controller`, or, in the mode `task_mirrored`, with tasks to follow.
    The same key finds the first flow."""

    name: NameText
    goal: GoalText | None = None
    owner: NameText | None = None
    mode: FlowMode = FlowMode.MANAGED
    nodes: Annotated[tuple[NodeAsked, ...], msgspec.Meta(max_length=MAX_NODES)] = ()
    # The program that updates the flow.
    controller: NameText | None = None
    state: Any = msgspec.UNSET
    current_step: NameText | None = None
    key: NameText | None = None
    # Existing tasks of the same owner that a mirrored flow follows.
    task_ids: Annotated[tuple[IdText, ...], msgspec.Meta(max_length=MAX_TASKS)] = ()


def creating_flow(
    asked: FlowCreateAsked, *, now: datetime, reach: Reach = EVERYTHING
) -> Write[FlowCreatedView]:
    """The write that creates a flow. A limited caller can only create flows of its owner."""
    nodes = tuple(node.definition() for node in asked.nodes)
    definition = FlowDefinition(name=asked.name, nodes=nodes) if nodes else None
    return _creating(asked, definition, now=now, reach=reach)


def _creating(
    asked: FlowCreateAsked, definition: FlowDefinition | None, *, now: datetime, reach: Reach
) -> Write[FlowCreatedView]:
    from holdfast.engine.ledger.flows import NewFlow
    from holdfast.engine.ledger.flows import creating_flow as creating

    owner = owner_of(reach)
    if owner is not None and asked.owner not in (None, owner):
        raise BadInput("owner", f"this token is limited to the owner {owner!r}; leave out the owner")
    create = creating(
        NewFlow(
            name=asked.name,
            goal=asked.goal,
            owner=owner or asked.owner or DEFAULT_OWNER,
            mode=asked.mode,
            definition=definition,
            controller=asked.controller,
            state=_plain("state", asked.state),
            current_step=asked.current_step,
            key=asked.key,
            task_ids=asked.task_ids,
        ),
        now=now,
    )

    def write(tx: Tx) -> FlowCreatedView:
        flow = _hiding(reach, lambda: create(tx))
        return FlowCreatedView(flow=FlowView.of(flow), is_new=flow.created_at >= now)

    return write


class FlowStartAsked(Params, frozen=True, kw_only=True):
    """Start a flow that the settings define under `workflows`. The same key finds the first flow."""

    name: NameText
    goal: GoalText | None = None
    owner: NameText | None = None
    key: NameText | None = None


def starting_flow(
    asked: FlowStartAsked, *, now: datetime, definition: FlowDefinition, reach: Reach = EVERYTHING
) -> Write[FlowCreatedView]:
    """The write that starts a flow with this definition, which `name` has in the settings."""
    new = FlowCreateAsked(name=asked.name, goal=asked.goal, owner=asked.owner, key=asked.key)
    return _creating(new, definition, now=now, reach=reach)


def _hiding(reach: Reach, change: Callable[[], T]) -> T:
    """What belongs to another owner does not exist for a limited caller."""
    try:
        return change()
    except NotYours as error:
        if not reach.is_bound:
            raise
        raise NotFound(error.noun, error.record_id) from None


# --- a controller's updates


class FailureAsked(Params, frozen=True, kw_only=True):
    """Why a flow is blocked or has failed."""

    message: ShortText
    kind: NameText = "failed"

    def failure(self) -> Failure:
        return Failure(kind=self.kind, message=self.message)


class FlowUpdateAsked(Params, frozen=True, kw_only=True):
    """What a controller changes of its flow; what is left out stays."""

    flow_id: IdText
    expected_revision: Revision
    status: FlowStatus | None = None
    state: Any = msgspec.UNSET
    # What a flow with the status `waiting` waits for; another status forgets it.
    wait: Any = msgspec.UNSET
    current_step: NameText | msgspec.UnsetType | None = msgspec.UNSET
    blocked_by_task_id: IdText | None = None
    # With the status `blocked` or `failed`.
    failure: FailureAsked | None = None


class FlowWaitAsked(Params, frozen=True, kw_only=True):
    """The flow waits; its wait document says for what."""

    flow_id: IdText
    expected_revision: Revision
    wait: Any
    state: Any = msgspec.UNSET
    current_step: NameText | msgspec.UnsetType | None = msgspec.UNSET
    blocked_by_task_id: IdText | None = None


class FlowResumeAsked(Params, frozen=True, kw_only=True):
    """The flow goes on; its wait document is forgotten."""

    flow_id: IdText
    expected_revision: Revision
    state: Any = msgspec.UNSET
    current_step: NameText | msgspec.UnsetType | None = msgspec.UNSET


class FlowFinishAsked(Params, frozen=True, kw_only=True):
    """The flow has succeeded."""

    flow_id: IdText
    expected_revision: Revision
    state: Any = msgspec.UNSET


class FlowFailAsked(Params, frozen=True, kw_only=True):
    """The flow has failed."""

    flow_id: IdText
    expected_revision: Revision
    message: ShortText
    kind: NameText = "failed"
    state: Any = msgspec.UNSET


def updating_flow(
    asked: FlowUpdateAsked, *, now: datetime, reach: Reach = EVERYTHING
) -> Write[FlowChangedView]:
    from holdfast.engine.ledger.flows import FlowChange

    change = FlowChange(
        to=asked.status,
        state=_plain("state", asked.state),
        wait=_plain("wait", asked.wait),
        current_step=asked.current_step,
        blocked_by_task_id=asked.blocked_by_task_id,
        failure=None if asked.failure is None else asked.failure.failure(),
    )
    return _updating(asked.flow_id, change, asked.expected_revision, now=now, reach=reach)


def waiting_flow(asked: FlowWaitAsked, *, now: datetime, reach: Reach = EVERYTHING) -> Write[FlowChangedView]:
    from holdfast.engine.ledger.flows import FlowChange

    change = FlowChange(
        to=FlowStatus.WAITING,
        state=_plain("state", asked.state),
        wait=_plain("wait", asked.wait),
        current_step=asked.current_step,
        blocked_by_task_id=asked.blocked_by_task_id,
    )
    return _updating(asked.flow_id, change, asked.expected_revision, now=now, reach=reach)


def resuming_flow(
    asked: FlowResumeAsked, *, now: datetime, reach: Reach = EVERYTHING
) -> Write[FlowChangedView]:
    from holdfast.engine.ledger.flows import FlowChange

    change = FlowChange(
        to=FlowStatus.RUNNING, state=_plain("state", asked.state), current_step=asked.current_step
    )
    return _updating(asked.flow_id, change, asked.expected_revision, now=now, reach=reach)


def finishing_flow(
    asked: FlowFinishAsked, *, now: datetime, reach: Reach = EVERYTHING
) -> Write[FlowChangedView]:
    from holdfast.engine.ledger.flows import FlowChange

    change = FlowChange(to=FlowStatus.SUCCEEDED, state=_plain("state", asked.state))
    return _updating(asked.flow_id, change, asked.expected_revision, now=now, reach=reach)


def failing_flow(asked: FlowFailAsked, *, now: datetime, reach: Reach = EVERYTHING) -> Write[FlowChangedView]:
    from holdfast.engine.ledger.flows import FlowChange

    failure = Failure(kind=asked.kind, message=asked.message)
    change = FlowChange(to=FlowStatus.FAILED, failure=failure, state=_plain("state", asked.state))
    return _updating(asked.flow_id, change, asked.expected_revision, now=now, reach=reach)


def _plain(field: str, document: object) -> object:
    if document is not msgspec.UNSET:
        refuse_references(field, document)
    return document


def _updating(
    flow_id: str, change: FlowChange, revision: int, *, now: datetime, reach: Reach
) -> Write[FlowChangedView]:
    from holdfast.engine.ledger.flows import updating_flow as updating

    owner, token = owner_of(reach), new_token()
    # Checked here, so that bad input is refused before the transaction.
    updating(flow_id, change, revision=revision, now=now, owner=owner, token=token)

    def update(tx: Tx) -> FlowChangedView:
        found = reached_flow(tx, flow_id, reach)
        write = updating(found.id, change, revision=revision, now=now, owner=owner, token=token)
        return FlowChangedView(flow=FlowView.of(write(tx)))

    return update


# --- cancel


class FlowCancelAsked(Params, frozen=True, kw_only=True):
    """Cancel one flow and its tasks, with a reason; with a revision, only if it has not changed since."""

    flow_id: IdText
    reason: ShortText = CANCELLED_BY_OPERATOR
    expected_revision: Revision | None = None


def cancelling_flow(
    asked: FlowCancelAsked, *, now: datetime, reach: Reach = EVERYTHING
) -> Write[FlowCancelView]:
    """The write that cancels a flow; `stop_rest` then asks the tasks of a large one that this write left."""
    from holdfast.engine.ledger.flows import FlowAlreadyEnded
    from holdfast.engine.ledger.flows import cancelling_flow as cancelling

    def cancel(tx: Tx) -> FlowCancelView:
        found = reached_flow(tx, asked.flow_id, reach)
        outcome = cancelling(
            found.id, reason=asked.reason, now=now, owner=reach.owner, revision=asked.expected_revision
        )(tx)
        if isinstance(outcome, FlowAlreadyEnded):
            why = f"it has already ended as {outcome.flow.status.value}"
            return _cancel_view("already_ended", outcome.flow, why)
        return cancel_view(outcome.flow)

    return cancel


def cancel_view(flow: Flow) -> FlowCancelView:
    if flow.has_ended:
        return _cancel_view("cancelled", flow, None)
    many = "1 task is" if flow.live == 1 else f"{flow.live:,} tasks are"
    why = f"{many} alive, and asked to stop; it ends when the last one has ended"
    return _cancel_view("cancel_requested", flow, why)


def _cancel_view(outcome: str, flow: Flow, reason: str | None) -> FlowCancelView:
    return FlowCancelView(
        found=True,
        cancelled=outcome != "already_ended",
        reason=reason,
        outcome=outcome,
        flow=FlowView.of(flow),
    )


async def stop_rest(store: Store, view: FlowCancelView) -> FlowCancelView:
    """Ask the other tasks of a cancelled flow to stop. A process that dies here leaves them to the sweep."""
    from holdfast.engine.client.flows import Flows

    if view.flow is None or view.outcome != "cancel_requested":
        return view
    flow_id = view.flow.id
    flows = Flows(store, store.clock)
    await flows.stop_rest(await flows.get(flow_id))
    return cancel_view(await flows.get(flow_id))


# --- retry


class FlowRetryAsked(Params, frozen=True, kw_only=True):
    """Retry what blocks a flow: every node that did not succeed, or the one that is named."""

    flow_id: IdText
    node: NameText | None = None
    expected_revision: Revision | None = None


def retrying_flow(
    asked: FlowRetryAsked, *, now: datetime, reach: Reach = EVERYTHING
) -> Write[FlowRetriedView]:
    """The write of an operator's retry, of at most 100 nodes; `retry_rest` retries the others."""
    from holdfast.engine.recovery.flow_retry import MOST_RETRIED
    from holdfast.engine.recovery.flow_retry import retrying_flow as retrying

    owner, token = owner_of(reach), new_token()

    def retry(tx: Tx) -> FlowRetriedView:
        before = reached_flow(tx, asked.flow_id, reach)
        is_again = before.change_token == token
        # This write may run again after its own commit: then its nodes are those that it has moved.
        failed = [] if is_again else _to_retry(tx, before, asked.node, limit=MOST_RETRIED)
        write = retrying(
            before.id,
            now=now,
            node_id=asked.node,
            owner=owner,
            revision=asked.expected_revision,
            token=token,
        )
        flow = write(tx)
        nodes = (
            _moved(tx, flow, now) if is_again else tx.flow_nodes.at(flow.id, [one.place for one in failed])
        )
        task_ids = [one.task_id for one in nodes if one.task_id is not None]
        if not flow.has_nodes and before.blocked_by_task_id is not None:
            task_ids = [before.blocked_by_task_id]
        return FlowRetriedView(
            flow=FlowView.of(flow),
            nodes=view_nodes(tx, flow, nodes),
            task_ids=[str(task_id) for task_id in task_ids],
        )

    return retry


def _to_retry(tx: Tx, flow: Flow, node: str | None, *, limit: int) -> list[FlowNode]:
    if not flow.has_nodes:
        return []
    return tx.flow_nodes.failed(flow.id, limit=limit) if node is None else [tx.flow_nodes.get(flow.id, node)]


def _moved(tx: Tx, flow: Flow, now: datetime) -> list[FlowNode]:
    """The nodes that a write at this moment has started again."""
    found: list[FlowNode] = []
    after = ""
    while page := tx.flow_nodes.page(flow.id, after=after, limit=MOST_SHOWN):
        found += [one for one in page if one.updated_at == now and one.status is not FlowNodeStatus.PENDING]
        after = page[-1].place
    return found


def retry_rest(
    store: Store, asked: FlowRetryAsked, view: FlowRetriedView, *, reach: Reach = EVERYTHING
) -> FlowRetriedView:
    """Retry the nodes of a large flow that the first write has left, each batch in a write of its own."""
    task_ids = list(view.task_ids)
    while asked.node is None and view.flow.status == FlowStatus.BLOCKED:
        left = _unsuccessful(view)
        one = FlowRetryAsked(flow_id=view.flow.id)
        try:
            found = store.write_now(retrying_flow(one, now=store.clock.now(), reach=reach))
        except Conflict:  # it ended, or another operator retried the rest
            break
        task_ids += found.task_ids
        view = msgspec.structs.replace(view, flow=found.flow, task_ids=task_ids)
        if _unsuccessful(found) >= left:
            break  # what is left cannot be started
    return view


def _unsuccessful(view: FlowRetriedView) -> int:
    return view.flow.tasks.failed + view.flow.tasks.cancelled + view.flow.tasks.lost
