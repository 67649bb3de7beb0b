"""Reads every record: digests, blobs and counts must match what was written."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial

from holdfast.core.errors import HoldfastError, RowDamaged
from holdfast.core.message import Message
from holdfast.core.task import Task
from holdfast.store.contract import Row
from holdfast.store.events import START
from holdfast.store.rows.alerts import alert_from_row
from holdfast.store.rows.campaign_checkpoints import campaign_checkpoint_from_row, places_from_row
from holdfast.store.rows.campaigns import campaign_from_row, item_from_row
from holdfast.store.rows.conversation import (
    delivery_from_row,
    message_from_row,
    session_from_row,
)
from holdfast.store.rows.effects import effect_from_row
from holdfast.store.rows.flows import flow_from_row, flow_node_from_row
from holdfast.store.rows.gateway import (
    audit_entry_from_row,
    firing_from_row,
    restart_from_row,
    wake_from_row,
)
from holdfast.store.rows.imports import imported_from_row
from holdfast.store.rows.journal import (
    artifact_from_row,
    delta_from_row,
    loop_from_row,
    mail_from_row,
    note_from_row,
    ops_from_row,
    plan_from_row,
    question_from_row,
    step_from_row,
    turn_from_row,
    value_from_row,
)
from holdfast.store.rows.kept_steps import kept_from_row
from holdfast.store.rows.recorded import recorded_from_row
from holdfast.store.rows.schedules import schedule_from_row
from holdfast.store.rows.work import checkpoint_from_row, run_from_row, task_from_row
from holdfast.store.transaction import Tx

PAGE = 500
MAX_PROBLEMS = 200

# Each noun with the number of columns of its key, by which it is read page by page.
_NOUNS: tuple[tuple[str, int, Callable[..., object]], ...] = (
    ("tasks", 1, task_from_row),
    ("runs", 1, run_from_row),
    ("steps", 4, step_from_row),
    ("plans", 1, plan_from_row),
    ("artifacts", 2, artifact_from_row),
    ("notes", 2, note_from_row),
    ("loops", 2, loop_from_row),
    ("turns", 3, turn_from_row),
    ("kept_steps", 3, kept_from_row),
    ("list_deltas", 3, delta_from_row),
    ("values", 2, value_from_row),
    ("scope_ops", 2, ops_from_row),
    ("mail", 2, mail_from_row),
    ("questions", 1, question_from_row),
    ("checkpoints", 1, checkpoint_from_row),
    ("effects", 6, effect_from_row),
    ("deliveries", 1, delivery_from_row),
    ("flows", 1, flow_from_row),
    ("flow_nodes", 2, flow_node_from_row),
    ("sessions", 1, session_from_row),
    ("messages", 1, message_from_row),
    ("firings", 1, firing_from_row),
    ("wakes", 1, wake_from_row),
    ("schedules", 1, schedule_from_row),
    ("restarts", 1, restart_from_row),
    ("audit_log", 1, audit_entry_from_row),
    ("recorded_tasks", 1, recorded_from_row),
    ("imported_records", 3, imported_from_row),
    ("campaigns", 1, campaign_from_row),
    ("campaign_items", 2, item_from_row),
    ("campaign_checkpoints", 1, campaign_checkpoint_from_row),
    ("campaign_checkpoint_places", 2, places_from_row),
    ("alerts", 1, alert_from_row),
)

# Nouns in which nothing is ever sealed.
_CLEAR = frozenset(
    {
        "runs",
        "artifacts",
        "notes",
        "loops",
        "checkpoints",
        "sessions",
        "firings",
        "wakes",
        "restarts",
        "audit_log",
        "alerts",
        "campaigns",
        "campaign_checkpoints",
        "campaign_checkpoint_places",
    }
)
# The columns of a key that are numbers; all others are text.
_NUMBERED = {
    "notes": {1},
    "turns": {2},
    "kept_steps": {2},
    "list_deltas": {2},
    "mail": {1},
    "effects": {1, 5},
    "campaign_items": {1},
    "campaign_checkpoint_places": {1},
}
# The columns of a key in a row, unless they are the first ones.
_PLACES = {"effects": (1, 20, 3, 4, 5, 8)}


Part = tuple[str, Callable[[Tx], Iterator[str]]]


def verify(
    read: Callable[[Callable[[Tx], None]], None],
    problems_of_pages: Callable[[Tx], Iterator[str]],
    *,
    on_rows: Callable[[int], None] = lambda _rows: None,
) -> list[str]:
    """What is wrong, in sentences; empty when nothing is. `on_rows` reports progress.

    Each part is a read of its own: an unreadable page ends the check of its own table only.
    """
    problems: list[str] = []
    unread: list[str] = []
    parts = [("pages", problems_of_pages), *_parts(on_rows)]
    for what, part in parts:
        try:
            read(partial(_collect, problems, part))
        except RowDamaged as error:
            unread.append(error.finding)
            problems.append(f"{what}: {error.finding}")
        if len(problems) >= MAX_PROBLEMS:
            return [*problems[:MAX_PROBLEMS], f"more than {MAX_PROBLEMS} problems; the rest is not listed"]
    if len(unread) == len(parts) and len(set(unread)) == 1:
        return [f"no table can be read: {unread[0]}"]
    return problems


def _collect(problems: list[str], part: Callable[[Tx], Iterator[str]], tx: Tx) -> None:
    problems.extend(itertools.islice(part(tx), MAX_PROBLEMS - len(problems)))


def problems_of_catalog(tx: Tx) -> Iterator[str]:
    """Problems that PostgreSQL's catalog shows."""
    for row in tx.statements.all("integrity_check", {}):
        yield f"PostgreSQL: {row[0]}"


