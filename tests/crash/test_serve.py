"""`holdfast.serve` in processes of their own: real signals in the midst of steps and effects."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.transitions import RunStatus, TaskStatus
from holdfast.engine.worker.worker import Worker
from holdfast.gateway import serving
from tests.crash.invariants import assert_ledger_is_whole
from tests.crash.ledger_address import LedgerAddress
from tests.crash.processes import Pipe, assert_ended_well, fork
from tests.servers import PostgresServer

pytestmark = pytest.mark.slow

AGENTS, EFFECTS, STOPS = 8, 6, 4
# For what is about signals and the end of a process: what it writes then is tested on both.
on_a_file = pytest.mark.parametrize("place", ["sqlite"], indirect=True)


class NotesOnDisk:
    """The outside world: a file that every process appends to, and doors that are files."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._log = home / "world.log"

    def note(self, text: str) -> None:
        with self._log.open("a") as log:
            log.write(f"{text}\n")

    def notes(self) -> Counter[str]:
        return Counter(self._log.read_text().split("\n")[:-1] if self._log.exists() else ())

    def open_door(self) -> None:
        (self._home / "door").touch()

    async def door(self) -> None:
        while not (self._home / "door").exists():  # noqa: ASYNC110 - another process opens it
            await asyncio.sleep(0.005)


def tasks_of(world: NotesOnDisk, out: Pipe | None) -> list[hf.TaskDefinition[..., Any]]:
    def say(text: str) -> None:
        if out is not None:
            out.say(text)

    async def look(text: str) -> str:
        world.note(f"step {text}")
        return text

    async def wait_at_door() -> None:
        say("waiting")
        await world.door()

    @hf.opaque
    async def pay() -> str:
        world.note("pay begun")
        say("paying")
        await world.door()
        world.note("pay done")
        return "paid"

    @hf.opaque
    async def act(agent: int, number: int) -> int:
        await asyncio.sleep(0.01)
        world.note(f"effect {agent} {number}")
        return number

    def grind() -> None:
        say("grinding")
        time.sleep(3600)

    @hf.task
    async def steps(run: hf.Run) -> str:
        await run.step(hf.step(look, id="1"), "1")
        await run.step(wait_at_door)
        return await run.step(hf.step(look, id="2"), "2")

    @hf.task
    async def shop(run: hf.Run) -> str:
        return await run.step(pay)

    @hf.task
    async def agent(run: hf.Run, number: int) -> int:
        done = 0
        for place in range(EFFECTS):
            done += await run.step(hf.step(act, id=str(place)), number, place)
        say("agent")
        return done

    @hf.task
    async def upgrade(run: hf.Run) -> str:
        await run.step(hf.step(look, id="1"), "before the restart")
        await run.requires_restart("new code is there")
        await run.step(hf.step(look, id="2"), "after the restart")
        return "upgraded"

    @hf.task
    async def mill(run: hf.Run) -> None:
        await run.step(grind)

    @hf.task
    async def blocker(run: hf.Run) -> None:
        try:
            say("waiting")
            await asyncio.sleep(3600)
        finally:
            time.sleep(3600)  # noqa: ASYNC251 - the loop itself stands still: that is the test

    return [steps, shop, agent, upgrade, mill, blocker]


def serve(
    place: LedgerAddress, out: Pipe, world: NotesOnDisk, drain_timeout: float, prepare: Callable[[], None]
) -> None:
    prepare()
    say_when_told(out)
    known = tasks_of(world, out)
    stopped = asyncio.run(hf.serve(place.url, tasks=known, home=place.home, drain_timeout=drain_timeout))
    out.say(f"stopped by {stopped.why}, {'restart' if stopped.wants_restart else 'end'}")


def say_when_told(out: Pipe) -> None:
    stop = Worker.stop

    def stop_and_say(worker: Worker, *reason: Any) -> None:
        stop(worker, *reason)
        out.say("told")

    Worker.stop = stop_and_say  # type: ignore[method-assign, assignment]


def say_when_ready(out: Pipe) -> None:
    """Signals are heard by then: before, one ends the process at once."""
    run = Worker.run

    async def say_and_run(worker: Worker) -> None:
        out.say("ready")
        await run(worker)

    Worker.run = say_and_run  # type: ignore[method-assign, assignment]


