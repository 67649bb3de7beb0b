"""Before recorded work is lost its runtime is asked: it may prove it alive, find it, or know its end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.core.errors import BadInput
from holdfast.core.recorded import RecordedWork
from holdfast.core.run import RunOutcome
from holdfast.core.task import Failure
from holdfast.core.transitions import RunStatus, TaskStatus
from holdfast.engine.producers.contract import (
    Alive,
    Dead,
    Ended,
    LifeAnswer,
    LifeUnknown,
    NotMine,
    ReattachAnswer,
    Reattached,
    Restarted,
    StopAnswer,
    WorkLost,
)
from holdfast.engine.producers.producers import Producers
from holdfast.store import Store
from holdfast.testing import FakeClock
from holdfast.upkeep import proofs
from holdfast.upkeep.proofs import RuntimeProofs
from holdfast.upkeep.sweep import Sweep
from tests.lifecycles.deaths import a_record


class AnsweringRuntime:
    """A runtime that answers as the test says, and notes what it was asked."""

    def __init__(
        self,
        life: LifeAnswer | Exception | None = None,
        found: ReattachAnswer | Exception | None = None,
        *,
        name: str = "answering",
    ) -> None:
        self.name = name
        self.life = NotMine() if life is None else life
        self.found = NotMine() if found is None else found
        self.asked: list[str] = []

    async def cancel(self, work: RecordedWork, reason: str) -> StopAnswer:  # noqa: ARG002 - the shape of a runtime
        raise AssertionError("a sweep stops nothing")

    async def is_alive(self, work: RecordedWork) -> LifeAnswer:  # noqa: ARG002
        self.asked.append("is_alive")
        if isinstance(self.life, Exception):
            raise self.life
        return self.life

    async def reattach(self, work: RecordedWork) -> ReattachAnswer:  # noqa: ARG002
        self.asked.append("reattach")
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


class SleepingRuntime(AnsweringRuntime):
    """A runtime that never answers."""

    async def is_alive(self, work: RecordedWork) -> LifeAnswer:  # noqa: ARG002
        self.asked.append("is_alive")
        await asyncio.Event().wait()
        raise AssertionError


async def silent_work(store: Store, clock: FakeClock) -> RecordedWork:
    work = await Producers(store, clock).create(a_record("run"), is_running=True)
    clock.advance(minutes=20)
    return work


async def swept(store: Store, clock: FakeClock, *runtimes: Any) -> RecordedWork:
    """The work after a sweep that asks these runtimes."""
    sweep = Sweep(store, clock, proofs=RuntimeProofs(runtimes))
    await sweep.apply(await sweep.plan(prunes=False))
    return await Producers(store, clock).get("run")


@pytest.mark.parametrize("found", [Reattached(), Restarted()])
@pytest.mark.parametrize("life", [Dead(why="its process has ended"), LifeUnknown()])
async def test_work_that_its_runtime_finds_or_starts_again_is_not_lost(
    store: Store, clock: FakeClock, life: LifeAnswer, found: ReattachAnswer
) -> None:
    await silent_work(store, clock)
    runtime = AnsweringRuntime(life, found)

    after = await swept(store, clock, runtime)

    assert runtime.asked == ["is_alive", "reattach"], "it has its chance before the work is lost"
    assert after.task.status is TaskStatus.RUNNING
    assert after.details is not None
    assert after.details.last_event_at == clock.now(), "that is a sign of life"


async def test_work_that_its_runtime_cannot_find_again_is_lost_with_its_reason(
    store: Store, clock: FakeClock
) -> None:
    await silent_work(store, clock)

    after = await swept(store, clock, AnsweringRuntime(LifeUnknown(), WorkLost(why="the disk was wiped")))

    assert after.task.status is TaskStatus.LOST
    assert after.task.failure is not None
    assert after.task.failure.message == "its producer gave no sign of life: the disk was wiped"


async def test_a_runtime_that_knows_the_end_settles_it_and_is_not_asked_to_find_the_work(
    store: Store, clock: FakeClock
) -> None:
    await silent_work(store, clock)
    outcome = RunOutcome(status=RunStatus.SUCCEEDED, result=b'{"frames":3}')
    runtime = AnsweringRuntime(Ended(outcome=outcome, why="its log says so"))

    after = await swept(store, clock, runtime)

    assert runtime.asked == ["is_alive"]
    assert (after.task.status, after.task.result) == (TaskStatus.SUCCEEDED, b'{"frames":3}')


async def test_runtimes_that_do_not_control_the_work_let_the_next_one_answer_and_the_default_go_on(
    store: Store, clock: FakeClock
) -> None:
    work = await silent_work(store, clock)
    others = [AnsweringRuntime(name=name) for name in ("first", "second")]

    answers = [
        await RuntimeProofs([*others, AnsweringRuntime(Alive())]).is_alive(work),
        await RuntimeProofs(others).is_alive(work),
    ]
    after = await swept(store, clock, *others)

    assert answers == [Alive(), NotMine()]
    assert after.task.status is TaskStatus.LOST
    assert after.task.failure is not None
    assert "no sign of life since" in after.task.failure.message


@pytest.mark.parametrize(
    "runtime",
    [
        AnsweringRuntime(OSError("no socket")),
        AnsweringRuntime(LifeUnknown(), OSError("no socket")),
        SleepingRuntime(),
    ],
    ids=["raises", "raises when it looks for the work", "hangs"],
)
async def test_work_whose_runtime_fails_is_left_alone_until_the_next_sweep(
    store: Store, clock: FakeClock, runtime: AnsweringRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proofs, "PROOF_TIMEOUT_S", 0.01)
    await silent_work(store, clock)

    failed = await swept(store, clock, runtime, AnsweringRuntime(name="another"))
    mended = await swept(store, clock, AnsweringRuntime(Dead(why="gone"), WorkLost(why="gone")))

    assert failed.task.status is TaskStatus.RUNNING
    assert mended.task.status is TaskStatus.LOST


async def test_a_runtime_that_fails_does_not_keep_the_others_from_answering(
    store: Store, clock: FakeClock
) -> None:
    work = await silent_work(store, clock)
    broken = AnsweringRuntime(OSError("no socket"), name="broken")

    answer = await RuntimeProofs([broken, AnsweringRuntime(Alive())]).is_alive(work)

    assert answer == Alive()


async def test_a_runtime_that_hung_is_not_asked_about_each_of_many_tasks(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proofs, "PROOF_TIMEOUT_S", 0.01)
    work = await silent_work(store, clock)
    hanging = SleepingRuntime()
    asker = RuntimeProofs([hanging])

    for _ in range(3):
        with pytest.raises(TimeoutError):
            await asker.is_alive(work)

    assert hanging.asked == ["is_alive"]


@pytest.mark.parametrize(
    "outcome",
    [
        RunOutcome(status=RunStatus.RUNNING),
        RunOutcome(status=RunStatus.SUCCEEDED, result=b"{"),
        RunOutcome(status=RunStatus.FAILED, failure=Failure(kind="", message="x")),
    ],
)
async def test_an_end_that_cannot_be_stored_is_no_proof(
    store: Store, clock: FakeClock, outcome: RunOutcome
) -> None:
    work = await silent_work(store, clock)

    with pytest.raises((BadInput, ValueError)):
        await RuntimeProofs([AnsweringRuntime(Ended(outcome=outcome, why="so"))]).is_alive(work)

    after = await swept(store, clock, AnsweringRuntime(Ended(outcome=outcome, why="so")))
    assert after.task.status is TaskStatus.RUNNING


async def test_a_failure_that_a_runtime_knows_is_cut_and_redacted(store: Store, clock: FakeClock) -> None:
    work = await silent_work(store, clock)
    failure = Failure(kind="exit", message="password=hunter2hunter2 " + "x" * 100_000)
    outcome = RunOutcome(status=RunStatus.FAILED, failure=failure)

    answer = await RuntimeProofs([AnsweringRuntime(Ended(outcome=outcome, why="so"))]).is_alive(work)

    assert isinstance(answer, Ended)
    assert answer.outcome.failure is not None
    assert "hunter2" not in answer.outcome.failure.message
    assert len(answer.outcome.failure.message) <= 1000
