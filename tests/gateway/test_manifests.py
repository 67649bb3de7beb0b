"""What a manifest says of sessions and their children, and what becomes of a stop that cannot write one."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.manifest import Manifest
from holdfast.core.task import Origin
from holdfast.core.transitions import RestartStatus
from holdfast.engine.ledger.ledger import NewTask, creating
from holdfast.gateway.manifests import with_more
from holdfast.gateway.signals import StopRequest
from holdfast.store import Store
from holdfast.testing import FakeClock
from tests.engine.workers import soon, until
from tests.gateway.gateways import Hosted, document_of, hosted
from tests.gateway.waiting_programs import WaitingPrograms

GRACE = Origin(channel="webhook", peer="grace", account_id="three")


class Family:
    """An agent with two children, one of which has a child of its own; each is named when it is started."""

    def __init__(self, programs: WaitingPrograms) -> None:
        self.started: dict[str, str] = {}
        waiting = programs.waiting("seedling")

        @hf.task(name="middle")
        async def middle(run: hf.Run) -> str:
            grandchild = await run.spawn(waiting())
            self.started["grandchild"] = grandchild.id
            return await grandchild

        @hf.task(name="agent.main")
        async def agent(run: hf.Run, session_key: str = "", message_id: str = "", until: int = 0) -> str:
            child, other = await run.spawn(waiting()), await run.spawn(middle())
            self.started |= {"child": child.id, "middle": other.id}
            return f"{await child}, {await other}"

        self.tasks: tuple[hf.TaskDefinition[..., Any], ...] = (agent, middle, waiting)


async def drained(one: Hosted, programs: WaitingPrograms) -> None:
    asking = asyncio.ensure_future(one.restart("new tools"))
    await until(lambda: one.gateway._worker._is_stopping)
    programs.open.set()
    await soon(asking)


async def test_a_session_that_only_waits_for_its_children_stands_in_the_manifest_with_those_in_flight(
    store: Store, clock: FakeClock, tmp_path: Path, programs: WaitingPrograms
) -> None:
    family, home = Family(programs), tmp_path / "home"
    key, person = "agent:main:family", GRACE
    async with hosted(store, clock, home, *family.tasks) as one:
        posted = await one.gateway.inbox.post(key, "plant the beds", person, channel_message_id="m1")
        await programs.entered(2)
        # Nothing carries it: it waits.
        await until(lambda: len(one.gateway._worker.claims_in_flight()) == 2)
        await drained(one, programs)
    manifest = document_of(home / "restart-manifest.json")
    in_flight = sorted([family.started["child"], family.started["grandchild"]])
    (session,) = manifest["activeSessions"]
    assert session["activeSubagents"] == in_flight
    assert (session["key"], session["lastUserMessage"]) == (key, posted.message.text)
    assert (session["channel"], session["channelTarget"], session["accountId"]) == (
        person.channel,
        person.peer,
        person.account_id,
    )
    # It is not interrupted itself.
    assert sorted(found["taskId"] for found in manifest["interruptions"]) == in_flight


async def test_a_session_in_flight_lists_its_children_and_not_itself(
    store: Store, clock: FakeClock, tmp_path: Path, programs: WaitingPrograms
) -> None:
    child, started = programs.waiting("seedling"), set[str]()
    at_work = programs.waiting("unused")

    @hf.task(name="agent.main")
    async def agent(run: hf.Run, session_key: str = "", message_id: str = "", until: int = 0) -> str:
        started.add((await run.spawn(child())).id)
        return str(await at_work.fn(run))

    home, key = tmp_path / "home", "agent:main:garden"
    async with hosted(store, clock, home, agent, child) as one:
        await one.gateway.inbox.post(key, "dig", GRACE, channel_message_id="m1")
        await programs.entered(2)
        await drained(one, programs)
    (session,) = document_of(home / "restart-manifest.json")["activeSessions"]
    assert (session["key"], session["activeSubagents"]) == (key, list(started))


async def test_what_two_passes_find_of_one_session_is_one_entry(
    store: Store, clock: FakeClock, tmp_path: Path, programs: WaitingPrograms
) -> None:
    family, home = Family(programs), tmp_path / "home"
    async with hosted(store, clock, home, *family.tasks) as one:
        await one.gateway.inbox.post("agent:main:family", "plant", GRACE, channel_message_id="m1")
        await programs.entered(2)
        await until(lambda: len(one.gateway._worker.claims_in_flight()) == 2)
        await drained(one, programs)
        (restart,) = await one.restarts()
    whole = restart.manifest
    (session,) = whole.active_sessions
    halves = [
        Manifest(
            timestamp=whole.timestamp,
            reason=whole.reason,
            triggered_by=whole.triggered_by,
            restart_id=whole.restart_id,
            active_sessions=(type(session)(**{**_fields(session), "active_subagents": (name,)}),),
            interruptions=tuple(found for found in whole.interruptions if found.task_id == name),
        )
        for name in session.active_subagents
    ]

    assert with_more(halves[0], halves[1]) == whole
    assert with_more(whole, halves[1]).active_sessions == whole.active_sessions


def _fields(session: Any) -> dict[str, Any]:
    return {name: getattr(session, name) for name in session.__struct_fields__}


@pytest.mark.parametrize("by", ["signal", "operator"])
async def test_a_stop_does_not_need_the_manifests_file(
    store: Store,
    clock: FakeClock,
    tmp_path: Path,
    programs: WaitingPrograms,
    caplog: pytest.LogCaptureFixture,
    by: str,
) -> None:
    waiting, home = programs.waiting(), tmp_path / "home"
    (home / "restart-manifest.json").mkdir(parents=True)
    async with hosted(store, clock, home, waiting) as one:
        handle = await one.gateway.holdfast.start(waiting())
        await programs.entered()
        with caplog.at_level(logging.WARNING, "holdfast"):
            if by == "signal":
                one.gateway.put(StopRequest(why="SIGTERM"))
            else:
                stopping = asyncio.ensure_future(one.gateway.stop("enough", triggered_by="ada"))
            await until(lambda: one.gateway._worker._is_stopping)
            programs.open.set()

            assert not await one.ended()
            if by == "operator":
                await soon(stopping)
        (restart,) = await one.restarts()
    assert restart.status is RestartStatus.DRAINED
    # The ledger has all of it.
    assert [found.task_id for found in restart.manifest.interruptions] == [handle.id]
    said = [record.getMessage() for record in caplog.records if "stops anyway" in record.getMessage()]
    assert len(said) == 1
    assert str(home / "restart-manifest.json") in said[0]

    async with hosted(store, clock, home, waiting) as other:
        assert await soon(other.gateway.holdfast.handle(handle.id).result()) == "after"


async def test_a_stop_that_joins_a_restart_takes_the_gateway_down_without_the_file(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    (home / "restart-manifest.json").mkdir(parents=True)
    async with hosted(store, clock, home) as one:
        for request in (StopRequest(why="SIGUSR1", wants_restart=True), StopRequest(why="SIGTERM")):
            one.gateway.put(request)

        assert not await one.ended()


async def test_a_restart_still_needs_it(store: Store, clock: FakeClock, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "restart-manifest.json").mkdir(parents=True)
    async with hosted(store, clock, home) as one:
        answer = await one.restart("new tools")

        assert not answer.is_accepted
        assert answer.why.startswith(f"the manifest {home / 'restart-manifest.json'} cannot be written (")
        assert one.gateway.status().status == "serving"


async def test_a_child_with_a_session_of_its_own_is_named_by_it(
    store: Store, clock: FakeClock, tmp_path: Path, programs: WaitingPrograms
) -> None:
    """As a producer outside records it; a child that a run starts has the session of its parent."""
    child, home = programs.waiting("seedling"), tmp_path / "home"
    parent = programs.waiting("agent.main")
    async with hosted(store, clock, home, parent, child) as one:
        await one.gateway.inbox.post("agent:main:garden", "dig", GRACE, channel_message_id="m1")
        await programs.entered()
        session = await store.read(lambda tx: tx.sessions.of_key("agent:main:garden"))
        new = NewTask(
            name="seedling",
            goal="grow",
            owner="ada",
            session_key="agent:sage:gardening",
            parent_task_id=session.task_id,
        )
        await store.write(creating([new], now=clock.now()))
        await programs.entered(2)
        await drained(one, programs)
    (shown,) = document_of(home / "restart-manifest.json")["activeSessions"]
    assert (shown["key"], shown["activeSubagents"]) == ("agent:main:garden", ["agent:sage:gardening"])
