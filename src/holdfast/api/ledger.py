"""What operators change beside work: record a task for later, accept an older database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from holdfast.api.contract import EVERYTHING, KEY_TAKEN, Caller, Gateway, Reach
from holdfast.api.params import NameText, Nothing, Params
from holdfast.core.errors import BadInput, KeyConflict, Refused
from holdfast.core.events import EventKind
from holdfast.core.payload import MAX_GOAL_BYTES
from holdfast.core.secret import refuse_references
from holdfast.core.session import AGENT_PREFIX
from holdfast.views.health import AcceptedView
from holdfast.views.tasks import CreatedView

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast.core.clock import Clock
    from holdfast.store.contract import Store, Write
    from holdfast.store.transaction import Tx


# Who owns what nobody else owns.
NOBODY = "system"


class CreateAsked(Params, frozen=True, kw_only=True):
    """A new task, for whoever carries tasks of that name. The same key again finds the first one."""

    name: NameText
    goal: Annotated[str, msgspec.Meta(max_length=MAX_GOAL_BYTES)]
    # False for a goal that was made up from the name: another one under the same key is no conflict then.
    has_own_goal: bool = True
    arguments: Any = None
    owner: NameText | None = None
    key: NameText | None = None


def creating_task(asked: CreateAsked, *, now: datetime, reach: Reach = EVERYTHING) -> Write[CreatedView]:
    """The write that records it. A caller that is bound to an owner, or to names, records no others."""
    owner = reach.owner
    if owner is not None and asked.owner not in (None, owner):
        raise BadInput("owner", f"this token is bound to {owner!r}; leave the owner out")
    if asked.name.startswith(AGENT_PREFIX):
        agent = asked.name.removeprefix(AGENT_PREFIX)
        why = (
            f"only the inbox makes tasks of agents; post a message to {agent!r} instead, with `holdfast "
            f"sessions send {agent} TEXT` or the method chat.send"
        )
        raise BadInput("name", why)
    if reach.names is not None and asked.name not in reach.names:
        raise Refused(
            f"this token may not start tasks of the name {asked.name!r}; `tasks` of it lists others"
        )
    refuse_references("arguments", asked.arguments)
    from holdfast.engine.ledger.ledger import NewTask, creating

    create = creating(
        [
            NewTask(
                name=asked.name,
                goal=asked.goal,
                has_own_goal=asked.has_own_goal,
                owner=owner or asked.owner or NOBODY,
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
    """A person accepts the database as it is; returns why resumes were held, None when they were not."""
    why = store.held_why()
    if why is not None:
        now = clock.now()

        def note(tx: Tx) -> None:
            subject = tx.boots.fact("ledger_id") or "ledger"
            tx.emit(EventKind.STORE_ACCEPTED, subject, at=now, why=why)

        store.write_now(note)
        store.accept()
    return why


async def accept_store(gateway: Gateway, asked: Nothing, caller: Caller) -> AcceptedView:  # noqa: ARG001 - a method
    import asyncio

    why = await asyncio.to_thread(accept, gateway.store, clock=gateway.clock)
    return AcceptedView(was_held=why is not None, why=why)
