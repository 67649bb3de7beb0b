"""An older state of a flow that is imported after a newer one changes nothing."""

from __future__ import annotations

from pathlib import Path

from holdfast.core.flow import Flow
from holdfast.store import Store
from holdfast.testing import FakeClock
from tests.integrations.import_doors import import_from
from tests.integrations.openclaw_databases import OpenClawHome, flow_row


def flow_in(store: Store) -> Flow:
    source_id = str(flow_row(1)["flow_id"])
    return store.read_now(lambda tx: tx.flows.get(tx.flows.resolve(source_id)))


def test_an_older_copy_of_a_database_does_not_set_a_flow_back(
    tmp_path: Path, store: Store, clock: FakeClock
) -> None:
    new, old = OpenClawHome(tmp_path / "new"), OpenClawHome(tmp_path / "old")
    new.add_flows(flow_row(1, revision=9, status="running", current_step="late"))
    old.add_flows(flow_row(1, revision=2, status="queued", current_step="early"))
    import_from(new, store, clock)

    import_from(old, store, clock)

    assert (flow_in(store).current_step, flow_in(store).status.value) == ("late", "running")


def test_a_home_with_an_old_and_a_new_database_is_imported_once(
    tmp_path: Path, store: Store, clock: FakeClock
) -> None:
    old, new = OpenClawHome(tmp_path / "home", "2026.5.28"), OpenClawHome(tmp_path / "home")
    old.add_flows(flow_row(1, revision=2, current_step="early"))
    new.add_flows(flow_row(1, revision=9, current_step="late"))
    import_from(old, store, clock)
    first = flow_in(store)

    import_from(old, store, clock)

    assert first.current_step == "late"
    assert flow_in(store).revision == first.revision
