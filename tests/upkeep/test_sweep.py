"""What a sweep changes, when it leaves work alone, and that a preview and an apply are one plan."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest

from holdfast.core.claim import Claim
from holdfast.core.events import EventKind
from holdfast.core.recorded import RecordedWork
from holdfast.core.run import RunOutcome
from holdfast.core.task import RuntimeName
from holdfast.core.transitions import RunStatus, TaskStatus
from holdfast.engine.claims.claims import NEVER
from holdfast.engine.ledger.ledger import DEFAULT_RETENTION, AlreadyEnded, Ledger
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
    WorkLost,
)
from holdfast.engine.producers.producers import Producers
from holdfast.engine.recovery.operator_retry import retrying_task
from holdfast.store import Store
from holdfast.testing import FakeClock
from holdfast.testing.stores import RepeatingStore
from holdfast.upkeep.sweep import ChangeKind, Sweep, Swept
from tests.builders import START, a_boot, a_run, a_task, claim_of, later, stored_run, write
from tests.engine.tables import dump
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


# --- the last chance of a runtime


@pytest.mark.parametrize(
    ("recovery", "becomes", "swept"),
    [
        (Reattached(), TaskStatus.RUNNING, Swept(recovered=1)),
        (Restarted(), TaskStatus.RUNNING, Swept(recovered=1)),
        (WorkLost(why="its session is gone"), TaskStatus.LOST, Swept(reconciled=1)),
        (NotMine(), TaskStatus.LOST, Swept(reconciled=1)),
    ],
)
async def test_a_runtime_may_recover_its_work_before_it_is_lost_and_a_preview_does_not_ask_it_to(
    store: Store, clock: FakeClock, recovery: ReattachAnswer, becomes: TaskStatus, swept: Swept
) -> None:
    run = recorded_run(store)
    proofs = FixedAnswer(LifeUnknown(), recovery)
    sweep = Sweep(store, clock, proofs=proofs)
    clock.advance(minutes=5)

    plan = await sweep.plan()
    asked = list(proofs.recovered)
    done = await sweep.apply(plan)

    assert (asked, proofs.recovered) == ([], [run.task_id])
    assert (done, status_of(store, run)) == (swept, becomes)


async def test_the_reason_of_a_loss_is_that_of_the_runtime(store: Store, clock: FakeClock) -> None:
    run = recorded_run(store)
    sweep = Sweep(store, clock, proofs=FixedAnswer(LifeUnknown(), WorkLost(why="its session is gone")))
    clock.advance(minutes=5)

    await sweep.apply(await sweep.plan())

    failure = task_of(store, run).failure
    assert failure is not None
    assert "its session is gone" in failure.message


async def test_work_is_left_alone_while_its_runtime_cannot_recover_it(
    store: Store, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Away(FixedAnswer):
        async def reattach(self, work: RecordedWork) -> ReattachAnswer:
            raise OSError(f"the socket of the runtime of {work.task.id} is gone")

    run = recorded_run(store)
    sweep = Sweep(store, clock, proofs=Away(LifeUnknown()))
    clock.advance(minutes=5)

    with caplog.at_level(logging.WARNING, "holdfast"):
        swept = await sweep.apply(await sweep.plan())

    assert (swept, status_of(store, run)) == (Swept(), TaskStatus.RUNNING)
    assert "could not recover it" in caplog.text


async def test_recorded_work_of_a_process_that_died_is_lost_without_grace(
    store: Store, clock: FakeClock
) -> None:
    write(store, lambda tx: tx.boots.begin(a_boot()))
    run = recorded_run(store, details={"alive_until": later(hours=1)})

    alive = await Sweep(store, clock, has_died=lambda _boot: False).run_once()
    dead = await Sweep(store, clock, has_died=lambda _boot: True).run_once()

    assert (alive, dead) == (Swept(), Swept(reconciled=1))
    failure = task_of(store, run).failure
    assert failure is not None
    assert "its process 1 on here has ended" in failure.message


# --- a sweeper that was frozen, and applies its plan late


async def test_a_late_plan_takes_nothing_from_work_that_went_on_meanwhile(
    store: Store, clock: FakeClock
) -> None:
    """Beaten, finished, retried and stamped by others: each of its changes comes too late."""
    beaten, finished = recorded_run(store), recorded_run(store)
    ended, stamped = (
        a_task(status=TaskStatus.FAILED, cleanup_after=later(minutes=1)),
        a_task(status=TaskStatus.FAILED),
    )
    write(store, lambda tx: [tx.tasks.create(one) for one in (ended, stamped)])
    write(store, lambda tx: tx.runs.create(a_run(ended, status=RunStatus.FAILED)))
    sweep = Sweep(store, clock)
    clock.advance(minutes=5)
    plan = await sweep.plan()
    clock.advance(hours=3)
    write(store, lambda tx: tx.runs.beat(beaten.id, beaten.fence, now=clock.now()))
    await Ledger(store, clock).finish(claim_of(finished), "tides")
    store.write_now(retrying_task(ended.id, now=clock.now()))
    write(store, lambda tx: tx.tasks.stamp(stamped.id, cleanup_after=later(days=2)))
    before = dump(store)

    swept = await sweep.apply(plan)

    assert len(plan.changes) == 4
    assert swept == Swept()
    assert dump(store) == before


async def test_a_late_proof_of_life_does_not_hide_a_newer_sign(store: Store, clock: FakeClock) -> None:
    run = recorded_run(store, details={"alive_until": START})
    sweep = Sweep(store, clock, proofs=FixedAnswer(Alive()))
    clock.advance(minutes=5)
    plan = await sweep.plan()
    clock.advance(minutes=5)
    newer = clock.now()
    await Producers(store, clock).beat(run.id)
    clock.advance(hours=1)

    await sweep.apply(plan)

    details = store.read_now(lambda tx: tx.recorded.get(run.task_id))
    assert details is not None
    assert details.last_event_at == newer
    assert details.alive_until == newer + timedelta(seconds=300)
