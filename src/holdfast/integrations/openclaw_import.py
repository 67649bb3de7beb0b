"""Imports the tasks of an OpenClaw state directory, batch by batch, and reports what became of each row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Final, Protocol, TypeVar

import msgspec

from holdfast.core.errors import BadInput
from holdfast.core.ids import new_id
from holdfast.core.import_report import ImportReport
from holdfast.core.imported import (
    ActivePolicy,
    ImportChange,
    ImportedFlow,
    ImportedKind,
    ImportedTask,
    ImportOutcome,
    ImportSource,
)
from holdfast.core.transitions import is_terminal
from holdfast.engine.producers.flow_imports import PreparedFlow, prepare_flow
from holdfast.engine.producers.imports import PreparedTask, prepare_import
from holdfast.integrations.openclaw_flows import KNOWN as FLOW_COLUMNS
from holdfast.integrations.openclaw_flows import ReadFlow, read_flow
from holdfast.integrations.openclaw_tasks import KNOWN, KnownFamily, ReadTask, read_task
from holdfast.integrations.openclaw_values import Row, read_moment
from holdfast.store.foreign_file import ForeignReader

T = TypeVar("T")

TASKS: Final = "task_runs"
TOLD: Final = "task_delivery_state"
FLOWS: Final = "flow_runs"
# Before 2026.6 tasks and flows had a database each; the newer one comes last, because it knows more.
PLACES: Final = ("tasks/runs.sqlite", "flows/registry.sqlite", "state/openclaw.sqlite")
BATCH: Final = 500
# A batch is sent to a gateway in one frame, of at most 1 MiB unless its settings say otherwise.
MAX_BATCH_BYTES: Final = 900_000


class ImportDoor(Protocol):
    """How a batch reaches the ledger: written here, sent to the gateway, or only compared."""

    # The longest batch that it takes, as JSON; None if it takes any.
    max_batch_bytes: int | None

    def take(self, batch_id: str, tasks: Sequence[PreparedTask]) -> list[ImportOutcome]: ...

    def take_flows(
        self, batch_id: str, flows: Sequence[PreparedFlow], *, only_new: bool
    ) -> list[ImportOutcome]:
        """With `only_new`, a flow that is known and has changed stays as it is, and counts as advanced."""
        ...


def find_databases(path: Path) -> list[Path]:
    """The databases of a state directory, or the one that is named. Raises BadInput."""
    if not path.exists():
        raise BadInput("path", f"there is no {path}; name OpenClaw's state directory, such as ~/.openclaw")
    if not path.is_dir():
        return [path]
    inner = (path / Path(place).name for place in PLACES)
    found = [place for place in (*(path / place for place in PLACES), *inner) if place.is_file()]
    if not found:
        places = ", ".join(PLACES)
        raise BadInput("path", f"{path} is not a state directory of OpenClaw: it has none of {places}")
    return found


@contextmanager
def open_databases(path: Path) -> Iterator[list[ForeignReader]]:
    """Copies of the databases at this path, open, and each table tried, before a ledger is created.
    Raises BadInput if one cannot be read, or none of them has a table of tasks or flows."""
    places = find_databases(path)
    with ExitStack() as opened:
        readers = [opened.enter_context(ForeignReader.copied(place)) for place in places]
        if not any(reader.has_table(TASKS) or reader.has_table(FLOWS) for reader in readers):
            named = ", ".join(str(place) for place in places)
            raise BadInput("path", f"{named} has no table {TASKS} or {FLOWS}: it is no database of OpenClaw")
        for reader in readers:
            _try(reader, TASKS, "task_id")
            _try(reader, FLOWS, "flow_id")
        yield readers


def _try(reader: ForeignReader, table: str, key: str) -> None:
    """Raises BadInput if the table has no ids, or cannot be read from its beginning."""
    if not reader.has_table(table):
        return
    if key not in reader.columns(table):
        raise BadInput("path", f"the table {table} of {reader.path} has no column {key}")
    reader.count(table)
    next(reader.rows(table), None)


class OpenClawImport:
    """One import. It may be repeated, and continued after it was killed: rows that are known are skipped."""

    def __init__(
        self,
        door: ImportDoor,
        *,
        now: Callable[[], datetime],
        active: ActivePolicy = ActivePolicy.KEEP,
        batch_size: int = BATCH,
        on_rows: Callable[[int, int], None] = lambda _done, _all: None,
    ) -> None:
        self.report = ImportReport()
        self._door = door
        self._now = now
        self._active = active
        self._batch_size = batch_size
        self._on_rows = on_rows
        self._databases: list[ForeignReader] = []
        self._done = self._total = 0
        # Flows that were not imported: their tasks do not name them.
        self._missing_flows: set[str] = set()

    def run(self, databases: Sequence[ForeignReader]) -> ImportReport:
        """Import from databases that `open_databases` has opened. Raises BadInput if one cannot be read."""
        self._databases = list(databases)
        of_tasks = [one for one in databases if one.has_table(TASKS)]
        of_flows = [one for one in databases if one.has_table(FLOWS)]
        self._total = sum(one.count(TASKS) for one in of_tasks) + sum(one.count(FLOWS) for one in of_flows)
        # A task names its flow. A flow moves with its tasks, and only then by its own row.
        changed = [(one, self._take_new_flows(one)) for one in of_flows]
        for database in of_tasks:
            self._take_tasks(database)
        for database, ids in changed:
            self._take_changed_flows(database, ids)
        self.report.databases += [str(one.path) for one in databases]
        return self.report

    def _tell(self, rows: int) -> None:
        self._done += rows
        self._on_rows(self._done, self._total)

    # --- flows

    def _take_new_flows(self, database: ForeignReader) -> list[str]:
        """Import the flows that are new, and return the ids of those that have changed."""
        columns = database.columns(FLOWS)
        self.report.unknown_columns |= set(columns) - FLOW_COLUMNS
        repeated, seen = database.repeated(FLOWS, "flow_id"), set[str]()
        changed: list[str] = []
        rows = database.rows(FLOWS)
        while batch := list(islice(rows, self._batch_size)):
            self.report.flows.rows += len(batch)
            once = [row for row in batch if self._is_first(ImportedKind.FLOW, row, repeated, seen)]
            for part in self._parts(ImportedKind.FLOW, self._read_flows(once), _flow_of):
                for outcome in self._write_flows(part, only_new=True):
                    if outcome.change is ImportChange.ADVANCED:
                        changed.append(outcome.source_id)
                    else:
                        self.report.count(ImportedKind.FLOW, outcome)
            self._tell(len(batch))
        return changed

    def _take_changed_flows(self, database: ForeignReader, ids: Sequence[str]) -> None:
        for start in range(0, len(ids), self._batch_size):
            rows = list(database.rows_with(FLOWS, "flow_id", ids[start : start + self._batch_size]))
            once = {row["flow_id"]: row for row in reversed(rows)}
            # They were read before: their remarks and counts are in the report.
            flows = [self._read_flow(row) for row in once.values()]
            for part in self._parts(ImportedKind.FLOW, flows, _flow_of):
                for outcome in self._write_flows(part, only_new=False):
                    self.report.count(ImportedKind.FLOW, outcome)

    def _read_flows(self, batch: Sequence[Row]) -> list[ReadFlow]:
        found = []
        for row in batch:
            try:
                read = self._read_flow(row)
            except BadInput as error:
                self._leave_out(ImportedKind.FLOW, row, str(error))
                continue
            if not is_terminal(read.flow.status):
                if self._active is ActivePolicy.SKIP:
                    self.report.flows.skipped += 1
                    self._missing_flows.add(read.flow.source_id)
                    continue
                self.report.flows.active += 1
            for remark in read.remarks:
                self.report.remark(read.flow.source_id, f"flow {remark}")
            found.append(read)
        return found

    def _read_flow(self, row: Row) -> ReadFlow:
        tasks = self._created(TASKS, "task_id", [row], "blocked_task_id")
        return read_flow(row, tasks, active=self._active, now=self._now())

    def _write_flows(self, batch: Sequence[ReadFlow], *, only_new: bool) -> list[ImportOutcome]:
        now = self._now()
        batch_id, prepared = new_id("imp", now), list[PreparedFlow]()
        for read in batch:
            try:
                one = prepare_flow(read.flow, source=ImportSource.OPENCLAW, batch_id=batch_id, now=now)
            except BadInput as error:
                self.report.leave_out(ImportedKind.FLOW, read.flow.source_id, str(error))
                self._missing_flows.add(read.flow.source_id)
                continue
            prepared.append(one)
        return self._door.take_flows(batch_id, prepared, only_new=only_new) if prepared else []

    # --- tasks

    def _take_tasks(self, database: ForeignReader) -> None:
        columns = database.columns(TASKS)
        self.report.unknown_columns |= set(columns) - KNOWN
        has_told = database.has_table(TOLD) and "task_id" in database.columns(TOLD)
        if has_told:
            self.report.orphans += database.orphans(TOLD, TASKS, "task_id")
        repeated, seen = database.repeated(TASKS, "task_id"), set[str]()
        rows = database.rows(TASKS)
        while batch := list(islice(rows, self._batch_size)):
            self.report.tasks.rows += len(batch)
            once = [row for row in batch if self._is_first(ImportedKind.TASK, row, repeated, seen)]
            for part in self._parts(ImportedKind.TASK, self._read_batch(database, once, has_told), _task_of):
                self._write(part)
            self._tell(len(batch))

    def _is_first(self, kind: ImportedKind, row: Row, repeated: set[str], seen: set[str]) -> bool:
        row_id = str(row[f"{kind.value}_id"])
        if row_id not in repeated:
            return True
        if row_id in seen:
            self._leave_out(kind, row, "another row before it has the same id")
            return False
        seen.add(row_id)
        return True

    def _leave_out(self, kind: ImportedKind, row: Row, why: str) -> None:
        value = row[f"{kind.value}_id"]
        row_id = value if isinstance(value, str) else repr(value)
        if kind is ImportedKind.FLOW:
            self._missing_flows.add(row_id)
        self.report.leave_out(kind, row_id[:200], why)

    def _parts(
        self, kind: ImportedKind, batch: Sequence[T], told_by: Callable[[T], ImportedTask | ImportedFlow]
    ) -> Iterator[list[T]]:
        """The batch in parts that are small enough to be sent. A row that is too long alone is left out."""
        most = self._door.max_batch_bytes
        part: list[T] = []
        room = MAX_BATCH_BYTES
        for read in batch:
            told = told_by(read)
            size = len(msgspec.json.encode(told))
            if most is not None and size > most:
                self._leave_out_long(kind, told.source_id, size, most)
                continue
            if part and size > room:
                yield part
                part, room = [], MAX_BATCH_BYTES
            part.append(read)
            room -= size
        if part:
            yield part

    def _leave_out_long(self, kind: ImportedKind, row_id: str, size: int, most: int) -> None:
        if kind is ImportedKind.FLOW:
            self._missing_flows.add(row_id)
        why = f"it has {size:,} bytes, and the gateway takes {most:,} at once; stop it, then import again"
        self.report.leave_out(kind, row_id, why)

    def _read_batch(self, database: ForeignReader, batch: Sequence[Row], has_told: bool) -> list[ReadTask]:
        ids = [row["task_id"] for row in batch if isinstance(row["task_id"], str)]
        told = {row["task_id"]: row for row in database.rows_with(TOLD, "task_id", ids)} if has_told else {}
        links = self._family(batch)
        now, found = self._now(), list[ReadTask]()
        for row in batch:
            try:
                read = read_task(row, told.get(row["task_id"]), links, active=self._active, now=now)
            except BadInput as error:
                self._leave_out(ImportedKind.TASK, row, str(error))
                continue
            if not is_terminal(read.task.status):
                if self._active is ActivePolicy.SKIP:
                    self.report.tasks.skipped += 1
                    continue
                self.report.tasks.active += 1
            found.append(read)
        return found

    def _family(self, batch: Sequence[Row]) -> KnownFamily:
        """When the parents and the flows of these tasks were created: an id of this ledger is made of it."""
        flows = self._created(FLOWS, "flow_id", batch, "parent_flow_id")
        return KnownFamily(
            tasks=self._created(TASKS, "task_id", batch, "parent_task_id"),
            flows={flow_id: at for flow_id, at in flows.items() if flow_id not in self._missing_flows},
        )

    def _created(self, table: str, key: str, batch: Sequence[Row], column: str) -> dict[str, datetime]:
        ids = sorted({link for row in batch if isinstance(link := row.get(column), str)})
        found: dict[str, datetime] = {}
        for database in self._databases if ids else ():
            if not database.has_table(table) or key not in database.columns(table):
                continue
            for row in database.rows_with(table, key, ids):
                try:
                    moment = read_moment(row, "created_at", now=self._now())
                except BadInput:
                    continue  # its own row is left out, with the reason
                if moment is not None:
                    found.setdefault(str(row[key]), moment)
        return found

    def _write(self, batch: Sequence[ReadTask]) -> None:
        now = self._now()
        batch_id = new_id("imp", now)
        prepared = []
        for read in batch:
            try:
                one = prepare_import(read.task, source=ImportSource.OPENCLAW, batch_id=batch_id, now=now)
            except BadInput as error:
                self.report.leave_out(ImportedKind.TASK, read.task.source_id, str(error))
                continue
            prepared.append(one)
            for remark in read.remarks:
                self.report.remark(read.task.source_id, remark)
        owed = {read.task.source_id for read in batch if read.was_owed}
        for taken in self._door.take(batch_id, prepared) if prepared else ():
            self.report.count(ImportedKind.TASK, taken)
            self.report.owed += taken.source_id in owed and taken.is_new


def _task_of(read: ReadTask) -> ImportedTask:
    return read.task


def _flow_of(read: ReadFlow) -> ImportedFlow:
    return read.flow
