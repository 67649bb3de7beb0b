"""The manifest of a restart: built from what is in flight, saved in the ledger and in a file."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from holdfast.core.errors import RestartBlocked, RowDamaged
from holdfast.core.ids import BootId, RestartId
from holdfast.core.manifest import (
    ActiveCronRun,
    ActiveSession,
    Interruption,
    InterruptionKind,
    Manifest,
    Restart,
    RestartOutcome,
    Trigger,
)
from holdfast.core.task import Task
from holdfast.gateway.readiness import interruption_of, names_of, with_ancestors
from holdfast.store import Tx

_LAST_MESSAGE = 500


def planning(
    restart_id: RestartId,
    *,
    boot_id: BootId,
    place: str,
    task_ids: Sequence[str],
    triggers: Sequence[Trigger],
    now: datetime,
) -> Callable[[Tx], Restart]:
    """Build the record of a restart that would begin now, with what it interrupts. Only reads."""

    def plan(tx: Tx) -> Restart:
        tasks = tx.tasks.get_many(task_ids)
        found = [tasks[task_id] for task_id in sorted(tasks)]
        return Restart(
            id=restart_id,
            boot_id=boot_id,
            place=place,
            requested_at=now,
            manifest=_manifest(tx, restart_id, found, triggers[0], now),
            triggers=tuple(triggers),
            updated_at=now,
        )

    return plan


def not_planned(
    restart_id: RestartId, *, boot_id: BootId, place: str, triggers: Sequence[Trigger], now: datetime
) -> Restart:
    """The same without the ledger: what the restart would interrupt is not known."""
    return Restart(
        id=restart_id,
        boot_id=boot_id,
        place=place,
        requested_at=now,
        manifest=Manifest(
            timestamp=_moment(now),
            reason=triggers[0].reason,
            triggered_by=triggers[0].triggered_by,
            restart_id=restart_id,
        ),
        triggers=tuple(triggers),
        updated_at=now,
    )


def with_more(before: Manifest, more: Manifest) -> Manifest:
    """Merge the interruptions of two manifests; everything else comes from the first."""
    sessions = {one.key: one for one in before.active_sessions}
    for one in more.active_sessions:
        # Each may have found other children of the same session.
        known = sessions.setdefault(one.key, one).active_subagents
        new = tuple(name for name in one.active_subagents if name not in known)
        sessions[one.key] = msgspec.structs.replace(sessions[one.key], active_subagents=known + new)
    return msgspec.structs.replace(
        before,
        active_sessions=tuple(sessions.values()),
        active_cron_runs=before.active_cron_runs + more.active_cron_runs,
        interruptions=before.interruptions + more.interruptions,
    )


def _manifest(tx: Tx, restart_id: str, tasks: Sequence[Task], trigger: Trigger, now: datetime) -> Manifest:
    shown = [(task, interruption_of(task)) for task in tasks]
    return Manifest(
        timestamp=_moment(now),
        reason=trigger.reason,
        triggered_by=trigger.triggered_by,
        active_sessions=_sessions(tx, tasks),
        active_cron_runs=tuple(
            _cron_run(task, one) for task, one in shown if one.kind is InterruptionKind.CRON
        ),
        restart_id=restart_id,
        interruptions=tuple(one for _, one in shown),
    )


def _sessions(tx: Tx, tasks: Sequence[Task]) -> tuple[ActiveSession, ...]:
    """The sessions whose task is in flight, or only waits for children that are in flight."""
    known = with_ancestors(tx, tasks)
    names = names_of(tasks, known)
    below: dict[str, list[str]] = {task.id: [] for task in tasks if _is_session(task)}
    for task in tasks:
        parent_id, seen = task.parent_task_id, set[str]()
        while parent_id is not None and parent_id in known and parent_id not in seen:
            seen.add(parent_id)
            parent = known[parent_id]
            if _is_session(parent) and not parent.has_ended:
                below.setdefault(parent.id, []).append(names[task.id])
            parent_id = parent.parent_task_id
    return tuple(_session(tx, known[task_id], children) for task_id, children in sorted(below.items()))


def _is_session(task: Task) -> bool:
    return interruption_of(task).kind is InterruptionKind.SESSION


def _session(tx: Tx, task: Task, children: Sequence[str]) -> ActiveSession:
    assert task.session_key is not None
    session = None
    with contextlib.suppress(RowDamaged):  # one damaged row must not block the whole manifest
        session = tx.sessions.find(task.session_key)
    origin = task.origin
    return ActiveSession(
        key=task.session_key,
        status="processing" if session is None else session.status.value,
        last_user_message=task.goal[:_LAST_MESSAGE] or None,
        active_subagents=tuple(children),
        channel=None if origin is None else origin.channel,
        channel_target=None if origin is None else origin.peer,
        account_id=None if origin is None else origin.account_id,
    )


def _cron_run(task: Task, one: Interruption) -> ActiveCronRun:
    # A schedule keeps its name over all firings; the task of this firing is among the interruptions.
    name = (task.origin.peer if task.origin is not None else None) or task.session_key or task.name
    return ActiveCronRun(
        job_id=name,
        job_name=name,
        started_at=_moment(task.started_at or task.created_at),
        status=one.status,
    )


def _moment(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


class _Consumed(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    consumed_at: str
    outcome: RestartOutcome


def save_file(path: Path, manifest: Manifest) -> None:
    """Write the file atomically, safe against a power cut. Raises RestartBlocked."""
    _replace(path, msgspec.json.format(msgspec.json.encode(manifest), indent=2))


def consume_file(path: Path, manifest: Manifest, outcome: RestartOutcome, *, now: datetime) -> None:
    """Add to the document what became of each interruption, which marks it as consumed.

    The ledger is authoritative: if the file cannot be written, that is only logged.
    """
    document = msgspec.to_builtins(manifest) | msgspec.to_builtins(
        _Consumed(consumed_at=_moment(now), outcome=outcome)
    )
    _replace(path, msgspec.json.format(msgspec.json.encode(document), indent=2))


def unconsumed(path: Path) -> str | None:
    """The id of the document's restart, if the document is not marked as consumed."""
    try:
        document = msgspec.json.decode(path.read_bytes(), type=dict[str, object])
    except (OSError, msgspec.DecodeError):
        return None
    restart_id = document.get("restartId")
    return restart_id if isinstance(restart_id, str) and "consumedAt" not in document else None


def _replace(path: Path, content: bytes) -> None:
    # A random name that no other user can have created before: the manifest may be in a place such as /tmp.
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(beside, flags, 0o600)
        try:
            with open(descriptor, "wb", closefd=False) as file:
                file.write(content)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        beside.rename(path)
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise RestartBlocked(f"the manifest {path} cannot be written ({error.strerror})") from error
