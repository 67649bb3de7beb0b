"""tasks wait goes through the gateway where one runs, and looks at the ledger where none does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.cli import task_wait
from holdfast.core.errors import GatewaySilent
from holdfast.core.transitions import RunStatus
from holdfast.engine.ledger.ledger import cancelling
from tests.api.stand_in import ServedDoors, served_doors
from tests.builders import START, stored_run
from tests.conftest import quick_directory
from tests.doors.calls import Opens, Run


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """Short, because the path of a socket is."""
    with quick_directory(tmp_path) as directory:
        yield directory


@pytest.fixture
def house(home: Path) -> Iterator[ServedDoors]:
    with served_doors(home) as house:
        yield house


def test_a_wait_beside_a_gateway_is_answered_by_it(
    run: Run, house: ServedDoors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(task_wait, "_wait_here")
    store = house.gateway.store
    task_id = stored_run(store, task={"dedup_key": "monday"}).task_id
    ender = threading.Timer(
        0.05, store.write_now, (cancelling(task_id, reason="enough", owner=None, now=START),)
    )
    ender.start()

    called = run("tasks", "wait", "monday", "--json")
    ender.join()

    assert (called.status, called.json["task"]["status"], called.json["hasEnded"]) == (1, "cancelled", True)


def test_a_timeout_through_a_gateway_says_what_the_task_waits_for(run: Run, house: ServedDoors) -> None:
    waiting = stored_run(
        house.gateway.store, RunStatus.WAITING, task={"waits_on": "sleep"}, waits_on="sleep"
    ).task_id

    called = run("tasks", "wait", waiting, "--timeout", "0s", "--json")

    assert called.status == 3
    assert called.json["reason"].startswith("the wait timed out after 0 s; the task is still waiting")
    assert called.json["waitsFor"] is not None


def test_a_wait_goes_on_at_the_ledger_when_the_gateway_stops_for_good(
    run: Run, ledger: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ledger() as store:
        task_id = stored_run(store, RunStatus.SUCCEEDED).task_id

    def gone(*_: object) -> None:
        raise GatewaySilent("here", "no gateway runs there", was_there=False)

    monkeypatch.setattr("holdfast.cli.client.is_listening", lambda _home: True)
    monkeypatch.setattr(task_wait, "_wait_there", gone)

    called = run("tasks", "wait", task_id)

    assert (called.status, called.out) == (0, f"{task_id} succeeded\n")
    assert called.err == "the gateway has stopped; waiting for the ledger\n"
