"""The writes that add, edit, pause, resume and remove schedules at run time."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime, timedelta

import msgspec

from holdfast.config.timetable import check_spec, shortest_interval
from holdfast.core.durations import in_one_unit
from holdfast.core.errors import BadInput, NameTaken, NotFound, Refused, RevisionMismatch
from holdfast.core.events import EventKind
from holdfast.core.schedule_spec import Schedule, ScheduleSource, ScheduleSpec, check_schedule_name
from holdfast.core.session import AGENT_PREFIX
from holdfast.engine.schedules.due import placed
from holdfast.store import Tx, Write

# Those of all owners together: more is likely a program that adds schedules in a loop.
MAX_SCHEDULES = 100_000


class ScheduleLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent may do to the schedules of its own owner."""

    most: int
    min_interval: timedelta


def adding(
    name: str,
    spec: ScheduleSpec,
    *,
    owner: str,
    now: datetime,
    known: Collection[str] | None = None,
    limits: ScheduleLimits | None = None,
) -> Write[Schedule]:
    """The write that makes a schedule. It counts from now on.

    `known` are the tasks that some process here can run; without it, the ledger knows them. Raises BadInput,
    NameTaken, Refused.
    """
    check_schedule_name(name)
    if spec.every_s is not None and spec.anchor_at is None:
        # Counted from its beginning, which a restart does not move.
        spec = msgspec.structs.replace(spec, anchor_at=now.replace(microsecond=0))
    check_spec(spec, now=now)
    _check_interval(spec, limits, now)
    made = placed(
        Schedule(
            name=name,
            source=ScheduleSource.RUNTIME,
            owner=owner,
            spec=spec,
            created_at=now,
            updated_at=now,
        ),
        now,
    )

    def add(tx: Tx) -> Schedule:
        before = tx.schedules.find(name)
        if before is not None:
            is_ours = before.created_at == now and before.spec == spec and before.owner == owner
            if is_ours:  # this write has committed before, and its answer was lost
                return before
            raise NameTaken(name, is_in_settings=before.source is ScheduleSource.SETTINGS)
        _check_known(tx, spec, known)
        _check_number(tx, owner, limits, more=1)
        if tx.schedules.count()[0] >= MAX_SCHEDULES:
            raise Refused(f"there are {MAX_SCHEDULES:,} schedules already; remove some: `holdfast cron list`")
        if not tx.schedules.create(made):
            raise NameTaken(name)
        tx.emit(
            EventKind.SCHEDULE_ADDED,
            name,
            at=now,
            schedule=name,
            owner=made.owner,
            revision=made.revision,
        )
        tx.hint("schedules")
        return made

    return add


def editing(
    name: str,
    change: Callable[[ScheduleSpec], ScheduleSpec],
    *,
    now: datetime,
    expected: int | None = None,
    owner: str | None = None,
    known: Collection[str] | None = None,
    limits: ScheduleLimits | None = None,
    is_paused: bool | None = None,
) -> Write[Schedule]:
    """The write that changes a schedule made at run time. Raises RevisionMismatch if it is not at the
    expected revision any more; with an owner, NotFound for a schedule of another one."""

    def edit(tx: Tx) -> Schedule:
        before = found(tx, name, owner, is_locked=True)
        if before.source is ScheduleSource.SETTINGS:
            raise Refused(
                f"schedule {name} is declared in the settings of a gateway; change it there, at "
                f"[schedules.{name}], or pause it: `holdfast cron pause {name}`"
            )
        spec = change(before.spec)
        if spec.every_s is not None and (spec.anchor_at is None or spec.every_s != before.spec.every_s):
            spec = msgspec.structs.replace(spec, anchor_at=now.replace(microsecond=0))
        pauses = before.is_paused if is_paused is None else is_paused
        if expected is not None and before.revision != expected:
            is_so = (spec, pauses, now) == (before.spec, before.is_paused, before.updated_at)
            if is_so and before.revision == expected + 1:
                return before  # this write has committed before, and its answer was lost
            raise RevisionMismatch(f"schedule {name}", expected, before.revision)
        if (spec, pauses) == (before.spec, before.is_paused):
            return before
        has_new_times = spec.times != before.spec.times
        check_spec(spec, now=now if has_new_times and spec.is_enabled else None)
        if has_new_times:
            _check_interval(spec, limits, now)
        if spec.task_name != before.spec.task_name:
            _check_known(tx, spec, known)
        after = msgspec.structs.replace(
            before, spec=spec, revision=before.revision + 1, updated_at=now, is_paused=pauses
        )
        restarts = has_new_times or pauses != before.is_paused
        after = placed(after, now if restarts else before.since_at)
        if not tx.schedules.edit(after, expected=before.revision):
            raise RevisionMismatch(f"schedule {name}", before.revision, tx.schedules.get(name).revision)
        if _begins_to_count(before, after):
            _check_number(tx, after.owner, limits)
        tx.emit(
            EventKind.SCHEDULE_CHANGED,
            name,
            at=now,
            schedule=name,
            owner=after.owner,
            revision=after.revision,
        )
        tx.hint("schedules")
        return after

    return edit


