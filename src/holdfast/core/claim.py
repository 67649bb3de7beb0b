"""Claim and its lease: the exclusive right to carry one run, and when it has lapsed."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from holdfast.core.ids import BootId, RunId, TaskId

DEFAULT_LEASE = timedelta(seconds=30)


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Proof that this boot carries this run: every write of the run names the fence."""

    run_id: RunId
    task_id: TaskId
    boot_id: BootId
    fence: int
    lease_until: datetime
    # Until when this process may count on the lease, by its steady clock: counted from when the claim or its
    # renewal was sent, so that it ends here before it ends for others. Nothing is left of a lease that was
    # only read.
    held_until_ns: int = 0
    # A suspect is carried alone until it makes progress.
    is_alone: bool = False


class Boot(msgspec.Struct, frozen=True, kw_only=True):
    """One life of one process that holds claims. Its id is never used again."""

    id: BootId
    host: str
    pid: int
    role: str
    started_at: datetime
    ended_at: datetime | None = None

    @property
    def node(self) -> str:
        """The name of its machine; what follows in `host` is where its lock lies."""
        return self.host.rpartition("/")[0] or self.host
