"""Reads and writes of sessions."""

from __future__ import annotations

from holdfast.core.session import Session
from holdfast.store import rows
from holdfast.store.records import Records


class Sessions(Records[Session]):
    noun = "session"
    has_key = True
    from_row = staticmethod(rows.session_from_row)
    to_row = staticmethod(rows.row_from_session)
