"""The write that brings the schedules of a gateway's settings into the ledger, and refuses a name in use."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from holdfast.core.clock import from_micros
from holdfast.core.errors import SettingsError
from holdfast.core.events import EventKind
from holdfast.core.jumps import TOLERANCE
from holdfast.core.schedule_spec import Declaration, Schedule, ScheduleSource, ScheduleSpec
from holdfast.engine.schedules.due import placed
from holdfast.store import Tx, Write

# The name of a gateway that was not seen for this long is free again.
RELEASE_AFTER = timedelta(days=1)


class ScheduleStart(msgspec.Struct, frozen=True, kw_only=True):
    """From when on a schedule counted, as ledgers before schema 10 have it."""

    cron: str
    tz: str
    is_enabled: bool
    since: int


def declaring(
    place: str,
    specs: Mapping[str, ScheduleSpec],
    *,
    owner: str,
    now: datetime,
    release_after: timedelta = RELEASE_AFTER,
) -> Write[None]:
    """The write that declares all schedules of the settings of the gateway at `place`, or none of them.

    Raises SettingsError if another gateway declares one of the names for another target, or if a schedule of
    that name was made at run time. Gateways with the same schedule share it; the latest settings count.
    """

    def declare(tx: Tx) -> None:
        had = {one.name for one in tx.schedules.declared_at(place)}
        names = sorted({*specs, *had})
        rows = tx.schedules.get_many(names)
        others: dict[str, list[Declaration]] = {}
        for one in tx.schedules.declarations(names):
            if one.place != place:
                others.setdefault(one.name, []).append(one)
        for name, spec in sorted(specs.items()):
            _check(name, spec, place, rows.get(name), others.get(name, ()), now - release_after)
        for name in sorted(had - set(specs)):
            tx.schedules.withdraw(name, place)
            if not others.get(name) and tx.schedules.delete(name):
                tx.emit(EventKind.SCHEDULE_REMOVED, name, at=now, schedule=name, owner=owner)
        for name, spec in sorted(specs.items()):
            for gone in others.get(name, ()):
                if gone.target != spec.target:  # not seen for long: `_check` let it pass
                    tx.schedules.withdraw(name, gone.place)
            tx.schedules.declare(
                Declaration(name=name, place=place, target=spec.target, declared_at=now, seen_at=now)
            )
            before = rows.get(name)
            if before is None:
                _add(tx, name, spec, owner, now)
            elif before.spec != spec:
                _change(tx, before, spec, now)
        tx.hint("schedules")

    return declare


def _check(
    name: str,
    spec: ScheduleSpec,
    place: str,
    row: Schedule | None,
    others: list[Declaration] | tuple[()],
    gone_since: datetime,
) -> None:
    if row is not None and row.source is ScheduleSource.RUNTIME:
        raise SettingsError(
            f"schedules.{name}: a schedule of this name was made at run time by {row.owner} for "
            f"{row.spec.target}; rename the one in the settings, or remove the other one: "
            f"`holdfast cron remove {name}`"
        )
    for one in others:
        if one.target != spec.target and one.seen_at > gone_since:
            raise SettingsError(
                f"schedules.{name}: the gateway at {one.place} declares this name for {one.target}, and this "
                f"gateway, at {place}, for {spec.target}; rename one of them. If the other gateway is gone "
                f"for good: `holdfast cron remove {name} --force`"
            )


def _add(tx: Tx, name: str, spec: ScheduleSpec, owner: str, now: datetime) -> None:
    made = Schedule(
        name=name, source=ScheduleSource.SETTINGS, owner=owner, spec=spec, created_at=now, updated_at=now
    )
    made = _begun_before(tx, made, now) or _not_begun(made)
    if tx.schedules.create(made):
        tx.firings.adopt(made)
        tx.emit(EventKind.SCHEDULE_ADDED, name, at=now, schedule=name, owner=owner, revision=1)


def _change(tx: Tx, before: Schedule, spec: ScheduleSpec, now: datetime) -> None:
    after = msgspec.structs.replace(before, spec=spec, revision=before.revision + 1, updated_at=now)
    # If its times have changed, it counts from the next look on.
    after = _not_begun(after) if spec.times != before.spec.times else placed(after, before.since_at)
    if tx.schedules.edit(after, expected=before.revision):
        tx.emit(
            EventKind.SCHEDULE_CHANGED,
            before.name,
            at=now,
            schedule=before.name,
            owner=before.owner,
            revision=after.revision,
        )


def _not_begun(schedule: Schedule) -> Schedule:
    # Due at once: the first look begins it, at a time that the gateway trusts.
    due_at = from_micros(0) if schedule.is_on else None
    return msgspec.structs.replace(schedule, since_at=None, next_at=None, due_at=due_at)


def _begun_before(tx: Tx, schedule: Schedule, now: datetime) -> Schedule | None:
    """A schedule that an older release has fired goes on from there."""
    text = tx.boots.fact(f"schedule {schedule.name}")
    try:
        was = None if text is None else msgspec.json.decode(text, type=ScheduleStart)
    except msgspec.DecodeError:
        return None
    spec = schedule.spec
    if was is None or (was.cron, was.tz, was.is_enabled) != (spec.cron, spec.tz, spec.is_enabled):
        return None
    since = from_micros(was.since)
    last = tx.firings.last_of(schedule.name, until=now, slack=TOLERANCE)
    if last is not None:
        since = max(since, last.occurrence_at)
    return placed(schedule, since)
