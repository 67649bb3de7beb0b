"""Schedules: a program adds, changes, fires and removes schedules of an opened ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from holdfast.config.timetable import moment_in, seconds_of
from holdfast.core.clock import Clock
from holdfast.core.durations import Duration, parse_span
from holdfast.core.errors import BadInput, Refused
from holdfast.core.payload import check_number
from holdfast.core.schedule import Firing
from holdfast.core.schedule_spec import MissedPolicy, OverlapPolicy, Schedule, ScheduleSpec
from holdfast.engine.ledger.inputs import check_choice, check_moment
from holdfast.engine.program.definitions import Call, checked_call
from holdfast.engine.schedules.changes import ScheduleLimits, adding, editing, found, pausing, removing
from holdfast.engine.schedules.firing import firing_now
from holdfast.store import Store, Tx

MAX_PAGE = 500
# The fields of each kind of target, as they are without it.
_TARGETS: dict[str, dict[str, Any]] = {
    "agent": {"agent": None, "session": None, "prompt": None},
    "task": {"task": None, "arguments": {}},
    "command": {"command": [], "directory": None, "timeout_s": None},
}
_NO_TIME: dict[str, Any] = {"cron": None, "every_s": None, "at": None, "anchor_at": None}


class Schedules:
    """The schedules of a ledger. They fire where a gateway, or a process of `serve`, knows their target."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        owner: str,
        *,
        only_owner: bool = False,
        limits: ScheduleLimits | None = None,
    ) -> None:
        """New schedules belong to `owner`; with `only_owner`, those of others are not found."""
        self._store = store
        self._clock = clock
        self._owner = owner
        self._reach = owner if only_owner else None
        self._limits = limits

    async def add(
        self,
        name: str,
        call: Call[Any] | None = None,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        at: datetime | str | None = None,
        tz: str = "UTC",
        agent: str | None = None,
        prompt: str | None = None,
        session: str | None = None,
        command: Sequence[str] = (),
        directory: str | None = None,
        timeout: Duration | None = None,  # noqa: ASYNC109 - the command's, not this call's
        missed: MissedPolicy | str = MissedPolicy.LATEST,
        max_missed: int = 10,
        overlap: OverlapPolicy | str = OverlapPolicy.QUEUE,
        jitter: Duration = 0,
        retry: bool | None = None,
        description: str | None = None,
    ) -> Schedule:
        """Add a schedule of one kind of time and one target: `add("report", nightly("eu"), cron="0 3 * * *")`
        or `add("brief", agent="scholar", prompt="Brief me.", every="6h")`; a command is a list of words.

        Raises BadInput with the reason and an example, and NameTaken.
        """
        if call is not None:
            checked_call(call)
        if isinstance(command, str):
            raise BadInput("command", 'give a list of words, such as ["du", "-sh", "/var"], never a line')
        spec = ScheduleSpec(
            **times_of(cron, every, at, tz),
            tz=tz,
            agent=agent,
            session=None if agent is None else session or f"cron-{name}",
            prompt=prompt,
            task=None if call is None else call.name,
            arguments={} if call is None else dict(call.arguments),
            command=list(command),
            directory=directory,
            timeout_s=None if timeout is None else parse_span("timeout", timeout).total_seconds(),
            missed=check_choice("missed", missed, MissedPolicy),
            max_missed=check_number("max_missed", max_missed, low=1, high=100),
            overlap=check_choice("overlap", overlap, OverlapPolicy),
            jitter_s=seconds_of("jitter", jitter),
            retry=retry,
            description=description,
        )
        # A call shows that its task exists, even if no process that runs it is here now.
        known = None if call is None else {call.name}
        write = adding(name, spec, owner=self._owner, now=self._clock.now(), known=known, limits=self._limits)
        return await self._store.write(write)

    async def edit(
        self,
        name: str,
        call: Call[Any] | None = None,
        *,
        revision: int | None = None,
        cron: str | None = None,
        every: Duration | None = None,
        at: datetime | str | None = None,
        **changes: Any,
    ) -> Schedule:
        """Change a schedule: its time, its call, or other arguments of `add` by name.

        A call, an agent with its prompt, or a command takes the place of the target before. With a revision,
        it is refused as RevisionMismatch if another change came first.
        """
        fields = _changes(changes)

        def change(spec: ScheduleSpec) -> ScheduleSpec:
            spec = msgspec.structs.replace(_for_target(spec, call, fields), **fields)
            if spec.agent is not None and spec.session is None:
                spec = msgspec.structs.replace(spec, session=f"cron-{name}")
            if any(one is not None for one in (cron, every, at)):
                spec = msgspec.structs.replace(spec, **_NO_TIME | times_of(cron, every, at, spec.tz))
            if call is not None:
                spec = msgspec.structs.replace(spec, task=call.name, arguments=dict(call.arguments))
            return spec

        write = editing(
            name,
            change,
            now=self._clock.now(),
            expected=revision,
            owner=self._reach,
            known=None if call is None else {call.name},
            limits=self._limits,
        )
        return await self._store.write(write)

    async def get(self, name: str) -> Schedule:
        return await self._store.read(lambda tx: found(tx, name, self._reach))

    async def page(self, *, after: str = "", limit: int = 100) -> list[Schedule]:
        """By name; `after` is the last name of the page before."""
        check_number("limit", limit, low=1, high=MAX_PAGE)
        return await self._store.read(
            lambda tx: tx.schedules.page(after=after, owner=self._reach, limit=limit)
        )

    async def pause(self, name: str) -> Schedule:
        """Let it not fire, also one of the settings."""
        write = pausing(name, is_paused=True, now=self._clock.now(), owner=self._reach)
        return await self._store.write(write)

    async def resume(self, name: str) -> Schedule:
        """Let it fire again, from now on."""
        write = pausing(name, is_paused=False, now=self._clock.now(), owner=self._reach, limits=self._limits)
        return await self._store.write(write)

    async def run(self, name: str, *, request_id: str | None = None) -> Firing:
        """Fire it now; the same request id again gives the first firing. Raises Refused if its last firing
        has not ended and its overlap policy is skip."""
        before = await self.get(name)
        firing, busy = await self._store.write(
            firing_now(before, now=self._clock.now(), request_id=request_id)
        )
        if firing is None:
            raise Refused(f"{busy} of {name} has not ended, and its overlap policy is skip; fire it later")
        return firing

    async def remove(self, name: str, *, force: bool = False) -> None:
        """Remove it; its history stays. One of the settings of a gateway that is gone needs `force`."""
        await self._store.write(removing(name, now=self._clock.now(), owner=self._reach, force=force))

    async def history(self, name: str, *, before: datetime | None = None, limit: int = 50) -> list[Firing]:
        """Its firings, latest first; `before` is the occurrence of the last one of the page before."""
        check_number("limit", limit, low=1, high=MAX_PAGE)

        def read(tx: Tx) -> list[Firing]:
            made_at = None if self._reach is None else found(tx, name, self._reach).created_at
            return tx.firings.page(name, made_at=made_at, before=before, limit=limit)

        return await self._store.read(read)


