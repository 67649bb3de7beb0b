"""Installed plug-ins: found by their entry point, bound to one owner, and run beside the gateway."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pytest

from holdfast import app
from holdfast.app.plugins import GROUP, PluginService, build_plugins
from holdfast.config.sections import Config, PluginSettings
from holdfast.core.errors import BadInput, NotFound, RevisionMismatch
from holdfast.core.task import Failure, Origin, Progress
from holdfast.core.transitions import TaskStatus
from holdfast.engine.claims.boots import Life
from holdfast.engine.client.owner_tasks import OwnerTasks
from holdfast.engine.ledger.flows import NewFlow
from holdfast.engine.ledger.ledger import AlreadyEnded
from holdfast.engine.producers.producers import Producers
from holdfast.engine.producers.writes import NewRecord
from holdfast.store import Store
from holdfast.testing import FakeClock
from tests.engine.coroutine_tests import run_coroutine_test
from tests.engine.workers import soon
from tests.gateway.gateway_home import gateway_home

RENDER = NewRecord(name="render", goal="render the title", runtime="media")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    return run_coroutine_test(pyfuncitem)


# --- the accessor


@pytest.fixture
def mine(store: Store, clock: FakeClock) -> OwnerTasks:
    return OwnerTasks(store, clock, "plugin:studio")


async def test_it_records_lists_shows_and_cancels_its_own_work(mine: OwnerTasks, clock: FakeClock) -> None:
    first = await mine.create(RENDER, is_running=True)
    second = await mine.create(RENDER)
    await mine.start(second.run.id)
    await mine.progress(first.run.id, Progress(done=1, total=2), summary="half")
    await mine.finish(first.run.id, {"frames": 2}, summary="two frames")
    assert not isinstance(await mine.beat(second.run.id), AlreadyEnded)

    answer = await mine.cancel(second.task.id, "no longer needed")

    assert answer.cancelled
    assert {task.id: task.status for task in await mine.list()} == {
        first.task.id: TaskStatus.SUCCEEDED,
        second.task.id: TaskStatus.CANCELLED,
    }
    assert [task.id for task in await mine.list(statuses=["succeeded"])] == [first.task.id]
    assert (await mine.get(first.task.id)).owner == mine.owner == "plugin:studio"
    assert len((await mine.snapshot()).ended) == 2


async def test_tasks_of_others_are_not_found(mine: OwnerTasks, store: Store, clock: FakeClock) -> None:
    new = NewRecord(name="render", goal="hers", runtime="media", owner="ada", run_id="hers")
    hers = await Producers(store, clock).create(new, is_running=True)

    for call in (mine.get, mine.start, mine.beat, mine.progress, mine.finish):
        with pytest.raises(NotFound):
            await call(hers.run.id if call != mine.get else hers.task.id)
    with pytest.raises(NotFound):
        await mine.fail("hers", Failure(kind="no", message="no"))
    with pytest.raises(NotFound):
        await mine.create(NewRecord(name="render", goal="hers", runtime="media", run_id="hers"))
    with pytest.raises(NotFound):
        await mine.create(NewRecord(name="part", goal="a part", runtime="media", parent_task_id=hers.task.id))
    answer = await mine.cancel(hers.task.id, "mine now")

    assert (answer.found, answer.cancelled) == (False, False)
    assert await mine.list() == []
    assert store.read_now(lambda tx: tx.tasks.get(hers.task.id)).status is TaskStatus.RUNNING


async def test_it_cannot_be_unbound_nor_speak_for_others(mine: OwnerTasks) -> None:
    for name in ("owner", "_owner", "_store", "_producers", "anything"):
        with pytest.raises(AttributeError):
            setattr(mine, name, "ada")
    with pytest.raises(AttributeError):
        del mine._owner
    for new in (
        NewRecord(name="render", goal="x", runtime="media", owner="ada"),
        NewRecord(name="render", goal="x", runtime="media", session_key="agent:scholar:main"),
        NewRecord(name="render", goal="x", runtime="media", origin=Origin(channel="hook", peer="ada")),
    ):
        with pytest.raises(BadInput):
            await mine.create(new)
    with pytest.raises(TypeError):
        type("Loose", (OwnerTasks,), {})

    assert mine.owner == "plugin:studio"


# --- the entry point

CODE = """
import holdfast as hf


async def main(tasks):
    new = hf.NewRecord(name="render", goal=f"for {tasks.owner}", runtime="media", key="first")
    work = await tasks.create(new, is_running=True)
    await tasks.finish(work.run.id, summary="rendered")


async def fails(tasks):
    raise ValueError("no studio")


def plain(tasks):
    return None
