"""Work that a block of code executes itself, recorded while the block runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

import holdfast as hf
from holdfast.core.errors import StoreUnavailable, TaskFailed
from holdfast.core.events import EventKind
from holdfast.core.payload import decode_payload
from holdfast.core.recorded import UNRECORDED_FACT, RecordedWork, UnrecordedWork
from holdfast.core.transitions import TaskStatus
from holdfast.engine.client.detached import DetachedTask
from holdfast.engine.client.handles import Holdfast
from holdfast.engine.producers.producers import Producers
from holdfast.store import Store
from holdfast.store.events import START
from holdfast.testing import FakeClock


class AwayStore:
    """A store whose writes fail while it is away."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.is_away = False

    async def write(self, write: Any) -> Any:
        if self.is_away:
            raise StoreUnavailable("it is away")
        return await self._store.write(write)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@pytest.fixture
def away(store: Store) -> Any:
    return AwayStore(store)


@pytest.fixture
def holdfast(away: Any, clock: FakeClock) -> Holdfast:
    return Holdfast(away, clock, {}, owner="ada")


async def work_of(store: Store, clock: FakeClock, task: DetachedTask) -> RecordedWork:
    return await Producers(store, clock).get(task.run_id)


async def test_a_block_that_ends_is_a_task_that_succeeded(
    holdfast: Holdfast, store: Store, clock: FakeClock
) -> None:
    async with holdfast.detached("render", runtime="media", goal="render the title") as task:
        running = await work_of(store, clock, task)
        await task.progress("frame 1", done=1, total=3)
        task.result = {"frames": 3}

    ended = await work_of(store, clock, task)
    assert running.task.status is TaskStatus.RUNNING
    assert ended.task.status is TaskStatus.SUCCEEDED
    assert decode_payload(ended.task.result or b"") == {"frames": 3}
    assert ended.details is not None
    assert ended.details.progress_summary == "frame 1"


async def test_what_the_block_raises_is_raised_and_recorded(
    holdfast: Holdfast, store: Store, clock: FakeClock
) -> None:
    with pytest.raises(ZeroDivisionError):
        async with holdfast.detached("render") as task:
            raise ZeroDivisionError("no frames")

    ended = await work_of(store, clock, task)
    assert ended.task.status is TaskStatus.FAILED
    assert ended.task.failure is not None
    assert (ended.task.failure.kind, ended.task.failure.message) == ("ZeroDivisionError", "no frames")


async def test_a_cancelled_program_leaves_a_cancelled_task(
    holdfast: Holdfast, store: Store, clock: FakeClock
) -> None:
    tasks: list[DetachedTask] = []
    is_open = asyncio.Event()

    async def program() -> None:
        async with holdfast.detached("render") as task:
            tasks.append(task)
            is_open.set()
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        child = group.create_task(program())
        await is_open.wait()
        child.cancel()

    assert (await work_of(store, clock, tasks[0])).task.status is TaskStatus.CANCELLED


async def test_a_cancel_in_the_ledger_stops_the_block(
    holdfast: Holdfast, store: Store, clock: FakeClock
) -> None:
    tasks: list[DetachedTask] = []

    async def program() -> None:
        async with holdfast.detached("render", beat_every=0.01) as task:
            tasks.append(task)
            assert task.task_id is not None
            await holdfast.cancel(task.task_id, reason="too slow")
            await asyncio.Event().wait()

    with pytest.raises(TaskFailed, match="cancelled"):
        await program()

    ended = await work_of(store, clock, tasks[0])
    assert ended.task.status is TaskStatus.CANCELLED
    assert ended.task.cancel_reason == "too slow"


