"""Reads and writes of starts: what each process found and did when it started."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.clock import from_micros, to_micros
from holdfast.core.errors import NotFound
from holdfast.core.ids import BootId
from holdfast.core.start_record import StartRecord, StepRecord
from holdfast.store.contract import Params, Row
from holdfast.store.rows.reading import encode, micros_of, moment_of, reads
from holdfast.store.tasks import LAST, resolve

if TYPE_CHECKING:
    from holdfast.store.transaction import Tx

_steps = msgspec.json.Decoder(tuple[StepRecord, ...]).decode


class StartTable:
    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._sql = tx.statements

    def save(self, start: StartRecord) -> None:
        """As it is so far; a later save replaces it."""
        self._sql.run("save_start", row_from_start(start))

    def get(self, boot_id: str) -> StartRecord:
        """By the id of its boot, or a unique prefix of that. Raises NotFound."""
        row = self._sql.one("get_start", {"boot_id": resolve(self._tx, "start", "find_starts", boot_id)})
        if row is None:
            raise NotFound("start", boot_id)
        return start_from_row(row)

    def page(self, *, role: str | None = None, before: str = LAST, limit: int = 20) -> list[StartRecord]:
        """Newest first; the boot of the last one is the page token of the next page."""
        params: dict[str, object] = {"before": before, "limit": limit}
        if role is None:
            rows = self._sql.all("page_of_starts", params)
        else:
            rows = self._sql.all("page_of_starts_in_role", params | {"role": role})
        return [start_from_row(row) for row in rows]

    def forget(self, *, older_than: datetime) -> None:
        self._sql.run("delete_old_starts", {"older_than": to_micros(older_than)})


@reads("start")
def start_from_row(row: Row) -> StartRecord:
    return StartRecord(
        boot_id=BootId(row[0]),
        role=row[1],
        host=row[2],
        pid=row[3],
        began_at=from_micros(row[4]),
        steps=_steps(row[5]),
        ended_at=moment_of(row[6]),
    )


def row_from_start(start: StartRecord) -> Params:
    return {
        "boot_id": start.boot_id,
        "role": start.role,
        "host": start.host,
        "pid": start.pid,
        "began_at": to_micros(start.began_at),
        "steps": encode(start.steps),
        "ended_at": micros_of(start.ended_at),
    }