def times_of(cron: str | None, every: Duration | None, at: datetime | str | None, tz: str) -> dict[str, Any]:
    """When a schedule fires, as the fields of its spec."""
    moment = None
    if isinstance(at, datetime):
        moment = moment_in(check_moment("at", at).isoformat(), tz)
    elif at is not None:
        moment = moment_in(at, tz)
    return {
        "cron": cron,
        "every_s": None if every is None else seconds_of("every", every),
        "at": moment,
    }


def _for_target(spec: ScheduleSpec, call: Call[Any] | None, changes: Mapping[str, Any]) -> ScheduleSpec:
    """The spec without another target than the one that an edit gives. Two at once are refused later."""
    given = [
        kind
        for kind, is_given in (
            ("task", call is not None),
            ("agent", changes.get("agent") is not None),
            ("command", bool(changes.get("command"))),
        )
        if is_given
    ]
    if len(given) != 1:
        return spec
    none: dict[str, Any] = {}
    for kind, fields in _TARGETS.items():
        none |= {} if kind == given[0] else fields
    return msgspec.structs.replace(spec, **none)


def _changes(changes: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a spec, from the arguments of `add`."""
    plain = {"tz", "agent", "prompt", "session", "directory", "max_missed", "retry", "description"}
    fields: dict[str, Any] = {}
    for name, value in changes.items():
        match name:
            case "missed":
                fields[name] = check_choice(name, value, MissedPolicy)
            case "overlap":
                fields[name] = check_choice(name, value, OverlapPolicy)
            case "jitter":
                fields["jitter_s"] = seconds_of(name, value)
            case "timeout":
                fields["timeout_s"] = parse_span(name, value).total_seconds()
            case "command":
                fields[name] = list(value)
            case _ if name in plain:
                fields[name] = value
            case _:
                raise BadInput(name, f"a schedule has no such setting; it has {', '.join(sorted(plain))}")
    return fields
