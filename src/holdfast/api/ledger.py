"""Changes by operators: create a task for a worker, accept an older database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from holdfast.api.contract import EVERYTHING, KEY_TAKEN, Caller, GatewayDoor, Reach
from holdfast.api.params import NameText, Nothing, Params
from holdfast.core.errors import BadInput, KeyConflict, Refused
from holdfast.core.events import EventKind
from holdfast.core.payload import MAX_GOAL_BYTES
from holdfast.core.schedule_spec import COMMAND_TASK
from holdfast.core.secret import refuse_references
from holdfast.core.session import AGENT_PREFIX
from holdfast.views.health import AcceptedView
from holdfast.views.tasks import CreatedView

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast.core.clock import Clock
    from holdfast.store.contract import Store, Write
    from holdfast.store.transaction import Tx


# The owner of tasks that are created without one.
DEFAULT_OWNER = "system"


class CreateAsked(Params, frozen=True, kw_only=True):
    """A new task for a worker that knows its name. The same key finds the first task."""

    name: NameText
    goal: Annotated[str, msgspec.Meta(max_length=MAX_GOAL_BYTES)]
    # False for a goal derived from the name: then a different goal under the same key is no conflict.
    has_own_goal: bool = True
    arguments: Any = None
    owner: NameText | None = None
    key: NameText | None = None


def refuse_own(field: str, name: str) -> None:
    """Raises Refused and BadInput for tasks that only the gateway makes: the commands of schedules, and the
    tasks of agents, which belong to a session."""
    if name == COMMAND_TASK:
        raise Refused(f"only schedules make tasks of {COMMAND_TASK}; add one: `holdfast cron add --help`")
    if name.startswith(AGENT_PREFIX):
        agent = name.removeprefix(AGENT_PREFIX)
        why = (
            f"tasks of agents cannot be created directly; send a message to {agent!r} instead, with "
            f"`holdfast sessions send {agent} TEXT` or the method chat.send"
        )
        raise BadInput(field, why)


def creating_task(asked: CreateAsked, *, now: datetime, reach: Reach = EVERYTHING) -> Write[CreatedView]:
    """The write that creates the task. A limited caller can only create tasks that it may reach."""
    owner = reach.owner
    if owner is not None and asked.owner not in (None, owner):
        raise BadInput("owner", f"this token is limited to the owner {owner!r}; leave out the owner")
    refuse_own("name", asked.name)
    if reach.names is not None and asked.name not in reach.names:
        raise Refused(
            f"this token may not start tasks named {asked.name!r}; use a token that allows this name"
        )
    refuse_references("arguments", asked.arguments)
    from holdfast.engine.ledger.ledger import NewTask, creating

    create = creating(
        [
            NewTask(
                name=asked.name,
                goal=asked.goal,
                has_own_goal=asked.has_own_goal,
                owner=owner or asked.owner or DEFAULT_OWNER,
                arguments={} if asked.arguments is None else asked.arguments,
                key=asked.key,
            )
        ],
        now=now,
    )

    def create_one(tx: Tx) -> CreatedView:
        try:
            (task,) = create(tx)
        except KeyConflict as taken:
            raise reach.conflict(tx, taken) from None
        if not reach.covers(task.owner, task.name):
            raise Refused(KEY_TAKEN)
        return CreatedView(task_id=task.id, is_new=task.created_at >= now)

    return create_one


def accept(store: Store, *, clock: Clock) -> str | None:
    """Accept the database as it is. Returns why resumes were held; None if they were not."""
    why = store.held_why()
    if why is not None:
        now = clock.now()

        def note(tx: Tx) -> None:
            subject = tx.boots.fact("ledger_id") or "ledger"
            tx.emit(EventKind.STORE_ACCEPTED, subject, at=now, why=why)

        store.write_now(note)
        store.accept()
    return why


async def accept_store(gateway: GatewayDoor, asked: Nothing, caller: Caller) -> AcceptedView:  # noqa: ARG001 - a method
    import asyncio

    why = await asyncio.to_thread(accept, gateway.store, clock=gateway.clock)
    return AcceptedView(was_held=why is not None, why=why)
