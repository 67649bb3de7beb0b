"""The writes of flows: create, update with a revision, link existing tasks, cancel."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from holdfast.core.errors import BadInput, Conflict, FlowsBlended, NotYours, PayloadTooLarge, RevisionMismatch
from holdfast.core.events import EventKind
from holdfast.core.flow import MAX_DOCUMENT_BYTES, Flow, FlowMode, FlowNode, TaskChange, TaskChangeKind
from holdfast.core.flow_definition import FlowDefinition, check_definition, plans_of
from holdfast.core.ids import FlowId, TaskId, check_id, new_flow_id, new_token
from holdfast.core.payload import (
    MAX_GOAL_BYTES,
    MAX_PAYLOAD_BYTES,
    check_name,
    check_number,
    check_text,
    digest_of,
    encode_payload,
)
from holdfast.core.redaction import redact_name
from holdfast.core.secret_scanner import holds_secret
from holdfast.core.task import Failure, Task
from holdfast.core.transitions import FlowStatus
from holdfast.engine.ledger.flow_progress import (
    MOST_INLINE,
    PRODUCER,
    TASKS,
    check_open,
    insert_flow,
    save_moved,
    settled,
    start_nodes,
)
from holdfast.engine.ledger.inputs import check_choice
from holdfast.engine.ledger.ledger import MOST_STOPPED, checked_failure, settle_flow, stop_tasks
from holdfast.store import Tx, Write

MAX_LINKED = 1000
# All plans of one definition: they are written in one transaction.
MAX_DEFINITION_BYTES = MAX_PAYLOAD_BYTES
# A controller's update may set these; it ends the flow with the last two.
_SET_BY_CONTROLLERS = frozenset(
    {FlowStatus.QUEUED, FlowStatus.RUNNING, FlowStatus.WAITING, FlowStatus.BLOCKED}
) | {FlowStatus.SUCCEEDED, FlowStatus.FAILED}

Document = object | msgspec.UnsetType


class NewFlow(msgspec.Struct, frozen=True, kw_only=True):
    """The flow to create: with a `definition`, with a `controller`, or, in the mode `task_mirrored`, with
    tasks to follow. The same `key` again, for the same owner, finds the first flow."""

    name: str | None = None
    goal: str | None = None
    owner: str = "system"
    mode: FlowMode | str = FlowMode.MANAGED
    definition: FlowDefinition | None = None
    # The program or plug-in that updates the flow.
    controller: str | None = None
    state: Document = msgspec.UNSET
    current_step: str | None = None
    key: str | None = None
    # Existing tasks of the same owner that a mirrored flow follows.
    task_ids: tuple[str, ...] = ()


class FlowChange(msgspec.Struct, frozen=True, kw_only=True):
    """What a controller changes of its flow; what is unset stays. `wait` says what a waiting flow waits for;
    any other status forgets it."""

    to: FlowStatus | str | None = None
    state: Document = msgspec.UNSET
    wait: Document = msgspec.UNSET
    current_step: str | msgspec.UnsetType | None = msgspec.UNSET
    blocked_by_task_id: str | None = None
    failure: Failure | None = None


class FlowCancelled(msgspec.Struct, frozen=True, kw_only=True):
    """No task of the flow was alive any more, so it has ended."""

    flow: Flow


class FlowCancelRequested(msgspec.Struct, frozen=True, kw_only=True):
    """The request is recorded, and no task starts any more. The flow ends when its last task has ended."""

    flow: Flow


class FlowAlreadyEnded(msgspec.Struct, frozen=True, kw_only=True):
    """The flow had ended before, so the call changed nothing."""

    flow: Flow


FlowCancelOutcome = FlowCancelled | FlowCancelRequested | FlowAlreadyEnded


def owned_flow(flow: Flow, owner: str | None) -> Flow:
    """The flow, if it belongs to that owner; operators have no owner. Raises NotYours."""
    if owner is not None and flow.owner not in (owner, redact_name(owner)):
        raise NotYours("flow", flow.id, redact_name(owner))
    return flow


# --- create


def creating_flow(new: NewFlow, *, now: datetime) -> Write[Flow]:
    """The write that creates a flow, and the tasks of the nodes that need nothing. Everything is checked
    before it is returned. Raises KeyConflict if the key belongs to a flow with another definition."""
    flow, nodes = _prepare(new, now)
    task_ids = sorted({check_id("task", one) for one in new.task_ids})
    said = msgspec.json.encode(
        [flow.name, flow.mode.value, flow.controller, new.goal, [_text_of(node) for node in nodes], task_ids]
    )
    digest, is_secret = digest_of(said), holds_secret(said)

    def create(tx: Tx) -> Flow:
        if len(nodes) > MOST_INLINE:
            tx.sealing.leave_loop()
        before = tx.flows.find(flow.id)
        if before is not None:
            return before  # this write runs again after its own commit
        if flow.dedup_key is not None:
            first = tx.flows.take_key(flow, digest, holds_secret=is_secret)
            if first is not None:
                return first
        tasks = [tx.tasks.lock(task_id) for task_id in task_ids]
        insert_flow(tx, flow, now=now)
        if nodes:
            tx.flow_nodes.create_many(nodes)
            after = start_nodes(tx, flow, [node for node in nodes if node.unmet == 0], now=now)
            save_moved(tx, flow, settled(tx, after), now=now)
        if tasks:
            _link(tx, flow, tasks, now)
        return tx.flows.get(flow.id)

    return create


def _text_of(node: FlowNode) -> list[str]:
    return [node.id, node.plan.decode()]


def _prepare(new: NewFlow, now: datetime) -> tuple[Flow, list[FlowNode]]:
    if not isinstance(new, NewFlow):
        raise BadInput("flow", f"a new flow is needed, not {type(new).__name__}")
    mode = check_choice("mode", new.mode, FlowMode)
    definition = None if new.definition is None else check_definition(new.definition)
    _check_kind(new, mode)
    name = definition.name if definition is not None else check_name("flow name", new.name)
    goal = new.goal if new.goal is not None else None if definition is None else definition.goal
    flow_id = new_flow_id(now)
    nodes = [] if definition is None else _nodes_of(flow_id, definition, now)
    controller = None if new.controller is None else check_name("controller", new.controller)
    flow = Flow(
        id=flow_id,
        owner=check_name("owner", new.owner),
        mode=mode,
        goal=check_text("goal", name if goal is None else goal, max_bytes=MAX_GOAL_BYTES),
        created_at=now,
        status=FlowStatus.RUNNING if nodes else FlowStatus.QUEUED,
        current_step=_checked_step(new.current_step),
        contents=_document("state", new.state),
        waits_on=TASKS if nodes else f"controller:{controller}" if controller else PRODUCER,
        updated_at=now,
        name=name,
        controller=controller,
        dedup_key=None if new.key is None else check_name("key", new.key),
        nodes=len(nodes),
    )
    return flow, nodes


def _check_kind(new: NewFlow, mode: FlowMode) -> None:
    """A flow is driven in exactly one way."""
    if mode is FlowMode.TASK_MIRRORED:
        if new.definition is not None or new.controller is not None:
            raise FlowsBlended(
                "the flow",
                "is to mirror its tasks, so it can have neither a definition nor a controller; use the mode "
                "`managed` for those",
            )
        if len(new.task_ids) > MAX_LINKED:
            raise BadInput("task_ids", f"at most {MAX_LINKED} tasks; let later ones name the flow")
        return
    if (new.definition is None) is (new.controller is None):
        raise BadInput("flow", "a managed flow has either a definition or a controller; give one of them")
    if new.definition is not None and new.state is not msgspec.UNSET:
        raise BadInput("state", "only a flow with a controller has a state document")
    if new.task_ids:
        raise FlowsBlended(
            "the flow", "is managed, so it cannot take over tasks that exist; use the mode `task_mirrored`"
        )


def _nodes_of(flow_id: FlowId, definition: FlowDefinition, now: datetime) -> list[FlowNode]:
    nodes = []
    room = MAX_DEFINITION_BYTES
    for place, node_id, plan in plans_of(definition):
        encoded = encode_payload(f"node {node_id} of flow {definition.name}", plan)
        room -= len(encoded)
        if room < 0:
            raise PayloadTooLarge(
                f"flow {definition.name}", MAX_DEFINITION_BYTES - room, MAX_DEFINITION_BYTES
            )
        nodes.append(
            FlowNode(
                flow_id=flow_id,
                place=place,
                id=node_id,
                plan=encoded,
                created_at=now,
                unmet=len(plan.needs),
                updated_at=now,
            )
        )
    return nodes


def _document(field: str, value: Document) -> bytes | None:
    if value is msgspec.UNSET:
        return None
    return encode_payload(field, value, max_bytes=MAX_DOCUMENT_BYTES)


def _checked_step(step: str | None) -> str | None:
    return None if step is None else check_name("current_step", step)


# --- mirror


def linking(flow_id: str, task_ids: Sequence[str], *, now: datetime, owner: str | None = None) -> Write[Flow]:
    """The write that makes existing tasks part of a mirrored flow. Raises FlowsBlended, NotYours, NotFound,
    and Conflict for a task of another flow."""
    check_id("flow", flow_id)
    ids = sorted({check_id("task", one) for one in task_ids})
    if not 0 < len(ids) <= MAX_LINKED:
        raise BadInput("task_ids", f"from 1 to {MAX_LINKED} tasks at once")

    def link(tx: Tx) -> Flow:
        tasks = [tx.tasks.lock(task_id) for task_id in ids]
        flow = owned_flow(locked_flow(tx, flow_id), owner)
        if not flow.is_mirrored:
            raise FlowsBlended(flow.id, "is managed, so it cannot take over tasks that exist")
        if any(task.flow_id != flow.id for task in tasks):
            check_open(flow)
            _link(tx, flow, tasks, now)
        return tx.flows.get(flow.id)

    return link


def _link(tx: Tx, flow: Flow, tasks: Sequence[Task], now: datetime) -> None:
    for task in tasks:
        if task.flow_id == flow.id:
            continue
        if task.owner != flow.owner:
            raise NotYours("task", task.id, flow.owner)
        if task.flow_id is not None:
            raise Conflict(f"{task.id} is part of {task.flow_id}; a task belongs to one flow")
        if task.runtime.is_executed_here and not task.has_ended:
            # Its worker may have read it already, and would not tell the flow of its end.
            raise Conflict(f"a worker executes {task.id}; name the flow when you create such a task")
        tx.tasks.link(task.id, flow.id, now=now)
        for kind in _history_of(task):
            change = TaskChange(
                kind=kind,
                task_id=task.id,
                at=now,
                status=task.status if kind is TaskChangeKind.ENDED else None,
                is_executed_here=task.runtime.is_executed_here,
            )
            tx.before_commit(flow.id, settle_flow, change)
    tx.act_now(flow.id)


def _history_of(task: Task) -> list[TaskChangeKind]:
    """What a task has gone through before it joined the flow."""
    history = [TaskChangeKind.JOINED]
    if task.started_at is not None:
        history.append(TaskChangeKind.BEGAN)
    if task.has_ended:
        history.append(TaskChangeKind.ENDED)
    return history


def mirror_of(task: Task, flow_id: FlowId, *, now: datetime) -> Flow:
    """The one-task flow of recorded work that has none; the task names it from the beginning."""
    return Flow(
        id=flow_id,
        owner=task.owner,
        mode=FlowMode.TASK_MIRRORED,
        goal=task.goal,
        created_at=now,
        waits_on=TASKS,
        updated_at=now,
        name=task.name,
    )


# --- a controller's updates


def locked_flow(tx: Tx, flow_id: str) -> Flow:
    """The flow, locked, as the writes before in this transaction left it: what their tasks changed of it was
    put off until the commit, and counts now."""
    tx.flows.lock(flow_id)
    tx.act_now(flow_id)
    return tx.flows.get(flow_id)


def updating_flow(
    flow_id: str,
    change: FlowChange,
    *,
    revision: int,
    now: datetime,
    owner: str | None = None,
    token: str | None = None,
) -> Write[Flow]:
    """The write of a controller's update, for the revision that it has read.

    Raises RevisionMismatch if the flow has changed since, FlowsBlended for a flow without a controller,
    IllegalMove for a move that the table does not allow, and Conflict while tasks of a flow that is to end
    are alive.
    """
    check_id("flow", flow_id)
    revision = check_number("revision", revision, low=1, high=2**53)
    checked = _checked_change(change)
    token = new_token() if token is None else token

    def update(tx: Tx) -> Flow:
        flow = owned_flow(locked_flow(tx, flow_id), owner)
        if flow.change_token == token and flow.revision == revision + 1:
            return flow  # this write runs again after its own commit
        if flow.controller is None:
            what = "mirrors its tasks" if flow.is_mirrored else "follows its definition"
            raise FlowsBlended(flow.id, f"{what}, so no controller may update it")
        if flow.revision != revision:
            raise RevisionMismatch(flow.id, revision, flow.revision)
        after = _changed(tx, flow.checked(), checked)
        after = msgspec.structs.replace(after, revision=flow.revision + 1, change_token=token)
        save_moved(tx, flow, after, now=now)
        tx.emit(
            EventKind.FLOW_UPDATED,
            flow.id,
            at=now,
            status=after.status.value,
            revision=after.revision,
            step=after.current_step,
        )
        return tx.flows.get(flow.id)

    return update


class _CheckedChange(msgspec.Struct, frozen=True, kw_only=True):
    to: FlowStatus | None
    state: bytes | msgspec.UnsetType | None
    wait: bytes | None
    current_step: str | msgspec.UnsetType | None
    blocked_by_task_id: TaskId | None
    failure: Failure | None


def _checked_change(change: FlowChange) -> _CheckedChange:
    if not isinstance(change, FlowChange):
        raise BadInput("change", f"a change of a flow is needed, not {type(change).__name__}")
    to = None if change.to is None else check_choice("status", change.to, FlowStatus)
    if to is not None and to not in _SET_BY_CONTROLLERS:
        raise BadInput("status", f"no controller sets {to.value}; request a cancel instead")
    if change.wait is not msgspec.UNSET and to is not FlowStatus.WAITING:
        raise BadInput("wait", "only a waiting flow has a wait document; use the status `waiting`")
    if change.blocked_by_task_id is not None and to not in (FlowStatus.BLOCKED, FlowStatus.WAITING):
        raise BadInput("blocked_by_task_id", "only a blocked or waiting flow has a blocking task")
    if change.failure is not None and to not in (FlowStatus.BLOCKED, FlowStatus.FAILED):
        raise BadInput("failure", "only a blocked or failed flow has a failure")
    if to is FlowStatus.FAILED and change.failure is None:
        raise BadInput("failure", "say why the flow failed")
    step = change.current_step
    return _CheckedChange(
        to=to,
        state=msgspec.UNSET if change.state is msgspec.UNSET else _document("state", change.state),
        wait=_document("wait", change.wait),
        current_step=step if isinstance(step, msgspec.UnsetType) else _checked_step(step),
        blocked_by_task_id=None
        if change.blocked_by_task_id is None
        else TaskId(check_id("blocked_by_task_id", change.blocked_by_task_id)),
        failure=None if change.failure is None else checked_failure(change.failure),
    )


def _changed(tx: Tx, flow: Flow, change: _CheckedChange) -> Flow:
    after = flow
    if not isinstance(change.state, msgspec.UnsetType):
        after = msgspec.structs.replace(after, contents=change.state)
    if not isinstance(change.current_step, msgspec.UnsetType):
        after = msgspec.structs.replace(after, current_step=change.current_step)
    to = change.to
    if flow.has_ended:
        raise Conflict(f"{flow.id} is {flow.status.value}; it can no longer be changed; start a new flow")
    if to is None:
        return after
    if flow.cancel_requested_at is not None:
        raise Conflict(
            f"{flow.id} is to be cancelled ({flow.cancel_reason}): it ends when its {flow.live} live tasks "
            f"have ended, and cannot become {to.value}"
        )
    if to in (FlowStatus.SUCCEEDED, FlowStatus.FAILED) and flow.live:
        raise Conflict(
            f"{flow.id} has {flow.live} live tasks; wait for them or cancel them before it becomes {to.value}"
        )
    blocker = change.blocked_by_task_id
    if blocker is not None and tx.tasks.look(blocker).flow_id != flow.id:
        raise BadInput("blocked_by_task_id", f"{blocker} is no task of {flow.id}")
    waits_on = f"controller:{flow.controller}" if blocker is None else f"task:{blocker}"
    return msgspec.structs.replace(
        after,
        status=to,
        wait=change.wait,
        blocked_by_task_id=blocker,
        failure=change.failure,
        waits_on=waits_on,
    )


# --- cancel


def cancelling_flow(
    flow_id: str,
    *,
    reason: str,
    now: datetime,
    owner: str | None = None,
    revision: int | None = None,
) -> Write[FlowCancelOutcome]:
    """The write that cancels a flow: it records the request, so that no task starts any more, and asks its
    tasks to stop, at most MOST_STOPPED of them. `stopping_rest` and the ends that follow ask the others.

    A controller names the `revision` that it has read; an operator does not.
    """
    check_id("flow", flow_id)
    reason = check_text("reason", reason)

    def cancel(tx: Tx) -> FlowCancelOutcome:
        # Tasks before the flow, as an ending task does.
        task_ids = tx.tasks.lock_to_stop(flow_id, limit=MOST_STOPPED)
        flow = owned_flow(locked_flow(tx, flow_id), owner)
        if flow.has_ended:
            is_ours = flow.status is FlowStatus.CANCELLED and flow.ended_at == now
            return FlowCancelled(flow=flow) if is_ours else FlowAlreadyEnded(flow=flow)
        if flow.cancel_requested_at is None:
            if revision is not None and flow.revision != revision:
                raise RevisionMismatch(flow.id, revision, flow.revision)
            after = msgspec.structs.replace(
                flow,
                cancel_requested_at=now,
                cancel_reason=reason,
                revision=flow.revision + 1,
                status=flow.status if flow.live else FlowStatus.CANCELLED,
            )
            flow = save_moved(tx, flow, after, now=now)
            tx.emit(EventKind.FLOW_CANCEL_REQUESTED, flow.id, at=now, reason=reason, owner=flow.owner)
        stop_tasks(tx, flow, task_ids, now=now)
        tx.act_now(flow.id)
        found = tx.flows.get(flow.id)
        return FlowCancelled(flow=found) if found.has_ended else FlowCancelRequested(flow=found)

    return cancel


def stopping_rest(flow_id: str, *, now: datetime, limit: int = MOST_STOPPED) -> Write[int]:
    """The write that asks more tasks of a cancelled flow to stop; returns how many it asked. The caller
    repeats it until it returns 0: a task that started while the flow was being cancelled is among them."""
    check_id("flow", flow_id)

    def stop(tx: Tx) -> int:
        task_ids = tx.tasks.lock_to_stop(flow_id, limit=limit)
        flow = locked_flow(tx, flow_id)
        if flow.cancel_requested_at is None or flow.has_ended:
            return 0
        stop_tasks(tx, flow, task_ids, now=now)
        return len(task_ids)

    return stop
