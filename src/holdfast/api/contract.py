"""The gateway as the API sees it, the caller of a request, and the tasks that a caller may reach."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from holdfast.core.audit import Actor, Door
from holdfast.core.errors import HoldfastError, KeyConflict, NotFound, Refused
from holdfast.core.ids import TaskId, check_id
from holdfast.core.task_filter import TaskFilter

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.config.sections import Config
    from holdfast.core.clock import Clock
    from holdfast.core.flow_definition import FlowDefinition
    from holdfast.core.manifest import Restart
    from holdfast.core.task import Task
    from holdfast.core.transitions import TaskStatus
    from holdfast.engine.aio.trouble_log import TroubleLog
    from holdfast.engine.client.end_watcher import EndWatcher
    from holdfast.engine.producers.contract import Runtime
    from holdfast.engine.program.definitions import TaskDefinition
    from holdfast.gateway.audit import AuditRecorder
    from holdfast.gateway.gateway import RestartAnswer, RestartRequest
    from holdfast.gateway.inbox import Inbox
    from holdfast.gateway.readiness import Readiness
    from holdfast.store import Store, Tx
    from holdfast.upkeep.projection import Projection
    from holdfast.upkeep.sweep import Sweep
    from holdfast.views.gateway import Status

# The distribution whose version we tell on the wire; on the package index `holdfast` is another project.
DISTRIBUTION = "holdfast-agents"
READ, WRITE, ADMIN = "operator.read", "operator.write", "operator.admin"
# OpenClaw's clients ask for this one alone when they read or answer questions; no token has it by itself.
QUESTIONS = "operator.questions"
ALL_SCOPES = frozenset({READ, WRITE, ADMIN})
# As in the protocol: write implies read, and admin implies both.
_IMPLIED = {
    QUESTIONS: frozenset({QUESTIONS}),
    READ: frozenset({READ}),
    WRITE: frozenset({READ, WRITE, QUESTIONS}),
    ADMIN: ALL_SCOPES | {QUESTIONS},
}


def with_implied(scopes: Iterable[str]) -> frozenset[str]:
    """These scopes and the scopes that they imply; unknown ones are dropped."""
    return frozenset(one for scope in scopes for one in _IMPLIED.get(scope, ()))


@functools.cache
def our_version() -> str:
    from importlib.metadata import version

    return version(DISTRIBUTION)


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The authenticated caller; nothing in it is the client's own claim."""

    who: str
    scopes: frozenset[str]
    # The only owner whose tasks the caller may reach; None for all owners.
    owner: str | None = None
    # The only task names that the caller may reach; None for all names.
    tasks: frozenset[str] | None = None
    # The only methods that the caller may call; None for all that the scopes allow.
    methods: frozenset[str] | None = None
    door: Door = Door.HTTP
    address: str | None = None

    @property
    def is_local(self) -> bool:
        """Whether the caller uses the unix socket, as the gateway's own user."""
        return self.door is Door.SOCKET

    @property
    def actor(self) -> Actor:
        """The caller's name in the audit log."""
        return Actor(who=self.who, door=self.door, address=self.address)

    @property
    def reach(self) -> Reach:
        return Reach(owner=self.owner, names=self.tasks)

    def may_call(self, method: str) -> bool:
        return self.methods is None or method in self.methods


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks that a caller may reach. Any other task is answered as not found."""

    owner: str | None = None
    names: frozenset[str] | None = None

    @property
    def is_bound(self) -> bool:
        return self.owner is not None or self.names is not None

    def covers(self, owner: str, name: str) -> bool:
        return self.owner in (None, owner) and (self.names is None or name in self.names)

    @property
    def filter(self) -> TaskFilter:
        """The same, for a page of tasks."""
        return TaskFilter(owner=self.owner, names=self.names)

    def resolve(self, tx: Tx, target: str) -> TaskId:
        """The one task that is meant, by its id, run id, key or session key. Raises NotFound, AmbiguousId."""
        from holdfast.api.targets import find_target

        return find_target(tx, target, self)

    def resolve_id(self, tx: Tx, prefix: str) -> TaskId:
        """The one id with this prefix. A caller limited to names needs the full id, because a prefix could
        match hidden tasks. Raises NotFound."""
        if self.names is None:
            return tx.tasks.resolve(prefix, owner=self.owner)
        check_id("task", prefix)
        found = tx.tasks.get_many([prefix]).get(prefix)
        if found is None or not self.covers(found.owner, found.name):
            raise NotFound("task", prefix)
        return found.id

    def page(self, tx: Tx, *, statuses: Sequence[TaskStatus] = (), before: str, limit: int) -> list[Task]:
        """A page of tasks, newest first."""
        return tx.tasks.page(
            statuses=statuses, owner=self.owner, names=self.names, before=before, limit=limit
        )

    def conflict(self, tx: Tx, taken: KeyConflict) -> HoldfastError:
        """The same conflict, without the id of a task that the caller may not reach."""
        if self.names is None:  # a key belongs to one owner, so the task is theirs
            return taken
        found = tx.tasks.get_many([taken.task_id]).get(taken.task_id)
        is_reached = found is not None and self.covers(found.owner, found.name)
        return taken if is_reached else Refused(KEY_TAKEN)


EVERYTHING = Reach()
KEY_TAKEN = "this key belongs to a task that this token may not reach; choose another key"


class GatewayDoor(Protocol):
    """The long-lived process, as the API sees it."""

    @property
    def store(self) -> Store: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def config(self) -> Config: ...

    @property
    def tasks(self) -> Mapping[str, TaskDefinition[..., Any]]:
        """The tasks that this process can run, by name."""
        ...

    @property
    def inbox(self) -> Inbox: ...

    @property
    def sources(self) -> Mapping[str, str]:
        """Where each setting that is set comes from."""
        ...

    @property
    def home(self) -> Path: ...

    @property
    def urls(self) -> Sequence[str]:
        """Where a browser on this machine finds the gateway."""
        ...

    @property
    def runtimes(self) -> Sequence[Runtime]:
        """What can stop work that others execute."""
        ...

    def status(self) -> Status:
        """The status as last known, without reading the ledger."""
        ...

    async def look(self, *, at_most_old_s: float = ...) -> Status:
        """The status after a check of the ledger, at most `at_most_old_s` seconds old."""
        ...

    @property
    def troubles(self) -> TroubleLog: ...

    @property
    def audit(self) -> AuditRecorder: ...

    @property
    def sweep(self) -> Sweep: ...

    def projection(self) -> Projection:
        """How tasks are shown now: those whose worker is gone do not read as running."""
        ...

    def find_flow(self, name: str, /) -> FlowDefinition:
        """The flow that the settings define under this name. Raises NotFound, SettingsError."""
        ...

    @property
    def ends(self) -> EndWatcher:
        """Waits for the ends of tasks, for all callers together."""
        ...

    async def preflight(self) -> Readiness: ...

    async def restart(self, request: RestartRequest, /) -> RestartAnswer: ...

    async def stop(self, why: str, /, *, triggered_by: str) -> None: ...

    async def let_resume(self) -> int: ...

    async def restarts(self, limit: int, before: str = ..., /) -> list[Restart]: ...
