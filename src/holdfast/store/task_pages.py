"""Pages of filtered tasks, newest first, each read from the index of the narrowest filter."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.ids import LAST, id_bound
from holdfast.core.payload import check_line, check_name
from holdfast.core.session import AGENT_PREFIX
from holdfast.core.task import Task
from holdfast.core.task_filter import TaskFilter
from holdfast.core.transitions import TaskStatus
from holdfast.store.contract import Row
from holdfast.store.rows.work import task_from_row

if TYPE_CHECKING:
    from holdfast.store.transaction import Tx

# If several filters are combined, or a text is searched, one call reads at most this many tasks.
LOOKED_AT = 5000
# If so few tasks are in the wanted statuses, their index is the narrowest.
FEW = 1000
_BATCH = 500


class FoundTasks(msgspec.Struct, frozen=True, kw_only=True):
    """A page of tasks. It may be short or empty although more may follow: see LOOKED_AT."""

    tasks: list[Task]
    # Where the next page begins; None at the end.
    next_before: str | None


class _Source(msgspec.Struct, frozen=True, kw_only=True):
    """One query by an index, in descending order of ids."""

    query: str
    params: dict[str, object]


def find_tasks(
    tx: Tx, wanted: TaskFilter, *, reach: TaskFilter | None = None, before: str = LAST, limit: int = 50
) -> FoundTasks:
    """A page of tasks that fit. `reach` is what the caller may see at all: the next page begins at the id of
    such a task, so that this place tells nothing about others."""
    wanted = as_stored(wanted)
    reach = TaskFilter() if reach is None else as_stored(reach)
    if reach.owner is not None and wanted.owner not in (None, reach.owner):
        return FoundTasks(tasks=[], next_before=None)
    found: list[Task] = []
    place: str | None = None
    walk = _walk_all(tx, _narrowest(wanted, reach), before=before, limit=limit + 1)
    for number, task in enumerate(walk, 1):
        if len(found) == limit or (number > LOOKED_AT and place is not None):
            return FoundTasks(tasks=found, next_before=place)
        if reach.fits(task):
            place = task.id
            if fits(tx, wanted, task):
                found.append(task)
    return FoundTasks(tasks=found, next_before=None)


def page_of_tasks(tx: Tx, wanted: TaskFilter, *, before: str, limit: int) -> list[Task]:
    """The newest tasks that fit, as many as the limit says, however many must be read for that."""
    wanted = as_stored(wanted)
    walk = _walk_all(tx, wanted, before=before, limit=limit)
    return list(islice((task for task in walk if fits(tx, wanted, task)), limit))


def fits(tx: Tx, wanted: TaskFilter, task: Task) -> bool:
    """Whether the task is wanted, with the facts of recorded work only where they can decide."""
    if wanted.agent is None and wanted.session_key is None:
        return wanted.fits(task)
    return wanted.fits(task) or wanted.fits(task, tx.recorded.get(task.id))


def as_stored(wanted: TaskFilter) -> TaskFilter:
    """With names as they are stored: a secret in them is hidden. Raises BadInput for what is no name."""

    def stored(field: str, name: str | None) -> str | None:
        return None if name is None else check_name(field, name)

    return msgspec.structs.replace(
        wanted,
        owner=stored("owner", wanted.owner),
        names=None if wanted.names is None else frozenset(check_line("name", one) for one in wanted.names),
        agent=stored("agent", wanted.agent),
        session_key=stored("session key", wanted.session_key),
        key=stored("key", wanted.key),
    )


def _narrowest(wanted: TaskFilter, reach: TaskFilter) -> TaskFilter:
    """Both at once, to choose an index."""
    names = wanted.names if reach.names is None else reach.names
    if wanted.names is not None and reach.names is not None:
        names = wanted.names & reach.names
    return msgspec.structs.replace(wanted, owner=reach.owner or wanted.owner, names=names)


def _walk_all(tx: Tx, wanted: TaskFilter, *, before: str, limit: int) -> Iterator[Task]:
    """Tasks from the index of the narrowest filter, newest first; the others are for the caller to check."""
    after = "" if wanted.created_after is None else id_bound("task", wanted.created_after)
    if wanted.created_before is not None:
        before = min(before, id_bound("task", wanted.created_before))
    walks = [_walk(tx, source, before, after, limit) for source in _sources(tx, wanted)]
    last = ""
    for row in heapq.merge(*walks, key=_id_of, reverse=True):
        if row[0] != last:  # two indexes may hold the same task
            last = _id_of(row)
            yield task_from_row(row, tx.sealing)


def _walk(tx: Tx, source: _Source, before: str, after: str, limit: int) -> Iterator[Row]:
    while True:
        params = source.params | {"before": before, "after": after, "limit": limit}
        rows = tx.statements.all(source.query, params)
        yield from rows
        if len(rows) < limit:
            return
        # The first batch did not suffice: other filters leave out most tasks.
        before, limit = _id_of(rows[-1]), _BATCH


def _id_of(row: Row) -> str:
    return str(row[0])


def _sources(tx: Tx, wanted: TaskFilter) -> list[_Source]:
    """What to read. Each filter alone is exact; of several, the one that usually leaves fewest tasks."""
    if wanted.key is not None:
        return [_Source(query="page_of_tasks_of_key", params={"key": wanted.key})]
    if wanted.session_key is not None:
        return _each(
            {"session_key": wanted.session_key}, "page_of_tasks_of_session", "page_of_recorded_tasks_of_child"
        )
    if wanted.owner is not None:
        if not wanted.statuses:
            return _each({"owner": wanted.owner}, "page_of_tasks_of_owner")
        return _in_statuses("page_of_tasks_of_owner_in_status", wanted, {"owner": wanted.owner})
    is_alone = wanted.agent is None and wanted.names is None and wanted.runtime is None
    if wanted.statuses and (is_alone or _are_few(tx, wanted.statuses)):
        return _in_statuses("page_of_tasks_in_status", wanted, {})
    if wanted.agent is not None:
        return _each(
            {"agent": wanted.agent, "name": f"{AGENT_PREFIX}{wanted.agent}"},
            "page_of_tasks_of_agent",
            "page_of_recorded_tasks_of_agent",
            "page_of_tasks_of_name",
        )
    if wanted.names is not None:
        return [_Source(query="page_of_tasks_of_name", params={"name": one}) for one in sorted(wanted.names)]
    if wanted.runtime is not None:
        return _each({"runtime": wanted.runtime.value}, "page_of_tasks_of_runtime")
    return _each({}, "page_of_tasks")


def _each(params: dict[str, object], *queries: str) -> list[_Source]:
    return [_Source(query=query, params=params) for query in queries]


def _in_statuses(query: str, wanted: TaskFilter, params: dict[str, object]) -> list[_Source]:
    statuses = dict.fromkeys(wanted.statuses)
    return [_Source(query=query, params=params | {"status": status.value}) for status in statuses]


def _are_few(tx: Tx, statuses: Sequence[TaskStatus]) -> bool:
    counts = tx.events.counts("task")
    return sum(counts.get(status.value, 0) for status in statuses) <= FEW
