"""CheckView, BootView and the results of operations on the store: the health of the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

import msgspec

from holdfast.core.claim import Boot
from holdfast.views.text import one_line

MAX_SENTENCE_CHARS = 1000


class CheckStatus(StrEnum):
    """The result of one check; the doctor's result is the worst."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class CheckView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One check of the doctor."""

    name: str
    verdict: CheckStatus
    message: str
    remedy: str | None = None


class DoctorView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All checks of the doctor, and the worst result."""

    verdict: CheckStatus
    home: str
    store: str
    checks: list[CheckView]


class BootView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One process that holds claims, from its start to its end."""

    id: str
    pid: int
    host: str
    role: str
    started_at: datetime
    # Null if this machine cannot tell.
    is_alive: bool | None

    @classmethod
    def of(cls, boot: Boot, *, is_alive: bool | None) -> BootView:
        return cls(
            id=one_line(boot.id),
            pid=boot.pid,
            host=one_line(boot.host),
            role=one_line(boot.role),
            started_at=boot.started_at,
            is_alive=is_alive,
        )


class VerifiedView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The damage found in the whole ledger; none if it is sound."""

    is_sound: bool
    rows_read: int
    problems: list[str]
    # The steps to restore a backup; empty if it is sound.
    restore: list[str] = []

    @classmethod
    def of(cls, problems: list[str], *, rows_read: int, restore: Sequence[str] = ()) -> VerifiedView:
        shown = [one_line(problem, MAX_SENTENCE_CHARS) for problem in problems]
        return cls(
            is_sound=not problems,
            rows_read=rows_read,
            problems=shown,
            restore=[one_line(step, MAX_SENTENCE_CHARS) for step in restore] if problems else [],
        )


class MigratedView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The migrations that were applied now, and the newest version."""

    store: str
    is_new: bool
    applied: list[int]
    version: int
    # Whether pages have checksums, which detect damage on each read; see the guide to operation.
    has_checksums: bool = False
    # Missing indexes that were created again.
    restored: list[str] = []
    # SQL views for dashboards that were missing or outdated, and are made anew.
    views: list[str] = []


class BackedUpView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A copy of the whole ledger."""

    target: str
    size_bytes: int
    # The key that its sealed values need; null if it has none.
    key_fingerprint: str | None = None
    # The file next to it with this key, if `--with-key` was given.
    key: str | None = None


class AcceptedView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Whether resumes were held, and why."""

    was_held: bool
    why: str | None


class VersionView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The versions of Holdfast, Python and SQLite."""

    holdfast: str
    python: str
    sqlite: str
