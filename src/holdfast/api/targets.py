"""Finds the task that a caller means: by its id or a unique prefix, a run id, a key or a session key."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from holdfast.core.errors import AmbiguousId, NotFound
from holdfast.core.ids import TaskId
from holdfast.core.imported import ImportedKind
from holdfast.core.redaction import redact_name
from holdfast.core.task_filter import TaskFilter
from holdfast.core.transitions import TaskStatus, is_terminal

if TYPE_CHECKING:
    from holdfast.api.contract import Reach
    from holdfast.core.task import Task
    from holdfast.store.transaction import Tx

MAX_TARGET_CHARS = 200
# Candidates that an error names.
NAMED = 3
_ID = re.compile(r"[a-z0-9_-]{1,64}")
_ALIVE = tuple(status for status in TaskStatus if not is_terminal(status))


def find_target(tx: Tx, target: str, reach: Reach) -> TaskId:
    """The one task that is meant, among those in reach.

    A whole task id means that task, whatever else has the same text. A session key means the one task of the
    session that has not ended, or else its newest task. Raises NotFound, and AmbiguousId with the candidates.
    """
    # No name has a control character, and PostgreSQL stores no NUL.
    if not target.strip() or len(target) > MAX_TARGET_CHARS or not target.isprintable():
        raise NotFound("task", target[:MAX_TARGET_CHARS])
    is_id = _ID.fullmatch(target) is not None
    if is_id and _in_reach(tx, [target], reach):
        return TaskId(target)
    found = [*_by_run(tx, target, reach), *_by_prefix(tx, target, reach)] if is_id else []
    found += [task.id for task in _page(tx, TaskFilter(key=target), reach)]
    found += _in_reach(tx, tx.imports.find(ImportedKind.TASK, redact_name(target), limit=NAMED + 1), reach)
    found += [task.id for task in _of_session(tx, target, reach)]
    ids = list(dict.fromkeys(found))
    if not ids:
        raise NotFound("task", target)
    if len(ids) > 1:
        raise AmbiguousId("task", target, ids[:NAMED])
    return TaskId(ids[0])


def _by_run(tx: Tx, target: str, reach: Reach) -> list[str]:
    """Of a whole run id, or of the runs with this prefix."""
    runs = tx.runs.with_prefix(target)
    exact = [task_id for run_id, task_id in runs if run_id == target]
    # A prefix could match hidden tasks, and so tell about them.
    task_ids = exact or ([] if reach.is_bound else [task_id for _, task_id in runs])
    return _in_reach(tx, task_ids, reach)


def _by_prefix(tx: Tx, target: str, reach: Reach) -> list[str]:
    prefixes = [target] if "_" in target else [target, f"task_{target}"]
    for prefix in prefixes:
        try:
            return [reach.resolve_id(tx, prefix)]
        except NotFound:
            continue
        except AmbiguousId as several:
            return several.matches
    return []


def _of_session(tx: Tx, target: str, reach: Reach) -> list[Task]:
    alive = _page(tx, TaskFilter(session_key=target, statuses=_ALIVE), reach)
    return alive or _page(tx, TaskFilter(session_key=target), reach)[:1]


def _page(tx: Tx, wanted: TaskFilter, reach: Reach) -> list[Task]:
    return tx.tasks.find(wanted, reach=reach.filter, limit=NAMED + 1).tasks


def _in_reach(tx: Tx, task_ids: list[str], reach: Reach) -> list[str]:
    found = tx.tasks.get_many(task_ids)
    return [one.id for one in found.values() if reach.covers(one.owner, one.name)]
