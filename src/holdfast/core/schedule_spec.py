"""Schedule: when it fires, for which target, and what becomes of missed and overlapping firings."""

from __future__ import annotations

import re
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from holdfast.core.errors import BadInput
from holdfast.core.session import agent_task, session_key

# The task that runs the command of a schedule.
COMMAND_TASK = "cron.command"
MAX_INTERVAL_S = 10 * 366 * 86_400
MAX_JITTER_S = 86_400
MAX_CATCH_UP = 100
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_NOT_IN_NAME = re.compile(r"[^a-z0-9]+")


class MissedPolicy(StrEnum):
    """What becomes of occurrences that no gateway was there to fire."""

    SKIP = "skip"
    LATEST = "latest"
    ALL = "all"


class OverlapPolicy(StrEnum):
    """What an occurrence does while the firing before it has not ended."""

    SKIP = "skip"
    QUEUE = "queue"
    REPLACE = "replace"


class ScheduleSource(StrEnum):
    SETTINGS = "settings"
    RUNTIME = "runtime"


class ScheduleSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a schedule does, as it is stored: one kind of time, and one kind of target."""

    # When: exactly one of the three.
    cron: str | None = None
    every_s: int | None = None
    at: datetime | None = None
    tz: str = "UTC"
    # From when intervals are counted; None for 1970.
    anchor_at: datetime | None = None
    # For what: an agent's prompt, a task with its arguments, or a command.
    agent: str | None = None
    session: str | None = None
    prompt: str | None = None
    task: str | None = None
    arguments: dict[str, Any] = {}
    command: list[str] = []
    directory: str | None = None
    timeout_s: float | None = None
    missed: MissedPolicy = MissedPolicy.LATEST
    # With `all`: how many missed occurrences are caught up at most, the latest ones.
    max_missed: int = 10
    overlap: OverlapPolicy = OverlapPolicy.QUEUE
    jitter_s: int = 0
    # Whether an interrupted firing is queued again; None for what the settings say.
    retry: bool | None = None
    is_enabled: bool = True
    title: str | None = None
    description: str | None = None

    @property
    def task_name(self) -> str:
        """The task that a worker must know to carry out a firing."""
        if self.agent is not None:
            return agent_task(self.agent)
        return COMMAND_TASK if self.task is None else self.task

    @property
    def session_key(self) -> str:
        """The session that gets the prompt; empty for a task or a command."""
        return "" if self.agent is None else session_key(self.agent, self.session or "cron")

    @property
    def target(self) -> str:
        """What it fires for: `agent scholar (session cron-night)`, `task report`, `command du`."""
        if self.agent is not None:
            return f"agent {self.agent} (session {self.session})"
        return f"command {self.command[0]}" if self.task is None else f"task {self.task}"

    @property
    def times(self) -> tuple[object, ...]:
        """What decides its occurrences: if one of these changes, it counts from then on."""
        return (self.cron, self.every_s, self.at, self.tz, self.anchor_at, self.is_enabled)


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """One schedule of the ledger, and how far it has fired."""

    name: str
    source: ScheduleSource
    owner: str
    spec: ScheduleSpec
    revision: int = 1
    created_at: datetime
    is_paused: bool = False
    # Occurrences up to here are settled; None until a gateway has seen it for the first time.
    since_at: datetime | None = None
    # The next occurrence, and when it fires with its jitter; None if there is none.
    next_at: datetime | None = None
    due_at: datetime | None = None
    updated_at: datetime
    # Whether its key is lost, so that its spec cannot be read.
    is_sealed: bool = False

    @property
    def is_on(self) -> bool:
        return self.spec.is_enabled and not self.is_paused

    @property
    def is_over(self) -> bool:
        """Whether it was to fire once and has fired, so that it does not fire any more."""
        return self.spec.at is not None and self.is_on and self.due_at is None


class Declaration(msgspec.Struct, frozen=True, kw_only=True):
    """That the settings of one gateway have a schedule, and for which target."""

    name: str
    place: str
    target: str
    declared_at: datetime
    seen_at: datetime


def check_schedule_name(name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadInput(
            "name",
            "1 to 64 letters, digits, - and _ are needed, a letter or a digit first, such as nightly-2",
        )
    return name


def name_from(title: str) -> str:
    """A name for a schedule that a client calls by a title: `Morning brief` is `morning-brief`."""
    if _NAME.fullmatch(title):
        return title
    return check_schedule_name(_NOT_IN_NAME.sub("-", title.lower()).strip("-")[:64].strip("-"))
