"""CheckView, BootView and what the operations on a store answer: how the ledger fares."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

import msgspec

from holdfast.core.claim import Boot
from holdfast.views.text import one_line

MAX_SENTENCE_CHARS = 1000


class Verdict(StrEnum):
    """How one check ended; the worst of them is the doctor's."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class CheckView(msgspec.Struct, frozen=True, kw_only=True):
    """One thing the doctor looked at."""

    name: str
    verdict: Verdict
    message: str
    remedy: str | None = None


class DoctorView(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the doctor looked at, and the worst of it."""

    verdict: Verdict
    home: str
    store: str
    checks: list[CheckView]


class BootView(msgspec.Struct, frozen=True, kw_only=True):
    """One life of one process that holds claims."""

    id: str
    pid: int
    host: str
    role: str
    started_at: datetime
    # Null where nobody on this machine can tell.
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


class VerifiedView(msgspec.Struct, frozen=True, kw_only=True):
    """What a reading of the whole ledger found wrong; nothing, when it is sound."""

    is_sound: bool
    rows_read: int
    problems: list[str]
    # How to put a backup in its place, step by step; empty when it is sound.
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


class MigratedView(msgspec.Struct, frozen=True, kw_only=True):
    """Which migrations were applied now, and the number of the newest."""

    store: str
    is_new: bool
    applied: list[int]
    version: int
    # Whether a damaged page is found when it is read; see the guide to operation.
    has_checksums: bool = False
    # Indexes that were missing, and were made again.
    restored: list[str] = []


class BackedUpView(msgspec.Struct, frozen=True, kw_only=True):
    """A whole copy of the ledger."""

    target: str
    size_bytes: int
    # Of the key that its sealed values need; null when it has none.
    key_fingerprint: str | None = None
    # The file beside it that holds this key, with `--with-key`.
    key: str | None = None


class AcceptedView(msgspec.Struct, frozen=True, kw_only=True):
    """Whether resumes were held until now, and why."""

    was_held: bool
    why: str | None


class VersionView(msgspec.Struct, frozen=True, kw_only=True):
    """What runs here."""

    holdfast: str
    python: str
    sqlite: str
