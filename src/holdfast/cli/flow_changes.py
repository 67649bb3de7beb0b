"""tasks flow start, cancel and retry: changes of one flow by an operator."""

from __future__ import annotations

import os
from asyncio import run
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast.api.flow_changes import (
    CANCELLED_BY_OPERATOR,
    FlowCancelAsked,
    FlowRetryAsked,
    FlowStartAsked,
    cancelling_flow,
    retry_rest,
    retrying_flow,
    starting_flow,
    stop_rest,
)
from holdfast.cli.errors import NOT_FOUND, REFUSED, exit_status
from holdfast.cli.invocation import Invocation, flow_argument, shared_options
from holdfast.cli.output import Output, counted
from holdfast.core.errors import HoldfastError, NoLedger
from holdfast.core.transitions import FlowNodeStatus, FlowStatus
from holdfast.views.flows import FlowCancelView, FlowCreatedView, FlowRetriedView
from holdfast.views.text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    import msgspec

    from holdfast.core.flow_definition import FlowDefinition
    from holdfast.store.contract import Store, Write

    V = TypeVar("V", bound=msgspec.Struct)

F = TypeVar("F", bound="Callable[..., Any]")


def revision_option(command: F) -> F:
    """Add --revision, so that one of two operators who read the same flow is refused."""
    return click.option(
        "--revision",
        type=click.IntRange(1, 2**53),
        metavar="NUMBER",
        help="Refuse if the flow has changed since you read this revision.",
    )(command)


# --- start


@click.command("start", short_help="Start a flow of config/workflows.yaml.")
@click.argument("name")
@click.option("--goal", help="What it is for; without it, the goal of its definition.")
@click.option("--owner", help="The owner of the flow and of its tasks.")
@click.option("--key", help="Idempotency key: the same key finds the first flow.")
@shared_options
@click.pass_obj
def start_flow(call: Invocation, name: str, goal: str | None, owner: str | None, key: str | None) -> None:
    """Start a flow that the settings define under `workflows`, such as in config/workflows.yaml.

    Tasks of nodes that need nothing are queued at once, and each other node starts when all that it needs has
    succeeded. Workers that know the tasks run them: a gateway, or a program.
    """
    asked = FlowStartAsked(name=name, goal=goal, owner=owner, key=key)
    view = _start(call, asked)
    call.output.show(view, lambda: _print_started(call.output, view))


def _start(call: Invocation, asked: FlowStartAsked) -> FlowCreatedView:
    is_new = call.gateway_url is None and call.is_new()
    if is_new:
        _definition(call, asked.name)  # an unknown flow must not create the ledger
    with call.writing_or_asking(may_upgrade=is_new) as store:
        if store is not None:
            from holdfast.api.audit import recorded

            now = call.clock.now()
            write = starting_flow(asked, now=now, definition=_definition(call, asked.name))
            return store.write_now(recorded(write, call.actor, "flows.start", asked, now=now))
    return call.ask("flows.start", asked, FlowCreatedView)


def _definition(call: Invocation, name: str) -> FlowDefinition:
    from holdfast.app.flows import find_flow, search_for_tasks
    from holdfast.config.files import load

    config = load(call.settings.home, os.environ, {"store": call.store}).config
    search_for_tasks(config, call.settings.home)
    return find_flow(config, name)


def _print_started(output: Output, view: FlowCreatedView) -> None:
    output.line(view.flow.id)
    again = "" if view.is_new else f"; its key has started it before, and it is {view.flow.status}"
    output.say(f"{counted(view.flow.nodes, 'node')}{again}; to look: holdfast tasks flow show {view.flow.id}")


# --- cancel


