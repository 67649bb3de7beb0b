"""Reads and writes of wakes."""

from __future__ import annotations

from holdfast.core.schedule import Wake
from holdfast.store import rows
from holdfast.store.records import Records


class Wakes(Records[Wake]):
    noun = "wake"
    from_row = staticmethod(rows.wake_from_row)
    to_row = staticmethod(rows.row_from_wake)
