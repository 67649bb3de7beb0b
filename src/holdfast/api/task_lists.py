"""ledger.list: a page of tasks by any filter, newest first."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import msgspec

from holdfast.api.contract import EVERYTHING, GatewayDoor, Reach
from holdfast.api.pages import place_of
from holdfast.api.params import NameText, PageSize, PageToken, Params
from holdfast.core.task import RuntimeName
from holdfast.core.task_filter import TaskFilter
from holdfast.core.transitions import TaskStatus
from holdfast.store.tasks import LAST
from holdfast.upkeep.projection import project_tasks
from holdfast.views.tasks import TaskPageView, TaskView

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast.api.contract import Caller
    from holdfast.store.transaction import Tx
    from holdfast.upkeep.projection import Projection

MAX_AGE_S = 100 * 366 * 86_400
MAX_SEARCH_CHARS = 200

AgeS = Annotated[float, msgspec.Meta(ge=0, le=MAX_AGE_S)]


class TasksAsked(Params, frozen=True, kw_only=True):
    """Which tasks, newest first. Each filter alone reads only its page; several together, or a text, read at
    most 5,000 tasks a call, so a page may be short or empty although a next one follows."""

    status: tuple[TaskStatus, ...] = ()
    runtime: RuntimeName | None = None
    name: NameText | None = None
    owner: NameText | None = None
    agent_id: NameText | None = None
    # Asked for in this session, or done in it.
    session_key: NameText | None = None
    key: NameText | None = None
    # Ages since the task was created, in seconds.
    older_than_s: AgeS | None = None
    newer_than_s: AgeS | None = None
    # In its goal, name, key, session or failure; upper and lower case are the same.
    text: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_SEARCH_CHARS)] | None = None
    limit: PageSize = 50
    # The `nextPageToken` of the previous page.
    page_token: PageToken | None = None

    def filter(self, now: datetime) -> TaskFilter:
        return TaskFilter(
            statuses=self.status,
            runtime=self.runtime,
            names=None if self.name is None else frozenset({self.name}),
            owner=self.owner,
            agent=self.agent_id,
            session_key=self.session_key,
            key=self.key,
            created_before=_before(now, self.older_than_s),
            created_after=_before(now, self.newer_than_s),
            text=self.text,
        )


def _has_text(view: TaskView, text: str) -> bool:
    """Whether the text is in what is shown: a search must not find a secret that is redacted there."""
    failure = "" if view.failure is None else f"{view.failure.kind}: {view.failure.message}"
    places = (view.goal, view.name, view.key or "", view.session_key or "", failure)
    return any(text.casefold() in place.casefold() for place in places)


def _before(now: datetime, age_s: float | None) -> datetime | None:
    return None if age_s is None else now - timedelta(seconds=age_s)


async def list_tasks(gateway: GatewayDoor, asked: TasksAsked, caller: Caller) -> TaskPageView:
    now, projection = gateway.clock.now(), gateway.projection()
    return await gateway.store.read(
        lambda tx: read_page(tx, asked, now=now, reach=caller.reach, projection=projection)
    )


def read_page(
    tx: Tx,
    asked: TasksAsked,
    *,
    now: datetime,
    reach: Reach = EVERYTHING,
    projection: Projection | None = None,
) -> TaskPageView:
    """A page of tasks; a limited caller sees only tasks that it may reach, and no counts of others."""
    place = LAST
    if asked.page_token is not None:
        place = place_of("task", asked.page_token, lambda token: reach.resolve_id(tx, token))
    found = tx.tasks.find(asked.filter(now), reach=reach.filter, before=place, limit=asked.limit)
    shown = project_tasks(tx, found.tasks, projection)
    views = [TaskView.of(task).shown_as(shown.get(task.id)) for task in found.tasks]
    return TaskPageView(
        tasks=[view for view in views if asked.text is None or _has_text(view, asked.text)],
        counts={} if reach.is_bound else tx.events.counts("task"),
        next_page_token=found.next_before,
    )
