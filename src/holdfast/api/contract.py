"""What the doors need of a gateway, and who asks: nothing else of it is known here."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from holdfast.core.audit import Actor, Door
from holdfast.core.errors import HoldfastError, KeyConflict, NotFound, Refused
from holdfast.core.ids import TaskId, check_id

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.config.gateway import Config
    from holdfast.core.clock import Clock
    from holdfast.core.manifest import Restart
    from holdfast.core.task import Task
    from holdfast.core.transitions import TaskStatus
    from holdfast.engine.aio.trouble_log import TroubleLog
    from holdfast.gateway.audit import AuditTrail
    from holdfast.gateway.gateway import RestartAnswer, RestartRequest
    from holdfast.gateway.inbox import Inbox
    from holdfast.gateway.readiness import Readiness
    from holdfast.store import Store, Tx
    from holdfast.views.gateway import Status

# The distribution whose version we tell on the wire; on the package index `holdfast` is another project.
DISTRIBUTION = "holdfast-agents"
READ, WRITE, ADMIN = "operator.read", "operator.write", "operator.admin"
ALL_SCOPES = frozenset({READ, WRITE, ADMIN})
# As the protocol has it: who may change something may look at it, and who administers may do both.
_IMPLIED = {READ: frozenset({READ}), WRITE: frozenset({READ, WRITE}), ADMIN: ALL_SCOPES}


def with_implied(scopes: Iterable[str]) -> frozenset[str]:
    """These scopes and those that come with them; what is no scope of ours is left out."""
    return frozenset(one for scope in scopes for one in _IMPLIED.get(scope, ()))


@functools.cache
def our_version() -> str:
    from importlib.metadata import version

    return version(DISTRIBUTION)


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks, as the server found out; nothing of it is the caller's own word."""

    who: str
    scopes: frozenset[str]
    # Whose tasks they see and touch, and nothing else; None for those of everybody.
    owner: str | None = None
    # The names of the tasks that they see and touch, and nothing else; None for all names.
    tasks: frozenset[str] | None = None
    # The methods that they may call; None for all that their scopes allow.
    methods: frozenset[str] | None = None
    door: Door = Door.HTTP
    address: str | None = None

    @property
    def is_local(self) -> bool:
        """Whether they ask at the unix socket, as the gateway's own user."""
        return self.door is Door.SOCKET

    @property
    def actor(self) -> Actor:
        """The caller as the audit log names them."""
        return Actor(who=self.who, door=self.door, address=self.address)

    @property
    def reach(self) -> Reach:
        return Reach(owner=self.owner, names=self.tasks)

    def may_call(self, method: str) -> bool:
        return self.methods is None or method in self.methods


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """Which tasks a caller sees and touches. Any other is answered as one that is not there."""

    owner: str | None = None
    names: frozenset[str] | None = None

    @property
    def is_bound(self) -> bool:
        return self.owner is not None or self.names is not None

    def covers(self, owner: str, name: str) -> bool:
        return self.owner in (None, owner) and (self.names is None or name in self.names)

    def resolve(self, tx: Tx, prefix: str) -> TaskId:
        """The one id that begins so. With names a whole id is needed: others may begin so, too. Raises
        NotFound."""
        if self.names is None:
            return tx.tasks.resolve(prefix, owner=self.owner)
        check_id("task", prefix)
        found = tx.tasks.get_many([prefix]).get(prefix)
        if found is None or not self.covers(found.owner, found.name):
            raise NotFound("task", prefix)
        return found.id

    def page(self, tx: Tx, *, statuses: Sequence[TaskStatus] = (), before: str, limit: int) -> list[Task]:
        """Newest first."""
        return tx.tasks.page(
            statuses=statuses, owner=self.owner, names=self.names, before=before, limit=limit
        )

    def conflict(self, tx: Tx, taken: KeyConflict) -> HoldfastError:
        """The same conflict, without the id of a task that the caller does not reach."""
        if self.names is None:  # keys are the owner's own
            return taken
        found = tx.tasks.get_many([taken.task_id]).get(taken.task_id)
        is_reached = found is not None and self.covers(found.owner, found.name)
        return taken if is_reached else Refused(KEY_TAKEN)


EVERYTHING = Reach()
KEY_TAKEN = "that key is taken by a task that this token does not reach; choose another key"


class Gateway(Protocol):
    """The long-lived process, as its doors see it."""

    @property
    def store(self) -> Store: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def config(self) -> Config: ...

    @property
    def inbox(self) -> Inbox: ...

    @property
    def home(self) -> Path: ...

    def status(self) -> Status:
        """As far as it is known, without a look at the ledger."""
        ...

    async def look(self, *, at_most_old_s: float = ...) -> Status:
        """The status after a look at the ledger, which is as old as that at most."""
        ...

    @property
    def troubles(self) -> TroubleLog: ...

    @property
    def audit(self) -> AuditTrail: ...

    async def preflight(self) -> Readiness: ...

    async def restart(self, request: RestartRequest, /) -> RestartAnswer: ...

    async def stop(self, why: str, /, *, triggered_by: str) -> None: ...

    async def let_resume(self) -> int: ...

    async def restarts(self, limit: int, /) -> list[Restart]: ...
