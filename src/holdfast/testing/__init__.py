"""For users' tests and ours: FakeClock, in-memory store, failpoints, crash_everywhere."""

from holdfast.testing.clocks import FakeClock
from holdfast.testing.crashes import CrashPoint, CrashReport, crash_everywhere
from holdfast.testing.stores import (
    Crashed,
    FailingStore,
    Failpoint,
    RecordedWrite,
    RepeatingStore,
    Where,
    WrappingStore,
    contents_of,
    crash,
    memory_store,
    name_of,
)

__all__ = [
    "CrashPoint",
    "CrashReport",
    "Crashed",
    "FailingStore",
    "Failpoint",
    "FakeClock",
    "RecordedWrite",
    "RepeatingStore",
    "Where",
    "WrappingStore",
    "contents_of",
    "crash",
    "crash_everywhere",
    "memory_store",
    "name_of",
]
