"""The runtimes of Holdfast that stop recorded work and prove it alive."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from holdfast.core.errors import BadInput
from holdfast.core.transitions import TaskStatus
from holdfast.engine.ledger.ledger import Cancelled, Ledger, NewTask
from holdfast.engine.producers.contract import Alive, Dead, NotMine, Runtime
from holdfast.engine.producers.producers import Producers
from holdfast.engine.producers.stopper import Stopper
from holdfast.engine.producers.writes import NewRecord
from holdfast.runtimes.cli import CliRuntime, pid_reference
from holdfast.runtimes.subagent import SubagentRuntime
from holdfast.testing import FakeClock
from holdfast.testing.stores import memory_store
from tests.builders import a_session


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    yield child
    child.kill()
    child.wait()


@pytest.mark.slow
async def test_a_process_is_alive_until_a_cancel_terminates_it(sleeper: subprocess.Popen[bytes]) -> None:
    clock, runtime = FakeClock(), CliRuntime()
    producers = Producers(memory_store(clock), clock, runtimes=[runtime])
    reference = pid_reference(sleeper.pid)
    new = NewRecord(name="build", goal="build it", owner="ada", runtime="cli", reference=reference)
    work = await producers.create(new, is_running=True)

    before = await runtime.is_alive(work)
    outcome = await producers.cancel(work.run.id, reason="too slow")
    status = sleeper.wait(timeout=30)
    after = await runtime.is_alive(work)

    assert before == Alive()
    assert isinstance(outcome, Cancelled)
    assert status == -signal.SIGTERM
    assert isinstance(after, Dead)


async def test_a_later_process_with_the_same_id_is_never_signalled() -> None:
    clock, runtime = FakeClock(), CliRuntime()
    producers = Producers(memory_store(clock), clock, runtimes=[runtime])
    pid, started, kernel = pid_reference(os.getpid()).replace("@", ":").split(":")[1:]
    earlier = f"pid:{pid}:{int(started) - 1}@{kernel}"
    elsewhere = f"pid:{pid}:{started}@0000"
    works = [
        await producers.create(
            NewRecord(name="build", goal="build it", owner="ada", runtime="cli", reference=reference),
            is_running=True,
        )
        for reference in (earlier, elsewhere)
    ]

    lives = [await runtime.is_alive(work) for work in works]
    for work in works:
        await producers.cancel(work.run.id, reason="too slow")

    assert isinstance(lives[0], Dead)
    assert lives[1] == NotMine()
    with pytest.raises(BadInput):
        pid_reference(2**22 + 1)


async def test_a_cancelled_subagent_takes_the_other_work_of_its_session_with_it() -> None:
    clock = FakeClock()
    store = memory_store(clock)
    runtimes: list[Runtime] = [CliRuntime(), SubagentRuntime(store, Ledger(store, clock))]
    producers = Producers(store, clock, runtimes=runtimes)
    mine, other, theirs = [
        await producers.create(
            NewRecord(
                name=name,
                goal="dig",
                owner=owner,
                runtime=runtime,
                session_key="agent:ada:main",
                child_session_key="agent:ada:sub",
            ),
            is_running=True,
        )
        for name, owner, runtime in (
            ("dig", "ada", "subagent"),
            ("build", "ada", "cli"),
            ("spy", "eve", "cli"),
        )
    ]

    await producers.cancel(mine.run.id, reason="enough")
    await Stopper(store, clock, lambda: runtimes).run_once()

    found = [(await producers.get(one.run.id)).task.status for one in (mine, other, theirs)]
    assert found == [TaskStatus.CANCELLED, TaskStatus.CANCELLED, TaskStatus.RUNNING]


@pytest.mark.parametrize(
    ("parent", "status"), [("agent:ada:main", "cancelled"), ("agent:eve:main", "queued")]
)
async def test_a_cancelled_subagent_takes_the_tasks_of_its_own_child_session_with_it(
    parent: str, status: str
) -> None:
    clock = FakeClock()
    store, child = memory_store(clock), "agent:ada:sub"
    runtimes: list[Runtime] = [SubagentRuntime(store, Ledger(store, clock))]
    store.write_now(lambda tx: tx.sessions.create(a_session(key=child, agent="ada", parent_key=parent)))
    own = await Ledger(store, clock).create(NewTask(name="think", goal="think", owner=child))
    producers = Producers(store, clock, runtimes=runtimes)
    subagent = await producers.create(
        NewRecord(
            name="dig",
            goal="dig",
            owner="agent:ada:main",
            runtime="subagent",
            session_key="agent:ada:main",
            child_session_key=child,
        ),
        is_running=True,
    )

    lives = await runtimes[0].is_alive(subagent)
    await producers.cancel(subagent.run.id, reason="enough")

    assert isinstance(lives, Alive) is (status == "cancelled")
    assert store.read_now(lambda tx: tx.tasks.get(own.id)).status == status
