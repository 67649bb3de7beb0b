"""WorkerView: a process that carries runs, where it is, and how many it carries."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.core.claim import Boot
from holdfast.views.text import one_line

MAX_NAMES = 20


class WorkerView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One lifetime of one process that may hold claims: a gateway, a worker, or a program."""

    id: str
    # gateway, worker, serve or script.
    role: str
    # The name of its machine.
    host: str
    pid: int
    started_at: datetime
    # Null while it has not ended, as far as the ledger knows.
    ended_at: datetime | None
    # alive or dead, if that is proved; unknown for a process of another machine; ended.
    status: str
    # How many runs it carries now, and when it last renewed one of them.
    runs: int
    last_beat_at: datetime | None
    # The first tasks that it can run, and how many there are; null if it did not tell.
    task_names: list[str] | None
    task_count: int | None

    @classmethod
    def of(cls, boot: Boot, *, status: str, runs: int, last_beat_at: datetime | None) -> WorkerView:
        names = boot.task_names
        return cls(
            id=one_line(boot.id),
            role=one_line(boot.role),
            host=one_line(boot.node),
            pid=boot.pid,
            started_at=boot.started_at,
            ended_at=boot.ended_at,
            status=status,
            runs=runs,
            last_beat_at=last_beat_at,
            task_names=None if names is None else [one_line(name) for name in names[:MAX_NAMES]],
            task_count=None if names is None else len(names),
        )


class WorkerPageView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A page of workers: those that have not ended, oldest first; or ended ones, latest first."""

    workers: list[WorkerView] = []
    # For `--page`: the next page; null at the end.
    next_page_token: str | None = None
