"""The routes of docs/architecture.md: each request goes through the files that its route names."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

import holdfast as hf
from holdfast import app
from holdfast.api.contract import READ, WRITE, Caller
from holdfast.api.rpc import dispatch
from holdfast.cli.main import main
from holdfast.config.sections import Config
from holdfast.core.clock import SystemClock
from holdfast.gateway.supervisor_protocol import VARIABLE, Supervised
from tests.api.stand_in import StandIn
from tests.architecture.source import PACKAGE
from tests.architecture.test_architecture import QUERY_NAME, routes
from tests.architecture.trail import Trail
from tests.engine.dead_processes import free_lock


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


REQUESTS: dict[str, Callable[[Path, Trail], object]] = {
    "The gateway starts": start_the_gateway,
    "A run is claimed": run_a_task,
    "A step is saved once": run_a_task,
    "A crashed run is resumed": resume_a_crashed_run,
    "A task is cancelled": cancel_a_task,
    "An operator lists tasks": list_tasks,
    "A client cancels a task": cancel_as_a_client,
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
