"""What the doors need of a gateway, and who asks: nothing else of it is known here."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from holdfast.config.gateway import Config
    from holdfast.core.clock import Clock
    from holdfast.core.manifest import Restart
    from holdfast.gateway.gateway import RestartAnswer, RestartRequest
    from holdfast.gateway.inbox import Inbox
    from holdfast.gateway.readiness import Readiness
    from holdfast.store import Store
    from holdfast.views.gateway import Status

# Who we are on the wire: the version of the installed package.
PACKAGE = "holdfast"
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

    return version(PACKAGE)


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks, as the server found out; nothing of it is the caller's own word."""

    who: str
    scopes: frozenset[str]
    # Whose tasks they see and touch, and nothing else; None for those of everybody.
    owner: str | None = None


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

    def status(self) -> Status: ...

    async def preflight(self) -> Readiness: ...

    async def restart(self, request: RestartRequest, /) -> RestartAnswer: ...

    async def stop(self, why: str, /, *, triggered_by: str) -> None: ...

    async def let_resume(self) -> int: ...

    async def restarts(self, limit: int, /) -> list[Restart]: ...
