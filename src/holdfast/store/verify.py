"""Reads every record back: digests, blobs and counts must agree with what was written."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from holdfast.core.errors import HoldfastError, RowDamaged
from holdfast.store import rows
from holdfast.store.contract import Row
from holdfast.store.transaction import Tx

PAGE = 500
MAX_PROBLEMS = 200

# Each noun with the width of its key, by which it is read page by page.
_NOUNS: tuple[tuple[str, int, Callable[[Row], object]], ...] = (
    ("tasks", 1, rows.task_from_row),
    ("runs", 1, rows.run_from_row),
    ("steps", 4, rows.step_from_row),
    ("plans", 1, rows.plan_from_row),
    ("artifacts", 2, rows.artifact_from_row),
    ("notes", 2, rows.note_from_row),
    ("checkpoints", 1, rows.checkpoint_from_row),
    ("effects", 1, rows.effect_from_row),
    ("deliveries", 1, rows.delivery_from_row),
    ("flows", 1, rows.flow_from_row),
    ("sessions", 1, rows.session_from_row),
    ("wakes", 1, rows.wake_from_row),
)


def verify_rows(tx: Tx, *, on_rows: Callable[[int], None] = lambda _rows: None) -> list[str]:
    """What is wrong, in sentences; empty when nothing is. The caller may count the rows that were read."""
    problems: list[str] = []
    for problem in _problems(tx, on_rows):
        problems.append(problem)
        if len(problems) >= MAX_PROBLEMS:
            problems.append(f"more than {MAX_PROBLEMS} problems; the rest is not listed")
            break
    return problems


def _problems(tx: Tx, on_rows: Callable[[int], None]) -> Iterator[str]:
    for noun, width, read in _NOUNS:
        for row in scan(tx, noun, width, on_rows):
            try:
                record = read(row)
                if getattr(record, "is_damaged", False):
                    yield str(RowDamaged(noun.removesuffix("s"), str(row[0])))
            except HoldfastError as error:
                yield str(error)
    for row in scan(tx, "blobs", 1, on_rows):
        try:
            tx.blobs.open_digest(row[0])
        except HoldfastError as error:
            yield str(error)
    for noun in ("task", "run", "checkpoint"):
        counted = {row[0]: int(row[1]) for row in tx.statements.all(f"count_{noun}s", {})}
        kept = tx.events.counts(noun)
        if counted != kept:
            yield f"the counts of {noun}s say {kept}, there are {counted}"


def scan(tx: Tx, noun: str, width: int, on_rows: Callable[[int], None] = lambda _rows: None) -> Iterator[Row]:
    """Every row of a noun, in the order of its key, a page at a time."""
    first: object = -1 if noun == "notes" else ""
    after: list[object] = ["", first, "", ""][:width]
    while True:
        params = {f"after{place}": part for place, part in enumerate(after)} | {"limit": PAGE}
        page = tx.statements.all(f"scan_{noun}", params)
        on_rows(len(page))
        yield from page
        if len(page) < PAGE:
            return
        after = list(page[-1][:width])
