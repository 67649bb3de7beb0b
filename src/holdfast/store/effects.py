"""Reads and writes of intents, outcomes and reviews."""

from __future__ import annotations

from holdfast.core.effect import Effect
from holdfast.store import rows
from holdfast.store.records import Records


class Effects(Records[Effect]):
    noun = "effect"
    has_key = True
    from_row = staticmethod(rows.effect_from_row)
    to_row = staticmethod(rows.row_from_effect)