"""
ENTRIES = """[holdfast.plugins]
studio = studio_plugin:main
broken = studio_plugin:nosuch
plain = studio_plugin:plain
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with an installed package, as pip leaves it."""
    site = tmp_path / "site"
    info = site / "studio_plugin-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "studio_plugin.py").write_text(CODE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: studio-plugin\nVersion: 1.0\n")
    (info / "RECORD").write_text("studio_plugin.py,,\n")
    (info / "entry_points.txt").write_text(ENTRIES)
    monkeypatch.syspath_prepend(str(site))
    yield site
    sys.modules.pop("studio_plugin", None)


@asynccontextmanager
async def parts_of(store: Store, clock: FakeClock, home: Path) -> AsyncIterator[app.Parts]:
    life = await Life.begin(store, clock, locks=home / "boots")
    yield app.wire(store, clock, life)
    await life.end()


async def test_an_installed_plugin_gets_tasks_bound_to_its_owner_and_a_broken_one_is_left_out(
    store: Store, clock: FakeClock, tmp_path: Path, site: Path
) -> None:
    config = Config(plugins={"studio": PluginSettings(owner="agent:scholar:main")})
    async with parts_of(store, clock, tmp_path) as parts:
        (service,) = build_plugins(parts, config, [])
        await soon(service.run())
        (again,) = build_plugins(parts, Config(), [])
        await soon(again.run())
        assert build_plugins(parts, Config(plugins={"studio": PluginSettings(is_enabled=False)}), []) == []

    tasks = store.read_now(lambda tx: tx.tasks.page())
    assert {task.owner: task.goal for task in tasks} == {
        "agent:scholar:main": "for agent:scholar:main",
        "plugin:studio": "for plugin:studio",
    }


async def test_a_plugin_that_raises_is_called_again_and_one_that_runs_is_stopped(mine: OwnerTasks) -> None:
    calls, is_waiting = [], asyncio.Event()

    async def main(tasks: OwnerTasks) -> None:
        calls.append(tasks.owner)
        if len(calls) == 1:
            raise ValueError("no studio")
        is_waiting.set()
        await asyncio.Event().wait()

    service = PluginService("studio", main, mine, again_in_s=0.01)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(service.run())
        await soon(is_waiting.wait())
        service.stop()
        await soon(running)

    assert calls == ["plugin:studio"] * 2


@pytest.mark.slow
def test_a_real_gateway_runs_an_installed_plugin(
    tmp_path: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")]))
    with gateway_home(tmp_path / "home", settings={}) as one:
        one.until_ready()
        one.wait_for(
            lambda: [task["status"] for task in one.ask("tasks.list")["tasks"]] == ["completed"],
            "the plug-in did nothing",
        )
        (task,) = one.ask("tasks.list")["tasks"]

    assert (task["ownerKey"], task["title"]) == ("plugin:studio", "for plugin:studio")
    assert "broken (studio_plugin:nosuch) could not be loaded" in one.log()
    assert "is not a coroutine function" in one.log()


def test_the_group_is_that_of_the_guide(site: Path) -> None:
    assert EntryPoint(name="studio", value="studio_plugin:main", group=GROUP) in entry_points(group=GROUP)


# --- the flows of its owner


async def test_a_plug_in_has_the_flows_of_its_owner_and_no_others(store: Store, clock: FakeClock) -> None:
    ada, bob = (OwnerTasks(store, clock, owner).flows for owner in ("ada", "bob"))
    mine = await ada.create(NewFlow(name="trip", controller="planner", state={"city": "Bergen"}))
    waiting = await ada.wait(mine.id[:14], {"for": "visa"}, revision=1)

    assert [flow.id for flow in await ada.list(statuses=("waiting",))] == [mine.id]
    assert await ada.state(mine.id) == {"city": "Bergen"}
    assert await ada.wait_document(mine.id) == {"for": "visa"}
    assert await bob.list() == []
    for call in (
        bob.get(mine.id),
        bob.nodes(mine.id),
        bob.resume(mine.id, revision=2),
        bob.finish(mine.id, revision=2),
        bob.cancel(mine.id, "no"),
        bob.retry(mine.id),
    ):
        with pytest.raises(NotFound):
            await call
    with pytest.raises(BadInput, match="bound to 'bob'"):
        await bob.create(NewFlow(name="x", controller="c", owner="ada"))
    with pytest.raises(RevisionMismatch):
        await ada.resume(mine.id, revision=1)
    with pytest.raises(AttributeError, match="for good"):
        bob._owner = "ada"  # type: ignore[misc]
    assert (await ada.get(mine.id)).revision == waiting.revision
