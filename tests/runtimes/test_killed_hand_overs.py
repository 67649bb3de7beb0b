"""A gateway that is killed at each of its writes starts a command agent once for each cycle."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.core.transitions import TaskStatus, WakeStatus
from holdfast.store import Store
from holdfast.testing import FakeClock
from tests.engine.stage import Stage
from tests.runtimes.test_command_limits import CRITERIA, STEPS, LongAgent

pytestmark = pytest.mark.slow


@pytest.fixture
def stage(store: Store, clock: FakeClock, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(store, clock, tmp_path / "boots")
    yield stage
    stage.kill()


# Every write once; for what another way or another database does differently, some of them.
@pytest.mark.parametrize(
    ("ledger", "way", "every"),
    [
        *[("sqlite", "file", 1), ("sqlite", "hasty", 2), ("sqlite", "stdout", 3)],
        *[("postgres", "file", 3), ("postgres", "hasty", 5)],
    ],
    indirect=["ledger"],
)
async def test_a_gateway_that_is_killed_at_any_write_loses_no_checkpoint_and_starts_nothing_twice(
    stage: Stage, tmp_path: Path, way: str, every: int
) -> None:
    writes, was_killed = 1 - every, True
    while was_killed:
        writes += every
        place = tmp_path / f"write-{writes}"
        place.mkdir()
        agent = LongAgent(stage, place, way, **CRITERIA if way == "hasty" else {})
        await agent.chat.begin()
        key = f"agent:scholar:{writes}"
        await agent.chat.say("Tides?", key=key)

        stage.die_at_write(writes)
        await agent.go_on()
        was_killed = stage._failing.is_dead
        if was_killed:
            await agent.chat.begin()
            await agent.go_on()

        assert await agent.chat.answers(key) == ["All done."], f"killed before write {writes}"
        assert agent.noted("done") == ([] if way == "hasty" else STEPS)
        assert len(agent.heard) == len(STEPS)
    assert writes > 10
    tasks = await stage.store.read(lambda tx: tx.tasks.page(limit=1000))
    assert {task.status for task in tasks} == {TaskStatus.SUCCEEDED}
    for task in tasks:
        wakes = stage.store.read_now(lambda tx, task=task: tx.wakes.page(task_id=task.id, limit=9))  # type: ignore[misc]
        assert [wake.status for wake in wakes] == [WakeStatus.FIRED] * 2
    assert not await stage.pass_time()