@click.command("cancel", short_help="Cancel a flow and its tasks.")
@flow_argument
@click.option("--reason", default=CANCELLED_BY_OPERATOR, show_default=True, help="Reason to record.")
@revision_option
@shared_options
@click.pass_context
def cancel_flow(context: click.Context, flow_id: str, reason: str, revision: int | None) -> None:
    """Cancel a flow: nothing of it starts any more, its tasks are asked to stop, and it ends when its last
    task has ended. The request is permanent.

    Exit status 0 if the flow is cancelled or will be, 3 if it has ended otherwise or has another revision, 4
    if there is no such flow. With --json the answer has found, cancelled and reason in each case.
    """
    call: Invocation = context.obj
    asked = FlowCancelAsked(flow_id=flow_id, reason=reason, expected_revision=revision)
    try:
        view = _change(call, "flows.cancel", asked, cancelling_flow, FlowCancelView, _stopped(call))
    except HoldfastError as error:
        if isinstance(error, NoLedger) or exit_status(error) != NOT_FOUND:
            raise
        view = FlowCancelView(
            found=False, cancelled=False, reason=one_line(call.worded(str(error))), outcome="not_found"
        )
    call.output.show(view, lambda: _print_cancelled(call.output, view))
    if not view.found:
        call.output.say(f"holdfast: {view.reason}")
        context.exit(NOT_FOUND)
    was_cancelled = view.flow is not None and view.flow.status == FlowStatus.CANCELLED
    if not view.cancelled and not was_cancelled:
        context.exit(REFUSED)


def _stopped(call: Invocation) -> Callable[[Store, FlowCancelView], FlowCancelView]:
    """Stop the rest of the flow here, as a gateway does: its other tasks, and work that others execute."""

    def stop(store: Store, view: FlowCancelView) -> FlowCancelView:
        from holdfast.app.runtimes import stop_cancelled_work

        async def stop_all() -> FlowCancelView:
            await stop_rest(store, view)
            await stop_cancelled_work(store, call.clock, call.settings.home)
            return await stop_rest(store, view)

        return run(stop_all())

    return stop


def _print_cancelled(output: Output, view: FlowCancelView) -> None:
    if view.flow is None:
        return
    match view.outcome:
        case "cancelled":
            output.line(f"{view.flow.id} is cancelled")
        case "cancel_requested":
            output.line(f"{view.flow.id} is being cancelled: {view.reason}")
            output.say(f"to see what is still alive: holdfast tasks flow show {view.flow.id}")
        case _:
            output.line(f"{view.flow.id} has already ended as {view.flow.status}; nothing changed")


# --- retry


@click.command("retry", short_help="Retry what blocks a flow.")
@flow_argument
@click.option("--node", metavar="ID", help="Only this node; without it, all that did not succeed.")
@revision_option
@shared_options
@click.pass_obj
def retry_flow(call: Invocation, flow_id: str, node: str | None, revision: int | None) -> None:
    """Retry the nodes of a blocked flow that did not succeed, after you have fixed the cause.

    Each goes on as the same task, after its last saved step; what has succeeded is not repeated. Of a flow
    with a controller, the task that blocks it is retried.

    Exit status 3 if nothing blocks the flow, if it has another revision, or if it only mirrors its tasks.
    """
    asked = FlowRetryAsked(flow_id=flow_id, node=node, expected_revision=revision)
    view = _change(
        call,
        "flows.retry",
        asked,
        retrying_flow,
        FlowRetriedView,
        lambda store, found: retry_rest(store, asked, found),
    )
    call.output.show(view, lambda: _print_retried(call.output, view))


def _change(
    call: Invocation,
    method: str,
    asked: msgspec.Struct,
    writing: Callable[..., Write[V]],
    answer: type[V],
    then: Callable[[Store, V], V],
) -> V:
    """One write with its audit entry, and what follows it: here, or through the gateway."""
    with call.writing_or_asking() as store:
        if store is not None:
            from holdfast.api.audit import recorded

            now = call.clock.now()
            write = recorded(writing(asked, now=now), call.actor, method, asked, now=now)
            return then(store, store.write_now(write))
    return call.ask(method, asked, answer)


def _print_retried(output: Output, view: FlowRetriedView) -> None:
    running = [node for node in view.nodes if node.status == FlowNodeStatus.RUNNING]
    names = ", ".join(node.id for node in running)
    if names and len(view.task_ids) > len(running):
        names += f" and {len(view.task_ids) - len(running):,} more"
    what = names or ", ".join(view.task_ids) or "nothing"
    output.line(f"{view.flow.id} is {view.flow.status}; retried: {what}")
    for node in view.nodes:
        if node.status != FlowNodeStatus.RUNNING:
            output.say(f"not started: {node.id}: {node.why or node.status}")
    if view.task_ids:
        first = view.task_ids[0]
        output.say(
            f"{counted(len(view.task_ids), 'task')} queued for a worker; to follow: "
            f"holdfast tasks wait {first}"
        )
