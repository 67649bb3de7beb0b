"""What the ledger stores about a machine's clock, and whether that clock has jumped since."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import msgspec

from holdfast.core.clock import Clock, to_micros
from holdfast.core.jumps import is_near
from holdfast.store.clock import passed_ns

FACT = "clock"

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boottime_us() -> int:
    """Microseconds since the machine booted, including the time it slept."""
    return passed_ns() // 1000


def machine_boot() -> str:
    """The id of this boot of this machine; empty if the system has none."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


class StoredBelief(msgspec.Struct, frozen=True, kw_only=True):
    """What is believed about the clock on one boot of one machine, as stored in the ledger."""

    offset: int
    since: int


def jumped_by(text: str | None, clock: Clock) -> timedelta | None:
    """How far the wall clock is ahead of what the ledger believes; None if it has not jumped."""
    kept = read_kept(text).get(machine_boot())
    if kept is None:
        return None
    offset = to_micros(clock.now()) - boottime_us()
    return None if is_near(offset, kept.offset) else timedelta(microseconds=offset - kept.offset)


def in_words(ahead: timedelta) -> str:
    """How far a clock jumped, to the second: `1:00:00 ahead`, `365 days, 0:00:00 back`."""
    size = timedelta(seconds=round(abs(ahead).total_seconds()))
    return f"{size} ahead" if ahead > timedelta(0) else f"{size} back"


def jump_in_words(ahead: timedelta) -> str:
    """The message for people while the new time is not trusted yet."""
    return (
        f"the wall clock jumped {in_words(ahead)}; schedules follow the new time after 5 minutes, deletions "
        "after an hour"
    )


def read_kept(text: str | None) -> dict[str, StoredBelief]:
    """The stored beliefs; none if the text cannot be read."""
    try:
        return {} if text is None else msgspec.json.decode(text, type=dict[str, StoredBelief])
    except msgspec.DecodeError:
        return {}
