"""The command that an audit gives for a finding is run as it stands, and the finding is gone."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from holdfast.core.clock import SystemClock
from holdfast.core.finding import FindingCode
from holdfast.core.flow import Flow
from holdfast.core.run import Queue
from holdfast.core.task import RuntimeName, Task
from holdfast.core.transitions import DeliveryStatus, FlowStatus, RunStatus, TaskStatus
from holdfast.engine.claims.claims import NEVER
from holdfast.engine.ledger.flows import FlowChange, NewFlow, creating_flow, updating_flow
from holdfast.engine.ledger.ledger import cancelling
from holdfast.runtimes.cli import pid_reference
from holdfast.store import Store, Tx
from tests.builders import FAILURE, OTHER_BOOT, a_boot, a_delivery, a_task, stored_run, write
from tests.doors.calls import Call, Opens, Run
from tests.doors.test_upkeep import minutes_ago, silent_run
from tests.engine.flows import RELEASE
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


def a_flow(store: Store, **changes: Any) -> Flow:
    new = NewFlow(**{"name": "trip", "mode": "task_mirrored"} | changes)
    return store.write_now(creating_flow(new, now=minutes_ago(60)))


def a_running_flow(store: Store) -> None:
    flow = a_flow(store, mode="managed", controller="planner")
    change = FlowChange(to=FlowStatus.RUNNING)
    store.write_now(updating_flow(flow.id, change, revision=1, now=minutes_ago(45)))


def a_blocked_flow(store: Store) -> Task:
    flow = a_flow(store, name=None, mode="managed", definition=RELEASE)
    (task,) = store.read_now(lambda tx: tx.tasks.of_flow(flow.id))
    store.write_now(cancelling(task.id, reason="not now", owner=None, now=minutes_ago(45)))
    return task


def a_flow_without_its_blocker(store: Store) -> None:
    task = a_blocked_flow(store)

    def forget(tx: Tx) -> None:
        tx.runs.delete_of_tasks([task.id])
        tx.tasks.delete([(task.id, task.status, task.runtime.value)], keys_expire_at=minutes_ago(1))

    store.write_now(forget)


def a_flow_without_its_task(store: Store) -> None:
    flow = a_flow(store, name=None, mode="managed", definition=RELEASE)

    def forget(tx: Tx) -> None:
        (task,) = tx.tasks.of_flow(flow.id)
        tx.runs.delete_of_tasks([task.id])
        tx.tasks.delete([(task.id, task.status, task.runtime.value)], keys_expire_at=minutes_ago(1))

    store.write_now(forget)


def a_flow_whose_tasks_were_not_asked(store: Store) -> None:
    flow = a_flow(store, name=None, mode="managed", definition=RELEASE)

    def request(tx: Tx) -> None:
        before = tx.flows.lock(flow.id)
        tx.flows.save(before, msgspec.structs.replace(before, cancel_requested_at=minutes_ago(6)))

    store.write_now(request)


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
    "a flow without its controller": (FindingCode.STALE_RUNNING, a_running_flow),
    "a flow that is blocked": (FindingCode.STALE_BLOCKED, a_blocked_flow),
    "a flow whose blocking task is gone": (FindingCode.BLOCKED_TASK_MISSING, a_flow_without_its_blocker),
    "a flow whose task is gone": (FindingCode.MISSING_LINKED_TASKS, a_flow_without_its_task),
    "a flow that mirrors nothing": (FindingCode.MISSING_LINKED_TASKS, a_flow),
    "a cancelled flow with a task that goes on": (
        FindingCode.CANCEL_STUCK,
        a_flow_whose_tasks_were_not_asked,
    ),
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
