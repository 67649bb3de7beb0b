"""What people and programs are told of a restart: a firing's flag and its schedule, the step, one letter."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.api.tasks import read_detail
from holdfast.channels.webhook import Webhook
from holdfast.config.sections import AgentSettings, ScheduleSettings
from holdfast.core.events import EventKind
from holdfast.core.manifest import InterruptionOutcome
from holdfast.core.message import Role
from holdfast.core.task import Origin, Task
from holdfast.core.transitions import FiringStatus, MessageStatus, RunStatus, TaskStatus
from holdfast.delivery.outbox import Outbox
from holdfast.runtimes.agents import _definition, define
from holdfast.runtimes.contract import AgentInput
from holdfast.schedule.cron import Cron
from holdfast.store import Store
from holdfast.testing import FakeClock
from holdfast.views.gateway import RestartView
from tests.channels.receiver import Receiver
from tests.engine.workers import soon, until
from tests.gateway.gateways import Hosted, config_with, document_of, hosted

NIGHT = ScheduleSettings(cron="0 0 * * *", agent="main", session="nightly", prompt="water the garden")
NIGHTLY = "agent:main:nightly"
KEY = "agent:main:main"


class GatedGardener:
    """An agent that waters beds, one after another, and waits at a gate before it waters one of them."""

    def __init__(self, *, gate_at: str | None = None) -> None:
        # What was really done, in the order in which it was.
        self.watered: list[str] = []
        self.open = asyncio.Event()
        self.is_at_gate = asyncio.Event()
        self.resumed: list[Any] = []
        self._gate_at = gate_at

    async def water(self, bed: str) -> str:
        if bed == self._gate_at:
            self.is_at_gate.set()
            await self.open.wait()
        self.watered.append(bed)
        return bed

    @property
    def agent(self) -> hf.TaskDefinition[..., Any]:
        async def speak(run: hf.Run, heard: AgentInput) -> str:
            self.resumed.append(run.resumed)
            async for item in run.plan(["roses", "tulips", "herbs"]):
                await item.step(hf.step(self.water, name="water"), item.id)
            return "watered"

        return _definition("main", speak, OPTIONS)


OPTIONS: dict[str, Any] = {"timeout": None, "attempts": None, "default_attempts": 3, "backoff": "1s"}


async def fire(store: Store, clock: FakeClock) -> None:
    """The schedule is known, and a night later it fires."""
    cron = Cron(store, clock, {"night": NIGHT})
    await cron.run_once()
    clock.advance(days=1)
    assert (await cron.run_once()).fired == 1


async def drained(one: Hosted, garden: GatedGardener, *, opens: bool = True) -> None:
    """Asked to restart while a run waits at the gate, which opens in the drain."""
    await soon(garden.is_at_gate.wait())
    asking = asyncio.ensure_future(one.restart("new tools"))
    await until(lambda: one.gateway._worker._is_stopping)
    if opens:
        garden.open.set()
    assert (await soon(asking)).is_accepted


def task_of(store: Store, session_key: str) -> Task:
    return next(one for one in store.read_now(lambda tx: tx.tasks.page()) if one.session_key == session_key)


# --- firings


async def test_an_interrupted_firing_is_queued_again_and_flagged_in_every_door(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    garden, home = GatedGardener(gate_at="tulips"), tmp_path / "home"
    async with hosted(store, clock, home, garden.agent) as one:
        await fire(store, clock)
        await drained(one, garden)
    task = task_of(store, NIGHTLY)
    (run,) = store.read_now(lambda tx: tx.runs.of_task(task.id))
    (firing,) = store.read_now(lambda tx: tx.firings.page("night", limit=1))
    # It really was interrupted: one bed was not watered yet.
    assert (run.status, garden.watered) == (RunStatus.PAUSED_FOR_RESTART, ["roses", "tulips"])
    assert (firing.status, firing.is_retry) == (FiringStatus.RUNNING, False)

    async with hosted(store, clock, home, garden.agent) as other:
        await until(lambda: task_of(store, NIGHTLY).has_ended)
        (restart,) = await other.restarts()

    (firing,) = store.read_now(lambda tx: tx.firings.page("night", limit=1))
    assert (firing.status, firing.is_retry) == (FiringStatus.DONE, True)
    assert garden.watered == ["roses", "tulips", "herbs"]
    # What the agent is told, the restart, the task and the feed.
    assert [None if seen is None else seen.is_retry for seen in garden.resumed] == [None, True]
    assert [(found.fate, found.is_retry) for found in RestartView.of(restart).interrupted] == [
        ("resumed", True)
    ]
    shown = store.read_now(lambda tx: read_detail(tx, task.id, clock.now())).firing
    assert shown is not None
    assert (shown.schedule, shown.status, shown.is_retry) == ("night", "done", True)
    fired = [
        event.facts["is_retry"]
        for event in store.read_now(lambda tx: tx.events.newest(limit=1000))
        if event.kind is EventKind.SCHEDULE_FIRED
    ]
    assert sorted(map(str, fired)) == ["False", "True"]


async def test_a_conversation_that_is_resumed_is_no_retry_of_a_firing(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    garden, home = GatedGardener(gate_at="roses"), tmp_path / "home"
    async with hosted(store, clock, home, garden.agent) as one:
        await one.gateway.inbox.post(KEY, "water", Origin(channel="web", peer="ada"), channel_message_id="1")
        await drained(one, garden)
    async with hosted(store, clock, home, garden.agent) as other:
        await until(lambda: task_of(store, KEY).has_ended)
        (restart,) = await other.restarts()

    assert garden.resumed[-1].is_retry is False
    assert [found.is_retry for found in RestartView.of(restart).interrupted] == [False]
    assert store.read_now(lambda tx: read_detail(tx, task_of(store, KEY).id, clock.now())).firing is None


async def test_the_manifest_names_a_schedule_by_the_same_id_at_each_of_its_firings(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    home, named = tmp_path / "home", []
    for _ in range(2):
        garden = GatedGardener(gate_at="roses")
        async with hosted(store, clock, home, garden.agent) as one:
            await fire(store, clock)
            await drained(one, garden)
        document = document_of(home / "restart-manifest.json")
        (run,), (interruption,) = document["activeCronRuns"], document["interruptions"]
        named.append((run["jobId"], run["jobName"], interruption["taskId"]))
        async with hosted(store, clock, home, garden.agent):
            await until(lambda: task_of(store, NIGHTLY).has_ended)

    assert [(job_id, name) for job_id, name, _ in named] == [("night", "night")] * 2
    assert len({task_id for _, _, task_id in named}) == 2


@pytest.mark.parametrize("kind", ["python", "command"])
async def test_without_cron_retry_a_firing_that_finished_during_the_drain_keeps_its_answer(
    store: Store, clock: FakeClock, tmp_path: Path, kind: str
) -> None:
    home, config = tmp_path / "home", config_with(cron_retry_on_interrupt=False)
    garden = GatedGardener(gate_at="herbs")  # the last bed
    gate, begun = tmp_path / "gate", tmp_path / "begun"
    command = (
        f"import pathlib, time\npathlib.Path({str(begun)!r}).touch()\n"
        f"while not pathlib.Path({str(gate)!r}).exists(): time.sleep(0.01)\nprint('watered')"
    )
    agent = garden.agent
    if kind == "command":
        agent = define("main", AgentSettings(command=[sys.executable, "-c", command]), home=tmp_path)
    async with hosted(store, clock, home, agent, config=config) as one:
        await fire(store, clock)
        if kind == "command":
            await until(begun.exists)
            garden.is_at_gate.set()
        asking = asyncio.ensure_future(drained(one, garden))
        await until(lambda: one.gateway._worker._is_stopping)
        gate.touch()
        await soon(asking)
    async with hosted(store, clock, home, agent, config=config) as other:
        await until(lambda: not store.read_now(lambda tx: tx.firings.open(limit=10)))
        await until(lambda: task_of(store, NIGHTLY).has_ended)
        (restart,) = await other.restarts()

    said = store.read_now(lambda tx: tx.messages.after(NIGHTLY, limit=9))
    assert [one.text for one in said if one.role is Role.AGENT] == ["watered"]
    assert [one.status for one in said if one.role is Role.USER] == [MessageStatus.ANSWERED]
    assert task_of(store, NIGHTLY).status is TaskStatus.SUCCEEDED
    (firing,) = store.read_now(lambda tx: tx.firings.page("night", limit=1))
    assert (firing.status, firing.is_retry) == (FiringStatus.DONE, False)
    assert restart.outcome is not None
    assert [found.fate for found in restart.outcome.recovered] == [InterruptionOutcome.ENDED]


async def test_without_cron_retry_a_firing_that_has_answered_and_was_killed_before_its_end_is_not_cancelled(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    """Between its answer and its end there is a write of its own."""
    home, config = tmp_path / "home", config_with(cron_retry_on_interrupt=False)
    ends = asyncio.Event()

    async def answers_and_dies(run: hf.Run, heard: AgentInput) -> str:
        return "watered"

    inner = _definition("main", answers_and_dies, OPTIONS).fn

    async def dies(run: hf.Run, session_key: str, message_id: str, until: int = 0) -> Any:
        said = await inner(run, session_key, message_id, until)
        if run.number == 1:
            ends.set()
            await asyncio.Event().wait()
        return said

    dying = hf.TaskDefinition(
        dies, name="agent.main", **{"ladder": (), "budget": None, "version": 1, "migrate": None} | OPTIONS
    )
    async with hosted(store, clock, home, dying, config=config):
        await fire(store, clock)
        await soon(ends.wait())
    async with hosted(store, clock, home, dying, config=config) as other:
        await until(lambda: task_of(store, NIGHTLY).has_ended)
        (restart,) = await other.restarts()

    assert task_of(store, NIGHTLY).status is TaskStatus.SUCCEEDED
    assert restart.outcome is not None
    assert [found.fate for found in restart.outcome.recovered] == [InterruptionOutcome.RESUMED]


async def test_a_program_that_looks_whether_it_must_stop_and_returns_early_has_not_ended(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    began, home = asyncio.Event(), tmp_path / "home"
    drains = asyncio.Event()

    @hf.task(name="looks")
    async def looks(run: hf.Run) -> str:
        began.set()
        await drains.wait()
        return "gave up" if run.is_stopping else "went through"

    async with hosted(store, clock, home, looks) as one:
        handle = await one.gateway.holdfast.start(looks())
        await soon(began.wait())
        asking = asyncio.ensure_future(one.restart("new tools"))
        await until(lambda: one.gateway._worker._is_stopping)
        drains.set()
        await soon(asking)
    async with hosted(store, clock, home, looks) as other:
        assert await soon(other.gateway.holdfast.handle(handle.id).result()) == "went through"


# --- the notice


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver().listening() as receiver:
        yield receiver


@pytest.mark.parametrize("is_crash", [False, True])
async def test_a_person_hears_once_from_which_step_the_work_goes_on_and_it_does(
    store: Store, clock: FakeClock, tmp_path: Path, receiver: Receiver, is_crash: bool
) -> None:
    garden, home = GatedGardener(gate_at="tulips"), tmp_path / "home"
    async with hosted(store, clock, home, garden.agent) as one:
        ada = Origin(channel="hook", peer="ada")
        await one.gateway.inbox.post(KEY, "water", ada, channel_message_id="1")
        if is_crash:
            await soon(garden.is_at_gate.wait())
        else:
            await drained(one, garden)
    done_before = list(garden.watered)
    garden.open.set()
    async with hosted(store, clock, home, garden.agent) as other:
        await until(lambda: task_of(store, KEY).has_ended)
        hook = Webhook("hook", receiver.url, b"a secret of the sea", clock)
        outbox = Outbox(store, clock, {"hook": hook}, boot_id=other.life.id)
        for _ in range(3):
            await outbox.run_once()

    done_after = garden.watered[len(done_before) :]
    heard = [request.json["text"] for request in receiver.requests]
    # By a clock that stands still no gateway can tell which of the two is older.
    assert sorted(heard) == [f"Resumed after restart; continuing from step {done_after[0]}…", "watered"]
    # Last and next as the program is told them, against what it has really done.
    resumed = garden.resumed[-1]
    assert resumed.cursor.last_completed == ("roses" if is_crash else done_before[-1])
    assert resumed.cursor.next_step == done_after[0]
    assert garden.watered == ["roses", "tulips", "herbs"]
