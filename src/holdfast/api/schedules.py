"""Schedules for the API and the CLI: list, show, add, edit, pause, run, remove, history."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.api.contract import ADMIN, EVERYTHING, Reach
from holdfast.api.pages import bad_token
from holdfast.api.schedule_params import (
    AgentTurnAsked,
    AtAsked,
    CommandAsked,
    CronAsked,
    EveryAsked,
    FiringsAsked,
    PolicyAsked,
    ScheduleAddAsked,
    ScheduleAsked,
    ScheduleEditAsked,
    SchedulePatchAsked,
    ScheduleRemoveAsked,
    ScheduleRunAsked,
    SchedulesAsked,
    SystemEventAsked,
    TargetAsked,
    TaskTargetAsked,
    TimesAsked,
)
from holdfast.core.clock import from_micros, to_micros
from holdfast.core.errors import BadInput, NotFound, Refused
from holdfast.core.schedule_spec import (
    MissedPolicy,
    OverlapPolicy,
    Schedule,
    ScheduleSpec,
    check_schedule_name,
    name_from,
)
from holdfast.core.secret import refuse_references
from holdfast.core.session import agent_of
from holdfast.views.schedules import (
    FiringEntryView,
    FiringPageView,
    SchedulePageView,
    ScheduleRemovedView,
    ScheduleRunView,
    ScheduleStatusView,
    ScheduleView,
    maybe_millis,
)

if TYPE_CHECKING:
    from holdfast.api.contract import Caller, GatewayDoor
    from holdfast.config.sections import Config
    from holdfast.core.schedule import Firing
    from holdfast.engine.program.definitions import TaskDefinition
    from holdfast.engine.schedules.changes import ScheduleLimits
    from holdfast.store.contract import Write
    from holdfast.store.schedules import FiringPlace
    from holdfast.store.transaction import Tx

# How many schedules a list with a filter or another order than by name looks at.
MAX_SCANNED = 20_000
_SCAN = 500
_NOT_OURS = {
    "failure_alert": "failureAlert",
    "pacing": "pacing",
    "trigger": "trigger",
    "model": "payload.model",
    "fallbacks": "payload.fallbacks",
    "thinking": "payload.thinking",
    "tools_allow": "payload.toolsAllow",
}


class ScheduleCaller(msgspec.Struct, frozen=True, kw_only=True):
    """What the caller of a method may do to schedules, and what the settings say."""

    reach: Reach = EVERYTHING
    may_command: bool = True
    # The owner of schedules that the caller makes.
    owner: str = "system"
    # By the names of the agents, their sessions for messages that name none.
    agents: Mapping[str, str] = {}
    # The tasks that are known; None for those that running processes have told the ledger.
    known: Collection[str] | None = None
    limits: ScheduleLimits | None = None
    # The tasks whose parameters are known here, by name.
    tasks: Mapping[str, TaskDefinition[..., Any]] = {}

    @classmethod
    def of(
        cls, config: Config, caller: Caller, tasks: Mapping[str, TaskDefinition[..., Any]] | None = None
    ) -> ScheduleCaller:
        return cls(
            tasks=tasks or {},
            reach=caller.reach,
            may_command=ADMIN in caller.scopes and not caller.reach.is_bound,
            owner=caller.owner or config.gateway.owner,
            agents={name: one.session for name, one in config.agents.items()},
            limits=limits_of(config) if caller.reach.is_bound else None,
        )

    def find(self, tx: Tx, name: str) -> Schedule:
        """Raises NotFound, also for a schedule that the caller may not reach."""
        found = tx.schedules.find(name)
        if found is None or not self.covers(found):
            raise NotFound("schedule", name)
        return found

    def covers(self, schedule: Schedule) -> bool:
        return self.reach.covers(schedule.owner, schedule.spec.task_name)

    def sees_since(self, schedule: Schedule) -> datetime | None:
        """A limited caller sees no firings of an earlier schedule of the same name: it may have been of
        another owner."""
        return schedule.created_at if self.reach.is_bound else None

    def check(self, spec: ScheduleSpec) -> ScheduleSpec:
        """Raises Refused for a target that the caller may not have."""
        if spec.command and not self.may_command:
            raise Refused(
                "a schedule that runs a command needs the scope operator.admin; let an operator add it: "
                "`holdfast cron add NAME --cron … -- PROGRAM …`"
            )
        if self.reach.owner is not None and spec.agent is not None and spec.session_key != self.reach.owner:
            raise Refused(f"this token may schedule prompts for its own session only, {self.reach.owner}")
        if self.reach.names is not None and spec.task_name not in self.reach.names:
            raise Refused("this token may schedule its own tasks only; use a token that allows this target")
        return spec


def limits_of(config: Config) -> ScheduleLimits:
    from holdfast.engine.schedules.changes import ScheduleLimits

    return ScheduleLimits(
        most=config.cron.max_per_agent, min_interval=timedelta(seconds=config.cron.min_agent_interval_s)
    )


# --- reading


def list_schedules(tx: Tx, asked: SchedulesAsked, *, by: ScheduleCaller, now: datetime) -> SchedulePageView:
    if asked.page_token is not None:
        return _page_by_name(tx, asked, by, now)
    found = [one for one in _scan(tx, by) if _is_wanted(one, asked)]
    found.sort(key=_ORDERS[asked.sort_by], reverse=asked.sort_dir == "desc")
    views = _all_shown(tx, found, now) if asked.last_run_status not in (None, "all") else None
    if views is not None:
        views = [one for one in views if (one.last_run_status or "unknown") == asked.last_run_status]
        total, shown = len(views), views[asked.offset : asked.offset + asked.limit]
    else:
        total = len(found)
        shown = _all_shown(tx, found[asked.offset : asked.offset + asked.limit], now)
    end = asked.offset + len(shown)
    return SchedulePageView(
        schedules=shown,
        total=total,
        offset=asked.offset,
        limit=asked.limit,
        has_more=end < total,
        next_offset=end if end < total else None,
        snapshot_revision=_stamp(tx, by, found),
    )


def _page_by_name(tx: Tx, asked: SchedulesAsked, by: ScheduleCaller, now: datetime) -> SchedulePageView:
    after, shown, token = _name_token(asked.page_token), list[Schedule](), None
    while token is None:
        page = tx.schedules.page(after=after, owner=by.reach.owner, limit=_SCAN)
        for one in page:
            if not by.covers(one) or not _is_wanted(one, asked):
                continue
            if len(shown) == asked.limit:
                token = shown[-1].name
                break
            shown.append(one)
        if len(page) < _SCAN:
            break
        after = page[-1].name
    total = tx.schedules.count()[0] if not by.reach.is_bound else len(shown)
    return SchedulePageView(
        schedules=_all_shown(tx, shown, now),
        total=total,
        limit=asked.limit,
        has_more=token is not None,
        next_offset=None if token is None else len(shown),
        next_page_token=token,
        snapshot_revision=_stamp(tx, by, shown),
    )


def _stamp(tx: Tx, by: ScheduleCaller, found: list[Schedule]) -> str:
    """What changes with the schedules that the caller may see."""
    if not by.reach.is_bound:
        return tx.schedules.stamp()
    return f"{len(found)}.{max((to_micros(one.updated_at) for one in found), default=0)}"


def _name_token(token: str | None) -> str:
    try:
        return check_schedule_name(token) if token else ""
    except BadInput:
        raise bad_token(token or "") from None


def _scan(tx: Tx, by: ScheduleCaller) -> list[Schedule]:
    found: list[Schedule] = []
    after = ""
    while len(found) < MAX_SCANNED:
        page = tx.schedules.page(after=after, owner=by.reach.owner, limit=_SCAN)
        found += [one for one in page if by.covers(one)]
        if len(page) < _SCAN:
            break
        after = page[-1].name
    return found


_LATE = 2**62
_ORDERS: dict[str, Any] = {
    "nextRunAtMs": lambda one: (maybe_millis(one.next_at) or _LATE, one.name),
    "updatedAtMs": lambda one: (maybe_millis(one.updated_at), one.name),
    "name": lambda one: ((one.spec.title or one.name).lower(), one.name),
}


def _is_wanted(one: Schedule, asked: SchedulesAsked) -> bool:
    which = asked.enabled or ("all" if asked.include_disabled else "enabled")
    kind = "at" if one.spec.at is not None else "every" if one.spec.every_s is not None else "cron"
    text = f"{one.name} {one.spec.title or ''} {one.spec.description or ''} {one.spec.target}".lower()
    return (
        (which == "all" or (which == "enabled") == (one.is_on and not one.is_over))
        and asked.agent_id in (None, one.spec.agent)
        and asked.session_key in (None, one.spec.session_key)
        and asked.schedule_kind in (None, "all", kind)
        and asked.trigger != "conditional"
        and (asked.query or "").lower() in text
    )


def show_schedule(tx: Tx, asked: ScheduleAsked, *, by: ScheduleCaller, now: datetime) -> ScheduleView:
    return _shown(tx, by.find(tx, id_of(asked)), now)


def read_status(tx: Tx, *, by: ScheduleCaller, now: datetime) -> ScheduleStatusView:
    count, next_due = tx.schedules.count()[0], tx.schedules.next_due(now=now)
    if by.reach.is_bound:
        own = _scan(tx, by)
        dues = [to_micros(one.due_at) for one in own if one.due_at is not None and one.due_at > now]
        count, next_due = len(own), min(dues, default=None)
    return ScheduleStatusView(
        enabled=True,
        store_path="ledger",
        count=count,
        next_wake_at_ms=None if next_due is None else next_due // 1000,
    )


def read_firings(tx: Tx, asked: FiringsAsked, *, by: ScheduleCaller) -> FiringPageView:
    """The firings of one schedule, also of one that was removed; or of all."""
    is_one = asked.scope == "job" or (asked.scope is None and (asked.id or asked.older_id) is not None)
    found = _firings_of(tx, id_of(asked), asked, by) if is_one else _all_firings(tx, asked, by)
    wanted: set[str | None] = set(asked.statuses or ())
    if not wanted and asked.status not in (None, "all"):
        wanted = {asked.status}
    tasks = tx.tasks.get_many([one.task_id for one in found if one.task_id is not None])
    entries = [FiringEntryView.of(one, tasks.get(one.task_id or "")) for one in found]
    if wanted:
        entries = [one for one in entries if one.status in wanted]
    if asked.query:
        entries = [one for one in entries if asked.query.lower() in f"{one.schedule} {one.error}".lower()]
    shown = entries[asked.offset : asked.offset + asked.limit]
    has_more = len(entries) > asked.offset + len(shown)
    token = None
    if has_more and shown:
        last = next(one for one in found if one.id == shown[-1].run_id)
        token = f"{to_micros(last.occurrence_at)}" if is_one else _place_token(last)
    return FiringPageView(
        entries=shown[::-1] if asked.sort_dir == "asc" else shown,
        total=asked.offset + len(shown) + has_more,
        offset=asked.offset,
        limit=asked.limit,
        has_more=has_more,
        next_offset=asked.offset + len(shown) if has_more else None,
        next_page_token=token,
    )


def _firings_of(tx: Tx, name: str, asked: FiringsAsked, by: ScheduleCaller) -> list[Firing]:
    made_at = by.sees_since(by.find(tx, name)) if by.reach.is_bound else None
    before = None
    if asked.page_token is not None:
        if not _is_micros(asked.page_token):
            raise bad_token(asked.page_token)
        before = from_micros(int(asked.page_token))
    # A filter looks at more than one page.
    most = asked.offset + (asked.limit + 1 if not _filters(asked) else 5 * MAX_HISTORY)
    found = tx.firings.page(name, made_at=made_at, before=before, limit=most)
    if not found and tx.schedules.find(name) is None:
        raise NotFound("schedule", name)
    return [one for one in found if asked.run_id in (None, one.id, one.task_id)]


MAX_HISTORY = 1000


def _all_firings(tx: Tx, asked: FiringsAsked, by: ScheduleCaller) -> list[Firing]:
    if by.reach.is_bound:
        raise BadInput("id", "this token may read the history of its own schedules only; name one of them")
    most = asked.offset + (asked.limit + 1 if not _filters(asked) else 5 * MAX_HISTORY)
    found = tx.firings.newest(before=_place_of(asked.page_token), limit=most)
    return [
        one
        for one in found
        if asked.run_id in (None, one.id, one.task_id)
        and (asked.agent_id is None or one.session_key.startswith(f"agent:{asked.agent_id}:"))
    ]


def _place_token(firing: Firing) -> str:
    return f"{to_micros(firing.created_at)}.{to_micros(firing.occurrence_at)}.{firing.id}"


def _place_of(token: str | None) -> FiringPlace | None:
    from holdfast.store.schedules import FiringPlace

    if token is None:
        return None
    created_at, _, rest = token.partition(".")
    occurrence_at, _, firing_id = rest.partition(".")
    if not _is_micros(created_at) or not _is_micros(occurrence_at) or not firing_id.startswith("fire_"):
        raise bad_token(token)
    return FiringPlace(int(created_at), int(occurrence_at), firing_id)


def _is_micros(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 17


def _filters(asked: FiringsAsked) -> bool:
    return bool(asked.statuses or asked.query or asked.run_id or asked.status not in (None, "all"))


def _shown(tx: Tx, schedule: Schedule, now: datetime) -> ScheduleView:
    (view,) = _all_shown(tx, [schedule], now)
    return view


def _all_shown(tx: Tx, schedules: Sequence[Schedule], now: datetime) -> list[ScheduleView]:
    from holdfast.engine.schedules.targets import without_target

    problems = without_target(tx, schedules, now)
    return [_view(tx, one, now, problems.get(one.name)) for one in schedules]


def _view(tx: Tx, schedule: Schedule, now: datetime, problem: str | None) -> ScheduleView:
    last = tx.firings.newest_of(schedule, until=now)
    task_id = None if last is None else last.task_id
    task = None if task_id is None else tx.tasks.get_many([task_id]).get(task_id)
    return ScheduleView.of(schedule, last, task, problem=problem)


def id_of(asked: ScheduleAsked) -> str:
    given = asked.id or asked.older_id
    if given is None:
        raise BadInput("id", "name the schedule by its id; `cron.list` has it")
    return given


# --- writing


def adding_schedule(asked: ScheduleAddAsked, *, now: datetime, by: ScheduleCaller) -> Write[ScheduleView]:
    """The write that makes a schedule. Raises BadInput, NameTaken, Refused."""
    from holdfast.engine.schedules.changes import adding, pausing

    name = name_from(asked.name)
    title = asked.display_name or (asked.name if asked.name != name else None)
    spec = _with(ScheduleSpec(title=title), asked, asked.schedule, asked.payload, name, by, is_new=True)
    write = adding(name, by.check(spec), owner=by.owner, now=now, known=by.known, limits=by.limits)
    pause = pausing(name, is_paused=True, now=now)

    def add(tx: Tx) -> ScheduleView:
        made = write(tx)
        if asked.enabled is False:
            made = pause(tx)
        return _shown(tx, made, now)

    return add


def editing_schedule(asked: ScheduleEditAsked, *, now: datetime, by: ScheduleCaller) -> Write[ScheduleView]:
    """The write that changes a schedule. Raises RevisionMismatch if another change came first."""
    from holdfast.engine.schedules.changes import editing, pausing

    name, patch = id_of(asked), asked.patch
    if patch.name is not None and name_from(patch.name) != name and patch.display_name is None:
        patch = msgspec.structs.replace(patch, display_name=patch.name)  # the id stays
    expected = _revision(asked.expected_config_revision)

    def change(spec: ScheduleSpec) -> ScheduleSpec:
        if patch.display_name is not None:
            spec = msgspec.structs.replace(spec, title=patch.display_name)
        return by.check(_with(spec, patch, patch.schedule, patch.payload, name, by))

    is_paused = None if patch.enabled is None else not patch.enabled
    write = editing(
        name, change, now=now, expected=expected, known=by.known, limits=by.limits, is_paused=is_paused
    )
    pause = pausing(name, is_paused=bool(is_paused), now=now, limits=by.limits)
    only_pauses = msgspec.structs.replace(patch, enabled=None) == SchedulePatchAsked()

    def edit(tx: Tx) -> ScheduleView:
        by.find(tx, name)
        return _shown(tx, pause(tx) if only_pauses and is_paused is not None else write(tx), now)

    return edit


def removing_schedule(
    asked: ScheduleRemoveAsked, *, now: datetime, by: ScheduleCaller
) -> Write[ScheduleRemovedView]:
    """The write that removes a schedule. Raises Refused for one of the settings."""
    from holdfast.engine.schedules.changes import removing

    name = id_of(asked)
    if asked.force and by.reach.is_bound:
        raise Refused("only an operator may remove a schedule of the settings")
    write = removing(name, now=now, covers=by.covers, force=asked.force)

    def remove(tx: Tx) -> ScheduleRemovedView:
        write(tx)
        return ScheduleRemovedView(ok=True, removed=True, id=name)

    return remove


def running_schedule(
    asked: ScheduleRunAsked, before: Schedule, *, now: datetime, by: ScheduleCaller
) -> Write[ScheduleRunView]:
    """The write that fires a schedule now. With the same request id, the first firing is the answer."""
    from holdfast.engine.schedules.firing import firing_now

    del by  # `run_schedule` has checked it
    if asked.mode == "if-enabled" and not before.is_on:
        return lambda _tx: ScheduleRunView(ok=True, ran=False, reason="disabled")
    if asked.mode == "due" and (before.due_at is None or before.due_at > now):
        return lambda _tx: ScheduleRunView(ok=True, ran=False, reason="not-due")
    write = firing_now(before, now=now, request_id=asked.request_id)

    def run(tx: Tx) -> ScheduleRunView:
        firing, _busy = write(tx)
        if firing is None:
            return ScheduleRunView(ok=True, ran=False, reason="already-running")
        return ScheduleRunView(ok=True, ran=True, enqueued=True, run_id=firing.id, task_id=firing.task_id)

    return run


def running(asked: ScheduleRunAsked, *, now: datetime, by: ScheduleCaller) -> Write[ScheduleRunView]:
    """The same in one write, which finds the schedule itself."""
    made: dict[int, Write[ScheduleRunView]] = {}

    def run(tx: Tx) -> ScheduleRunView:
        before = by.find(tx, id_of(asked))
        # The ids are made once for each revision, so that the write may run again.
        write = made.setdefault(before.revision, running_schedule(asked, before, now=now, by=by))
        return write(tx)

    return run


def _revision(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise BadInput("expectedConfigRevision", "give the configRevision that cron.get has")
    return int(text)


def _with(
    spec: ScheduleSpec,
    asked: PolicyAsked,
    times: TimesAsked | None,
    target: TargetAsked | None,
    name: str,
    by: ScheduleCaller,
    *,
    is_new: bool = False,
) -> ScheduleSpec:
    """The spec with everything that the caller gave."""
    for part in (asked, target):
        for field, shown in _NOT_OURS.items():
            if getattr(part, field, None) not in (None, False):
                raise BadInput(shown, "Holdfast has no such setting of a schedule; leave it out")
    mode = (asked.delivery or {}).get("mode", "none")
    if mode not in ("none", "announce"):
        raise BadInput(
            "delivery.mode",
            "answers go to the person who spoke last in the session; leave it out, or `announce`",
        )
    changes: dict[str, Any] = {}
    for field in ("description", "tz", "max_missed", "retry"):
        if getattr(asked, field) is not None:
            changes[field] = getattr(asked, field)
    if asked.missed is not None:
        changes["missed"] = MissedPolicy(asked.missed)
    if asked.overlap is not None:
        changes["overlap"] = OverlapPolicy(asked.overlap)
    if asked.jitter_ms is not None:
        changes["jitter_s"] = _whole_seconds("jitterMs", asked.jitter_ms)
    spec = msgspec.structs.replace(spec, **changes)
    if times is not None:
        spec = _with_times(spec, times, asked.tz)
    if target is not None or asked.agent_id or asked.session_key or asked.session_target:
        spec = _with_target(spec, asked, target, name, by, is_new=is_new)
    return spec


def _with_times(spec: ScheduleSpec, times: TimesAsked, tz: str | None) -> ScheduleSpec:
    from holdfast.config.timetable import moment_in

    none: dict[str, Any] = {"cron": None, "every_s": None, "at": None, "anchor_at": None}
    match times:
        case AtAsked(at=at):
            given: dict[str, Any] = {"at": moment_in(at, tz or spec.tz)}
        case EveryAsked(every_ms=every_ms, anchor_ms=anchor_ms):
            anchor = None if anchor_ms is None else from_micros(anchor_ms // 1000 * 1_000_000)
            given = {"every_s": _whole_seconds("every", every_ms), "anchor_at": anchor}
        case CronAsked(expr=expr, tz=zone, stagger_ms=stagger_ms):
            given = {"cron": expr}
            if zone or tz:
                given["tz"] = zone or tz
            if stagger_ms is not None:
                given["jitter_s"] = _whole_seconds("staggerMs", stagger_ms)
    return msgspec.structs.replace(spec, **none | given)


def _whole_seconds(field: str, millis: int) -> int:
    if millis % 1000:
        raise BadInput(field, "whole seconds are needed, such as 60000 milliseconds for a minute")
    return millis // 1000


def _with_target(
    spec: ScheduleSpec,
    asked: PolicyAsked,
    target: TargetAsked | None,
    name: str,
    by: ScheduleCaller,
    *,
    is_new: bool,
) -> ScheduleSpec:
    none: dict[str, Any] = {
        "agent": None,
        "session": None,
        "prompt": None,
        "task": None,
        "arguments": {},
        "command": [],
        "directory": None,
        "timeout_s": None,
    }
    match target:
        case CommandAsked(argv=argv, cwd=cwd, timeout_seconds=timeout_s):
            given: dict[str, Any] = {
                "command": argv if argv is not None else spec.command,
                "directory": cwd if cwd is not None else spec.directory,
                "timeout_s": timeout_s or spec.timeout_s,
            }
        case TaskTargetAsked(task=task):
            wanted = spec.task if task is None else task.rpartition(":")[2]
            kept = spec.arguments if wanted == spec.task else {}
            given = {"task": wanted, "arguments": _with_arguments(kept, target, by.tasks.get(wanted or ""))}
        case _:
            said = spec.prompt
            if isinstance(target, AgentTurnAsked) and target.message is not None:
                said = target.message
            if isinstance(target, SystemEventAsked) and target.text is not None:
                said = target.text
            is_main = asked.session_target == "main" or (is_new and isinstance(target, SystemEventAsked))
            given = {"prompt": said} | _session(spec, asked, name, by, is_main=is_main)
    return msgspec.structs.replace(spec, **none | given)


def _with_arguments(
    kept: Mapping[str, Any], target: TaskTargetAsked, task: TaskDefinition[..., Any] | None
) -> dict[str, Any]:
    """The arguments of a task after a change. Raises BadInput if the task is known and does not take them."""
    refuse_references("arguments", target.arguments)
    found = {**kept, **(target.arguments or {})}
    for name in target.drop_arguments or ():
        if name not in found:
            have = ", ".join(sorted(found))[:200] or "none"
            raise BadInput("dropArguments", f"there is no argument {name!r} to drop; it has {have}")
        del found[name]
    if task is not None:
        task.check_arguments(found)
    return found


def _session(
    spec: ScheduleSpec, asked: PolicyAsked, name: str, by: ScheduleCaller, *, is_main: bool
) -> dict[str, str]:
    """The agent and its session that get the prompt."""
    key = asked.session_key
    if asked.session_target is not None and asked.session_target.startswith("session:"):
        key = asked.session_target.removeprefix("session:")
    if key is not None and key.startswith("agent:"):
        agent = agent_of(key)
        if asked.agent_id not in (None, agent):
            raise BadInput("agentId", f"the session {key} belongs to {agent}; leave agentId out")
        return {"agent": agent, "session": key.removeprefix(f"agent:{agent}:")}
    agent_id = asked.agent_id or spec.agent
    if agent_id is None and by.reach.owner is not None and by.reach.owner.startswith("agent:"):
        agent = agent_of(by.reach.owner)
        return {"agent": agent, "session": by.reach.owner.removeprefix(f"agent:{agent}:")}
    if agent_id is None:
        if len(by.agents) != 1:
            have = ", ".join(sorted(by.agents)) or "none is declared"
            raise BadInput("agent", f"name the agent that gets the prompt ({have})")
        (agent_id,) = by.agents
    session = key or spec.session if spec.agent == agent_id else key
    if is_main:
        session = by.agents.get(agent_id, "main")
    return {"agent": agent_id, "session": session or f"cron-{name}"}


# --- calls of the gateway


async def call_list(gateway: GatewayDoor, asked: SchedulesAsked, caller: Caller) -> SchedulePageView:
    by, now = ScheduleCaller.of(gateway.config, caller), gateway.clock.now()
    return await gateway.store.read(lambda tx: list_schedules(tx, asked, by=by, now=now))


async def call_show(gateway: GatewayDoor, asked: ScheduleAsked, caller: Caller) -> ScheduleView:
    by, now = ScheduleCaller.of(gateway.config, caller), gateway.clock.now()
    return await gateway.store.read(lambda tx: show_schedule(tx, asked, by=by, now=now))


async def call_status(gateway: GatewayDoor, asked: object, caller: Caller) -> ScheduleStatusView:  # noqa: ARG001
    by, now = ScheduleCaller.of(gateway.config, caller), gateway.clock.now()
    return await gateway.store.read(lambda tx: read_status(tx, by=by, now=now))


async def call_history(gateway: GatewayDoor, asked: FiringsAsked, caller: Caller) -> FiringPageView:
    by = ScheduleCaller.of(gateway.config, caller)
    return await gateway.store.read(lambda tx: read_firings(tx, asked, by=by))
