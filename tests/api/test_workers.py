"""workers.list: which processes carry runs, how many each has, and those that have ended."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from holdfast.api.contract import READ, Caller
from holdfast.api.methods import METHODS
from holdfast.core.errors import BadInput
from holdfast.core.ids import BootId
from holdfast.core.transitions import RunStatus, TaskStatus
from holdfast.store import Store, Tx
from holdfast.store.boot_proofs import BootProofs
from holdfast.testing import FakeClock
from holdfast.upkeep.projection import Projection
from tests.builders import START, a_boot, a_run, a_task

BOARD = Caller(who="board", scopes=frozenset({READ}))


def ask(store: Store, clock: FakeClock, **params: Any) -> Any:
    gateway = SimpleNamespace(
        store=store, clock=clock, projection=lambda: Projection(BootProofs(None, ""), clock.now())
    )
    method = METHODS["workers.list"]
    asked = msgspec.convert(params, method.params)
    return msgspec.to_builtins(asyncio.run(method.call(gateway, asked, BOARD)))  # type: ignore[arg-type]


def carried(tx: Tx, boot_id: BootId) -> None:
    task = a_task(status=TaskStatus.RUNNING)
    tx.tasks.create(task)
    tx.runs.create(a_run(task, status=RunStatus.RUNNING, claimed_by=boot_id, beat_at=START))


@pytest.fixture
def boots(store: Store) -> list[BootId]:
    ids = [BootId(f"boot_{number}") for number in range(1, 5)]

    def begin(tx: Tx) -> None:
        for number, boot_id in enumerate(ids):
            tx.boots.begin(
                a_boot(
                    id=boot_id,
                    host=f"vineyard-{number % 2}/locks",
                    pid=100 + number,
                    role="gateway" if number == 0 else "worker",
                    task_names=("prune", "water"),
                )
            )
        for boot_id in (ids[0], ids[1], ids[1]):
            carried(tx, boot_id)
        tx.boots.end(ids[3], now=START + timedelta(hours=1))

    store.write_now(begin)
    return ids


def test_each_worker_has_its_place_and_its_runs(store: Store, clock: FakeClock, boots: list[BootId]) -> None:
    found = ask(store, clock)["workers"]

    assert [(one["id"], one["role"], one["host"], one["pid"], one["runs"]) for one in found] == [
        (boots[0], "gateway", "vineyard-0", 100, 1),
        (boots[1], "worker", "vineyard-1", 101, 2),
        (boots[2], "worker", "vineyard-0", 102, 0),
    ]
    assert {one["status"] for one in found} == {"unknown"}
    assert found[0]["taskNames"] == ["prune", "water"]
    assert (found[1]["lastBeatAt"] is None, found[2]["lastBeatAt"]) == (False, None)


def test_ended_workers_come_on_their_own(store: Store, clock: FakeClock, boots: list[BootId]) -> None:
    found = ask(store, clock, which="ended")["workers"]

    assert [(one["id"], one["status"]) for one in found] == [(boots[3], "ended")]


def test_workers_come_in_pages(store: Store, clock: FakeClock, boots: list[BootId]) -> None:
    first = ask(store, clock, limit=2)
    second = ask(store, clock, limit=2, pageToken=first["nextPageToken"])

    assert [one["id"] for one in first["workers"] + second["workers"]] == boots[:3]
    assert second["nextPageToken"] is None


def test_another_lists_token_is_refused(store: Store, clock: FakeClock) -> None:
    with pytest.raises(BadInput, match="page token"):
        ask(store, clock, pageToken="tsk_1")
