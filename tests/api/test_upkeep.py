"""upkeep.audit and upkeep.maintenance: scopes, the audit log, and one plan for both modes."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.core.transitions import TaskStatus
from tests.api.stand_in import READ_TOKEN, ServedDoors
from tests.builders import a_task, write
from tests.upkeep.recorded import recorded_run, status_of

pytestmark = pytest.mark.slow


def test_a_reader_may_audit_but_not_sweep(house: ServedDoors) -> None:
    write(house.gateway.store, lambda tx: tx.tasks.create(a_task(status=TaskStatus.FAILED)))

    audit = house.post("upkeep.audit", {"code": "missing_cleanup"}, token=READ_TOKEN)
    refused = house.post("upkeep.maintenance", {"isDryRun": False}, token=READ_TOKEN)

    assert (audit.status_code, audit.json()["filteredCount"]) == (200, 1)
    assert refused.status_code == 403


def test_a_sweep_through_the_gateway_is_in_the_audit_log_and_its_preview_is_not(house: ServedDoors) -> None:
    gateway = house.gateway
    hour_ago = gateway.clock.now() - timedelta(hours=1)
    run = recorded_run(
        gateway.store, task={"created_at": hour_ago, "updated_at": hour_ago}, created_at=hour_ago
    )

    preview = house.post("upkeep.maintenance").json()
    untouched = status_of(gateway.store, run)
    applied = house.post("upkeep.maintenance", {"isDryRun": False}).json()

    assert untouched is TaskStatus.RUNNING
    assert preview["maintenance"] == applied["maintenance"]
    assert status_of(gateway.store, run) is TaskStatus.LOST
    entries = house.post("audit.list").json()["entries"]
    assert [one["action"] for one in entries] == ["upkeep.maintenance"]
