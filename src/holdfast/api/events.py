"""Pages of the event feed: the newest events, or those after a position."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from holdfast.api.contract import EVERYTHING, Reach
from holdfast.api.params import PageSize, Params, TargetText
from holdfast.core.errors import BadInput
from holdfast.store.events import START
from holdfast.views.events import EventPageView, EventView

if TYPE_CHECKING:
    from holdfast.core.events import Event
    from holdfast.store.transaction import Tx


class EventsAsked(Params, frozen=True, kw_only=True):
    """Events in order: the newest ones, or those after a position."""

    task_id: TargetText | None = None
    after: Annotated[str, msgspec.Meta(max_length=64)] | None = None
    limit: PageSize = 50


def read_page(tx: Tx, asked: EventsAsked, *, reach: Reach = EVERYTHING) -> EventPageView:
    """A page of events. A caller limited to an owner or to task names must name one task."""
    if reach.is_bound and asked.task_id is None:
        raise BadInput(
            "taskId", "this token is limited to an owner or to task names; name one task with taskId"
        )
    task_id = None if asked.task_id is None else reach.resolve(tx, asked.task_id)
    found = read_events(tx, task_id, asked.after, asked.limit)
    return EventPageView(
        events=[EventView.of(event) for event in found],
        next_position=found[-1].position if found else asked.after or START,
    )


def read_events(tx: Tx, task_id: str | None, after: str | None, limit: int) -> list[Event]:
    """In order: the first `limit` events after a position; without one, the last `limit` events. A task is
    named by its whole id."""
    if task_id is None:
        return tx.events.newest(limit=limit) if after is None else tx.events.after(after, limit=limit)
    if after is None:
        return tx.events.newest_of_task(task_id, limit=limit)
    return tx.events.of_task(task_id, after, limit=limit)