def _parts(on_rows: Callable[[int], None]) -> Iterator[Part]:
    for noun, width, read in _NOUNS:
        yield noun, partial(_problems_of_records, on_rows, noun, width, read)
    yield "blobs", partial(_problems_of_blobs, on_rows)
    yield "nodes of flows", _missing_nodes
    yield "events", partial(_problems_of_events, on_rows)
    for noun in ("task", "runtime", "run", "checkpoint", "flow"):
        yield f"counts of {noun}s", partial(_problems_of_counts, noun)


def _problems_of_records(
    on_rows: Callable[[int], None], noun: str, width: int, read: Callable[..., object], tx: Tx
) -> Iterator[str]:
    for row in scan(tx, noun, width, on_rows):
        try:
            record = read(row) if noun in _CLEAR else read(row, tx.sealing)
            if isinstance(record, Task | Message):
                record.checked()
        except HoldfastError as error:
            yield _finding(error)
        else:
            if getattr(record, "is_damaged", False):
                yield RowDamaged(noun.removesuffix("s"), str(row[0])).finding


def _problems_of_blobs(on_rows: Callable[[int], None], tx: Tx) -> Iterator[str]:
    for row in scan(tx, "blobs", 1, on_rows):
        try:
            tx.blobs.open_digest(row[0])
        except HoldfastError as error:
            yield _finding(error)


def _missing_nodes(tx: Tx) -> Iterator[str]:
    """A row that is gone has no digest: its flow tells how many there must be."""
    for flow_id, nodes, found in tx.statements.all("scan_flows_without_all_nodes", {"limit": MAX_PROBLEMS}):
        yield f"flow {flow_id} is damaged: it has {found:,} of its {nodes:,} nodes"


def _finding(error: HoldfastError) -> str:
    """The message without the advice to run this check."""
    return error.finding if isinstance(error, RowDamaged) else str(error)


def _problems_of_events(on_rows: Callable[[int], None], tx: Tx) -> Iterator[str]:
    """Events have no digest, but followers of the feed must be able to read them."""
    page = tx.events.after(START, limit=PAGE)
    while page:
        on_rows(len(page))
        page = tx.events.after(page[-1].position, limit=PAGE)
    yield from ()


def _problems_of_counts(noun: str, tx: Tx) -> Iterator[str]:
    counted = {row[0]: int(row[1]) for row in tx.statements.all(f"count_{noun}s", {})}
    kept = tx.events.counts(noun)
    if counted != kept:
        yield f"the counts of {noun}s say {kept}, but there are {counted}"


def scan(tx: Tx, noun: str, width: int, on_rows: Callable[[int], None] = lambda _rows: None) -> Iterator[Row]:
    """Every row of a noun, in the order of its key, a page at a time."""
    places, numbered = _PLACES.get(noun, range(width)), _NUMBERED.get(noun, ())
    after: list[object] = [-1 if part in numbered else "" for part in range(width)]
    while True:
        params = {f"after{place}": part for place, part in enumerate(after)} | {"limit": PAGE}
        page = tx.statements.all(f"scan_{noun}", params)
        on_rows(len(page))
        yield from page
        if len(page) < PAGE:
            return
        after = [page[-1][place] for place in places]
