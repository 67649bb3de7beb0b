"""The page "It does not go on: what now?": every row is brought about, shown, and helped as the page says."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import socket
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest

import holdfast as hf
from holdfast.cli import gateway
from holdfast.core.clock import SystemClock
from holdfast.core.delivery import Delivery
from holdfast.core.payload import encode_payload
from holdfast.core.run import Queue
from holdfast.core.task import Failure, Origin
from holdfast.core.transitions import CheckpointStatus, DeliveryStatus, RunStatus, TaskStatus
from holdfast.engine.claims.boots import Life, waits_for_boot
from holdfast.engine.claims.claims import NEVER
from holdfast.engine.clocks import jump_facts
from holdfast.engine.clocks.jump_watch import ClockWatch
from holdfast.store import Store
from holdfast.testing import FakeClock
from tests.api.stand_in import served_doors
from tests.builders import (
    a_checkpoint,
    a_delivery,
    a_run,
    a_task,
    put,
    stored_run,
)
from tests.doors import waiting_tasks
from tests.doors.calls import Opens, Run
from tests.doors.test_flows import blocked_flow
from tests.doors.test_store import an_older_database
from tests.doors.test_tasks import damage
from tests.doors.waiting_page import Row, assert_gone, assert_shown, produces, row_of, rows

pytestmark = pytest.mark.slow

MODULE = "tests.doors.waiting_tasks"
# A task that returns `tides`, as the ledger has it.
TELLS = {"name": "tells", "arguments": encode_payload("arguments", waiting_tasks.tells("tides").arguments)}
T = TypeVar("T")


@pytest.fixture
def row(request: pytest.FixtureRequest) -> Row:
    return row_of(request)


def test_each_row_of_the_page_is_brought_about_and_each_scenario_is_on_the_page() -> None:
    from tests.gateway import test_restart_loop, test_waiting_gateway

    scenarios = {**globals(), **vars(test_restart_loop), **vars(test_waiting_gateway)}.values()
    produced = {one.produces for one in scenarios if hasattr(one, "produces")}

    assert produced == rows().keys()


# --- a worker, and how it is waited for


@pytest.fixture
def mended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "mended"
    monkeypatch.setenv("WAITING_TASKS_MENDED", str(path))
    return path


class Past:
    """A worker on the ledger of the home, long ago: its clock stands still at the start of the year."""

    def __init__(self, home: Path) -> None:
        home.mkdir(mode=0o700, exist_ok=True)
        self._home = home
        self.clock = FakeClock()

    def do(self, act: Callable[[Any], Awaitable[T]], *tasks: hf.TaskDefinition[..., Any]) -> T:
        async def whole() -> T:
            url = f"sqlite:///{self._home / 'ledger.db'}"
            async with hf.open(url, tasks=tasks, clock=self.clock, home=self._home) as opened:
                return await act(opened)

        return asyncio.run(whole())

    def begin(self, call: Any, until: TaskStatus, *, runs: int = 1, questions: int = 0) -> str:
        """A task that a worker carries until it has that status; and so many runs and open questions."""

        async def act(opened: Any) -> str:
            handle = await opened.start(call)
            async with asyncio.timeout(20):
                while not (  # noqa: ASYNC110 - what changes is the ledger
                    await handle.status() is until
                    and len(await opened.store.read(lambda tx: tx.runs.of_task(handle.id))) >= runs
                    and len(await opened.questions()) >= questions
                ):
                    await asyncio.sleep(0.005)
            return str(handle.id)

        return self.do(act, *waiting_tasks.ALL)


@pytest.fixture
def past(home: Path, mended: Path) -> Past:
    return Past(home)


def carry_on(run: Run, task_id: str, name: str) -> str:
    """A worker of today takes it up, and it succeeds; what it returned."""
    called = run("run", "--resume", task_id, f"{MODULE}:{name}")
    assert called.status == 0, called
    assert run("tasks", "show", task_id, "--json").json["task"]["status"] == "succeeded"
    return called.out.strip()


# --- what a person decides


@produces("reviews 1 effect")
def test_a_review(run: Run, row: Row, past: Past) -> None:
    task_id = past.begin(waiting_tasks.pays(), TaskStatus.NEEDS_REVIEW)
    assert_shown(run, row)
    (found,) = run("reviews", "list", "--json").json["reviews"]

    assert (
        run(*row.command("reviews resolve", EFFECT=found["effect"]["id"]), "--result", '"paid"').status == 0
    )

    assert carry_on(run, task_id, "pays") == "paid"
    assert_gone(run, row)


@produces("reviews 1 effect")
def test_an_effect_that_does_not_fit_the_program_any_more(run: Run, row: Row, past: Past) -> None:
    task_id = past.begin(waiting_tasks.shifts(), TaskStatus.WAITING)
    past.clock.advance(hours=9)

    async def until_reviewed(opened: Any) -> None:
        while not await opened.reviews():  # noqa: ASYNC110 - of a ledger
            await asyncio.sleep(0.005)

    past.do(until_reviewed, waiting_tasks.edited_shifts())
    assert_shown(run, row)
    (found,) = run("reviews", "list", "--json").json["reviews"]

    assert run(*row.command("reviews resolve", EFFECT=found["effect"]["id"]), "--result", "5").status == 0

    said = past.do(lambda opened: opened.handle(task_id).result(timeout=20), waiting_tasks.edited_shifts())
    assert said == "5"
    assert_gone(run, row)


@produces("questions 1 question")
@pytest.mark.parametrize(
    ("name", "answer", "result"),
    [("asks", "red", "red"), ("spends", "go on", "3"), ("despairs", "retry", "mended")],
)
def test_a_question(
    run: Run, row: Row, past: Past, mended: Path, name: str, answer: str, result: str
) -> None:
    task_id = past.begin(getattr(waiting_tasks, name)(), TaskStatus.WAITING)
    assert_shown(run, row)
    (question,) = run("questions", "list", "--json").json["questions"]
    mended.touch()

    command = row.command("questions answer", QUESTION=question["id"], ANSWER=shlex.quote(answer))
    assert run(*command).status == 0

    assert carry_on(run, task_id, name) == result
    assert_gone(run, row)


# --- what comes by itself, or from another task


@produces("waiting 1 for mail")
def test_mail(run: Run, row: Row, past: Past) -> None:
    task_id = past.begin(waiting_tasks.reads(), TaskStatus.WAITING)
    assert_shown(run, row)

    assert "handle.send(topic, …)" in row.helps
    past.do(lambda opened: opened.handle(task_id).send("post", "a letter"))

    assert carry_on(run, task_id, "reads") == "a letter"
    assert_gone(run, row)


@produces("waiting 1 for its time")
@pytest.mark.parametrize("name", ["sleeps", "is_limited"])
def test_a_time(run: Run, row: Row, past: Past, mended: Path, name: str) -> None:
    task_id = past.begin(getattr(waiting_tasks, name)(), TaskStatus.WAITING)
    assert_shown(run, row)
    shown = run(*row.command("tasks show", ID=task_id))
    assert "sleeps until 2026-01-01" in shown.out
    mended.touch()

    # By the clock of the command it is over long since.
    assert carry_on(run, task_id, name) in ("awake", "patient")
    assert_gone(run, row)


@produces("waiting 1 for the next attempt")
def test_a_next_attempt(
    run: Run, row: Row, past: Past, mended: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    past.clock.set(SystemClock().now())
    task_id = past.begin(waiting_tasks.tries(), TaskStatus.QUEUED, runs=2)
    assert_shown(run, row)
    assert "it is retried at" in run(*row.command("tasks show", ID=task_id)).out
    mended.touch()

    past.clock.advance(hours=3)
    past.do(lambda opened: opened.handle(task_id).result(timeout=20), waiting_tasks.tries)

    assert run("tasks", "show", task_id, "--json").json["task"]["status"] == "succeeded"
    assert_gone(run, row)


@produces("waiting 1 for a child")
def test_a_child(run: Run, row: Row, past: Past) -> None:
    task_id = past.begin(waiting_tasks.awaits(), TaskStatus.WAITING, questions=1)
    assert_shown(run, row)
    shown = run(*row.command("tasks show", ID=task_id), "--json").json
    child = shown["waitsFor"]["subjectId"]
    (question,) = run("tasks", "show", child, "--json").json["questions"]

    run("questions", "answer", question["id"], "blue")

    assert carry_on(run, task_id, "awaits") == "blue"
    assert_gone(run, row)


@produces("waiting 1 for its children")
def test_children(run: Run, row: Row, past: Past) -> None:
    task_id = past.begin(waiting_tasks.leaves(), TaskStatus.WAITING, questions=1)
    assert_shown(run, row)
    (child,) = run(*row.command("tasks show", ID=task_id), "--json").json["children"]
    (question,) = run("tasks", "show", child["id"], "--json").json["questions"]

    run("questions", "answer", question["id"], "blue")

    assert carry_on(run, task_id, "leaves") == "left"
    assert_gone(run, row)


@produces("waiting 1 for the end of a boot")
def test_the_end_of_a_boot(run: Run, row: Row, ledger: Opens, home: Path, clock: FakeClock) -> None:
    with ledger() as store:
        life = asyncio.run(Life.begin(store, clock, locks=home / "elsewhere"))
        waits_on = waits_for_boot(life.id)
        task = TELLS | {"waits_on": waits_on}
        task_id = stored_run(store, RunStatus.WAITING, task=task, waits_on=waits_on, due_at=NEVER).task_id
        assert_shown(run, row)

        asyncio.run(life.end())

    assert carry_on(run, task_id, "tells") == "tides"
    assert_gone(run, row)


# --- who carries it


@produces("waiting 1 for a worker that knows it")
def test_no_worker_knows_it(run: Run, row: Row, past: Past) -> None:
    task_id = past.do(lambda opened: _started(opened, waiting_tasks.tells("tides")))
    assert_shown(run, row)
    assert f"holdfast run --resume {task_id} MODULE:tells" in run("tasks", "show", task_id).out

    called = run(*row.command("run --resume", ID=task_id, **{"MODULE:TASK": f"{MODULE}:tells"}))

    assert (called.status, called.out) == (0, "tides\n")
    assert_gone(run, row)


async def _started(opened: Any, call: Any) -> str:
    return str((await opened.start(call)).id)


@produces("waiting 1 for an idle worker")
def test_a_suspect(run: Run, row: Row, ledger: Opens) -> None:
    with ledger() as store:
        task_id = stored_run(store, task=TELLS, is_alone=True, idle_attempts=2).task_id
    assert_shown(run, row)

    called = run(*row.command("run --resume", ID=task_id, **{"MODULE:TASK": f"{MODULE}:tells"}))

    assert (called.status, called.out) == (0, "tides\n")
    assert_gone(run, row)


@produces("waiting 1 for the program that runs it")
def test_a_producer(run: Run, row: Row, ledger: Opens) -> None:
    with ledger() as store:
        task_id = stored_run(store, queue=Queue.PRODUCER).task_id
    assert_shown(run, row)

    assert run(*row.command("tasks cancel", ID=task_id)).status == 0

    assert_gone(run, row)


@produces("waiting 1 for a resume")
def test_a_resume(run: Run, row: Row, past: Past, mended: Path) -> None:
    # The worker ends in order while it is at work, which pauses it.
    task_id = past.begin(waiting_tasks.stops(), TaskStatus.RUNNING)
    assert_shown(run, row)
    mended.touch()

    called = run(*row.command("run --resume", ID=task_id, **{"MODULE:TASK": f"{MODULE}:stops"}))

    assert called.status == 0
    assert_gone(run, row)


@produces("held the database is older …")
def test_an_older_database(run: Run, row: Row, ledger: Opens, home: Path) -> None:
    an_older_database(ledger, home)
    assert_shown(run, row)

    assert run(*row.command("store accept")).status == 0

    assert_gone(run, row)


# --- what has ended


@produces("failed 1 task in the last day")
@pytest.mark.parametrize("status", [TaskStatus.FAILED, TaskStatus.TIMED_OUT, TaskStatus.LOST])
def test_a_failure(run: Run, row: Row, past: Past, ledger: Opens, mended: Path, status: TaskStatus) -> None:
    past.clock.set(SystemClock().now())
    if status is TaskStatus.FAILED:
        name, task_id = "breaks", past.begin(waiting_tasks.breaks(), status)
    else:
        with ledger() as store:
            task = TELLS | {"ended_at": past.clock.now()}
            name, task_id = "tells", stored_run(store, RunStatus(status), task=task).task_id
    assert_shown(run, row)
    mended.touch()

    assert run(*row.command("tasks retry", ID=task_id)).status == 0

    assert carry_on(run, task_id, name) in ("mended", "tides")
    assert_gone(run, row)


@produces("failed 1 task in the last day")
def test_a_record_that_was_damaged(run: Run, row: Row, past: Past, home: Path) -> None:
    past.clock.set(SystemClock().now() - timedelta(hours=9))
    task_id = past.begin(waiting_tasks.shifts(), TaskStatus.WAITING)
    shutil.copy(home / "ledger.db", home / "backup.db")
    damage(home, "UPDATE steps SET result = x'00'")
    past.clock.advance(hours=9)
    with pytest.raises(hf.TaskFailed, match="damaged"):
        past.do(lambda opened: opened.handle(task_id).result(timeout=20), waiting_tasks.shifts)
    assert_shown(run, row)
    assert "row_damaged: step" in run(*row.command("tasks show", ID=task_id)).out
    damage(home, f"ATTACH '{home / 'backup.db'}' AS backup; {_RESTORE}")

    assert run(*row.command("tasks retry", ID=task_id)).status == 0

    assert carry_on(run, task_id, "shifts") == "round"
    assert_gone(run, row)


@produces("failed 1 task in the last day")
def test_a_key_that_is_lost(run: Run, row: Row, past: Past, home: Path) -> None:
    past.clock.set(SystemClock().now())
    secret = "ghp_" + "C4n4ry" * 6
    task_id = past.do(lambda opened: _started(opened, waiting_tasks.tells(secret)))
    other_id = past.do(lambda opened: _started(opened, waiting_tasks.tells("tides")))
    (home / "key").unlink()
    assert run("store", "rekey", "--lost", "--yes").status == 0

    assert run("run", "--resume", task_id, f"{MODULE}:tells").status == 1

    assert_shown(run, row)
    assert "key_lost" in run(*row.command("tasks show", ID=task_id)).out
    assert carry_on(run, other_id, "tells") == "tides"


_RESTORE = (
    "UPDATE steps SET result = (SELECT result FROM backup.steps AS kept WHERE kept.task_id = steps.task_id "
    "AND kept.name = steps.name)"
)


@produces("failed 1 resume")
def test_a_failed_resume(run: Run, row: Row, ledger: Opens) -> None:
    with ledger() as store:
        failure = Failure(kind="failed_resume", message="its process died", facts={"why": "quarantined"})
        task = a_task(**TELLS, status=TaskStatus.FAILED, failure=failure)
        failed = a_run(task, status=RunStatus.FAILED_RESUME, failure=failure)
        checkpoint = a_checkpoint(failed, status=CheckpointStatus.FAILED_RESUME)
        store.write_now(lambda tx: put(tx, task, failed, checkpoints=(checkpoint,)))
    assert_shown(run, row)
    assert run(*row.command("checkpoints show", CHECKPOINT=checkpoint.id)).status == 0

    assert run(*row.command("checkpoints retry", CHECKPOINT=checkpoint.id)).status == 0

    assert carry_on(run, task.id, "tells") == "tides"
    assert_gone(run, row)


@produces("tasks 1 cancelled")
def test_a_cancelled_task(run: Run, row: Row, past: Past) -> None:
    task_id = past.do(lambda opened: _started(opened, waiting_tasks.tells("tides")))
    run("tasks", "cancel", task_id)
    assert_shown(run, row)

    assert run(*row.command("tasks retry", ID=task_id)).status == 0

    assert carry_on(run, task_id, "tells") == "tides"
    assert_gone(run, row)


# --- what goes out


def kept(store: Store, **changes: Any) -> Delivery:
    delivery = a_delivery(origin=Origin(channel="hook", peer="ada"), **changes)
    store.write_now(lambda tx: tx.deliveries.create(delivery))
    return delivery


@produces("blocked 1 flow")
def test_a_flow_that_a_node_blocks(run: Run, row: Row, ledger: Opens) -> None:
    with ledger() as store:
        flow_id = blocked_flow(store)
    assert_shown(run, row)

    assert run(*row.command("tasks flow retry", FLOW=flow_id)).status == 0

    assert_gone(run, row)


@produces("undelivered 1 message")
def test_a_message_that_was_given_up(run: Run, row: Row, ledger: Opens) -> None:
    with ledger() as store:
        failure = Failure(kind="refused", message="no such peer")
        delivery = kept(store, status=DeliveryStatus.FAILED, attempts=3, failure=failure)
    assert_shown(run, row)

    assert run(*row.command("deliveries retry", DELIVERY=delivery.id)).status == 0

    assert_gone(run, row)
    assert rows()["to deliver 1 message"].is_in(run("status"))


@produces("to deliver 1 message")
def test_a_message_that_is_owed(run: Run, row: Row, ledger: Opens) -> None:
    with ledger() as store:
        delivery = kept(store, attempts=3)
    assert_shown(run, row)

    assert run(*row.command("deliveries dismiss", DELIVERY=delivery.id)).status == 0

    assert_gone(run, row)


# --- what all work needs


@produces("key …")
def test_a_key_that_is_gone(run: Run, row: Row, past: Past, home: Path, tmp_path: Path) -> None:
    secret = "ghp_" + "C4n4ry" * 6
    task_id = past.do(lambda opened: _started(opened, waiting_tasks.tells(secret)))
    shutil.move(home / "key", tmp_path / "kept.key")
    assert_shown(run, row)

    assert run(*row.command("store key import", FILE=str(tmp_path / "kept.key"))).status == 0

    assert carry_on(run, task_id, "tells") == secret
    assert_gone(run, row)


@produces("clock the wall clock jumped …")
def test_a_clock_that_jumped(run: Run, row: Row, ledger: Opens, monkeypatch: pytest.MonkeyPatch) -> None:
    passed = jump_facts.boottime_us
    monkeypatch.setattr(jump_facts, "machine_boot", lambda: "boot 1")
    with ledger() as store:
        asyncio.run(ClockWatch(store, SystemClock(), machine="boot 1").firing_time())
    with monkeypatch.context() as patch:
        patch.setattr(jump_facts, "boottime_us", lambda: passed() - 3_600_000_000)
        assert_shown(run, row)
        assert "timedatectl set-ntp true" in run(*row.command("doctor")).out

    assert_gone(run, row)


@produces("ledger …")
def test_a_ledger_that_cannot_be_read(run: Run, row: Row, past: Past, home: Path) -> None:
    task_id = past.do(lambda opened: _started(opened, waiting_tasks.tells("tides")))
    shutil.move(home / "ledger.db", home / "away.db")
    (home / "ledger.db").write_bytes(b"no database at all" * 1000)
    assert_shown(run, row)
    assert run("status").status == 1
    assert run(*row.command("doctor")).status == 1

    shutil.move(home / "away.db", home / "ledger.db")

    assert carry_on(run, task_id, "tells") == "tides"
    assert_gone(run, row)


@produces("gateway not answering: …")
def test_a_gateway_that_says_nothing(
    run: Run, row: Row, ledger: Opens, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "PATIENCE_S", 0.1)
    with ledger() as store:
        stored_run(store)
    with socket.socket(socket.AF_UNIX) as listening:  # as the supervisor's, while its gateway stands still
        listening.bind(str(home / "gateway.sock"))
        listening.listen()
        assert_shown(run, row)
        assert run(*row.command("doctor")).status == 0
    (home / "gateway.sock").unlink()

    with served_doors(home):
        assert_gone(run, row)
