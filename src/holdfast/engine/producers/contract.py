"""The Runtime protocol: what executes recorded work may stop it, prove it alive, and find it again.

Holdfast only records such work. A runtime is registered only if it really controls the work; for every other
task it answers NotMine, and Holdfast goes on without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from holdfast.core.run import RunOutcome

if TYPE_CHECKING:
    from holdfast.core.recorded import RecordedWork


class NotMine(msgspec.Struct, frozen=True, kw_only=True):
    """This runtime does not control the task; ask the next one."""


class WorkStopped(msgspec.Struct, frozen=True, kw_only=True):
    """The work no longer runs, or it was told to end; its record may be ended."""


class Unsupported(msgspec.Struct, frozen=True, kw_only=True):
    """The runtime controls the task, and cannot stop it now."""

    reason: str


class Alive(msgspec.Struct, frozen=True, kw_only=True):
    """Something proves that the work goes on."""


class Dead(msgspec.Struct, frozen=True, kw_only=True):
    """Something proves that the work has ended without a report."""

    why: str


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """The runtime knows how the work ended; only its report is missing."""

    outcome: RunOutcome
    why: str


class LifeUnknown(msgspec.Struct, frozen=True, kw_only=True):
    """The runtime controls the task, and can prove neither."""


class Reattached(msgspec.Struct, frozen=True, kw_only=True):
    """The runtime watches the same work again, and will report its end."""


class Restarted(msgspec.Struct, frozen=True, kw_only=True):
    """The runtime started the work again, under the same run."""


class WorkLost(msgspec.Struct, frozen=True, kw_only=True):
    """The work cannot be found again or continued."""

    why: str


StopAnswer = WorkStopped | Unsupported | NotMine
LifeAnswer = Alive | Dead | Ended | LifeUnknown | NotMine
ReattachAnswer = Reattached | Restarted | WorkLost | NotMine


class Runtime(Protocol):
    """What executes recorded work. Its calls may take time, and are made outside of any transaction."""

    @property
    def name(self) -> str:
        """For logs and messages."""
        ...

    async def cancel(self, work: RecordedWork, reason: str) -> StopAnswer:
        """Stop the work. The caller ends its record afterwards."""
        ...

    async def is_alive(self, work: RecordedWork) -> LifeAnswer: ...

    async def reattach(self, work: RecordedWork) -> ReattachAnswer:
        """Called for work whose producer is gone: find it again, or start it again."""
        ...