def pausing(
    name: str,
    *,
    is_paused: bool,
    now: datetime,
    owner: str | None = None,
    limits: ScheduleLimits | None = None,
) -> Write[Schedule]:
    """The write that pauses or resumes a schedule, also one of the settings. Idempotent.

    What becomes due while it is paused does not fire; after a resume, it counts from then on. Raises Refused
    for a resume above the limits.
    """

    def pause(tx: Tx) -> Schedule:
        before = found(tx, name, owner, is_locked=True)
        if before.is_paused == is_paused:
            return before
        after = msgspec.structs.replace(
            before, is_paused=is_paused, revision=before.revision + 1, updated_at=now
        )
        after = placed(after, now)
        if not is_paused and after.is_on and after.next_at is None:
            raise Refused(
                f"schedule {name} fires once, and its time has passed; give it another one: "
                f"`holdfast cron edit {name} --at TIME`"
            )
        if not tx.schedules.edit(after, expected=before.revision):
            raise RevisionMismatch(f"schedule {name}", before.revision, tx.schedules.get(name).revision)
        if _begins_to_count(before, after):
            _check_number(tx, after.owner, limits)
        if is_paused:
            tx.emit(EventKind.SCHEDULE_PAUSED, name, at=now, schedule=name, owner=after.owner)
        else:
            tx.emit(EventKind.SCHEDULE_RESUMED, name, at=now, schedule=name, owner=after.owner)
        tx.hint("schedules")
        return after

    return pause


def removing(
    name: str,
    *,
    now: datetime,
    owner: str | None = None,
    covers: Callable[[Schedule], bool] = lambda _: True,
    force: bool = False,
) -> Write[Schedule]:
    """The write that removes a schedule; its history stays, and a firing under way goes on.

    One of the settings is refused without `force`: a gateway that still has it declares it again. Raises
    NotFound, also for a schedule of another owner, or one that the caller may not reach.
    """
    removed: list[Schedule] = []

    def remove(tx: Tx) -> Schedule:
        present = tx.schedules.lock(name)
        if removed and (present is None or present.created_at != removed[0].created_at):
            return removed[0]  # this write has committed before, and its answer was lost
        before = found(tx, name, owner)
        if not covers(before):
            raise NotFound("schedule", name)
        if before.source is ScheduleSource.SETTINGS and not force:
            places = ", ".join(one.place for one in tx.schedules.declarations([name])) or "none"
            raise Refused(
                f"schedule {name} is declared in the settings of a gateway ({places}); remove it there. If "
                f"that gateway is gone for good: `holdfast cron remove {name} --force`"
            )
        tx.schedules.withdraw(name)
        tx.schedules.delete(name)
        removed[:] = [before]
        tx.emit(
            EventKind.SCHEDULE_REMOVED,
            name,
            at=now,
            schedule=name,
            owner=before.owner,
            revision=before.revision,
        )
        tx.hint("schedules")
        return before

    return remove


def found(tx: Tx, name: str, owner: str | None = None, *, is_locked: bool = False) -> Schedule:
    """The schedule of this name. Raises NotFound, also for one of another owner."""
    schedule = tx.schedules.lock(name) if is_locked else tx.schedules.find(name)
    if schedule is None or owner not in (None, schedule.owner):
        raise NotFound("schedule", name)
    return schedule


def _begins_to_count(before: Schedule, after: Schedule) -> bool:
    """Whether a change lets a schedule fire that was paused, or gives one that is over another life."""
    return (before.is_paused and not after.is_paused) or (before.is_over and not after.is_over)


def _check_number(tx: Tx, owner: str, limits: ScheduleLimits | None, *, more: int = 0) -> None:
    """Paused schedules count, too: otherwise an owner could have any number, and resume them."""
    if limits is not None and tx.schedules.count_of(owner) + more > limits.most:
        raise Refused(
            f"{owner} has {limits.most} schedules already, which is the limit; remove one, or let the "
            "operator raise cron.max_per_agent in the settings"
        )


def _check_interval(spec: ScheduleSpec, limits: ScheduleLimits | None, now: datetime) -> None:
    if limits is None:
        return
    shortest = shortest_interval(spec, now)
    if shortest is not None and shortest < limits.min_interval:
        least = in_one_unit(limits.min_interval)
        raise BadInput(
            "cron" if spec.cron is not None else "every",
            f"it would fire every {in_one_unit(shortest)}, and an agent may schedule at most every {least}; "
            f"such as every {least}",
        )


def _check_known(tx: Tx, spec: ScheduleSpec, known: Collection[str] | None) -> None:
    """Refuse an agent or a task that no process of this ledger has."""
    name = spec.task_name
    names = set(known) if known is not None else set()
    if known is None:
        for boot in tx.boots.alive():
            if boot.task_names is None:
                return
            names.update(boot.task_names)
    if name in names:
        return
    agents = sorted(one.removeprefix(AGENT_PREFIX) for one in names if one.startswith(AGENT_PREFIX))
    if spec.agent is not None:
        have = f"there are {', '.join(agents)[:200]}" if agents else "no agent is declared"
        raise BadInput(
            "agent",
            f"there is no agent {spec.agent!a}; {have}; declare it: [agents.{spec.agent}] in holdfast.toml",
        )
    if spec.task is None:
        raise BadInput(
            "command", "no gateway of this ledger runs commands of schedules; start one: `holdfast up`"
        )
    tasks = ", ".join(sorted(one for one in names if "." not in one))[:200] or "none"
    raise BadInput(
        "task",
        f"no gateway or worker of this ledger knows the task {spec.task!a} (known: {tasks}); add it to "
        '`tasks` in holdfast.toml, such as tasks = ["reports:nightly"]',
    )
