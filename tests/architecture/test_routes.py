"""The routes of docs/architecture.md: each request goes through the files that its route names."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import msgspec
import pytest

import holdfast as hf
from holdfast import app
from holdfast.api.contract import READ, WRITE, Caller
from holdfast.api.rpc import dispatch
from holdfast.api.tokens import Tokens
from holdfast.app.doors import open_doors
from holdfast.cli.main import main
from holdfast.config.alerts import AlertSettings
from holdfast.config.sections import Config, ScheduleSettings
from holdfast.core.campaign import CampaignSpec, Item, Phase
from holdfast.core.clock import SystemClock
from holdfast.core.transitions import TaskStatus
from holdfast.engine.client.campaigns import Campaigns
from holdfast.engine.schedules.firing import Fired
from holdfast.gateway.supervisor_protocol import VARIABLE, Supervised
from holdfast.progress.starter import CampaignStarter
from holdfast.schedule.cron import Cron
from holdfast.testing import FakeClock
from tests.alerts.watched_campaign import WatchedCampaign
from tests.api.stand_in import TOKEN, StandIn
from tests.architecture.source import PACKAGE
from tests.architecture.test_architecture import QUERY_NAME, routes
from tests.architecture.trail import Trail
from tests.engine.dead_processes import free_lock
from tests.engine.stage import Stage


async def look() -> int:
    return 1


@hf.task(name="looks")
async def looks(run: hf.Run) -> int:
    return await run.step(look)


@hf.task(name="waits")
async def waits(run: hf.Run) -> None:
    await run.sleep("1h")


def url_of(home: Path) -> str:
    return f"sqlite:///{home / 'ledger.db'}"


async def run_a_task(home: Path, trail: Trail) -> None:
    with trail.recorded():
        async with hf.open(url_of(home), tasks=[looks], home=home) as holdfast:
            handle = await holdfast.start(looks())
            assert await handle.result() == 1


async def resume_a_crashed_run(home: Path, trail: Trail) -> None:
    """The first process counts as dead: the kernel has freed the lock that proved its life."""
    settings = app.read_settings({}, home=str(home), store=url_of(home))
    async with app.open_parts(settings) as parts:
        task = await parts.ledger.create(hf.NewTask(name="looks", goal="look"))
        assert len(await parts.claims.take()) == 1
        free_lock(parts.life)
        with trail.recorded():
            async with hf.open(url_of(home), tasks=[looks], home=home) as holdfast:
                assert await holdfast.handle(task.id).result() == 1


async def cancel_a_task(home: Path, trail: Trail) -> None:
    with trail.recorded():
        async with hf.open(url_of(home), tasks=[waits], home=home) as holdfast:
            handle = await holdfast.start(waits())
            await handle.cancel()


async def cancel_as_a_client(home: Path, trail: Trail) -> None:
    with trail.recorded():
        store = app.open_store(url_of(home), clock=SystemClock())
        try:
            holdfast = hf.Holdfast(store, store.clock, {})
            handle = await holdfast.start(waits())
            gateway = StandIn(store, Config(), home)
            caller = Caller(who="ada", scopes=frozenset({READ, WRITE}))
            await dispatch(gateway, "ledger.cancel", msgspec.json.encode({"taskId": handle.id}), caller)
        finally:
            store.close()


async def list_tasks(home: Path, trail: Trail) -> None:
    async with hf.open(url_of(home)) as holdfast:
        await holdfast.start(looks())
    with trail.recorded():
        assert main(["--home", str(home), "tasks", "list"]) == 0


async def start_the_gateway(home: Path, trail: Trail) -> None:
    """In a process of its own, whose supervisor is dead: so the gateway stops as soon as it has started."""
    life, supervisor = os.pipe()
    told, tell = os.pipe()
    os.close(supervisor)
    supervised = Supervised(tcp_fds=[], unix_fd=None, life_fd=life, tell_fd=tell)
    environ = os.environ | {VARIABLE: msgspec.json.encode(supervised).decode()}
    process = subprocess.Popen(  # noqa: ASYNC220 - nothing else runs in this loop
        [sys.executable, "-m", "tests.architecture.trail", "--home", str(home), "gateway", "child"],
        env=environ,
        pass_fds=[life, tell],
        stdout=subprocess.PIPE,
    )
    os.close(life)
    os.close(tell)
    try:
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        os.close(told)
    trail.files = out.decode().split()


async def start_an_item(home: Path, trail: Trail) -> None:
    with trail.recorded():
        settings = app.read_settings({}, home=str(home), store=url_of(home))
        async with app.open_parts(settings) as parts:
            campaigns = Campaigns(parts.store, parts.clock)
            spec = CampaignSpec(phases=(Phase(name="analysis", task="looks"),))
            campaign = await campaigns.create("survey", spec, [Item(id="one")])
            await campaigns.start(campaign.id)
            assert await CampaignStarter(parts.store, parts.clock, host="here").run_once() == 1


async def fire_a_schedule(home: Path, trail: Trail) -> None:
    declared = {"hourly": ScheduleSettings(every="1h", task="looks")}
    with trail.recorded():
        clock = FakeClock()
        store = app.open_store(url_of(home), clock=clock)
        try:
            cron = Cron(store, clock, declared, names=["looks"])
            await cron.run_once()
            clock.advance(hours=1)
            assert await cron.run_once() == Fired(fired=1)
        finally:
            store.close()


async def wake_a_run_that_timed_out(home: Path, trail: Trail) -> None:
    clock = FakeClock()

    async def work(number: int) -> int:
        clock.advance(minutes=6)
        return number

    @hf.task(name="long", run_timeout="10m", smart_wake="always")
    async def long(run: hf.Run) -> int:
        async for item in run.plan(["read", "write", "send"]):
            await item.step(work, item.number)
        return 1

    with trail.recorded():
        store = app.open_store(url_of(home), clock=clock)
        stage = Stage(store, clock, home / "boots")
        try:
            await stage.open(long)
            handle = await stage.start(long())
            await stage.settle()
            assert (await handle.task()).status is TaskStatus.WAITING
            assert await stage.pass_time()
            await stage.settle()
            assert await handle.result() == 1
        finally:
            stage.kill()
            store.close()


async def raise_an_alert(home: Path, trail: Trail) -> None:
    with trail.recorded():
        clock = FakeClock()
        store = app.open_store(url_of(home), clock=clock)
        try:
            watched = WatchedCampaign(store, clock)
            await watched.begin(2)
            watch = watched.watch(failing=AlertSettings(condition="failed_count > 0", raise_after=0))
            await watched.fail()
            await watch.run_once()
            assert [alert.rule for alert in watched.alerts()] == ["failing"]
        finally:
            store.close()


async def show_a_page(home: Path, trail: Trail) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    supervised = Supervised(tcp_fds=[listening.detach()], unix_fd=None, life_fd=-1, tell_fd=-1)
    startup: Any = SimpleNamespace(
        tokens=Tokens.of(TOKEN, {}), config=Config(), webhook_secrets={}, certificates=None
    )
    # It is a table: it is read when it is imported, which must be now.
    sys.modules.pop("holdfast.web.tables", None)
    with trail.recorded():
        store = app.open_store(url_of(home), clock=SystemClock())
        gateway: Any = StandIn(store, Config(), home)
        try:
            async with (
                open_doors(gateway, startup, supervised),
                httpx.AsyncClient(base_url=url, trust_env=False, timeout=60) as browser,
            ):
                form = {"origin": url, "hx-request": "true"}
                await browser.post("/dashboard/sign-in", data={"token": TOKEN}, headers=form)
                page = await browser.get("/dashboard/tasks")
                assert (page.status_code, "<title>" in page.text) == (200, True)
        finally:
            store.close()


REQUESTS: dict[str, Callable[[Path, Trail], object]] = {
    "The gateway starts": start_the_gateway,
    "A run is claimed": run_a_task,
    "A step is saved once": run_a_task,
    "A crashed run is resumed": resume_a_crashed_run,
    "A task is cancelled": cancel_a_task,
    "An operator lists tasks": list_tasks,
    "A client cancels a task": cancel_as_a_client,
    "An item of a campaign starts": start_an_item,
    "A schedule fires": fire_a_schedule,
    "A run that timed out wakes": wake_a_run_that_timed_out,
    "An alert is raised": raise_an_alert,
    "A page of the dashboard is shown": show_a_page,
}


def test_every_route_is_walked() -> None:
    assert set(REQUESTS) == set(routes())


@pytest.mark.parametrize("title", routes())
def test_a_request_goes_through_the_files_of_its_route(
    title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    trail = Trail()

    asyncio.run(REQUESTS[title](tmp_path, trail))  # type: ignore[arg-type]

    stops = routes()[title]
    assert trail.goes_through([stop for stop in stops if stop.endswith(".py")]) is None
    for stop in stops:
        if stop.endswith(".sql"):
            assert trail.queries & set(QUERY_NAME.findall((PACKAGE / stop).read_text(encoding="utf-8")))
