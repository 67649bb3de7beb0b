"""What a sweep changes, when it leaves work alone, and that a preview and an apply are one plan."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest

from holdfast.core.claim import Claim
from holdfast.core.errors import HoldfastError
from holdfast.core.events import EventKind
from holdfast.core.run import RunOutcome
from holdfast.core.task import RuntimeName
from holdfast.core.transitions import RunStatus, TaskStatus
from holdfast.engine.claims.claims import NEVER
from holdfast.engine.ledger.ledger import DEFAULT_RETENTION, AlreadyEnded, Ledger
from holdfast.engine.producers.contract import Alive, Dead, Ended, LifeAnswer, LifeUnknown, NotMine
from holdfast.store import Store
from holdfast.testing import FakeClock
from holdfast.testing.stores import RepeatingStore
from holdfast.upkeep.sweep import ChangeKind, Sweep, Swept
from tests.builders import START, a_task, claim_of, later, stored_run, write
from tests.upkeep.recorded import BrokenRuntime, FixedAnswer, beats, recorded_run, status_of, task_of

# --- recorded work


async def test_recorded_work_is_lost_after_five_minutes_without_a_sign_of_life(
    store: Store, clock: FakeClock
) -> None:
    run = recorded_run(store)
    sweep = Sweep(store, clock)

    clock.advance(seconds=299)
    early = await sweep.apply(await sweep.plan())
    clock.advance(seconds=1)
    late = await sweep.apply(await sweep.plan())

    assert (early, late) == (Swept(), Swept(reconciled=1))
    task = task_of(store, run)
    assert task.status is TaskStatus.LOST
    assert task.cleanup_after == clock.now() + DEFAULT_RETENTION
    assert task.failure is not None
    assert task.failure.kind == "lost"
    events = store.read_now(lambda tx: tx.events.of_task(run.task_id))
    assert [event.kind for event in events] == [
        EventKind.RUN_ENDED,
        EventKind.TASK_ENDED,
        EventKind.TASK_SWEPT,
    ]


async def test_a_subagent_without_a_session_may_be_silent_for_half_an_hour(
    store: Store, clock: FakeClock
) -> None:
    childless = recorded_run(store, runtime=RuntimeName.SUBAGENT)
    other = recorded_run(store, runtime=RuntimeName.SUBAGENT, task={"session_key": "agent:ada:child"})
    sweep = Sweep(store, clock)

    clock.advance(minutes=29)
    await sweep.apply(await sweep.plan())
    before = (status_of(store, childless), status_of(store, other))
    clock.advance(minutes=1)
    await sweep.apply(await sweep.plan())

    assert before == (TaskStatus.RUNNING, TaskStatus.LOST)
    assert status_of(store, childless) is TaskStatus.LOST


@pytest.mark.parametrize("sign", ["a lease", "a beat"])
async def test_work_that_shows_signs_of_life_is_left_alone(store: Store, clock: FakeClock, sign: str) -> None:
    given: dict[str, Any] = (
        {"lease_until": later(hours=1)} if sign == "a lease" else {"beat_at": later(minutes=7)}
    )
    recorded_run(store, **given)
    clock.advance(minutes=10)

    assert (await Sweep(store, clock).plan()).changes == []


async def test_work_that_holdfast_executes_is_left_to_the_rescue(store: Store, clock: FakeClock) -> None:
    stored_run(store, RunStatus.RUNNING)
    clock.advance(days=1)

    assert (await Sweep(store, clock).plan()).changes == []


@pytest.mark.parametrize(
    ("proof", "status", "becomes"),
    [
        (Alive(), RunStatus.RUNNING, TaskStatus.RUNNING),
        (LifeUnknown(), RunStatus.RUNNING, TaskStatus.LOST),
        (NotMine(), RunStatus.RUNNING, TaskStatus.LOST),
        (Dead(why="its process ended"), RunStatus.RUNNING, TaskStatus.LOST),
        (Dead(why="its process ended"), RunStatus.QUEUED, TaskStatus.LOST),
        (Dead(why="its process ended"), RunStatus.WAITING, TaskStatus.LOST),
        # A queue or a wait may take long; only its runtime can say that it is over.
        (LifeUnknown(), RunStatus.QUEUED, TaskStatus.QUEUED),
        (LifeUnknown(), RunStatus.WAITING, TaskStatus.WAITING),
    ],
)
async def test_the_runtime_is_asked_before_work_is_lost(
    store: Store, clock: FakeClock, proof: LifeAnswer, status: RunStatus, becomes: TaskStatus
) -> None:
    # A wait may be without end.
    run = recorded_run(store, status, due_at=NEVER if status is RunStatus.WAITING else START)
    proofs = FixedAnswer(proof)
    sweep = Sweep(store, clock, proofs=proofs)
    clock.advance(minutes=5)

    await sweep.apply(await sweep.plan())

    assert proofs.asked == [run.task_id]
    assert status_of(store, run) is becomes


async def test_proof_of_life_counts_as_a_beat(store: Store, clock: FakeClock) -> None:
    run = recorded_run(store)
    sweep = Sweep(store, clock, proofs=FixedAnswer(Alive()))
    clock.advance(minutes=5)

    await sweep.apply(await sweep.plan())

    assert beats(store, run) == clock.now()


async def test_work_is_left_alone_while_its_runtime_cannot_be_asked(
    store: Store, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    run = recorded_run(store)
    sweep = Sweep(store, clock, proofs=BrokenRuntime())
    clock.advance(hours=5)

    with caplog.at_level(logging.WARNING, "holdfast"):
        await sweep.apply(await sweep.plan())

    assert status_of(store, run) is TaskStatus.RUNNING
    assert run.task_id in caplog.text


async def test_work_gets_the_outcome_that_its_runtime_knows(store: Store, clock: FakeClock) -> None:
    run = recorded_run(store)
    outcome = RunOutcome(status=RunStatus.SUCCEEDED, result=b'"high tide at six"')
    sweep = Sweep(
        store, clock, proofs=FixedAnswer(Ended(outcome=outcome, why="the log of its schedule has it"))
    )
    clock.advance(minutes=5)

    swept = await sweep.apply(await sweep.plan())

    task = task_of(store, run)
    assert swept == Swept(settled=1)
    assert (task.status, task.result) == (TaskStatus.SUCCEEDED, b'"high tide at six"')


# --- the chance that producers get


async def test_a_gateway_that_was_away_gives_producers_the_whole_grace(
    store: Store, clock: FakeClock
) -> None:
    run = recorded_run(store)
    clock.advance(hours=8)
    sweep = Sweep(store, clock, every_s=60)

    passes = []
    for _ in range(6):
        passes.append((await sweep.run_once()).reconciled)
        clock.advance(seconds=60)

    assert passes == [0, 0, 0, 0, 0, 1]
    assert status_of(store, run) is TaskStatus.LOST


@pytest.mark.parametrize("jump", [timedelta(hours=8), timedelta(hours=-1)])
async def test_a_machine_that_slept_or_whose_clock_jumped_gives_them_the_grace_again(
    store: Store, clock: FakeClock, jump: timedelta
) -> None:
    clock.advance(days=1)
    run = recorded_run(store, beat_at=clock.now())
    sweep = Sweep(store, clock, every_s=60)
    await sweep.run_once()

    clock.set(clock.now() + jump)
    await sweep.run_once()

    assert status_of(store, run) is TaskStatus.RUNNING


async def test_nothing_is_swept_while_resumes_are_held(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = recorded_run(store)
    sweep = Sweep(store, clock, every_s=600)
    await sweep.run_once()
    monkeypatch.setattr(store, "held_why", lambda: "the database is older than its mark")
    clock.advance(minutes=10)

    await sweep.run_once()

    assert status_of(store, run) is TaskStatus.RUNNING


# --- ended tasks


async def test_an_ended_task_gets_the_missing_time_to_clean_it_up(store: Store, clock: FakeClock) -> None:
    task = a_task(status=TaskStatus.FAILED)
    write(store, lambda tx: tx.tasks.create(task))
    sweep = Sweep(store, clock)
    clock.advance(days=3)

    swept = await sweep.run_once()

    assert swept == Swept(stamped=1)
    assert store.read_now(lambda tx: tx.tasks.get(task.id)).cleanup_after == START + DEFAULT_RETENTION


async def test_a_plan_prunes_what_is_past_retention_and_a_pass_leaves_that_to_the_pruner(
    store: Store, clock: FakeClock
) -> None:
    task = a_task(status=TaskStatus.SUCCEEDED, cleanup_after=later(days=1))
    write(store, lambda tx: tx.tasks.create(task))
    sweep = Sweep(store, clock)
    clock.advance(days=1)

    in_a_pass, by_a_person = await sweep.run_once(), await sweep.apply(await sweep.plan())

    assert (in_a_pass.pruned, by_a_person.pruned) == (0, 1)
    assert store.read_now(lambda tx: tx.tasks.get_many([task.id])) == {}


# --- one plan, applied once


async def test_a_preview_changes_nothing_and_names_what_an_apply_changes(
    store: Store, clock: FakeClock
) -> None:
    run = recorded_run(store)
    unstamped, old = (
        a_task(status=TaskStatus.FAILED),
        a_task(status=TaskStatus.SUCCEEDED, cleanup_after=later(minutes=1)),
    )
    write(store, lambda tx: [tx.tasks.create(one) for one in (unstamped, old)])
    sweep = Sweep(store, clock)
    clock.advance(minutes=5)

    plan = await sweep.plan()
    untouched = status_of(store, run)
    swept = await sweep.apply(plan)

    assert untouched is TaskStatus.RUNNING
    assert [(one.kind, one.task_id) for one in plan.changes] == [
        (ChangeKind.RECONCILE, run.task_id),
        (ChangeKind.STAMP, unstamped.id),
        (ChangeKind.PRUNE, old.id),
    ]
    assert swept == Swept(reconciled=1, stamped=1, pruned=1)


async def test_work_that_beats_after_the_plan_is_left_alone(store: Store, clock: FakeClock) -> None:
    run = recorded_run(store)
    sweep = Sweep(store, clock)
    clock.advance(minutes=5)
    plan = await sweep.plan()

    write(store, lambda tx: tx.runs.beat(run.id, run.fence, now=clock.now()))
    swept = await sweep.apply(plan)

    assert swept == Swept()
    assert status_of(store, run) is TaskStatus.RUNNING


@pytest.mark.parametrize("first", ["the producer", "the sweep"])
async def test_a_finish_and_a_sweep_that_race_leave_one_outcome(
    store: Store, clock: FakeClock, first: str
) -> None:
    run = recorded_run(store)
    sweep, ledger = Sweep(store, clock), Ledger(store, clock)
    claim: Claim = claim_of(run)
    clock.advance(minutes=5)
    plan = await sweep.plan()

    if first == "the producer":
        await ledger.finish(claim, "tides")
        answer: object = await sweep.apply(plan)
    else:
        await sweep.apply(plan)
        answer = await ledger.finish(claim, "tides")

    if first == "the producer":
        assert (answer, status_of(store, run)) == (Swept(), TaskStatus.SUCCEEDED)
    else:
        assert isinstance(answer, AlreadyEnded)
        assert status_of(store, run) is TaskStatus.LOST


async def test_two_sweeps_that_race_make_each_change_once(store: Store, clock: FakeClock) -> None:
    runs = [recorded_run(store) for _ in range(3)]
    one, two = Sweep(store, clock), Sweep(store, clock)
    clock.advance(minutes=5)
    plans = [await one.plan(), await two.plan()]

    swept = [await one.apply(plans[0]), await two.apply(plans[1])]

    assert swept == [Swept(reconciled=3), Swept()]
    events = store.read_now(lambda tx: tx.events.after(limit=100))
    ended = [event.task_id for event in events if event.kind is EventKind.TASK_ENDED]
    assert sorted(one or "" for one in ended) == sorted(run.task_id for run in runs)


async def test_a_write_of_the_sweep_that_runs_again_after_its_commit_gives_the_same_answer(
    store: Store, clock: FakeClock
) -> None:
    recorded_run(store)
    tasks = [a_task(status=TaskStatus.FAILED), a_task(status=TaskStatus.LOST, cleanup_after=START)]
    write(store, lambda tx: [tx.tasks.create(one) for one in tasks])
    sweep = Sweep(RepeatingStore(store), clock)
    clock.advance(minutes=5)

    swept = await sweep.apply(await sweep.plan())

    assert swept == Swept(reconciled=1, stamped=1, pruned=1)


# --- plug-ins


async def test_the_sweep_of_a_plug_in_runs_in_each_pass_and_its_error_stops_nothing(
    store: Store, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    swept: list[str] = []

    async def broken() -> None:
        raise HoldfastError("its file is gone")

    async def sound() -> None:
        swept.append("sound")

    with caplog.at_level(logging.WARNING, "holdfast"):
        await Sweep(store, clock, plugins=[broken, sound]).run_once()

    assert swept == ["sound"]
    assert "its file is gone" in caplog.text
