"""What operators change beside work: record a task for later, accept an older database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from holdfast.api.contract import Caller, Gateway
from holdfast.api.params import NameText, Nothing, Params
from holdfast.core.errors import BadInput
from holdfast.core.events import EventKind
from holdfast.core.payload import MAX_GOAL_BYTES
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
    arguments: Any = None
    owner: NameText | None = None
    key: NameText | None = None


def creating_task(asked: CreateAsked, *, now: datetime, owner: str | None = None) -> Write[CreatedView]:
    """The write that records it. Whoever is bound to an owner records tasks of that one alone."""
    if owner is not None and asked.owner not in (None, owner):
        raise BadInput("owner", f"this token is bound to {owner!r}; leave the owner out")
    from holdfast.engine.ledger import NewTask, creating

    create = creating(
        [
            NewTask(
                name=asked.name,
                goal=asked.goal,
                owner=owner or asked.owner or NOBODY,
                arguments={} if asked.arguments is None else asked.arguments,
                key=asked.key,
            )
        ],
        now=now,
    )

    def create_one(tx: Tx) -> CreatedView:
        (task,) = create(tx)
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
