"""The command of a schedule: a real process for each firing, which is never started twice."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.config.sections import Config
from holdfast.core.schedule import Firing
from holdfast.core.schedule_spec import ScheduleSpec
from holdfast.core.task import Task
from holdfast.core.transitions import FiringStatus, TaskStatus
from holdfast.engine.schedules.changes import adding
from holdfast.runtimes.agents import definitions
from holdfast.schedule.cron import Cron
from holdfast.store import Store
from holdfast.testing import FakeClock
from tests.engine.stage import Stage

COUNT = "echo started >> starts; echo $HOLDFAST_TASK_ID; pwd"


@pytest.fixture
def stage(store: Store, clock: FakeClock, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(store, clock, tmp_path / "boots")
    yield stage
    stage.kill()


def home_in(path: Path) -> Path:
    path.mkdir()
    return path.resolve()


async def schedule(
    stage: Stage, home: Path, *command: str, name: str = "disk", timeout_s: float | None = None
) -> None:
    """A schedule with this command, which has fired once."""
    at = stage.clock.now() + timedelta(hours=1)
    spec = ScheduleSpec(at=at, command=list(command), timeout_s=timeout_s)
    write = adding(name, spec, owner="system", now=stage.clock.now(), known={"cron.command"})
    await stage.store.write(write)
    stage.clock.advance(hours=1)
    await Cron(stage.store, stage.clock, {}).run_once()


async def fire(stage: Stage, home: Path, *command: str, timeout_s: float | None = None) -> None:
    await schedule(stage, home, *command, timeout_s=timeout_s)
    await stage.open(*definitions(Config(), home=home))
    await stage.settle()


async def ended(stage: Stage, name: str = "disk") -> tuple[Firing, Task]:
    """Its firing and the task of that, once the service has looked."""
    await Cron(stage.store, stage.clock, {}).run_once()
    (firing,) = await stage.store.read(lambda tx: tx.firings.page(name))
    return firing, await stage.store.read(lambda tx: tx.tasks.get(firing.task_id or ""))


async def test_a_command_runs_in_the_home_and_its_output_is_the_result(stage: Stage, tmp_path: Path) -> None:
    home = home_in(tmp_path / "home")

    await fire(stage, home, "/bin/sh", "-c", COUNT)

    firing, task = await ended(stage)
    assert (firing.status, task.status) == (FiringStatus.DONE, TaskStatus.SUCCEEDED)
    assert f"{task.id}\\n{home}\\n" in (task.result or b"").decode()
    assert (home / "starts").read_text() == "started\n"


async def test_a_command_that_fails_fails_its_firing_and_is_not_started_again(
    stage: Stage, tmp_path: Path
) -> None:
    home = home_in(tmp_path / "home")

    await fire(stage, home, "/bin/sh", "-c", "echo started >> starts; echo no disk >&2; exit 3")

    firing, task = await ended(stage)
    assert (firing.status, firing.why) == (FiringStatus.FAILED, "its task is failed")
    assert task.failure is not None
    assert "/bin/sh ended with exit code 3: no disk" in task.failure.message
    assert (home / "starts").read_text() == "started\n"


async def test_a_command_that_takes_too_long_is_stopped(stage: Stage, tmp_path: Path) -> None:
    await fire(stage, home_in(tmp_path / "home"), "/bin/sleep", "60", timeout_s=0.2)

    firing, task = await ended(stage)
    assert firing.status is FiringStatus.FAILED
    assert task.failure is not None
    assert "/bin/sleep was stopped after 0.2 s" in task.failure.message


@pytest.mark.slow
async def test_a_gateway_that_is_killed_at_any_write_starts_the_command_once(
    stage: Stage, tmp_path: Path
) -> None:
    writes, was_killed = 0, True
    while was_killed:
        writes += 1
        home = home_in(tmp_path / f"write-{writes}")
        tasks = definitions(Config(), home=home)
        await schedule(stage, home, "/bin/sh", "-c", COUNT, name=f"disk-{writes}")
        await stage.open(*tasks)

        stage.die_at_write(writes)
        await stage.settle()
        was_killed = stage._failing.is_dead
        await stage.open(*tasks)
        await stage.settle()

        firing, task = await ended(stage, f"disk-{writes}")
        assert (firing.status, task.status) == (FiringStatus.DONE, TaskStatus.SUCCEEDED), f"write {writes}"
        assert (home / "starts").read_text() == "started\n"
    assert writes > 3
