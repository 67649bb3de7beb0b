"""Rescue: work that no worker carries any more is found, proved and brought back; nothing else is touched."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from holdfast.core.checkpoint import Checkpoint, CheckpointKind, ResumeReason
from holdfast.core.claim import Claim
from holdfast.core.errors import ClaimLost, ResumesHeld
from holdfast.core.events import EventKind
from holdfast.core.ids import BootId
from holdfast.core.transitions import CheckpointStatus, RunStatus, TaskStatus
from holdfast.engine.claims.claims import Claims, claim_of
from holdfast.engine.claims.heartbeat import Heartbeat
from holdfast.engine.recovery.rescue import BATCH, Note, Reaper, Rescued
from holdfast.store import Store
from holdfast.testing import FakeClock
from tests.builders import a_boot
from tests.crash.invariants import assert_ledger_is_whole, contents_of
from tests.engine.dead_processes import die
from tests.engine.parts import Parts, a_new_task
from tests.engine.tables import dump


@pytest.fixture
def locks(tmp_path: Path) -> Path:
    return tmp_path / "boots"


async def test_the_work_of_a_dead_boot_becomes_crash_checkpoints_at_once(
    store: Store, clock: FakeClock, locks: Path
) -> None:
    dead = await Parts.begin(store, clock, locks=locks)
    claimed = await dead.carry()
    await dead.journal.save_step(claimed.claim, "read", 1)
    die(dead)
    alive = await Parts.begin(store, clock, locks=locks)

    rescued = await alive.rescuer.rescue()

    assert (rescued.checkpointed, rescued.dead_boots) == (1, (dead.life.id,))
    (checkpoint,) = await store.read(lambda tx: tx.checkpoints.page())
    document = checkpoint.read_document()
    assert (checkpoint.kind, checkpoint.reason) == (CheckpointKind.CRASH, ResumeReason.CRASH)
    assert (document.run_id, document.boot_id) == (claimed.run.id, dead.life.id)
    assert (document.steps_saved, document.company) == (1, 1)
    assert "died" in (document.note or "")
    assert_ledger_is_whole(store)


async def test_a_dead_boot_is_buried_once_it_carries_nothing(
    store: Store, clock: FakeClock, locks: Path
) -> None:
    busy = await Parts.begin(store, clock, locks=locks)
    await busy.carry()
    idle = await Parts.begin(store, clock, locks=locks)
    for dead in (busy, idle):
        die(dead)
    alive = await Parts.begin(store, clock, locks=locks)

    await alive.rescuer.rescue()

    assert contents_of(store).living_boots == {alive.life.id}
    assert names_in(locks) == [f"{alive.life.id}.lock"]
    await alive.life.end()


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


async def test_the_work_of_a_living_boot_is_left_alone(store: Store, clock: FakeClock, locks: Path) -> None:
    alive, other = await Parts.begin(store, clock, locks=locks), await Parts.begin(store, clock, locks=locks)
    claimed = await alive.carry()
    before = dump(store)

    assert await other.rescuer.rescue() == Rescued()

    assert dump(store) == before
    assert (await alive.claims.renew([claimed.claim])).lost == ()
    for life in (alive, other):
        await life.life.end()


async def test_a_boot_that_ended_without_finishing_is_rescued_at_once(parts: Parts, others: Parts) -> None:
    await parts.carry()
    await parts.life.end()

    assert (await others.rescuer.rescue()).checkpointed == 1

    assert_ledger_is_whole(parts.store)


async def test_a_lapsed_lease_is_no_proof_of_death_but_loses_the_run(
    parts: Parts, others: Parts, clock: FakeClock
) -> None:
    claimed = await parts.carry()
    clock.advance(seconds=30)

    rescued = await others.rescuer.rescue()

    assert (rescued.checkpointed, rescued.dead_boots) == (1, ())
    assert parts.life.id in contents_of(parts.store).living_boots
    with pytest.raises(ClaimLost):
        await parts.ledger.finish(claimed.claim, "late")
    assert_ledger_is_whole(parts.store)


async def test_a_lease_that_has_not_lapsed_yet_holds(parts: Parts, others: Parts, clock: FakeClock) -> None:
    await parts.carry()
    clock.advance(seconds=29)

    assert (await others.rescuer.rescue()).checkpointed == 0


async def test_a_lease_renewed_after_it_was_seen_to_have_lapsed_holds(
    parts: Parts, others: Parts, clock: FakeClock
) -> None:
    claimed = await parts.carry()
    clock.advance(seconds=31)
    seen = await parts.store.read(lambda tx: tx.runs.lapsed(now=clock.now(), limit=10))
    rescue = others.rescuer._rescuing(seen, note="its lease lapsed", company=None)
    renewed = await parts.claims.renew([claimed.claim])

    rescued = await parts.store.write(rescue)

    assert len(seen) == 1
    assert rescued.checkpointed == 0
    await parts.ledger.finish(renewed.held[0], "done")


async def test_a_run_that_moved_on_since_it_was_seen_is_left_alone(
    parts: Parts, others: Parts, clock: FakeClock
) -> None:
    claimed = await parts.carry()
    seen = [await parts.store.read(lambda tx: tx.runs.get(claimed.run.id))]
    rescue = others.rescuer._rescuing(seen, note="process 1 died", company=1)
    await parts.claims.release(claimed.claim)
    (again,) = await others.claims.take()

    assert (await parts.store.write(rescue)).checkpointed == 0

    assert (await others.claims.renew([again.claim])).lost == ()


async def test_rescuing_twice_rescues_once(parts: Parts, others: Parts, clock: FakeClock) -> None:
    await parts.carry()
    clock.advance(minutes=1)
    await others.rescuer.rescue()
    before = dump(parts.store)

    assert await others.rescuer.rescue() == Rescued()

    assert dump(parts.store) == before


async def test_more_runs_than_one_batch_are_all_rescued(store: Store, clock: FakeClock, locks: Path) -> None:
    dead = await Parts.begin(store, clock, locks=locks)
    wanted = BATCH + 20
    await dead.ledger.create_many([a_new_task() for _ in range(wanted)])
    taken = len(await dead.claims.take(BATCH)) + len(await dead.claims.take(BATCH))
    die(dead)
    alive = await Parts.begin(store, clock, locks=locks)

    rescued = await alive.rescuer.rescue()
    resumed = await alive.resumer.resume_all()

    assert taken == wanted
    assert rescued.checkpointed == wanted
    assert len(resumed.followed_up) == wanted
    await alive.life.end()


async def test_recorded_work_of_a_silent_producer_is_left_to_the_sweep(
    parts: Parts, others: Parts, clock: FakeClock
) -> None:
    task = await parts.create(runtime="media")
    (run,) = await parts.ledger.runs(task.id)
    await parts.claims.start(run.id)
    ours = await parts.carry()
    clock.advance(minutes=1)

    rescued = await others.rescuer.rescue()

    assert rescued.checkpointed == 1
    assert (await parts.ledger.get(task.id)).status is TaskStatus.RUNNING
    assert (await parts.ledger.get(ours.task.id)).status is TaskStatus.PAUSED
    assert_ledger_is_whole(parts.store)


async def test_the_checkpoints_of_a_dead_resumer_are_returned(
    store: Store, clock: FakeClock, locks: Path
) -> None:
    dead = await Parts.begin(store, clock, locks=locks)
    claimed = await dead.carry()
    await dead.checkpoints.pause([claimed.claim], ResumeReason.SIGNAL)
    (held,) = await dead.resumer.claim()
    die(dead)
    alive = await Parts.begin(store, clock, locks=locks)

    rescued = await alive.rescuer.rescue()

    assert rescued.returned == 1
    assert_ledger_is_whole(store)
    checkpoint = await store.read(lambda tx: tx.checkpoints.get(held.id))
    assert (checkpoint.status, checkpoint.token, checkpoint.attempts) == (
        CheckpointStatus.PAUSED_FOR_RESTART,
        None,
        1,
    )
    assert (await alive.resumer.resume_all()).followed_up.keys() == {held.id}
    events = await store.read(lambda tx: tx.events.of_task(claimed.task.id))
    assert EventKind.CHECKPOINT_RETURNED in [event.kind for event in events]
    assert_ledger_is_whole(store)
    await alive.life.end()


async def test_a_life_does_not_take_itself_for_dead(store: Store, clock: FakeClock, locks: Path) -> None:
    alive = await Parts.begin(store, clock, locks=locks)
    await alive.carry()

    assert not alive.life.has_died(alive.life.boot)
    assert await alive.rescuer.rescue() == Rescued()
    await alive.life.end()


async def test_boots_of_another_place_are_judged_by_their_leases_only(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    there = await Parts.begin(store, clock, locks=tmp_path / "there")
    await there.carry()
    die(there)
    here = await Parts.begin(store, clock, locks=tmp_path / "here")

    assert (await here.rescuer.rescue()).checkpointed == 0

    clock.advance(minutes=1)
    assert (await here.rescuer.rescue()).checkpointed == 1
    await here.life.end()


async def test_work_of_a_process_whose_lock_file_was_removed_is_left_to_it_until_its_lease_lapses(
    store: Store, clock: FakeClock, locks: Path
) -> None:
    there, here = await Parts.begin(store, clock, locks=locks), await Parts.begin(store, clock, locks=locks)
    claimed = await there.carry()
    (locks / f"{there.life.id}.lock").unlink()

    assert await here.rescuer.rescue() == Rescued()
    assert (await there.claims.renew([claimed.claim])).lost == ()

    clock.advance(minutes=1)
    rescued = await here.rescuer.rescue()
    assert (rescued.checkpointed, rescued.dead_boots) == (1, ())
    for life in (there, here):
        await life.life.end()


async def test_a_boot_that_left_no_proof_is_forgotten_when_it_has_carried_nothing_for_long(
    store: Store, clock: FakeClock, locks: Path
) -> None:
    lost, held, here = [await Parts.begin(store, clock, locks=locks) for _ in range(3)]
    await lost.carry()
    die(lost)
    (locks / f"{lost.life.id}.lock").unlink()
    clock.advance(hours=23)
    await here.rescuer.rescue()
    before = contents_of(store).living_boots
    clock.advance(hours=1)

    await here.rescuer.rescue()

    assert before == {lost.life.id, held.life.id, here.life.id}
    assert contents_of(store).living_boots == {held.life.id, here.life.id}
    assert await store.read(lambda tx: tx.boots.get(lost.life.id)) is None
    events = store.read_now(lambda tx: tx.events.newest(limit=100))
    assert [event.facts["how"] for event in events if event.kind is EventKind.BOOT_ENDED] == ["lost"]
    for life in (held, here):
        await life.life.end()


async def test_a_boot_that_carries_something_is_not_forgotten(
    store: Store, clock: FakeClock, locks: Path
) -> None:
    busy, here = await Parts.begin(store, clock, locks=locks), await Parts.begin(store, clock, locks=locks)
    (locks / f"{busy.life.id}.lock").unlink()
    clock.advance(days=2)
    claimed = await busy.carry()

    await here.rescuer.rescue_dead_boots()

    assert busy.life.id in contents_of(store).living_boots
    assert (await busy.claims.renew([claimed.claim])).lost == ()
    for life in (busy, here):
        await life.life.end()


async def test_a_living_process_that_was_forgotten_goes_on_under_its_leases(
    store: Store, clock: FakeClock, locks: Path
) -> None:
    alive, here = await Parts.begin(store, clock, locks=locks), await Parts.begin(store, clock, locks=locks)
    (locks / f"{alive.life.id}.lock").unlink()
    clock.advance(days=2)
    await here.rescuer.rescue()
    claimed = await alive.carry()

    assert await here.rescuer.rescue() == Rescued()

    assert (await alive.claims.renew([claimed.claim])).lost == ()
    await alive.ledger.finish(claimed.claim, "done")
    for life in (alive, here):
        await life.life.end()


async def test_many_boots_that_vanished_elsewhere_do_not_hide_a_dead_one_here(
    store: Store, clock: FakeClock, locks: Path
) -> None:
    vanished = [a_boot(id=BootId(f"boot_0{number:04d}"), host="elsewhere/-") for number in range(1001)]
    await store.write(lambda tx: [tx.boots.begin(boot) for boot in vanished])
    dead, here = await Parts.begin(store, clock, locks=locks), await Parts.begin(store, clock, locks=locks)
    die(dead)

    assert (await here.rescuer.rescue()).dead_boots == (dead.life.id,)

    await here.life.end()


async def test_the_reaper_rescues_and_resumes_in_one_pass(
    parts: Parts, others: Parts, clock: FakeClock
) -> None:
    claimed = await parts.carry()
    clock.advance(minutes=1)
    reaper = Reaper(others.rescuer, others.resumer, others.clock)

    rescued, resumed = await reaper.run_once()

    assert (rescued.checkpointed, len(resumed.followed_up)) == (1, 1)
    statuses = [run.status for run in await parts.ledger.runs(claimed.task.id)]
    assert statuses == [RunStatus.RESUMED, RunStatus.QUEUED]


async def test_a_short_lease_lapses_soon(parts: Parts, others: Parts, store: Store, clock: FakeClock) -> None:
    await parts.create()
    await Claims(store, clock, parts.life.id, lease=timedelta(milliseconds=300)).take()
    clock.advance(seconds=0.3)

    assert (await others.rescuer.rescue()).checkpointed == 1


async def test_a_checkpoint_that_was_given_back_and_claimed_since_is_left_to_its_new_resumer(
    parts: Parts, others: Parts, clock: FakeClock
) -> None:
    """Many processes start after a resumer died, and all have seen the same claim."""
    await parts.carry()
    (claimed,) = await _paused_and_claimed(parts)
    seen_by_many = others.rescuer._returning([claimed], was_late=False)
    await parts.store.write(others.rescuer._returning([claimed], was_late=False))
    (again,) = await others.resumer.claim()

    late = await parts.store.write(seen_by_many)

    assert late.returned == 0
    assert (await others.resumer.settle([again])).followed_up.keys() == {claimed.id}


async def _paused_and_claimed(parts: Parts) -> list[Checkpoint]:
    (run,) = await parts.store.read(lambda tx: tx.runs.of_boot(parts.life.id, limit=10))
    await parts.checkpoints.pause([claim_of(run)], ResumeReason.EXPLICIT_RESTART)
    return await parts.resumer.claim()


async def test_a_process_that_slept_renews_its_own_claims_before_it_looks_for_lapsed_ones(
    parts: Parts, clock: FakeClock
) -> None:
    claimed = await parts.carry()
    told: list[Claim] = []
    heartbeat = Heartbeat(parts.claims, on_lost=told.append, on_cancelled=told.append)
    heartbeat.hold(claimed.claim)
    reaper = Reaper(parts.rescuer, parts.resumer, parts.clock, heartbeat=heartbeat)
    await reaper.run_once()

    clock.advance(minutes=10)
    rescued, _ = await reaper.run_once()

    assert rescued.checkpointed == 0
    assert told == []


async def test_after_a_gap_the_others_get_a_chance_to_renew_before_their_work_is_taken(
    parts: Parts, others: Parts, clock: FakeClock
) -> None:
    await parts.carry()
    reaper = Reaper(others.rescuer, others.resumer, others.clock)
    await reaper.run_once()

    clock.advance(minutes=10)
    found = [(await reaper.run_once())[0].checkpointed]
    for _ in range(6):
        clock.advance(seconds=5)
        found.append((await reaper.run_once())[0].checkpointed)

    assert found == [0, 0, 0, 0, 0, 0, 1]


@pytest.mark.parametrize("by", [timedelta(hours=1), timedelta(seconds=25), timedelta(hours=-1)])
@pytest.mark.parametrize("renewed_ago_s", [1, 9])
async def test_a_clock_that_jumps_takes_no_work_from_a_process_that_is_alive(
    parts: Parts, others: Parts, clock: FakeClock, by: timedelta, renewed_ago_s: int
) -> None:
    claimed = await parts.carry()
    heartbeat = Heartbeat(parts.claims, on_lost=_complain, on_cancelled=_complain)
    heartbeat.hold(claimed.claim)
    reaper = Reaper(others.rescuer, others.resumer, others.clock)
    await reaper.run_once()

    clock.advance(seconds=renewed_ago_s)
    clock.jump(seconds=by.total_seconds())
    for second in range(120):
        if second == 60:
            clock.jump(seconds=-by.total_seconds())
        # Each in its own time: the one every 5 seconds, the other every 10.
        if second % 5 == 0:
            rescued, _ = await reaper.run_once()
            assert rescued.checkpointed == 0, second
        clock.advance(seconds=1)
        if (second + 1 + renewed_ago_s) % 10 == 0:
            await heartbeat.run_once()


async def test_a_process_that_starts_after_a_jump_or_a_night_spares_who_is_alive_for_a_lease(
    store: Store, clock: FakeClock, locks: Path
) -> None:
    alive = await Parts.begin(store, clock, locks=locks)
    await alive.carry()
    clock.advance(hours=9)
    new = await Parts.begin(store, clock, locks=locks)
    reaper = Reaper(new.rescuer, new.resumer, new.clock)

    found = [(await new.rescuer.rescue()).checkpointed]
    for _ in range(7):
        found.append((await reaper.run_once())[0].checkpointed)
        assert 4.0 <= reaper._next_in_s() <= 6.0
        clock.advance(seconds=5)

    # One that is frozen for longer loses its work: it may never wake up.
    assert found == [0, 0, 0, 0, 0, 0, 0, 1]


def _complain(claim: Claim) -> None:
    raise AssertionError(f"{claim.run_id} was taken away")


@pytest.mark.parametrize("left_s", [0.5, 3.0])
async def test_the_reaper_comes_when_the_first_lease_ends_if_that_is_before_its_next_pass(
    parts: Parts, others: Parts, clock: FakeClock, left_s: float
) -> None:
    await parts.carry()
    clock.advance(seconds=30 - left_s)
    reaper = Reaper(others.rescuer, others.resumer, others.clock)

    await reaper.run_once()

    assert left_s - 0.5 < reaper._next_in_s() <= left_s + 0.02


async def test_a_lease_that_ends_later_brings_no_worker_sooner(parts: Parts, others: Parts) -> None:
    await parts.carry()
    reaper = Reaper(others.rescuer, others.resumer, others.clock)

    await reaper.run_once()

    assert 4.0 <= reaper._next_in_s() <= 6.0


async def test_after_a_gap_the_chance_to_renew_is_a_whole_pause(
    parts: Parts, others: Parts, clock: FakeClock
) -> None:
    await parts.carry()
    reaper = Reaper(others.rescuer, others.resumer, others.clock)
    await reaper.run_once()

    clock.advance(minutes=10)
    await reaper.run_once()

    assert 4.0 <= reaper._next_in_s() <= 6.0


async def test_resumes_that_are_held_are_no_gap(parts: Parts, others: Parts, clock: FakeClock) -> None:
    await parts.carry()
    others.resumer.held = "a person must look"
    reaper = Reaper(others.rescuer, others.resumer, others.clock)
    for _ in range(4):
        clock.advance(seconds=8)
        with pytest.raises(ResumesHeld):
            await reaper.run_once()

    (checkpoint,) = await parts.store.read(lambda tx: tx.checkpoints.page())
    assert checkpoint.status is CheckpointStatus.PAUSED_FOR_RESTART


# --- the people who must know of it


class Listed:
    """A notary that keeps a list."""

    def __init__(self) -> None:
        self.noted: list[str] = []
        self.settled = 0

    def noting(self, now: datetime) -> Note:  # noqa: ARG002 - the shape of a notary
        return lambda _tx, runs: self.noted.extend(run.id for run in runs)

    async def settle(self) -> None:
        self.settled += 1


async def test_a_notary_learns_of_what_is_rescued_and_of_nothing_else(
    parts: Parts, others: Parts, clock: FakeClock
) -> None:
    claimed = await parts.carry()
    notary = others.rescuer.notary = Listed()
    clock.advance(seconds=31)
    seen = await parts.store.read(lambda tx: tx.runs.lapsed(now=clock.now(), limit=10))
    late = others.rescuer._rescuing(seen, note="its lease lapsed", company=None)
    await parts.claims.renew([claimed.claim])
    await parts.store.write(late)

    assert notary.noted == []

    clock.advance(seconds=31)
    await Reaper(others.rescuer, others.resumer, others.clock).run_once()
    await parts.store.write(late)
    assert (notary.noted, notary.settled) == ([claimed.run.id], 1)
