"""Claim and its lease: the exclusive right to execute one run, and when it has lapsed."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from holdfast.core.ids import BootId, RunId, TaskId

DEFAULT_LEASE = timedelta(seconds=30)


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Proof that this boot executes this run: every write of the run names the fence."""

    run_id: RunId
    task_id: TaskId
    boot_id: BootId
    fence: int
    lease_until: datetime
    # Until when this process may rely on the lease, by its monotonic clock: counted from when the claim or
    # its renewal was sent, so that it ends here before other processes see it lapse. 0 if it was only read.
    held_until_ns: int = 0
    # A suspect run executes alone until it makes progress.
    is_alone: bool = False


class Carried(msgspec.Struct, frozen=True, kw_only=True):
    """The running runs that one boot has claimed: how many, and the latest beat and lease of them."""

    runs: int = 0
    heard_at: datetime | None = None
    lease_until: datetime | None = None


class Boot(msgspec.Struct, frozen=True, kw_only=True):
    """One lifetime of one process that holds claims. Its id is never reused."""

    id: BootId
    host: str
    pid: int
    role: str
    started_at: datetime
    ended_at: datetime | None = None
    # The tasks that it can run; None for any, or if it did not tell.
    task_names: tuple[str, ...] | None = None

    @property
    def node(self) -> str:
        """The name of its machine; the rest of `host` is the path of its lock."""
        return self.host.rpartition("/")[0] or self.host
