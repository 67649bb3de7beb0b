"""The demo: the proof holds after a real kill on both databases, and fails when the ledger says otherwise."""

from __future__ import annotations

import os
import signal
import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import Refused
from holdfast.core.transitions import EffectStatus, RunStatus, TaskStatus
from holdfast.demo.process import BEGUN
from holdfast.demo.proof import prove
from holdfast.store.sqlite_file import connect
from holdfast.store.sqlite_reader import SqliteReader
from tests.builders import START, a_run, a_step, a_task, an_effect, later, put, stored_run
from tests.doors.calls import PROGRAM, Opens, Run, environment, run_process
from tests.servers import PostgresServer


def failing(view: Any) -> list[str]:
    return [line["what"] for line in view["lines"] if not line["holds"]]


@pytest.mark.slow
def test_every_task_goes_on_exactly_once_after_a_kill(home: Path, tmp_path: Path) -> None:
    called = run_process(home, "demo", "--tasks", "60", "--json", TMPDIR=str(tmp_path))

    assert failing(called.json) == []
    assert called.status == 0
    assert called.json["holds"] is True
    assert list(tmp_path.iterdir()) == []
    assert "killed by SIGKILL" in called.err


@pytest.mark.slow
def test_the_same_on_postgresql(home: Path, postgres_server: PostgresServer) -> None:
    url = postgres_server.create_database()

    called = run_process(home, "demo", "--tasks", "60", "--json", "--store", url)

    assert failing(called.json) == []
    assert called.status == 0


@pytest.mark.slow
def test_a_kept_ledger_can_be_looked_at(home: Path, tmp_path: Path) -> None:
    called = run_process(home, "demo", "--tasks", "5", "--keep", TMPDIR=str(tmp_path))

    assert called.status == 0
    assert "proved by the ledger" in called.out
    (kept,) = tmp_path.iterdir()
    assert f"kept: holdfast --home {kept} tasks list" in called.err
    assert run_process(kept, "tasks", "list", "--json").json["counts"] == {"succeeded": 5}


@pytest.mark.slow
def test_a_named_store_may_be_used_again_and_again(home: Path, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'x.db'}"

    for played in (1, 2):
        assert run_process(home, "demo", "--tasks", "5", "--store", store).status == 0
        counts = run_process(home, "tasks", "list", "--json", "--store", store).json["counts"]
        assert counts == {"succeeded": 5 * played}


@pytest.mark.slow
@pytest.mark.parametrize(("sent", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=str)
def test_a_user_that_ends_it_half_way_finds_nothing_left(
    home: Path, tmp_path: Path, sent: signal.Signals, status: int
) -> None:
    process = subprocess.Popen(
        [*PROGRAM, "demo", "--tasks", "50"],
        env=environment(home, TMPDIR=str(tmp_path)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stderr is not None
    child = int(process.stderr.readline().split()[1])

    process.send_signal(sent)

    assert process.wait(timeout=30) == status
    assert process.stderr.read() == ""
    process.stderr.close()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_a_ledger_with_work_in_flight_is_not_played_with(run: Run, ledger: Opens, home: Path) -> None:
    with ledger() as store:
        stored_run(store)

    called = run("demo", "--store", f"sqlite:///{home / 'ledger.db'}")

    assert called.status == 3
    assert "1 tasks in flight" in called.err


def test_two_processes_cannot_share_a_ledger_in_memory(run: Run) -> None:
    assert run("demo", "--store", "memory:").status == 2


def test_the_store_of_the_environment_is_never_played_with(
    run: Run, ledger: Opens, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places: list[object] = []

    def note(place: object, **_: object) -> None:
        places.append(place)
        raise Refused("not now")

    monkeypatch.setenv("HOLDFAST_STORE", f"sqlite:///{home / 'ledger.db'}")
    monkeypatch.setattr("holdfast.cli.demo.kill_and_resume", note)

    assert run("demo").status == 3
    assert places == [None]


# --- the proof itself


def proof_of(home: Path, tasks: int) -> set[str]:
    reader = SqliteReader(home / "ledger.db")
    try:
        proof = prove(reader, owner="ada", tasks=tasks)
    finally:
        reader.close()
    assert not proof.holds
    return {line.what for line in proof.lines if not line.holds}


def test_a_task_that_is_missing_or_stuck_is_seen(ledger: Opens, home: Path) -> None:
    with ledger() as store:
        stored_run(store, RunStatus.RUNNING)

    found = proof_of(home, 2)

    assert {"tasks", "tasks that succeeded", "tasks stuck, failed or lost", "runs still open"} <= found


def test_a_step_that_is_missing_is_seen(ledger: Opens, home: Path) -> None:
    with ledger() as store:
        stored_run(store, RunStatus.SUCCEEDED)

    assert {"steps saved, each once", "steps missing"} <= proof_of(home, 1)


@pytest.mark.parametrize(
    ("begun_at", "is_seen"), [(START, False), (later(seconds=1), True)], ids=["before", "after"]
)
def test_a_step_that_was_begun_after_it_was_saved_is_seen(
    ledger: Opens, home: Path, begun_at: datetime, is_seen: bool
) -> None:
    with ledger() as store:
        run = stored_run(store, RunStatus.SUCCEEDED)
        store.write_now(lambda tx: tx.journal.put_step(a_step(run, name="read")))
        body = b'{"step":"read","pid":7}'
        store.write_now(
            lambda tx: tx.mail.send(run.task_id, topic=BEGUN, body=body, sender="demo", key="1", now=begun_at)
        )

    assert ("steps begun again though saved" in proof_of(home, 1)) is is_seen


def test_an_effect_that_was_begun_twice_is_seen(ledger: Opens, home: Path) -> None:
    with ledger() as store:
        run = stored_run(store, RunStatus.SUCCEEDED)
        effects = [
            an_effect(task_id=run.task_id, run_id=run.id, name="publish", generation=number, status=status)
            for number, status in enumerate([EffectStatus.FAILED, EffectStatus.DONE], start=1)
        ]
        store.write_now(lambda tx: [tx.effects.create(effect) for effect in effects])

    assert "effects in another status" in proof_of(home, 1)


def test_a_run_without_a_follow_up_is_seen(ledger: Opens, home: Path) -> None:
    task = a_task(status=TaskStatus.SUCCEEDED)
    runs = (a_run(task, status=RunStatus.RESUMED), a_run(task, number=2, status=RunStatus.SUCCEEDED))
    with ledger() as store:
        store.write_now(lambda tx: put(tx, task, *runs))

    found = proof_of(home, 1)

    assert {"follow-up runs", "checkpoints resumed", "follow-up runs of one run, at most"} <= found


def test_a_ledger_that_does_not_verify_is_no_proof(ledger: Opens, home: Path) -> None:
    with ledger() as store:
        stored_run(store)
    connection = connect(home / "ledger.db")
    connection.execute("UPDATE counters SET amount = 7")
    connection.close()

    assert "problems found by store verify" in proof_of(home, 1)
