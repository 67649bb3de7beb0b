"""The command that an audit gives for a finding is run as it stands, and the finding is gone."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast.core.clock import SystemClock
from holdfast.core.finding import FindingCode
from holdfast.core.run import Queue
from holdfast.core.task import RuntimeName
from holdfast.core.transitions import DeliveryStatus, RunStatus, TaskStatus
from holdfast.engine.claims.claims import NEVER
from holdfast.runtimes.cli import pid_reference
from holdfast.store import Store
from tests.builders import FAILURE, OTHER_BOOT, a_boot, a_delivery, a_task, stored_run, write
from tests.doors.calls import Call, Opens, Run
from tests.doors.test_upkeep import minutes_ago, silent_run
from tests.upkeep.recorded import recorded_run, status_of


def an_hour_ago(**changes: Any) -> dict[str, Any]:
    """A task that was created an hour ago."""
    return {"created_at": minutes_ago(60), "updated_at": minutes_ago(60)} | changes


def an_old_run(store: Store, status: RunStatus = RunStatus.QUEUED, **changes: Any) -> None:
    given: dict[str, Any] = {
        "task": an_hour_ago(),
        "created_at": minutes_ago(60),
        "updated_at": minutes_ago(60),
    }
    stored_run(store, status, **given | {"due_at": minutes_ago(60)} | changes)


def lost(store: Store, *, is_over: bool) -> None:
    now = SystemClock().now()
    ended = an_hour_ago(status=TaskStatus.LOST, ended_at=minutes_ago(30), failure=FAILURE)
    ended |= {"cleanup_after": now + timedelta(minutes=-1 if is_over else 60)}
    an_old_run(store, RunStatus.LOST, task=ended, ended_at=minutes_ago(30))


def of_a_dead_process(store: Store) -> None:
    boot = a_boot(id=OTHER_BOOT)
    write(store, lambda tx: (tx.boots.begin(boot), tx.boots.end(OTHER_BOOT, now=minutes_ago(1))))
    recorded_run(store, runtime=RuntimeName.MEDIA, details={}, claimed_by=OTHER_BOOT)


ARRANGED: dict[str, tuple[FindingCode, Callable[[Store], object]]] = {
    "silent recorded work": (FindingCode.STALE_RUNNING, silent_run),
    "recorded work of a dead process": (FindingCode.NO_OWNER, of_a_dead_process),
    "recorded work that was never started": (
        FindingCode.STALE_QUEUED,
        lambda store: an_old_run(store, queue=Queue.PRODUCER, task=an_hour_ago(runtime=RuntimeName.MEDIA)),
    ),
    "a task without a run": (
        FindingCode.NO_OWNER,
        lambda store: write(store, lambda tx: tx.tasks.create(a_task(**an_hour_ago()))),
    ),
    "a wait that nothing ends": (
        FindingCode.NO_WAKER,
        lambda store: an_old_run(store, RunStatus.WAITING, waits_on="child:task_gone", due_at=NEVER),
    ),
    "a pause without a checkpoint": (
        FindingCode.NO_WAKER,
        lambda store: an_old_run(store, RunStatus.PAUSED_FOR_RESTART, due_at=NEVER),
    ),
    "an end without a time to clean up": (
        FindingCode.MISSING_CLEANUP,
        lambda store: an_old_run(
            store, RunStatus.FAILED, task=an_hour_ago(status=TaskStatus.FAILED), ended_at=minutes_ago(1)
        ),
    ),
    "a lost task": (FindingCode.LOST, lambda store: lost(store, is_over=False)),
    "a lost task past its retention": (FindingCode.LOST, lambda store: lost(store, is_over=True)),
    "a delivery that was given up": (
        FindingCode.DELIVERY_FAILED,
        lambda store: write(
            store,
            lambda tx: tx.deliveries.create(a_delivery(status=DeliveryStatus.FAILED, failure=FAILURE)),
        ),
    ),
}


@pytest.mark.parametrize("arranged", ARRANGED)
def test_the_command_of_a_finding_repairs_it(run: Run, ledger: Opens, arranged: str) -> None:
    code, arrange = ARRANGED[arranged]
    with ledger() as store:
        arrange(store)

    (found,) = findings(run, code)
    repaired = run(*shlex.split(found["repair"])[1:])

    assert repaired.status == 0, repaired.err
    assert findings(run, code) == []


def findings(run: Run, code: FindingCode) -> list[dict[str, Any]]:
    called: Call = run("tasks", "audit", "--json", "--code", code.value)
    found: list[dict[str, Any]] = called.json["findings"]
    return found


def test_a_living_process_is_not_lost_although_no_gateway_asks_for_it(run: Run, ledger: Opens) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        with ledger() as store:
            work = silent_run(store, RuntimeName.CLI, pid_reference(process.pid))
        preview = run("tasks", "maintenance", "--json").json
        applied = run("tasks", "maintenance", "--apply", "--json").json
        process.kill()
    with ledger() as store:
        kept = status_of(store, work)

    assert preview["maintenance"] == applied["maintenance"]
    assert applied["maintenance"]["tasks"]["reconciled"] == 0
    assert kept is TaskStatus.RUNNING


def test_a_process_that_died_unheard_is_lost_with_the_proof(run: Run, ledger: Opens) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        with ledger() as store:
            work = silent_run(store, RuntimeName.CLI, pid_reference(process.pid))
        process.kill()
    preview = run("tasks", "maintenance", "--json").json
    run("tasks", "maintenance", "--apply")

    with ledger() as store:
        assert status_of(store, work) is TaskStatus.LOST
    assert preview["changes"][0]["reason"] == f"process {process.pid} has ended without a report"
