"""The doors of an import in tests: they write batches, or only compare."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holdfast.core.import_report import ImportReport
from holdfast.core.imported import ActivePolicy, ImportOutcome, ImportSource
from holdfast.engine.producers.flow_imports import PreparedFlow, previewing_flows, taking_over_flows
from holdfast.engine.producers.imports import PreparedTask, previewing, taking_over
from holdfast.integrations.openclaw_import import OpenClawImport, open_databases
from holdfast.store import Store
from holdfast.testing import FakeClock
from tests.integrations.openclaw_databases import OpenClawHome


class StoreDoor:
    """Writes batches."""

    max_batch_bytes: int | None = None

    def __init__(self, store: Store, clock: FakeClock) -> None:
        self._store = store
        self.clock = clock

    def take(self, batch_id: str, tasks: Sequence[PreparedTask]) -> list[ImportOutcome]:
        now = self.clock.now()
        return self._store.write_now(
            taking_over(tasks, source=ImportSource.OPENCLAW, batch_id=batch_id, now=now)
        )

    def take_flows(
        self, batch_id: str, flows: Sequence[PreparedFlow], *, only_new: bool
    ) -> list[ImportOutcome]:
        now = self.clock.now()
        return self._store.write_now(
            taking_over_flows(
                flows, source=ImportSource.OPENCLAW, batch_id=batch_id, now=now, only_new=only_new
            )
        )


class PreviewDoor(StoreDoor):
    """Only compares."""

    def take(self, batch_id: str, tasks: Sequence[PreparedTask]) -> list[ImportOutcome]:  # noqa: ARG002
        return self._store.read_now(previewing(tasks, source=ImportSource.OPENCLAW))

    def take_flows(
        self,
        batch_id: str,  # noqa: ARG002
        flows: Sequence[PreparedFlow],
        *,
        only_new: bool,
    ) -> list[ImportOutcome]:
        return self._store.read_now(previewing_flows(flows, source=ImportSource.OPENCLAW, only_new=only_new))


def import_from(
    state: OpenClawHome,
    store: Store,
    clock: FakeClock,
    *,
    active: ActivePolicy = ActivePolicy.KEEP,
    batch_size: int = 2,
    door: StoreDoor | None = None,
) -> ImportReport:
    return run_import(state.path, door or StoreDoor(store, clock), active=active, batch_size=batch_size)


def run_import(
    path: Path, door: StoreDoor, *, active: ActivePolicy = ActivePolicy.KEEP, batch_size: int = 2
) -> ImportReport:
    run = OpenClawImport(door, now=door.clock.now, active=active, batch_size=batch_size)
    with open_databases(path) as databases:
        return run.run(databases)