class Server:
    """A process that serves, started and heard."""

    def __init__(
        self,
        place: LedgerAddress,
        world: NotesOnDisk,
        *,
        drain_timeout: float = 30.0,
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        self.out = Pipe()
        self.pid = fork(partial(serve, place, self.out, world, drain_timeout, prepare))
        self.out.only_hear()

    def hear(self) -> str:
        return self.out.hear()

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def tell(self, number: int) -> None:
        """The same, and it has heard it."""
        self.signal(number)
        while self.hear() != "told":
            pass

    def end(self) -> str:
        """What it said last; it has ended well."""
        last = ""
        while said := self.hear():
            last = said
        assert_ended_well(self.pid)
        self.out.close()
        return last

    def status(self) -> int:
        _, status = os.waitpid(self.pid, 0)
        self.out.close()
        return os.waitstatus_to_exitcode(status)


@pytest.fixture
def world(quick_path: Path) -> NotesOnDisk:
    return NotesOnDisk(quick_path)


def start(place: LedgerAddress, world: NotesOnDisk, *names: str) -> list[str]:
    """The ids of tasks that were started, by a process of their own."""
    return start_calls(place, world, lambda known: [known[name]() for name in names])


def start_agents(place: LedgerAddress, world: NotesOnDisk) -> list[str]:
    return start_calls(place, world, lambda known: [known["agent"](number) for number in range(AGENTS)])


Known = dict[str, hf.TaskDefinition[..., Any]]


def start_calls(
    place: LedgerAddress, world: NotesOnDisk, calls: Callable[[Known], list[hf.Call[Any]]]
) -> list[str]:
    out = Pipe()

    async def begin() -> None:
        known = {task.name: task for task in tasks_of(world, None)}
        async with hf.open(place.url, home=place.home) as holdfast:
            handles = await holdfast.start_many(calls(known))
        out.say(" ".join(handle.id for handle in handles))

    child = fork(lambda: asyncio.run(begin()))
    ids = out.only_hear().hear().split()
    assert_ended_well(child)
    out.close()
    return ids


def look(place: LedgerAddress, check: Callable[[hf.Holdfast], Any]) -> None:
    """Look at the ledger in a process of its own; an assertion that fails there fails here."""

    async def whole() -> None:
        async with hf.open(place.url, home=place.home) as holdfast:
            await check(holdfast)

    assert_ended_well(fork(lambda: asyncio.run(whole())))


def finish(place: LedgerAddress, world: NotesOnDisk, ids: list[str]) -> None:
    """A next process that works until these have ended, and is stopped then."""

    async def until_all_have_ended(holdfast: hf.Holdfast) -> None:
        for task_id in ids:
            await holdfast.handle(task_id).result()

    server = Server(place, world)
    look(place, until_all_have_ended)
    server.signal(signal.SIGTERM)
    assert server.end() == "stopped by SIGTERM, end"


async def nothing_to_review(holdfast: hf.Holdfast) -> None:
    assert await holdfast.reviews() == []


def statuses(place: LedgerAddress, task_id: str, expected: list[RunStatus]) -> None:
    async def check(holdfast: hf.Holdfast) -> None:
        runs = await holdfast.store.read(lambda tx: tx.runs.of_task(task_id))
        assert [run.status for run in runs] == expected

    look(place, check)


@pytest.mark.parametrize(
    ("place", "number"),
    [("sqlite", signal.SIGTERM), ("postgres", signal.SIGTERM), ("sqlite", signal.SIGINT)],
    indirect=["place"],
)
def test_a_signal_in_the_midst_of_a_step_pauses_the_run_and_the_next_process_goes_on(
    place: LedgerAddress, world: NotesOnDisk, number: signal.Signals
) -> None:
    (task_id,) = start(place, world, "steps")
    server = Server(place, world)
    assert server.hear() == "waiting"
    server.tell(number)
    world.open_door()

    assert server.end() == f"stopped by {number.name}, end"
    statuses(place, task_id, [RunStatus.PAUSED_FOR_RESTART])
    finish(place, world, [task_id])
    statuses(place, task_id, [RunStatus.RESUMED, RunStatus.SUCCEEDED])
    assert world.notes() == {"step 1": 1, "step 2": 1}


def test_a_signal_in_the_midst_of_an_effect_waits_for_it_so_no_person_is_asked(
    place: LedgerAddress, world: NotesOnDisk
) -> None:
    (task_id,) = start(place, world, "shop")
    server = Server(place, world)
    assert server.hear() == "paying"
    server.tell(signal.SIGTERM)
    world.open_door()

    assert server.end() == "stopped by SIGTERM, end"
    look(place, nothing_to_review)
    finish(place, world, [task_id])
    look(place, nothing_to_review)
    assert world.notes() == {"pay begun": 1, "pay done": 1}


@on_a_file
def test_a_second_signal_is_obeyed_at_once(place: LedgerAddress, world: NotesOnDisk) -> None:
    (task_id,) = start(place, world, "steps")
    server = Server(place, world, drain_timeout=3600.0)
    assert server.hear() == "waiting"
    server.tell(signal.SIGTERM)
    server.signal(signal.SIGINT)

    assert server.end() == "stopped by SIGINT, end"
    statuses(place, task_id, [RunStatus.PAUSED_FOR_RESTART])
    world.open_door()
    finish(place, world, [task_id])
    assert world.notes() == {"step 1": 1, "step 2": 1}


@on_a_file
def test_an_idle_process_stops_at_once(place: LedgerAddress, world: NotesOnDisk) -> None:
    (task_id,) = start(place, world, "shop")
    world.open_door()
    server = Server(place, world)

    async def until_done(holdfast: hf.Holdfast) -> None:
        assert await holdfast.handle(task_id).result() == "paid"

    look(place, until_done)
    server.signal(signal.SIGTERM)

    assert server.end() == "stopped by SIGTERM, end"


@on_a_file
def test_sigusr1_asks_for_a_restart(place: LedgerAddress, world: NotesOnDisk) -> None:
    (task_id,) = start(place, world, "steps")
    server = Server(place, world)
    assert server.hear() == "waiting"
    server.tell(signal.SIGUSR1)
    world.open_door()

    assert server.end() == "stopped by SIGUSR1, restart"
    finish(place, world, [task_id])


def test_a_run_that_needs_a_restart_gets_it_and_goes_on_afterwards(
    place: LedgerAddress, world: NotesOnDisk
) -> None:
    (task_id,) = start(place, world, "upgrade")
    server = Server(place, world)

    assert server.end() == "stopped by new code is there, restart"
    assert world.notes() == {"step before the restart": 1}
    finish(place, world, [task_id])
    assert world.notes() == {"step before the restart": 1, "step after the restart": 1}


@on_a_file
def test_a_function_in_a_thread_does_not_keep_the_process_from_ending(
    place: LedgerAddress, world: NotesOnDisk
) -> None:
    (task_id,) = start(place, world, "mill")
    server = Server(place, world, drain_timeout=0.3)
    assert server.hear() == "grinding"
    server.signal(signal.SIGTERM)

    assert server.end() == "stopped by SIGTERM, end"
    statuses(place, task_id, [RunStatus.PAUSED_FOR_RESTART])


def be_impatient() -> None:
    serving.SLACK_S = 0.0
    Worker.longest_stop_s = property(lambda _worker: 1.0)  # type: ignore[assignment, method-assign]


@on_a_file
def test_a_drain_that_is_stuck_is_ended_by_force_and_what_it_carried_is_paused(
    place: LedgerAddress, world: NotesOnDisk
) -> None:
    (task_id,) = start(place, world, "blocker")
    server = Server(place, world, drain_timeout=0.1, prepare=be_impatient)
    assert server.hear() == "waiting"
    server.signal(signal.SIGTERM)

    assert server.status() == serving.STUCK
    statuses(place, task_id, [RunStatus.PAUSED_FOR_RESTART])


def test_drained_again_and_again_every_effect_is_done_once_and_no_person_is_asked(
    place: LedgerAddress, world: NotesOnDisk, seed: int
) -> None:
    chance = random.Random(seed)
    ids = start_agents(place, world)
    for _ in range(STOPS):
        ready = Pipe()
        server = Server(place, world, prepare=partial(say_when_ready, ready))
        assert ready.only_hear().hear() == "ready"
        ready.close()
        time.sleep(chance.uniform(0.0, 0.12))  # a random moment: that is the test
        server.signal(chance.choice([signal.SIGTERM, signal.SIGINT, signal.SIGUSR1]))
        server.end()
    finish(place, world, ids)

    look(place, nothing_to_review)
    assert world.notes() == {
        f"effect {agent} {number}": 1 for agent in range(AGENTS) for number in range(EFFECTS)
    }
    look(place, ledger_is_whole)


def test_processes_that_share_a_ledger_carry_every_run_once(place: LedgerAddress, world: NotesOnDisk) -> None:
    ids = start_agents(place, world)
    servers = [Server(place, world) for _ in range(3)]

    async def until_all_have_ended(holdfast: hf.Holdfast) -> None:
        for task_id in ids:
            await holdfast.handle(task_id).result()

    look(place, until_all_have_ended)
    for server in servers:
        server.signal(signal.SIGTERM)
        server.end()

    assert world.notes() == {
        f"effect {agent} {number}": 1 for agent in range(AGENTS) for number in range(EFFECTS)
    }
    look(place, ledger_is_whole)


async def ledger_is_whole(holdfast: hf.Holdfast) -> None:
    assert_ledger_is_whole(holdfast.store, is_at_rest=True)


# --- a server that is restarted


@pytest.fixture
def database(tmp_path: Path) -> Iterator[PostgresServer]:
    with PostgresServer.start(tmp_path / "postgres") as server:
        yield server


def test_a_database_that_is_restarted_costs_a_moment_and_nothing_else(
    database: PostgresServer, quick_path: Path, world: NotesOnDisk
) -> None:
    place = LedgerAddress(url=database.create_database(), home=quick_path)
    (task_id,) = start(place, world, "steps")
    server = Server(place, world)
    assert server.hear() == "waiting"
    database.stop("fast")
    world.open_door()
    database.start_again()

    async def until_done(holdfast: hf.Holdfast) -> None:
        handle = holdfast.handle(task_id)
        assert await handle.result() == "2"
        assert await handle.status() is TaskStatus.SUCCEEDED

    look(place, until_done)
    server.signal(signal.SIGTERM)
    assert server.end() == "stopped by SIGTERM, end"
    assert world.notes() == {"step 1": 1, "step 2": 1}
