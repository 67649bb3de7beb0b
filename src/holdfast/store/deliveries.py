"""Reads and writes of deliveries."""

from __future__ import annotations

from holdfast.core.delivery import Delivery
from holdfast.store import rows
from holdfast.store.records import Records


class Deliveries(Records[Delivery]):
    noun = "delivery"
    has_key = True
    from_row = staticmethod(rows.delivery_from_row)
    to_row = staticmethod(rows.row_from_delivery)