async def test_best_effort_work_goes_on_without_the_ledger_and_the_loss_is_recorded_later(
    holdfast: Holdfast, away: AwayStore, store: Store, clock: FakeClock
) -> None:
    away.is_away = True
    async with holdfast.detached("render", best_effort=True) as task:
        await task.progress("frame 1")
        while task.dropped < 2:  # noqa: ASYNC110 - it has no event; each turn of the loop lets it send
            await asyncio.sleep(0)
        away.is_away = False
        await task.progress("frame 2")

    ended = await work_of(store, clock, task)
    assert ended.task.status is TaskStatus.SUCCEEDED
    assert ended.details is not None
    assert ended.details.progress_summary == "frame 2"
    assert task.dropped == 2
    events = store.read_now(lambda tx: tx.events.of_task(ended.task.id, START))
    noted = [event.facts for event in events if event.kind is EventKind.RECORDS_DROPPED]
    assert noted == [{"total": 2}]
    assert ended.details.dropped_reports == 2
    assert store.read_now(lambda tx: tx.events.counts("report")) == {"dropped": 2}
    assert [one.task_id for one in store.read_now(lambda tx: tx.recorded.with_drops(limit=9))] == [
        ended.task.id
    ]


async def test_best_effort_work_succeeds_although_the_ledger_never_answers(
    holdfast: Holdfast, away: AwayStore
) -> None:
    away.is_away = True

    async with holdfast.detached("render", best_effort=True) as task:
        await task.progress("frame 1")

    assert task.dropped == 3
    assert task.task_id is None


async def test_work_that_was_never_recorded_is_told_when_the_ledger_answers_again(
    holdfast: Holdfast, away: AwayStore, store: Store
) -> None:
    away.is_away = True
    lost = []
    for _ in range(2):
        async with holdfast.detached("render", best_effort=True) as task:
            lost.append(task.run_id)
    away.is_away = False

    for _ in range(2):
        async with holdfast.detached("render", best_effort=True):
            pass

    fact = store.read_now(lambda tx: tx.boots.fact(UNRECORDED_FACT))
    assert fact is not None
    known = msgspec.json.decode(fact, type=UnrecordedWork)
    assert (known.total, known.name, known.run_id) == (2, "render", lost[-1])
    assert store.read_now(lambda tx: tx.events.counts("report")) == {"dropped": 2}


async def test_a_block_whose_record_was_lost_meanwhile_is_told_and_its_end_is_kept(
    holdfast: Holdfast, store: Store, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("WARNING", logger="holdfast"):
        async with holdfast.detached("render") as task:
            await Producers(store, clock).lose(task.run_id, why="its process was frozen")
            task.result = {"frames": 3}

    ended = await work_of(store, clock, task)
    assert (ended.task.status, task.refused_as) == (TaskStatus.LOST, "lost")
    assert ended.details is not None
    assert ended.details.late_report is not None
    assert decode_payload(ended.details.late_report.result or b"") == {"frames": 3}
    assert "had ended as lost before this block did" in caplog.text


async def test_a_block_that_was_cancelled_in_the_ledger_contradicts_nothing(
    holdfast: Holdfast, store: Store, clock: FakeClock
) -> None:
    tasks: list[DetachedTask] = []

    async def program() -> None:
        async with holdfast.detached("render", beat_every=0.01) as task:
            tasks.append(task)
            assert task.task_id is not None
            await holdfast.cancel(task.task_id, reason="too slow")
            await asyncio.Event().wait()

    with pytest.raises(TaskFailed):
        await program()

    details = (await work_of(store, clock, tasks[0])).details
    assert details is not None
    assert details.late_report is None


# --- a program without a ledger of its own


@pytest.mark.slow
async def test_the_module_itself_records_a_block_in_the_ledger_that_the_settings_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_STORE", f"sqlite:///{tmp_path / 'work.db'}")
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))

    async with hf.detached("render", owner="ada", runtime="media") as task:
        task.result = {"frames": 3}

    async with hf.open(f"sqlite:///{tmp_path / 'work.db'}", home=tmp_path / "home") as opened:
        ended = await Producers(opened.store, opened.store.clock).get(task.run_id)
    assert (ended.task.owner, ended.task.status) == ("ada", TaskStatus.SUCCEEDED)
    assert decode_payload(ended.task.result or b"") == {"frames": 3}
