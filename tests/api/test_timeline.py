"""ledger.timeline: what a task did when, with the restarts between; bounded, and only for its owner."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.api import timelines
from holdfast.api.tasks import TaskAsked
from holdfast.core.checkpoint import ResumeReason
from holdfast.core.clock import to_micros
from holdfast.core.events import EventKind
from holdfast.core.ids import new_boot_id, new_id
from holdfast.core.manifest import Trigger
from holdfast.core.program_records import FinishedTurn, TurnSummary
from holdfast.core.start_record import StartRecord
from holdfast.core.transitions import RestartStatus
from holdfast.store import Store, Tx
from holdfast.views.timeline import TimelineView
from tests.api.stand_in import OWNER, OWNER_TOKEN, ServedDoors
from tests.builders import START, a_restart, a_step, later, running_run, stored_run, write

NOW = later(minutes=30)


def timeline(store: Store, task_id: str) -> TimelineView:
    return store.read_now(lambda tx: timelines.read_timeline(tx, TaskAsked(task_id=task_id), now=NOW))


def a_start(minute: float, *, took_s: float = 30) -> StartRecord:
    began = later(minutes=minute)
    return StartRecord(
        boot_id=new_boot_id(began),
        role="gateway",
        host="here",
        pid=1,
        began_at=began,
        steps=(),
        ended_at=began + timedelta(seconds=took_s),
    )


def test_turns_and_steps_stand_in_the_lane_of_their_run(store: Store) -> None:
    run, _ = running_run(store)
    turn = FinishedTurn(
        task_id=run.task_id,
        loop="turns",
        seq=1,
        turn="1",
        run_id=run.id,
        steps=(TurnSummary(name="pick", digest="", size_bytes=2, duration_us=5),),
        began_at=later(minutes=1),
        ended_at=later(minutes=2),
    )
    step = a_step(
        run, name="ask", started_us=to_micros(later(minutes=3)), ended_us=to_micros(later(minutes=4))
    )

    def save(tx: Tx) -> None:
        tx.turns.commit(turn, "turns:1", is_over=False)
        tx.journal.put_step(step)

    write(store, save)
    found = timeline(store, run.task_id)

    assert (found.began_at, found.ended_at, found.as_of) == (START, None, NOW)
    [lane] = found.runs
    assert [(one.name, one.steps) for one in lane.turns] == [("turns:1", 1)]
    assert [one.name for one in lane.steps] == ["ask"]
    assert found.more == []


def test_more_turns_than_shown_are_said_and_the_newest_stay(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timelines, "TURNS", 2)
    run, _ = running_run(store)

    def save(tx: Tx) -> None:
        for number in (1, 2, 3):
            turn = FinishedTurn(
                task_id=run.task_id,
                loop="turns",
                seq=number,
                turn=str(number),
                run_id=run.id,
                steps=(),
                began_at=START,
                ended_at=START,
            )
            tx.turns.commit(turn, f"turns:{number}", is_over=False)

    write(store, save)
    found = timeline(store, run.task_id)

    assert [one.name for one in found.runs[0].turns] == ["turns:2", "turns:3"]
    assert found.more == ["turns"]


@pytest.mark.parametrize(
    ("reason", "waits_for"), [(ResumeReason.TIMEOUT, "wake"), (ResumeReason.EXPLICIT_RESTART, "resume")]
)
def test_a_run_that_was_saved_waits_from_then_on(store: Store, reason: ResumeReason, waits_for: str) -> None:
    run, _ = running_run(store)
    facts = {"checkpoint_id": "ckpt_1", "reason": reason.value}
    write(
        store,
        lambda tx: tx.emit(EventKind.RUN_PAUSED, run.id, at=later(minutes=2), task_id=run.task_id, **facts),
    )

    [lane] = timeline(store, run.task_id).runs

    [wait] = lane.waits
    assert (wait.name, wait.began_at, wait.ended_at) == (waits_for, later(minutes=2), None)


def test_a_restart_lasts_until_a_gateway_works_again_and_a_refused_one_is_no_band(store: Store) -> None:
    run, _ = running_run(store)
    start = a_start(11)

    def save(tx: Tx) -> None:
        at = later(minutes=10)
        tx.restarts.create(a_restart(id=new_id("rst", at), requested_at=at, updated_at=at))
        tx.restarts.create(
            a_restart(
                id=new_id("rst", later(minutes=20)),
                requested_at=later(minutes=20),
                updated_at=later(minutes=20),
                status=RestartStatus.BLOCKED,
            )
        )
        tx.starts.save(start)

    write(store, save)
    found = timeline(store, run.task_id)

    [band] = found.restarts
    assert (band.kind, band.began_at, band.ended_at) == ("restart", later(minutes=10), start.ended_at)


def test_a_crash_begins_with_the_last_sign_of_life_of_the_task(store: Store) -> None:
    run, _ = running_run(store)
    start, found_at = a_start(15), later(minutes=15, seconds=10)
    trigger = Trigger(reason="crash", triggered_by="crash", at=found_at, resume_reason=ResumeReason.CRASH)
    step = a_step(
        run, name="ask", started_us=to_micros(later(minutes=3)), ended_us=to_micros(later(minutes=4))
    )

    def save(tx: Tx) -> None:
        tx.journal.put_step(step)
        tx.starts.save(start)
        tx.restarts.create(
            a_restart(
                id=new_id("rst", found_at),
                boot_id=start.boot_id,
                requested_at=found_at,
                updated_at=found_at,
                triggers=(trigger,),
            )
        )

    write(store, save)
    found = timeline(store, run.task_id)

    [band] = found.restarts
    assert (band.kind, band.began_at, band.ended_at) == ("crash", later(minutes=4), start.ended_at)


def test_a_task_of_yesterday_does_not_show_the_restarts_of_today(store: Store) -> None:
    run = stored_run(store, task={"created_at": later(days=-1)})

    def save(tx: Tx) -> None:
        before = later(days=-2)
        tx.restarts.create(a_restart(id=new_id("rst", before), requested_at=before, updated_at=before))
        tx.starts.save(a_start(-2 * 24 * 60 + 1))

    write(store, save)

    assert timeline(store, run.task_id).restarts == []


@pytest.mark.slow
def test_a_caller_limited_to_an_owner_sees_only_its_own_and_no_restarts(house: ServedDoors) -> None:
    store = house.gateway.store
    ours = stored_run(store, task={"owner": OWNER}).task_id
    theirs = stored_run(store).task_id
    write(store, lambda tx: tx.restarts.create(a_restart()))

    found = house.post("ledger.timeline", {"taskId": ours}, token=OWNER_TOKEN)

    assert (found.status_code, found.json()["restarts"]) == (200, [])
    assert house.post("ledger.timeline", {"taskId": theirs}, token=OWNER_TOKEN).status_code == 404
    assert len(house.post("ledger.timeline", {"taskId": theirs}).json()["restarts"]) == 1
