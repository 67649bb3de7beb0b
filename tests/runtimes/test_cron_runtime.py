"""A firing of an outside scheduler whose report is missing gets its end from the scheduler's history."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.core.clock import to_micros
from holdfast.core.payload import decode_payload
from holdfast.core.recorded import RecordedWork
from holdfast.core.transitions import TaskStatus
from holdfast.engine.ledger.ledger import Cancelled
from holdfast.engine.producers.contract import Alive, Dead, Ended, NotMine, Runtime
from holdfast.engine.producers.producers import Producers
from holdfast.engine.producers.stopping import NotStopped
from holdfast.engine.producers.writes import NewRecord
from holdfast.runtimes.cli import pid_reference
from holdfast.runtimes.cron import MAX_HISTORY_BYTES, CronRuntime, FileHistory
from holdfast.store import Store
from holdfast.testing import FakeClock
from holdfast.upkeep.proofs import RuntimeProofs
from holdfast.upkeep.sweep import Sweep


class CronScene:
    """A scheduler that has recorded a firing, and a directory for its history."""

    def __init__(self, store: Store, clock: FakeClock, directory: Path) -> None:
        self.store = store
        self.clock = clock
        self.directory = directory
        self.runtime: Runtime = CronRuntime(FileHistory(directory))
        self.producers = Producers(store, clock, runtimes=[self.runtime])

    async def fire(self, run_id: str = "run-1", *, source_id: str = "backup", **facts: Any) -> RecordedWork:
        new = NewRecord(
            name="backup",
            goal="back up the disk",
            owner="ada",
            runtime="cron",
            run_id=run_id,
            source_id=source_id,
            **facts,
        )
        return await self.producers.create(new, is_running=True)

    def remember(self, *entries: object, name: str = "backup") -> None:
        lines = b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)
        (self.directory / f"{name}.jsonl").write_bytes(lines)

    async def sweep(self) -> None:
        self.clock.advance(minutes=20)
        sweep = Sweep(self.store, self.clock, proofs=RuntimeProofs([self.runtime]))
        await sweep.apply(await sweep.plan(prunes=False))


@pytest.fixture
def scene(store: Store, clock: FakeClock, tmp_path: Path) -> CronScene:
    return CronScene(store, clock, tmp_path)


async def test_results_are_recovered_from_the_history_of_the_schedule(scene: CronScene) -> None:
    for run_id in ("run-1", "run-2", "run-3", "run-4"):
        await scene.fire(run_id)
    scene.remember(
        {"runId": "run-1", "status": "ok", "result": {"files": 3}},
        {"runId": "run-2", "status": "running"},
        {"runId": "run-2", "status": "error", "error": "disk full"},
        {"runId": "run-3", "status": "running"},
    )

    await scene.sweep()

    first, second, third, fourth = [
        (await scene.producers.get(run_id)).task for run_id in ("run-1", "run-2", "run-3", "run-4")
    ]
    assert (first.status, decode_payload(first.result or b"")) == (TaskStatus.SUCCEEDED, {"files": 3})
    assert second.status is TaskStatus.FAILED
    assert second.failure is not None
    assert second.failure.message == "disk full"
    assert third.status is TaskStatus.RUNNING, "the history proves that it is alive"
    assert fourth.status is TaskStatus.LOST


async def test_an_entry_without_a_run_id_is_found_by_the_moment_of_the_firing(scene: CronScene) -> None:
    work = await scene.fire()
    began = to_micros(scene.clock.now()) // 1000
    scene.remember({"status": "ok", "runAtMs": began - 1}, {"status": "ok", "runAtMs": began, "summary": "3"})

    answer = await scene.runtime.is_alive(work)

    assert isinstance(answer, Ended)
    assert answer.outcome.result == b'"3"'


async def test_a_history_that_is_damaged_long_or_hostile_proves_only_what_it_says(scene: CronScene) -> None:
    work = await scene.fire()
    escaping = await scene.fire("run-2", source_id="../backup")
    path = scene.directory / "backup.jsonl"
    path.write_bytes(b"x" * (MAX_HISTORY_BYTES + 10) + b'\n{"status":\xff}\n[[[[\n{"status":"unheard-of"}\n')
    (scene.directory.parent / "backup.jsonl").write_bytes(b'{"runId":"run-2","status":"ok"}\n')

    nothing = await scene.runtime.is_alive(work)
    outside = await scene.runtime.is_alive(escaping)
    with path.open("ab") as file:
        file.write(b'{"runId":"run-1","status":"error","error":"\\u001b[31m red"}\n{"runId":"run-1","sta')
    await scene.sweep()

    assert (nothing, outside) == (NotMine(), NotMine())
    ended = (await scene.producers.get("run-1")).task
    assert ended.status is TaskStatus.FAILED
    assert ended.failure is not None
    assert ended.failure.message == " [31m red"


async def test_links_and_pipes_are_not_read(scene: CronScene) -> None:
    work = await scene.fire()
    elsewhere = scene.directory / "elsewhere"
    elsewhere.write_bytes(b'{"runId":"run-1","status":"ok"}\n')
    path = scene.directory / "backup.jsonl"

    path.symlink_to(elsewhere)
    linked = await scene.runtime.is_alive(work)
    path.unlink()
    os.mkfifo(path)
    piped = await scene.runtime.is_alive(work)

    assert (linked, piped) == (NotMine(), NotMine())


async def test_a_firing_with_a_process_of_its_own_is_known_by_it(scene: CronScene) -> None:
    alive = await scene.fire(reference=pid_reference(os.getpid()))
    pid, started, kernel = pid_reference(os.getpid()).replace("@", ":").split(":")[1:]
    dead = await scene.fire("run-2", reference=f"pid:{pid}:{int(started) - 1}@{kernel}")

    assert await scene.runtime.is_alive(alive) == Alive()
    assert isinstance(await scene.runtime.is_alive(dead), Dead)


async def test_a_cancel_is_refused_while_only_the_scheduler_can_stop_the_firing(scene: CronScene) -> None:
    await scene.fire()
    await scene.fire("run-2")
    scene.remember({"runId": "run-1", "status": "running"})

    kept = await scene.producers.cancel("run-1", reason="too slow")
    ended = await scene.producers.cancel("run-2", reason="too slow")

    assert isinstance(kept, NotStopped)
    assert kept.reason == "an outside scheduler runs it; stop it there"
    assert isinstance(ended, Cancelled), "nothing controls it, so the default path goes on"


async def test_work_of_another_runtime_is_not_its_own(scene: CronScene) -> None:
    new = NewRecord(name="x", goal="x", owner="ada", runtime="media", run_id="run-1", source_id="backup")
    work = await scene.producers.create(new, is_running=True)
    scene.remember({"runId": "run-1", "status": "ok"})

    answers = [await scene.runtime.is_alive(work), await scene.runtime.cancel(work, "too slow")]

    assert answers == [NotMine(), NotMine()]
    assert await scene.runtime.reattach(work) == NotMine()
