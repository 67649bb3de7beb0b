"""import openclaw, flows: they keep their documents and their tasks, and move with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.api.contract import EVERYTHING
from holdfast.api.targets import find_target
from holdfast.core.clock import to_micros
from holdfast.core.errors import NotFound
from holdfast.core.flow import Flow, FlowMode
from holdfast.core.import_report import ImportReport
from holdfast.core.imported import ActivePolicy, ImportedKind, ImportSource
from holdfast.core.transitions import FlowStatus
from holdfast.store import Store
from holdfast.testing import FakeClock
from tests.crash.invariants import assert_every_flow_is_as_its_tasks_are, contents_of
from tests.engine.tables import dump, query
from tests.fake_secrets import SHAPES
from tests.integrations.import_doors import PreviewDoor, StoreDoor, import_from
from tests.integrations.openclaw_databases import (
    NEWEST,
    RELEASES,
    OpenClawHome,
    active_row,
    flow_row,
    task_row,
)

ENDED = {"status": "succeeded", "ended_at": flow_row()["updated_at"], "wait_json": None}


@pytest.fixture
def state(tmp_path: Path) -> OpenClawHome:
    return OpenClawHome(tmp_path / "openclaw")


def flow_of(store: Store, row: dict[str, Any]) -> Flow:
    return store.read_now(lambda tx: tx.flows.get(tx.flows.resolve(row["flow_id"])))


def of_flow(row: dict[str, Any], flow: dict[str, Any]) -> dict[str, Any]:
    return row | {"parent_flow_id": flow["flow_id"]}


def changes(report: ImportReport) -> dict[str, int]:
    return {change.value: number for change, number in report.flows.changes.items()}


def test_a_flow_keeps_its_documents_its_revision_and_what_blocks_it(
    state: OpenClawHome, store: Store, clock: FakeClock
) -> None:
    failed = task_row(1, status="failed", error="no chart", terminal_outcome=None)
    row = flow_row(
        1,
        status="blocked",
        blocked_task_id=failed["task_id"],
        blocked_summary="the chart is missing",
        cancel_requested_at=flow_row()["updated_at"],
        requester_origin_json='{"channel": "telegram", "to": "chat-7"}',
    )
    state.add(of_flow(failed, row), of_flow(active_row(2), row))
    state.add_flows(row)

    report = import_from(state, store, clock)

    flow = flow_of(store, row)
    assert changes(report) == {"created": 1}
    assert (flow.mode, flow.status, flow.revision, flow.owner) == (
        FlowMode.MANAGED,
        FlowStatus.BLOCKED,
        4,
        "agent:main:main",
    )
    assert (flow.controller, flow.current_step, flow.goal) == (
        "tides/plan",
        "ask the pilot",
        "Chart the coast 1",
    )
    assert (msgspec.json.decode(flow.contents or b""), msgspec.json.decode(flow.wait or b"")) == (
        {"done": [1, 2], "harbour": "Aber"},
        {"kind": "reply"},
    )
    blocker = store.read_now(lambda tx: find_target(tx, failed["task_id"], EVERYTHING))
    assert flow.blocked_by_task_id == blocker
    assert flow.failure is not None
    assert flow.failure.message == "the chart is missing"
    assert flow.cancel_requested_at is not None
    assert to_micros(flow.cancel_requested_at) == row["updated_at"] * 1000
    assert (flow.live, flow.failed) == (1, 1)
    assert len(store.read_now(lambda tx: tx.tasks.of_flow(flow.id))) == 2
    kept = store.read_now(
        lambda tx: tx.imports.get_many(ImportSource.OPENCLAW, ImportedKind.FLOW, [row["flow_id"]])
    )
    rest = msgspec.json.decode(kept[row["flow_id"]].rest or b"")
    assert rest["notify_policy"] == "done_only"
    assert rest["requester_origin_json"] == {"channel": "telegram", "to": "chat-7"}


@pytest.mark.parametrize("release", [release for release in RELEASES if release != "2026.3.31"])
def test_tasks_find_their_flows_also_in_the_other_database(
    release: str, tmp_path: Path, store: Store, clock: FakeClock
) -> None:
    state = OpenClawHome(tmp_path / "old", release)
    row = flow_row(1, sync_mode="task_mirrored", controller_id=None, **ENDED)
    state.add(of_flow(task_row(1), row))
    state.add_flows(row)

    import_from(state, store, clock)

    flow = flow_of(store, row)
    assert (flow.mode, flow.status, flow.succeeded) == (FlowMode.TASK_MIRRORED, FlowStatus.SUCCEEDED, 1)
    assert state.flows.name == ("openclaw.sqlite" if release == NEWEST else "registry.sqlite")


def test_a_second_import_changes_nothing_and_a_later_one_what_advanced(
    state: OpenClawHome, store: Store, clock: FakeClock
) -> None:
    managed = flow_row(1, status="blocked")
    mirrored = flow_row(2, sync_mode="task_mirrored", status="running", controller_id=None, wait_json=None)
    state.add(of_flow(active_row(1), managed), of_flow(active_row(2), mirrored))
    state.add_flows(managed, mirrored)
    import_from(state, store, clock)
    before = dump(store)

    again = import_from(state, store, clock)
    unchanged = dump(store) == before
    state.add_flows(managed | ENDED | {"revision": 9}, mirrored | ENDED)
    state.change(of_flow(task_row(1), managed))
    state.change(of_flow(task_row(2), mirrored))
    later = import_from(state, store, clock)

    assert (changes(again), unchanged) == ({"unchanged": 2}, True)
    one, other = flow_of(store, managed), flow_of(store, mirrored)
    assert (one.status, one.live, one.succeeded) == (FlowStatus.SUCCEEDED, 0, 1)
    assert one.revision >= 9
    assert (other.status, other.live, other.succeeded) == (FlowStatus.SUCCEEDED, 0, 1)
    assert changes(later) == {"advanced": 1, "unchanged": 1}
    assert store.read_now(lambda tx: tx.events.counts("flow")) == {"succeeded": 2}


def test_a_flow_that_has_ended_here_is_never_changed(
    state: OpenClawHome, store: Store, clock: FakeClock
) -> None:
    row = flow_row()
    state.add_flows(row)
    import_from(state, store, clock, active=ActivePolicy.LOST)
    state.add_flows(row | ENDED)

    report = import_from(state, store, clock)

    assert changes(report) == {"ignored": 1}
    assert flow_of(store, row).status is FlowStatus.LOST


@pytest.mark.parametrize("is_ended_at_first", [True, False])
def test_a_flow_that_ended_before_its_task_counts_how_the_task_ends(
    state: OpenClawHome, store: Store, clock: FakeClock, is_ended_at_first: bool
) -> None:
    failed = flow_row(1, status="failed", ended_at=flow_row()["updated_at"], wait_json=None)
    state.add(of_flow(active_row(1), failed))
    state.add_flows(failed if is_ended_at_first else flow_row(1))
    import_from(state, store, clock)
    state.add_flows(failed | {"revision": 9})
    import_from(state, store, clock)
    before = flow_of(store, failed)
    state.change(of_flow(task_row(1), failed))

    import_from(state, store, clock)

    flow = flow_of(store, failed)
    assert (before.status, before.live, before.succeeded) == (FlowStatus.FAILED, 1, 0)
    assert (flow.status, flow.live, flow.succeeded) == (FlowStatus.FAILED, 0, 1)
    assert_every_flow_is_as_its_tasks_are(store, contents_of(store))


def test_a_mirrored_flow_goes_on_with_its_next_task(
    state: OpenClawHome, store: Store, clock: FakeClock
) -> None:
    mirrored = flow_row(1, sync_mode="task_mirrored", controller_id=None, wait_json=None)
    ended = task_row(1, terminal_outcome="blocked", terminal_summary="no key")
    state.add(of_flow(ended, mirrored))
    state.add_flows(mirrored | {"status": "blocked", "blocked_task_id": ended["task_id"]})
    import_from(state, store, clock)
    blocked = flow_of(store, mirrored)
    state.add(of_flow(active_row(2), mirrored))
    state.add_flows(mirrored | {"status": "running", "revision": 5})

    report = import_from(state, store, clock)
    running = flow_of(store, mirrored)
    state.change(of_flow(task_row(2), mirrored))
    import_from(state, store, clock)

    assert (blocked.status, blocked.live, blocked.succeeded) == (FlowStatus.BLOCKED, 0, 1)
    assert changes(report) == {"advanced": 1}
    assert (running.status, running.live, running.blocked_by_task_id) == (FlowStatus.RUNNING, 1, None)
    assert running.waits_on == "tasks"
    assert flow_of(store, mirrored).status is FlowStatus.SUCCEEDED


def test_a_flow_that_is_skipped_or_left_out_is_named_by_no_task(
    state: OpenClawHome, store: Store, clock: FakeClock
) -> None:
    live, bad = flow_row(1), flow_row(2, status="dreaming")
    state.add(of_flow(task_row(1), live), of_flow(task_row(2), bad))
    state.add_flows(live, bad)

    report = import_from(state, store, clock, active=ActivePolicy.SKIP)

    assert (report.flows.skipped, report.flows.left_out) == (1, 1)
    assert report.left_out[0].why.startswith("status: dreaming")
    assert query(store, "SELECT flow_id FROM tasks") == [(None,), (None,)]
    assert sum("the link is kept as text only" in remark for remark in report.remarks) == 2
    with pytest.raises(NotFound):
        flow_of(store, live)


def test_hostile_flows_are_kept_or_named(state: OpenClawHome, store: Store, clock: FakeClock) -> None:
    secret = SHAPES["github"][0]
    state.add_flows(
        flow_row(1, state_json="{not json", wait_json="x" * 300_000, revision="many", blocked_task_id="gone"),
        flow_row(2, state_json=f'{{"token": "{secret}"}}', sync_mode="sideways", shape="single_task"),
        flow_row(3, created_at=-1),
        flow_row(4, goal="\x1b[31mred\x00", owner_key=""),
    )

    report = import_from(state, store, clock)

    assert (changes(report), report.flows.left_out) == ({"created": 3}, 1)
    assert {remark.split(":")[0] for remark in report.remarks} >= {
        "flow state_json",
        "flow wait_json",
        "flow revision",
        "flow blocked_task_id",
        "flow goal",
    }
    sealed = flow_of(store, flow_row(2))
    assert (sealed.mode, msgspec.json.decode(sealed.contents or b"")) == (
        FlowMode.TASK_MIRRORED,
        {"token": secret},
    )
    assert secret not in str(query(store, "SELECT goal, contents FROM flows"))
    assert flow_of(store, flow_row(4)).owner.startswith("system:flow:")


@pytest.mark.parametrize("document", ["[" * 500 + "]" * 500, "潮" * 100_000, '["' + "潮" * 100_000 + '"]'])
def test_a_document_that_a_flow_cannot_have_is_kept_beside_it(
    state: OpenClawHome, store: Store, clock: FakeClock, document: str
) -> None:
    row = flow_row(1, state_json=document)
    state.add(of_flow(task_row(1), row))
    state.add_flows(row)

    report = import_from(state, store, clock)

    flow = flow_of(store, row)
    assert (changes(report), report.left_out, flow.contents) == ({"created": 1}, [], None)
    assert query(store, "SELECT flow_id FROM tasks") == [(flow.id,)]
    kept = store.read_now(
        lambda tx: tx.imports.get_many(ImportSource.OPENCLAW, ImportedKind.FLOW, [row["flow_id"]])
    )
    rest = msgspec.json.decode(kept[row["flow_id"]].rest or b"")
    assert document.startswith(rest["state_json"])
    assert len(rest["state_json"]) > 900
    assert any("state_json: it is not a JSON document" in remark for remark in report.remarks)


def test_a_row_that_is_too_long_for_the_gateway_is_left_out_and_the_others_are_imported(
    state: OpenClawHome, store: Store, clock: FakeClock
) -> None:
    class SmallDoor(StoreDoor):
        max_batch_bytes = 20_000

    long = flow_row(1, state_json='{"tides": "' + "x" * 30_000 + '"}')
    state.add_flows(long, flow_row(2))
    state.add(of_flow(task_row(1), long), task_row(2, label="x" * 30_000), task_row(3))

    report = import_from(state, store, clock, door=SmallDoor(store, clock))

    assert changes(report) == {"created": 1}
    assert {change.value: number for change, number in report.tasks.changes.items()} == {"created": 2}
    assert [(named.noun, named.id) for named in report.left_out] == [
        (ImportedKind.FLOW, long["flow_id"]),
        (ImportedKind.TASK, task_row(2)["task_id"]),
    ]
    assert all("stop it, then import again" in named.why for named in report.left_out)
    assert any("or was left out or skipped" in remark for remark in report.remarks)


def test_a_preview_of_flows_says_what_an_import_would_do(
    state: OpenClawHome, store: Store, clock: FakeClock
) -> None:
    state.add_flows(flow_row(1), flow_row(2), flow_row(3, **ENDED))
    import_from(state, store, clock)
    state.add_flows(flow_row(2) | ENDED, flow_row(4))
    before = dump(store)

    preview = import_from(state, store, clock, door=PreviewDoor(store, clock))

    assert dump(store) == before
    assert changes(preview) == changes(import_from(state, store, clock))
    assert changes(preview) == {"unchanged": 2, "advanced": 1, "created": 1}
